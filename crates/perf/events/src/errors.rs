//! Errors by cause: each names the thing that failed, the reason, and a remedy.

use crate::event::OpenRequest;
use crate::limits;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// An event that the kernel did not open.
#[derive(Debug, Error)]
#[error("cannot open {what}: {refusal}")]
#[non_exhaustive]
pub struct OpenError {
    /// The event, and the thread and CPU for which it was to count, in words.
    pub what: String,
    /// The reason of the kernel's refusal.
    pub refusal: Refusal,
}

/// The reason for which the kernel refused an event.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// `EACCES` or `EPERM`: the user may not.
    #[error(
        "permission denied{}; {}",
        paranoid_text(*paranoid),
        permission_remedy(*needs_kernel, *cpu_wide)
    )]
    Permission {
        /// `/proc/sys/kernel/perf_event_paranoid`, where it can be read.
        paranoid: Option<i32>,
        /// Whether the event counts the kernel as well.
        needs_kernel: bool,
        /// Whether it counts all threads of a CPU or a cgroup.
        cpu_wide: bool,
    },
    /// The call never reached the kernel: a seccomp filter, as containers have, forbids it.
    #[error(
        "a seccomp filter forbids perf_event_open, as in most containers; run outside the container, or allow the \
         call in its seccomp profile (docker run --security-opt seccomp=PROFILE, or --cap-add PERFMON)"
    )]
    Seccomp,
    /// `ENOSYS`: the kernel, or the sandbox in its place, has no such call.
    #[error(
        "this kernel or sandbox has no perf_event_open; a Linux kernel with CONFIG_PERF_EVENTS is needed"
    )]
    NoSyscall,
    /// `ENOENT`: no such event or PMU.
    #[error(
        "this machine does not have the event; virtual machines often have no hardware counters"
    )]
    NotSupported,
    /// `EOPNOTSUPP`: the PMU lacks something that was asked for.
    #[error(
        "the PMU can count it, but not in this way (sampling, precise addresses or branch records); leave the \
         modifier out or use another event"
    )]
    CannotSample,
    /// `EOPNOTSUPP`: there are no branch records, in virtual machines most often.
    #[error(
        "no branch stacks here, as in most virtual machines; sample without them, with call chains from frame pointers \
         or copied stacks"
    )]
    NoBranchStacks,
    /// `ESRCH`: the thread ended.
    #[error("the thread has ended, or is a zombie")]
    NoThread,
    /// `ENODEV`: the CPU is offline, or the PMU isn't there.
    #[error("the CPU is offline or the PMU does not serve it")]
    CpuOffline,
    /// `EINVAL`: a combination that this kernel does not know.
    #[error("this kernel refuses the combination of options{}", hint_text(hint))]
    Invalid {
        /// A guess at the offending option; empty where there is none.
        hint: &'static str,
    },
    /// `EINVAL`: a combination that can be counted, but not in inherited events of this kernel.
    #[error("this kernel refuses the combination of options ({0})")]
    NoInheritance(NoInheritance),
    /// `E2BIG`: something that only a newer kernel knows.
    #[error("the event asks for something that only a newer kernel knows")]
    TooNew,
    /// `EMFILE`: the process has too many descriptors.
    #[error(
        "the process is out of file descriptors (limit {limit}); raise it with `ulimit -n`, or watch fewer threads, \
         CPUs or events"
    )]
    ProcessDescriptors {
        /// The soft limit.
        limit: u64,
    },
    /// `ENFILE`: the whole system has too many.
    #[error("the system is out of file descriptors; raise fs.file-max with sysctl")]
    SystemDescriptors,
    /// `ENOSPC`: all hardware breakpoints are taken.
    #[error("all hardware breakpoints are in use; most CPUs have four")]
    BreakpointSlots,
    /// `EBUSY`: another event has the PMU for itself.
    #[error("the PMU is in exclusive use by someone else")]
    Busy,
    /// `ENOMEM`.
    #[error("the kernel is out of memory for events")]
    Memory,
    /// `ENOENT` for a software event: the kernel has none of this number.
    #[error(
        "this kernel has no software event of number {config}; `names::software::EVENTS` lists the known ones"
    )]
    NoSoftwareEvent {
        /// The number that was asked for.
        config: u64,
    },
    /// The event opened, and the kernel refused its filter.
    #[error(
        "the filter `{expression}` is refused ({source}); /sys/kernel/tracing/events/…/format lists a tracepoint's fields"
    )]
    Filter {
        /// The filter's expression.
        expression: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Another error number.
    #[error("{0}")]
    Other(io::Error),
}

