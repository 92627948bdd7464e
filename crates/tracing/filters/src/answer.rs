//! The answers of the state machine at a call's entry and at its exit.

use crate::site::OffReasons;
use core::ops::{BitOr, BitOrAssign};

/// The calls that a held call's exit decides about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The call alone. The calls below it are shown either way.
    Call,
    /// The call and everything below it.
    Tree,
    /// Everything below the call. The call itself is not shown in any case.
    Below,
}

/// The treatment of a call at its entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Show {
    /// The call is not shown.
    Hidden,
    /// The call is shown. So are the lazy calls around it, up to the innermost held subtree.
    Now,
    /// The call is shown if a call below it is, or if its exit decides so.
    Lazy,
    /// The calls of the scope are provisional until the exit decides. A writer remembers where they begin.
    Held(Scope),
}

/// The treatment of a call at its exit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitVerdict {
    /// The call was hidden; there is nothing to do.
    Hidden,
    /// The call is shown. So are the lazy calls around it, up to the innermost held subtree. For [`Scope::Below`]:
    /// the calls below it are shown, if there are any.
    Keep,
    /// The call is shown if a call below it is.
    KeepForDescendants,
    /// The call was held and is not shown: the calls of the scope are dropped.
    Discard(Scope),
}

/// The judgement of a call of `sample=pNN` that is known at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// None yet: the call's duration decides.
    Open,
    /// The call is shown.
    Kept,
    /// The call is not shown.
    Discarded,
}

/// The effects of a call besides being shown; bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub struct Effects(pub u8);

/// The state of tracing in a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum TraceSwitch {
    /// Calls are shown.
    #[default]
    On,
    /// Calls are not shown until something switches tracing on again.
    Off,
    /// No call is ever shown again.
    Finished,
}

impl TraceSwitch {
    /// Returns the state after a call with these effects.
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
    /// No effects.
    pub const NONE: Self = Self(0);
    /// Tracing is switched on in the whole process, with this call.
    pub const TRACE_ON: Self = Self(1);
    /// Tracing is switched off in the whole process, with this call.
    pub const TRACE_OFF: Self = Self(2);
    /// Tracing ends for good in the whole process, with this call.
    pub const FINISH: Self = Self(4);
    /// The stack that leads to the call is shown. Only set for calls that are not hidden.
    pub const BACKTRACE: Self = Self(8);

    /// Returns true if all of the other's bits are set.
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

/// The state of a call between its entry and its exit, for an entry of the caller's shadow stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct CallFrame {
    pub(crate) start: u64,
    pub(crate) time: u64,
    pub(crate) depth: u32,
    pub(crate) max_depth: u32,
    pub(crate) action: u32,
    pub(crate) flags: u16,
    pub(crate) gate: OffReasons,
    pub(crate) min_rank: u8,
}

/// Bits of a frame's flags.
pub(crate) mod kind {
    pub const HIDDEN: u16 = 0;
    pub const NOW: u16 = 1;
    pub const LAZY: u16 = 2;
    /// The bit that all held calls have.
    pub const HELD: u16 = 4;
    pub const HELD_CALL: u16 = 4;
    pub const HELD_TREE: u16 = 5;
    pub const HELD_BELOW: u16 = 6;
    pub const MASK: u16 = 7;
    /// The duration decides whether the call is shown.
    pub const BY_TIME: u16 = 8;
    /// The call is shown only if a call below it is.
    pub const BY_DESCENDANTS: u16 = 16;
    /// The call is a chosen execution, shown with its subtree.
    pub const OPENED: u16 = 32;
}

impl CallFrame {
    /// Returns the answer at the exit of a call that is or may be shown, by its duration.
    #[inline]
    pub(crate) fn exit(&self, at_least: u64, time: u64) -> ExitAnswer {
        let short = self.flags & kind::BY_TIME != 0 && time.saturating_sub(self.start) < at_least;
        ExitAnswer {
            verdict: if short || self.flags & kind::BY_DESCENDANTS != 0 {
                ExitVerdict::KeepForDescendants
            } else {
                ExitVerdict::Keep
            },
            start: self.start,
            time,
        }
    }

    /// Returns true if the call is a chosen execution of a sampled filter, which also stands for executions of its
    /// subtree.
    #[must_use]
    pub fn is_chosen_subtree(&self) -> bool {
        self.flags & kind::OPENED != 0
    }
}

/// The answer at a call's entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryAnswer {
    /// The treatment of the call.
    pub show: Show,
    /// The other effects of the call.
    pub effects: Effects,
    /// The time of the entry in units of the clock; 0 for hidden calls, for which the clock may not be read.
    pub time: u64,
    /// The number of executions that a chosen execution of a sampled function stands for, itself included; else 1.
    pub stands_for: u64,
    /// The state to pass to [`ThreadState::exit`](crate::ThreadState::exit) when the call ends.
    pub frame: CallFrame,
}

/// The answer at a call's exit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExitAnswer {
    /// The treatment of the call.
    pub verdict: ExitVerdict,
    /// The time of the entry; 0 for hidden calls.
    pub start: u64,
    /// The time of the exit; 0 for hidden calls, for which the clock is not read.
    pub time: u64,
}

impl EntryAnswer {
    pub(crate) fn hidden(frame: CallFrame, effects: Effects) -> Self {
        Self {
            show: Show::Hidden,
            effects,
            time: 0,
            stands_for: 1,
            frame,
        }
    }
}

impl ExitAnswer {
    pub(crate) const HIDDEN: Self = Self {
        verdict: ExitVerdict::Hidden,
        start: 0,
        time: 0,
    };
}
