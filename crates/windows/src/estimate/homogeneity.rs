//! Whether rows that should have one constant in common do.
//!
//! Each row's own deviation from what all say together, in units of its own error, is squared and summed: Cochran's Q,
//! which of k rows that agree is distributed as chi squared with k − 1 degrees of freedom. What it has more is how much
//! rows differ (DerSimonian and Laird).

use super::interval::chi_squared_quantile;

/// A sum over windows that is made of bursts, which are what repeats. Windows come burst by burst.
#[derive(Debug, Clone, Default)]
pub(super) struct ByBurst {
    burst: Option<u32>,
    of_burst: f64,
    squares: f64,
    bursts: u64,
}

impl ByBurst {
    pub(super) fn add(&mut self, burst: u32, part: f64) {
        if self.burst != Some(burst) {
            self.squares += self.of_burst * self.of_burst;
            self.of_burst = 0.0;
            self.burst = Some(burst);
            self.bursts += 1;
        }
        self.of_burst += part;
    }

    pub(super) fn bursts(&self) -> u64 {
        self.bursts
    }

    /// The variance of the sum of parts whose mean is 0.
    pub(super) fn variance(&self) -> f64 {
        let bursts = self.bursts as f64;
        let squares = self.squares + self.of_burst * self.of_burst;
        squares * bursts / (bursts - 1.0)
    }
}

/// Rows of fewer bursts do not know their own error well enough to disagree.
const LEAST_BURSTS: u64 = 30;
/// The probability at which rows that agree may be found to disagree.
const LEVEL: f64 = 0.01;
/// The probability at which rows that agree may be found to differ at all. Their errors already hold the differences that
/// chance makes.
const SPREAD_LEVEL: f64 = 0.1;

/// The disagreement of rows.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Disagreement {
    squares: f64,
    rows: u32,
    /// Σw and Σw², a row's weight being 1 ÷ its variance.
    weights: f64,
    weight_squares: f64,
}

impl Disagreement {
    /// Adds a row's deviation, with its variance and the number of bursts behind it.
    pub(super) fn add(&mut self, deviation: f64, variance: f64, bursts: u64) {
        if bursts >= LEAST_BURSTS && variance > 0.0 {
            let weight = 1.0 / variance;
            self.squares += deviation * deviation * weight;
            self.weights += weight;
            self.weight_squares += weight * weight;
            self.rows += 1;
        }
    }

    fn freedom(self) -> f64 {
        f64::from(self.rows.saturating_sub(1))
    }

    /// Whether chance does not explain it.
    pub(super) fn is_significant(self) -> bool {
        self.is_rarer_than(LEVEL)
    }

    fn is_rarer_than(self, level: f64) -> bool {
        self.rows > 1 && self.squares > chi_squared_quantile(1.0 - level, self.freedom())
    }

    /// Returns the standard deviation between rows that chance does not explain.
    pub(super) fn spread(self) -> f64 {
        if !self.is_rarer_than(SPREAD_LEVEL) {
            return 0.0;
        }
        let more = self.squares - self.freedom();
        let scale = self.weights - self.weight_squares / self.weights;
        if more > 0.0 && scale > 0.0 {
            (more / scale).sqrt()
        } else {
            0.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_are_what_repeats() {
        let mut sum = ByBurst::default();
        for (burst, part) in [(1, 2.0), (1, 1.0), (4, -3.0), (5, 1.0), (5, -1.0)] {
            sum.add(burst, part);
        }
        assert_eq!((sum.bursts(), sum.variance()), (3, 18.0 * 1.5));
    }

    #[test]
    fn chance_explains_little() {
        let of = |deviations: &[f64]| {
            let mut found = Disagreement::default();
            for deviation in deviations {
                found.add(*deviation, 4.0, 50);
            }
            found
        };
        assert!(!of(&[2.0, -2.0, 1.0]).is_significant());
        // Q = 6 is 4 more than chance has, of three rows of weight 1/4; at 2.25 it is chance.
        assert!((of(&[4.0, -2.0, 2.0]).spread() - 8.0_f64.sqrt()).abs() < 1e-12);
        assert_eq!(of(&[2.0, -2.0, 1.0]).spread(), 0.0);
        assert!(of(&[6.0, -6.0, 1.0]).is_significant());
        // One row agrees with itself, and few bursts say nothing.
        assert!(!of(&[9.0]).is_significant());
        let mut few = of(&[0.0, 0.0]);
        few.add(100.0, 1.0, 29);
        assert!(!few.is_significant());
    }
}
