//! The schema: the tables of a store, their columns, and the places of their objects.
//!
//! All columns have plain types that every engine reads: text, signed 64-bit integers, doubles, and lists of text.
//! There are no Arrow dictionaries; Parquet's own dictionary encoding is used.

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use std::sync::Arc;

/// The version of the schema. A change that old readers would misread raises it.
pub const VERSION: i64 = 2;

/// The object that marks a store and states its version.
pub(crate) const MARKER: &str = "_dioptra-store.json";

/// The folder of files that are being written, in stores on disk.
pub(crate) const TEMPORARY: &str = "_tmp";

/// A table of a store: a folder of Parquet files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// A row for each profile. A profile's file is written last: without it the profile is not there.
    Profiles,
    /// A row for each sample, or for equal samples where the recording states no times.
    Samples,
    /// A row for each call stack of a profile.
    Stacks,
    /// A row for each function of a profile.
    Functions,
    /// A row for each module of a profile: executables, shared objects, the kernel.
    Modules,
    /// A row for each stretch of a process's memory that held a module in which samples lie.
    Mappings,
    /// A row for each event of each window.
    Windows,
    /// A row for each event that windows counted: its count over the whole run.
    WindowTotals,
    /// A row for each traced call; of traces with many calls, one for each thread and call stack.
    Calls,
    /// A row for each function of which only some calls were traced: estimates for all calls.
    CallEstimates,
}

impl Table {
    /// The tables whose files are written before the profile's own, in the order of writing.
    pub const OF_ROWS: [Table; 9] = [
        Table::Modules,
        Table::Functions,
        Table::Stacks,
        Table::Samples,
        Table::Mappings,
        Table::Windows,
        Table::WindowTotals,
        Table::Calls,
        Table::CallEstimates,
    ];

    /// Returns the table's folder.
    pub fn folder(self) -> &'static str {
        match self {
            Table::Profiles => "profiles",
            Table::Samples => "samples",
            Table::Stacks => "stacks",
            Table::Functions => "functions",
            Table::Modules => "modules",
            Table::Mappings => "mappings",
            Table::Windows => "windows",
            Table::WindowTotals => "window_totals",
            Table::Calls => "calls",
            Table::CallEstimates => "call_estimates",
        }
    }

    /// Returns the columns of the table's files.
    pub fn schema(self) -> SchemaRef {
        let columns: &[(&str, Kind)] = match self {
            Table::Profiles => PROFILES,
            Table::Samples => SAMPLES,
            Table::Stacks => STACKS,
            Table::Functions => FUNCTIONS,
            Table::Modules => MODULES,
            Table::Mappings => MAPPINGS,
            Table::Windows => WINDOWS,
            Table::WindowTotals => WINDOW_TOTALS,
            Table::Calls => CALLS,
            Table::CallEstimates => CALL_ESTIMATES,
        };
        let fields = columns.iter().map(|(name, kind)| kind.field(name));
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    /// Returns the object without rows that every store has of a table of rows. Engines that find no file of a table
    /// refuse the query.
    pub(crate) fn empty_object(self) -> String {
        let folder = self.folder();
        format!("{folder}/date=1970-01-01/service=none/host=none/no-rows.parquet")
    }
}

/// The kinds of columns.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    OptionalText,
    Integer,
    OptionalInteger,
    Double,
    OptionalDouble,
    Texts,
}

impl Kind {
    fn field(self, name: &str) -> Field {
        match self {
            Kind::Text => Field::new(name, DataType::Utf8, false),
            Kind::OptionalText => Field::new(name, DataType::Utf8, true),
            Kind::Integer => Field::new(name, DataType::Int64, false),
            Kind::OptionalInteger => Field::new(name, DataType::Int64, true),
            Kind::Double => Field::new(name, DataType::Float64, false),
            Kind::OptionalDouble => Field::new(name, DataType::Float64, true),
            Kind::Texts => Field::new(name, DataType::List(element()), false),
        }
    }
}

/// Returns the field of a list's elements.
pub(crate) fn element() -> Arc<Field> {
    Arc::new(Field::new("element", DataType::Utf8, false))
}

const PROFILES: &[(&str, Kind)] = &[
    ("profile_id", Kind::Text),
    ("import_id", Kind::Text),
    ("date", Kind::Text),
    ("service", Kind::Text),
    ("host", Kind::Text),
    ("start_ns", Kind::OptionalInteger),
    ("duration_ns", Kind::OptionalInteger),
    ("samples", Kind::Integer),
    ("command", Kind::OptionalText),
    ("kernel", Kind::OptionalText),
    ("arch", Kind::OptionalText),
    ("cpu_model", Kind::OptionalText),
    ("file_bytes", Kind::Integer),
    ("warnings", Kind::OptionalText),
    ("totals", Kind::Text),
    ("objects", Kind::Text),
    ("schema_version", Kind::Integer),
    ("kind", Kind::Text),
    ("calls", Kind::Integer),
];

