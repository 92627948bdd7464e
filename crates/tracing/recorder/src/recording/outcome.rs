//! The result of a recording, and the reasons why there is none.

use dioptra_processes::command::{CommandError, CommandStatus};
use dioptra_tracedata::{RecordingEnd, TraceWriteError};
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// How a recording went.
#[derive(Clone, Debug)]
pub struct TraceOutcome {
    /// How the command ended; `None` if it went on when the recording was ended.
    pub status: Option<CommandStatus>,
    /// What `info.json` says about the end.
    pub ending: RecordingEnd,
    /// How many process images were traced.
    pub processes: u64,
    /// What the user should know: sentences.
    pub notes: Vec<String>,
    /// What the selector said at the end: patterns that match nothing and the like.
    pub warnings: Vec<String>,
}

/// Why nothing was traced.
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
    /// The command ended before its program could be traced, as commands end that do not start.
    #[error("{} ended {} before it could be traced ({why}); what was recorded before stays", .program.display(), how_ended(*.status))]
    Unstarted {
        /// The program.
        program: PathBuf,
        /// How it ended.
        status: CommandStatus,
        /// What is known of the reason.
        why: &'static str,
    },
    /// The runtime could not be written to a file.
    #[error("writing the tracer's runtime to {}: {source}; set XDG_CACHE_HOME to a folder that programs can be loaded from", .path.display())]
    Runtime {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A call of the system failed.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
}

impl TraceError {
    /// The exit status for it: 126 and 127 if the command could not be executed, else 125.
    pub fn exit_code(&self) -> u8 {
        match self {
            TraceError::Command(error) => error.exit_code(),
            TraceError::Unstarted { status, .. } => status.exit_code(),
            _ => 125,
        }
    }
}

fn how_ended(status: CommandStatus) -> String {
    match status {
        CommandStatus::Exited(status) => format!("with status {status}"),
        CommandStatus::Signaled(signal) => format!("by signal {signal}"),
    }
}
