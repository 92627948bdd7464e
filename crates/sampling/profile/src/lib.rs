//! The model: processes with their mappings, call stacks, and the counts of every event.
//!
//! A recording is read once, in time order, into a [`Profile`]. While it is read nothing has a name: modules, stacks
//! and threads are small numbers. [`Names`] then names each distinct location once, in parallel. [`aggregate`],
//! [`hierarchy`] and [`call_tree`] make the rows of tables.
//!
//! Weights are exact sums of the samples' periods. Callers compute ratios when they show them.
//!
//! The folders follow the path of a sample. `loading` reads records. `processes` follows tasks and their mappings.
//! `stacks` and `counts` hold the counted stacks and their counts. `naming` names locations, `rows` makes tables, and
//! `selecting` counts a part again, `switches` knows when threads were off the CPU. [`branches`] and [`memory`] analyse the data that samples record beside their
//! location.

pub mod branches;
mod counts;
mod hash;
mod loading;
pub mod memory;
mod naming;
mod processes;
mod profile;
mod rows;
mod selecting;
mod stacks;
mod switches;

pub use counts::counter::Count;
pub use counts::estimate::Estimate;
pub use counts::multiplex::Multiplexing;
pub use counts::sample_keys::{SampleKey, SampleKeyId, SampleKeys};
pub use loading::details::DroppedDetails;
pub use loading::live::{LiveProfile, LiveSize};
pub use loading::load::LoadOptions;
pub use loading::losses::Losses;
pub use loading::piped::WholeNeeded;
pub use loading::plan::{KernelSamples, LoadPlan, SampleFilter};
pub use loading::progress::LoadProgress;
pub use loading::visit::{GroupSample, GroupVisitor};
pub use loading::waits::{OFF_CPU_EVENT, OffCpu};
pub use naming::debug_info::DebugInfoWanted;
pub use naming::live::LiveNames;
pub use naming::names::{FunctionId, FunctionName, LineId, ModuleNote, Names, SourceLine};
pub use processes::images::{Image, ImageId, Program, ProgramId};
pub use processes::mappings::MappedSpan;
pub use processes::modules::{KERNEL, Module, ModuleId, Modules, UNKNOWN};
pub use processes::tasks::{Process, ProcessId, Tasks, Thread, ThreadId};
pub use profile::{EventProfile, LoggedSample, Profile};
pub use rows::aggregate::{
    AggregateRow, Dimension, SelfAndTotal, aggregate, traced, undescribed, unresolved, without_line,
};
pub use rows::function_paths::FunctionPaths;
pub use rows::hierarchy::{
    Hierarchy, HierarchyCell, HierarchyOptions, HierarchyRow, Slices, TimeSlices, hierarchy,
};
pub use rows::tree::around::{TreesAround, trees_around};
pub use rows::tree::changed::{
    ChangedTree, ChangedTreeOptions, Recursion, StackChanges, changed_call_tree,
};
pub use rows::tree::{CallTree, TreeDirection, TreeLimits, TreeRow, call_tree};
pub use selecting::bins::{BinOptions, Binned, BinnedBy, BinnedRow};
pub use selecting::selection::{SelectError, Selection};
pub use stacks::call_stacks::{StackId, StackNode, Stacks};
pub use stacks::frames::{Frame, FrameId, Frames};
pub use stacks::unwinding::UnwindCounts;
pub use switches::GapsOf;
