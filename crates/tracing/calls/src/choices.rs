//! How many executions of sampled functions there were, how many of them were chosen, and for how many each of those stands.
//!
//! Each thread has counters of its own, so each thread has a weight of its own: its executions divided by its chosen ones.
//! The executions of threads in which none was chosen are divided among the chosen ones of the other threads.

use dioptra_filters::{Plan, SampleKind, Sampler};
use rustc_hash::FxHashMap;

/// The counters of one function in one thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tally {
    /// The stream's place in [`View::streams`](crate::View::streams); none for a thread without records.
    pub place: Option<usize>,
    pub function: u32,
    /// Executions that would be shown without sampling.
    pub seen: u64,
    /// The chosen ones among them.
    pub shown: u64,
    /// How many executions each seen one stands for, by a sampling before this one.
    pub before: f64,
}

/// The counters of one function in all threads of a view.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Whole {
    /// Executions, with what was sampled before scaled back.
    pub seen: f64,
    pub chosen: u64,
    /// The variance of an estimated sum over all executions, in units of the variance of one execution.
    pub variance: f64,
}

/// The chosen executions of all sampled functions of a view.
#[derive(Debug, Default)]
pub(crate) struct Choices {
    weights: FxHashMap<(usize, u32), f64>,
    functions: FxHashMap<u32, Whole>,
}

impl Choices {
    pub fn new(tallies: &[Tally]) -> Choices {
        let mut functions: FxHashMap<u32, Whole> = FxHashMap::default();
        let mut represented: FxHashMap<u32, f64> = FxHashMap::default();
        for tally in tallies {
            let whole = functions.entry(tally.function).or_default();
            let seen = tally.seen as f64 * tally.before;
            whole.seen += seen;
            whole.chosen += tally.shown;
            if tally.shown > 0 {
                *represented.entry(tally.function).or_default() += seen;
            }
        }
        let mut weights = FxHashMap::default();
        for tally in tallies.iter().filter(|tally| tally.shown > 0) {
            let Some(whole) = functions.get_mut(&tally.function) else {
                continue;
            };
            let known = represented.get(&tally.function).copied().unwrap_or(0.0);
            let others = if known > 0.0 { whole.seen / known } else { 1.0 };
            // Records of more executions than were counted: nothing is to be scaled.
            let own = (tally.seen as f64 / tally.shown as f64).max(1.0);
            let weight = own * others;
            // An estimated sum is wrong by what the chosen executions count for beside themselves, and by the executions
            // that were not chosen; both vary as one execution does.
            let beside = weight * tally.before - 1.0;
            whole.variance += tally.shown as f64 * beside * beside;
            if let Some(place) = tally.place {
                weights.insert((place, tally.function), weight);
            }
        }
        for whole in functions.values_mut() {
            whole.variance += (whole.seen - whole.chosen as f64).max(0.0);
        }
        Choices { weights, functions }
    }

    /// How many executions a chosen one of a stream stands for; none if they were not counted.
    #[inline]
    pub fn weight(&self, place: usize, function: u32) -> Option<f64> {
        self.weights.get(&(place, function)).copied()
    }

    /// The sums over all threads.
    pub fn whole(&self, function: u32) -> Option<&Whole> {
        self.functions.get(&function)
    }

    /// Of each function: its executions and the chosen ones.
    pub fn functions(&self) -> impl Iterator<Item = (u32, &Whole)> {
        self.functions.iter().map(|(id, whole)| (*id, whole))
    }

    /// The weights of a stream by the samplers of `plan`, of which each function has one.
    pub fn by_slot(&self, plan: &Plan<'_>, place: usize, functions: u32) -> Vec<f64> {
        let mut scales = vec![1.0; plan.sampler_count()];
        for (function, slot) in sampled(plan, functions) {
            if let Some(scale) = scales.get_mut(slot)
                && let Some(weight) = self.weight(place, function)
            {
                *scale = weight;
            }
        }
        scales
    }
}

/// The functions that a plan samples, each with the place of its counters. The slowest executions stand for themselves.
fn sampled<'p>(plan: &'p Plan<'_>, functions: u32) -> impl Iterator<Item = (u32, usize)> + 'p {
    (0..functions).filter_map(|function| {
        let sampling = plan.sampling(plan.action_of(function))?;
        (sampling.kind != SampleKind::Tail).then_some((function, sampling.slot as usize))
    })
}

/// Whether a plan samples any function by counting.
pub(crate) fn has_counts(plan: &Plan<'_>, functions: u32) -> bool {
    plan.sampler_count() > 0 && sampled(plan, functions).next().is_some()
}

/// What a stream's samplers have counted; `before` tells for how many executions each one stands.
pub(crate) fn tallies(
    plan: &Plan<'_>,
    samplers: &[Sampler],
    place: usize,
    functions: u32,
    before: impl Fn(u32) -> f64,
) -> Vec<Tally> {
    let counted = sampled(plan, functions).filter_map(|(function, slot)| {
        let sampler = samplers.get(slot)?;
        Some(Tally {
            place: Some(place),
            function,
            seen: sampler.seen(),
            shown: sampler.shown(),
            before: before(function),
        })
    });
    counted.filter(|tally| tally.seen > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(place: usize, seen: u64, shown: u64) -> Tally {
        Tally {
            place: Some(place),
            function: 1,
            seen,
            shown,
            before: 1.0,
        }
    }

    #[test]
    fn chosen_executions_stand_for_those_of_threads_without_any() {
        let tallies = [tally(0, 199, 1), tally(1, 199, 3), tally(2, 199, 0)];
        let choices = Choices::new(&tallies);
        let sum: f64 = tallies
            .iter()
            .filter_map(|t| Some(choices.weight(t.place?, 1)? * t.shown as f64))
            .sum();
        assert!((sum - 597.0).abs() < 1e-9, "{sum}");
        let whole = choices.whole(1).expect("counted");
        assert_eq!((whole.seen, whole.chosen), (597.0, 4));
    }

    #[test]
    fn the_variance_is_that_of_a_random_sample_without_repetition() {
        // N (N - n) / n.
        let whole = *Choices::new(&[tally(0, 100, 10)])
            .whole(1)
            .expect("counted");
        assert!((whole.variance - 900.0).abs() < 1e-9);
        // All were chosen.
        let whole = *Choices::new(&[tally(0, 7, 7)]).whole(1).expect("counted");
        assert!(whole.variance.abs() < 1e-9);
    }
}