/// A thing that kernels before Linux 6.12 can't inherit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NoInheritance {
    /// A group whose members are read together.
    #[error("counter groups cannot be inherited before Linux 6.12")]
    Groups,
    /// Samples that hold counter values.
    #[error("counter values in samples cannot be inherited before Linux 6.12")]
    Values,
}

fn paranoid_text(paranoid: Option<i32>) -> String {
    match paranoid {
        Some(level) => format!(" (kernel.perf_event_paranoid is {level})"),
        None => " (kernel.perf_event_paranoid cannot be read)".to_owned(),
    }
}

fn permission_remedy(needs_kernel: bool, cpu_wide: bool) -> &'static str {
    if cpu_wide {
        "run as root, give the program CAP_PERFMON (setcap cap_perfmon+ep), or sysctl kernel.perf_event_paranoid=0"
    } else if needs_kernel {
        "count user space only (:u), run as root, give the program CAP_PERFMON (setcap cap_perfmon+ep), or sysctl \
         kernel.perf_event_paranoid=1"
    } else {
        "the target must be a process of your own that you could trace; or run as root or with CAP_PERFMON"
    }
}

fn places_text(threads: usize, cpus: usize) -> String {
    let text = |count: usize, what: &str| {
        let several = if count == 1 { "" } else { "s" };
        format!("{count} {what}{several}")
    };
    match (threads, cpus) {
        (0, cpus) => text(cpus, "CPU"),
        (threads, 0) => text(threads, "thread"),
        (threads, cpus) => format!("{} on {}", text(threads, "thread"), text(cpus, "CPU")),
    }
}

fn hint_text(hint: &'static str) -> String {
    if hint.is_empty() {
        String::new()
    } else {
        format!(" ({hint})")
    }
}

impl OpenError {
    /// Sorts the kernel's answer to `request` by cause. Asks the kernel again where a refusal may be a filter's.
    pub(crate) fn new(request: &OpenRequest<'_>, error: io::Error) -> OpenError {
        OpenError {
            what: request.to_string(),
            refusal: Refusal::new(request, error),
        }
    }

    pub(crate) fn of_filter(
        request: &OpenRequest<'_>,
        expression: &str,
        source: io::Error,
    ) -> OpenError {
        OpenError {
            what: request.to_string(),
            refusal: Refusal::Filter {
                expression: expression.to_owned(),
                source,
            },
        }
    }

    pub(crate) fn empty_group() -> OpenError {
        OpenError {
            what: "a group without events".to_owned(),
            refusal: Refusal::Invalid {
                hint: "a group needs a leader",
            },
        }
    }

    /// Makes the error of an event that opened, and that the kernel did not let start.
    pub(crate) fn of_control(error: EventError) -> OpenError {
        OpenError {
            what: format!("the event {}", error.event),
            refusal: Refusal::Other(error.source),
        }
    }

    /// Returns true if the thread was gone. Threads come and go, so callers rarely treat this as a failure.
    pub fn is_gone(&self) -> bool {
        matches!(self.refusal, Refusal::NoThread)
    }
}

