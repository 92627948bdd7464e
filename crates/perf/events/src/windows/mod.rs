//! Windows: stretches between two samples, short enough to lie in one function, over which counters are compared.
//!
//! A [`Schedule`] says when there are windows: `long` from the start of one burst to the next, then `batch` windows of
//! `short` back to back. Ordinary sampling is the schedule without `long`.
//!
//! The kernel and the events decide in which way windows can be made. [`find_source`] tries the ways on the calling thread,
//! judges them by the samples that arrive, and attaches the [`WindowSource`] that serves best:
//!
//! | [`SourceKind`] | |
//! |---|---|
//! | `refresh` | a disabled group that `PERF_EVENT_IOC_REFRESH` lets take so many samples: from a jittered timer, on any kernel |
//! | `kernel` | a kernel whose events alternate between a long and a short period themselves |
//! | `twin` | two clocks of one period in an inherited group: pairs of their samples bound windows |
//! | `steady` | the short period throughout, for a bounded time |
//! | `period` | each event sampled on its own: no windows, estimates from samples |

mod alternate;
mod cost;
mod findings;
pub(crate) mod ids;
mod lane;
mod notes;
mod plan;
mod probe;
mod random;
mod refresh;
mod schedule;
mod session;
mod slot;
mod source;
mod trigger;

pub use cost::BurstCost;
pub use findings::{Instead, Observation, SourceFinding};
pub use notes::WindowNote;
pub use probe::shortest_useful_window;
pub use schedule::{
    Length, SHORTEST_LONG, SHORTEST_LONG_OF_TWINS, Schedule, WindowRequest, WindowSyntaxError,
};
pub use source::{
    Burst, BurstOutcome, FoundSource, SourceKind, ThreadNews, USER_INSTRUCTION_POINTER,
    WindowError, WindowGroup, WindowListener, WindowSource, WindowStats, WindowsSpec, find_source,
};
