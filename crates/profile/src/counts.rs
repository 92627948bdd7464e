//! Counts of samples and their weights.

use crate::hash::mix;
use hashbrown::HashTable;

/// How often and how much.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Samples.
    pub samples: u64,
    /// The sum of their periods, in events.
    pub weight: u64,
}

impl Count {
    /// Adds another count. Sums of hostile periods stop at the largest number.
    #[inline]
    pub fn add(&mut self, other: Count) {
        self.samples = self.samples.saturating_add(other.samples);
        self.weight = self.weight.saturating_add(other.weight);
    }

    /// Adds one sample.
    #[inline]
    pub(crate) fn add_sample(&mut self, weight: u64) {
        self.add(Count { samples: 1, weight });
    }

    /// Whether there is no sample.
    pub fn is_zero(&self) -> bool {
        self.samples == 0
    }
}

/// Counts by a small dense id.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dense(Vec<Count>);

impl Dense {
    /// Keeps the counts of those ids only; `keep` is not asked for others.
    pub(crate) fn retain_counted(&mut self, keep: impl Fn(u32) -> bool) {
        for (id, count) in (0_u32..).zip(&mut self.0) {
            if !count.is_zero() && !keep(id) {
                *count = Count::default();
            }
        }
    }

    #[inline]
    pub(crate) fn add(&mut self, id: u32, count: Count) {
        let index = id as usize;
        if index >= self.0.len() {
            self.0.resize(index + 1, Count::default());
        }
        self.0[index].add(count);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, Count)> + '_ {
        (0_u32..)
            .zip(&self.0)
            .filter(|(_, count)| !count.is_zero())
            .map(|(id, count)| (id, *count))
    }
}

/// Counts by a pair of ids: most pairs never occur.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pairs(HashTable<((u32, u32), Count)>);

impl Pairs {
    #[inline]
    pub(crate) fn add(&mut self, pair: (u32, u32), count: Count) {
        let hash = hash(pair);
        self.0
            .entry(hash, |(key, _)| *key == pair, |(key, _)| self::hash(*key))
            .or_insert((pair, Count::default()))
            .into_mut()
            .1
            .add(count);
    }

    /// Keeps the counts of those pairs only.
    pub(crate) fn retain(&mut self, keep: impl Fn((u32, u32)) -> bool) {
        self.0.retain(|(pair, _)| keep(*pair));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = ((u32, u32), Count)> + '_ {
        self.0.iter().copied()
    }
}

#[inline]
fn hash(pair: (u32, u32)) -> u64 {
    mix(u64::from(pair.0), u64::from(pair.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums() {
        let one = Count {
            samples: 1,
            weight: 7,
        };
        let mut dense = Dense::default();
        let mut pairs = Pairs::default();
        for id in [3, 0, 3] {
            dense.add(id, one);
            pairs.add((id, 9), one);
        }
        assert_eq!(
            dense.iter().collect::<Vec<_>>(),
            [
                (0, one),
                (
                    3,
                    Count {
                        samples: 2,
                        weight: 14
                    }
                )
            ]
        );
        let mut pairs: Vec<_> = pairs.iter().collect();
        pairs.sort_by_key(|pair| pair.0);
        assert_eq!(pairs.len(), 2);
        assert_eq!(
            pairs[1],
            (
                (3, 9),
                Count {
                    samples: 2,
                    weight: 14
                }
            )
        );
    }

    #[test]
    fn hostile_periods_do_not_overflow() {
        let mut count = Count::default();
        for _ in 0..3 {
            count.add(Count {
                samples: 1,
                weight: u64::MAX,
            });
        }
        assert_eq!(
            count,
            Count {
                samples: 3,
                weight: u64::MAX
            }
        );
    }
}
