//! What a line of `journal.jsonl` says.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Readings of both clocks at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockPair {
    /// Of the records' clock, unshifted.
    pub ticks: u64,
    /// `CLOCK_MONOTONIC` in nanoseconds.
    pub monotonic: u64,
}

/// A line: an object with one field, whose name says what it is about. Lines are in the order in which the recorder came
/// to know; `time` is `CLOCK_MONOTONIC` in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum JournalEntry {
    /// Readings of both clocks.
    Clock(ClockPair),
    /// A process image that is traced.
    Process {
        /// When the recorder came to know of it.
        time: u64,
        /// Its id.
        pid: u32,
        /// Its parent's.
        parent: u32,
        /// How it began.
        cause: ProcessCause,
        /// The executable's path.
        executable: String,
        /// Its arguments.
        arguments: Vec<String>,
    },
    /// A module of which functions are traced.
    Module(Module),
    /// A module mapped into a process.
    Mapping(Mapping),
    /// A module is not mapped any more.
    Unmapping {
        /// When that was noticed.
        time: u64,
        /// The process.
        pid: u32,
        /// Where it was.
        start: u64,
    },
    /// A thread's stream began; written when its first chunk is.
    Thread {
        /// The stream.
        stream: u32,
        /// The process.
        pid: u32,
        /// The thread.
        tid: u32,
        /// Its name then; empty if it was gone already.
        name: String,
        /// The stream that it continues, after a fork; else 0.
        parent: u32,
    },
    /// A thread began, ended or got a name, as the kernel tells it.
    Task {
        /// When.
        time: u64,
        /// The process.
        pid: u32,
        /// The thread.
        tid: u32,
        /// What became of it.
        change: TaskChange,
    },
    /// Functions of which only chosen executions are recorded.
    Sampled(SampledFunctions),
    /// What was counted of sampled functions in a stream; written when the recording ends.
    Counted {
        /// The stream.
        stream: u32,
        /// By function.
        functions: Vec<FunctionCounts>,
    },
    /// The command ended.
    End {
        /// When.
        time: u64,
        /// The process.
        pid: u32,
        /// Its status, 128 plus the signal if it was killed.
        status: i32,
    },
    /// Something that whoever reads the trace should know, told once.
    Note {
        /// When.
        time: u64,
        /// A sentence.
        text: String,
        /// Whether calls are missing from the trace for it: all readers say so.
        #[serde(default, skip_serializing_if = "is_false")]
        is_loss: bool,
    },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields so")]
fn is_false(value: &bool) -> bool {
    !value
}

/// What became of a thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskChange {
    /// It was made.
    New,
    /// It ended.
    Exit,
    /// It got this name; bytes that are no UTF-8 are replaced.
    Name(String),
}

/// Functions of which only chosen executions are recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampledFunctions {
    /// How they are chosen, as it is written behind `sample=`.
    pub how: String,
    /// They come and go with what they call; else alone.
    pub tree: bool,
    /// Their ids.
    pub functions: Vec<u32>,
}

/// Executions of a sampled function in one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionCounts {
    /// Its id.
    pub function: u32,
    /// How many there were that would have been recorded without sampling.
    pub seen: u64,
    /// How many of them were chosen.
    pub shown: u64,
}

/// How a process image began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessCause {
    /// The recorder, or a process, executed a program.
    Exec,
    /// A traced process forked.
    Fork,
}

/// A module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Module {
    /// Its number: what [`dioptra_tracelayout::FunctionEntry::module`] says.
    pub module: u32,
    /// Its path, as the process saw it.
    pub path: String,
    /// Its build id in hexadecimal digits; empty if it has none.
    pub build_id: String,
    /// The first id of its block in the table of functions.
    pub first: u32,
    /// How many ids the block has.
    pub count: u32,
    /// How many functions are found how: `patchable`, `fentry`, `mcount`, `plain`, `cygprof`, `xray`, `plt`.
    pub methods: BTreeMap<String, u32>,
    /// Functions that can't be traced, by reason.
    pub refused: Vec<Refusal>,
}

/// Functions that can't be traced for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Why.
    pub reason: String,
    /// How many.
    pub count: u32,
    /// File offsets of some of them.
    pub examples: Vec<u64>,
}

/// A module mapped into a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapping {
    /// When the recorder came to know of it.
    pub time: u64,
    /// The process.
    pub pid: u32,
    /// The module's number, or none if nothing of it is traced.
    pub module: Option<u32>,
    /// Its path.
    pub path: String,
    /// The first address.
    pub start: u64,
    /// The first address behind it.
    pub end: u64,
    /// The file offset of the first address.
    pub offset: u64,
}
