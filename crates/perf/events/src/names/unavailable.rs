//! The reasons for which events of the list do not work.

use super::pmu::TermError;
use crate::errors::{OpenError, Refusal};
use std::io;
use std::sync::Arc;
use thiserror::Error;

/// The reason for which an event, or all events of a kind, do not work on this machine or for this user.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum Unavailable {
    /// The kernel refused the event.
    #[error("{0}")]
    Refused(Arc<Refusal>),
    /// sysfs does not describe the event in a way that can be opened.
    #[error(transparent)]
    Term(#[from] TermError),
    /// tracefs is not mounted, so tracepoints have no numbers.
    #[error("tracefs is not mounted")]
    NoTracefs,
    /// tracefs is mounted, and this user may not read it.
    #[error("only root may read tracefs")]
    TracefsDenied,
    /// A tracepoint's number cannot be read from tracefs.
    #[error("the number of a tracepoint cannot be read: {0}")]
    TracepointNumber(io::ErrorKind),
    /// The kernel has no PMU of uprobes.
    #[error("this kernel has no uprobes; CONFIG_UPROBE_EVENTS is needed")]
    NoUprobes,
    /// This user may not open uprobes.
    #[error("uprobes need root or CAP_PERFMON")]
    UprobesDenied,
}

impl Unavailable {
    /// Returns the reason for which the number of a tracepoint could not be read.
    pub(crate) fn of_tracefs(error: &io::Error) -> Unavailable {
        match error.kind() {
            io::ErrorKind::PermissionDenied => Unavailable::TracefsDenied,
            io::ErrorKind::NotFound => Unavailable::NoTracefs,
            kind => Unavailable::TracepointNumber(kind),
        }
    }
}

impl From<OpenError> for Unavailable {
    fn from(error: OpenError) -> Unavailable {
        Unavailable::Refused(Arc::new(error.refusal))
    }
}
