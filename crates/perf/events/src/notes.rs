//! Notes: the fallbacks that a session took, and the options that it had to leave out.

use std::fmt;

/// A fallback that a session took, or an option that it left out. Its text form is a sentence for users.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttachNote {
    /// Another strategy than the one for the target attached the session.
    Strategy {
        /// The strategy that attached.
        strategy: &'static str,
        /// The refusal of the usual strategy.
        because: String,
    },
    /// Nothing is watched: the process has no thread but the one that attached.
    NothingWatched,
    /// There is one event per thread, so threads that live shorter than 100 ms may be missed.
    PerThread,
    /// Samples come by SIGTRAP and hold little.
    Signals,
    /// A timer of the process stands in for events.
    Timer,
    /// The timer gave fewer samples than its period asks for.
    TimerGaveLess {
        /// Samples that came.
        samples: u64,
        /// Samples that the CPU time makes.
        expected: u64,
        /// The CPU time in nanoseconds.
        cpu_time: u64,
    },
    /// Threads that were created after attaching could not be attached to.
    NewThreads {
        /// The refusal.
        because: String,
    },
    /// The limit of open descriptors was raised.
    DescriptorLimit {
        /// The soft limit before.
        from: u64,
        /// The soft limit now.
        to: u64,
    },
    /// Rings are smaller than asked for.
    SmallerRings {
        /// Data pages that were asked for.
        asked: usize,
        /// Data pages that each ring has.
        pages: usize,
    },
    /// The machine has no precise addresses for an event.
    NotPrecise {
        /// The event's name.
        event: String,
    },
    /// `cpu-clock` stands in for an event that needs a cycle counter.
    CpuClock {
        /// The name of the event that was asked for.
        event: String,
    },
    /// An event counts user space only.
    UserOnly {
        /// The event's name.
        event: String,
    },
    /// An event counts user space only, where it never happens.
    NeverInUserSpace {
        /// The event's name.
        event: String,
    },
    /// Threads that are created later are not sampled: this kernel can't let them inherit counter values in samples.
    ReadNotInherited {
        /// The event's name.
        event: String,
    },
    /// A frequency was lowered to the kernel's limit.
    Frequency {
        /// The event's name.
        event: String,
        /// The frequency that was asked for, in Hz.
        asked: u64,
        /// The frequency that holds, in Hz.
        hertz: u64,
    },
    /// The kernel, or this user's rights, have no records of a kind.
    NoRecords {
        /// The records.
        kind: &'static str,
    },
    /// A CPU went offline or came online.
    Cpu {
        /// The CPU.
        cpu: u32,
        /// The change, and the session's answer to it.
        change: CpuChange,
    },
}

/// A change of a CPU, and what the session does about it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CpuChange {
    /// The CPU went offline while attaching; its events were not opened.
    OfflineAtAttach,
    /// The CPU went offline; its events are opened again when it comes back.
    OfflineUntilReopened,
    /// The CPU went offline; the events of its threads go on by themselves when it comes back.
    Offline,
    /// The CPU came online, and no event was opened for it.
    OnlineUnwatched,
    /// The CPU came online, and its events are open.
    Online,
    /// The CPU came online, and its events were refused.
    OnlineRefused {
        /// The refusal.
        because: String,
    },
}

impl fmt::Display for AttachNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttachNote::Strategy { strategy, because } => {
                write!(f, "attached by {strategy} instead: {because}")
            }
            AttachNote::NothingWatched => f.write_str(
                "nothing is watched: the thread that attaches reads the records and is left out, the process has no \
                 other, and threads that this one creates inherit nothing; use Session::spawn, or watch the reader as \
                 well",
            ),
            AttachNote::PerThread => f.write_str(
                "one event per thread: threads created later are found within 100 ms, and missed if they end before",
            ),
            AttachNote::Signals => f.write_str(
                "samples come by signals (SIGTRAP): without call chains, mappings and names",
            ),
            AttachNote::Timer => f.write_str(
                "there are no events for this process: a timer of its CPU time samples it (SIGPROF), without call \
                 chains, mappings and names",
            ),
            AttachNote::TimerGaveLess {
                samples,
                expected,
                cpu_time,
            } => {
                let missing = expected.saturating_sub(*samples);
                write!(
                    f,
                    "the timer gave {samples} of the {expected} samples that {:.2} s of CPU time make: {} % are \
                     missing, for the kernel looks at such timers at its ticks only; weights by samples are too small \
                     by that, shares are not",
                    *cpu_time as f64 / 1e9,
                    (missing * 100).checked_div(*expected).unwrap_or(0)
                )
            }
            AttachNote::NewThreads { because } => {
                write!(f, "new threads cannot be watched: {because}")
            }
            AttachNote::DescriptorLimit { from, to } => {
                write!(f, "the limit of open descriptors was raised from {from} to {to}")
            }
            AttachNote::SmallerRings { asked, pages } => write!(
                f,
                "no more memory may be locked for ring buffers (kernel.perf_event_mlock_kb, `ulimit -l`): asked for \
                 {asked} pages, using {pages}"
            ),
            AttachNote::NotPrecise { event } => {
                write!(f, "{event}: this machine has no precise addresses")
            }
            AttachNote::CpuClock { event } => write!(
                f,
                "{event}: this machine has no cycle counter for us, sampling cpu-clock instead"
            ),
            AttachNote::UserOnly { event } => write!(
                f,
                "{event}: only user space may be watched (kernel.perf_event_paranoid), the kernel's part is left out"
            ),
            AttachNote::NeverInUserSpace { event } => write!(
                f,
                "{event}: only user space may be watched, where this event never happens; ask for context switch \
                 records instead, or see kernel.perf_event_paranoid"
            ),
            AttachNote::ReadNotInherited { event } => write!(
                f,
                "{event}: counter values in samples cannot be inherited on this kernel (6.12 can); threads created \
                 later are not sampled"
            ),
            AttachNote::Frequency {
                event,
                asked,
                hertz,
            } => write!(
                f,
                "{event}: {asked} Hz is above kernel.perf_event_max_sample_rate, sampling at {hertz} Hz"
            ),
            AttachNote::NoRecords { kind } => {
                write!(f, "this kernel or user cannot be told of {kind}")
            }
            AttachNote::Cpu { cpu, change } => write!(f, "CPU {cpu} {change}"),
        }
    }
}

impl fmt::Display for CpuChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CpuChange::OfflineAtAttach => f.write_str("went offline and is not watched"),
            CpuChange::OfflineUntilReopened => {
                f.write_str("went offline and is watched again when it comes back")
            }
            CpuChange::Offline => f.write_str("went offline and resumes by itself"),
            CpuChange::OnlineUnwatched => {
                f.write_str("came online after attaching and is not watched")
            }
            CpuChange::Online => f.write_str("came online and is watched"),
            CpuChange::OnlineRefused { because } => {
                write!(f, "came online and cannot be watched: {because}")
            }
        }
    }
}
