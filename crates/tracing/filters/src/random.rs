//! Random numbers without floating point, cheap enough for a hook between two instructions of a traced program.

/// Mixes the bits of a number (the finalizer of splitmix64): neighbouring numbers become unrelated ones.
pub(crate) const fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Returns the seed of a thread's random choices; `seed` is that of the recording or of the reader.
#[must_use]
pub const fn thread_seed(seed: u64, thread: u64) -> u64 {
    mix(seed ^ mix(thread))
}

/// Returns the next number of the splitmix64 sequence at `state`.
pub(crate) fn next(state: &mut u64) -> u64 {
    let number = mix(*state);
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    number
}

/// The density at which random sampling shows executions: the reciprocal of `-log2(1 - p)`, in units of 2⁻³².
///
/// 0 shows every execution. It is a plain number, so that a recorder can hand a new one to running threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub struct Pace(pub u64);

impl Pace {
    /// The pace that shows every execution.
    pub const ALL: Self = Self(0);

    /// Draws the number of executions until one is shown, itself included: geometrically distributed, at least 1.
    ///
    /// A number stands for a whole gap, so that a skipped execution costs one decrement.
    pub(crate) fn gap(self, state: &mut u64) -> u64 {
        // Each binary digit costs a multiplication; short gaps need fewer of them.
        let digits = if self.0 >> 40 == 0 { 16 } else { 32 };
        let scaled = (u128::from(minus_log2(next(state), digits)) * u128::from(self.0)) >> 64;
        u64::try_from(scaled).unwrap_or(u64::MAX).saturating_add(1)
    }
}

/// Returns `-log2(number / 2⁶⁴)` in units of 2⁻³², to `digits` binary digits, by squaring. Treats 0 as 1.
fn minus_log2(number: u64, digits: u32) -> u64 {
    let number = number | 1;
    let zeros = number.leading_zeros();
    let mut mantissa = number << zeros;
    let mut fraction = 0_u64;
    for _ in 0..digits {
        let square = (u128::from(mantissa) * u128::from(mantissa)) >> 63;
        let carry = (square >> 64) as u64;
        mantissa = (square >> carry) as u64;
        fraction = fraction << 1 | carry;
    }
    ((u64::from(zeros) + 1) << 32) - (fraction << (32 - digits))
}

#[cfg(feature = "std")]
impl Pace {
    /// The largest mean distance between two shown executions.
    pub const MAX_INTERVAL: f64 = (1_u64 << 30) as f64;

    /// Returns the average number of executions until one is shown, itself included.
    #[must_use]
    pub fn interval(self) -> f64 {
        if self.0 == 0 {
            return 1.0;
        }
        let scale = self.0 as f64 / 4_294_967_296.0;
        -1.0 / (-core::f64::consts::LN_2 / scale).exp_m1()
    }

    /// Returns the pace that shows one of `interval` executions on average. `interval` is limited to
    /// [`Pace::MAX_INTERVAL`]; below 1 all are shown.
    #[must_use]
    pub fn from_interval(interval: f64) -> Self {
        if interval.is_nan() || interval <= 1.0 {
            return Self::ALL;
        }
        let p = 1.0 / interval.min(Self::MAX_INTERVAL);
        let scale = -core::f64::consts::LN_2 / (-p).ln_1p();
        Self((scale * 4_294_967_296.0) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn the_logarithm_is_that_of_the_mathematics_library() {
        let mut state = 7;
        for bits in 0..64 {
            for _ in 0..50 {
                let number = next(&mut state) >> bits | 1;
                let expected = 64.0 - (number as f64).log2();
                for (digits, tolerance) in [(16, 2e-5), (32, 1e-9)] {
                    let ours = minus_log2(number, digits) as f64 / 4_294_967_296.0;
                    assert!(
                        (ours - expected).abs() < tolerance,
                        "{number}: {ours} {expected}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_pace_is_an_interval() {
        assert_eq!(Pace::ALL.interval(), 1.0);
        for interval in [1.5, 7.0, 1000.0, 1e8] {
            let error = Pace::from_interval(interval).interval() / interval - 1.0;
            assert!(error.abs() < 1e-6, "{interval}: {error}");
        }
    }

    #[test]
    fn gaps_have_the_mean_and_the_spread_of_the_geometric_distribution() {
        for interval in [1.0, 1.25, 2.0, 10.0, 333.3, 1e6] {
            let pace = Pace::from_interval(interval);
            let mut state = 1;
            let draws = 40_000;
            let gaps: Vec<f64> = (0..draws).map(|_| pace.gap(&mut state) as f64).collect();
            let mean = gaps.iter().sum::<f64>() / f64::from(draws);
            let p = 1.0 / interval;
            let deviation = (1.0 - p).sqrt() / p;
            let error = deviation / f64::from(draws).sqrt();
            assert!(
                (mean - interval).abs() <= 4.0 * error,
                "{interval}: {mean} ± {error}"
            );
            // P(gap = 1) = p.
            let ones = gaps.iter().filter(|gap| **gap == 1.0).count() as f64;
            let error = (f64::from(draws) * p * (1.0 - p)).sqrt();
            assert!((ones - f64::from(draws) * p).abs() <= 4.0 * error + 0.5);
        }
    }
}
