//! What is shown of a stream.

use crate::{Call, Ending};

/// What is shown of a stream. Times are `CLOCK_MONOTONIC` in nanoseconds and never decrease.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shown {
    /// A call begins; or, if its `entered` is none, it turns out that it began before.
    Enter {
        /// When.
        time: u64,
        /// Which; its depth is how many shown calls are around it.
        call: Call,
        /// How many calls it stands for, by the sampling of itself and of calls around it; else 1.
        weight: f64,
        /// Whether a trigger asks for its backtrace.
        backtrace: bool,
    },
    /// The innermost shown call ends; at the end of its stream with [`Ending::Open`].
    Leave {
        /// When.
        time: u64,
        /// Which.
        call: Call,
        /// How.
        ending: Ending,
        /// Its time outside of recorded calls below it, shown or not, in nanoseconds; from the start of the view's time.
        own: u64,
    },
    /// Records are missing here, of shown calls or others.
    Lost {
        /// When the gap was noticed.
        time: u64,
        /// How many; 0 if that is not known.
        records: u64,
    },
    /// The thread goes on, on another call stack; the shown calls that are open are that one's from here on.
    Switch {
        /// When.
        time: u64,
        /// Its number.
        stack: u32,
    },
}

impl Shown {
    /// When it happens.
    #[inline]
    pub fn time(&self) -> u64 {
        match *self {
            Shown::Enter { time, .. }
            | Shown::Leave { time, .. }
            | Shown::Lost { time, .. }
            | Shown::Switch { time, .. } => time,
        }
    }
}
