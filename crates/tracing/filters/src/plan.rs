//! The plan: a compiled set of rules.

use crate::probe::Probe;
use crate::sampler::{SampleKind, Sampling};
use std::vec::Vec;

/// The depth that limits nothing.
pub(crate) const NO_LIMIT: u32 = u32::MAX;
/// The size rank that passes every threshold.
pub(crate) const ANY_SIZE: u8 = u8::MAX;

/// The actions of a function's rules; bits of [`Action::flags`].
pub(crate) mod flag {
    pub const FILTER: u32 = 1;
    pub const NOTRACE: u32 = 1 << 1;
    pub const HIDE: u32 = 1 << 2;
    pub const CALLER: u32 = 1 << 3;
    pub const TRACE: u32 = 1 << 4;
    pub const ON: u32 = 1 << 5;
    pub const OFF: u32 = 1 << 6;
    pub const FINISH: u32 = 1 << 7;
    pub const BACKTRACE: u32 = 1 << 8;
    pub const TIME: u32 = 1 << 9;
    pub const SIZE: u32 = 1 << 10;
    /// The flags that affect more than whether this one call is shown.
    pub const ACTIVE: u32 = FILTER | NOTRACE | ON | OFF | FINISH | TIME | SIZE;
}

/// The properties of the rules as a whole; bits of the header.
pub(crate) mod fact {
    /// Only calls that a filter lets in are shown.
    pub const OPT_IN: u32 = 1;
    /// Some rule hides subtrees.
    pub const MUTES: u32 = 1 << 1;
    /// Only callers of some functions are shown.
    pub const CALLER: u32 = 1 << 2;
    /// There is a minimum duration somewhere.
    pub const TIMED: u32 = 1 << 3;
    /// The minimum duration depends on the caller.
    pub const TIME_VARIES: u32 = 1 << 4;
}

/// The merged rules of a function: the actions at its calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Action {
    pub flags: u32,
    /// The limit of nesting that begins with the call; 0 for no change.
    pub depth: u32,
    /// The minimum duration that begins with the call, with [`flag::TIME`].
    pub time: u64,
    /// The number of the plan's sizes that the function reaches.
    pub size_rank: u8,
    /// The required rank that begins with the call, with [`flag::SIZE`].
    pub min_rank: u8,
    /// The number of the colour, from 1; 0 for none.
    pub color: u8,
    pub sampling: Sampling,
}

impl Action {
    /// The action of a function that no rule names.
    pub const ORDINARY: Self = Self {
        flags: 0,
        depth: 0,
        time: 0,
        size_rank: ANY_SIZE,
        min_rank: 0,
        color: 0,
        sampling: Sampling {
            kind: SampleKind::All,
            parameter: 0,
            slot: 0,
            tail: 0,
        },
    };

    #[inline]
    pub fn has(&self, flags: u32) -> bool {
        self.flags & flags != 0
    }
}

/// The part of a plan that concerns no single function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PlanHeader {
    pub facts: u32,
    /// The limit of nesting.
    pub depth: u32,
    /// The minimum duration, in units of the clock.
    pub time: u64,
    pub seed: u64,
    pub samplers: u32,
    pub tails: u32,
    /// The size rank that is required at first.
    pub min_rank: u8,
    /// The lowest size rank that is required anywhere.
    pub lowest_rank: u8,
}

/// A compiled set of rules for the functions of a [`Compiler`](crate::Compiler).
#[derive(Debug, Clone)]
pub struct Plan {
    pub(crate) header: PlanHeader,
    /// The distinct actions; the first is [`Action::ORDINARY`].
    actions: Vec<Action>,
    /// The index of each function's action.
    functions: Vec<u32>,
}

impl Plan {
    pub(crate) fn new(header: PlanHeader, actions: Vec<Action>, functions: Vec<u32>) -> Self {
        Self {
            header,
            actions,
            functions,
        }
    }

    /// Returns the number of a function's action; 0, the ordinary one, for functions that the plan does not know.
    #[inline]
    #[must_use]
    pub fn action_of(&self, function: u32) -> u32 {
        self.functions.get(function as usize).copied().unwrap_or(0)
    }

