//! Traces: calls as tables, trees, bars and rows.
//!
//! - [`loaded`](self::loaded): an opened trace, which lives on a thread of its own; `keys`: names of its functions in
//!   addresses; `selected`: the calls of a request.
//! - `overview`, `tables`, `graphs`, `timelines`, `replays`, `slowest`: answers. `bars` and `rows` are what the last ones are
//!   made of.

mod bars;
mod graphs;
mod interned;
mod keys;
mod loaded;
mod overview;
mod parameters;
mod replays;
mod rows;
mod selected;
mod slowest;
mod tables;
mod timelines;

pub(crate) use graphs::{TraceTree, TraceTreeKey};
pub(crate) use loaded::LoadedTrace;
pub(crate) use replays::{RowMarks, RowMarksKey};
pub(crate) use selected::CallsKey;
pub(crate) use slowest::{SlowestCalls, SlowestKey};
pub(crate) use tables::{TraceTable, TraceTableKey, TraceView, TraceViewKey, export};
pub(crate) use timelines::{Tile, TileKey};

pub(crate) use graphs::answer as graph;
pub(crate) use overview::answer as overview;
pub(crate) use replays::{answer as replay, find};
pub(crate) use slowest::answer as slowest;
pub(crate) use tables::answer as table;
pub(crate) use timelines::answer as timeline;
