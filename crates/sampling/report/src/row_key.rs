//! Which thing of a profile a table's row stands for.

use crate::grid::GridRow;

/// The key of a row of [`crate::report_with_keys`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowKey {
    /// The row's level: an index of [`crate::ReportOptions::by`].
    pub level: u8,
    /// The profile that has the row first: an index of the inputs.
    pub input: u32,
    /// The key in that profile, as in [`dioptra_profile::AggregateRow::key`]; for time the number of the slice.
    pub key: u32,
}

impl RowKey {
    pub(crate) fn of(row: GridRow) -> RowKey {
        RowKey {
            // There are at most 16 levels, and no more profiles than arguments of a command.
            level: u8::try_from(row.level).unwrap_or(u8::MAX),
            input: u32::try_from(row.input).unwrap_or(u32::MAX),
            key: row.key,
        }
    }
}
