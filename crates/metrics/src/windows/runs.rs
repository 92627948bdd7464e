//! How long a function's runs are, in windows, from where windows start and end.
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

use super::accept::Discard;

/// The least x that is believed: below, the logarithm of a handful of windows would say anything.
const LEAST_MEMORY: f64 = 0.02;

/// What windows say about a row's runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Runs {
    /// The share of windows, of those that start in the function, in which it is left, whether it is found again at the
    /// end or not: 1 − e^(−a).
    pub left: f64,
    /// The standard error of `left`, from the spread between bursts.
    pub left_error: f64,
    /// The mean run in windows, 1 ÷ a; infinite where the function was never seen to be left.
    pub mean: f64,
    /// Windows that end in the function, where it is known where they start.
    pub windows: u64,
}

/// Sums over bursts of: windows, those that came from elsewhere, pairs of windows, those that came from elsewhere.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RunCounts {
    sums: [f64; 4],
    products: [[f64; 4]; 4],
    bursts: u64,
}

impl RunCounts {
    /// Adds a burst's own counts.
    pub(super) fn add(&mut self, counts: [u32; 4]) {
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
        let left = |sums| leaving_rate(sums).map_or(f64::NAN, |a| 1.0 - (-a).exp());
        // First order; the slopes by halving a small step at both sides.
        let mut slopes = [0.0; 4];
        for (i, slope) in slopes.iter_mut().enumerate() {
            let step = 1e-4 * self.sums[i].max(1.0);
            let (mut less, mut more) = (self.sums, self.sums);
            less[i] -= step;
            more[i] += step;
            let found = (left(more) - left(less)) / (2.0 * step);
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
        Some(Runs {
            left: left(self.sums),
            left_error: variance.max(0.0).sqrt(),
            mean: 1.0 / rate,
            windows: self.sums[0] as u64,
        })
    }
}

/// How often the function is left in the time of one window. `None` without windows.
fn leaving_rate([windows, away, pairs, away_twice]: [f64; 4]) -> Option<f64> {
    if windows <= 0.0 {
        return None;
    }
    let once = (away / windows).clamp(0.0, 1.0);
    if once == 0.0 {
        return Some(0.0);
    }
    if pairs <= 0.0 {
        // As if nobody came back.
        return Some(-(1.0 - once).max(1e-9).ln());
    }
    let x = (away_twice / pairs / once - 1.0).clamp(LEAST_MEMORY, 1.0);
    let hidden = if 1.0 - x < 1e-9 {
        1.0
    } else {
        -x.ln() / (1.0 - x)
    };
    Some(once * hidden)
}

/// Whether where a window starts and ends can be believed: what was counted in it does not matter here.
pub(super) fn places_hold(verdict: Option<Discard>) -> bool {
    match verdict {
        None => true,
        Some(cause) => {
            cause.is_crossing() || cause == Discard::Settling || cause == Discard::PartlyCounted
        }
    }
}
