//! Reasons why a profile could not be exported.

use std::io;

/// The reason why an export failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// There is no event to export.
    #[error("the profile has no event with samples")]
    NoEvent,
    /// The profile was loaded without call stacks.
    #[error("the profile was loaded without call stacks; load it with LoadOptions::call_chains")]
    NoStacks,
    /// The samples have no times, which the format needs.
    #[error("the profile's samples have no times, and the format places them in time")]
    NoTimes,
    /// The output could not be written.
    #[error("writing the output")]
    Write(#[from] io::Error),
    /// A collector did not take a request.
    #[cfg(feature = "push")]
    #[error(transparent)]
    Push(#[from] crate::PushError),
    /// The written values do not add up to the profile's total.
    #[error("{event}: the written {value} add up to {written}, but the profile has {total}")]
    Total {
        /// The event's name.
        event: String,
        /// The kind of values: samples or weights.
        value: &'static str,
        /// The sum of the written values.
        written: u64,
        /// The profile's total.
        total: u64,
    },
}
