//! A traced program's calls in time.
//!
//! ```text
//! Stream ─▶ StreamWalk ─▶ Scheduled ─▶ Complete ─▶ Stage, Stage, … ─▶ ShownCalls ─▶ Merge
//! records   steps         periods      every call  one for each       calls of      many streams
//!                         without CPU  begins and  set of rules       one stream    in time order
//!                                      ends
//! ```
//!
//! A trace holds, for each thread, a [stream](dioptra_tracedata::Stream) of entries and exits. [`StreamWalk`] goes
//! through one stream and gives its [steps](WalkStep): the call that began or ended, the time, the depth, the duration, and
//! missing records.
//!
//! A [`View`] shows a part of a trace: chosen threads and filtered calls ([`ViewSelection`]). Its [`ShownCalls`] are
//! the shown calls of one stream; [`Merge`] goes through many streams at once, in time order. [`FunctionNames`] names
//! functions, [`statistics`] sums their times, [`call_groups`] those of threads, modules and others, [`CallPathTree`] sums them by call path.

mod ahead;
mod choices;
mod complete;
mod durations;
mod estimate;
mod filter;
mod filtered;
mod frames;
mod groups;
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
mod values;
mod view;
mod walk;
mod workers;

pub use ahead::{Ahead, ahead};
pub use durations::Durations;
pub use filtered::ShownCalls;
pub use frames::OpenCalls;
pub use groups::{CallGroup, CallGroups, GroupKey, MOST_LEVELS, call_groups};
pub use merge::{Merge, Timed};
pub use names::{Demangle, FunctionNames};
pub use paths::CallPaths;
pub use recorded::RecordedSampling;
pub use scheduled::{Scheduling, ThreadCpus};
pub use shown::ShownStep;
pub use statistics::{
    Distribution, Extreme, FunctionTimes, Sampled, ScaledEstimate, Statistics, StatisticsOptions,
    StreamTimes, Times, statistics, statistics_with,
};
pub use tree::{CallNode, CallPathTree, call_tree, call_trees};
pub use values::{arguments, arguments_text, returned_value};
pub use view::{PendingError, TimeRange, View, ViewError, ViewLosses, ViewSelection, ViewWarning};
pub use walk::{Call, CallEnding, StreamWalk, WalkLosses, WalkStep};
