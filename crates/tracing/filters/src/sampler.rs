//! The sampler: the counters and choices of one sampled function in one thread.

use crate::random::{Pace, mix};

/// The way in which executions of a function are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum SampleKind {
    /// No sampling.
    All = 0,
    /// `sample=N`: every N-th. The parameter is N.
    Every = 1,
    /// `sample=1/N`, `P%`: each with the same probability. The parameter is a [`Pace`](crate::Pace).
    Random = 2,
    /// `sample=N/s`: the parameter is the period in units of the clock.
    Rate = 3,
    /// `sample=auto`: random, at a pace given from outside by [`Sampler::pace_ahead`].
    Auto = 4,
    /// `sample=pNN`: those slower than a percentile. The parameter is in hundredths of a percent, or [`TOLD`] for
    /// those that the trace does not discard.
    Tail = 5,
}

/// A function's sampling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sampling {
    /// The way in which executions are chosen.
    pub kind: SampleKind,
    /// See [`SampleKind`].
    pub parameter: u64,
    /// The index of the function's [`Sampler`](crate::Sampler).
    pub slot: u32,
    /// The index of the function's [`Tail`](crate::Tail), for [`SampleKind::Tail`].
    pub tail: u32,
}

/// The parameter of a tail whose executions were judged when they were recorded.
#[cfg(feature = "std")]
pub(crate) const TOLD: u64 = u64::MAX;

/// The counters of one sampled function in one thread.
///
/// All zero is the valid beginning, so fresh pages of memory will do. A sampler fills one cache line.
#[derive(Debug, Clone, Default)]
#[repr(C, align(64))]
pub struct Sampler {
    /// The number of executions still to be skipped before a closer look. It is the first word. A hook may decrement
    /// it itself while it is above 0.
    pub left: u64,
    /// The length of the gap to which `left` belongs; 0 before the first execution, and for kinds that are not
    /// counted down.
    gap: u64,
    /// The number of executions in finished gaps.
    finished: u64,
    shown: u64,
    /// The number of executions since the last shown one, for kinds that are not counted down.
    since: u64,
    random: u64,
    /// The next moment at which a rate shows an execution; the [`Pace`] of `auto`.
    next: u64,
    /// The number of open executions that are shown with their subtrees.
    pub(crate) open: u32,
    /// Not 0 if no execution is shown at the end of the gap, and another gap begins.
    blank: u32,
}

/// The longest gaps of `sample=auto`: where gaps are short on average, and anywhere. At their end the pace is looked
/// at again. Gaps are memoryless, so a cut changes nothing where the pace stays the same. A look takes about as long
/// as choosing an execution, so few gaps may have one.
const LOOK_AGAIN: [u64; 2] = [1 << 12, 1 << 16];

/// The decision of [`Sampler::draw`] about an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Draw {
    /// The execution is not shown.
    Skip,
    /// The execution is shown, and stands for this many: those skipped since the last one, and itself.
    Show(u64),
}

impl Sampler {
    /// The offset of the gap's length in bytes. A hook may end a gap itself if the length is not 0: it adds the
    /// length to [`Sampler::FINISHED`] and 1 to [`Sampler::SHOWN`], and `left` becomes the length less 1.
    pub const GAP: usize = core::mem::offset_of!(Self, gap);
    /// The offset of the number of executions in finished gaps, in bytes.
    pub const FINISHED: usize = core::mem::offset_of!(Self, finished);
    /// The offset of the number of chosen executions, in bytes.
    pub const SHOWN: usize = core::mem::offset_of!(Self, shown);
    /// The offset of the number of open chosen executions of a filter, in bytes. It has 4 bytes.
    pub const OPEN: usize = core::mem::offset_of!(Self, open);

    /// Returns the number of counted executions: those that would have been shown without sampling.
    #[must_use]
    pub fn seen(&self) -> u64 {
        let passed = self.gap.saturating_sub(1).saturating_sub(self.left);
        self.finished.wrapping_add(passed)
    }

    /// Returns the number of chosen executions.
    #[must_use]
    pub fn shown(&self) -> u64 {
        self.shown
    }

    /// Sets the pace of `sample=auto` from the end of the current gap on.
    pub fn pace_ahead(&mut self, pace: Pace) {
        self.next = pace.0;
    }

