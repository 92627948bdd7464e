//! Branch records (Intel's LBR, AMD's, Arm's BRBE), which show the code that ran between samples.
//!
//! A sample's stack holds the branches that were taken last. Between two consecutive branches, the code from the first
//! one's target to the second one's source ran straight, every instruction of it once. [`BranchProfile`] sums these
//! branches and runs over a recording. With the code at hand ([`Code`]), [`BranchAnalysis`] turns the sums into
//! executions of instructions and blocks, calls, and trips of loops.

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
