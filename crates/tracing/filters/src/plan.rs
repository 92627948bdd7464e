//! A compiled set of rules as plain words, to be laid into shared memory and read where it lies.

use crate::site::{Gate, SiteNeed};

/// "dioF", and the version of this layout.
const MAGIC: u64 = 0x6469_6f46_0000_0001;
/// Words of the header: magic; facts and depth; time; seed; counts of actions and samplers; of tails and functions; sizes.
pub(crate) const HEADER_WORDS: usize = 7;
/// Words of an action: flags and depth; time; sizes, colour, kind of sampling and its slot; its parameter; its tail.
pub(crate) const ACTION_WORDS: usize = 5;
/// The depth that limits nothing.
#[cfg(feature = "std")]
pub(crate) const NO_LIMIT: u32 = u32::MAX;
/// The size rank that passes every threshold.
pub(crate) const ANY_SIZE: u8 = u8::MAX;

/// What a function's rules do; bits of [`Action::flags`].
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
    /// Changes more than whether this one call is shown.
    pub const ACTIVE: u32 = FILTER | NOTRACE | ON | OFF | FINISH | TIME | SIZE;
}

/// What the rules as a whole do; bits of the header.
pub(crate) mod fact {
    /// Only what a filter lets in is shown.
    pub const OPT_IN: u32 = 1;
    /// Some rule closes the gate for a subtree.
    pub const MUTES: u32 = 1 << 1;
    /// Only callers of some functions are shown.
    pub const CALLER: u32 = 1 << 2;
    /// There is a minimum duration somewhere.
    pub const TIMED: u32 = 1 << 3;
    /// The minimum duration depends on the caller.
    pub const TIME_VARIES: u32 = 1 << 4;
    pub const DEPTH_LIMITED: u32 = 1 << 5;
    /// The minimum size depends on the caller.
    pub const SIZE_VARIES: u32 = 1 << 6;
}

/// How executions of a function are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum SampleKind {
    /// No sampling.
    All = 0,
    /// `sample=N`: every N-th. The parameter is N.
    Every = 1,
    /// `sample=1/N`, `P%`: each with the same probability. The parameter is a [`Pace`](crate::Pace).
    Random = 2,
    /// `sample=N/s`: the parameter is the period in units of the clock.
    Rate = 3,
    /// `sample=auto`: random, at a pace given from outside by [`Sampler::set_pace`](crate::Sampler::set_pace).
    Auto = 4,
    /// `sample=pNN`: those slower than a percentile, in hundredths of a percent; [`TOLD`]: those that the trace does not
    /// discard.
    Tail = 5,
}

/// The parameter of a tail whose executions were judged when they were recorded.
pub(crate) const TOLD: u64 = u64::MAX;

/// A function's sampling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sampling {
    /// How executions are chosen.
    pub kind: SampleKind,
    /// See [`SampleKind`].
    pub parameter: u64,
    /// The index of the function's [`Sampler`](crate::Sampler).
    pub slot: u32,
    /// The index of its [`Tail`](crate::Tail), for [`SampleKind::Tail`].
    pub tail: u32,
}

/// What happens at a function's calls: all rules that match the function, merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Action {
    pub flags: u32,
    /// 0: no change.
    pub depth: u32,
    /// With [`flag::TIME`].
    pub time: u64,
    /// How many of the plan's sizes the function reaches.
    pub size_rank: u8,
    /// With [`flag::SIZE`]: the rank that is asked for from here on.
    pub min_rank: u8,
    /// 0: none.
    pub color: u8,
    pub sampling: Sampling,
}

impl Action {
    /// That of a function that no rule names.
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

    /// Its words; the inverse of [`Action::decode`].
    #[cfg(feature = "std")]
    pub fn encode(&self) -> [u64; ACTION_WORDS] {
        [
            u64::from(self.flags) | u64::from(self.depth) << 32,
            self.time,
            u64::from(self.size_rank)
                | u64::from(self.min_rank) << 8
                | u64::from(self.color) << 16
                | (self.sampling.kind as u64) << 24
                | u64::from(self.sampling.slot) << 32,
            self.sampling.parameter,
            u64::from(self.sampling.tail),
        ]
    }

    #[inline]
    fn decode(words: &[u64; ACTION_WORDS]) -> Self {
        let [first, time, packed, parameter, tail] = *words;
        Self {
            flags: first as u32,
            depth: (first >> 32) as u32,
            time,
            size_rank: packed as u8,
            min_rank: (packed >> 8) as u8,
            color: (packed >> 16) as u8,
            sampling: Sampling {
                kind: match (packed >> 24) as u8 {
                    1 => SampleKind::Every,
                    2 => SampleKind::Random,
                    3 => SampleKind::Rate,
                    4 => SampleKind::Auto,
                    5 => SampleKind::Tail,
                    _ => SampleKind::All,
                },
                parameter,
                slot: (packed >> 32) as u32,
                tail: tail as u32,
            },
        }
    }
}

