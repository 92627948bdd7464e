//! Reasons why a profile could not be imported.

use dioptra_perfdata::WriteError;
use std::io;

/// The reason why an import failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The content is of no format that can be imported.
    #[error("the format is none that can be imported; the file begins with {beginning:?}")]
    UnknownFormat {
        /// The first characters.
        beginning: String,
    },
    /// The file is a recording already.
    #[error("the file is a perf.data file already")]
    IsRecording,
    /// The profile has no samples.
    #[error("the profile ({format}) has no samples")]
    NoSamples {
        /// The format's name.
        format: &'static str,
    },
    /// A line of a text is not as its format says.
    #[error("line {line}: {why}")]
    Line {
        /// The line, from 1.
        line: u64,
        /// The fault.
        why: String,
    },
    /// Bytes are not as their format says.
    #[error("byte {offset}{of}: {why}")]
    Bytes {
        /// The offset of the first wrong byte.
        offset: u64,
        /// Empty, or the remark that the offset counts decompressed bytes.
        of: &'static str,
        /// The fault.
        why: String,
    },
    /// The compressed data is damaged or ends early.
    #[error("the gzip data cannot be decompressed beyond byte {offset} of the content")]
    Gzip {
        /// The number of bytes that could be decompressed.
        offset: u64,
        /// The fault.
        source: io::Error,
    },
    /// The decompressed data is far larger than its compressed form may be.
    #[error("the gzip data decompresses to more than {limit} bytes")]
    TooLarge {
        /// The limit.
        limit: u64,
    },
    /// The values of an event have a sum beyond 64 bits.
    #[error("the values of {event} add up to more than 64 bits hold")]
    TotalTooLarge {
        /// The event.
        event: String,
    },
    /// The recording could not be written.
    #[error("writing the recording")]
    Write(#[from] WriteError),
}

impl ImportError {
    /// Makes the error of a line.
    pub(super) fn line(line: u64, why: impl Into<String>) -> ImportError {
        let why = why.into();
        ImportError::Line { line, why }
    }
}
