//! Measures: event names, derived columns, and what their numbers are worth.
//!
//! A [`MetricSet`] is a tree of columns for one family of CPUs: one of ours ([`MetricSet::for_cpu`], [`builtin`]), a
//! file of the user's ([`MetricSet::load`]) or what a CPU's maker publishes ([`PmuData`]). Binding it to the events of
//! a profile ([`MetricSet::bind`]) compiles each formula once and says which inputs were not recorded; an
//! [`Evaluator`] then turns the counts of a row into [`Cell`]s: value and standard error, or why there is none.
//!
//! ```
//! use dioptra_metrics::{Cell, Count, Environment, MetricSet, Mode, RecordedEvent};
//!
//! let set = MetricSet::generic();
//! let recorded = ["cycles:u", "instructions:u"].map(RecordedEvent::named);
//! let bound = set.bind(&recorded, &Environment::new());
//! let totals = [Count::sampled(1000, 1_000_000_000, 1.0), Count::sampled(2000, 2_000_000_000, 1.0)];
//! let mut evaluator = bound.evaluator(&totals, Mode::Exact);
//! let cells = evaluator.row(&[Count::sampled(100, 100_000_000, 1.0), Count::sampled(50, 50_000_000, 1.0)]);
//! let ipc = set.column("ipc").unwrap();
//! assert_eq!(cells[ipc].value(), Some(0.5));
//! let misses = set.column("branch_miss_ratio").unwrap();
//! assert!(matches!(&cells[misses], Cell::Missing(names) if names.contains(&"branch-misses".to_owned())));
//! ```
//!
//! This crate knows no profiles and no output formats: events come in by name, with counts.

pub mod expr;

mod bind;
mod bound;
mod builtin;
mod choice;
mod count;
mod cpu;
mod environment;
mod error;
mod evaluate;
mod file;
mod groups;
mod import;
mod names;
mod set;
mod unit;

pub use bound::{BindNote, Bound, BoundColumn};
pub use builtin::{Builtin, builtin};
pub use choice::{ChoiceError, ChosenColumns, MetricSets};
pub use count::{Cell, Count};
pub use cpu::CpuId;
pub use environment::Environment;
pub use error::MetricError;
pub use evaluate::{Evaluator, Mode};
pub use groups::{EventGroup, SplitGroups};
pub use import::{PmuCpu, PmuData};
pub use names::{EventName, RecordedEvent};
pub use set::{Column, ColumnKind, MetricSet, NeededEvent};
pub use unit::Unit;
