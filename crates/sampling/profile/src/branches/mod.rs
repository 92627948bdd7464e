//! Branch records (Intel's LBR, AMD's, Arm's BRBE): what the branch stacks of samples tell of the code that ran.
//!
//! A sample's stack holds the branches that were taken last. Two that follow each other tell that the code from the
//! first one's target to the second one's source ran straight, every instruction of it once. Summed over a recording
//! ([`BranchProfile`]) these give counts of branches and runs; with the code at hand ([`Code`]) they become executions
//! of instructions and blocks, calls, and trips of loops ([`BranchAnalysis`]).

mod analysis;
mod calls;
mod code;
mod collect;
mod filter;
mod flags;
mod hook;
mod profile;
mod sequences;
mod sums;
mod symbols;
mod table;
mod tally;
mod trips;

pub use analysis::{
    BlockBranches, BranchAnalysis, BranchClass, BranchSite, FunctionBranches, LoopBranches,
};
pub use calls::{CallCount, CallKind, Calls, FunctionAt, ReturnCount};
pub use code::{Code, CodeOutline, Flow, OutlineInstruction, OutlineLoop};
pub use filter::{BranchFilter, Counted};
pub use flags::{BranchFlags, BranchKind, Speculation};
pub use profile::{BranchEdge, BranchFacts, BranchProfile, StraightRun};
pub use symbols::SymbolCode;
pub use tally::{Cycles, Executions, Share};
pub use trips::{LoopAt, TripCount, TripCounts};

pub(crate) use collect::Owner;
pub(crate) use hook::Branches;
use sequences::Sequences;
