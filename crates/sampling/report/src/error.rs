//! The errors of profiles' tables.

use dioptra_profile::SelectError;
use dioptra_tables::TableError;
use thiserror::Error;

/// The reason why there is no table of a profile.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReportError {
    /// The table contradicts itself.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The profile was loaded without data that the table needs.
    #[error(transparent)]
    Profile(#[from] SelectError),
}
