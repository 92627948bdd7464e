//! One thread's position in the rules, and the two questions it answers: at a call's entry, and at its exit.

use crate::answer::{Effects, Entry, Exit, Frame, Judgement, Scope, Show, Switch, Verdict, kind};
use crate::plan::{Action, Plan, SampleKind, TOLD, fact, flag};
use crate::random::thread_seed;
use crate::sampler::{Draw, Sampler};
use crate::site::Gate;
use crate::tail::Tail;

/// A thread's counters for sampled functions.
#[derive(Debug)]
pub struct Store<'a> {
    /// [`Plan::sampler_count`] of them.
    pub samplers: &'a mut [Sampler],
    /// [`Plan::tail_count`] of them.
    pub tails: &'a mut [Tail],
}

/// One thread's position in the rules: fixed in size, without pointers.
///
/// Each context with a stack of its own (a thread, a coroutine) has one. Calls are told by [`ThreadState::enter`] and
/// [`ThreadState::exit`], strictly nested; frames that are unwound or jumped over are left one by one, innermost
/// first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct ThreadState {
    gate: Gate,
    min_rank: u8,
    depth: u32,
    max_depth: u32,
    time: u64,
    seed: u64,
}

impl ThreadState {
    /// The state of a thread with no open calls. `thread` distinguishes threads: each chooses other random executions.
    #[must_use]
    pub fn new(plan: &Plan<'_>, thread: u64) -> Self {
        let mut gate = Gate::OPEN;
        if plan.fact(fact::OPT_IN) {
            gate |= Gate::OUTSIDE;
        }
        if plan.header.depth == 0 {
            gate |= Gate::DEEP;
        }
        Self {
            gate,
            min_rank: plan.header.min_rank,
            depth: 0,
            max_depth: plan.header.depth,
            time: plan.header.time,
            seed: thread_seed(plan.header.seed, thread),
        }
    }

    /// Why ordinary calls of this thread are not shown just now; see [`SiteNeed`](crate::SiteNeed).
    #[inline]
    #[must_use]
    pub fn gate(&self) -> Gate {
        self.gate
    }

    /// A call begins that a [`SiteNeed::Mute`](crate::SiteNeed::Mute) site hides with its subtree. Returns what
    /// [`ThreadState::unmute`] needs at its exit.
    #[inline]
    #[must_use]
    pub fn mute(&mut self) -> Gate {
        let before = self.gate;
        self.gate |= Gate::MUTED;
        before
    }

    /// The call that [`ThreadState::mute`] was told of ends.
    #[inline]
    pub fn unmute(&mut self, before: Gate) {
        self.gate = before;
    }

    /// A call begins. `action` is [`Plan::action_of`] its function, `switch` the process's.
    ///
    /// The clock is read at most once, and not for hidden calls unless a rate has to be kept.
    #[inline]
    pub fn enter(
        &mut self,
        plan: &Plan<'_>,
        store: &mut Store<'_>,
        action: u32,
        switch: Switch,
        clock: impl FnOnce() -> u64,
    ) -> Entry {
        let frame = Frame {
            start: 0,
            time: self.time,
            depth: self.depth,
            max_depth: self.max_depth,
            action,
            flags: kind::HIDDEN,
            gate: self.gate,
            min_rank: self.min_rank,
        };
        if self.gate.meets(Gate::MUTED) {
            return Entry::hidden(frame, Effects::NONE);
        }
        if action == 0 {
            return self.enter_ordinary(plan, frame, switch, clock);
        }
        let rules = plan.action(action);
        if rules.has(flag::NOTRACE) {
            let _ = self.mute();
            return Entry::hidden(frame, Effects::NONE);
        }
        if self.gate.meets(Gate::OUTSIDE) && !rules.has(flag::FILTER) {
            return Entry::hidden(frame, Effects::NONE);
        }
        self.enter_let_in(plan, store, &rules, frame, switch, clock)
    }

