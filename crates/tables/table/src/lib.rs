//! Tables as values, and their text, CSV and JSON.
//!
//! Every sub-command that shows numbers builds one [`Table`] and hands it to a rendering: [`write_text`] and
//! [`write_fitted`] for people, [`write_csv`], [`write_json`] and [`write_ndjson`] for programs. All of them read the
//! same cells and do the same arithmetic ([`Cell::value`]), so a number can differ between them only in the number of
//! printed digits.
//!
//! Everything that the table's reader has to know besides its cells (losses, fallbacks, rows left out) is a [`Fact`].
//! Text and JSON show the facts themselves. CSV has no place for them, so a caller that writes CSV prints them with
//! [`Facts::write_text`] on standard error.
//!
//! The crate knows neither profiles nor traces.

mod cell;
mod emphasis;
mod error;
mod escape;
mod facts;
mod fitted;
mod format;
mod harmless;
mod machine;
mod ndjson;
mod number;
mod order;
mod recursion;
mod remedy;
mod rows;
mod short_names;
mod sort;
mod table;
mod text;
mod view;

pub use cell::Cell;
pub use emphasis::Emphasis;
pub use error::{RenderError, TableError};
pub use escape::{display_width, escape, push_escaped};
pub use facts::{Fact, Facts, Severity, fact_line};
pub use fitted::{FittedOptions, ShownRows, close_percents, wrap, write_fitted};
pub use format::{Format, UnknownFormat};
pub use harmless::Harmless;
pub use machine::{write_csv, write_json};
pub use ndjson::write_ndjson;
pub use order::LeftOut;
pub use remedy::Remedy;
pub use short_names::{cut_end, cut_middle, fit_name, fold_arguments};
pub use table::{CellNote, Column, ColumnKind, Direction, Mark, Row, Table, Unit};
pub use text::{TextOptions, write_text};
pub use view::{View, ViewOptions, ViewRow};
