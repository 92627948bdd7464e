//! The content of a recording, as the rows of a store.

mod functions;
mod read;
mod rows;

pub use read::ReadOptions;
pub(crate) use read::read;

use crate::columns::Rows;
use crate::labels::Labels;
use serde::{Deserialize, Serialize};

/// The sums of an event's rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventTotal {
    /// The event's name.
    pub event: String,
    /// `ns`, `samples`, or `events`: the unit of weights.
    pub unit: String,
    /// The number of samples.
    pub samples: i64,
    /// The sum of weights.
    pub weight: i64,
}

/// The content of a recording.
pub(crate) struct Content {
    /// The profile's id: a hash of the recording's bytes.
    pub profile_id: String,
    /// The labels.
    pub labels: Labels,
    /// Nanoseconds since 1970 of the first sample.
    pub start_ns: Option<i64>,
    /// Nanoseconds from the first sample to the last one.
    pub duration_ns: Option<i64>,
    pub command: Option<String>,
    pub kernel: Option<String>,
    pub arch: Option<String>,
    pub cpu_model: Option<String>,
    /// The recording's size in bytes.
    pub file_bytes: i64,
    /// The sums of each event.
    pub totals: Vec<EventTotal>,
    /// Losses and doubts of the recording: a sentence each.
    pub warnings: Vec<String>,
    /// The parts of the recording that the store has no place for.
    pub lost: Vec<String>,
    /// The rows of each table of [`crate::schema::Table::OF_ROWS`].
    pub rows: Vec<Rows>,
}
