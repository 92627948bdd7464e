//! Parameters of requests. They are read from the query by `crate::parameters`.

use super::changes::ChangesRequest;
use serde::Serialize;
use ts_rs::TS;

/// Parameters of `/api/status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, TS)]
#[ts(optional_fields)]
pub struct StatusRequest {
    /// The answer comes when the revision differs from this one.
    pub wait: Option<u64>,
}

/// Parameters of `/api/profile`.
#[derive(Clone, Debug, Default, PartialEq, Eq, TS)]
#[ts(optional_fields)]
pub struct ProfileRequest {
    /// The profile's index; the first one unless given.
    pub profile: Option<usize>,
}

/// The parameters that choose samples, the same for all tables and pictures. Conditions of different parameters must all
/// hold; of the values of one parameter any.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, TS)]
#[ts(optional_fields)]
pub struct SelectionRequest {
    /// The profile's index; the first one unless given.
    pub profile: Option<usize>,
    /// The generation that the request is about.
    pub generation: Option<u64>,
    /// `A..B`: nanoseconds since the first sample, either may be empty; from A on, up to before B.
    #[ts(type = "string", optional)]
    pub time: Option<(Option<u64>, Option<u64>)>,
    /// Keys of processes.
    #[ts(as = "Option<Vec<String>>", optional)]
    pub process: Vec<String>,
    /// Keys of threads.
    #[ts(as = "Option<Vec<String>>", optional)]
    pub thread: Vec<String>,
    /// Keys of programs.
    #[ts(as = "Option<Vec<String>>", optional)]
    pub program: Vec<String>,
    /// Names of threads when they were sampled.
    #[ts(as = "Option<Vec<String>>", optional)]
    pub comm: Vec<String>,
    /// CPUs, such as `0,2-5`.
    #[ts(as = "Option<Vec<String>>", optional)]
    pub cpu: Vec<String>,
    /// Keys of modules in which samples were taken.
    #[ts(as = "Option<Vec<String>>", optional)]
    pub module: Vec<String>,
    /// Keys of functions in which samples were taken.
    #[ts(as = "Option<Vec<String>>", optional)]
    pub function: Vec<String>,
    /// Keys of functions that are on the call stacks of samples.
    #[ts(as = "Option<Vec<String>>", optional)]
    pub through: Vec<String>,
    /// Keys of the events that are shown, in this order.
    #[ts(as = "Option<Vec<String>>", optional)]
    pub event: Vec<String>,
    /// `1`: functions that the compiler inlined are functions of their own.
    #[ts(type = "0 | 1", optional)]
    pub inlined: bool,
}

/// Parameters of `/api/table` and, with a format, of `/api/export`.
#[derive(Clone, Debug, Default, PartialEq, Eq, TS)]
#[ts(optional_fields)]
pub struct TableRequest {
    /// The samples that count.
    #[ts(flatten)]
    pub selection: SelectionRequest,
    /// The levels of rows, divided by commas: program, process, thread, comm, cpu, socket, module, function, block, line,
    /// instruction, time.
    pub by: Option<String>,
    /// `1`: totals too.
    #[ts(type = "0 | 1", optional)]
    pub children: bool,
    /// The whole of percentages.
    pub percent: Option<Percent>,
    /// `1`: standard errors too.
    #[ts(type = "0 | 1", optional)]
    pub errors: bool,
    /// Shares that rest on fewer samples are marked.
    pub few: Option<u64>,
    /// The number of slices of time.
    pub slices: Option<u32>,
    /// `COLUMN`, `COLUMN:asc` or `COLUMN:desc`.
    pub sort: Option<String>,
    /// The text that a row's name must contain.
    pub filter: Option<String>,
    /// `1`: the filter is a regular expression.
    #[ts(type = "0 | 1", optional)]
    pub regex: bool,
    /// Only the rows directly below this one.
    pub below: Option<u32>,
    /// The number of levels that are shown.
    pub levels: Option<u32>,
    /// The place of the first row.
    pub from: Option<usize>,
    /// The number of rows at most.
    pub count: Option<usize>,
    /// The kind of table.
    pub of: Option<TableOf>,
    /// Derived columns: names of metrics, of sets, or `SET:METRIC`.
    #[ts(as = "Option<Vec<String>>", optional)]
    pub metric: Vec<String>,
    /// The index of a profile that is compared: with `of=diff` its changes are shown, with `of=report` its counts beside
    /// these.
    pub with: Option<usize>,
    /// With `of=diff`: the quantity by which weights are divided: `none`, `time`, or an event's key.
    pub normalize: Option<String>,
    /// With `of=metrics`: `1` gives functions of the kernel rows of their own.
    #[ts(type = "0 | 1", optional)]
    pub kernel_apart: bool,
}

/// The kind of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, TS)]
#[serde(rename_all = "lowercase")]
pub enum TableOf {
    /// The profile's samples, as `dioptra report` shows them.
    #[default]
    Report,
    /// The changes to another profile, as `dioptra diff` shows them.
    Diff,
    /// Metrics with their intervals, as `dioptra metrics` shows them.
    Metrics,
}

