//! Traces: requests and answers about calls.

use super::flame::{FlameFunction, FlameModule};
use super::profile::MachineInfo;
use super::{FactAnswer, RowKeys};
use serde::Serialize;
use ts_rs::TS;

/// The parameters that choose calls. Conditions of different parameters must all hold; of the values of one parameter any.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, TS)]
#[ts(optional_fields)]
pub struct CallSelection {
    /// The trace's index in the status; the first trace unless given.
    pub profile: Option<usize>,
    /// The generation that the request is about.
    pub generation: Option<u64>,
    /// `A..B`: nanoseconds since the trace's first record, either may be empty; from A on, up to before B.
    #[ts(type = "string", optional)]
    pub time: Option<(Option<u64>, Option<u64>)>,
    /// Keys of processes.
    #[ts(as = "Option<Vec<String>>", optional)]
    pub process: Vec<String>,
    /// Keys of threads.
    #[ts(as = "Option<Vec<String>>", optional)]
    pub thread: Vec<String>,
}

/// Parameters of `/api/trace`.
#[derive(Clone, Debug, Default, PartialEq, Eq, TS)]
#[ts(optional_fields)]
pub struct TraceRequest {
    /// The trace's index in the status; the first trace unless given.
    pub profile: Option<usize>,
}

/// Parameters of `/api/trace/table` and, with a format, of `/api/trace/export`.
#[derive(Clone, Debug, Default, PartialEq, Eq, TS)]
#[ts(optional_fields)]
pub struct CallTableRequest {
    /// The calls that count.
    #[ts(flatten)]
    pub selection: CallSelection,
    /// The kind of the rows.
    pub by: Option<CallRows>,
    /// `COLUMN`, `COLUMN:asc` or `COLUMN:desc`.
    pub sort: Option<String>,
    /// The text that a row's name must contain.
    pub filter: Option<String>,
    /// `1`: the filter is a regular expression.
    #[ts(type = "0 | 1", optional)]
    pub regex: bool,
    /// The place of the first row.
    pub from: Option<usize>,
    /// The number of rows at most.
    pub count: Option<usize>,
}

/// The kind of a table's rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, TS)]
#[serde(rename_all = "lowercase")]
pub enum CallRows {
    /// A function.
    #[default]
    Function,
    /// A thread.
    Thread,
}

/// Parameters of `/api/trace/graph`.
#[derive(Clone, Debug, Default, PartialEq, Eq, TS)]
#[ts(optional_fields)]
pub struct CallGraphRequest {
    /// The calls that count.
    #[ts(flatten)]
    pub selection: CallSelection,
    /// The weight of a node.
    pub weight: Option<CallWeight>,
    /// The number of a node: only what is below it.
    pub root: Option<u32>,
    /// The key of the function with which paths begin.
    pub focus: Option<String>,
    /// Nodes with less than this many ten-thousandths of the root's weight are left out.
    pub least: Option<u32>,
    /// The number of levels below the root.
    pub levels: Option<u32>,
    /// The number of nodes at most.
    pub count: Option<usize>,
}

/// The weight of a node of the call graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, TS)]
#[serde(rename_all = "lowercase")]
pub enum CallWeight {
    /// The time within the calls.
    #[default]
    Time,
    /// The number of calls, those below included.
    Calls,
}

/// Parameters of `/api/trace/timeline`.
#[derive(Clone, Debug, Default, PartialEq, Eq, TS)]
#[ts(optional_fields)]
pub struct CallTimelineRequest {
    /// The calls that are drawn.
    #[ts(flatten)]
    pub selection: CallSelection,
    /// `A..B`: the time that is drawn; either may be empty. It takes the place of the selection's time.
    #[ts(type = "string", optional)]
    pub span: Option<(Option<u64>, Option<u64>)>,
    /// The width of the picture in pixels.
    pub pixels: Option<u32>,
    /// The number of levels that are drawn.
    pub depth: Option<u32>,
    /// The place of the first lane.
    pub from: Option<usize>,
    /// The number of lanes at most.
    pub count: Option<usize>,
}

/// Parameters of `/api/trace/replay`.
#[derive(Clone, Debug, Default, PartialEq, Eq, TS)]
#[ts(optional_fields)]
pub struct ReplayRequest {
    /// The calls that are shown.
    #[ts(flatten)]
    pub selection: CallSelection,
    /// The place of the first row.
    pub from: Option<u64>,
    /// The number of rows at most.
    pub count: Option<usize>,
    /// A time: the answer says which row is the first that is not before it.
    pub at: Option<u64>,
    /// Answer before all rows are counted, if they are not yet; goes without `at`.
    pub preview: bool,
}

