//! Counts of what was seen in branch stacks, and what they stand for.

/// How often something was seen, with what scaling and its error need.
///
/// What is seen in one stack is not independent (a loop's branch fills all of it), so the error comes from how the
/// number of sightings varies between stacks, not from their sum.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub seen: u64,
    /// Sum over the stacks of the square of how often each had it.
    pub squares: u64,
    /// Sum of what each sighting stands for.
    pub scaled: f64,
    /// The stack that had it last, and how often so far.
    last: u32,
    here: u32,
}

impl Tally {
    /// Adds a sighting in stack number `stack` (from 1); returns how often this stack has had it, this one included.
    #[inline]
    pub fn add(&mut self, stack: u32, weight: f64) -> u32 {
        if self.last != stack {
            self.last = stack;
            self.here = 0;
        }
        self.here = self.here.saturating_add(1);
        self.seen += 1;
        self.squares = self.squares.saturating_add(2 * u64::from(self.here) - 1);
        self.scaled += weight;
        self.here
    }
}

/// How often something happened.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Executions {
    /// How often it was seen in branch stacks: exact, but what a stack saw by chance.
    pub seen: u64,
    /// How often it happened in the recorded time, as far as the event tells: see [`super::Counted`]. `None` where
    /// only ratios of `seen` mean something.
    pub estimated: Option<f64>,
    /// Standard error of `seen`, by how it varies from stack to stack; 0 where all branches were recorded. Sums over
    /// several branches or runs have the largest error that is possible, that of parts which vary together.
    pub error: f64,
}

impl Executions {
    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: Executions) -> Executions {
        // Nothing seen is no reason not to know the sum.
        let estimated = match (self.estimated, other.estimated) {
            (Some(one), Some(two)) => Some(one + two),
            (one, None) if other.seen == 0 => one,
            (None, two) if self.seen == 0 => two,
            _ => None,
        };
        Executions {
            seen: self.seen.saturating_add(other.seen),
            estimated,
            error: self.error + other.error,
        }
    }

    /// Standard error of `estimated`.
    pub fn estimated_error(self) -> Option<f64> {
        let estimated = self.estimated?;
        if self.seen == 0 {
            return Some(0.0);
        }
        Some(self.error * estimated / self.seen as f64)
    }
}

/// A share of branches, such as of the mispredicted ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// How many.
    pub part: u64,
    /// Of how many; not 0.
    pub whole: u64,
    /// Standard error of `part / whole`, at least that of a Poisson count of `part` (of one where it is none).
    pub error: f64,
}

impl Share {
    /// The ratio, 0 to 1.
    pub fn ratio(self) -> f64 {
        self.part as f64 / self.whole as f64
    }
}

/// Core cycles that some code took each time it ran.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cycles {
    /// How often it was measured.
    pub samples: u64,
    /// All cycles together.
    pub sum: u64,
    /// The sum of the squares.
    pub(super) squares: u64,
    /// How many measurements stand at the largest count that the record can hold, and may be larger.
    pub saturated: u64,
}

impl Cycles {
    #[inline]
    pub(super) fn add(&mut self, cycles: u16) {
        if cycles == 0 {
            return;
        }
        let wide = u64::from(cycles);
        self.samples += 1;
        self.sum = self.sum.saturating_add(wide);
        self.squares = self.squares.saturating_add(wide * wide);
        self.saturated += u64::from(cycles == u16::MAX);
    }

    /// The mean and its standard error (0 for a single measurement, which tells none); `None` where nothing was
    /// measured.
    pub fn mean(self) -> Option<(f64, f64)> {
        if self.samples == 0 {
            return None;
        }
        let samples = self.samples as f64;
        let mean = self.sum as f64 / samples;
        let spread = (self.squares as f64 / samples - mean * mean).max(0.0);
        let error = if self.samples > 1 {
            (spread / (samples - 1.0)).sqrt()
        } else {
            0.0
        };
        Some((mean, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn squares_are_those_of_each_stack() {
        let mut tally = Tally::default();
        for (stack, times) in [(1, 3), (2, 1), (5, 4)] {
            for _ in 0..times {
                tally.add(stack, 2.0);
            }
        }
        assert_eq!((tally.seen, tally.squares, tally.scaled), (8, 26, 16.0));
    }

    #[test]
    fn cycles_have_a_mean_and_an_error() {
        let mut cycles = Cycles::default();
        assert_eq!(cycles.mean(), None);
        for value in [0, 10, 20, 30, 0] {
            cycles.add(value);
        }
        let (mean, error) = cycles.mean().unwrap();
        assert_eq!((cycles.samples, mean), (3, 20.0));
        // Variance of the sample 100, over three.
        assert!((error - (100.0_f64 / 3.0).sqrt()).abs() < 1e-9);
    }
}
