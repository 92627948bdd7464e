//! Estimates of totals over all executions from the shown ones.

/// An estimator of totals over all executions of a sampled function from the shown ones.
///
/// The estimate is valid for executions chosen by count or at random. A rate shows executions after a pause too often,
/// and a tail shows the slow ones on purpose: their shown executions do not represent the others.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Scaled {
    shown: u64,
    mean: f64,
    /// The sum of the squared distances from the mean.
    spread: f64,
}

/// An estimated number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScaledEstimate {
    /// The estimate.
    pub value: f64,
    /// The standard error; `None` if too few executions were shown.
    pub standard_error: Option<f64>,
}

impl Scaled {
    /// Takes in one shown execution: its duration, the number of calls below it, or any other quantity to be summed.
    pub fn push(&mut self, value: f64) {
        self.shown += 1;
        let distance = value - self.mean;
        self.mean += distance / self.shown as f64;
        self.spread += distance * (value - self.mean);
    }

    /// Returns the number of executions that were taken in.
    #[must_use]
    pub fn shown(&self) -> u64 {
        self.shown
    }

    /// Returns the total over all `seen` executions. The error is that of a random sample without repetition.
    #[must_use]
    pub fn total(&self, seen: u64) -> ScaledEstimate {
        let (shown, all) = (self.shown as f64, seen as f64);
        let standard_error = if self.shown >= seen {
            Some(0.0)
        } else if self.shown < 2 {
            None
        } else {
            let variance = self.spread / (shown - 1.0);
            Some(all * ((1.0 - shown / all) * variance / shown).sqrt())
        };
        ScaledEstimate {
            value: self.mean * all.max(shown),
            standard_error,
        }
    }

    /// Returns the mean of one execution.
    #[must_use]
    pub fn mean(&self, seen: u64) -> ScaledEstimate {
        let all = (seen.max(self.shown) as f64).max(1.0);
        let total = self.total(seen);
        ScaledEstimate {
            value: self.mean,
            standard_error: total.standard_error.map(|error| error / all),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::next;

    #[test]
    fn everything_shown_is_exact() {
        let mut scaled = Scaled::default();
        for value in [1.0, 2.0, 6.0] {
            scaled.push(value);
        }
        let total = scaled.total(3);
        assert_eq!((total.value, total.standard_error), (9.0, Some(0.0)));
        assert_eq!(scaled.mean(3).value, 3.0);
    }

    #[test]
    fn one_of_many_has_no_error_to_tell() {
        let mut scaled = Scaled::default();
        assert_eq!(scaled.total(0).value, 0.0);
        scaled.push(5.0);
        let total = scaled.total(10);
        assert_eq!((total.value, total.standard_error), (50.0, None));
    }

    #[test]
    fn intervals_of_two_errors_cover_the_truth() {
        let mut state = 11;
        let mut covered = 0;
        let runs = 2_000;
        for _ in 0..runs {
            let (mut scaled, mut truth) = (Scaled::default(), 0.0);
            for _ in 0..1_000 {
                let value = (next(&mut state) % 1_000) as f64;
                truth += value;
                if next(&mut state).is_multiple_of(10) {
                    scaled.push(value);
                }
            }
            let total = scaled.total(1_000);
            let error = total.standard_error.unwrap();
            covered += u32::from((total.value - truth).abs() <= 1.96 * error);
        }
        // 95 % of 2,000 is 1,900, with a standard error of 10.
        assert!((1_860..=1_940).contains(&covered), "{covered}");
    }
}