/// The whole of a percentage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, TS)]
#[serde(rename_all = "lowercase")]
pub enum Percent {
    /// The event's sum over the selected samples.
    #[default]
    Column,
    /// The event's sum over the whole recording.
    Total,
    /// The first event's sum in the same row.
    Row,
    /// The event's sum in the row above.
    Parent,
}

/// Parameters of `/api/search`.
#[derive(Clone, Debug, Default, PartialEq, Eq, TS)]
#[ts(optional_fields)]
pub struct SearchRequest {
    /// The samples that count.
    #[ts(flatten)]
    pub selection: SelectionRequest,
    /// The text that a name must contain.
    #[ts(as = "String")]
    pub text: String,
    /// `1`: the text is a regular expression.
    #[ts(type = "0 | 1", optional)]
    pub regex: bool,
    /// The number of hits of each kind at most.
    pub count: Option<usize>,
}

/// Parameters of `/api/flame`.
#[derive(Clone, Debug, Default, PartialEq, Eq, TS)]
#[ts(optional_fields)]
pub struct FlameRequest {
    /// The samples that count.
    #[ts(flatten)]
    pub selection: SelectionRequest,
    /// The functions that stand below a function.
    pub direction: Option<Direction>,
    /// The changes of call stacks before the tree is made.
    #[ts(flatten)]
    pub changes: ChangesRequest,
    /// The number of a node: only what is below it.
    pub root: Option<u32>,
    /// The same by the keys of functions: the node's and those above it, the top one first. A path that leads nowhere is
    /// followed as far as it goes.
    #[ts(as = "Option<Vec<String>>", optional)]
    pub path: Vec<String>,
    /// The key of the function with which trees begin.
    pub focus: Option<String>,
    /// Derived columns whose values nodes have: names of metrics, of sets, or `SET:METRIC`.
    #[ts(as = "Option<Vec<String>>", optional)]
    pub metric: Vec<String>,
    /// The index of a profile with which nodes are compared.
    pub with: Option<usize>,
    /// Nodes with less than this many ten-thousandths of the root's weight are left out.
    pub least: Option<u32>,
    /// The number of levels below the root.
    pub levels: Option<u32>,
    /// The number of nodes at most.
    pub count: Option<usize>,
}

/// The functions that stand below a function in a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, TS)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Functions that the function called.
    #[default]
    Callees,
    /// Its callers.
    Callers,
}

/// Parameters of `/api/function`. The selection's `function` is the one to show.
#[derive(Clone, Debug, Default, PartialEq, Eq, TS)]
#[ts(optional_fields)]
pub struct FunctionRequest {
    /// The samples that count, and the function.
    #[ts(flatten)]
    pub selection: SelectionRequest,
    /// The syntax of x86 instructions.
    pub syntax: Option<Syntax>,
    /// The index of a profile with which lines and instructions are compared.
    pub with: Option<usize>,
}

/// The syntax of x86 instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, TS)]
#[serde(rename_all = "lowercase")]
pub enum Syntax {
    /// As objdump writes them: source first.
    #[default]
    Att,
    /// As their makers do: destination first.
    Intel,
}

/// Parameters of `/api/source`.
#[derive(Clone, Debug, Default, PartialEq, Eq, TS)]
#[ts(optional_fields)]
pub struct SourceRequest {
    /// The profile's index; the first one unless given.
    pub profile: Option<usize>,
    /// The id of a file that an answer of `/api/function` named.
    #[ts(as = "String")]
    pub file: String,
    /// The first line, from 1.
    pub from: Option<usize>,
    /// The number of lines at most.
    pub count: Option<usize>,
}

/// Parameters of `/api/timeline`.
#[derive(Clone, Debug, Default, PartialEq, Eq, TS)]
#[ts(optional_fields)]
pub struct TimelineRequest {
    /// The samples that count.
    #[ts(flatten)]
    pub selection: SelectionRequest,
    /// The kind of the rows.
    pub rows: Option<TimelineRows>,
    /// The number of bins.
    pub bins: Option<u32>,
    /// `A..B`: what the bins cover, in nanoseconds since the first sample; either may be empty.
    #[ts(type = "string", optional)]
    pub span: Option<(Option<u64>, Option<u64>)>,
    /// The kind of the values.
    pub value: Option<TimelineValue>,
    /// The place of the first row.
    pub from: Option<usize>,
    /// The number of rows at most.
    pub count: Option<usize>,
    /// The index of a profile whose rows are given, too.
    pub with: Option<usize>,
}

/// The kind of a timeline's rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, TS)]
#[serde(rename_all = "lowercase")]
pub enum TimelineRows {
    /// A thread.
    #[default]
    Thread,
    /// A process.
    Process,
    /// A CPU.
    Cpu,
    /// Everything.
    All,
}

/// The kind of a timeline's values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, TS)]
#[serde(rename_all = "lowercase")]
pub enum TimelineValue {
    /// A number of samples.
    #[default]
    Samples,
    /// The sum of their periods.
    Weight,
}
