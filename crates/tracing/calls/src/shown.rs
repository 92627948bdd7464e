//! The steps of a stream that are shown.

use crate::{Call, CallEnding};

/// A shown step of a stream. Times are `CLOCK_MONOTONIC` in nanoseconds and never decrease.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ShownStep {
    /// A call begins. If its `entered` is none, the call began at an unknown time before.
    Enter {
        /// The time.
        time: u64,
        /// The call; its depth is the number of shown calls around it.
        call: Call,
        /// The number of calls that it stands for, by the sampling of itself and of calls around it; else 1.
        weight: f64,
        /// True if a trigger asks for its backtrace.
        backtrace: bool,
    },
    /// The innermost shown call ends; at the end of its stream with [`CallEnding::Open`].
    Leave {
        /// The time.
        time: u64,
        /// The call.
        call: Call,
        /// The way in which it ends.
        ending: CallEnding,
        /// The call's time outside of recorded calls below it, shown or not, in nanoseconds; counted from the start
        /// of the view's time.
        own: u64,
    },
    /// Records are missing here, of shown calls or others.
    Lost {
        /// The time at which the gap was noticed.
        time: u64,
        /// The number of missing records; 0 if not known.
        records: u64,
    },
    /// The thread goes on with another call stack. The open shown calls are those of that stack from here on.
    Switch {
        /// The time.
        time: u64,
        /// The number of the call stack.
        stack: u32,
    },
}

impl ShownStep {
    /// Returns the time of the step.
    #[inline]
    pub fn time(&self) -> u64 {
        match *self {
            ShownStep::Enter { time, .. }
            | ShownStep::Leave { time, .. }
            | ShownStep::Lost { time, .. }
            | ShownStep::Switch { time, .. } => time,
        }
    }
}
