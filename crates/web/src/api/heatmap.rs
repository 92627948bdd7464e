//! Samples by column of time and place within the column.

use super::requests::{SelectionRequest, TimelineValue};
use super::timeline::TimelineEvent;
use serde::Serialize;
use ts_rs::TS;

/// Parameters of `/api/heatmap`.
#[derive(Clone, Debug, Default, PartialEq, Eq, TS)]
#[ts(optional_fields)]
pub struct HeatmapRequest {
    /// The samples that count.
    #[ts(flatten)]
    pub selection: SelectionRequest,
    /// The width of a column in nanoseconds.
    pub column_ns: Option<u64>,
    /// The number of rows into which a column is divided.
    pub rows: Option<u32>,
    /// `A..B`: what the columns cover, in nanoseconds since the first sample; either may be empty.
    #[ts(type = "string", optional)]
    pub span: Option<(Option<u64>, Option<u64>)>,
    /// The kind of the values.
    pub value: Option<TimelineValue>,
}

/// The answer of `/api/heatmap`.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct HeatmapAnswer {
    /// The profile's index.
    pub profile: usize,
    /// The generation that answers.
    pub generation: u64,
    /// The event that is counted.
    pub event: TimelineEvent,
    /// Where the first column begins: a multiple of the width.
    pub start_ns: u64,
    /// The width of a column.
    pub column_ns: u64,
    /// The number of columns.
    pub columns: u32,
    /// The number of rows of a column. Row R begins R / `rows` of a width after the column's begin.
    pub rows: u32,
    /// By column, then row. Samples outside of the span are not counted.
    pub values: Vec<u64>,
    /// The largest of the values.
    pub peak: u64,
    /// All counted samples.
    pub samples: u64,
    /// The sum of their periods.
    pub weight: u64,
    /// The number of samples without a time.
    pub untimed: u64,
}
