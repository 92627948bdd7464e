//! Whether an estimate depends on the windows' length, as it must not.

use super::estimator::Interval;
use super::interval::student_two_sided;

/// A metric from the shorter and from the longer half of the bursts. Both are wrong if windows are too long for the
/// function's runs, the longer one more: a difference that chance does not explain is a bias of both.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Drift {
    /// From the shorter windows.
    pub short: Interval,
    /// Their mean length, in events of the leader.
    pub short_length: f64,
    /// From the longer windows.
    pub long: Interval,
    /// Their mean length.
    pub long_length: f64,
    /// Degrees of freedom of the difference.
    pub freedom: f64,
    /// The probability that chance makes a difference at least as large. NaN where nothing varied.
    pub probability: f64,
}

impl Drift {
    /// From interval, degrees of freedom, bursts and mean length of each half; `None` if the lengths are the same or
    /// a half is a single burst.
    pub(super) fn of(
        short: (Interval, f64, u64, f64),
        long: (Interval, f64, u64, f64),
    ) -> Option<Self> {
        // Counts of the leader vary a little around the period: that is no other length.
        const DIFFERENT: f64 = 1.05;
        if short.1 <= 0.0 || long.1 <= 0.0 || long.3 < DIFFERENT * short.3 {
            return None;
        }
        let (one, other) = (short.0.error.powi(2), long.0.error.powi(2));
        let error = (one + other).sqrt();
        let freedom = (one + other).powi(2) / (one * one / short.1 + other * other / long.1);
        let difference = long.0.value - short.0.value;
        Some(Self {
            short: short.0,
            short_length: short.3,
            long: long.0,
            long_length: long.3,
            freedom,
            probability: student_two_sided(difference / error, freedom),
        })
    }

    /// Long minus short.
    pub fn difference(&self) -> f64 {
        self.long.value - self.short.value
    }

    /// Returns the metric of windows of no length, by a straight line through both halves. This is a direction and no estimate:
    /// its error is several times that of either half.
    pub fn at_no_length(&self) -> f64 {
        let slope = self.difference() / (self.long_length - self.short_length);
        self.short.value - slope * self.short_length
    }
}
