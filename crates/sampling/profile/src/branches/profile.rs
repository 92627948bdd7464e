//! The sums of one event's branch stacks.

use super::flags::{BranchFlags, BranchKind};
use super::sequences::Sequences;
use super::table::PairTable;
use super::tally::{Cycles, Executions, Share, Tally};
use super::{BranchFilter, Counted};
use crate::stacks::frames::FrameId;

/// The branches of one event's samples, added up: memory grows with distinct branches, not with samples.
#[derive(Clone, Debug)]
pub struct BranchProfile {
    pub(super) filter: BranchFilter,
    pub(super) counted: Counted,
    pub(super) facts: BranchFacts,
    pub(super) edges: PairTable<EdgeCounts>,
    pub(super) runs: PairTable<RunCounts>,
    pub(super) sequences: Sequences,
}

/// Counts of the stacks and records that were read, and of those that could not be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BranchFacts {
    /// Branch stacks.
    pub stacks: u64,
    /// Stacks without any branch.
    pub empty_stacks: u64,
    /// Records in all stacks, empty ones among them.
    pub records: u64,
    /// Records of branches that happened.
    pub branches: u64,
    /// Records of zeros, from unfilled places of the hardware's stack.
    pub empty: u64,
    /// Records with a source or a target of zero, hidden by the kernel.
    pub incomplete: u64,
    /// Branches on wrong paths, which never happened and are in no count.
    pub wrong_path: u64,
    /// Stacks that sample the branches; every other stack holds all branches since the stack before.
    pub sampled: u64,
    /// Stacks that should have continued their thread's stack before and do not, or whose thread lost records.
    pub gaps: u64,
    /// Straight runs between two branches.
    pub runs: u64,
    /// Pairs of branches between which no code can have run straight, because branches in between were not recorded.
    pub broken_runs: u64,
    /// Runs outside of all mappings.
    pub unmapped_runs: u64,
    /// Stacks that cannot be scaled to executions, because their records hold no cycles.
    pub unscaled: u64,
}

/// A taken branch, with the sums of all its records.
#[derive(Clone, Debug)]
pub(super) struct EdgeCounts {
    pub from: FrameId,
    pub to: FrameId,
    pub kind: BranchKind,
    taken: Tally,
    /// The number of records that state whether the branch was predicted.
    predictions: u64,
    mispredicted: Tally,
    /// Sum over the stacks of sightings times mispredictions.
    products: u64,
    in_transaction: u64,
    aborted: u64,
    cycles: Cycles,
    /// Sightings and mispredictions in the newest stack.
    here: (u32, u32),
}

impl EdgeCounts {
    pub fn new(from: FrameId, to: FrameId) -> Self {
        EdgeCounts {
            from,
            to,
            kind: BranchKind::Unknown,
            taken: Tally::default(),
            predictions: 0,
            mispredicted: Tally::default(),
            products: 0,
            in_transaction: 0,
            aborted: 0,
            cycles: Cycles::default(),
            here: (0, 0),
        }
    }

    #[inline]
    pub fn add(&mut self, stack: u32, flags: BranchFlags, weight: f64) {
        let (seen, missed) = self.here;
        let before = u64::from(seen) * u64::from(missed);
        let seen = self.taken.add(stack, weight);
        let mut missed = if seen == 1 { 0 } else { missed };
        let before = if seen == 1 { 0 } else { before };
        if flags.mispredicted() {
            missed = self.mispredicted.add(stack, weight);
        }
        self.here = (seen, missed);
        self.products = self
            .products
            .saturating_add(u64::from(seen) * u64::from(missed) - before);
        self.predictions += u64::from(flags.mispredicted() || flags.predicted());
        self.in_transaction += u64::from(flags.in_transaction());
        self.aborted += u64::from(flags.aborted());
        self.cycles.add(flags.cycles());
    }

    fn mispredicted(&self) -> Option<Share> {
        share(
            self.predictions,
            &self.mispredicted,
            self.taken.squares,
            self.products,
        )
    }
}

/// Returns the share of `part` in `whole`. Its error is that of a ratio of sums over stacks, and at least Poisson's.
fn share(whole: u64, part: &Tally, squares: u64, products: u64) -> Option<Share> {
    if whole == 0 {
        return None;
    }
    let (all, some) = (whole as f64, part.seen as f64);
    let ratio = some / all;
    let variance =
        part.squares as f64 - 2.0 * ratio * products as f64 + ratio * ratio * squares as f64;
    let poisson = some.max(1.0);
    Some(Share {
        part: part.seen,
        whole,
        error: variance.max(poisson).sqrt() / all,
    })
}

