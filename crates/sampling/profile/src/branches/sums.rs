//! Sums of runs over the instructions that the runs cover.

use super::tally::{Executions, Share};
use std::ops::Range;

/// Sums over ranges of instructions, kept as differences between neighbours.
pub(super) struct Sums {
    seen: Vec<i64>,
    estimated: Vec<f64>,
    errors: Vec<f64>,
    /// By instruction: the sum of the runs that start at it.
    starts: Vec<Executions>,
}

impl Sums {
    pub fn new(length: usize) -> Self {
        Sums {
            seen: vec![0; length + 1],
            estimated: vec![0.0; length + 1],
            errors: vec![0.0; length + 1],
            starts: vec![Executions::default(); length],
        }
    }

    pub fn add(&mut self, range: Range<usize>, count: &Executions, from_before: bool) {
        if range.is_empty() {
            return;
        }
        let estimated = count.estimated.unwrap_or(0.0);
        // `seen` counts records of a file, so it fits.
        let seen = i64::try_from(count.seen).unwrap_or(i64::MAX);
        self.seen[range.start] += seen;
        self.seen[range.end] -= seen;
        self.estimated[range.start] += estimated;
        self.estimated[range.end] -= estimated;
        self.errors[range.start] += count.error;
        self.errors[range.end] -= count.error;
        if !from_before {
            let start = &mut self.starts[range.start];
            start.seen += count.seen;
            start.estimated = Some(start.estimated.unwrap_or(0.0) + estimated);
            start.error += count.error;
        }
    }

    /// Returns the executions of each instruction, and those that came straight from the instruction before.
    pub fn finish(self, is_estimated: bool) -> (Vec<Executions>, Vec<Executions>) {
        let (mut seen, mut estimated, mut error) = (0, 0.0, 0.0);
        let mut all = Vec::with_capacity(self.starts.len());
        for index in 0..self.starts.len() {
            seen += self.seen[index];
            estimated += self.estimated[index];
            error += self.errors[index];
            if seen == 0 {
                // Only rounding errors remain here.
                (estimated, error) = (0.0, 0.0);
            }
            all.push(Executions {
                seen: u64::try_from(seen).unwrap_or(0),
                estimated: is_estimated.then_some(estimated),
                error: f64::max(error, 0.0),
            });
        }
        let through = all.iter().zip(&self.starts);
        let through = through.map(|(all, start)| less(*all, *start)).collect();
        (all, through)
    }
}

/// Subtracts a part from a count.
pub(super) fn less(all: Executions, part: Executions) -> Executions {
    let seen = all.seen.saturating_sub(part.seen);
    let estimated = all
        .estimated
        .map(|all| (all - part.estimated.unwrap_or(0.0)).max(0.0));
    Executions {
        seen,
        estimated: if seen == 0 {
            estimated.map(|_| 0.0)
        } else {
            estimated
        },
        // Both numbers vary together, so the difference varies no more than `all`.
        error: if seen == 0 { 0.0 } else { all.error },
    }
}

/// Pools several shares into one.
pub(super) fn pooled(shares: impl Iterator<Item = Share>) -> Option<Share> {
    let mut pool: Option<Share> = None;
    for share in shares {
        let Some(sum) = &mut pool else {
            pool = Some(share);
            continue;
        };
        let absolute = (sum.error * sum.whole as f64).hypot(share.error * share.whole as f64);
        sum.part += share.part;
        sum.whole += share.whole;
        sum.error = absolute / sum.whole as f64;
    }
    pool
}
