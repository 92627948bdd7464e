//! Counts of distinct values, in bounded memory.

use crate::hash::mix;

/// The largest number of hashes kept, which take 1 KiB.
const KEPT: usize = 128;

/// A counter of distinct values: exact up to 127, beyond that estimated from the smallest hashes.
#[derive(Clone, Debug, Default)]
pub(super) struct Sketch {
    /// The smallest hashes, rising.
    smallest: Vec<u64>,
}

/// A number of distinct things.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Distinct {
    /// The number of values.
    pub count: f64,
    /// Standard error; 0 where the count is exact.
    pub error: f64,
}

impl Sketch {
    #[inline]
    pub fn add(&mut self, space: u64, value: u64) {
        self.add_hash(mix(space, value));
    }

    /// Adds the values that another sketch counted.
    pub fn merge(&mut self, other: &Sketch) {
        other.smallest.iter().for_each(|hash| self.add_hash(*hash));
    }

    #[inline]
    fn add_hash(&mut self, hash: u64) {
        if self.smallest.len() == KEPT && self.smallest[KEPT - 1] <= hash {
            return;
        }
        if let Err(place) = self.smallest.binary_search(&hash) {
            self.smallest.insert(place, hash);
            self.smallest.truncate(KEPT);
        }
    }

    pub fn distinct(&self) -> Distinct {
        match self.smallest.last() {
            // The k-th smallest of n evenly spread hashes lies at k / (n + 1). The estimate (k - 1) / that position has
            // no bias.
            Some(last) if self.smallest.len() == KEPT => {
                let share = *last as f64 / u64::MAX as f64;
                let count = (KEPT - 1) as f64 / share;
                let error = count / ((KEPT - 2) as f64).sqrt();
                Distinct { count, error }
            }
            _ => Distinct {
                count: self.smallest.len() as f64,
                error: 0.0,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_merge_to_the_whole() {
        for values in [10, 127, 200, 5000] {
            let of = |range: std::ops::Range<u64>| {
                let mut sketch = Sketch::default();
                range.for_each(|value| sketch.add(1, value));
                sketch
            };
            let mut merged = of(0..values / 2 + 3);
            merged.merge(&of(values / 2..values));
            assert_eq!(merged.smallest, of(0..values).smallest);
        }
    }

    #[test]
    fn few_are_counted_and_many_estimated() {
        for (values, step) in [(0, 1), (1, 64), (127, 64), (1000, 4096), (100_000, 64)] {
            let mut sketch = Sketch::default();
            for _ in 0..2 {
                for value in 0..values {
                    sketch.add(7, 0x7fff_0000_0000 + value * step);
                }
            }
            let found = sketch.distinct();
            if values < KEPT as u64 {
                assert_eq!((found.count, found.error), (values as f64, 0.0));
            } else {
                let off = (found.count - values as f64).abs();
                assert!(off < 4.0 * found.error, "{found:?} of {values}");
                assert!(found.error < 0.1 * found.count);
            }
        }
    }
}
