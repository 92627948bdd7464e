//! Tail capture: the executions that are slower than a percentile of those before.

/// The running percentile of one function's durations in one thread.
///
/// All zero is the valid beginning. The percentile is tracked, not stored. Each slower execution raises it by `p` of
/// a step, each other one lowers it by `1 - p`. So in the long run the share of slower ones is `1 - p` whatever the
/// distribution of the durations, and the percentile follows a new phase of the program. A step is a quarter of the
/// mean deviation, on a logarithmic scale. Until there are enough executions for one to lie beyond the percentile,
/// the slowest so far stands for it.
///
/// Hooks can do this arithmetic themselves, in generated code, once there are [`Tail::SETTLED`] executions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Tail {
    seen: u64,
    /// The [`level`] of the percentile.
    cut: i64,
    mean: i64,
    deviation: i64,
}

/// Returns a duration on a logarithmic scale that is linear within an octave: strictly rising up to 2³², 2³² units an
/// octave.
fn level(duration: u64) -> i64 {
    let duration = duration.max(1);
    let octave = 63 - duration.leading_zeros();
    let fraction = (duration << (63 - octave) << 1) >> 32;
    (i64::from(octave) << 32) | fraction as i64
}

/// The steps by which an execution moves the percentile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moves {
    /// The part of a step by which a slower execution raises the percentile, in units of 2 to the power of
    /// -[`Moves::BITS`].
    pub raise: u32,
    /// The part of a step by which any other execution lowers the percentile, in the same units.
    pub lower: u32,
    /// The number of first executions that are compared with the slowest before them.
    pub early: u64,
}

impl Moves {
    /// The number of binary digits of the parts of a step.
    pub const BITS: u32 = 24;

    /// Returns the steps of a percentile in hundredths of a percent.
    #[must_use]
    pub const fn of(percentile: u64) -> Moves {
        let percentile = if percentile < 10_000 {
            percentile
        } else {
            10_000
        };
        let beyond = 10_000 - percentile;
        Moves {
            raise: ((percentile << Moves::BITS) / 10_000) as u32,
            lower: ((beyond << Moves::BITS) / 10_000) as u32,
            early: match beyond {
                0 => u64::MAX,
                _ => 10_000 / beyond,
            },
        }
    }
}

impl Tail {
    /// The offset of the number of executions in bytes.
    pub const SEEN: usize = core::mem::offset_of!(Self, seen);
    /// The offset of the percentile's level in bytes.
    pub const CUT: usize = core::mem::offset_of!(Self, cut);
    /// The offset of the mean of the levels in bytes.
    pub const MEAN: usize = core::mem::offset_of!(Self, mean);
    /// The offset of the levels' mean deviation in bytes.
    pub const DEVIATION: usize = core::mem::offset_of!(Self, deviation);
    /// The number of executions, as a power of two, over which the mean and the deviation look back.
    pub const MEMORY_BITS: u32 = 6;
    /// The number of executions before the current one from which on hooks can do the arithmetic.
    pub const SETTLED: u64 = (1 << Self::MEMORY_BITS) - 1;

    /// Takes in an execution. Returns true if its duration is slower than the percentile of those before.
    ///
    /// `percentile` is in hundredths of a percent. The first execution counts as slow: it is the slowest so far.
    pub fn observe(&mut self, duration: u64, percentile: u64) -> bool {
        let level = level(duration);
        let moves = Moves::of(percentile);
        let slow = self.seen == 0 || level > self.cut;
        if self.seen == 0 {
            self.mean = level;
        }
        // Below 2³⁷: levels are below 2³⁸.
        let step = self.deviation >> 2 | 1;
        let part = |part: u32| (step * i64::from(part)) >> Moves::BITS;
        self.cut = match (self.seen < moves.early, slow) {
            (true, _) => self.cut.max(level),
            (false, true) => self.cut + part(moves.raise),
            (false, false) => self.cut - part(moves.lower),
        };
        let difference = level - self.mean;
        let change = difference.abs() - self.deviation;
        if self.seen < Self::SETTLED {
            let memory = self.seen as i64 + 1;
            self.mean += difference / memory;
            self.deviation += change / memory;
        } else {
            self.mean += difference >> Self::MEMORY_BITS;
            self.deviation += change >> Self::MEMORY_BITS;
        }
        self.seen = self.seen.wrapping_add(1);
        slow
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::next;

    #[test]
    fn levels_rise_with_durations() {
        for duration in (1..100_000_u64).chain([u64::from(u32::MAX) - 1, 1 << 50, u64::MAX / 2]) {
            assert!(level(duration) < level(duration.saturating_mul(2)));
            assert!(level(duration) <= level(duration + 1));
            assert!(duration > 1 << 32 || level(duration) < level(duration + 1));
        }
        assert_eq!(level(2_000) - level(1_000), 1 << 32);
        assert_eq!(level(0), level(1));
    }

    #[test]
    fn the_first_executions_are_compared_with_the_slowest_so_far() {
        let mut tail = Tail::default();
        let slow = [50, 40, 60, 60, 10, 70].map(|duration| tail.observe(duration, 9_900));
        assert_eq!(slow, [true, false, true, false, false, true]);
    }

    #[test]
    fn equal_durations_have_no_slower_ones() {
        let mut tail = Tail::default();
        assert!(tail.observe(500, 5_000));
        assert!((0..10_000).all(|_| !tail.observe(500, 5_000)));
        assert!(tail.observe(501, 5_000));
    }

    /// Narrow, wide and heavy-tailed durations, and one that changes by the minute.
    #[test]
    fn the_share_beyond_is_that_of_the_percentile() {
        let shapes: [fn(u64, u64) -> u64; 5] = [
            |_, random| 100_000 + random % 300,
            |_, random| 1_000 + random % 100_000,
            |_, random| (1 << (random % 30)) + (random >> 32) % 100,
            |call, random| (1_000 + random % 9_000) << (call / 50_000 % 3 * 2),
            |_, random| {
                if random.is_multiple_of(5) {
                    9_000 + (random >> 32) % 1_000
                } else {
                    50 + (random >> 32) % 10
                }
            },
        ];
        for (shape, duration) in shapes.into_iter().enumerate() {
            for percentile in [5_000, 9_000, 9_900] {
                let mut tail = Tail::default();
                let mut state = percentile;
                let calls = 300_000;
                let slow = (0..calls)
                    .filter(|call| tail.observe(duration(*call, next(&mut state)), percentile))
                    .count() as f64;
                let expected = (calls * (10_000 - percentile) / 10_000) as f64;
                let ratio = slow / expected;
                assert!(
                    (0.85..=1.15).contains(&ratio),
                    "shape {shape}, p{percentile}: {ratio}"
                );
                assert!(tail.observe(1 << 45, percentile));
            }
        }
    }

    #[test]
    fn any_durations_are_taken() {
        let mut tail = Tail::default();
        for call in 0..10_000_u64 {
            tail.observe([0, u64::MAX, 1, 1 << 33][call as usize % 4], call);
        }
    }
}