/// Parameters of `/api/trace/find`.
#[derive(Clone, Debug, Default, PartialEq, Eq, TS)]
#[ts(optional_fields)]
pub struct ReplayFindRequest {
    /// The calls that are searched.
    #[ts(flatten)]
    pub selection: CallSelection,
    /// The text that the function's name must contain.
    #[ts(as = "String")]
    pub text: String,
    /// `1`: the text is a regular expression.
    #[ts(type = "0 | 1", optional)]
    pub regex: bool,
    /// The first row that may be found.
    pub from: Option<u64>,
}

/// Parameters of `/api/trace/slowest`.
#[derive(Clone, Debug, Default, PartialEq, Eq, TS)]
#[ts(optional_fields)]
pub struct SlowestRequest {
    /// The calls that count.
    #[ts(flatten)]
    pub selection: CallSelection,
    /// The function's key.
    #[ts(as = "String")]
    pub function: String,
    /// The number of calls at most.
    pub count: Option<usize>,
}

/// The answer of `/api/trace`: what a trace holds.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct TraceAnswer {
    /// The trace's index.
    pub profile: usize,
    /// The generation that answers.
    pub generation: u64,
    /// The directory's name.
    pub label: String,
    /// The directory as it was given.
    pub path: String,
    /// The size of the records.
    pub size_bytes: u64,
    /// The machine that was recorded.
    pub machine: MachineInfo,
    /// The traced command, a word each.
    pub command_line: Vec<String>,
    /// The recording's options, a word each.
    pub options: Vec<String>,
    /// The recorder's version.
    pub recorder: String,
    /// Nanoseconds from the first record to the last one.
    pub duration_ns: u64,
    /// The clock's nanoseconds (`CLOCK_MONOTONIC`) at the first record.
    pub first_time_ns: u64,
    /// The clock of the records: `tsc` or `monotonic`.
    pub clock: String,
    /// Whether the length of the clock's ticks is unknown: all times are in ticks then.
    pub ticks: bool,
    /// The end of the command, as far as it is known.
    pub ending: String,
    /// Rules of the recording that are applied now: option and text.
    pub rules: Vec<String>,
    /// The number of functions whose calls could be recorded.
    pub functions: u64,
    /// The number of context switches.
    pub switches: u64,
    /// The processes, in the order in which they began.
    pub processes: Vec<TraceProcess>,
    /// The threads.
    pub threads: Vec<TraceThread>,
    /// The modules, and how their functions are traced.
    pub modules: Vec<TraceModule>,
    /// Functions of which only chosen executions were recorded.
    pub sampled: u64,
    /// The recorder's notes.
    pub notes: Vec<String>,
    /// Losses, fallbacks and limits.
    pub facts: Vec<FactAnswer>,
}

/// A traced process image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, TS)]
pub struct TraceProcess {
    /// The key by which requests name it.
    pub key: String,
    /// Its number.
    pub pid: u32,
    /// Its parent's number.
    pub parent: u32,
    /// `exec` or `fork`.
    pub cause: String,
    /// Its executable.
    pub executable: String,
    /// Nanoseconds since the first record; 0 if it began before.
    pub begin_ns: u64,
}

/// A traced thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, TS)]
pub struct TraceThread {
    /// The values of selection parameters that select it.
    pub key: RowKeys,
    /// Its name.
    pub name: String,
    /// Its number.
    pub tid: u32,
    /// Its process's number.
    pub pid: u32,
    /// The bytes of its records.
    pub bytes: u64,
    /// The number of records that are known to be missing.
    pub lost: u64,
}

/// A traced module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, TS)]
pub struct TraceModule {
    /// Its path.
    pub path: String,
    /// Its build id in hexadecimal digits; empty if it has none.
    pub build_id: String,
    /// The number of its functions whose calls could be recorded.
    pub functions: u32,
    /// The ways in which calls are found, with the number of functions of each.
    pub methods: Vec<TraceCount>,
    /// The reasons why functions could not be traced, with the number of functions of each.
    pub refused: Vec<TraceCount>,
}

/// A number of functions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, TS)]
pub struct TraceCount {
    /// The kind.
    pub name: String,
    /// The number of functions.
    pub count: u32,
}

/// The answer of `/api/trace/timeline`.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct CallTimelineAnswer {
    /// The trace's index.
    pub profile: usize,
    /// The generation that answers.
    pub generation: u64,
    /// Where the picture begins.
    pub start_ns: u64,
    /// Where it ends.
    pub end_ns: u64,
    /// The time that a pixel covers.
    pub pixel_ns: f64,
    /// The functions of the bars.
    pub functions: Vec<FlameFunction>,
    /// Their modules.
    pub modules: Vec<FlameModule>,
    /// The lanes of the range, in the order in which the threads began.
    pub lanes: Vec<CallLane>,
    /// The number of all lanes.
    pub total_lanes: usize,
    /// Losses, fallbacks and limits.
    pub facts: Vec<FactAnswer>,
}

