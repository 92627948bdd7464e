//! The errors of metric files.

use std::path::PathBuf;

use thiserror::Error;

use crate::expr::ExprError;

/// A reason why a metric file or a folder of makers' files could not be used.
#[derive(Debug, Error)]
pub enum MetricError {
    /// A file could not be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A file is larger than any metric file.
    #[error("{}: {size} bytes, more than the {limit} that a metric file may have", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The text is no metric file.
    #[error("{file}: {reason}")]
    Syntax {
        /// The file or set.
        file: String,
        /// The place and the mistake.
        reason: String,
    },
    /// A formula is wrong.
    #[error("{file}: column {column:?}: {source}")]
    Formula {
        /// The file or set.
        file: String,
        /// The column.
        column: String,
        /// The place in the formula, and the mistake.
        source: ExprError,
    },
    /// A column names something that the file does not have.
    #[error("{file}: column {column:?}: {reason}")]
    Column {
        /// The file or set.
        file: String,
        /// The column.
        column: String,
        /// The mistake, as a sentence for the user.
        reason: String,
    },
    /// The folder holds nothing for this CPU.
    #[error("{}: no metrics for {cpu}; it has files for: {}", path.display(), if known.is_empty() { "no CPU" } else { known })]
    UnknownCpu {
        /// The folder.
        path: PathBuf,
        /// The CPU that was asked for.
        cpu: String,
        /// The CPUs that the folder has files for.
        known: String,
    },
}
