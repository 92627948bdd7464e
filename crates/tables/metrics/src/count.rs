//! A count with its uncertainty, and the cell that a formula makes of counts.

use std::sync::Arc;

/// How often an event happened in one row, as estimated from its samples.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Count {
    /// Samples behind it. 0 with a value other than 0 is a count that was read, not sampled.
    pub samples: u64,
    /// The estimate, in events: the sum of periods, scaled for the time in which the event was not counted.
    pub value: f64,
    /// Its variance, in events squared.
    pub variance: f64,
}

impl Count {
    /// From `samples` whose periods sum to `weight`, counted in a fraction `1 / scale` of the time.
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

    /// The same count, with the variance from the sum of the squares of its samples' (scaled) periods.
    pub fn with_squares(mut self, sum_of_squares: f64) -> Self {
        self.variance = sum_of_squares;
        self
    }

    /// A count that was read from a counter over the whole stretch: no error of sampling.
    pub fn exact(value: f64) -> Self {
        Self {
            samples: 0,
            value,
            variance: 0.0,
        }
    }

    /// The sum of two counts of the same event.
    pub fn plus(self, other: Self) -> Self {
        Self {
            samples: self.samples.saturating_add(other.samples),
            value: self.value + other.value,
            variance: self.variance + other.variance,
        }
    }
}

/// What a derived column says about a row.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// A number.
    Value {
        /// In the column's unit.
        value: f64,
        /// One standard error, first order, from the errors of the inputs.
        error: f64,
        /// More than half of the variance comes from inputs with fewer samples than the threshold, or no input has
        /// a sample at all: a number to grey out.
        low_counts: bool,
        /// Some terms of a sum were not recorded: a lower bound of the whole. The bound column names them.
        partial: bool,
    },
    /// Inputs that were not recorded, as the formula names them.
    Missing(Arc<[String]>),
    /// The formula has no value here: 0 / 0, or anything over 0.
    Undefined,
}

impl Cell {
    /// The number, where there is one.
    pub fn value(&self) -> Option<f64> {
        match self {
            Self::Value { value, .. } => Some(*value),
            _ => None,
        }
    }

    /// The standard error, where there is a number.
    pub fn error(&self) -> Option<f64> {
        match self {
            Self::Value { error, .. } => Some(*error),
            _ => None,
        }
    }
}
