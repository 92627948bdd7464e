//! What a thread is told of a call at its entry and at its exit.

use crate::site::Gate;
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

/// What is known at its end of a call that a tail judges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "std"),
    allow(dead_code, reason = "readers have been told, tracers have not")
)]
pub(crate) enum Judgement {
    /// Nothing: its duration decides.
    Open,
    /// It is shown.
    Kept,
    /// It is not.
    Discarded,
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
    pub(crate) start: u64,
    pub(crate) time: u64,
    pub(crate) depth: u32,
    pub(crate) max_depth: u32,
    pub(crate) action: u32,
    pub(crate) flags: u16,
    pub(crate) gate: Gate,
    pub(crate) min_rank: u8,
}

/// Bits of a frame's flags.
pub(crate) mod kind {
    pub const HIDDEN: u16 = 0;
    pub const NOW: u16 = 1;
    pub const LAZY: u16 = 2;
    /// The bit that the held ones share.
    pub const HELD: u16 = 4;
    pub const HELD_CALL: u16 = 4;
    pub const HELD_TREE: u16 = 5;
    pub const HELD_BELOW: u16 = 6;
    pub const MASK: u16 = 7;
    /// The duration is the reason to show the call, or not.
    pub const BY_TIME: u16 = 8;
    /// Only calls below it are a reason to show it.
    pub const BY_DESCENDANTS: u16 = 16;
    /// A chosen execution, shown with its subtree.
    pub const OPENED: u16 = 32;
}

impl Frame {
    /// What the duration says of a call that is or may be shown.
    #[inline]
    pub(crate) fn exit(&self, at_least: u64, time: u64) -> Exit {
        let short = self.flags & kind::BY_TIME != 0 && time.saturating_sub(self.start) < at_least;
        Exit {
            verdict: if short || self.flags & kind::BY_DESCENDANTS != 0 {
                Verdict::KeepForDescendants
            } else {
                Verdict::Keep
            },
            start: self.start,
            time,
        }
    }

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
    /// To be handed to [`ThreadState::exit`](crate::ThreadState::exit) when the call ends.
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

impl Entry {
    pub(crate) fn hidden(frame: Frame, effects: Effects) -> Self {
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
    pub(crate) const HIDDEN: Self = Self {
        verdict: Verdict::Hidden,
        start: 0,
        time: 0,
    };
}
