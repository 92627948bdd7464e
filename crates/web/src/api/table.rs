//! Tables and searches.

use serde::Serialize;
use std::collections::BTreeMap;
use ts_rs::TS;

/// The answer of `/api/table`: a range of rows of a table of `dioptra report`.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct TableAnswer {
    /// The version of the table's shape.
    pub schema: u32,
    /// The profile's index.
    pub profile: usize,
    /// The generation that answers.
    pub generation: u64,
    /// The columns.
    pub columns: Vec<TableColumn>,
    /// The rows of the range.
    pub rows: Vec<TableRow>,
    /// The place of the first of these rows among all that pass the filter.
    pub from: usize,
    /// The number of rows without the filter.
    pub total_rows: usize,
    /// The number of rows that pass it.
    pub matching_rows: usize,
    /// By column: the sum of the top rows that pass the filter; null where a sum means nothing.
    pub totals: Vec<CellValue>,
    /// The column by which the rows were sorted as the request asked; null for the table's own order.
    pub sorted_by: Option<SortedBy>,
    /// Losses, fallbacks and limits.
    pub facts: Vec<FactAnswer>,
}

/// A column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, TS)]
pub struct TableColumn {
    /// Short, stable and unique in the table.
    pub id: String,
    /// The heading.
    pub name: String,
    /// `events`, `samples`, `percent`, `per_thousand`, `ns`, `bytes`, any other unit's symbol, or null.
    pub unit: Option<String>,
    /// `count`, `weight`, `ratio`, `time`, `address` or `name`.
    pub kind: String,
    /// The event that the column is about.
    pub event: Option<String>,
    /// The id of the column that this one breaks down.
    pub parent: Option<String>,
    /// Whether only programs read it.
    pub for_programs: bool,
}

/// A row.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct TableRow {
    /// A number that is unique in the table.
    pub id: u32,
    /// The row above.
    pub parent: Option<u32>,
    /// The number of rows above it.
    pub depth: u32,
    /// The number of rows directly below it.
    pub below: u32,
    /// The values of selection parameters that select the row.
    pub key: RowKeys,
    /// A value for each column.
    pub cells: Vec<CellValue>,
    /// By column: one standard error of the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub standard_errors: Option<BTreeMap<String, f64>>,
    /// By column: what to think of the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub notes: Option<BTreeMap<String, String>>,
    /// Whether a name was so long that its middle was left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub cut: Option<bool>,
}

/// A value of a cell.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
#[serde(untagged)]
pub enum CellValue {
    /// A sum.
    Count(u64),
    /// A difference of two sums.
    Difference(i64),
    /// Any other number.
    Real(f64),
    /// A name or an address.
    Text(String),
    /// No value.
    Empty(()),
}

/// Values of selection parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, TS)]
pub struct RowKeys {
    /// A program.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub program: Option<String>,
    /// A process.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub process: Option<String>,
    /// A thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub thread: Option<String>,
    /// A name of threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub comm: Option<String>,
    /// A CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub cpu: Option<String>,
    /// A module.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub module: Option<String>,
    /// A function.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub function: Option<String>,
    /// A range of time, in nanoseconds since the first sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub time: Option<(u64, u64)>,
}

/// The order of rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, TS)]
pub struct SortedBy {
    /// The column's id.
    pub column: String,
    /// `asc` or `desc`.
    pub direction: String,
}

/// A loss, fallback, guess or limit.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct FactAnswer {
    /// A short name, unique in its list.
    pub id: String,
    /// `info`, `fallback`, `warning` or `loss`.
    pub severity: String,
    /// The fact as a sentence, with its remedy.
    pub text: String,
    /// The fact as a number, text or object.
    #[ts(type = "unknown")]
    pub value: serde_json::Value,
}

/// The answer of `/api/search`.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct SearchAnswer {
    /// The profile's index.
    pub profile: usize,
    /// The generation that answers.
    pub generation: u64,
    /// The things whose names match, those of each kind by falling share.
    pub hits: Vec<SearchHit>,
    /// The number of all things whose names match.
    pub total: usize,
}

/// A thing whose name matches.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct SearchHit {
    /// The kind of the thing.
    pub kind: SearchKind,
    /// The values of selection parameters that select it.
    pub key: RowKeys,
    /// Its name.
    pub name: String,
    /// A function's module, a thread's process.
    pub inside: Option<String>,
    /// Its share of the first event, in percent.
    pub percent: Option<f64>,
}

/// The kind of a thing that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, TS)]
#[serde(rename_all = "lowercase")]
pub enum SearchKind {
    /// A function.
    Function,
    /// A module.
    Module,
    /// A process.
    Process,
    /// A thread.
    Thread,
}