    /// The rest of [`ThreadState::enter`], for a function that no rule is about.
    #[inline]
    fn enter_ordinary(
        &mut self,
        plan: &Plan<'_>,
        mut frame: Frame,
        switch: Switch,
        clock: impl FnOnce() -> u64,
    ) -> Entry {
        if self.gate != Gate::OPEN || switch != Switch::On {
            return Entry::hidden(frame, Effects::NONE);
        }
        self.depth = self.depth.saturating_add(1);
        if self.depth >= self.max_depth {
            self.gate |= Gate::DEEP;
        }
        let mut show = Show::Lazy;
        frame.flags = if plan.fact(fact::CALLER) {
            kind::LAZY | kind::BY_DESCENDANTS
        } else if self.time > 0 {
            kind::LAZY | kind::BY_TIME
        } else {
            show = Show::Now;
            kind::NOW
        };
        frame.start = clock();
        Entry {
            show,
            effects: Effects::NONE,
            time: frame.start,
            stands_for: 1,
            frame,
        }
    }

    /// The rest of [`ThreadState::enter`], for a call that the filters let in.
    fn enter_let_in(
        &mut self,
        plan: &Plan<'_>,
        store: &mut Store<'_>,
        rules: &Action,
        mut frame: Frame,
        switch: Switch,
        clock: impl FnOnce() -> u64,
    ) -> Entry {
        let filter = rules.has(flag::FILTER);
        let mut depth = if filter { 0 } else { self.depth };
        let mut max_depth = self.max_depth;
        if rules.depth > 0 {
            depth = 0;
            max_depth = rules.depth;
        }
        let min_rank = if rules.has(flag::SIZE) {
            rules.min_rank
        } else {
            self.min_rank
        };
        let on = switch == Switch::On || switch == Switch::Off && rules.has(flag::ON);
        let stays_on = on && !rules.has(flag::OFF | flag::FINISH);
        let in_view = !rules.has(flag::HIDE) && rules.size_rank >= min_rank && depth < max_depth;
        let visible = stays_on && in_view;

        let mut clock = Clock::new(clock);
        let mut held = false;
        let mut stands_for = 1;
        // A slot that the caller did not provide is shown unsampled.
        let sampler = match rules.sampling.kind {
            SampleKind::All => None,
            _ => store.samplers.get_mut(rules.sampling.slot as usize),
        };
        if let Some(sampler) = sampler {
            // What would be shown without sampling is counted; a filter's call for the sake of its subtree.
            let counted = on && (filter || in_view);
            // Recursion within a chosen execution belongs to its subtree.
            let within = filter && sampler.open > 0;
            if counted && !within {
                match sampler.draw(rules.sampling, self.seed, || clock.read()) {
                    Draw::Skip => {
                        if filter {
                            self.gate |= Gate::MUTED;
                        }
                        return Entry::hidden(frame, Effects::NONE);
                    }
                    Draw::Show(executions) => stands_for = executions,
                }
                held = rules.sampling.kind == SampleKind::Tail;
                if filter {
                    sampler.open = sampler.open.saturating_add(1);
                    frame.flags |= kind::OPENED;
                }
            } else if !filter {
                // Not chosen: a trigger's other actions belong to its chosen executions.
                return Entry::hidden(frame, Effects::NONE);
            }
        }

        self.min_rank = min_rank;
        self.max_depth = max_depth;
        self.depth = depth.saturating_add(u32::from(visible));
        if rules.has(flag::TIME) {
            self.time = rules.time;
        }
        self.gate = self.gate.without(Gate::DEEP);
        if filter {
            self.gate = self.gate.without(Gate::OUTSIDE);
        }
        if self.depth >= self.max_depth {
            self.gate |= Gate::DEEP;
        }
        let mut effects = switches(rules);
        let below_only = held && filter;
        if !visible && !below_only {
            return Entry {
                stands_for,
                ..Entry::hidden(frame, effects)
            };
        }

        if visible && rules.has(flag::BACKTRACE) {
            effects |= Effects::BACKTRACE;
        }
        if !rules.has(flag::TRACE) {
            if plan.fact(fact::CALLER) && !rules.has(flag::CALLER) {
                frame.flags |= kind::BY_DESCENDANTS;
            } else if self.time > 0 {
                frame.flags |= kind::BY_TIME;
            }
        }
        let lazy = frame.flags & (kind::BY_TIME | kind::BY_DESCENDANTS) != 0;
        let (show, kind) = match (held, filter, visible) {
            (false, _, _) if lazy => (Show::Lazy, kind::LAZY),
            (false, _, _) => (Show::Now, kind::NOW),
            (true, false, _) => (Show::Held(Scope::Call), kind::HELD_CALL),
            (true, true, true) => (Show::Held(Scope::Tree), kind::HELD_TREE),
            (true, true, false) => (Show::Held(Scope::Below), kind::HELD_BELOW),
        };
        frame.flags |= kind;
        frame.start = clock.read();
        Entry {
            show,
            effects,
            time: frame.start,
            stands_for,
            frame,
        }
    }