/// A stretch of code from a branch's target to the next branch.
#[derive(Clone, Debug)]
pub(super) struct RunCounts {
    pub start: FrameId,
    pub end: FrameId,
    pub tally: Tally,
    pub cycles: Cycles,
}

impl RunCounts {
    pub fn new(start: FrameId, end: FrameId) -> Self {
        RunCounts {
            start,
            end,
            tally: Tally::default(),
            cycles: Cycles::default(),
        }
    }
}

/// A taken branch from one place to another, with everything recorded about it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BranchEdge {
    /// The branch instruction; for an interrupt, the interrupted instruction.
    pub from: FrameId,
    /// The target.
    pub to: FrameId,
    /// The type of the branch, where the recording states it.
    pub kind: BranchKind,
    /// The number of times it was taken.
    pub taken: Executions,
    /// The share of taken executions that were mispredicted; `None` where no record states it.
    pub mispredicted: Option<Share>,
    /// The number of records within a transaction.
    pub in_transaction: u64,
    /// The number of records that aborted a transaction.
    pub aborted: u64,
    /// Cycles since the branch before it.
    pub cycles: Cycles,
}

/// Code that ran straight, from a branch's target to the next taken branch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StraightRun {
    /// The first instruction.
    pub start: FrameId,
    /// The last instruction, in the same module: a branch, or the instruction that an interrupt hit.
    pub end: FrameId,
    /// The number of times it ran.
    pub executions: Executions,
    /// Cycles of the run.
    pub cycles: Cycles,
}

impl BranchProfile {
    pub(super) fn new(filter: BranchFilter, counted: Counted) -> Self {
        BranchProfile {
            filter,
            counted,
            facts: BranchFacts::default(),
            edges: PairTable::default(),
            runs: PairTable::default(),
            sequences: Sequences::default(),
        }
    }

    /// Returns the filter of the recorded branches.
    pub fn filter(&self) -> BranchFilter {
        self.filter
    }

    /// Returns the quantity that the event counts, which decides whether executions can be estimated.
    pub fn counted(&self) -> Counted {
        self.counted
    }

    /// Returns the counts of stacks and records that were read, and of those that could not be used.
    pub fn facts(&self) -> &BranchFacts {
        &self.facts
    }

    /// Returns whether the stacks hold every branch that was taken, so that counts have no error.
    pub fn is_exact(&self) -> bool {
        let facts = &self.facts;
        facts.sampled + facts.gaps + facts.empty_stacks == 0 && facts.stacks > 0
    }

    /// Returns all taken branches, in the order in which they were first seen.
    pub fn edges(&self) -> impl ExactSizeIterator<Item = BranchEdge> + '_ {
        self.edges.list.iter().map(|edge| self.edge(edge))
    }

    pub(super) fn edge(&self, edge: &EdgeCounts) -> BranchEdge {
        BranchEdge {
            from: edge.from,
            to: edge.to,
            kind: edge.kind,
            taken: self.executions(&edge.taken),
            mispredicted: edge.mispredicted(),
            in_transaction: edge.in_transaction,
            aborted: edge.aborted,
            cycles: edge.cycles,
        }
    }

    /// Returns all straight runs, in the order in which they were first seen; none where not every branch was recorded
    /// (see [`BranchFilter::is_complete`]).
    pub fn runs(&self) -> impl ExactSizeIterator<Item = StraightRun> + '_ {
        self.runs.list.iter().map(|run| StraightRun {
            start: run.start,
            end: run.end,
            executions: self.executions(&run.tally),
            cycles: run.cycles,
        })
    }

    /// Returns the stacks that were kept whole.
    pub(super) fn sequences(&self) -> &Sequences {
        &self.sequences
    }

    fn executions(&self, tally: &Tally) -> Executions {
        let facts = &self.facts;
        let usable = facts.stacks - facts.empty_stacks;
        let scaled = usable.saturating_sub(facts.unscaled);
        // Stacks that cannot be scaled are assumed to be like the scaled ones.
        let estimated = (self.counted != Counted::Other && scaled > 0)
            .then(|| tally.scaled * usable as f64 / scaled as f64);
        Executions {
            seen: tally.seen,
            estimated,
            error: if self.is_exact() {
                0.0
            } else {
                (tally.squares as f64).sqrt()
            },
        }
    }

    pub(super) fn freeze(&mut self) {
        self.edges.freeze();
        self.runs.freeze();
        self.sequences.freeze();
    }
}
