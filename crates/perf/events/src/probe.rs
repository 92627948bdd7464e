//! What this machine and user can do, found out by trying: for `doctor`, and for programs that must decide.

use crate::errors::{OpenError, Refusal};
use crate::event::{EventTarget, OpenRequest};
use crate::features::Features;
use crate::limits;
use crate::names::pmu::PmuDirectory;
use crate::names::{software, tracepoint};
use crate::sys;
use crate::{Attr, AttrFlags, SampleType, event_type};

/// One thing that was tried: done, or why not (the reason with its remedy).
pub type Tried = Result<(), String>;

/// What events this process may open. Each field is a trial, not a guess from settings.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Whether the call reaches the kernel at all: the size of the kernel's attr in bytes.
    pub syscall: Result<u32, String>,
    /// Sampling this process in user space by `cpu-clock`.
    pub sample_user: Tried,
    /// The same with the kernel's part.
    pub sample_kernel: Tried,
    /// Sampling another process of this user (this one's parent).
    pub sample_other: Tried,
    /// Sampling all threads of a CPU.
    pub system_wide: Tried,
    /// Sampling by the CPU's cycle counter.
    pub hardware: Tried,
    /// Exact addresses (`cycles:pp`).
    pub precise: Tried,
    /// Branch records (LBR and the like).
    pub branches: Tried,
    /// Tracepoints that fire in the kernel, such as `sched:sched_switch`.
    pub tracepoints: Tried,
    /// Uprobes.
    pub uprobes: Tried,
    /// Hardware breakpoints on own memory.
    pub breakpoints: Tried,
    /// Context switch records.
    pub switches: Tried,
    /// Samples that hold a group's counts, inherited by threads (Linux 6.12).
    pub inherited_group_reads: bool,
    /// The kernel's own count of lost records (Linux 6.0).
    pub exact_losses: bool,
    /// Threads inherit without forked processes (Linux 5.13).
    pub inherit_threads_only: bool,
    /// Mappings with build ids (Linux 5.12).
    pub build_ids: bool,
    /// `IOC_REFRESH` on clocks may hang this kernel (6.16 and 6.17).
    pub refresh_hazard: bool,
    /// Names of the PMUs in sysfs.
    pub pmus: Vec<String>,
    /// `kernel.perf_event_paranoid`.
    pub paranoid: Option<i32>,
    /// `kernel.perf_event_max_sample_rate`, in Hz.
    pub max_sample_rate: Option<u64>,
    /// `kernel.perf_cpu_time_max_percent`.
    pub cpu_time_max_percent: Option<u64>,
    /// `kernel.perf_event_mlock_kb`, in KiB.
    pub mlock_kb: Option<u64>,
    /// `kernel.perf_event_max_stack`, in frames.
    pub max_stack: Option<u64>,
    /// Soft and hard limit of descriptors.
    pub descriptors: Option<(u64, u64)>,
    /// Soft and hard limit of locked memory, in bytes.
    pub locked_memory: Option<(u64, u64)>,
    /// Bits of the effective capabilities.
    pub effective: Option<u64>,
}

impl Capabilities {
    /// Tries everything: some twenty events, opened and closed at once, none enabled.
    pub fn probe() -> Capabilities {
        let features = Features::get();
        let own = EventTarget::CALLER;
        let clock = sampling(event_type::SOFTWARE, software::CPU_CLOCK);
        let user = user_only(clock.clone());
        let cycles = user_only(sampling(event_type::HARDWARE, 0));
        let mut precise = cycles.clone();
        precise.set_precise_ip(2);
        let mut branches = cycles.clone();
        branches.sample_type |= SampleType::BRANCH_STACK;
        // Any branch, in user space.
        branches.branch_sample_type = 1 << 3 | 1;
        let mut switches = user_only(sampling(event_type::SOFTWARE, software::DUMMY));
        switches.flags |= AttrFlags::CONTEXT_SWITCH;
        let word = 0_u64;
        let mut breakpoint = user_only(sampling(event_type::BREAKPOINT, 0));
        breakpoint.bp_type = 2;
        breakpoint.config1 = (&raw const word) as u64;
        breakpoint.config2 = 8;
        Capabilities {
            syscall: sys::attr_size_of_kernel().map_err(|error| {
                limits::call_is_filtered()
                    .map_or_else(|| error.to_string(), |refusal| refusal.to_string())
            }),
            sample_user: tried("cpu-clock:u", &user, own),
            sample_kernel: tried("cpu-clock", &clock, own),
            sample_other: tried("cpu-clock:u", &user, EventTarget::Thread(parent(), None)),
            system_wide: tried("cpu-clock", &clock, EventTarget::Cpu(0)),
            hardware: tried("cycles:u", &cycles, own),
            precise: tried("cycles:upp", &precise, own),
            branches: tried("cycles:u", &branches, own),
            tracepoints: tracepoints(),
            uprobes: uprobes(),
            breakpoints: tried("mem", &breakpoint, own),
            switches: tried("dummy", &switches, own),
            inherited_group_reads: features.inherit_group_read,
            exact_losses: features.read_lost,
            inherit_threads_only: features.flags.contains(AttrFlags::INHERIT_THREAD),
            build_ids: features.flags.contains(AttrFlags::BUILD_ID),
            refresh_hazard: limits::refresh_of_clocks_is_unsafe(),
            pmus: PmuDirectory::default().names(),
            paranoid: limits::paranoid(),
            max_sample_rate: limits::max_sample_rate(),
            cpu_time_max_percent: limits::cpu_time_max_percent(),
            mlock_kb: limits::mlock_kb(),
            max_stack: limits::max_stack(),
            descriptors: limits::descriptors(),
            locked_memory: limits::locked_memory(),
            effective: limits::effective_capabilities(),
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
        .map_err(|error| reason(&error))
}

fn reason(error: &OpenError) -> String {
    error.refusal.to_string()
}

fn parent() -> u32 {
    std::os::unix::process::parent_id()
}

fn tracepoints() -> Tried {
    let config = match tracepoint::config("sched", "sched_switch") {
        Ok(config) => config,
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            return Err("only root may read tracefs; run as root".to_owned());
        }
        Err(_) => {
            return Err(
                "tracefs is not mounted; as root: mount -t tracefs tracefs /sys/kernel/tracing"
                    .to_owned(),
            );
        }
    };
    let mut attr = sampling(event_type::TRACEPOINT, config);
    attr.sample_type |= SampleType::RAW;
    tried("sched:sched_switch", &attr, EventTarget::CALLER)
}

fn uprobes() -> Tried {
    let Some(kind) = PmuDirectory::default().kind("uprobe") else {
        return Err("this kernel has no uprobes; CONFIG_UPROBE_EVENTS is needed".to_owned());
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
            Err("needs root or CAP_PERFMON (setcap cap_perfmon+ep)".to_owned())
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
        for refusal in [&found.sample_user, &found.hardware, &found.tracepoints]
            .into_iter()
            .flat_map(|tried| tried.as_ref().err())
        {
            assert!(!refusal.is_empty());
        }
    }
}
