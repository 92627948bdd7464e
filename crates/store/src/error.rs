//! The errors of a store.

use std::path::PathBuf;

/// An error of a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no store at the place that was named.
    #[error("{place}: no store of profiles lies here")]
    NoStore {
        /// The place.
        place: String,
    },
    /// The store was written by another version of this program.
    #[error(
        "{place}: the store's schema is version {found}, and this program knows version {known}"
    )]
    Version {
        /// The place.
        place: String,
        /// The store's version.
        found: i64,
        /// The version that this program writes.
        known: i64,
    },
    /// The place of a store is not understood.
    #[error("{place}: {reason}")]
    Place {
        /// The place.
        place: String,
        /// The cause.
        reason: String,
    },
    /// A label has characters that folders of partitions can't have.
    #[error("the {label} {value:?} has characters other than letters, digits and . _ - +")]
    Label {
        /// `service`, `host` or `date`.
        label: &'static str,
        /// The label.
        value: String,
    },
    /// A date is no day of the calendar.
    #[error("{value:?} is no date such as 2026-11-28")]
    Date {
        /// The text.
        value: String,
    },
    /// A recording could not be opened.
    #[error(transparent)]
    Open(#[from] dioptra_perfdata::OpenError),
    /// A recording is damaged.
    #[error("{}: damaged at byte {offset}, where reading stopped", path.display())]
    Damaged {
        /// The recording.
        path: PathBuf,
        /// The place of the damage, in bytes from the file's start.
        offset: u64,
    },
    /// A directory is no trace.
    #[error("{}: no file of samples and no trace of calls", path.display())]
    NoTrace {
        /// The directory.
        path: PathBuf,
    },
    /// A trace could not be opened.
    #[error(transparent)]
    OpenTrace(#[from] dioptra_tracedata::TraceOpenError),
    /// A trace is damaged.
    #[error("{}: damaged: {damage}", path.display())]
    DamagedTrace {
        /// The trace's directory.
        path: PathBuf,
        /// The file, the place in it and the defect.
        damage: String,
    },
    /// A trace's own rules can't be followed.
    #[error(transparent)]
    TraceView(#[from] dioptra_calls::ViewError),
    /// A value is too large for a signed number of 64 bits.
    #[error(
        "{column}: {value} is too large for the store, whose largest number is 9223372036854775807"
    )]
    LargeValue {
        /// The column.
        column: &'static str,
        /// The value.
        value: u64,
    },
    /// The written rows don't add up to the profile's total.
    #[error(
        "{event}: the rows' {value} add up to {written}, and the profile has {total}; this is an error of dioptra"
    )]
    Total {
        /// The event.
        event: String,
        /// `samples` or `weight`.
        value: &'static str,
        /// The sum of the rows.
        written: u64,
        /// The profile's total.
        total: u64,
    },
    /// A profile is in the store with other labels.
    #[error("the profile {profile} is in the store already, with {label} {there}, not {wanted}")]
    OtherLabel {
        /// The profile's id.
        profile: String,
        /// `service`, `host` or `date`.
        label: &'static str,
        /// The label in the store.
        there: String,
        /// The label that was asked for.
        wanted: String,
    },
    /// An object of a profile is missing or has another size, and this machine's names differ from those in the store.
    #[error(
        "{object}: missing or damaged, and the recording has other names on this machine, or is added with other options, than before"
    )]
    NotRepairable {
        /// The object.
        object: String,
    },
    /// Objects vanished while they were written, or writing took too long.
    #[error(
        "{place}: objects vanished while they were written, or writing took more than an hour; nothing was added"
    )]
    Disturbed {
        /// The place.
        place: String,
    },
    /// Profiles were merged again and again while a query ran.
    #[error("profiles were merged while the query ran; ask again")]
    Merged,
    /// An object of the store could not be read as what it should be.
    #[error("{object}: {reason}")]
    Object {
        /// The object.
        object: String,
        /// The cause.
        reason: String,
    },
    /// Reading or writing a file failed.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// Reading or writing an object of a remote store failed.
    #[error(transparent)]
    Remote(#[from] object_store::Error),
    /// Writing a flame graph failed.
    #[error(transparent)]
    Export(#[from] dioptra_export::ExportError),
    /// Making Parquet failed.
    #[error(transparent)]
    Parquet(#[from] parquet::errors::ParquetError),
    /// Making a table failed.
    #[error(transparent)]
    Arrow(#[from] arrow::error::ArrowError),
    /// A query needs more memory than it may take.
    #[error("the query needs more than {} of memory", binary(*limit))]
    Memory {
        /// The bytes that it may take.
        limit: u64,
    },
    /// A query failed; the text says why.
    #[error("{0}")]
    Query(String),
    /// A question names something that the store does not have, or that is not understood.
    #[error("{0}")]
    Question(String),
    /// Writing the output failed.
    #[error("writing the output")]
    Output(#[from] std::io::Error),
}

#[cfg(feature = "query")]
impl From<datafusion::error::DataFusionError> for StoreError {
    fn from(error: datafusion::error::DataFusionError) -> StoreError {
        // The engine's errors hold their causes in their text.
        let text = error.strip_backtrace();
        StoreError::Query(text.split_whitespace().collect::<Vec<_>>().join(" "))
    }
}

impl StoreError {
    /// Makes the error of a file.
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> StoreError {
        let path = path.into();
        move |source| StoreError::File { path, source }
    }
}

/// Returns a number of bytes for people.
fn binary(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024..10_485_760 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}
