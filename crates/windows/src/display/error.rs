//! Why there is no table of windows.

use dioptra_profile::SelectError;
use dioptra_report::ReportError;
use dioptra_tables::TableError;
use thiserror::Error;

/// The reason why there is no table of windows' metrics.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DisplayError {
    /// The table could not be made.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// The profile has neither windows nor sampled counts that metrics could be made of.
    #[error("the profile has no windows, and no events whose ratios are metrics")]
    NoWindows,
    /// Rows by path were asked for, and the samples have no call chains.
    #[error("rows by path need call chains")]
    NoCallers,
}

impl From<TableError> for DisplayError {
    fn from(error: TableError) -> DisplayError {
        DisplayError::Report(error.into())
    }
}

impl From<SelectError> for DisplayError {
    fn from(error: SelectError) -> DisplayError {
        DisplayError::Report(error.into())
    }
}
