//! Which rows are new or gone, and which were merely not sampled.

use super::test::adjusted;
use crate::grid::Grid;
use dioptra_tables::Cell;

/// A row without samples of one profile counts as absent from it if chance leaves no more than this part of such rows
/// without samples.
pub(super) const LEAST_LIKELY: f64 = 0.05;

/// Whether both profiles have samples of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Both,
    New,
    Gone,
    /// Only the later profile has samples, so few that the first may have missed them.
    PerhapsNew,
    /// Only the first profile has samples, so few that the later one may have missed them.
    PerhapsGone,
}

impl Status {
    pub(super) fn cell(self) -> Cell<'static> {
        match self {
            Status::Both => Cell::Empty,
            Status::New => Cell::name("new"),
            Status::Gone => Cell::name("gone"),
            Status::PerhapsNew => Cell::name("new?"),
            Status::PerhapsGone => Cell::name("gone?"),
        }
    }

    pub(super) fn is_doubtful(self) -> bool {
        matches!(self, Status::PerhapsNew | Status::PerhapsGone)
    }
}

/// Finds the status of each row in the profile of this slot. `samples` are those of whole profiles, by slot and event.
///
/// If a row has the same share of both profiles, each of its samples lies in the first one with the probability
/// p = first ÷ (first + other), whatever that share is. So all n of them lie there with pⁿ; for several events these
/// multiply. The probabilities of all such rows of a level are adjusted for their number (Benjamini and Hochberg).
pub(super) fn find(grid: &Grid, samples: &[Vec<u64>], slot: usize) -> Vec<Status> {
    let mut found = vec![Status::Both; grid.len()];
    let events = samples[0].len();
    // By level: the rows of one profile only, and the probability that chance made them so.
    let mut doubtful: Vec<Vec<(usize, f64, bool)>> = Vec::new();
    for row in 0..grid.len() {
        let of = |slot: usize| -> Vec<u64> {
            let measures = grid.measures(row, slot).take(events);
            measures.map(|measure| measure.count.own.samples).collect()
        };
        let (before, after) = (of(0), of(slot));
        let is_gone = match (before.iter().any(|n| *n > 0), after.iter().any(|n| *n > 0)) {
            (true, false) => true,
            (false, true) => false,
            _ => continue,
        };
        let (own, own_slot, other_slot) = match is_gone {
            true => (before, 0, slot),
            false => (after, slot, 0),
        };
        let logarithm = chance(&own, &samples[own_slot], &samples[other_slot]);
        let level = grid.row(row).level;
        doubtful.resize(doubtful.len().max(level + 1), Vec::new());
        doubtful[level].push((row, logarithm.exp(), is_gone));
    }
    for rows in doubtful {
        let chances: Vec<f64> = rows.iter().map(|(_, chance, _)| *chance).collect();
        for ((row, _, is_gone), chance) in rows.into_iter().zip(adjusted(&chances)) {
            found[row] = match (is_gone, chance <= LEAST_LIKELY) {
                (true, true) => Status::Gone,
                (true, false) => Status::PerhapsGone,
                (false, true) => Status::New,
                (false, false) => Status::PerhapsNew,
            };
        }
    }
    found
}

/// The logarithm of the probability that all samples of a row, by event, lie in the profile with the samples `whole`
/// and none in the one with the samples `other`.
fn chance(own: &[u64], whole: &[u64], other: &[u64]) -> f64 {
    let each = own.iter().zip(whole.iter().zip(other));
    each.filter(|(own, _)| **own > 0)
        .map(|(own, (whole, other))| {
            let (whole, other) = (*whole as f64, *other as f64);
            *own as f64 * (whole / (whole + other)).ln()
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::chance;

    #[test]
    fn chance_by_hand() {
        // Two profiles of one size: each sample is a toss.
        assert!((chance(&[3], &[100], &[100]).exp() - 0.125).abs() < 1e-12);
        // The other one has no samples at all: nothing is said.
        assert_eq!(chance(&[3], &[100], &[0]), 0.0);
        // The other one is three times as long, and two events tell.
        let found = chance(&[1, 2], &[100, 10], &[300, 30]).exp();
        assert!((found - 0.25_f64.powi(3)).abs() < 1e-12, "{found}");
    }
}
