//! The limits of a machine for which tests may be skipped even where nothing else may.

use std::fmt;

use crate::machine::{has_branch_records, has_cycle_counter, paranoid, repository_root};

/// A property of the machine that no package changes, so that its tests may be skipped under `DIOPTRA_NO_SKIP=1`.
///
/// [`Limit::holds`] asks the machine itself: a skip that names a limit which does not hold is a failure there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// The kernel gives this user no hardware counter of cycles, as on most virtual machines.
    NoCycleCounter,
    /// The kernel gives this user a hardware counter of cycles, and the test is about machines without.
    CycleCounter,
    /// The kernel gives this user no records of branches (`perf record -b`), which are hardware's as well.
    NoBranchRecords,
    /// The processor has no events that sample memory accesses (`perf mem record`), as on most virtual machines.
    NoMemoryEvents,
    /// More threads want to run than there are CPUs, so that events at regular intervals may come late.
    BusyMachine,
    /// `../shared/data`, which holds inputs too large for the repository, is not there.
    NoSharedData,
    /// No tracing file system is mounted, so tracepoints have no names.
    NoTracepoints,
    /// `kernel.perf_event_paranoid` is not 2, and the test is about that level.
    OtherParanoid,
    /// Others may not enter the folder of the repository, so no program built there runs as `nobody`.
    ClosedFolder,
    /// The user has not asked for tests that take CPUs offline (`PERFEVENTS_TEST_HOTPLUG=1`).
    HotplugNotAsked,
    /// The test is written for another architecture.
    NotX86,
    /// There is one CPU only.
    OneCpu,
}

impl Limit {
    /// Returns whether the machine has this limit.
    pub fn holds(self) -> bool {
        match self {
            Self::NoCycleCounter => !has_cycle_counter(),
            Self::NoBranchRecords => !has_branch_records(),
            Self::NoMemoryEvents => !has_memory_events(),
            Self::BusyMachine => {
                let cpus = std::thread::available_parallelism().map_or(1, usize::from);
                runnable().is_some_and(|number| number > cpus as f64)
            }
            Self::CycleCounter => has_cycle_counter(),
            Self::NoSharedData => {
                let root = repository_root();
                !root
                    .parent()
                    .is_some_and(|above| above.join("shared/data").exists())
            }
            Self::NoTracepoints => !std::path::Path::new("/sys/kernel/tracing/events").exists(),
            Self::OtherParanoid => paranoid() != Some(2),
            Self::ClosedFolder => crate::machine::closed_folder(&repository_root()).is_some(),
            Self::HotplugNotAsked => {
                std::env::var_os("PERFEVENTS_TEST_HOTPLUG").is_none_or(|value| value != "1")
            }
            Self::NotX86 => !cfg!(target_arch = "x86_64"),
            Self::OneCpu => {
                std::thread::available_parallelism().is_ok_and(|number| number.get() == 1)
            }
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoCycleCounter => "the machine has no cycle counter for us",
            Self::CycleCounter => "the machine has a cycle counter",
            Self::NoBranchRecords => "the machine has no branch records for us",
            Self::NoMemoryEvents => "the machine has no events of memory accesses",
            Self::BusyMachine => "the machine is too busy for regular intervals",
            Self::NoSharedData => "../shared/data is not there",
            Self::NoTracepoints => "no tracing file system is mounted",
            Self::OtherParanoid => "kernel.perf_event_paranoid is not 2",
            Self::ClosedFolder => "others may not enter the repository's folder",
            Self::HotplugNotAsked => "PERFEVENTS_TEST_HOTPLUG=1 is not set",
            Self::NotX86 => "the machine is no x86-64",
            Self::OneCpu => "there is one CPU only",
        })
    }
}

/// Returns whether the kernel offers events that sample memory accesses: Intel's, AMD's or Arm's.
fn has_memory_events() -> bool {
    let Ok(devices) = std::fs::read_dir("/sys/bus/event_source/devices") else {
        return false;
    };
    devices.filter_map(Result::ok).any(|device| {
        let name = device.file_name();
        let name = name.to_string_lossy();
        name == "ibs_op"
            || name.starts_with("arm_spe")
            || device.path().join("events/mem-loads").exists()
    })
}

/// Returns the larger of the numbers of runnable threads now and over the last minute (`/proc/loadavg`).
fn runnable() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    // `1.94 1.41 1.20 3/512 12345`: averages, running and all threads, the last pid
    let fields: Vec<&str> = text.split_whitespace().collect();
    let average: f64 = fields.first()?.parse().ok()?;
    let (running, _) = fields.get(3)?.split_once('/')?;
    Some(average.max(running.parse().ok()?))
}
