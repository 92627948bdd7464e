//! Counts of sightings in branch stacks, and the estimates that they stand for.

/// The number of sightings of a branch or run, with the sums that scaling and the standard error need.
///
/// Sightings within one stack are not independent, because a loop's branch fills the whole stack. The error therefore
/// comes from the variation of sightings between stacks, not from their sum.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub seen: u64,
    /// Sum over the stacks of the squared number of sightings in the stack.
    pub squares: u64,
    /// Sum of the weights of the sightings.
    pub scaled: f64,
    /// The number of the last stack with a sighting (`last`), and its sightings so far (`here`).
    last: u32,
    here: u32,
}

impl Tally {
    /// Adds a sighting in stack number `stack` (from 1). Returns the number of sightings in this stack, this one
    /// included.
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

/// A number of executions, as seen and as estimated.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Executions {
    /// The number of sightings in branch stacks: exact, but chance decides what a stack holds.
    pub seen: u64,
    /// The number of executions in the recorded time, as far as the event shows it; see [`super::Counted`]. `None`
    /// where only ratios of `seen` mean something.
    pub estimated: Option<f64>,
    /// Standard error of `seen`, from its variation between stacks; 0 where all branches were recorded. Sums over
    /// several branches or runs have the largest possible error, that of parts which vary together.
    pub error: f64,
}

impl Executions {
    /// Adds two numbers of executions.
    #[must_use]
    pub fn plus(self, other: Executions) -> Executions {
        // A part without sightings does not make the sum unknown.
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

    /// Returns the standard error of `estimated`.
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
    /// The number of branches in the share.
    pub part: u64,
    /// The number of all branches; not 0.
    pub whole: u64,
    /// Standard error of `part / whole`, at least that of a Poisson count of `part` (of one where `part` is 0).
    pub error: f64,
}

impl Share {
    /// Returns the ratio, 0 to 1.
    pub fn ratio(self) -> f64 {
        self.part as f64 / self.whole as f64
    }
}

/// Core cycles of a piece of code, over all its measured runs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cycles {
    /// The number of measured runs.
    pub samples: u64,
    /// All cycles together.
    pub sum: u64,
    /// The sum of the squares.
    pub(super) squares: u64,
    /// The number of measurements at the largest count that a record can hold. Their true values may be larger.
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

    /// Returns the mean and its standard error. The error is 0 for a single measurement, which shows none. `None` where
    /// nothing was measured.
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
