//! Quantiles and limits: Student's t, chi squared, Poisson.

use statrs::distribution::{ChiSquared, ContinuousCDF, Normal, StudentsT};

/// From so many degrees of freedom on, t comes from the normal distribution by the first terms of its expansion: the
/// incomplete beta function loses its digits there.
const MANY: f64 = 1e4;

/// The quantile of Student's t with `freedom` degrees of freedom: `student_quantile(0.975, 9.0)` is 2.262. Infinite
/// degrees are the normal distribution. NaN if `probability` is not inside of 0..1 or there is no degree.
pub fn student_quantile(probability: f64, freedom: f64) -> f64 {
    if !(probability > 0.0 && probability < 1.0 && freedom > 0.0) {
        return f64::NAN;
    }
    if freedom >= MANY {
        let z = Normal::standard().inverse_cdf(probability);
        return z + (z.powi(3) + z) / (4.0 * freedom);
    }
    StudentsT::new(0.0, 1.0, freedom).map_or(f64::NAN, |t| t.inverse_cdf(probability))
}

/// The probability that Student's t with `freedom` degrees of freedom is at least as far from 0 as `t`. NaN where
/// there is none.
pub fn student_two_sided(t: f64, freedom: f64) -> f64 {
    if t.is_nan() || freedom.is_nan() || freedom <= 0.0 {
        return f64::NAN;
    }
    if t.is_infinite() {
        return 0.0;
    }
    let t = -t.abs();
    if freedom >= MANY {
        let z = t * (1.0 - 0.25 / freedom) / (1.0 + t * t / (2.0 * freedom)).sqrt();
        return 2.0 * Normal::standard().cdf(z);
    }
    StudentsT::new(0.0, 1.0, freedom).map_or(f64::NAN, |d| 2.0 * d.cdf(t))
}

/// The quantile of chi squared. NaN if `probability` is not inside of 0..1 or there is no degree of freedom.
pub fn chi_squared_quantile(probability: f64, freedom: f64) -> f64 {
    if !(probability > 0.0 && probability < 1.0 && freedom > 0.0) {
        return f64::NAN;
    }
    ChiSquared::new(freedom).map_or(f64::NAN, |c| c.inverse_cdf(probability))
}

/// Garwood's limits of the mean of a Poisson variable that was seen to be `count`, at `confidence` (0.95): they hold it at
/// least that often, whatever it is. (0, 3.69) for a count of 0.
pub fn poisson_limits(count: u64, confidence: f64) -> (f64, f64) {
    let tail = (1.0 - confidence) / 2.0;
    let count = count as f64;
    let low = if count == 0.0 {
        0.0
    } else {
        chi_squared_quantile(tail, 2.0 * count) / 2.0
    };
    (
        low,
        chi_squared_quantile(1.0 - tail, 2.0 * count + 2.0) / 2.0,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn near(found: f64, expected: f64) {
        assert!(
            (found - expected).abs() <= 2e-5 * expected.abs().max(1.0),
            "{found} {expected}"
        );
    }

    #[test]
    fn printed_tables() {
        // Two-sided 95 % points of t, and 99 % ones.
        for (freedom, expected) in [
            (1.0, 12.706_205),
            (2.0, 4.302_653),
            (4.0, 2.776_445),
            (9.0, 2.262_157),
            (19.0, 2.093_024),
            (99.0, 1.984_217),
            (9_999.0, 1.960_201),
            (10_001.0, 1.960_201),
            (1e5, 1.959_988),
            (f64::INFINITY, 1.959_964),
        ] {
            near(student_quantile(0.975, freedom), expected);
            near(student_quantile(0.025, freedom), -expected);
            near(student_two_sided(expected, freedom), 0.05);
        }
        near(student_quantile(0.995, 9.0), 3.249_836);
        near(student_two_sided(0.0, 5.0), 1.0);
        near(chi_squared_quantile(0.95, 1.0), 3.841_459);
        near(chi_squared_quantile(0.025, 40.0), 24.433_039);
        near(chi_squared_quantile(0.975, 42.0), 61.776_756);
    }

    #[test]
    fn garwood() {
        // Exact limits as printed for counts of 0, 1, 5, 10 and 20.
        for (count, low, high) in [
            (0, 0.0, 3.688_879),
            (1, 0.025_318, 5.571_643),
            (5, 1.623_486, 11.668_332),
            (10, 4.795_389, 18.390_356),
            (20, 12.216_519, 30.888_378),
        ] {
            let found = poisson_limits(count, 0.95);
            near(found.0, low);
            near(found.1, high);
        }
    }

    #[test]
    fn nonsense_has_no_number() {
        assert!(student_quantile(0.0, 3.0).is_nan());
        assert!(student_quantile(0.975, 0.0).is_nan());
        assert!(student_quantile(f64::NAN, f64::NAN).is_nan());
        assert!(student_two_sided(f64::NAN, 3.0).is_nan());
        assert_eq!(student_two_sided(f64::INFINITY, 3.0), 0.0);
        assert!(chi_squared_quantile(1.0, 3.0).is_nan());
    }
}
