//! The lengths of a function's runs in windows, from the functions in which windows start and end.
//!
//! A kept window starts and ends in its function, but the function may have called another in between and come back. That
//! is not seen in the window; it shows in two windows in a row. Let p₁ be the share of windows that start in the function,
//! among those that end in it, and p₂ the same over two windows. For a function that is left at rate a and found again
//! with the probability π after the memory of the start is gone, p(t) = π + (1 − π)·xᵗ, so
//!
//! > (1 − p₂) ÷ (1 − p₁) = 1 + x, and a = (1 − p₁) · (−ln x) ÷ (1 − x).
//!
//! Long runs give x near 1: what is missed in one window is missed twice in two. Runs shorter than a window have lost
//! their memory after one: x is near 0, and the visits that windows hide make a much larger than 1 − p₁.
//!
//! Where short visits and long absences mix, no single x fits. So there is a second look: of the pairs of windows that
//! start and end in the function, in how many was the thread elsewhere in the middle? If it is in another function
//! for exponential times of m windows on average, visits that begin at rate b are seen there in b·m·(1 − e^(−1/m))² of the
//! pairs, and fill b·m·(1 − 2m + (1 + 2m)·e^(−1/m)) of a single kept window. The rate cancels: what the middle shows, times
//! [`hidden_part`], is what a window hides.

use super::accept::{Discard, Rules, Trust};

/// The least x that is believed: below, the logarithm of a handful of windows would say anything.
const LEAST_MEMORY: f64 = 0.02;
/// So often must the thread be seen away in the middle before that means anything.
const LEAST_VISITS: f64 = 3.0;

/// The runs of a row's function, as windows show them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Runs {
    /// The share of windows, of those that start in the function, in which it is left, whether it is found again at the
    /// end or not: 1 − e^(−a).
    pub left: f64,
    /// The standard error of `left`, from the spread between bursts.
    pub left_error: f64,
    /// The mean run in windows, 1 ÷ a; infinite where the function was never seen to be left.
    pub mean: f64,
    /// The share of pairs of windows that start and end in the function in which the thread was elsewhere in the
    /// middle; `None` without such pairs.
    pub away: Option<f64>,
    /// Such pairs in which it was.
    pub visits: u64,
    /// Pairs of windows that start and end in the function.
    pub returns: u64,
    /// Windows that end in the function, where it is known where they start.
    pub windows: u64,
}

impl Runs {
    /// Returns the trust that a row with these runs deserves.
    pub(super) fn trust(&self, rules: &Rules) -> Trust {
        let left = Trust::of(self.left, rules);
        let away = match self.away {
            Some(away) if self.visits as f64 >= LEAST_VISITS => away,
            _ => return left,
        };
        let of_away = match away {
            a if a > rules.no_trust_away => Trust::Unreliable,
            a if a > rules.low_trust_away => Trust::Low,
            _ => Trust::High,
        };
        left.max(of_away)
    }
}

/// The number of counts kept for a burst or for all bursts. They are: windows that end in the function; such windows that
/// start elsewhere; pairs of windows that end in it; such pairs that start elsewhere; pairs that start and end in it; such
/// pairs with the thread elsewhere in the middle.
pub(super) const COUNTS: usize = 6;

/// Sums over bursts.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RunCounts {
    sums: [f64; COUNTS],
    products: [[f64; COUNTS]; COUNTS],
    bursts: u64,
}

impl RunCounts {
    /// Adds a burst's own counts.
    pub(super) fn add(&mut self, counts: [u32; COUNTS]) {
        if counts[0] == 0 {
            return;
        }
        self.bursts += 1;
        let counts = counts.map(f64::from);
        for (i, one) in counts.iter().enumerate() {
            self.sums[i] += one;
            for (j, other) in counts.iter().enumerate() {
                self.products[i][j] += one * other;
            }
        }
    }

    pub(super) fn runs(&self) -> Option<Runs> {
        let rate = leaving_rate(self.sums)?;
        let [windows, _, _, _, returns, visits] = self.sums;
        Some(Runs {
            left: 1.0 - (-rate).exp(),
            left_error: self
                .error(|sums| leaving_rate(sums).map_or(f64::NAN, |a| 1.0 - (-a).exp())),
            mean: 1.0 / rate,
            away: (returns > 0.0).then_some(visits / returns),
            visits: visits as u64,
            returns: returns as u64,
            windows: windows as u64,
        })
    }

    /// The standard error of a function of the sums, to first order, from the spread between bursts.
    fn error(&self, of: impl Fn([f64; COUNTS]) -> f64) -> f64 {
        let mut slopes = [0.0; COUNTS];
        for (i, slope) in slopes.iter_mut().enumerate() {
            let step = 1e-4 * self.sums[i].max(1.0);
            let (mut less, mut more) = (self.sums, self.sums);
            less[i] -= step;
            more[i] += step;
            let found = (of(more) - of(less)) / (2.0 * step);
            *slope = if found.is_finite() { found } else { 0.0 };
        }
        let bursts = self.bursts as f64;
        let mut variance = 0.0;
        for (i, one) in slopes.iter().enumerate() {
            for (j, other) in slopes.iter().enumerate() {
                let covariance = self.products[i][j] - self.sums[i] * self.sums[j] / bursts;
                variance += one * other * covariance;
            }
        }
        if self.bursts > 1 {
            variance *= bursts / (bursts - 1.0);
        }
        variance.max(0.0).sqrt()
    }
}

