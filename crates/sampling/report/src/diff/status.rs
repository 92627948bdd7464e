//! The status of rows in a comparison: new, gone, or merely not sampled.

use super::test::adjusted;
use crate::grid::Grid;
use dioptra_tables::{Cell, Facts, Severity};
use serde_json::json;

/// The largest part of the rows marked `new` or `gone` that chance may have left without samples in the other
/// profile.
const LEAST_LIKELY: f64 = 0.05;

/// The profiles that have samples of a row.
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

/// Finds the status of each row in the profile of this slot. `samples` holds the numbers of samples of whole
/// profiles, by slot and event.
///
/// Take a row with the same share of both profiles. Each of its samples lies in the profile that has them with the
/// probability p = own ÷ (own + other), the ratio of the profiles' samples, whatever the share is. All n of them lie
/// there with the probability pⁿ; the probabilities of several events multiply. The probabilities of all such rows of
/// a level are adjusted for their number (Benjamini and Hochberg).
pub(super) fn find(grid: &Grid, samples: &[Vec<u64>], slot: usize) -> Vec<Status> {
    let mut found = vec![Status::Both; grid.len()];
    let events = samples[0].len();
    // For each level: the rows that only one profile has, the probability that chance made them so, and whether they
    // are gone.
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

/// Adds the fact that explains doubtful statuses.
pub(super) fn add_fact(facts: &mut Facts) {
    facts.add(
        Severity::Info,
        "perhaps_unsampled",
        "new? and gone?: so few samples that chance may have left the row out of the other profile",
        json!(LEAST_LIKELY),
    );
}

/// Returns the logarithm of the probability that all samples of a row, by event, lie in the profile with the samples
/// `whole` and none in the one with the samples `other`.
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
        // The other one has no samples at all, so the row's absence there says nothing.
        assert_eq!(chance(&[3], &[100], &[0]), 0.0);
        // The other one is three times as long, and two events tell.
        let found = chance(&[1, 2], &[100, 10], &[300, 30]).exp();
        assert!((found - 0.25_f64.powi(3)).abs() < 1e-12, "{found}");
    }
}
