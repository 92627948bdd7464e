//! The difference of a metric between two runs.

use super::estimator::Estimate;
use super::interval::{student_quantile, student_two_sided};

/// The second value minus the first, with its limits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Difference {
    /// Second minus first.
    pub value: f64,
    /// The lower limit, at the confidence of the estimates.
    pub low: f64,
    /// The upper limit.
    pub high: f64,
    /// The probability of a difference at least as large if the metric did not change. Several of them must be adjusted for
    /// their number. NaN where nothing varied.
    pub probability: f64,
}

impl Estimate {
    /// From this run to the other. Takes each side's [best](Self::best) value. The limits come
    /// from each side's own, so that skew ones stay so; degrees of freedom by Welch and Satterthwaite.
    pub fn difference(&self, other: &Self) -> Difference {
        let (one, two) = (self.best(), other.best());
        let tail = 0.5 + self.confidence() / 2.0;
        // A side as standard errors, so that Welch's freedom may be used for both.
        let side = |reach: f64, freedom: f64| {
            if freedom > 0.0 {
                reach / student_quantile(tail, freedom)
            } else {
                f64::INFINITY
            }
        };
        let value = two.value - one.value;
        let join = |of_one: f64, of_two: f64| {
            let one_error = side(of_one, self.freedom);
            let two_error = side(of_two, other.freedom);
            let (a, b) = (one_error.powi(2), two_error.powi(2));
            let freedom = (a + b).powi(2) / (a * a / self.freedom + b * b / other.freedom);
            ((a + b).sqrt(), freedom)
        };
        let down = join(one.high - one.value, two.value - two.low);
        let up = join(one.value - one.low, two.high - two.value);
        let reach = |(error, freedom): (f64, f64)| {
            if error == 0.0 {
                0.0
            } else if freedom.is_nan() {
                f64::INFINITY
            } else {
                error * student_quantile(tail, freedom)
            }
        };
        // The side on which 0 lies decides.
        let (error, freedom) = if value >= 0.0 { down } else { up };
        Difference {
            value,
            low: value - reach(down),
            high: value + reach(up),
            probability: match error {
                e if e == 0.0 && value == 0.0 => f64::NAN,
                e if e.is_infinite() => 1.0,
                e => student_two_sided(value / e, freedom),
            },
        }
    }
}
