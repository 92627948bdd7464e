//! One function in full: its instructions, blocks, loops and source lines, each with the counts of every event.
//!
//! [`find_function`] chooses the function, and [`annotate`] makes an [`Annotation`] of it. [`write_annotation`],
//! [`write_annotation_json`] and [`write_annotation_dot`] render that value. Each sample of the function belongs to
//! exactly one of its [`AnnotatedAddress`]s, so sums over instructions, blocks and lines are the function's own count.

mod arrows;
mod build;
mod code;
mod counts;
mod details;
mod dot;
mod find;
mod fitting;
mod json;
mod lines;
mod listing;
mod model;
mod source;
mod source_view;
mod style;
mod text;

pub use build::annotate;
pub use dot::write_annotation_dot;
pub use find::by_id::function_with_id;
pub use find::{FindError, FoundFunction, find_function};
pub use json::{
    edge_kind_word, instruction_kind_word, write_annotation_json, write_annotation_ndjson,
};
pub use model::{
    AddressCount, AddressFrame, AnnotateOptions, AnnotatedAddress, AnnotatedBlock, AnnotatedEdge,
    AnnotatedEvent, AnnotatedLine, AnnotatedLoop, Annotation, BranchColumns, JumpTarget,
    MemoryColumn,
};
pub use source::{SourceCause, SourceError, SourceFiles, SourceText};
pub use style::{AnnotationStyle, AnnotationView, Drawing};
pub use text::write_annotation;
