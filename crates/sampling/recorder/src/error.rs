//! The errors of a recording.

use crate::extension::ExtensionError;
use dioptra_perfdata::WriteError;
use dioptra_perfevents::{AttachError, EventError, RunError};
use dioptra_processes::command::CommandError;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The reason why a recording failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The command did not start, or can't be waited for.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The target is a command, but there is none.
    #[error("there is no command to record; give one, or another target")]
    NoCommand,
    /// The events could not be opened.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The events could not be started.
    #[error(transparent)]
    Event(#[from] EventError),
    /// Reading the rings failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// An extension failed.
    #[error("{0}")]
    Extension(ExtensionError),
    /// The section of an extension can't be made.
    #[error("keeping bursts beside {}: {source}; what was written before can be read", .path.display())]
    Section {
        /// The recording's file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The observer does not want the recording ([`Observer::wants_file`](crate::Observer::wants_file)).
    #[error("the recording is not wanted")]
    Unwanted,
    /// Signals can't be received.
    #[error("receiving signals: {0}")]
    Signals(io::Error),
    /// `/proc` can't be read.
    #[error("describing what runs already: {0}; is /proc mounted?")]
    Existing(io::Error),
    /// The file can't be created.
    #[error("creating {}: {source}", .path.display())]
    Create {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file can't be written.
    #[error("{}: {source}; what was written before can be read", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: WriteError,
    },
}

/// The reason why a made-up record was not written.
pub(crate) enum SinkError {
    /// The file could not be written.
    Write(WriteError),
    /// The files under `/proc` that the record describes could not be read.
    Existing(io::Error),
}

impl From<io::Error> for SinkError {
    fn from(error: io::Error) -> Self {
        SinkError::Existing(error)
    }
}

impl SinkError {
    /// Returns the same error as an error of the recording in the file `path`.
    pub fn of(self, path: &Path) -> RecordError {
        match self {
            SinkError::Write(source) => RecordError::Write {
                path: path.to_owned(),
                source,
            },
            SinkError::Existing(error) => RecordError::Existing(error),
        }
    }
}
