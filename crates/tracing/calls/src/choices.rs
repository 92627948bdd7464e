//! The counts of sampled functions: executions, chosen ones among them, and the number of executions for which each
//! chosen one stands.
//!
//! Each thread has counters of its own, so each thread has a weight of its own: its executions divided by its chosen
//! ones. The executions of threads in which none was chosen are divided among the chosen ones of the other threads.

use dioptra_filters::{Plan, SampleKind, Sampler};
use rustc_hash::FxHashMap;

/// The counters of one function in one thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadCounts {
    /// The stream's index in [`View::streams`](crate::View::streams); `None` for a thread without records.
    pub place: Option<usize>,
    pub function: u32,
    /// The executions that would be shown without sampling.
    pub seen: u64,
    /// The chosen executions.
    pub shown: u64,
    /// The number of executions that each seen one stands for, by a sampling before this one.
    pub before: f64,
}

/// The counters of one function in all threads of a view.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FunctionTotals {
    /// The executions, scaled back by samplings before this one.
    pub seen: f64,
    pub chosen: u64,
    /// The variance of an estimated sum over all executions, in units of the variance of one execution.
    pub variance: f64,
}

/// The chosen executions of all sampled functions of a view.
#[derive(Debug, Default)]
pub(crate) struct Choices {
    weights: FxHashMap<(usize, u32), f64>,
    functions: FxHashMap<u32, FunctionTotals>,
}

impl Choices {
    pub fn new(tallies: &[ThreadCounts]) -> Choices {
        let mut functions: FxHashMap<u32, FunctionTotals> = FxHashMap::default();
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
            // There are records of more executions than were counted, so nothing is scaled.
            let own = (tally.seen as f64 / tally.shown as f64).max(1.0);
            let weight = own * others;
            // An estimated sum has two errors: the chosen executions count for others beside themselves, and the
            // executions that were not chosen vary; both vary as one execution does.
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

    /// Returns the number of executions for which a chosen one of a stream stands; `None` if they were not counted.
    #[inline]
    pub fn weight(&self, place: usize, function: u32) -> Option<f64> {
        self.weights.get(&(place, function)).copied()
    }

    /// Returns the sums over all threads.
    pub fn whole(&self, function: u32) -> Option<&FunctionTotals> {
        self.functions.get(&function)
    }

    /// Returns the sums of each function.
    pub fn functions(&self) -> impl Iterator<Item = (u32, &FunctionTotals)> {
        self.functions.iter().map(|(id, whole)| (*id, whole))
    }

    /// Returns the weights of a stream by sampling slot of `plan`; each function has a slot of its own.
    pub fn by_slot(&self, plan: &Plan, place: usize, functions: u32) -> Vec<f64> {
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

/// Returns the functions that a plan samples, each with its sampling slot. The slowest executions stand for
/// themselves, so `sample=pNN` is left out.
fn sampled<'p>(plan: &'p Plan, functions: u32) -> impl Iterator<Item = (u32, usize)> + 'p {
    (0..functions).filter_map(|function| {
        let sampling = plan.sampling(plan.action_of(function))?;
        (sampling.kind != SampleKind::Tail).then_some((function, sampling.slot as usize))
    })
}

/// Returns true if a plan samples any function by counting.
pub(crate) fn has_counts(plan: &Plan, functions: u32) -> bool {
    plan.sampler_count() > 0 && sampled(plan, functions).next().is_some()
}

/// Returns the counts of a stream's samplers; `before` returns the number of executions for which each one stands.
pub(crate) fn tallies(
    plan: &Plan,
    samplers: &[Sampler],
    place: usize,
    functions: u32,
    before: impl Fn(u32) -> f64,
) -> Vec<ThreadCounts> {
    let counted = sampled(plan, functions).filter_map(|(function, slot)| {
        let sampler = samplers.get(slot)?;
        Some(ThreadCounts {
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

    fn tally(place: usize, seen: u64, shown: u64) -> ThreadCounts {
        ThreadCounts {
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
