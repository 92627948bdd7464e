//! Estimates of all calls from the sampled ones.
//!
//! A chosen execution of a sampled function is a *cluster*, together with its subtree if that comes and goes with it.
//! Calls in a cluster stand for as many calls as the execution does. The differences between clusters of the same
//! function give the error, as for a random sample without repetition; a function that occurs in only some of them
//! counts as 0 in the others. A cluster within another one is a sample within a sample: scaled, it is a part of the
//! outer one.
//!
//! Sums are kept for groups of calls, which callers number: those of a function, of a module, of a thread.

use crate::frames::OpenCalls;
use crate::statistics::{Sampled, ScaledEstimate};
use crate::view::View;
use dioptra_filters::SampleKind;
use rustc_hash::FxHashMap;

/// Calls, total time, self time.
type CallSums = [f64; 3];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallRole {
    /// A call that is not chosen by itself.
    Ordinary,
    /// A chosen execution that comes and goes together with the calls below it.
    Tree,
    /// A chosen execution that comes and goes alone.
    Alone,
}

#[derive(Clone, Copy, Debug)]
struct OpenSample {
    function: u32,
    weight: f64,
    /// The weight of the calls below it.
    below: f64,
    kind: CallRole,
}

/// The clusters of one sampled function.
#[derive(Clone, Copy, Debug, Default)]
struct SampledRoot {
    /// The number of clusters that were seen.
    clusters: u64,
    /// The sum of the weights of the calls around them.
    around: f64,
    /// The number of executions that were chosen in all threads that counted them, seen or not.
    chosen: u64,
    /// See [`FunctionTotals::variance`](crate::choices::FunctionTotals::variance).
    variance: f64,
    /// The number of clusters of threads that did not count, and the sum of `weight * (weight - 1)` over them: each
    /// was chosen independently.
    uncounted: u64,
    guessed: f64,
    /// True if the number of executions is unknown for which some clusters stand.
    is_unknown: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct ClusterSums {
    sums: CallSums,
    squares: CallSums,
}

/// The sums of one group.
#[derive(Clone, Copy, Debug, Default)]
struct SummedGroup {
    sums: CallSums,
    sampled: bool,
}

#[derive(Debug, Default)]
pub(crate) struct ClusterEstimator {
    frames: OpenCalls<OpenSample>,
    /// The sums by group.
    whole: FxHashMap<u32, SummedGroup>,
    /// The clusters by sampled function.
    roots: FxHashMap<u32, SampledRoot>,
    /// The sums by sampled function and group.
    parts: FxHashMap<(u32, u32), ClusterSums>,
    /// The open clusters, the innermost last: the sums of their groups.
    open: OpenCalls<FxHashMap<u32, CallSums>>,
}

impl ClusterEstimator {
    pub fn enter(&mut self, function: u32, weight: f64, view: &View<'_>, place: usize) {
        let around = self.frames.last().map_or(1.0, |frame| frame.below);
        let kind = self.kind(function, view);
        if kind != CallRole::Ordinary {
            let root = self.roots.entry(function).or_insert_with(|| {
                let whole = view.whole(function).copied().unwrap_or_default();
                SampledRoot {
                    chosen: whole.chosen,
                    variance: whole.variance,
                    ..SampledRoot::default()
                }
            });
            root.clusters += 1;
            root.around += around;
            if !view.is_counted(place, function) {
                let own = weight / around;
                root.uncounted += 1;
                root.guessed += own * (own - 1.0);
                root.is_unknown |= !view
                    .recorded_sampling(function)
                    .is_some_and(|recorded| recorded.has_nominal_weight());
            }
        }
        if kind == CallRole::Tree {
            self.open.push(FxHashMap::default());
        }
        self.frames.push(OpenSample {
            function,
            weight,
            below: if kind == CallRole::Alone {
                around
            } else {
                weight
            },
            kind,
        });
    }

    fn kind(&self, function: u32, view: &View<'_>) -> CallRole {
        match view.chosen(function) {
            // The slowest executions stand for themselves.
            Some(chosen) if chosen.kind == SampleKind::Tail => CallRole::Ordinary,
            Some(chosen) if chosen.alone => CallRole::Alone,
            Some(_) => {
                let mut around = self.frames.current().iter();
                // Recursion within a chosen execution belongs to it.
                match around.any(|f| f.kind == CallRole::Tree && f.function == function) {
                    true => CallRole::Ordinary,
                    false => CallRole::Tree,
                }
            }
            None => CallRole::Ordinary,
        }
    }

