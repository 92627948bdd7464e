//! Without rings: the kernel, or a timer, sends a signal for each sample, to this process only.

use super::per_core::resolve;
use super::per_thread::rescan;
use super::state::Attachment;
use super::{Arrangement, Attach, AttachmentStrategy};
use crate::errors::AttachError;
use crate::notes::AttachNote;
use crate::signals::SignalSource;
use crate::spec::{SessionSpec, Target};

/// Opens each event once per existing thread, inherited by later ones, and has the kernel send SIGTRAP for each sample
/// (Linux 5.13): no descriptors per CPU, no rings, no locked memory. A sample costs a signal, and holds the address,
/// the thread, the time and the CPU only.
#[derive(Clone, Copy, Debug, Default)]
pub struct SignalAttachmentStrategy;

impl AttachmentStrategy for SignalAttachmentStrategy {
    fn name(&self) -> &'static str {
        "signals"
    }
}

impl Attach for SignalAttachmentStrategy {
    fn shape(&self) -> Arrangement {
        Arrangement::Signals
    }

    fn attach(&self, spec: &SessionSpec, attachment: &mut Attachment) -> Result<(), AttachError> {
        only_self(spec, "sending signals")?;
        // The handler stands before the first signal can come: its default would end the process.
        attachment.signals =
            Some(SignalSource::traps(attachment.reader).map_err(AttachError::Signals)?);
        resolve(spec, attachment)?;
        attachment.note(AttachNote::Signals);
        for _ in 0..spec.attach_iterations.max(1) {
            attachment.summary.iterations += 1;
            if rescan(spec, attachment)? == 0 {
                break;
            }
        }
        Ok(())
    }
}

/// Samples by a timer of the process's CPU time (SIGPROF) instead of events: works where `perf_event_open` does not, in
/// most containers. Only clock events can be replaced so.
#[derive(Clone, Copy, Debug, Default)]
pub struct TimerAttachmentStrategy;

impl AttachmentStrategy for TimerAttachmentStrategy {
    fn name(&self) -> &'static str {
        "timer"
    }
}

impl Attach for TimerAttachmentStrategy {
    fn shape(&self) -> Arrangement {
        Arrangement::Signals
    }

    fn attach(&self, spec: &SessionSpec, attachment: &mut Attachment) -> Result<(), AttachError> {
        only_self(spec, "sampling by a timer")?;
        let Some(index) = attachment
            .plan
            .events
            .iter()
            .position(|event| event.is_clock())
        else {
            return Err(AttachError::Strategy {
                strategy: "sampling by a timer",
                what: "stand in for events other than clocks and cycles",
                remedy: "sample cpu-clock",
            });
        };
        let period = attachment.plan.events[index].clock_period();
        attachment.signals = Some(
            SignalSource::timer(attachment.reader, index, period).map_err(AttachError::Signals)?,
        );
        attachment.take_timer_id(index);
        attachment.note(AttachNote::Timer);
        Ok(())
    }
}

fn only_self(spec: &SessionSpec, strategy: &'static str) -> Result<(), AttachError> {
    if spec.target == Target::SelfProcess {
        return Ok(());
    }
    Err(AttachError::Strategy {
        strategy,
        what: "watch other processes",
        remedy: "watch this process only",
    })
}
