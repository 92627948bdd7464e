//! Samples over time.

use super::{FactAnswer, RowKeys};
use serde::Serialize;
use ts_rs::TS;

/// The answer of `/api/timeline`.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct TimelineAnswer {
    /// The profile's index.
    pub profile: usize,
    /// The generation that answers.
    pub generation: u64,
    /// The event that is counted.
    pub event: TimelineEvent,
    /// Where the first bin begins.
    pub start_ns: u64,
    /// Where the last bin ends.
    pub end_ns: u64,
    /// The width of a bin.
    pub bin_ns: u64,
    /// The number of bins.
    pub bins: u32,
    /// The rows of the range, the heaviest first.
    pub rows: Vec<TimelineRow>,
    /// The number of all rows.
    pub total_rows: usize,
    /// The largest value of one bin in these rows.
    pub peak: u64,
    /// The number of samples without a time.
    pub untimed: u64,
    /// The profile that is compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub other: Option<TimelineOther>,
    /// Losses, fallbacks and limits.
    pub facts: Vec<FactAnswer>,
}

/// The profile that is compared in a timeline. Its bins are those of the answer, from its own first sample on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, TS)]
pub struct TimelineOther {
    /// Its index.
    pub profile: usize,
    /// Its generation.
    pub generation: u64,
    /// Where it ends.
    pub end_ns: u64,
    /// Its samples in the bins.
    pub samples: u64,
    /// The number of its rows that are no row of the first profile.
    pub unmatched_rows: usize,
    /// Their samples.
    pub unmatched_samples: u64,
    /// The largest value of one bin in the rows of the answer.
    pub peak: u64,
}

/// A row in the profile that is compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, TS)]
pub struct TimelineOtherRow {
    /// The name of the thread or process there.
    pub name: String,
    /// The number of the thread, process or CPU there.
    pub number: Option<u32>,
    /// All samples in the bins.
    pub samples: u64,
    /// The sum of their periods.
    pub weight: u64,
    /// By bin.
    pub values: Vec<u64>,
}

/// The event of a timeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, TS)]
pub struct TimelineEvent {
    /// Its key.
    pub key: String,
    /// Its name.
    pub name: String,
    /// The unit of its weights.
    pub unit: Option<String>,
}

/// A row of a timeline.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct TimelineRow {
    /// The values of selection parameters that select the row.
    pub key: RowKeys,
    /// The name of the thread or process, or what else the row is.
    pub name: String,
    /// The number of the thread, process or CPU.
    pub number: Option<u32>,
    /// A thread's process.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub process_name: Option<String>,
    /// All samples in the bins.
    pub samples: u64,
    /// The sum of their periods.
    pub weight: u64,
    /// The time of the first of these samples.
    pub first_ns: u64,
    /// The time of the last one.
    pub last_ns: u64,
    /// By bin.
    pub values: Vec<u64>,
    /// The same row in the profile that is compared; absent where it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub other: Option<TimelineOtherRow>,
    /// By bin: the part of it, in thousandths, that the thread was off the CPU, or that the CPU idled. Absent where no
    /// switches were recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub off: Option<Vec<u16>>,
}
