//! The errors of opening and writing a recording. Reading never fails: see [`crate::ReadSummary`].

use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why something could not be opened as a recording.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no such file.
    #[error("no such file: {}", path.display())]
    Missing {
        /// The path that was given.
        path: PathBuf,
    },
    /// The system refused to open, read or map it.
    #[error("cannot read {name}: {reason}; check that it exists and that you may read it")]
    Io {
        /// The file, or "standard input".
        name: String,
        /// The system's reason.
        reason: io::Error,
    },
    /// A long stream could not be kept in a temporary file while it is read.
    #[error(
        "cannot keep {name} in the temporary directory {}: {reason}; set TMPDIR to one with room, or save it to a file",
        folder.display()
    )]
    Spool {
        /// The stream, such as "standard input".
        name: String,
        /// The temporary directory.
        folder: PathBuf,
        /// The system's reason.
        reason: io::Error,
    },
    /// There is nothing in it.
    #[error(
        "{name} is empty: the recording wrote nothing, so it was killed at once or its disk was full; record again"
    )]
    Empty {
        /// The file, or "standard input".
        name: String,
    },
    /// A directory that is not one of `perf record --threads` or `--kcore`.
    #[error(
        "{} is a directory without a file named data, so no recording of `perf record --threads`; name the recording's file",
        path.display()
    )]
    Directory {
        /// The directory.
        path: PathBuf,
    },
    /// A recording in the form of a file was given where a pipe is followed.
    #[error(
        "{name} is a recording in the form of a file, whose descriptions stand at its end: it can be read, but not followed"
    )]
    NotAPipe {
        /// The file, or "standard input".
        name: String,
    },
    /// The file does not start as a perf.data file does.
    #[error("{name} is not a perf.data file: it begins with {begins}, not with PERFILE2")]
    NotPerfData {
        /// The file, or "standard input".
        name: String,
        /// Its first bytes, readable.
        begins: String,
    },
    /// The file ends within its header, or the header contradicts itself.
    #[error(
        "{name} is damaged at offset {offset}: {what}; nothing of it can be read without its header, record again"
    )]
    Header {
        /// The file, or "standard input".
        name: String,
        /// Where in the file, in bytes.
        offset: u64,
        /// The fault at that offset.
        what: &'static str,
    },
}

/// Why a recording could not be written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The reader of a pipe has closed it.
    #[error("the reader of the recording closed the pipe before the recording was complete")]
    Closed,
    /// The system refused a write; the disk may be full.
    #[error("cannot write the recording: {0}; check that the disk has room")]
    Io(#[source] io::Error),
    /// The bytes are not one whole record.
    #[error(
        "{length} bytes are not one record: their header states {stated}; pass each record whole, with its header"
    )]
    NotARecord {
        /// Bytes passed.
        length: usize,
        /// Bytes that their header states, 0 where there is none.
        stated: usize,
    },
    /// Ids were added to an event that the writer was not created with.
    #[error("there is no event {index}: the recording has {count}")]
    NoSuchEvent {
        /// The index passed.
        index: usize,
        /// The number of events.
        count: usize,
    },
    /// Ids were added to an event of a pipe after its start.
    #[error(
        "{late} ids of event {index} came after the start of a pipe, which can't name them any more; write to a file, or \
         start what is to be recorded before the recording"
    )]
    LateIds {
        /// The event's index.
        index: usize,
        /// The number of ids.
        late: usize,
    },
    /// Features were passed that do not fit the format.
    #[error("the {section} section would be larger than the format allows: {length} bytes")]
    TooLong {
        /// Which section.
        section: &'static str,
        /// Bytes.
        length: usize,
    },
}

impl From<io::Error> for WriteError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Io(error),
        }
    }
}

/// The first bytes of something that is no recording, for a message.
pub(crate) fn describe_beginning(bytes: &[u8]) -> String {
    let first = &bytes[..bytes.len().min(8)];
    let known = [
        (&b"\x7fELF"[..], "an ELF program"),
        (b"\x1f\x8b", "gzip-compressed data"),
        (b"\x28\xb5\x2f\xfd", "zstd-compressed data"),
        (b"\xfd7zXZ", "xz-compressed data"),
        (b"PK\x03\x04", "a zip archive"),
        (b"#!", "a script"),
    ];
    let what = known
        .iter()
        .find(|(magic, _)| first.starts_with(magic))
        .map(|(_, what)| format!(" ({what})"));
    format!("\"{}\"{}", first.escape_ascii(), what.unwrap_or_default())
}

/// Damage in a recording: where, and what is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Offset in the file, in bytes; of a `--threads` directory, in the file that `why` names.
    pub offset: u64,
    /// The fault at that offset.
    pub why: String,
}

/// The number of [`Damage`]s that are kept; more are only counted.
pub const DAMAGE_LIMIT: usize = 32;

/// Appends to a bounded list.
pub(crate) fn note(list: &mut Vec<Damage>, offset: u64, why: impl Into<String>) {
    if list.len() < DAMAGE_LIMIT {
        let why = why.into();
        list.push(Damage { offset, why });
    }
}
