//! The state machine: one thread's position in the rules, asked at a call's entry and at its exit.

use crate::answer::{
    CallFrame, Effects, EntryAnswer, ExitAnswer, ExitVerdict, Judgement, Scope, Show, TraceSwitch,
    kind,
};
use crate::plan::{Action, Plan, fact, flag};
use crate::random::thread_seed;
use crate::sampler::{Draw, SampleKind, Sampler, TOLD};
use crate::site::OffReasons;
use crate::tail::Tail;

/// A thread's counters for sampled functions.
#[derive(Debug)]
pub struct Store<'a> {
    /// The samplers, [`Plan::sampler_count`] of them.
    pub samplers: &'a mut [Sampler],
    /// The tails, [`Plan::tail_count`] of them.
    pub tails: &'a mut [Tail],
}

/// One thread's position in the rules: fixed in size, without pointers.
///
/// Each context with a stack of its own (a thread, a coroutine) has one. The caller reports calls by
/// [`ThreadState::enter`] and [`ThreadState::exit`], strictly nested. Frames that are unwound or jumped over are left
/// one by one, innermost first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct ThreadState {
    gate: OffReasons,
    min_rank: u8,
    depth: u32,
    max_depth: u32,
    time: u64,
    seed: u64,
}

impl ThreadState {
    /// Returns the state of a thread with no open calls. `thread` distinguishes threads: each chooses other random
    /// executions.
    #[must_use]
    pub fn new(plan: &Plan, thread: u64) -> Self {
        let mut gate = OffReasons::OPEN;
        if plan.fact(fact::OPT_IN) {
            gate |= OffReasons::OUTSIDE;
        }
        if plan.header.depth == 0 {
            gate |= OffReasons::DEEP;
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

    /// Returns the reasons for which ordinary calls of this thread are not shown just now; see
    /// [`SiteNeed`](crate::SiteNeed).
    #[inline]
    #[must_use]
    pub fn gate(&self) -> OffReasons {
        self.gate
    }

    /// Handles the beginning of a call. `action` is [`Plan::action_of`] its function, `switch` the process's.
    ///
    /// The clock is read at most once, and not for hidden calls unless a rate must be kept.
    #[inline]
    pub fn enter(
        &mut self,
        plan: &Plan,
        store: &mut Store<'_>,
        action: u32,
        switch: TraceSwitch,
        clock: impl FnOnce() -> u64,
    ) -> EntryAnswer {
        let frame = CallFrame {
            start: 0,
            time: self.time,
            depth: self.depth,
            max_depth: self.max_depth,
            action,
            flags: kind::HIDDEN,
            gate: self.gate,
            min_rank: self.min_rank,
        };
        if self.gate.meets(OffReasons::MUTED) {
            return EntryAnswer::hidden(frame, Effects::NONE);
        }
        if action == 0 {
            return self.enter_ordinary(plan, frame, switch, clock);
        }
        let rules = plan.action(action);
        if rules.has(flag::NOTRACE) {
            self.gate |= OffReasons::MUTED;
            return EntryAnswer::hidden(frame, Effects::NONE);
        }
        if self.gate.meets(OffReasons::OUTSIDE) && !rules.has(flag::FILTER) {
            return EntryAnswer::hidden(frame, Effects::NONE);
        }
        self.enter_let_in(plan, store, &rules, frame, switch, clock)
    }

    /// Does the rest of [`ThreadState::enter`] for a function without rules.
    #[inline]
    fn enter_ordinary(
        &mut self,
        plan: &Plan,
        mut frame: CallFrame,
        switch: TraceSwitch,
        clock: impl FnOnce() -> u64,
    ) -> EntryAnswer {
        if self.gate != OffReasons::OPEN || switch != TraceSwitch::On {
            return EntryAnswer::hidden(frame, Effects::NONE);
        }
        self.depth = self.depth.saturating_add(1);
        if self.depth >= self.max_depth {
            self.gate |= OffReasons::DEEP;
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
        EntryAnswer {
            show,
            effects: Effects::NONE,
            time: frame.start,
            stands_for: 1,
            frame,
        }
    }

    /// Does the rest of [`ThreadState::enter`] for a call that the filters let in.
    fn enter_let_in(
        &mut self,
        plan: &Plan,
        store: &mut Store<'_>,
        rules: &Action,
        mut frame: CallFrame,
        switch: TraceSwitch,
        clock: impl FnOnce() -> u64,
    ) -> EntryAnswer {
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
        let on = switch == TraceSwitch::On || switch == TraceSwitch::Off && rules.has(flag::ON);
        let stays_on = on && !rules.has(flag::OFF | flag::FINISH);
        let in_view = !rules.has(flag::HIDE) && rules.size_rank >= min_rank && depth < max_depth;
        let visible = stays_on && in_view;

        let mut clock = LazyClock::new(clock);
        let mut held = false;
        let mut stands_for = 1;
        // An execution whose slot the caller did not provide is shown unsampled.
        let sampler = match rules.sampling.kind {
            SampleKind::All => None,
            _ => store.samplers.get_mut(rules.sampling.slot as usize),
        };
        if let Some(sampler) = sampler {
            // Calls that would be shown without sampling are counted, and all calls of a filter, for the sake of
            // their subtrees.
            let counted = on && (filter || in_view);
            // Recursion within a chosen execution belongs to its subtree.
            let within = filter && sampler.open > 0;
            if counted && !within {
                match sampler.draw(rules.sampling, self.seed, || clock.read()) {
                    Draw::Skip => {
                        if filter {
                            self.gate |= OffReasons::MUTED;
                        }
                        return EntryAnswer::hidden(frame, Effects::NONE);
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
                return EntryAnswer::hidden(frame, Effects::NONE);
            }
        }

        self.min_rank = min_rank;
        self.max_depth = max_depth;
        self.depth = depth.saturating_add(u32::from(visible));
        if rules.has(flag::TIME) {
            self.time = rules.time;
        }
        self.gate = self.gate.without(OffReasons::DEEP);
        if filter {
            self.gate = self.gate.without(OffReasons::OUTSIDE);
        }
        if self.depth >= self.max_depth {
            self.gate |= OffReasons::DEEP;
        }
        let mut effects = switches(rules);
        let below_only = held && filter;
        if !visible && !below_only {
            return EntryAnswer {
                stands_for,
                ..EntryAnswer::hidden(frame, effects)
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
        EntryAnswer {
            show,
            effects,
            time: frame.start,
            stands_for,
            frame,
        }
    }

    /// Handles the end of the call of `frame`: it returns, is unwound or jumped over. The clock is not read for
    /// hidden calls.
    #[inline]
    pub fn exit(
        &mut self,
        plan: &Plan,
        store: &mut Store<'_>,
        frame: &CallFrame,
        clock: impl FnOnce() -> u64,
    ) -> ExitAnswer {
        self.end(plan, store, frame, Judgement::Open, clock)
    }

    /// Handles the end of a call whose judgement may be known already.
    #[inline]
    pub(crate) fn end(
        &mut self,
        plan: &Plan,
        store: &mut Store<'_>,
        frame: &CallFrame,
        judgement: Judgement,
        clock: impl FnOnce() -> u64,
    ) -> ExitAnswer {
        // The threshold of the call itself, which the call's own trigger may have set.
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
            return ExitAnswer::HIDDEN;
        }
        frame.exit(at_least, clock())
    }
}

/// Does the rest of [`ThreadState::exit`] for a chosen execution of a sampled function.
fn exit_sampled(
    plan: &Plan,
    store: &mut Store<'_>,
    frame: &CallFrame,
    at_least: u64,
    judgement: Judgement,
    clock: impl FnOnce() -> u64,
) -> ExitAnswer {
    let sampling = plan.action(frame.action).sampling;
    let mut sampler = store.samplers.get_mut(sampling.slot as usize);
    if frame.flags & kind::OPENED != 0
        && let Some(sampler) = &mut sampler
    {
        sampler.open = sampler.open.saturating_sub(1);
    }
    let scope = match frame.flags & kind::MASK {
        kind::HIDDEN => return ExitAnswer::HIDDEN,
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
        exit.verdict = ExitVerdict::Discard(scope);
    } else if scope == Scope::Below {
        exit.verdict = ExitVerdict::Keep;
    }
    exit
}

/// Returns the effects of a trigger on the process's switch.
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

/// A clock that is read at most once, on demand.
struct LazyClock<C> {
    read: Option<C>,
    time: u64,
}

impl<C: FnOnce() -> u64> LazyClock<C> {
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
        assert_eq!(size_of::<CallFrame>(), 32);
        assert_eq!(size_of::<ThreadState>(), 32);
        assert_eq!(core::mem::offset_of!(ThreadState, gate), 0);
    }
}
