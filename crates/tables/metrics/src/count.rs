//! A count with its uncertainty, and the cell that a formula makes of counts.

use std::sync::Arc;

/// An event's count in one row, as estimated from its samples.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Count {
    /// The number of samples behind the count. A count without samples but with a value was read, not sampled.
    pub samples: u64,
    /// The estimate, in events: the sum of periods, scaled for the time in which the event was not counted.
    pub value: f64,
    /// The variance of the estimate, in events squared.
    pub variance: f64,
}

impl Count {
    /// Makes a count from `samples` whose periods sum to `weight`, counted in a fraction `1 / scale` of the time.
    ///
    /// The variance is the one of a Poisson process with samples of equal weight: (weight × scale)² / samples. Where
    /// periods differ much (a frequency instead of a period), give the sum of squares with
    /// [`with_squares`](Self::with_squares).
    pub fn sampled(samples: u64, weight: u64, scale: f64) -> Self {
        let value = weight as f64 * scale;
        let variance = if samples == 0 {
            0.0
        } else {
            value * value / samples as f64
        };
        Self {
            samples,
            value,
            variance,
        }
    }

    /// Replaces the variance by one from the sum of the squares of the samples' (scaled) periods.
    pub fn with_squares(mut self, sum_of_squares: f64) -> Self {
        self.variance = sum_of_squares;
        self
    }

    /// Makes a count that was read from a counter over the whole stretch: there is no error of sampling.
    pub fn exact(value: f64) -> Self {
        Self {
            samples: 0,
            value,
            variance: 0.0,
        }
    }

    /// Returns the sum of two counts of the same event.
    pub fn plus(self, other: Self) -> Self {
        Self {
            samples: self.samples.saturating_add(other.samples),
            value: self.value + other.value,
            variance: self.variance + other.variance,
        }
    }
}

/// A derived column's value in a row.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// A number.
    Value {
        /// The number, in the column's unit.
        value: f64,
        /// One standard error, first order, from the errors of the inputs, in the column's unit.
        error: f64,
        /// Whether chance may have made the number, which then should be greyed out. More than half of the variance
        /// comes from inputs with fewer samples than the threshold, or no input has a sample at all.
        low_counts: bool,
        /// Whether some terms of a sum were not recorded: the value is a lower bound of the whole. The bound column
        /// names them.
        partial: bool,
    },
    /// Inputs that were not recorded, as the formula names them.
    Missing(Arc<[String]>),
    /// The formula has no value here: 0 / 0, or anything over 0.
    Undefined,
}

impl Cell {
    /// Returns the number, where there is one.
    pub fn value(&self) -> Option<f64> {
        match self {
            Self::Value { value, .. } => Some(*value),
            _ => None,
        }
    }

    /// Returns the standard error, where there is a number.
    pub fn error(&self) -> Option<f64> {
        match self {
            Self::Value { error, .. } => Some(*error),
            _ => None,
        }
    }
}
