//! The contents of one profile.

use super::FactAnswer;
use serde::Serialize;
use ts_rs::TS;

/// The answer of `/api/profile`.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct ProfileAnswer {
    /// The profile's index.
    pub profile: usize,
    /// The generation that answers.
    pub generation: u64,
    /// The file's name without its folder.
    pub label: String,
    /// The file as it was given.
    pub path: String,
    /// The file's size.
    pub size_bytes: u64,
    /// The machine that was recorded.
    pub machine: MachineInfo,
    /// The recorder's command line, a word each.
    pub command_line: Vec<String>,
    /// The recorder's version.
    pub recorder: Option<String>,
    /// Nanoseconds from the first sample to the last one.
    pub duration_ns: Option<u64>,
    /// Nanoseconds of the recording's clock at the first sample.
    pub first_time_ns: Option<u64>,
    /// All events.
    pub events: Vec<EventInfo>,
    /// The keys of the events that get columns when a request names none.
    pub default_events: Vec<String>,
    /// The kinds of data that the recording has.
    pub has: ProfileHas,
    /// The numbers of processes, threads and so on.
    pub counts: ProfileCounts,
    /// The metrics that the recorded events make, of the sets for the recorded CPU.
    pub metrics: Vec<OfferedMetric>,
    /// The metrics that tables show unless the reader chooses others.
    pub default_metrics: Vec<String>,
    /// Losses, fallbacks and limits.
    pub facts: Vec<FactAnswer>,
}

/// A metric that the recorded events make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, TS)]
pub struct OfferedMetric {
    /// The name by which requests ask for it: `SET:METRIC`.
    pub name: String,
    /// The set's name.
    pub set: String,
    /// The heading of its column.
    pub title: String,
    /// Its meaning.
    pub description: String,
    /// The number of columns under which it folds.
    pub depth: u32,
}

/// The machine that was recorded, as far as the file tells.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, TS)]
pub struct MachineInfo {
    /// Its name.
    pub hostname: Option<String>,
    /// Its kernel's release.
    pub os_release: Option<String>,
    /// Its architecture.
    pub arch: Option<String>,
    /// Its CPU.
    pub cpu: Option<String>,
    /// The number of CPUs that were online.
    pub cpus_online: Option<u32>,
    /// Its memory in KiB.
    pub memory_kib: Option<u64>,
}

/// An event of the recording.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct EventInfo {
    /// The key by which requests name it.
    pub key: String,
    /// Its name.
    pub name: String,
    /// The unit of its weights: `ns` or `events`; none where a sample does not state for how many events it stands.
    pub unit: Option<String>,
    /// All its samples.
    pub samples: u64,
    /// The sum of their periods.
    pub weight: u64,
    /// Whether its samples hold call chains.
    pub has_chains: bool,
    /// Whether its counter shared a hardware counter, so that estimates are scaled.
    pub is_scaled: bool,
    /// Whether tables show it unless told otherwise.
    pub sampled: bool,
}

/// The kinds of data that a recording has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, TS)]
pub struct ProfileHas {
    /// Call chains.
    pub chains: bool,
    /// The time of each sample.
    pub times: bool,
    /// The CPU of each sample.
    pub cpus: bool,
    /// Branch records.
    pub branches: bool,
    /// Memory samples.
    pub memory: bool,
    /// Windows of counters.
    pub windows: bool,
}

/// The numbers of things that a recording has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, TS)]
pub struct ProfileCounts {
    /// Processes.
    pub processes: usize,
    /// Threads.
    pub threads: usize,
    /// Modules.
    pub modules: usize,
    /// Functions on call chains.
    pub functions: usize,
    /// CPUs that have samples.
    pub cpus: usize,
}
