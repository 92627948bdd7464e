//! Estimated numbers of events, and their statistical errors.
//!
//! A sample stands for its period. The number of samples at a place is random, with a variance equal to that number
//! (Poisson). The variance of a sum of periods is therefore the sum of their squares. Where a counter ran only part of
//! the time, each sample stands for its period times the factor of its own interval, and its square grows with the
//! factor's.

use crate::counts::counter::{Count, Dense, Hit};

/// An estimated number of events and how uncertain it is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// Events; scaled where the counter did not run all the time, else the exact sum of the periods.
    pub value: f64,
    /// Its variance, in events squared.
    pub variance: f64,
}

impl Estimate {
    /// Returns the estimate of a count whose samples all weigh the same.
    pub fn of(count: Count) -> Estimate {
        let weight = count.weight as f64;
        Estimate {
            value: weight,
            variance: if count.samples == 0 {
                0.0
            } else {
                weight * weight / count.samples as f64
            },
        }
    }

    /// Returns the standard error, in events.
    pub fn error(&self) -> f64 {
        self.variance.sqrt()
    }

    /// Adds the estimate of other samples.
    pub fn add(&mut self, other: Estimate) {
        self.value += other.value;
        self.variance += other.variance;
    }
}

/// Sums of squared weights and of scaled weights, by cell. Each list is kept only from the first sample that needs it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spread {
    /// The weight of all samples so far, until one differs.
    constant: Option<u64>,
    /// The sums of squares by cell; empty while all samples weigh the same and none is scaled.
    squares: Vec<f64>,
    /// Whether `squares` is in use.
    varied: bool,
    /// The sums of scaled weights by cell; `None` until a factor differs from 1.
    scaled: Option<Vec<f64>>,
}

impl Spread {
    /// Adds a sample to a cell; `before` are the counts without this sample.
    pub(crate) fn add(&mut self, before: &Dense, cell: u32, hit: Hit) {
        let constant = *self.constant.get_or_insert(hit.weight);
        let scales = hit.factor != 1.0;
        if !self.varied && (constant != hit.weight || scales) {
            self.varied = true;
            self.squares = before
                .all()
                .iter()
                .map(|count| Estimate::of(*count).variance)
                .collect();
        }
        if scales && self.scaled.is_none() {
            let weights = before.all().iter().map(|count| count.weight as f64);
            self.scaled = Some(weights.collect());
        }
        let value = hit.weight as f64 * hit.factor;
        if self.varied {
            add(&mut self.squares, cell, value * value);
        }
        if let Some(scaled) = &mut self.scaled {
            add(scaled, cell, value);
        }
    }

    pub(crate) fn is_scaled(&self) -> bool {
        self.scaled.is_some()
    }

    /// Returns the estimate of a cell with this count. A cell that a selection emptied has a count of zero.
    pub(crate) fn estimate(&self, cell: u32, count: Count) -> Estimate {
        if count.is_zero() {
            return Estimate::default();
        }
        let plain = Estimate::of(count);
        let of = |column: &[f64]| column.get(cell as usize).copied().unwrap_or(0.0);
        Estimate {
            value: self.scaled.as_deref().map_or(plain.value, of),
            variance: if self.varied {
                of(&self.squares)
            } else {
                plain.variance
            },
        }
    }
}

fn add(column: &mut Vec<f64>, cell: u32, value: f64) {
    let index = cell as usize;
    if index >= column.len() {
        column.resize(index + 1, 0.0);
    }
    column[index] += value;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::counter::{Counter, Keep};

    fn counts(hits: &[(u32, u64, f64)]) -> crate::counts::counter::Counts {
        let mut counter = Counter::new(Keep {
            spread: true,
            ..Keep::default()
        });
        for (place, weight, factor) in hits {
            let hit = Hit {
                weight: *weight,
                elapsed: None,
                factor: *factor,
                in_kernel: false,
            };
            counter.add(0, *place, hit);
        }
        counter.freeze()
    }

    #[test]
    fn squares_add_up_whenever_weights_begin_to_differ() {
        let all: [(u32, u64, f64); 6] = [
            (0, 5, 1.0),
            (1, 5, 1.0),
            (0, 5, 1.0),
            (1, 7, 1.0),
            (2, 5, 4.0),
            (0, 2, 1.0),
        ];
        for end in 0..=all.len() {
            let hits = &all[..end];
            let counts = counts(hits);
            for place in 0..3 {
                let here = || hits.iter().filter(|hit| hit.0 == place);
                let expected = Estimate {
                    value: here().map(|hit| hit.1 as f64 * hit.2).sum(),
                    variance: here().map(|hit| (hit.1 as f64 * hit.2).powi(2)).sum(),
                };
                assert_eq!(counts.estimate(place), expected, "{end} {place}");
            }
            assert_eq!(counts.is_scaled(), end > 4);
        }
    }
}