    /// Returns true if any call switches tracing on or off, or ends it. Then one thread's calls decide which calls of
    /// others are shown.
    #[must_use]
    pub fn has_switches(&self) -> bool {
        let switching = flag::ON | flag::OFF | flag::FINISH;
        self.actions.iter().any(|action| action.has(switching))
    }

    /// Returns true if only calls that a filter lets in are shown.
    #[must_use]
    pub fn lets_in(&self) -> bool {
        self.fact(fact::OPT_IN)
    }

    /// Returns true if some rule hides subtrees.
    #[must_use]
    pub fn mutes(&self) -> bool {
        self.fact(fact::MUTES)
    }

    /// Returns the number of [`Sampler`](crate::Sampler)s that each thread needs.
    #[must_use]
    pub fn sampler_count(&self) -> usize {
        self.header.samplers as usize
    }

    /// Returns the number of [`Tail`](crate::Tail)s that each thread needs.
    #[must_use]
    pub fn tail_count(&self) -> usize {
        self.header.tails as usize
    }

    /// Returns the sampling of an action; `None` without sampling.
    #[must_use]
    pub fn sampling(&self, action: u32) -> Option<Sampling> {
        let sampling = self.action(action).sampling;
        (sampling.kind != SampleKind::All).then_some(sampling)
    }

    /// Returns true if a call and the calls around it decide whether it is shown, and nothing that happened before.
    #[must_use]
    pub fn is_without_memory(&self) -> bool {
        let traces = |action: &Action| action.has(flag::TRACE);
        let from_below = self.fact(fact::CALLER)
            || self.fact(fact::TIME_VARIES)
            || self.fact(fact::TIMED) && self.actions.iter().any(traces);
        !from_below && !self.has_switches() && self.sampler_count() == 0
    }

    /// Returns true if durations decide which calls are shown.
    #[must_use]
    pub fn is_timed(&self) -> bool {
        self.fact(fact::TIMED) || self.fact(fact::TIME_VARIES)
    }

    /// Returns true if a sampled function comes and goes alone: the calls below it are shown either way.
    #[must_use]
    pub fn is_sampled_alone(&self, action: u32) -> bool {
        let rules = self.action(action);
        rules.sampling.kind != SampleKind::All && !rules.has(flag::FILTER)
    }

    /// Returns the colour of an action, as an index into [`COLORS`](crate::COLORS).
    #[must_use]
    pub fn color(&self, action: u32) -> Option<usize> {
        usize::from(self.action(action).color).checked_sub(1)
    }

    #[inline]
    pub(crate) fn action(&self, index: u32) -> Action {
        self.actions
            .get(index as usize)
            .copied()
            .unwrap_or(Action::ORDINARY)
    }

    #[inline]
    pub(crate) fn fact(&self, facts: u32) -> bool {
        self.header.facts & facts != 0
    }

    /// Returns the least duty of a probe site of a function with this action. Sampling at the site is valid only if
    /// [`Rules::beyond_counting`](crate::Rules::beyond_counting) returns `None`; else see [`Probe::unsampled`].
    #[must_use]
    pub fn probe(&self, action: u32) -> Probe {
        let action = self.action(action);
        let never_shown = action.has(flag::HIDE) || action.size_rank < self.header.lowest_rank;
        let kind = action.sampling.kind;
        let by_count = match kind {
            SampleKind::Every => action.sampling.parameter > 1,
            SampleKind::Random | SampleKind::Rate | SampleKind::Auto => true,
            SampleKind::All | SampleKind::Tail => false,
        };
        if action.has(flag::NOTRACE) {
            return Probe::Mute;
        }
        if action.has(flag::FILTER) {
            return match kind {
                SampleKind::Tail => Probe::JudgeFilter(action.sampling),
                _ if by_count => Probe::SampleFilter(action.sampling),
                _ => Probe::Filter,
            };
        }
        let inert = !action.has(flag::ACTIVE) && action.depth == 0;
        let taken_back = kind == SampleKind::All && self.fact(fact::TIMED);
        match never_shown {
            true if inert => Probe::Skip,
            false if by_count => Probe::Sample(action.sampling),
            false if taken_back && !action.has(flag::TRACE) => Probe::Timed,
            _ => Probe::Record,
        }
    }
}