/// A thread's calls.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct CallLane {
    /// The values of selection parameters that select the thread.
    pub key: RowKeys,
    /// The thread's name.
    pub name: String,
    /// Its number.
    pub tid: u32,
    /// Its process's number.
    pub pid: u32,
    /// The number of calls that ended in the picture's time.
    pub calls: u64,
    /// The number of levels of calls.
    pub levels: u32,
    /// The number of bars that were left out because there are too many.
    pub left_out: u64,
    /// The bars.
    pub bars: CallBars,
}

/// Bars as parallel lists; those of a level in the order of time. A bar is one call, or several calls of one level that follow
/// each other within a pixel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, TS)]
pub struct CallBars {
    /// The number of calls around the bar.
    pub depth: Vec<u32>,
    /// Where it begins; it may be before the picture.
    pub start: Vec<u64>,
    /// Where it ends.
    pub end: Vec<u64>,
    /// The function, of several calls that of the longest one, as an index.
    pub function: Vec<u32>,
    /// The number of calls.
    pub count: Vec<u32>,
    /// 1: the call goes on behind the end. 2: its beginning is not known. 4: it was left and goes on, or went on, elsewhere
    /// (coroutines). The sum of these.
    pub state: Vec<u8>,
}

/// The answer of `/api/trace/replay`: a range of rows.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct ReplayAnswer {
    /// The trace's index.
    pub profile: usize,
    /// The generation that answers.
    pub generation: u64,
    /// The rows.
    pub rows: Vec<ReplayRow>,
    /// The place of the first of these rows.
    pub from: u64,
    /// The number of all rows; the number of rows up to the last one of this answer while `counted` is false.
    pub total_rows: u64,
    /// Whether all rows are counted. If not, losses are not known yet either.
    pub counted: bool,
    /// With `at`: the place of the first row that is not before that time.
    pub at_row: Option<u64>,
    /// The functions of the rows.
    pub functions: Vec<FlameFunction>,
    /// Their modules.
    pub modules: Vec<FlameModule>,
    /// The threads of the rows.
    pub threads: Vec<TraceThread>,
    /// Losses, fallbacks and limits.
    pub facts: Vec<FactAnswer>,
}

/// A row of a replay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, TS)]
pub struct ReplayRow {
    /// The kind.
    pub kind: ReplayKind,
    /// The thread, as an index.
    pub thread: u32,
    /// The number of calls around it.
    pub depth: u32,
    /// The function, as an index; none where records are missing.
    pub function: Option<u32>,
    /// The time of the row.
    pub time_ns: u64,
    /// For the end of a call: when the call began, if it is known.
    pub begin_ns: Option<u64>,
    /// For the end of a call: the call's duration, if it is known.
    pub duration_ns: Option<u64>,
    /// A note about the row: the end of a call, a thread's new name, the number of missing records.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub note: Option<String>,
}

/// The kind of a row of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, TS)]
#[serde(rename_all = "lowercase")]
pub enum ReplayKind {
    /// A call without recorded calls below it.
    Call,
    /// A call begins.
    Enter,
    /// A call ends.
    Leave,
    /// Something happened to the thread.
    Event,
    /// Records are missing.
    Lost,
}

/// The answer of `/api/trace/find`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, TS)]
pub struct ReplayFindAnswer {
    /// The place of the first row of a function with such a name; none if there is no further one.
    pub row: Option<u64>,
}

/// The answer of `/api/trace/slowest`.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct SlowestAnswer {
    /// The trace's index.
    pub profile: usize,
    /// The generation that answers.
    pub generation: u64,
    /// The function.
    pub function: FlameFunction,
    /// The slowest calls, the slowest first.
    pub calls: Vec<SlowCall>,
    /// The number of all calls of the function.
    pub total_calls: u64,
}

/// One call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, TS)]
pub struct SlowCall {
    /// The values of selection parameters that select its thread.
    pub key: RowKeys,
    /// The thread's name.
    pub name: String,
    /// The thread's number.
    pub tid: u32,
    /// When it began.
    pub begin_ns: u64,
    /// Its duration in nanoseconds.
    pub duration_ns: u64,
    /// The part of it outside of recorded calls below it.
    pub self_ns: u64,
    /// The number of calls around it.
    pub depth: u32,
    /// Whether it had ended.
    pub ended: bool,
}
