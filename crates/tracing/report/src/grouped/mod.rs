//! Tables of traces in the shape of a profile's: rows of programs, processes, threads, modules and functions, or of several
//! of them as levels of a tree.

mod compared;
mod keys;
mod rows;
mod table;
mod tree;

pub use compared::{GroupedDiffOptions, grouped_diff, trace_letter};
pub use keys::module_name;
pub use table::{GroupedOptions, grouped_table};
pub use tree::{CallTreeOptions, TreeDirection, call_tree_table};

use dioptra_calls::{FunctionNames, View};

/// A trace with the names of its functions.
#[derive(Clone, Copy)]
pub struct TraceInput<'a, 't> {
    /// The calls that count.
    pub view: &'a View<'t>,
    /// The names.
    pub names: &'a FunctionNames<'t>,
    /// The trace's name among several: its directory.
    pub label: &'a str,
}

/// A kind of row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// All processes of one executable, each while it ran that.
    Program,
    /// A process.
    Process,
    /// A thread.
    Thread,
    /// A name of threads.
    Comm,
    /// A program or library.
    Module,
    /// A function.
    Function,
}

impl Level {
    /// Returns the word for the level in tables.
    pub fn word(self) -> &'static str {
        match self {
            Level::Program => "program",
            Level::Process => "process",
            Level::Thread => "thread",
            Level::Comm => "comm",
            Level::Module => "module",
            Level::Function => "function",
        }
    }
}
