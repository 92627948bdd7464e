//! Notes of a recording: steps that it does in another way than asked for, or leaves out.

use crate::extension::ExtensionError;
use dioptra_perfevents::{AttachNote, FailedThread};
use std::io;
use thiserror::Error;

/// A step that a recording does in another way than asked for, or leaves out. The text form is a sentence for users,
/// without the remedy.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RecordNote {
    /// A fallback that was taken when the events were attached.
    #[error("{0}")]
    Attach(AttachNote),
    /// The kernel refused the events of a thread.
    #[error("thread {} is not recorded: {}", .0.tid, .0.reason)]
    ThreadRefused(FailedThread),
    /// The kernel hides its addresses from this user, and its code is sampled.
    #[error("the kernel hides its addresses, so that its functions will have no names")]
    KernelNamesHidden,
    /// The tracepoints' formats could not be read, so the file does not describe them.
    #[error("tracepoints are not described in the file, so that perf cannot read it: {0}")]
    TracepointsUndescribed(io::Error),
    /// Events were opened after the start, and a pipe has no place for their ids any more.
    #[error("events were opened after the start: a pipe cannot say which their samples belong to")]
    LateIds,
    /// The extension opened events after the start, and a pipe has no place for their ids any more.
    #[error("events of threads that came later have no id in a pipe")]
    LateExtensionIds,
    /// Samples carried the id of another profiler's event.
    #[error(
        "{samples} samples carried the id of another profiler's event, as the kernel has it where two watch one software \
         event; they were given to this recording's only event that may have such samples"
    )]
    ForeignIds {
        /// The number of samples.
        samples: u64,
    },
    /// A note of the extension.
    #[error("{0}")]
    Extension(ExtensionError),
}