/// The part of a plan that is not about a single function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub facts: u32,
    /// The limit of nesting.
    pub depth: u32,
    /// The minimum duration, in units of the clock.
    pub time: u64,
    pub seed: u64,
    pub actions: u32,
    pub samplers: u32,
    pub tails: u32,
    pub functions: u32,
    /// The size rank that is asked for at first.
    pub min_rank: u8,
    /// The lowest that is asked for anywhere.
    pub lowest_rank: u8,
}

impl Header {
    #[cfg(feature = "std")]
    pub fn encode(&self) -> [u64; HEADER_WORDS] {
        [
            MAGIC,
            u64::from(self.facts) | u64::from(self.depth) << 32,
            self.time,
            self.seed,
            u64::from(self.actions) | u64::from(self.samplers) << 32,
            u64::from(self.tails) | u64::from(self.functions) << 32,
            u64::from(self.min_rank) | u64::from(self.lowest_rank) << 8,
        ]
    }
}

/// Why words are no plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlanError {
    /// They do not begin as a plan of this version does; writer and reader are of different versions of dioptra.
    Version,
    /// There are fewer words than the counts say.
    Short,
    /// A function names an action, or an action a sampler, that does not exist.
    Index,
}

impl core::fmt::Display for PlanError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Version => {
                "the filter plan is of another version; use one dioptra for both sides"
            }
            Self::Short => "the filter plan is cut off",
            Self::Index => "the filter plan is damaged: an index is out of range",
        })
    }
}

impl core::error::Error for PlanError {}

/// A compiled set of rules, borrowed from wherever it lies.
///
/// An array of words without pointers: it may be copied into shared memory and used there as it is.
#[derive(Debug, Clone, Copy)]
pub struct Plan<'a> {
    pub(crate) header: Header,
    actions: &'a [[u64; ACTION_WORDS]],
    functions: &'a [u64],
}

impl<'a> Plan<'a> {
    /// Checks the words and reads their header; linear in their number, once.
    ///
    /// Words beyond the plan's end are ignored.
    ///
    /// # Errors
    /// [`PlanError`] says what is wrong with them.
    pub fn from_words(words: &'a [u64]) -> Result<Self, PlanError> {
        let (header, rest) = words
            .split_first_chunk::<HEADER_WORDS>()
            .ok_or(PlanError::Short)?;
        let [magic, first, time, seed, counts, more, ranks] = *header;
        if magic != MAGIC {
            return Err(PlanError::Version);
        }
        let header = Header {
            facts: first as u32,
            depth: (first >> 32) as u32,
            time,
            seed,
            actions: counts as u32,
            samplers: (counts >> 32) as u32,
            tails: more as u32,
            functions: (more >> 32) as u32,
            min_rank: ranks as u8,
            lowest_rank: (ranks >> 8) as u8,
        };
        let (actions, _) = rest.as_chunks::<ACTION_WORDS>();
        let actions = actions
            .get(..header.actions as usize)
            .ok_or(PlanError::Short)?;
        let functions = rest
            .get(header.actions as usize * ACTION_WORDS..)
            .and_then(|rest| rest.get(..header.functions.div_ceil(2) as usize))
            .ok_or(PlanError::Short)?;
        let plan = Self {
            header,
            actions,
            functions,
        };
        let ordinary = actions.first().map(Action::decode);
        // Each counter belongs to an action, so that a damaged plan cannot ask for more of them than it has words.
        let sound = ordinary == Some(Action::ORDINARY)
            && header.samplers.max(header.tails) < header.actions
            && actions.iter().map(Action::decode).all(|action| {
                let sampling = action.sampling;
                (sampling.kind == SampleKind::All || sampling.slot < header.samplers)
                    && (sampling.kind != SampleKind::Tail || sampling.tail < header.tails)
            })
            && (0..header.functions).all(|function| plan.action_of(function) < header.actions);
        if sound {
            Ok(plan)
        } else {
            Err(PlanError::Index)
        }
    }

    /// The action of a function; 0, the ordinary one, for functions the plan does not know.
    #[inline]
    #[must_use]
    pub fn action_of(&self, function: u32) -> u32 {
        if function >= self.header.functions {
            return 0;
        }
        let pair = self
            .functions
            .get(function as usize / 2)
            .copied()
            .unwrap_or(0);
        (pair >> (function % 2 * 32)) as u32
    }

    /// How many actions there are, the ordinary one included.
    #[must_use]
    pub fn action_count(&self) -> usize {
        self.actions.len()
    }

    /// Whether any call switches tracing on or off, or ends it: then what one thread calls decides what is shown of others.
    #[must_use]
    pub fn has_switches(&self) -> bool {
        let switching = flag::ON | flag::OFF | flag::FINISH;
        self.actions
            .iter()
            .any(|words| Action::decode(words).flags & switching != 0)
    }

    /// How many [`Sampler`](crate::Sampler)s each thread needs.
    #[must_use]
    pub fn sampler_count(&self) -> usize {
        self.header.samplers as usize
    }

    /// How many [`Tail`](crate::Tail)s each thread needs.
    #[must_use]
    pub fn tail_count(&self) -> usize {
        self.header.tails as usize
    }