    /// Counts an execution at a probe site and returns true if it is chosen. Not for a tail, which is judged at its
    /// end. `seed` is the thread's; the clock is read only for a rate.
    pub fn count(&mut self, sampling: Sampling, seed: u64, clock: impl FnOnce() -> u64) -> bool {
        self.draw(sampling, seed, clock) != Draw::Skip
    }

    /// Returns the moment from which on `sample=N/s` chooses an execution, in units of the clock.
    #[must_use]
    pub fn due(&self) -> u64 {
        self.next
    }

    /// Counts an execution and decides whether it is shown. `seed` is the thread's; the clock is read only for a
    /// rate.
    #[inline]
    pub(crate) fn draw(
        &mut self,
        sampling: Sampling,
        seed: u64,
        clock: impl FnOnce() -> u64,
    ) -> Draw {
        if self.left > 0 {
            self.left -= 1;
            return Draw::Skip;
        }
        match sampling.kind {
            SampleKind::Rate => self.draw_by_time(sampling.parameter, clock()),
            // A tail is judged at its end.
            SampleKind::All | SampleKind::Tail => Draw::Show(1),
            SampleKind::Every | SampleKind::Random | SampleKind::Auto => {
                self.end_of_gap(sampling, seed)
            }
        }
    }

    /// Counts an execution that was judged at its end.
    pub fn judged(&mut self, shown: bool) {
        self.finished = self.finished.wrapping_add(1);
        self.shown = self.shown.wrapping_add(u64::from(shown));
    }

    fn end_of_gap(&mut self, sampling: Sampling, seed: u64) -> Draw {
        let adapts = sampling.kind == SampleKind::Auto;
        if self.gap == 0 || self.blank != 0 {
            if self.gap == 0 {
                self.random = mix(seed ^ mix(u64::from(sampling.slot)));
            }
            let passed = self.gap.saturating_sub(1);
            self.finished = self.finished.wrapping_add(passed);
            self.since = self.since.saturating_add(passed);
            let gap = self.draw_gap(sampling);
            self.begin_gap(gap, adapts);
            if self.left > 0 {
                self.left -= 1;
                return Draw::Skip;
            }
        }
        let stands_for = self.gap.saturating_add(self.since);
        self.finished = self.finished.wrapping_add(self.gap);
        self.shown = self.shown.wrapping_add(1);
        self.since = 0;
        let gap = self.draw_gap(sampling);
        self.begin_gap(gap, adapts);
        Draw::Show(stands_for)
    }

    /// Begins a gap that ends with a shown execution, or its first part.
    fn begin_gap(&mut self, gap: u64, adapts: bool) {
        let longest = match adapts {
            // About four average gaps.
            true => ((self.next >> 32) * 6).clamp(LOOK_AGAIN[0], LOOK_AGAIN[1]),
            false => u64::MAX,
        };
        let is_long = gap > longest;
        self.blank = u32::from(is_long);
        // The execution that ends a part is the first of the next part.
        self.gap = if is_long { longest + 1 } else { gap };
        self.left = self.gap - 1;
    }

    /// Draws the length of a gap, at least 1.
    fn draw_gap(&mut self, sampling: Sampling) -> u64 {
        match sampling.kind {
            SampleKind::Random => Pace(sampling.parameter).gap(&mut self.random),
            SampleKind::Auto => Pace(self.next).gap(&mut self.random),
            _ => sampling.parameter.max(1),
        }
    }

