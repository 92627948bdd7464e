//! The effects of calls on what is traced.

use core::ops::{BitOr, BitOrAssign};

/// The effects of a call besides being shown; bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Effects(u8);

/// The state of tracing in a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
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
