//! Tables as values, and their text, CSV and JSON.
//!
//! Every sub-command that shows numbers builds one [`Table`] and hands it to one of three renderings:
//! [`write_text`] for people, [`write_csv`] and [`write_json`] for programs. All three read the same cells and do
//! the same arithmetic ([`Cell::value`]), so a number can differ between them only in how many digits are printed.
//!
//! Whatever the table's reader has to know besides its cells (losses, fallbacks, what was left out) is a [`Fact`].
//! Text and JSON show the facts themselves; CSV has no place for them, so a caller that writes CSV prints them with
//! [`Facts::write_text`] on standard error.

mod added;
mod annotate;
mod blocks;
mod by;
mod call_graph;
mod cell;
mod columns;
mod derived;
mod diff;
mod error;
mod escape;
mod events;
mod facts;
mod fitted;
mod format;
mod grid;
mod harmless;
mod labels;
mod locations;
mod machine;
mod match_facts;
mod ndjson;
mod number;
mod order;
mod profile_facts;
mod recursion;
mod row_labels;
mod rows;
mod set_aside;
mod shapes;
mod short_names;
mod sort;
mod table;
mod text;
mod tree;
mod working_set;

pub use added::AddedColumns;
pub use annotate::{
    AnnotateOptions, AnnotatedBlock, AnnotatedEdge, AnnotatedEvent, AnnotatedLine, AnnotatedLoop,
    Annotation, AnnotationStyle, AnnotationView, BranchColumns, Drawing, FindError, FoundFunction,
    JumpTarget, MemoryColumn, Place, PlaceCount, PlaceFrame, SourceFiles, SourceText, annotate,
    find_function, write_annotation, write_annotation_dot, write_annotation_json,
    write_annotation_ndjson,
};
pub use blocks::{BlockPlace, Blocks};
pub use by::{ByOptions, ReportOptions, by, report};
pub use call_graph::{CallGraphOptions, call_graph, has_calls};
pub use cell::Cell;
pub use columns::{PercentOf, ShownNumbers};
pub use derived::{MetricColumns, metric_unit, push_metric};
pub use diff::{DiffOptions, Normalize, adjusted, diff, profile_letter, significance};
pub use error::{RenderError, ReportError, TableError};
pub use escape::{display_width, escape};
pub use events::TableEvent;
pub use facts::{Fact, Facts, Severity};
pub use fitted::{FittedOptions, ShownRows, write_fitted};
pub use format::{Format, UnknownFormat};
pub use harmless::Harmless;
pub use labels::Input;
pub use machine::{write_csv, write_json};
pub use ndjson::write_ndjson;
pub use order::LeftOut;
pub use profile_facts::profile_facts;
pub use row_labels::RowLabels;
pub use shapes::Shapes;
pub use short_names::{fit_name, fold_arguments};
pub use table::{CellNote, Column, ColumnKind, Direction, Mark, Row, Table, Unit};
pub use text::{TextOptions, write_text};
pub use tree::{TreeOptions, tree};
