//! What `info.json` says.

use crate::journal::ClockPair;
use serde::{Deserialize, Deserializer, Serialize};

/// What was traced, when and where. Unknown fields are passed over by readers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Info {
    /// The version of this object; 1.
    pub schema: u32,
    /// The version of chunks, records and tables: [`dioptra_tracelayout::VERSION`].
    pub layout: u16,
    /// The program that recorded, with its version.
    pub recorder: String,
    /// The command and its arguments; bytes that are no UTF-8 are replaced.
    pub command: Vec<String>,
    /// Where it was started.
    pub folder: String,
    /// The options that decided what was recorded, as they were given.
    pub options: Vec<String>,
    /// Filters that were asked for and that the records do not follow, or only in part: readers apply them, so that what
    /// they show is what was asked for. Of functions that the journal says were sampled ([`crate::SampledFunctions`])
    /// only chosen executions are recorded: they are not sampled again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<PendingRules>,
    /// Chooses the executions that are sampled at random; a recording with the same one chooses the same, as far as its
    /// threads begin in the same order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// The wall clock at the start, in nanoseconds since 1970.
    pub started_realtime: u64,
    /// The clock of the records.
    pub clock: Clock,
    /// The machine.
    pub host: Host,
    /// How it ended; missing while it is recorded, or if the recorder was killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<Ending>,
}

impl Info {
    /// Of a trace of this version whose clock is known and nothing else.
    pub fn new(clock: Clock) -> Info {
        Info {
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

/// Filters that readers apply; the words are those of the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingRules {
    /// How names are matched: `regex`, `glob` or `simple`.
    pub style: String,
    /// The rules, in the order in which they were given.
    pub rules: Vec<PendingRule>,
    /// Nothing is shown before a rule switches tracing on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub off: bool,
}

/// An option with its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingRule {
    /// Its letter: `-F`, `-N`, `-T`, `-C`, `-H`, `-D`, `-t`, `-Z` or `-L`.
    pub option: String,
    /// What it was given.
    pub text: String,
}

/// The clock of the records.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Clock {
    /// `tsc`, the time stamp counter, or `monotonic`, `CLOCK_MONOTONIC` in nanoseconds.
    pub source: String,
    /// How many bits of its readings records leave out.
    pub shift: u8,
    /// The first pair of readings.
    pub start: ClockPair,
}

impl Clock {
    /// Of records in nanoseconds of `CLOCK_MONOTONIC`, whose first reading was `start`.
    pub fn monotonic(start: u64) -> Clock {
        Clock {
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
    /// Its name.
    pub name: String,
    /// The kernel's release.
    pub kernel: String,
    /// The CPU's model.
    pub cpu: String,
    /// How many CPUs are online.
    pub cpus: u32,
    /// How many there may be; 0: not known, as in older traces all that follows.
    #[serde(default)]
    pub possible_cpus: u32,
    /// Its memory in bytes.
    #[serde(default)]
    pub memory: u64,
    /// How much of it nobody used.
    #[serde(default)]
    pub free_memory: u64,
    /// How many processes ran or waited to, on average of 1, 5 and 15 minutes.
    #[serde(default)]
    pub load: [f64; 3],
    /// The system's name and version.
    #[serde(default)]
    pub distribution: String,
}

/// What a command, and the children that it waited for, used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// CPU time in the program, in microseconds.
    pub user: u64,
    /// CPU time in the kernel, in microseconds.
    pub system: u64,
    /// How often it gave its CPU away.
    pub voluntary_switches: u64,
    /// How often its CPU was taken away.
    pub involuntary_switches: u64,
    /// The most memory that one of them had, in bytes.
    pub max_rss: u64,
    /// Page faults that needed a disk.
    pub major_faults: u64,
    /// Those that did not.
    pub minor_faults: u64,
    /// Blocks of 512 bytes that were read from disks.
    pub blocks_in: u64,
    /// Those that were written.
    pub blocks_out: u64,
}

/// How a recording ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ending {
    /// The last pair of readings.
    pub clock: ClockPair,
    /// The command's exit status, 128 plus the signal if it was killed; missing if it went on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<i32>,
    /// The signal that killed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// How many chunks were written.
    pub chunks: u64,
    /// Bytes of `records`.
    pub bytes: u64,
    /// How many records were lost; in streams they are counted where they are missing.
    pub lost: u64,
    /// Calls in signal handlers that were not recorded, since they interrupted the tracer itself. Not known if the
    /// recorder's count had passed below 0: dioptra 0.1 counted so where tasks share their thread-local memory.
    #[serde(deserialize_with = "sane")]
    pub missed_in_handlers: Option<u64>,
    /// Calls that were not recorded for want of memory for the shadow stack.
    pub missed_no_memory: u64,
    /// Chunks that `--last` threw away as too old.
    pub discarded_chunks: u64,
    /// The number of times that a thread of the program waited until the tracer had memory again.
    #[serde(default)]
    pub waits: u64,
    /// The time in nanoseconds for which threads waited so, together.
    #[serde(default)]
    pub waited: u64,
    /// The memory in bytes that full chunks could take; 0: not known.
    #[serde(default)]
    pub memory: u64,
    /// Context switches that were lost.
    #[serde(default)]
    pub lost_switches: u64,
    /// Threads whose sampled calls were not counted, since too many threads counted at a time.
    #[serde(default)]
    pub uncounted_threads: u64,
    /// Executions that were judged not to be shown (`sample=pNN`), and are recorded all the same, marked: they could not be
    /// taken back.
    #[serde(default)]
    pub marked: u64,
    /// What the command used, if it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

/// Reads a count that some recorders let pass below 0: a number that is far too large is none.
fn sane<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let count: Option<u64> = Option::deserialize(deserializer)?;
    Ok(count.filter(|count| i64::try_from(*count).is_ok()))
}