impl Refusal {
    fn new(request: &OpenRequest<'_>, error: io::Error) -> Refusal {
        match error.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => {
                if let Some(refusal) = limits::call_is_filtered() {
                    return refusal;
                }
                Refusal::Permission {
                    paranoid: limits::paranoid(),
                    needs_kernel: request.counts_kernel(),
                    cpu_wide: request.is_cpu_wide(),
                }
            }
            Some(libc::ENOSYS) => Refusal::NoSyscall,
            Some(libc::ENOENT) if request.is_unknown_software_event() => Refusal::NoSoftwareEvent {
                config: request.attr.config,
            },
            Some(libc::ENOENT) => Refusal::NotSupported,
            Some(libc::EOPNOTSUPP) if request.attr.branch_sample_type != 0 => {
                Refusal::NoBranchStacks
            }
            Some(libc::EOPNOTSUPP) => Refusal::CannotSample,
            Some(libc::ESRCH) => Refusal::NoThread,
            Some(libc::ENODEV | libc::ENXIO) => Refusal::CpuOffline,
            Some(libc::EINVAL) => match request.inheritance_fault() {
                Some(fault) => Refusal::NoInheritance(fault),
                None => Refusal::Invalid {
                    hint: request.hint(),
                },
            },
            Some(libc::E2BIG) => Refusal::TooNew,
            Some(libc::EMFILE) => Refusal::ProcessDescriptors {
                limit: limits::descriptors().map_or(0, |(soft, _)| soft),
            },
            Some(libc::ENFILE) => Refusal::SystemDescriptors,
            Some(libc::ENOSPC) => Refusal::BreakpointSlots,
            Some(libc::EBUSY) => Refusal::Busy,
            Some(libc::ENOMEM) => Refusal::Memory,
            _ => Refusal::Other(error),
        }
    }
}

/// An operation on an open event that failed.
#[derive(Debug, Error)]
#[error("cannot {operation} the event {event}: {source}")]
#[non_exhaustive]
pub struct EventError {
    /// The operation, as a verb.
    pub operation: &'static str,
    /// The event's name.
    pub event: String,
    /// The kernel's answer.
    pub source: io::Error,
}

/// The reason for which a session could not be attached. Whatever was open by then has been closed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AttachError {
    /// The session has no events.
    #[error("the session has no events; add one, such as cpu-clock")]
    NoEvents,
    /// None of the CPUs asked for is online.
    #[error("none of the CPUs {wanted} is online; online are {online}")]
    NoCpus {
        /// The CPUs that were asked for.
        wanted: String,
        /// The CPUs that are online.
        online: String,
    },
    /// An event was refused.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A control of an opened event failed.
    #[error(transparent)]
    Event(#[from] EventError),
    /// A ring buffer could not be mapped, not even one of a single page.
    #[error(
        "cannot map a ring buffer of {pages} pages for CPU {cpu}: {source}; unprivileged users share \
         kernel.perf_event_mlock_kb ({mlock_kb} KiB) per CPU: use fewer CPUs, raise it with sysctl, or raise `ulimit -l`"
    )]
    Ring {
        /// The CPU.
        cpu: u32,
        /// Data pages that were tried last.
        pages: usize,
        /// `kernel.perf_event_mlock_kb`.
        mlock_kb: u64,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A process to attach to does not exist.
    #[error("there is no process or thread {id}")]
    NoTarget {
        /// The pid or tid.
        id: u32,
    },
    /// Every thread to attach to has ended.
    #[error("all threads to attach to have ended")]
    AllEnded,
    /// procfs did not answer.
    #[error("cannot read {path}: {source}; is /proc mounted?")]
    Procfs {
        /// The path that was read.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A cgroup that can't be opened.
    #[error(
        "cannot open the cgroup {path}: {source}; name it as `cat /proc/PID/cgroup` shows it, or by its directory"
    )]
    Cgroup {
        /// The path of the cgroup.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// More descriptors are needed than allowed.
    #[error(
        "{needed} file descriptors are needed for {}, and {allowed} are allowed (limit {limit}); raise it with `ulimit -n`, \
         or watch fewer threads, CPUs or events",
        places_text(*threads, *cpus)
    )]
    Descriptors {
        /// The number of descriptors that would be open.
        needed: u64,
        /// The number of descriptors that the session's share of the limit allows.
        allowed: u64,
        /// The soft limit.
        limit: u64,
        /// Threads to attach to; 0 for whole CPUs.
        threads: usize,
        /// CPUs; 0 for threads wherever they run.
        cpus: usize,
    },
    /// The signals that stand in for rings can't be had.
    #[error("cannot take samples by signals: {0}")]
    Signals(io::Error),
    /// The wakeup descriptor could not be made.
    #[error("cannot make an eventfd: {0}")]
    Wakeup(io::Error),
    /// The reader's thread could not be started, or panicked.
    #[error("cannot start the reader's thread: {0}")]
    Thread(io::Error),
    /// The session was made by another process, of which this one is a forked copy.
    #[error(
        "the session belongs to the process that made it, and this is a copy of it; make a session of its own here"
    )]
    OtherProcess,
    /// The strategy can't do what the session asks for.
    #[error("{strategy} cannot {what}; {remedy}")]
    Strategy {
        /// The strategy's name.
        strategy: &'static str,
        /// The thing that the strategy cannot do.
        what: &'static str,
        /// The remedy.
        remedy: &'static str,
    },
}