    /// The call of `frame` ends: it returns, is unwound or jumped over. The clock is not read for hidden calls.
    #[inline]
    pub fn exit(
        &mut self,
        plan: &Plan<'_>,
        store: &mut Store<'_>,
        frame: &Frame,
        clock: impl FnOnce() -> u64,
    ) -> Exit {
        self.end(plan, store, frame, Judgement::Open, clock)
    }

    /// The same, of a call of which it may be known already what is to become of it.
    #[inline]
    pub(crate) fn end(
        &mut self,
        plan: &Plan<'_>,
        store: &mut Store<'_>,
        frame: &Frame,
        judgement: Judgement,
        clock: impl FnOnce() -> u64,
    ) -> Exit {
        // The threshold of the call itself, which its own trigger may have set.
        let at_least = self.time;
        self.time = frame.time;
        self.depth = frame.depth;
        self.max_depth = frame.max_depth;
        self.gate = frame.gate;
        self.min_rank = frame.min_rank;
        if frame.flags & (kind::OPENED | kind::HELD) != 0 {
            return exit_sampled(plan, store, frame, at_least, judgement, clock);
        }
        if frame.flags == kind::HIDDEN {
            return Exit::HIDDEN;
        }
        frame.exit(at_least, clock())
    }
}

/// The rest of [`ThreadState::exit`], for a chosen execution of a sampled function.
fn exit_sampled(
    plan: &Plan<'_>,
    store: &mut Store<'_>,
    frame: &Frame,
    at_least: u64,
    judgement: Judgement,
    clock: impl FnOnce() -> u64,
) -> Exit {
    let sampling = plan.action(frame.action).sampling;
    let mut sampler = store.samplers.get_mut(sampling.slot as usize);
    if frame.flags & kind::OPENED != 0
        && let Some(sampler) = &mut sampler
    {
        sampler.open = sampler.open.saturating_sub(1);
    }
    let scope = match frame.flags & kind::MASK {
        kind::HIDDEN => return Exit::HIDDEN,
        kind::HELD_CALL => Scope::Call,
        kind::HELD_TREE => Scope::Tree,
        kind::HELD_BELOW => Scope::Below,
        _ => return frame.exit(at_least, clock()),
    };
    let mut exit = frame.exit(at_least, clock());
    let duration = exit.time.saturating_sub(frame.start);
    let slow = match judgement {
        Judgement::Discarded => false,
        Judgement::Kept => true,
        Judgement::Open if sampling.parameter == TOLD => true,
        Judgement::Open => store
            .tails
            .get_mut(sampling.tail as usize)
            .is_none_or(|tail| tail.observe(duration, sampling.parameter)),
    };
    if let Some(sampler) = sampler {
        sampler.judged(slow);
    }
    if !slow {
        exit.verdict = Verdict::Discard(scope);
    } else if scope == Scope::Below {
        exit.verdict = Verdict::Keep;
    }
    exit
}

/// What a trigger that fires does to the process's switch.
fn switches(rules: &Action) -> Effects {
    let mut effects = Effects::NONE;
    for (flag, effect) in [
        (flag::ON, Effects::TRACE_ON),
        (flag::OFF, Effects::TRACE_OFF),
        (flag::FINISH, Effects::FINISH),
    ] {
        if rules.has(flag) {
            effects |= effect;
        }
    }
    effects
}

/// A clock that is read once at most, when somebody asks.
struct Clock<C> {
    read: Option<C>,
    time: u64,
}

impl<C: FnOnce() -> u64> Clock<C> {
    fn new(read: C) -> Self {
        Self {
            read: Some(read),
            time: 0,
        }
    }

    #[inline]
    fn read(&mut self) -> u64 {
        if let Some(read) = self.read.take() {
            self.time = read();
        }
        self.time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sizes_that_shadow_stacks_reckon_with() {
        assert_eq!(size_of::<Frame>(), 32);
        assert_eq!(size_of::<ThreadState>(), 32);
        assert_eq!(core::mem::offset_of!(ThreadState, gate), 0);
    }
}