    /// Decides by time: shows at most one execution in each period, the first one after the period's beginning.
    fn draw_by_time(&mut self, period: u64, now: u64) -> Draw {
        self.finished = self.finished.wrapping_add(1);
        self.since = self.since.saturating_add(1);
        if now < self.next {
            return Draw::Skip;
        }
        // A late execution does not push the next ones back, an idle period is not made up for.
        let due = self.next.saturating_add(period);
        self.next = if due > now {
            due
        } else {
            now.saturating_add(period)
        };
        self.shown = self.shown.wrapping_add(1);
        let stands_for = self.since;
        self.since = 0;
        Draw::Show(stands_for)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn sampling(kind: SampleKind, parameter: u64) -> Sampling {
        Sampling {
            kind,
            parameter,
            slot: 0,
            tail: 0,
        }
    }

    fn run(sampler: &mut Sampler, sampling: Sampling, times: u64) -> Vec<u64> {
        (1..=times)
            .filter(|time| sampler.draw(sampling, 9, || *time) != Draw::Skip)
            .collect()
    }

    #[test]
    fn a_sampler_fills_a_cache_line_and_zeros_are_its_beginning() {
        assert_eq!(size_of::<Sampler>(), 64);
        assert_eq!(core::mem::offset_of!(Sampler, left), 0);
        let sampler = Sampler::default();
        assert_eq!((sampler.seen(), sampler.shown()), (0, 0));
    }

    #[test]
    fn every_third_execution_is_shown_and_all_are_counted_at_any_moment() {
        let every = sampling(SampleKind::Every, 3);
        let mut sampler = Sampler::default();
        for seen in 1..=20 {
            let drawn = sampler.draw(every, 0, || unreachable!("no clock is needed"));
            assert_eq!(
                drawn,
                if seen % 3 == 0 {
                    Draw::Show(3)
                } else {
                    Draw::Skip
                }
            );
            assert_eq!((sampler.seen(), sampler.shown()), (seen, seen / 3));
        }
    }

    #[test]
    fn what_was_shown_stands_for_all_that_was_seen() {
        for (kind, parameter) in [
            (SampleKind::Random, Pace::from_interval(7.5).0),
            (SampleKind::Rate, 13),
            (SampleKind::Every, 4),
        ] {
            let sampling = sampling(kind, parameter);
            let mut sampler = Sampler::default();
            let (mut total, mut rest) = (0, 0);
            for time in 1..=10_000_u64 {
                rest += 1;
                if let Draw::Show(stands_for) = sampler.draw(sampling, 5, || time * 3) {
                    total += stands_for;
                    rest = 0;
                }
                assert_eq!(total + rest, sampler.seen());
                assert_eq!(sampler.seen(), time);
            }
        }
    }

    #[test]
    fn random_sampling_does_not_fall_into_step_with_a_periodic_caller() {
        let random = sampling(SampleKind::Random, Pace::from_interval(4.0).0);
        let shown = run(&mut Sampler::default(), random, 400_000);
        // Executions of each phase of a period of 4: a quarter of the shown ones each, within four standard errors.
        for phase in 0..4 {
            let hits = shown.iter().filter(|time| *time % 4 == phase).count() as f64;
            let expected = 25_000.0_f64;
            assert!((hits - expected).abs() < 4.0 * expected.sqrt(), "{hits}");
        }
        // The same seed chooses the same executions.
        assert_eq!(shown, run(&mut Sampler::default(), random, 400_000));
    }

    #[test]
    fn a_rate_shows_one_execution_each_period_and_does_not_make_up_for_idle_ones() {
        let rate = sampling(SampleKind::Rate, 100);
        let mut sampler = Sampler::default();
        let shown: Vec<u64> = (0..1000)
            .map(|call| call * 7)
            .filter(|now| sampler.draw(rate, 0, || *now) != Draw::Skip)
            .collect();
        assert_eq!(shown.len(), 70);
        assert_ne!(sampler.draw(rate, 0, || 1_000_000), Draw::Skip);
        assert_eq!(sampler.draw(rate, 0, || 1_000_001), Draw::Skip);
    }

    #[test]
    fn a_long_gap_looks_at_the_pace_again() {
        let auto = sampling(SampleKind::Auto, 0);
        let mut sampler = Sampler::default();
        sampler.pace_ahead(Pace::from_interval(1e9));
        let calls = 10 * LOOK_AGAIN[1];
        assert!(run(&mut sampler, auto, calls).is_empty());
        assert_eq!((sampler.seen(), sampler.shown()), (calls, 0));
        sampler.pace_ahead(Pace::from_interval(10.0));
        // A part of the first gap may be left.
        let shown = run(&mut sampler, auto, calls).len() as f64;
        assert!((57_000.0..66_500.0).contains(&shown), "{shown}");
        assert_eq!(sampler.seen(), 2 * calls);
    }

    #[test]
    fn an_adapting_pace_shows_its_share() {
        let auto = sampling(SampleKind::Auto, 0);
        let mut sampler = Sampler::default();
        sampler.pace_ahead(Pace::from_interval(3000.0));
        let shown = run(&mut sampler, auto, 3_000_000).len() as f64;
        assert!((shown - 1000.0).abs() < 4.0 * 1000.0_f64.sqrt(), "{shown}");
        assert_eq!(sampler.seen(), 3_000_000);
    }
}
