//! The test of whether a difference is larger than chance makes.

/// Returns the probability that a normal variable lies at least `z` standard deviations away from its mean.
pub fn two_sided(z: f64) -> f64 {
    if z.is_nan() {
        return f64::NAN;
    }
    erfc(z.abs() / std::f64::consts::SQRT_2)
}

/// Returns the complementary error function of a number that is not negative: near zero by the series of erf, farther
/// away by its continued fraction.
fn erfc(x: f64) -> f64 {
    let root_pi = std::f64::consts::PI.sqrt();
    if x < 2.0 {
        // Σ (-1)ⁿ x²ⁿ⁺¹ ÷ (n! (2n+1))
        let (mut power, mut sum) = (x, x);
        for n in 1..60 {
            let n = f64::from(n);
            power *= -x * x / n;
            sum += power / (2.0 * n + 1.0);
        }
        return (1.0 - 2.0 / root_pi * sum).clamp(0.0, 1.0);
    }
    // e^(-x²) ÷ √π × 1 ÷ (x + ½ ÷ (x + 1 ÷ (x + 1½ ÷ …))), from its end.
    let mut fraction = x;
    for n in (1..=60).rev() {
        fraction = x + f64::from(n) / 2.0 / fraction;
    }
    (-x * x).exp() / root_pi / fraction
}

/// Adjusts probabilities for their number by the procedure of Benjamini and Hochberg. Of the tests whose adjusted
/// probability is at most q, no larger a part than q is expected to be there by chance. NaN stays NaN and is not
/// counted.
pub fn adjusted(probabilities: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..probabilities.len())
        .filter(|index| !probabilities[*index].is_nan())
        .collect();
    order.sort_by(|one, other| probabilities[*one].total_cmp(&probabilities[*other]));
    let mut result = vec![f64::NAN; probabilities.len()];
    let mut least = 1.0_f64;
    for (rank, index) in order.iter().enumerate().rev() {
        let all = order.len() as f64;
        least = least.min(probabilities[*index] * all / (rank + 1) as f64);
        result[*index] = least;
    }
    result
}

/// Returns the mark of an adjusted probability: up to three stars.
pub fn significance(adjusted: f64) -> &'static str {
    match adjusted {
        q if q <= 0.001 => "***",
        q if q <= 0.01 => "**",
        q if q <= 0.05 => "*",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_the_normal_distribution() {
        for (z, expected) in [
            (0.0, 1.0),
            (0.674_489_750_196_082, 0.5),
            (1.0, 0.317_310_507_862_914),
            (1.959_963_984_540_054, 0.05),
            (2.575_829_303_548_901, 0.01),
            (3.290_526_731_491_926, 0.001),
            (-3.0, 0.002_699_796_063_260_19),
            (6.0, 1.973_175_290_075_396e-9),
        ] {
            let found = two_sided(z);
            assert!(
                (found / expected - 1.0).abs() < 1e-9,
                "{z}: {found} {expected}"
            );
        }
        assert_eq!(two_sided(f64::INFINITY), 0.0);
        assert!(two_sided(f64::NAN).is_nan());
    }

    #[test]
    fn many_tests_find_less() {
        // As R's p.adjust(c(.01, .04, .03, .5), "BH").
        let found = adjusted(&[0.01, 0.04, f64::NAN, 0.03, 0.5]);
        let expected = [0.04, 0.16 / 3.0, f64::NAN, 0.16 / 3.0, 0.5];
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-12 || found.is_nan() && expected.is_nan());
        }
        assert_eq!(significance(0.001), "***");
        assert_eq!(significance(0.02), "*");
        assert_eq!(significance(f64::NAN), "");
    }
}
