//! One thread's position in the rules, and the two questions it answers: at a call's entry, and at its exit.

use crate::plan::{Action, Plan, SampleKind, fact, flag};
use crate::random::mix;
use crate::sampler::{Draw, Sampler};
use crate::site::Gate;
use crate::tail::Tail;
use core::ops::{BitOr, BitOrAssign};

/// What belongs to a held call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The call alone; what it calls is shown either way.
    Call,
    /// The call and everything below it.
    Tree,
    /// Everything below it; the call itself is not shown in any case.
    Below,
}

/// What to do with a call at its entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Show {
    /// It is not shown.
    Hidden,
    /// It is shown, and so are the lazy calls around it, inside the innermost held subtree.
    Now,
    /// It is shown if a call below it is, or if its exit says so.
    Lazy,
    /// It, or what is below it, is provisional until its exit decides. A writer notes where it begins.
    Held(Scope),
}

/// What to do with a call at its exit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It was hidden; nothing is to be done.
    Hidden,
    /// It is shown, and so are the lazy calls around it, inside the innermost held subtree. For [`Scope::Below`]: what
    /// is below it is shown, if there is anything.
    Keep,
    /// It is shown if a call below it is.
    KeepForDescendants,
    /// It was held and is not shown: the scope's part is dropped.
    Discard(Scope),
}

/// What a call causes besides being shown; bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub struct Effects(pub u8);

/// Whether a process is being traced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Switch {
    /// Calls are shown.
    #[default]
    On,
    /// Calls are not shown until something switches tracing on again.
    Off,
    /// Nothing is ever shown again.
    Finished,
}

impl Switch {
    /// The position after a call with these effects.
    #[must_use]
    pub fn after(self, effects: Effects) -> Self {
        if self == Self::Finished || effects.contains(Effects::FINISH) {
            Self::Finished
        } else if effects.contains(Effects::TRACE_OFF) {
            Self::Off
        } else if effects.contains(Effects::TRACE_ON) {
            Self::On
        } else {
            self
        }
    }
}

impl Effects {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Tracing is switched on in the whole process, with this call.
    pub const TRACE_ON: Self = Self(1);
    /// Tracing is switched off in the whole process, with this call.
    pub const TRACE_OFF: Self = Self(2);
    /// Tracing ends for good in the whole process, with this call.
    pub const FINISH: Self = Self(4);
    /// Show the stack that leads to the call. Only set for calls that are not hidden.
    pub const BACKTRACE: Self = Self(8);

    /// Whether all of the other's bits are set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Effects {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Effects {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// What to keep of a call between its entry and its exit: its place in the caller's shadow stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Frame {
    start: u64,
    time: u64,
    depth: u32,
    max_depth: u32,
    action: u32,
    flags: u16,
    gate: Gate,
    min_rank: u8,
}

/// Bits of [`Frame::flags`].
mod kind {
    pub const HIDDEN: u16 = 0;
    pub const NOW: u16 = 1;
    pub const LAZY: u16 = 2;
    pub const HELD_CALL: u16 = 3;
    pub const HELD_TREE: u16 = 4;
    pub const HELD_BELOW: u16 = 5;
    pub const MASK: u16 = 7;
    /// The duration is the reason to show the call, or not.
    pub const BY_TIME: u16 = 8;
    /// Only calls below it are a reason to show it.
    pub const BY_DESCENDANTS: u16 = 16;
    /// A chosen execution, shown with its subtree.
    pub const OPENED: u16 = 32;
}

impl Frame {
    /// Whether the call is a chosen execution of a sampled filter: what it stands for holds for its subtree, too.
    #[must_use]
    pub fn is_chosen_subtree(&self) -> bool {
        self.flags & kind::OPENED != 0
    }
}

/// The answer at a call's entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// What to do with the call.
    pub show: Show,
    /// What else it causes.
    pub effects: Effects,
    /// The time of the entry; 0 if the clock was not read, which is only so for hidden calls.
    pub time: u64,
    /// For a chosen execution of a sampled function: how many executions it stands for, itself included. Else 1.
    pub stands_for: u64,
    /// To be handed to [`ThreadState::exit`] when the call ends.
    pub frame: Frame,
}

/// The answer at a call's exit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exit {
    /// What to do with the call.
    pub verdict: Verdict,
    /// When it began; 0 for hidden calls.
    pub start: u64,
    /// The time of the exit; 0 for hidden calls, for which the clock is not read.
    pub time: u64,
}

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
            seed: mix(plan.header.seed ^ mix(thread)),
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
        // The threshold of the call itself, which its own trigger may have set.
        let at_least = self.time;
        self.time = frame.time;
        self.depth = frame.depth;
        self.max_depth = frame.max_depth;
        self.gate = frame.gate;
        self.min_rank = frame.min_rank;
        if frame.flags == kind::HIDDEN {
            return Exit::HIDDEN;
        }
        exit_shown(plan, store, frame, at_least, clock)
    }
}

/// The rest of [`ThreadState::exit`], for a call that is or may be shown.
fn exit_shown(
    plan: &Plan<'_>,
    store: &mut Store<'_>,
    frame: &Frame,
    at_least: u64,
    clock: impl FnOnce() -> u64,
) -> Exit {
    let held = match frame.flags & kind::MASK {
        kind::HELD_CALL => Some(Scope::Call),
        kind::HELD_TREE => Some(Scope::Tree),
        kind::HELD_BELOW => Some(Scope::Below),
        _ => None,
    };
    let sampled = frame.flags & kind::OPENED != 0 || held.is_some();
    let sampling = plan.action(frame.action).sampling;
    let mut sampler = if sampled {
        store.samplers.get_mut(sampling.slot as usize)
    } else {
        None
    };
    if frame.flags & kind::OPENED != 0
        && let Some(sampler) = &mut sampler
    {
        sampler.open = sampler.open.saturating_sub(1);
    }
    if frame.flags & kind::MASK == kind::HIDDEN {
        return Exit::HIDDEN;
    }

    let time = clock();
    let duration = time.saturating_sub(frame.start);
    let mut verdict = Verdict::Keep;
    if frame.flags & kind::BY_DESCENDANTS != 0
        || frame.flags & kind::BY_TIME != 0 && duration < at_least
    {
        verdict = Verdict::KeepForDescendants;
    }
    if let Some(scope) = held {
        let slow = store
            .tails
            .get_mut(sampling.tail as usize)
            .is_none_or(|tail| tail.observe(duration, sampling.parameter));
        if let Some(sampler) = sampler {
            sampler.judged(slow);
        }
        if !slow {
            verdict = Verdict::Discard(scope);
        } else if scope == Scope::Below {
            verdict = Verdict::Keep;
        }
    }
    Exit {
        verdict,
        start: frame.start,
        time,
    }
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

impl Entry {
    fn hidden(frame: Frame, effects: Effects) -> Self {
        Self {
            show: Show::Hidden,
            effects,
            time: 0,
            stands_for: 1,
            frame,
        }
    }
}

impl Exit {
    const HIDDEN: Self = Self {
        verdict: Verdict::Hidden,
        start: 0,
        time: 0,
    };
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
