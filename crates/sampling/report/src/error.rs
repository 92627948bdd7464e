//! The errors of profiles' tables.

use dioptra_profile::SelectError;
use dioptra_tables::TableError;
use thiserror::Error;

/// Why there is no table of a profile.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReportError {
    /// The table contradicts itself.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The profile was loaded without what the table needs.
    #[error(transparent)]
    Profile(#[from] SelectError),
    /// There is nothing of which metrics could be made.
    #[error(
        "the profile has no windows, and no events whose ratios are metrics: record with `dioptra record --windows`, or \
         read counters together with `-e '{{cycles,instructions}}:S'`"
    )]
    NoWindows,
    /// Paths of callers were asked for.
    #[error("rows by path need call chains; record with -g")]
    NoCallers,
}
