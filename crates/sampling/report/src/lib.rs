//! Profiles as tables: rows of any level, trees of calls, annotated functions, differences and sums.
//!
//! Each function here takes profiles and their names and returns a [`Table`](dioptra_tables::Table), or an
//! [`Annotation`], which has renderings of its own. [`report`], [`by`] and [`tree`] show one or several profiles,
//! [`diff`] compares the first profile with each of the others. Functions of several profiles are matched by their
//! module and address, or by name.
//!
//! Losses, fallbacks and doubts of the profile are [facts](dioptra_tables::Fact) of the table.

mod added;
mod annotate;
mod blocks;
mod by;
mod call_graph;
mod chosen;
mod columns;
mod counted_metrics;
mod derived;
mod diff;
mod error;
mod event_unit;
mod events;
mod grid;
mod labels;
mod locations;
mod match_facts;
mod profile_facts;
mod row_key;
mod row_labels;
mod set_aside;
mod shapes;
mod tree;
mod working_set;

pub use added::AddedColumns;
pub use annotate::{
    AddressCount, AddressFrame, AnnotateOptions, AnnotatedAddress, AnnotatedBlock, AnnotatedEdge,
    AnnotatedEvent, AnnotatedLine, AnnotatedLoop, Annotation, AnnotationStyle, AnnotationView,
    BranchColumns, Drawing, FindError, FoundFunction, JumpTarget, MemoryColumn, SourceCause,
    SourceError, SourceFiles, SourceText, annotate, edge_kind_word, find_function,
    function_with_id, instruction_kind_word, write_annotation, write_annotation_dot,
    write_annotation_json, write_annotation_ndjson,
};
pub use blocks::{BlockPlace, Blocks};
pub use by::{ByOptions, ReportOptions, by, report, report_with_keys};
pub use call_graph::{CallGraphOptions, call_graph, has_calls};
pub use chosen::{ChosenMetrics, MissingEvents};
pub use columns::{PercentOf, ShownNumbers};
pub use counted_metrics::{CountedMetric, CountedMetrics, CountedValue};
pub use derived::{MetricColumns, metric_unit, push_metric};
pub use diff::{
    DiffOptions, Normalize, adjusted, diff, diff_with_keys, profile_letter,
    report_beside_with_keys, significance, two_sided,
};
pub use error::ReportError;
pub use event_unit::unit_of;
pub use events::TableEvent;
pub use grid::same_functions_of;
pub use labels::Input;
pub use profile_facts::profile_facts;
pub use row_key::RowKey;
pub use row_labels::RowLabels;
pub use shapes::Shapes;
pub use tree::{TreeOptions, tree};