/// The reason for which a session stopped running.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RunError {
    /// The session has ended: it was stopped, or every thread that it watched has ended.
    #[error("the session has ended; stop it for its totals")]
    Ended,
    /// The session was made by another process, of which this one is a forked copy.
    #[error(
        "the session belongs to the process that made it, and this is a copy of it; make a session of its own here"
    )]
    OtherProcess,
    /// Waiting for records failed.
    #[error("cannot wait for records: {0}")]
    Poll(io::Error),
    /// An event could not be enabled or disabled.
    #[error(transparent)]
    Event(#[from] EventError),
    /// The listener panicked.
    #[error("the record listener panicked")]
    Listener,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Attr;

    fn refusal(number: i32) -> Refusal {
        let attr = Attr::default();
        let target = crate::EventTarget::Thread(7, Some(1));
        let request = OpenRequest::with_attr("cycles", attr, target);
        let error = OpenError::new(&request, io::Error::from_raw_os_error(number));
        assert!(
            error
                .to_string()
                .contains("the event cycles on thread 7, CPU 1"),
            "{error}"
        );
        error.refusal
    }

    #[test]
    fn every_error_number_has_its_cause_and_remedy() {
        for (number, says) in [
            (libc::ENOSYS, "CONFIG_PERF_EVENTS"),
            (libc::ENOENT, "virtual machines"),
            (libc::EOPNOTSUPP, "modifier"),
            (libc::ESRCH, "ended"),
            (libc::ENODEV, "offline"),
            (libc::EINVAL, "combination"),
            (libc::E2BIG, "newer kernel"),
            (libc::EMFILE, "ulimit -n"),
            (libc::ENFILE, "fs.file-max"),
            (libc::ENOSPC, "breakpoints"),
            (libc::EBUSY, "exclusive"),
            (libc::ENOMEM, "memory"),
        ] {
            let refusal = refusal(number);
            assert!(refusal.to_string().contains(says), "{number}: {refusal}");
        }
        assert!(matches!(
            refusal(libc::EMFILE),
            Refusal::ProcessDescriptors { .. }
        ));
        assert!(matches!(refusal(libc::ENFILE), Refusal::SystemDescriptors));
        assert!(matches!(refusal(libc::EIO), Refusal::Other(_)));
    }

    #[test]
    fn a_hidden_paranoid_level_is_said_to_be_hidden() {
        let refusal = Refusal::Permission {
            paranoid: None,
            needs_kernel: true,
            cpu_wide: false,
        };
        assert!(refusal.to_string().contains("cannot be read"), "{refusal}");
    }
}
