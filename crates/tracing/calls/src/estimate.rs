//! From sampled calls back to all of them.
//!
//! A chosen execution of a sampled function, with its subtree, is a *cluster*. What is below stands for as many calls as
//! the execution does. How much clusters of the same function differ tells the error, as for a random sample without
//! repetition; a function that occurs in only some of them is 0 in the others.

use crate::View;
use crate::frames::Frames;
use crate::statistics::{FunctionTimes, Sampled};
use dioptra_filters::Estimate;
use rustc_hash::FxHashMap;

/// Calls, total time, self time.
type Sums = [f64; 3];

#[derive(Clone, Copy, Debug)]
struct Frame {
    function: u32,
    weight: f64,
    /// A chosen execution.
    chosen: bool,
    /// Whether it is in a cluster, its own or one around it.
    inside: bool,
}

/// The clusters of one sampled function.
#[derive(Clone, Copy, Debug, Default)]
struct Root {
    clusters: u64,
    weights: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Part {
    sums: Sums,
    squares: Sums,
}

/// What is known of one function.
#[derive(Clone, Copy, Debug, Default)]
struct Whole {
    sums: Sums,
    sampled: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Clusters {
    frames: Frames<Frame>,
    whole: FxHashMap<u32, Whole>,
    roots: FxHashMap<u32, Root>,
    /// By sampled function and function.
    parts: FxHashMap<(u32, u32), Part>,
    /// Open clusters, the innermost last: what its functions sum up to.
    open: Frames<FxHashMap<u32, Sums>>,
}

impl Clusters {
    pub fn enter(&mut self, function: u32, weight: f64, view: &View<'_>) {
        let around = self.frames.last().copied();
        let alone = view
            .recorded_sampling(function)
            .is_some_and(|sampling| !sampling.tree);
        let is_root = view.sampling(function).is_some()
            // Recursion within a chosen execution belongs to it, if what it calls does.
            && (alone || !self.frames.current().iter().any(|f| f.chosen && f.function == function));
        let inside = around.is_some_and(|around| around.inside && weight >= around.weight);
        if is_root {
            self.open.push(FxHashMap::default());
            let root = self.roots.entry(function).or_default();
            root.clusters += 1;
            root.weights += weight;
        }
        self.frames.push(Frame {
            function,
            weight,
            chosen: is_root,
            inside: inside || is_root,
        });
    }

    pub fn leave(
        &mut self,
        (duration, own): (u64, u64),
        outermost: bool,
        entered: bool,
        is_seen: bool,
    ) {
        let Some(frame) = self.frames.pop() else {
            return;
        };
        let sums = match is_seen {
            true => [
                f64::from(u8::from(entered)),
                if outermost { duration as f64 } else { 0.0 },
                own as f64,
            ],
            false => [0.0; 3],
        };
        let whole = self.whole.entry(frame.function).or_default();
        for (sum, value) in whole.sums.iter_mut().zip(sums) {
            *sum += value * frame.weight;
        }
        whole.sampled |= frame.weight != 1.0 || frame.chosen;
        if frame.inside
            && let Some(open) = self.open.last_mut()
        {
            let part = open.entry(frame.function).or_default();
            for (sum, value) in part.iter_mut().zip(sums) {
                *sum += value;
            }
        }
        if frame.chosen
            && let Some(cluster) = self.open.pop()
        {
            for (function, sums) in cluster {
                let part = self.parts.entry((frame.function, function)).or_default();
                for (index, value) in sums.into_iter().enumerate() {
                    part.sums[index] += value;
                    part.squares[index] += value * value;
                }
            }
        }
    }

    pub fn switch(&mut self, stack: u32) {
        self.frames.switch(stack);
        self.open.switch(stack);
    }

    /// What all calls of a function sum up to; none if nothing of it is sampled.
    pub fn estimate(&self, times: &FunctionTimes) -> Option<Sampled> {
        let whole = self.whole.get(&times.function)?;
        if !whole.sampled {
            return None;
        }
        let [calls, total, self_time] = std::array::from_fn(|index| Estimate {
            value: whole.sums[index].max(0.0),
            standard_error: self.error(times.function, index),
        });
        Some(Sampled {
            calls,
            total,
            self_time,
        })
    }

    fn error(&self, function: u32, index: usize) -> Option<f64> {
        let mut variance = 0.0;
        for (root, known) in &self.roots {
            let Some(part) = self.parts.get(&(*root, function)) else {
                continue;
            };
            let count = known.clusters as f64;
            let weight = known.weights / count;
            if weight <= 1.0 {
                continue;
            }
            if known.clusters < 2 {
                return None;
            }
            let (sum, squares) = (part.sums[index], part.squares[index]);
            let spread = (squares - sum * sum / count).max(0.0) / (count - 1.0);
            variance += count * weight * (weight - 1.0) * spread;
        }
        Some(variance.sqrt())
    }
}
