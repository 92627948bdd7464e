//! The content of a recording or a trace, as the rows of a store.

mod calls;
mod functions;
mod identities;
mod mappings;
mod read;
mod rows;
mod traced;
mod windows;

pub use read::{DEFAULT_EACH_CALL, ReadOptions};
pub(crate) use read::{Input, read};

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

/// The kinds of things in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A recording of samples.
    Profile,
    /// A trace of calls.
    Trace,
}

impl Kind {
    /// Returns the word in the column `kind`.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Profile => "profile",
            Kind::Trace => "trace",
        }
    }

    /// Returns the kind of a word; `None` for other words.
    pub(crate) fn of_word(word: &str) -> Option<Kind> {
        [Kind::Profile, Kind::Trace]
            .into_iter()
            .find(|kind| kind.word() == word)
    }
}

/// The content of a recording or a trace.
pub(crate) struct Content {
    pub kind: Kind,
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
    /// The number of traced calls.
    pub calls: i64,
    /// Losses and doubts of the recording: a sentence each.
    pub warnings: Vec<String>,
    /// The parts of the recording that the store has no place for.
    pub lost: Vec<String>,
    /// The rows, those that other rows refer to first. Tables without rows may be missing.
    pub rows: Vec<Rows>,
}
