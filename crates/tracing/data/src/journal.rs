//! The lines of `journal.jsonl`.

use crate::RecordedValues;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Readings of both clocks at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockPair {
    /// The reading of the records' clock, unshifted.
    pub ticks: u64,
    /// `CLOCK_MONOTONIC` in nanoseconds.
    pub monotonic: u64,
}

/// A line of the journal: an object with one field, whose name is the kind of the line. Lines are in the order in
/// which the recorder learned of the facts; `time` is `CLOCK_MONOTONIC` in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum JournalEntry {
    /// Readings of both clocks.
    Clock(ClockPair),
    /// A process image that is traced.
    Process {
        /// The time at which the recorder learned of it.
        time: u64,
        /// The process id.
        pid: u32,
        /// The parent's process id.
        parent: u32,
        /// The cause of the image.
        cause: ProcessCause,
        /// The executable's path.
        executable: String,
        /// The arguments.
        arguments: Vec<String>,
    },
    /// A module of which functions are traced.
    Module(TracedModule),
    /// A module mapped into a process.
    Mapping(ModuleMapping),
    /// A module is not mapped any more.
    Unmapping {
        /// The time at which the recorder noticed it.
        time: u64,
        /// The process id.
        pid: u32,
        /// The first address that the module had.
        start: u64,
    },
    /// A thread's stream began; written with the stream's first chunk.
    Thread {
        /// The number of the stream.
        stream: u32,
        /// The process id.
        pid: u32,
        /// The thread id.
        tid: u32,
        /// The thread's name at that time; empty if the thread was gone already.
        name: String,
        /// The stream that it continues, after a fork; else 0.
        parent: u32,
    },
    /// A thread began, ended or got a name, as the kernel reports it.
    Task {
        /// The time.
        time: u64,
        /// The process id.
        pid: u32,
        /// The thread id.
        tid: u32,
        /// The change.
        change: TaskChange,
    },
    /// Functions of whose calls values are recorded.
    Values(RecordedValues),
    /// Functions of which only chosen executions are recorded.
    Sampled(SampledFunctions),
    /// The counts of sampled functions in a stream; written when the recording ends.
    Counted {
        /// The number of the stream.
        stream: u32,
        /// The counts by function.
        functions: Vec<FunctionCounts>,
    },
    /// Names of functions that the trace's source states, as in the module's symbol table. They are preferred to
    /// those of the module's file.
    Named {
        /// The id of the function that has the first name; the others follow.
        first: u32,
        /// The names.
        names: Vec<String>,
    },
    /// The command ended.
    End {
        /// The time.
        time: u64,
        /// The process id.
        pid: u32,
        /// The exit status, 128 plus the signal if the command was killed.
        status: i32,
    },
    /// A note for whoever reads the trace, written once.
    Note {
        /// The time.
        time: u64,
        /// The note, a sentence.
        text: String,
        /// True if calls are missing from the trace for this reason: all readers report it.
        #[serde(default, skip_serializing_if = "is_false")]
        is_loss: bool,
    },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields so")]
fn is_false(value: &bool) -> bool {
    !value
}

/// A change of a thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskChange {
    /// The thread was made.
    New,
    /// The thread ended.
    Exit,
    /// The thread got this name; bytes that are no UTF-8 are replaced.
    Name(String),
}

/// Functions of which only chosen executions are recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampledFunctions {
    /// The way in which they are chosen, as it is written behind `sample=`.
    pub how: String,
    /// True if executions come and go together with the calls below them; false if they do so alone.
    pub tree: bool,
    /// The functions' ids.
    pub functions: Vec<u32>,
}

/// Executions of a sampled function in one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionCounts {
    /// The function's id.
    pub function: u32,
    /// The number of executions that would have been recorded without sampling.
    pub seen: u64,
    /// The number of executions that were chosen.
    pub shown: u64,
}

/// The cause of a process image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessCause {
    /// A program was executed, by the recorder or by a process.
    Exec,
    /// A traced process forked.
    Fork,
}

/// A module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TracedModule {
    /// The module's number, as in [`dioptra_tracelayout::FunctionEntry::module`].
    pub module: u32,
    /// The module's path, as the process saw it.
    pub path: String,
    /// The build id in hexadecimal digits; empty if the module has none.
    pub build_id: String,
    /// The first id of the module's block in the table of functions.
    pub first: u32,
    /// The number of ids in the block.
    pub count: u32,
    /// The number of functions by the way in which their calls are found: `patchable`, `fentry`, `mcount`, `plain`,
    /// `cygprof`, `xray`, `plt`.
    pub methods: BTreeMap<String, u32>,
    /// Functions that can't be traced, by reason.
    pub refused: Vec<RefusedFunctions>,
}

/// Functions that can't be traced for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedFunctions {
    /// The reason.
    pub reason: String,
    /// The number of functions.
    pub count: u32,
    /// File offsets of some of them.
    pub examples: Vec<u64>,
}

/// A module mapped into a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleMapping {
    /// The time at which the recorder learned of it.
    pub time: u64,
    /// The process id.
    pub pid: u32,
    /// The module's number; `None` if no function of the module is traced.
    pub module: Option<u32>,
    /// The module's path.
    pub path: String,
    /// The first address.
    pub start: u64,
    /// The first address behind it.
    pub end: u64,
    /// The file offset of the first address.
    pub offset: u64,
}
