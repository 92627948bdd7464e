//! What a probe site must do, decided once for each function.

use core::ops::{BitOr, BitOrAssign};

/// Reasons for which a thread shows nothing just now; bits.
///
/// A thread's own gate is the first byte of its [`ThreadState`](crate::ThreadState); [`Gate::OFF`] is the process's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub struct Gate(pub u8);

impl Gate {
    /// Nothing is in the way.
    pub const OPEN: Self = Self(0);
    /// Inside a call that hides its subtree.
    pub const MUTED: Self = Self(1);
    /// Outside of every call that a filter lets in.
    pub const OUTSIDE: Self = Self(2);
    /// At the limit of nesting.
    pub const DEEP: Self = Self(4);
    /// Tracing is switched off. Never set in a thread's state: whoever keeps the switch adds it.
    pub const OFF: Self = Self(8);

    /// Whether the two have a reason in common.
    #[inline]
    #[must_use]
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Without the other's reasons.
    #[inline]
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl BitOr for Gate {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Gate {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// What the hook of a function must do under a plan: the cheapest thing that is right.
///
/// Each variant but the first has `skip`: when the thread's [`Gate`] has one of these bits set, the call may pass
/// without any effect, neither at its entry nor at its exit, and needs no hook on its return. Where a site does less
/// than [`ThreadState::enter`](crate::ThreadState::enter), the state does not need to know of the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SiteNeed {
    /// Nothing: no call of the function is ever shown or changes anything. Leave the site unpatched.
    Unneeded,
    /// Record the call.
    Record {
        /// When to let it pass.
        skip: Gate,
    },
    /// Record the call if it took at least a constant time or something that it called is shown: write its entry; at
    /// its exit, if it was shorter and its entry is still the last record, take that back.
    Timed {
        /// When to let it pass.
        skip: Gate,
        /// The shortest duration that is shown, in units of the clock.
        at_least: u64,
    },
    /// While [`Sampler::left`](crate::Sampler::left) of the slot is above 0, decrement it and let the call pass. At 0,
    /// ask [`ThreadState::enter`](crate::ThreadState::enter).
    Count {
        /// When to let it pass uncounted.
        skip: Gate,
        /// The index of the sampler.
        slot: u32,
    },
    /// Never record the call, and hide what it calls: [`ThreadState::mute`](crate::ThreadState::mute) at its entry,
    /// [`unmute`](crate::ThreadState::unmute) at its exit. Needs no clock.
    Mute {
        /// When to let it pass.
        skip: Gate,
    },
    /// Ask [`ThreadState::enter`](crate::ThreadState::enter) and [`exit`](crate::ThreadState::exit).
    Evaluate {
        /// When to let it pass.
        skip: Gate,
    },
}

impl SiteNeed {
    /// The bits of the gate that let a call pass; all for a site that is not needed.
    #[must_use]
    pub const fn skip(self) -> Gate {
        match self {
            Self::Unneeded => Gate(u8::MAX),
            Self::Record { skip }
            | Self::Timed { skip, .. }
            | Self::Count { skip, .. }
            | Self::Mute { skip }
            | Self::Evaluate { skip } => skip,
        }
    }
}
