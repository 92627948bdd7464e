//! A traced program's calls in time.
//!
//! A trace holds, for each thread, a [stream](dioptra_tracedata::Stream) of entries and exits. [`Walk`] goes through one
//! stream and gives its [steps](Step): which call began or ended when, how deep, how long it took, and what is missing.
//! [`Merge`] goes through many streams at once, in time order.

mod merge;
mod walk;

pub use merge::Merge;
pub use walk::{Call, Ending, Step, Walk, WalkLosses};
