//! A traced program's calls in time.
//!
//! A trace holds, for each thread, a [stream](dioptra_tracedata::Stream) of entries and exits. [`Walk`] goes through one
//! stream and gives its [steps](Step): which call began or ended when, how deep, how long it took, and what is missing.
//!
//! A [`View`] is what is to be seen of a trace: chosen threads, filtered calls ([`Selection`]). Its [`Calls`] are the
//! shown calls of one stream, [`Merge`] goes through many streams at once, in time order. [`FunctionNames`] names
//! functions, [`statistics`] sums their times, [`CallTree`] sums them by who called whom.

mod ahead;
mod choices;
mod complete;
mod estimate;
mod filter;
mod filtered;
mod frames;
mod matching;
mod merge;
mod names;
mod past;
mod paths;
mod recorded;
mod scheduled;
mod shown;
mod statistics;
mod tree;
mod view;
mod walk;
mod workers;

pub use ahead::{Ahead, ahead};
pub use filtered::Calls;
pub use frames::Frames;
pub use merge::{Merge, Timed};
pub use names::{Demangle, FunctionNames};
pub use paths::Paths;
pub use recorded::RecordedSampling;
pub use scheduled::{Cpus, Scheduling};
pub use shown::Shown;
pub use statistics::{
    Extreme, FunctionTimes, Sampled, Statistics, StreamTimes, Times, statistics,
    statistics_with_cpus,
};
pub use tree::{CallNode, CallTree, call_tree};
pub use view::{Selection, TimeRange, View, ViewError, ViewLosses};
pub use walk::{Call, Ending, Step, Walk, WalkLosses};
