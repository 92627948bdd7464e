//! The model: processes with their mappings, call stacks, and the counts of every event.
//!
//! A recording is read once, in time order, into a [`Profile`]: nothing has a name yet, everything is a small number.
//! Each distinct place is then named once ([`Names`]), in parallel; [`aggregate`] makes the rows of a table.
//!
//! Weights are exact sums of the samples' periods; ratios are left to whoever shows them.

mod aggregate;
pub mod branches;
mod call_stack;
mod chain;
mod counts;
mod debug_info;
mod details;
mod frames;
mod function_paths;
mod hash;
mod hierarchy;
mod images;
mod inlined;
mod jit;
mod kernel_entry;
mod load;
mod losses;
mod mappings;
pub mod memory;
mod modules;
mod multiplex;
mod names;
mod parts;
mod paths;
mod plan;
mod profile;
mod sample_log;
mod select;
mod settle;
mod shape;
mod sideband;
mod slots;
mod space;
mod spread;
mod stacks;
mod tasks;
mod tree;
mod unknown;
mod unwinding;
mod visit;
mod walks;

pub use aggregate::{
    AggregateRow, Dimension, SelfAndTotal, aggregate, traced, undescribed, unresolved, without_line,
};
pub use counts::Count;
pub use debug_info::DebugInfoWanted;
pub use details::DroppedDetails;
pub use frames::{Frame, FrameId, Frames};
pub use function_paths::FunctionPaths;
pub use hierarchy::{
    Hierarchy, HierarchyCell, HierarchyOptions, HierarchyRow, Slices, TimeSlices, hierarchy,
};
pub use images::{Image, ImageId, Program, ProgramId};
pub use load::LoadOptions;
pub use losses::Losses;
pub use mappings::MappedSpan;
pub use modules::{KERNEL, Module, ModuleId, Modules, UNKNOWN};
pub use multiplex::Multiplexing;
pub use names::{FunctionId, FunctionName, LineId, ModuleNote, Names, SourceLine};
pub use parts::{Part, PartId, Parts};
pub use plan::{KernelSamples, LoadPlan, SampleFilter};
pub use profile::{EventProfile, LoggedSample, Profile};
pub use select::{SelectError, Selection};
pub use spread::Estimate;
pub use stacks::{StackId, StackNode, Stacks};
pub use tasks::{Process, ProcessId, Tasks, Thread, ThreadId};
pub use tree::{CallTree, TreeDirection, TreeLimits, TreeRow, call_tree};
pub use unwinding::UnwindCounts;
pub use visit::{GroupSample, GroupVisitor};
