//! A trace's calls as tables.
//!
//! [`function_rows`] makes a row for each function of [`Statistics`](dioptra_calls::Statistics), [`Field`] is a column of
//! such rows, and [`function_table`] makes a table of both. [`grouped_table`], [`grouped_diff`] and [`call_tree_table`] make
//! the tables that profiles have, of one trace or several. The functions of `facts` say what must be known about the
//! numbers: losses, limits of the recording, estimates.

mod cpus;
mod endings;
mod facts;
mod fields;
mod grouped;
mod rows;
mod table;
mod threads;

pub use endings::ending_text;
pub use facts::{
    call_facts, counts_ticks, function_facts, graph_facts, number_of, open_calls, replay_facts,
    trace_facts, tracer_waits,
};
pub use fields::{Average, FIELDS, Field, Key, Of, needed_statistics, sort};
pub use grouped::{
    CallTreeOptions, GroupedDiffOptions, GroupedOptions, Level, TraceInput, TreeDirection,
    call_tree_table, grouped_diff, grouped_table, module_name, trace_letter,
};
pub use rows::{Row, distinct_names, estimates, folded, function_rows, is_slowest, tell_apart};
pub use table::function_table;
pub use threads::{ThreadTimes, thread_table, threads};
