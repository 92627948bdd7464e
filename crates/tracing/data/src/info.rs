//! The content of `info.json`.

use crate::journal::ClockPair;
use serde::{Deserialize, Deserializer, Serialize};

/// The facts about a recording. Readers ignore unknown fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TraceInfo {
    /// The version of this object; 1.
    pub schema: u32,
    /// The version of chunks, records and tables: [`dioptra_tracelayout::VERSION`].
    pub layout: u16,
    /// The program that recorded, with its version.
    pub recorder: String,
    /// The command and its arguments; bytes that are no UTF-8 are replaced.
    pub command: Vec<String>,
    /// The folder in which the command was started.
    pub folder: String,
    /// The options that decided what was recorded, as they were given.
    pub options: Vec<String>,
    /// Filters of the recording that the records do not follow, or only in part. Readers apply them, so that they
    /// show the calls that were asked for. Of functions that the journal lists as sampled
    /// ([`crate::SampledFunctions`]) only chosen executions are recorded: readers do not sample them again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<PendingRules>,
    /// The seed of the random choices. A recording with the same seed chooses the same executions, as far as its
    /// threads begin in the same order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// The wall clock at the start, in nanoseconds since 1970.
    pub started_realtime: u64,
    /// The clock of the records.
    pub clock: ClockInfo,
    /// The machine.
    pub host: Host,
    /// The end of the recording; missing while it goes on, or if the recorder was killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<RecordingEnd>,
}

impl TraceInfo {
    /// Returns the facts of a trace of this version of which only the clock is known.
    pub fn new(clock: ClockInfo) -> TraceInfo {
        TraceInfo {
            schema: 1,
            layout: dioptra_tracelayout::VERSION,
            recorder: String::new(),
            command: Vec::new(),
            folder: String::new(),
            options: Vec::new(),
            pending: None,
            seed: None,
            started_realtime: 0,
            clock,
            host: Host::default(),
            ending: None,
        }
    }
}

/// Filters that readers apply, in the words of the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingRules {
    /// The style in which names are matched: `regex`, `glob` or `simple`.
    pub style: String,
    /// The rules, in the order in which they were given.
    pub rules: Vec<PendingRule>,
    /// True if nothing is shown before a rule switches tracing on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub off: bool,
}

/// An option of the recording with its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingRule {
    /// The option's letter: `-F`, `-N`, `-T`, `-C`, `-H`, `-D`, `-t`, `-Z` or `-L`.
    pub option: String,
    /// The option's text.
    pub text: String,
}

/// The clock of the records.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClockInfo {
    /// `tsc`, the time stamp counter, or `monotonic`, `CLOCK_MONOTONIC` in nanoseconds.
    pub source: String,
    /// The number of low bits of the clock's readings that records leave out.
    pub shift: u8,
    /// The first pair of readings.
    pub start: ClockPair,
}

impl ClockInfo {
    /// Returns the clock of records in nanoseconds of `CLOCK_MONOTONIC`, whose first reading was `start`.
    pub fn monotonic(start: u64) -> ClockInfo {
        ClockInfo {
            source: "monotonic".into(),
            shift: 0,
            start: ClockPair {
                ticks: start,
                monotonic: start,
            },
        }
    }
}

/// The machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// The machine's name.
    pub name: String,
    /// The kernel's release.
    pub kernel: String,
    /// The CPU's model.
    pub cpu: String,
    /// The number of CPUs that are online.
    pub cpus: u32,
    /// The number of CPUs that there may be; 0 if not known. Older traces have neither this field nor those that
    /// follow.
    #[serde(default)]
    pub possible_cpus: u32,
    /// The size of the memory in bytes.
    #[serde(default)]
    pub memory: u64,
    /// The size of the unused memory in bytes.
    #[serde(default)]
    pub free_memory: u64,
    /// The average number of processes that ran or waited for a CPU over 1, 5 and 15 minutes.
    #[serde(default)]
    pub load: [f64; 3],
    /// The system's name and version.
    #[serde(default)]
    pub distribution: String,
}

/// The resources that a command, and the children that it waited for, used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceUsage {
    /// CPU time in the program, in microseconds.
    pub user: u64,
    /// CPU time in the kernel, in microseconds.
    pub system: u64,
    /// The number of times that it gave its CPU away.
    pub voluntary_switches: u64,
    /// The number of times that its CPU was taken away.
    pub involuntary_switches: u64,
    /// The largest resident memory of one of these processes, in bytes.
    pub max_rss: u64,
    /// The number of page faults that needed a disk.
    pub major_faults: u64,
    /// The number of page faults that needed no disk.
    pub minor_faults: u64,
    /// The number of blocks of 512 bytes that were read from disks.
    pub blocks_in: u64,
    /// The number of blocks of 512 bytes that were written to disks.
    pub blocks_out: u64,
}

/// The end of a recording.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordingEnd {
    /// The last pair of readings.
    pub clock: ClockPair,
    /// The command's exit status, 128 plus the signal if it was killed; missing if it went on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<i32>,
    /// The signal that killed the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// The number of chunks that were written.
    pub chunks: u64,
    /// The size of `records` in bytes.
    pub bytes: u64,
    /// The number of records that were lost. Streams count them where they are missing.
    pub lost: u64,
    /// The number of calls in signal handlers that were not recorded because they interrupted the tracer itself.
    /// Unknown if the recorder's count had passed below 0: dioptra 0.1 counted so where tasks share their
    /// thread-local memory.
    #[serde(deserialize_with = "sane")]
    pub missed_in_handlers: Option<u64>,
    /// The number of calls that were not recorded because there was no memory for the shadow stack.
    pub missed_no_memory: u64,
    /// The number of chunks that were thrown away as too old in a recording of the latest time.
    pub discarded_chunks: u64,
    /// The number of times that a thread of the program waited until the tracer had memory again.
    #[serde(default)]
    pub waits: u64,
    /// The total time in nanoseconds of these waits.
    #[serde(default)]
    pub waited: u64,
    /// The memory in bytes that full chunks could take; 0 if not known.
    #[serde(default)]
    pub memory: u64,
    /// The number of context switches that were lost.
    #[serde(default)]
    pub lost_switches: u64,
    /// The number of threads whose sampled calls were not counted because too many threads counted at a time.
    #[serde(default)]
    pub uncounted_threads: u64,
    /// The number of executions that `sample=pNN` rejected and that are recorded all the same, marked: they could not
    /// be taken back.
    #[serde(default)]
    pub marked: u64,
    /// The resources that the command used, if it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<ResourceUsage>,
}

/// Reads a count that some recorders let pass below 0: a number that is far too large becomes `None`.
fn sane<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let count: Option<u64> = Option::deserialize(deserializer)?;
    Ok(count.filter(|count| i64::try_from(*count).is_ok()))
}
