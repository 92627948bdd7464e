//! The capabilities of this machine and user, found out by trying.

use crate::cpus::CpuSet;
use crate::errors::{OpenError, Refusal};
use crate::event::{EventTarget, OpenRequest};
use crate::names::pmu::PmuDirectory;
use crate::names::{Unavailable, software, tracepoint};
use crate::{Attr, AttrFlags, SampleType, event_type};

/// The outcome of a trial.
pub type Tried = Result<(), OpenError>;

/// The events that this process may open. Each field is a trial, not a guess from settings.
///
/// [`Features`](crate::Features) finds out which options the kernel's attr has, and [`limits`](crate::limits) reads the
/// settings.
#[derive(Debug)]
#[non_exhaustive]
pub struct Capabilities {
    /// Sampling this process in user space by `cpu-clock`.
    pub sample_user: Tried,
    /// Sampling this process and the kernel's part by `cpu-clock`.
    pub sample_kernel: Tried,
    /// Sampling all threads of a CPU.
    pub system_wide: Tried,
    /// Sampling by the CPU's cycle counter.
    pub hardware: Tried,
    /// Sampling by the CPU's counter of instructions.
    pub instructions: Tried,
    /// Exact addresses (`cycles:pp`).
    pub precise: Tried,
    /// Branch records (LBR and the like).
    pub branches: Tried,
    /// Context switch records.
    pub switches: Tried,
    /// Tracepoints that fire in the kernel, such as `sched:sched_switch`.
    pub tracepoints: Result<(), Unavailable>,
    /// Uprobes.
    pub uprobes: Result<(), Unavailable>,
}

impl Capabilities {
    /// Tries ten events, which are closed at once and never enabled.
    pub fn probe() -> Capabilities {
        let own = EventTarget::CALLER;
        let cpu = CpuSet::online().iter().next().unwrap_or(0);
        let clock = sampling(event_type::SOFTWARE, software::CPU_CLOCK);
        let user = user_only(clock.clone());
        let cycles = user_only(sampling(event_type::HARDWARE, 0));
        let instructions = user_only(sampling(event_type::HARDWARE, 1));
        let mut precise = cycles.clone();
        precise.set_precise_ip(2);
        let mut branches = cycles.clone();
        branches.sample_type |= SampleType::BRANCH_STACK;
        // Any branch, in user space.
        branches.branch_sample_type = 1 << 3 | 1;
        let mut switches = user_only(sampling(event_type::SOFTWARE, software::DUMMY));
        switches.flags |= AttrFlags::CONTEXT_SWITCH;
        Capabilities {
            sample_user: tried("cpu-clock:u", &user, own),
            sample_kernel: tried("cpu-clock", &clock, own),
            system_wide: tried("cpu-clock", &clock, EventTarget::Cpu(cpu)),
            hardware: tried("cycles:u", &cycles, own),
            instructions: tried("instructions:u", &instructions, own),
            precise: tried("cycles:upp", &precise, own),
            branches: tried("cycles:u with branch records", &branches, own),
            switches: tried("dummy", &switches, own),
            tracepoints: tracepoints(),
            uprobes: uprobes(),
        }
    }
}

fn sampling(kind: u32, config: u64) -> Attr {
    Attr {
        kind,
        config,
        sample_period: 1_000_000,
        sample_type: SampleType::IP,
        flags: AttrFlags::DISABLED,
        ..Attr::default()
    }
}

fn user_only(mut attr: Attr) -> Attr {
    attr.flags |= AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV;
    attr
}

fn tried(name: &str, attr: &Attr, target: EventTarget) -> Tried {
    OpenRequest::with_attr(name, attr.clone(), target)
        .open()
        .map(drop)
}

fn tracepoints() -> Result<(), Unavailable> {
    let config = tracepoint::config("sched", "sched_switch")
        .map_err(|error| Unavailable::of_tracefs(&error))?;
    let mut attr = sampling(event_type::TRACEPOINT, config);
    attr.sample_type |= SampleType::RAW;
    Ok(tried("sched:sched_switch", &attr, EventTarget::CALLER)?)
}

fn uprobes() -> Result<(), Unavailable> {
    let Some(kind) = PmuDirectory::default().kind("uprobe") else {
        return Err(Unavailable::NoUprobes);
    };
    // Without a file the kernel refuses: for lack of rights first, and for the lack of a file after that.
    let attr = sampling(kind, 0);
    match OpenRequest::with_attr("uprobe", attr, EventTarget::CALLER).open() {
        Err(error)
            if matches!(
                error.refusal,
                Refusal::Permission { .. } | Refusal::NotSupported
            ) =>
        {
            Err(Unavailable::UprobesDenied)
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_tried_agrees_with_itself() {
        let found = Capabilities::probe();
        // Whoever may watch the kernel may watch user space, and whoever may watch a CPU may do both.
        assert!(found.sample_kernel.is_err() || found.sample_user.is_ok());
        assert!(found.system_wide.is_err() || found.sample_kernel.is_ok());
        assert!(found.precise.is_err() || found.hardware.is_ok());
        for error in [&found.sample_user, &found.hardware]
            .into_iter()
            .flat_map(|tried| tried.as_ref().err())
        {
            assert!(!error.to_string().is_empty());
        }
        assert!(
            found
                .tracepoints
                .err()
                .is_none_or(|why| !why.to_string().is_empty())
        );
    }
}