    /// Ends the innermost call with its duration and its own time. `groups` are the groups that the call belongs to, each
    /// with true if no call around it does.
    pub fn leave(
        &mut self,
        (duration, own): (u64, u64),
        groups: impl Iterator<Item = (u32, bool)> + Clone,
        entered: bool,
        is_seen: bool,
    ) {
        let Some(frame) = self.frames.pop() else {
            return;
        };
        let sums = |outermost: bool| match is_seen {
            true => [
                f64::from(u8::from(entered)),
                if outermost { duration as f64 } else { 0.0 },
                own as f64,
            ],
            false => [0.0; 3],
        };
        let root = self.roots.get(&frame.function);
        let is_chosen = frame.kind != CallRole::Ordinary
            && root.is_some_and(|root| root.variance > 0.0 || root.is_unknown);
        for (group, outermost) in groups.clone() {
            let whole = self.whole.entry(group).or_default();
            for (sum, value) in whole.sums.iter_mut().zip(sums(outermost)) {
                *sum += value * frame.weight;
            }
            whole.sampled |= frame.weight != 1.0 || is_chosen;
        }
        let mut cluster = match frame.kind {
            CallRole::Ordinary => {
                for (group, outermost) in groups {
                    add(self.open.last_mut(), group, sums(outermost), 1.0);
                }
                return;
            }
            CallRole::Tree => self.open.pop().unwrap_or_default(),
            CallRole::Alone => FxHashMap::default(),
        };
        for (group, outermost) in groups {
            add(Some(&mut cluster), group, sums(outermost), 1.0);
        }
        let around = self.frames.last().map_or(1.0, |frame| frame.below);
        for (group, sums) in cluster {
            add(self.open.last_mut(), group, sums, frame.weight / around);
            let part = self.parts.entry((frame.function, group)).or_default();
            for (index, value) in sums.into_iter().enumerate() {
                part.sums[index] += value;
                part.squares[index] += value * value;
            }
        }
    }

    pub fn switch(&mut self, stack: u32) {
        self.frames.switch(stack);
        self.open.switch(stack);
    }

    /// Returns the estimated sums over all calls of a group; `None` if no part of them is sampled. `own` is the function of
    /// all of its calls, if they have one.
    pub fn estimate(&self, group: u32, own: Option<u32>) -> Option<Sampled> {
        let whole = self.whole.get(&group)?;
        if !whole.sampled {
            return None;
        }
        let [calls, total, self_time] = std::array::from_fn(|index| ScaledEstimate {
            value: whole.sums[index].max(0.0),
            standard_error: self.error(group, own, index),
        });
        Some(Sampled {
            calls,
            total,
            self_time,
        })
    }

    fn error(&self, group: u32, own: Option<u32>, index: usize) -> Option<f64> {
        let mut variance = 0.0;
        for (root, known) in &self.roots {
            if let Some(part) = self.parts.get(&(*root, group)) {
                let around = known.around / known.clusters as f64;
                variance += around * known.part_variance(part, index, own == Some(*root))?;
            }
        }
        Some(variance.sqrt())
    }
}

impl SampledRoot {
    /// Returns the variance of a sum over all executions; `None` if too little is known.
    fn part_variance(&self, part: &ClusterSums, index: usize, is_own: bool) -> Option<f64> {
        if self.is_unknown {
            return None;
        }
        // Executions that were filtered out, or are outside of the view's time, count as 0.
        let count = self.clusters.max(self.chosen + self.uncounted) as f64;
        let (sum, squares) = (part.sums[index], part.squares[index]);
        let guessed = self.guessed * squares / count;
        let is_counted = is_own && index == 0 && sum == count && squares == count;
        if self.variance <= 0.0 || is_counted {
            return Some(guessed);
        }
        if count < 2.0 {
            return None;
        }
        let mean = sum / count;
        let mut spread = (squares - sum * mean).max(0.0) / (count - 1.0);
        if index == 0 && spread <= 1e-9 * mean * mean {
            // Many equal numbers of calls do not prove that the others are equal, too: as if one more were 0.
            spread = mean * mean / (count + 1.0);
        }
        Some(guessed + self.variance * spread)
    }
}

/// Adds a group's sums to those of a cluster.
fn add(cluster: Option<&mut FxHashMap<u32, CallSums>>, group: u32, sums: CallSums, scale: f64) {
    if let Some(cluster) = cluster {
        let part = cluster.entry(group).or_default();
        for (sum, value) in part.iter_mut().zip(sums) {
            *sum += value * scale;
        }
    }
}
