//! Notes of sources: things that a source does otherwise than it was asked.

use crate::notes::AttachNote;
use std::fmt;

/// A thing that a source of windows does otherwise than it was asked. Its text form is a sentence for users.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WindowNote {
    /// A fallback that was taken when the windows' events were attached.
    Attach(AttachNote),
    /// Some threads of the target could not be attached, and have no windows.
    ThreadsRefused {
        /// The refusal.
        because: String,
    },
    /// There is no room for the events of all threads, so threads take turns.
    ThreadsTakeTurns {
        /// The number of threads that have windows at once.
        threads: usize,
        /// The refusal of events for one more thread.
        because: String,
    },
    /// No clock of a thread's own code could be opened, so a timer begins the bursts.
    NoTrigger {
        /// The refusal of the clock.
        because: String,
    },
    /// Steady windows are taken for a bounded time only.
    SteadyForAWhile {
        /// The time in seconds.
        seconds: u64,
    },
    /// The threads that arm bursts have no real-time priority.
    NoRealTimePriority,
}

impl std::error::Error for WindowNote {}

impl fmt::Display for WindowNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WindowNote::Attach(note) => note.fmt(f),
            WindowNote::ThreadsRefused { because } => {
                write!(f, "some threads have no windows: {because}")
            }
            WindowNote::ThreadsTakeTurns { threads, because } => write!(
                f,
                "no more than {threads} threads at once have windows, which take turns: {because}"
            ),
            WindowNote::NoTrigger { because } => write!(
                f,
                "some bursts begin just after system calls and faults too often, since no clock tells when a thread runs \
                 its own code: {because}"
            ),
            WindowNote::SteadyForAWhile { seconds } => write!(
                f,
                "steady windows are taken for {seconds} s only, since they slow the program down"
            ),
            WindowNote::NoRealTimePriority => f.write_str(
                "bursts may begin late on busy CPUs: arming them has no real-time priority (CAP_SYS_NICE)",
            ),
        }
    }
}
