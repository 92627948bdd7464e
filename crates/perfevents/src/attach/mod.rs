//! Attaching: opening every event at every place, without missing a thread and without watching one twice.

mod coverage;
mod per_core;
mod per_cpu;
pub(crate) mod plan;
mod state;

pub use per_core::PerCoreAttachmentStrategy;
pub use per_cpu::PerCpuAttachmentStrategy;
pub use state::{AttachSummary, Attachment, FailedThread};

pub(crate) use per_cpu::wanted_cpus;
pub(crate) use state::{Placed, add_count};

use crate::errors::AttachError;
use crate::spec::SessionSpec;

/// A way of opening a session's events.
pub trait AttachmentStrategy: std::fmt::Debug + Send {
    /// Its name, for messages and the summary.
    fn name(&self) -> &'static str;

    /// Opens everything. On an error the caller drops `attachment`, which closes whatever was opened.
    ///
    /// # Errors
    /// [`AttachError`], where no fallback that the session allows helps.
    fn attach(&self, spec: &SessionSpec, attachment: &mut Attachment) -> Result<(), AttachError>;
}

/// The strategy that serves a session's target.
pub(crate) fn strategy_for(spec: &SessionSpec) -> Box<dyn AttachmentStrategy> {
    if spec.target.is_cpu_wide() {
        Box::new(PerCpuAttachmentStrategy)
    } else {
        Box::new(PerCoreAttachmentStrategy)
    }
}
