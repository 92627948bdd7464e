//! The duty of a probe site, decided once for each function.

use core::ops::{BitOr, BitOrAssign};

/// The reasons for which a thread shows nothing just now; bits.
///
/// A thread's own gate is the first byte of its [`ThreadState`](crate::ThreadState); [`OffReasons::OFF`] is the process's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub struct OffReasons(pub u8);

impl OffReasons {
    /// No reason.
    pub const OPEN: Self = Self(0);
    /// The thread is inside a call that hides its subtree.
    pub const MUTED: Self = Self(1);
    /// The thread is outside of every call that a filter lets in.
    pub const OUTSIDE: Self = Self(2);
    /// The thread is at the limit of nesting.
    pub const DEEP: Self = Self(4);
    /// Tracing is switched off. Never set in a thread's state: the keeper of the switch adds it.
    pub const OFF: Self = Self(8);

    /// Returns true if the two have a reason in common.
    #[inline]
    #[must_use]
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns the gate without the other's reasons.
    #[inline]
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl BitOr for OffReasons {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for OffReasons {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// The duty of a function's hook under a plan: the cheapest one that is right.
///
/// Each variant but the first has `skip`. When the thread's [`OffReasons`] has one of these bits set, the call may pass
/// without any effect, neither at its entry nor at its exit, and needs no hook on its return. Where a site does less
/// than [`ThreadState::enter`](crate::ThreadState::enter), the state does not need to know of the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SiteNeed {
    /// Nothing: no call of the function is ever shown or changes anything. The site stays unpatched.
    Unneeded,
    /// Record the call.
    Record {
        /// The reasons to let the call pass.
        skip: OffReasons,
    },
    /// Record the call if it took at least a constant time or if a call below it is shown. Write its entry; at its
    /// exit, if it was shorter and its entry is still the last record, take that back.
    Timed {
        /// The reasons to let the call pass.
        skip: OffReasons,
        /// The shortest duration that is shown, in units of the clock.
        at_least: u64,
    },
    /// While [`Sampler::left`](crate::Sampler::left) of the slot is above 0, decrement it and let the call pass. At
    /// 0, ask [`ThreadState::enter`](crate::ThreadState::enter).
    Count {
        /// The reasons to let the call pass uncounted.
        skip: OffReasons,
        /// The index of the sampler.
        slot: u32,
    },
    /// Hide the call and the calls below it. Needs no clock.
    Mute {
        /// The reasons to let the call pass.
        skip: OffReasons,
    },
    /// Ask [`ThreadState::enter`](crate::ThreadState::enter) and [`exit`](crate::ThreadState::exit).
    Evaluate {
        /// The reasons to let the call pass.
        skip: OffReasons,
    },
}

impl SiteNeed {
    /// Returns the bits of the gate that let a call pass; all bits for a site that is not needed.
    #[must_use]
    pub const fn skip(self) -> OffReasons {
        match self {
            Self::Unneeded => OffReasons(u8::MAX),
            Self::Record { skip }
            | Self::Timed { skip, .. }
            | Self::Count { skip, .. }
            | Self::Mute { skip }
            | Self::Evaluate { skip } => skip,
        }
    }
}