const SAMPLES: &[(&str, Kind)] = &[
    ("import_id", Kind::Text),
    ("event", Kind::Text),
    ("elapsed_ns", Kind::OptionalInteger),
    ("pid", Kind::OptionalInteger),
    ("tid", Kind::OptionalInteger),
    ("process", Kind::Text),
    ("comm", Kind::Text),
    ("cpu", Kind::OptionalInteger),
    ("stack_id", Kind::Text),
    ("samples", Kind::Integer),
    ("weight", Kind::Integer),
    ("factor", Kind::Double),
    ("address", Kind::OptionalInteger),
    ("source", Kind::OptionalText),
    ("line", Kind::OptionalInteger),
];

const STACKS: &[(&str, Kind)] = &[
    ("import_id", Kind::Text),
    ("stack_id", Kind::Text),
    ("depth", Kind::Integer),
    ("function_id", Kind::OptionalText),
    ("function", Kind::OptionalText),
    ("module", Kind::OptionalText),
    ("function_ids", Kind::Texts),
    ("frames", Kind::Texts),
];

const FUNCTIONS: &[(&str, Kind)] = &[
    ("import_id", Kind::Text),
    ("function_id", Kind::Text),
    ("name", Kind::Text),
    ("file", Kind::OptionalText),
    ("module_id", Kind::Text),
    ("module", Kind::Text),
];

const MODULES: &[(&str, Kind)] = &[
    ("import_id", Kind::Text),
    ("module_id", Kind::Text),
    ("name", Kind::Text),
    ("path", Kind::OptionalText),
    ("build_id", Kind::OptionalText),
    ("kind", Kind::Text),
];

const MAPPINGS: &[(&str, Kind)] = &[
    ("import_id", Kind::Text),
    ("pid", Kind::Integer),
    ("process", Kind::Text),
    ("module_id", Kind::Text),
    ("module", Kind::Text),
    ("start_address", Kind::Integer),
    ("end_address", Kind::Integer),
    ("file_offset", Kind::Integer),
    ("from_ns", Kind::OptionalInteger),
    ("until_ns", Kind::OptionalInteger),
];

const WINDOWS: &[(&str, Kind)] = &[
    ("import_id", Kind::Text),
    ("event", Kind::Text),
    ("value", Kind::Integer),
    ("event_group", Kind::Integer),
    ("burst", Kind::Integer),
    ("window_number", Kind::Integer),
    ("elapsed_ns", Kind::OptionalInteger),
    ("period", Kind::Integer),
    ("pid", Kind::OptionalInteger),
    ("tid", Kind::OptionalInteger),
    ("process", Kind::Text),
    ("comm", Kind::Text),
    ("cpu", Kind::Integer),
    ("start_stack_id", Kind::Text),
    ("stack_id", Kind::Text),
    ("flags", Kind::OptionalText),
];

const WINDOW_TOTALS: &[(&str, Kind)] = &[
    ("import_id", Kind::Text),
    ("event", Kind::Text),
    ("value", Kind::Integer),
    ("enabled_ns", Kind::Integer),
    ("running_ns", Kind::Integer),
];

const CALLS: &[(&str, Kind)] = &[
    ("import_id", Kind::Text),
    ("elapsed_ns", Kind::OptionalInteger),
    ("pid", Kind::Integer),
    ("tid", Kind::Integer),
    ("process", Kind::Text),
    ("comm", Kind::Text),
    ("stack_id", Kind::Text),
    ("parent_id", Kind::OptionalText),
    ("parent", Kind::OptionalText),
    ("calls", Kind::Integer),
    ("duration_ns", Kind::Integer),
    ("total_ns", Kind::Integer),
    ("self_ns", Kind::Integer),
    ("shortest_ns", Kind::OptionalInteger),
    ("longest_ns", Kind::OptionalInteger),
    ("weighted_calls", Kind::Double),
    ("weighted_total_ns", Kind::Double),
    ("weighted_self_ns", Kind::Double),
    ("open_calls", Kind::Integer),
    ("ending", Kind::OptionalText),
];

const CALL_ESTIMATES: &[(&str, Kind)] = &[
    ("import_id", Kind::Text),
    ("function_id", Kind::Text),
    ("function", Kind::Text),
    ("module", Kind::Text),
    ("calls", Kind::Double),
    ("calls_error", Kind::OptionalDouble),
    ("total_ns", Kind::Double),
    ("total_error_ns", Kind::OptionalDouble),
    ("self_ns", Kind::Double),
    ("self_error_ns", Kind::OptionalDouble),
];
