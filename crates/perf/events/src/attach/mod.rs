//! Attaching: opening every event for every thread and CPU, without missing a thread and without watching one twice.

mod coverage;
mod open;
mod per_core;
mod per_cpu;
mod per_thread;
pub(crate) mod plan;
mod resolve;
mod signals;
mod state;

pub use per_core::PerCoreAttachmentStrategy;
pub use per_cpu::PerCpuAttachmentStrategy;
pub use per_thread::PerThreadAttachmentStrategy;
pub(crate) use per_thread::rescan;
pub(crate) use plan::Arrangement;
pub(crate) use sealed::Attach;
pub use signals::{SignalAttachmentStrategy, TimerAttachmentStrategy};
pub(crate) use state::Attachment;
pub use state::{AttachSummary, FailedThread};

pub(crate) use per_core::list as list_threads;
pub(crate) use per_cpu::{open_cgroup, wanted_cpus};
pub(crate) use state::{CpuRing, Placed, add_count};

use crate::errors::{AttachError, Refusal};
use crate::spec::{Fallbacks, SessionSpec, Target};

/// A way of opening a session's events, for [`Session::with_strategy`](crate::Session::with_strategy). Sealed: the
/// strategies of this crate are all that there are.
pub trait AttachmentStrategy: sealed::Attach + std::fmt::Debug + Send {
    /// Returns the strategy's name, for messages and the summary.
    fn name(&self) -> &'static str;
}

mod sealed {
    use super::{Arrangement, AttachError, Attachment, SessionSpec};

    /// The part of a strategy that deals with the inside of a session.
    pub trait Attach {
        /// Returns where the strategy puts events and rings.
        fn shape(&self) -> Arrangement;

        /// Opens everything. On an error the caller drops `attachment`, which closes whatever was opened.
        ///
        /// # Errors
        /// [`AttachError`], where no fallback that the session allows helps.
        fn attach(
            &self,
            spec: &SessionSpec,
            attachment: &mut Attachment,
        ) -> Result<(), AttachError>;
    }
}

/// Returns the strategy that serves a session's target.
pub(crate) fn strategy_for(spec: &SessionSpec) -> Box<dyn AttachmentStrategy> {
    if spec.target.is_cpu_wide() {
        Box::new(PerCpuAttachmentStrategy)
    } else {
        Box::new(PerCoreAttachmentStrategy)
    }
}

/// Returns the strategies to try, in this order, where that for the target fails with `error`: the ladder's lower rungs.
pub(crate) fn fallbacks_for(
    spec: &SessionSpec,
    error: &AttachError,
) -> Vec<Box<dyn AttachmentStrategy>> {
    let mut rungs: Vec<Box<dyn AttachmentStrategy>> = Vec::new();
    let own = spec.target == Target::SelfProcess;
    let threads = own || matches!(spec.target, Target::Processes(_) | Target::Threads(_));
    let refusal = match error {
        AttachError::Open(error) => Some(&error.refusal),
        _ => None,
    };
    let short = matches!(error, AttachError::Descriptors { .. })
        || matches!(
            refusal,
            Some(Refusal::ProcessDescriptors { .. } | Refusal::SystemDescriptors)
        );
    let no_ring = matches!(error, AttachError::Ring { .. });
    if (short || no_ring) && own && spec.fallbacks.contains(Fallbacks::SIGNALS) {
        rungs.push(Box::new(SignalAttachmentStrategy));
    }
    if short && threads && spec.fallbacks.contains(Fallbacks::PER_THREAD) {
        rungs.push(Box::new(PerThreadAttachmentStrategy));
    }
    let no_events = matches!(
        refusal,
        Some(
            Refusal::Seccomp
                | Refusal::NoSyscall
                | Refusal::NotSupported
                | Refusal::NoSoftwareEvent { .. }
                | Refusal::Permission { .. }
        )
    );
    if (short || no_ring || no_events) && own && spec.fallbacks.contains(Fallbacks::TIMER) {
        rungs.push(Box::new(TimerAttachmentStrategy));
    }
    rungs
}