    /// How an action chooses executions; `None` without sampling.
    #[must_use]
    pub fn sampling(&self, action: u32) -> Option<Sampling> {
        let sampling = self.action(action).sampling;
        (sampling.kind != SampleKind::All).then_some(sampling)
    }

    /// Whether it is decided by a call and those around it, and by nothing that happened before, whether it is shown.
    #[must_use]
    pub fn is_without_memory(&self) -> bool {
        let traces = |words: &[u64; ACTION_WORDS]| Action::decode(words).has(flag::TRACE);
        let from_below = self.fact(fact::CALLER)
            || self.fact(fact::TIME_VARIES)
            || self.fact(fact::TIMED) && self.actions.iter().any(traces);
        !from_below && !self.has_switches() && self.sampler_count() == 0
    }

    /// Whether it depends on durations which calls are shown.
    #[must_use]
    pub fn is_timed(&self) -> bool {
        self.fact(fact::TIMED) || self.fact(fact::TIME_VARIES)
    }

    /// Whether a sampled function comes and goes alone: what it calls is shown either way.
    #[must_use]
    pub fn is_sampled_alone(&self, action: u32) -> bool {
        let rules = self.action(action);
        rules.sampling.kind != SampleKind::All && !rules.has(flag::FILTER)
    }

    /// How a probe site may choose among executions by counting those that the gate lets in, and whether the others are
    /// hidden with their subtrees. Only if `Rules::beyond_counting` says nothing against it.
    #[must_use]
    pub fn counted(&self, action: u32) -> Option<(Sampling, bool)> {
        let rules = self.action(action);
        let by_count = match rules.sampling.kind {
            SampleKind::Every => rules.sampling.parameter > 1,
            SampleKind::Random | SampleKind::Rate | SampleKind::Auto => true,
            SampleKind::All | SampleKind::Tail => false,
        };
        let tree = rules.has(flag::FILTER);
        let never = rules.has(flag::HIDE) || rules.size_rank < self.header.lowest_rank;
        (by_count && (tree || !never)).then_some((rules.sampling, tree))
    }

    /// How a probe site judges executions at their ends, which are kept or dropped with their subtrees; `None` for others.
    /// Only if `Rules::beyond_counting` says nothing against it.
    #[must_use]
    pub fn judged(&self, action: u32) -> Option<Sampling> {
        let rules = self.action(action);
        let judges = rules.sampling.kind == SampleKind::Tail && rules.has(flag::FILTER);
        judges.then_some(rules.sampling)
    }

    /// The colour that an action asks for, as an index into [`COLORS`](crate::COLORS).
    #[must_use]
    pub fn color(&self, action: u32) -> Option<usize> {
        usize::from(self.action(action).color).checked_sub(1)
    }

    #[inline]
    pub(crate) fn action(&self, index: u32) -> Action {
        self.actions
            .get(index as usize)
            .map_or(Action::ORDINARY, Action::decode)
    }

    #[inline]
    pub(crate) fn fact(&self, facts: u32) -> bool {
        self.header.facts & facts != 0
    }

    /// The gate's bit, if the rules can ever set it.
    fn possible(&self, fact: u32, gate: Gate) -> Gate {
        if self.fact(fact) { gate } else { Gate::OPEN }
    }

    /// What a probe site of a function with this action must do; see [`SiteNeed`].
    #[must_use]
    pub fn site_need(&self, action: u32) -> SiteNeed {
        let action = self.action(action);
        let inert = !action.has(flag::ACTIVE) && action.depth == 0;
        let never_shown = action.has(flag::HIDE) || action.size_rank < self.header.lowest_rank;
        if inert && never_shown {
            return SiteNeed::Unneeded;
        }
        let mut skip = self.possible(fact::MUTES, Gate::MUTED);
        if action.has(flag::NOTRACE) {
            return SiteNeed::Mute { skip };
        }
        if action.has(flag::FILTER) {
            return SiteNeed::Evaluate { skip };
        }
        skip |= self.possible(fact::OPT_IN, Gate::OUTSIDE);
        if !inert {
            return SiteNeed::Evaluate { skip };
        }
        skip |= Gate::OFF | self.possible(fact::DEPTH_LIMITED, Gate::DEEP);
        let varied = self.fact(fact::CALLER | fact::TIME_VARIES | fact::DEPTH_LIMITED)
            || self.fact(fact::SIZE_VARIES) && action.size_rank != ANY_SIZE;
        match action.sampling.kind {
            SampleKind::All if varied => SiteNeed::Evaluate { skip },
            SampleKind::All if self.fact(fact::TIMED) && !action.has(flag::TRACE) => {
                SiteNeed::Timed {
                    skip,
                    at_least: self.header.time,
                }
            }
            SampleKind::All => SiteNeed::Record { skip },
            SampleKind::Rate | SampleKind::Tail => SiteNeed::Evaluate { skip },
            SampleKind::Every | SampleKind::Random | SampleKind::Auto => {
                if varied || self.fact(fact::TIMED) {
                    SiteNeed::Evaluate { skip }
                } else {
                    SiteNeed::Count {
                        skip,
                        slot: action.sampling.slot,
                    }
                }
            }
        }
    }
}
