//! The time that interrupts take of a clock's windows, from all windows, wherever they lie.
//!
//! Where functions are left too often for rows of their own to tell ([`interrupts`](super::interrupts)), the program as a
//! whole still does: its windows begin anywhere. What hides c there is that the program does one thing now and another
//! then; so each burst is held against those before and after it, whose rate per length ρ = Σx ÷ Σl holds the interrupts
//! as well: with the period P, which is drawn anew for each burst, as the instrument
//!
//! > Σ(P − P̄)·(x − ρ·l) ÷ (ρ̄ · Σ(P − P̄)·l) = c ÷ (l̄ − c).
//!
//! Periods are independent of each other, so bursts are, though neighbours have each other's counts.

use super::accept::{Discard, judge};
use super::tally::Analysis;

/// The usable windows of a burst.
#[derive(Debug, Clone)]
struct Whole {
    thread: u32,
    group: u16,
    period: f64,
    windows: f64,
    /// The counts of the group's events, the leader first.
    sums: Vec<f64>,
}

/// An estimate of the time that interrupts take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    pub(super) constant: f64,
    pub(super) error: f64,
    /// The mean window.
    pub(super) length: f64,
    pub(super) windows: f64,
    pub(super) bursts: u64,
    /// The variation of periods: standard deviation ÷ mean.
    pub(super) variation: f64,
}

impl Analysis<'_> {
    /// Returns the time that interrupts take of the windows that `clock` leads; `None` without bursts that have neighbours.
    pub(super) fn interrupts_throughout(&self, clock: u32) -> Option<Found> {
        let bursts: Vec<Whole> = self.whole_bursts(clock);
        let of_same =
            |one: &Whole, other: &Whole| (one.thread, one.group) == (other.thread, other.group);
        // Each burst with those before and after it.
        let near: Vec<(&Whole, Vec<&Whole>)> = bursts
            .iter()
            .enumerate()
            .map(|(at, burst)| {
                let before = at.checked_sub(1).and_then(|at| bursts.get(at));
                let near = before.into_iter().chain(bursts.get(at + 1));
                (burst, near.filter(|other| of_same(burst, other)).collect())
            })
            .filter(|(_, near): &(_, Vec<&Whole>)| !near.is_empty())
            .collect();
        let count = near.len() as f64;
        let sum = |of: &dyn Fn(&Whole) -> f64| near.iter().map(|(burst, _)| of(burst)).sum::<f64>();
        let windows = sum(&|burst| burst.windows);
        let length = sum(&|burst| burst.sums[0]) / windows;
        // Weighed by windows: a burst that lost some counts for less.
        let mean = sum(&|burst| burst.period * burst.windows) / windows;
        let spread = sum(&|burst| (burst.period - mean).powi(2) * burst.windows) / windows;
        let slope = sum(&|burst| (burst.period - mean) * burst.sums[0]);
        if near.len() < 2 || slope <= 0.0 {
            return None;
        }
        let (mut above, mut below) = (0.0, 0.0);
        for (place, group) in self.told_places(clock) {
            let of_group = || near.iter().filter(|(burst, _)| burst.group == group);
            let total = |place: usize| of_group().map(|(burst, _)| burst.sums[place]).sum::<f64>();
            let rate = total(place) / total(0);
            let scale = rate
                * of_group()
                    .map(|(b, _)| (b.period - mean) * b.sums[0])
                    .sum::<f64>();
            if rate.is_nan() || rate <= 0.0 || scale <= 0.0 {
                continue;
            }
            let rests: Vec<(f64, f64)> = of_group()
                .map(|(burst, near)| {
                    let total = |place: usize| near.iter().map(|b| b.sums[place]).sum::<f64>();
                    let rest = burst.sums[place] - total(place) / total(0) * burst.sums[0];
                    // The second number is the excess over the mean length.
                    (rest, rate * (burst.sums[0] - length * burst.windows))
                })
                .collect();
            let periods = || of_group().map(|(burst, _)| burst.period - mean);
            let share = periods()
                .zip(&rests)
                .map(|(p, (rest, _))| p * rest)
                .sum::<f64>()
                / scale;
            let parts = periods()
                .zip(&rests)
                .map(|(p, (rest, longer))| (p * (rest - share * longer)).powi(2));
            let variance = parts.sum::<f64>() / (scale * scale);
            if share.is_finite() && variance > 0.0 {
                above += share / variance;
                below += 1.0 / variance;
            }
        }
        let share = above / below;
        Some(Found {
            constant: length * share / (1.0 + share),
            error: length / (1.0 + share).powi(2) / below.sqrt(),
            length,
            windows,
            bursts: count as u64,
            variation: spread.sqrt() / mean,
        })
    }

    /// The bursts of groups that `clock` leads, as they follow on each other.
    fn whole_bursts(&self, clock: u32) -> Vec<Whole> {
        let mut bursts = Vec::new();
        for burst in self.windows().bursts() {
            if burst.group.events.first() != Some(&clock) {
                continue;
            }
            let mut whole = Whole {
                thread: burst.burst.thread,
                group: burst.burst.group,
                period: burst.burst.period as f64,
                windows: 0.0,
                sums: vec![0.0; burst.group.events.len()],
            };
            for window in burst.windows() {
                let verdict = judge(&window, burst.group.drop_last, self.rules());
                // Wherever it lies.
                let is_sound = |cause: Discard| cause.is_crossing() || cause == Discard::NoFunction;
                if !verdict.is_none_or(is_sound) {
                    continue;
                }
                whole.windows += 1.0;
                for (sum, count) in whole.sums.iter_mut().zip(window.counts) {
                    *sum += *count as f64;
                }
            }
            if whole.sums[0] > 0.0 {
                bursts.push(whole);
            }
        }
        bursts
    }

    /// The events that tell something of interrupts, as places in their groups, which `clock` leads.
    fn told_places(&self, clock: u32) -> Vec<(usize, u16)> {
        let groups = (0_u16..).zip(self.windows().groups());
        let led = groups.filter(|(_, group)| group.events.first() == Some(&clock));
        led.flat_map(|(number, group)| {
            let events = group.events.iter().enumerate();
            let told = events.filter(|(_, event)| !self.windows().is_clock(**event));
            told.map(move |(place, _)| (place, number))
        })
        .collect()
    }
}