/// 1 − p₁, and x where pairs of windows tell it.
fn memory([windows, away, pairs, away_twice, ..]: [f64; COUNTS]) -> Option<(f64, Option<f64>)> {
    if windows <= 0.0 {
        return None;
    }
    let once = (away / windows).clamp(0.0, 1.0);
    let x = (pairs > 0.0 && once > 0.0)
        .then(|| (away_twice / pairs / once - 1.0).clamp(LEAST_MEMORY, 1.0 - 1e-9));
    Some((once, x))
}

/// Returns the rate at which the function is left, per window. `None` without windows.
fn leaving_rate(sums: [f64; COUNTS]) -> Option<f64> {
    let (once, x) = memory(sums)?;
    Some(match x {
        Some(x) => once * -x.ln() / (1.0 - x),
        // As if nobody came back.
        None => (1.0 - once).max(1e-9).ln().abs(),
    })
}

/// A function's share of the time of another's kept windows, for each time that it is seen in the middle of a pair of
/// them, if its own runs are of `mean` windows.
pub(super) fn hidden_part(mean: f64) -> f64 {
    // Beyond, the terms cancel; the limit is a sixth.
    let mean = mean.clamp(0.01, 100.0);
    let end = (-1.0 / mean).exp();
    (1.0 - 2.0 * mean + (1.0 + 2.0 * mean) * end) / (1.0 - end).powi(2)
}

/// Whether where a window starts and ends can be believed: what was counted in it does not matter here.
pub(super) fn places_hold(verdict: Option<Discard>) -> bool {
    verdict.is_none_or(|cause| {
        cause.is_crossing() || matches!(cause, Discard::Settling | Discard::PartlyCounted)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected counts of 10 000 windows of a function in strict exponential turn with its like.
    fn turns(run: f64) -> RunCounts {
        let p = |t: f64| 0.5 + 0.5 * (-2.0 * t / run).exp();
        let n = 10_000.0;
        RunCounts {
            sums: [
                n,
                n * (1.0 - p(1.0)),
                n,
                n * (1.0 - p(2.0)),
                n * p(2.0),
                n * (1.0 - p(1.0)).powi(2),
            ],
            products: [[0.0; COUNTS]; COUNTS],
            bursts: 2500,
        }
    }

    #[test]
    fn the_mean_run_comes_back() {
        for run in [0.8, 2.0, 3.0, 10.0, 50.0] {
            let runs = turns(run).runs().unwrap();
            assert!((runs.mean / run - 1.0).abs() < 1e-6, "{run} {runs:?}");
            assert!((runs.left - (1.0 - (-1.0 / run).exp())).abs() < 1e-6);
        }
    }

    #[test]
    fn what_windows_hide() {
        // Two functions of three windows each, in turn: 1.76 % of a kept window is the other's.
        let p = |t: f64| 0.5 + 0.5 * (-2.0 * t / 3.0_f64).exp();
        let mut away = 0.0;
        for step in 0..1000 {
            let t = (f64::from(step) + 0.5) / 1000.0;
            away += (1.0 - p(t) * p(1.0 - t) / p(1.0)) / 1000.0;
        }
        let seen = (1.0 - p(1.0)).powi(2) / p(2.0);
        let hidden = seen * hidden_part(3.0);
        assert!((hidden / away - 1.0).abs() < 0.06, "{hidden} {away}");
        // Short visits are as often seen as they are there; long ones rarely fit a window.
        assert!((hidden_part(1e-9) - 1.0).abs() < 0.03);
        assert!((hidden_part(1e9) - 1.0 / 6.0).abs() < 0.01);
    }

    #[test]
    fn trust_follows_runs() {
        let rules = Rules::default();
        assert_eq!(turns(0.5).runs().unwrap().trust(&rules), Trust::Unreliable);
        assert_eq!(turns(2.9).runs().unwrap().trust(&rules), Trust::Low);
        assert_eq!(turns(10.0).runs().unwrap().trust(&rules), Trust::High);
        assert_eq!(RunCounts::default().runs(), None);
    }

    #[test]
    fn without_crossings_runs_have_no_end() {
        let mut counts = RunCounts::default();
        for _ in 0..20 {
            counts.add([4, 0, 3, 0, 3, 0]);
        }
        let runs = counts.runs().unwrap();
        assert_eq!((runs.left, runs.mean), (0.0, f64::INFINITY));
        assert_eq!(runs.away, Some(0.0));
    }
}
