//! The result of a recording, and the reasons why there is none.

use super::notes::TraceNote;
use crate::attaching::AttachError;
use crate::program::untraced::UntracedReason;
use crate::selection::warnings::SelectionWarning;
use dioptra_processes::command::{CommandError, CommandStatus};
use dioptra_tracedata::{RecordingEnd, TraceWriteError};
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// The result of a recording.
#[derive(Clone, Debug)]
pub struct TraceOutcome {
    /// The end of the command; `None` if it still ran when the recording ended.
    pub status: Option<CommandStatus>,
    /// The end of the recording, as `info.json` describes it.
    pub ending: RecordingEnd,
    /// The number of process images that were traced.
    pub processes: u64,
    /// The limits, fallbacks and losses of the recording.
    pub notes: Vec<TraceNote>,
    /// The selector's warnings at the end, such as patterns that match nothing.
    pub warnings: Vec<SelectionWarning>,
}

/// The reason why nothing was traced.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The command did not start.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The trace could not be written.
    #[error(transparent)]
    Write(#[from] TraceWriteError),
    /// This machine is not supported.
    #[error(
        "tracing functions is not supported on this processor or C library; it needs Linux with glibc on x86-64 or 64-bit Arm"
    )]
    Unsupported,
    /// The command ended before its program could be traced, in a way that is typical of commands that did not start.
    #[error("{} ended {} before it could be traced ({why}); what was recorded before stays", .program.display(), how_ended(*.status))]
    Unstarted {
        /// The program.
        program: PathBuf,
        /// The end of the command.
        status: CommandStatus,
        /// The reason, as far as it is known.
        why: UntracedReason,
    },
    /// The recorder could not attach to a running process.
    #[error("process {pid} can't be traced: {source}")]
    Attach {
        /// The process.
        pid: u32,
        /// The reason.
        source: AttachError,
    },
    /// The runtime could not be written to a file.
    #[error("writing the tracer's runtime to {}: {source}; set XDG_CACHE_HOME to a folder that programs can be loaded from", .path.display())]
    Runtime {
        /// The folder of the file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// A call of the system failed.
    #[error("{what}: {source}")]
    System {
        /// The action that failed.
        what: &'static str,
        /// The error.
        source: io::Error,
    },
}

fn how_ended(status: CommandStatus) -> String {
    match status {
        CommandStatus::Exited(status) => format!("with status {status}"),
        CommandStatus::Signaled(signal) => format!("by signal {signal}"),
    }
}
