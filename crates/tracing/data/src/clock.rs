//! The conversion of the records' clock to `CLOCK_MONOTONIC`.

use crate::ClockPair;

/// A straight line between two pairs of readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ClockSegment {
    /// The first tick of the segment, unshifted.
    ticks: u64,
    /// `CLOCK_MONOTONIC` at that tick, in nanoseconds.
    monotonic: u64,
    /// The nanoseconds of a tick, times 2^32.
    slope: u64,
}

impl ClockSegment {
    #[inline]
    fn at(&self, ticks: u64) -> u64 {
        if ticks >= self.ticks {
            let passed = (u128::from(ticks - self.ticks) * u128::from(self.slope)) >> 32;
            self.monotonic.saturating_add(clamp(passed))
        } else {
            let before = (u128::from(self.ticks - ticks) * u128::from(self.slope)) >> 32;
            self.monotonic.saturating_sub(clamp(before))
        }
    }
}

#[inline]
fn clamp(nanoseconds: u128) -> u64 {
    u64::try_from(nanoseconds).unwrap_or(u64::MAX)
}

/// A map from ticks of the records' clock to `CLOCK_MONOTONIC` in nanoseconds: a straight line between each two pairs
/// of readings of both clocks. Before the first and after the last pair the nearest line goes on.
///
/// The map is exact to a nanosecond if pairs are a few seconds apart. It never decreases, whatever the pairs say:
/// pairs that go backwards in either clock are left out.
#[derive(Clone, Debug)]
pub struct ClockMap {
    segments: Vec<ClockSegment>,
    measured: bool,
}

impl ClockMap {
    /// Returns the map for pairs of readings, in any order. With fewer than two usable pairs a tick counts as a
    /// nanosecond.
    pub fn new(mut pairs: Vec<ClockPair>) -> ClockMap {
        pairs.sort_unstable_by_key(|pair| pair.ticks);
        let mut kept: Vec<ClockPair> = Vec::with_capacity(pairs.len());
        for pair in pairs {
            if kept
                .last()
                .is_none_or(|last| pair.ticks > last.ticks && pair.monotonic > last.monotonic)
            {
                kept.push(pair);
            }
        }
        let segments: Vec<ClockSegment> = kept
            .windows(2)
            .map(|ends| {
                let ticks = ends[1].ticks - ends[0].ticks;
                let passed = ends[1].monotonic - ends[0].monotonic;
                ClockSegment {
                    ticks: ends[0].ticks,
                    monotonic: ends[0].monotonic,
                    slope: u64::try_from((u128::from(passed) << 32) / u128::from(ticks))
                        .unwrap_or(u64::MAX),
                }
            })
            .collect();
        if !segments.is_empty() {
            return ClockMap {
                segments,
                measured: true,
            };
        }
        let (ticks, monotonic) = kept.first().map_or((0, 0), |p| (p.ticks, p.monotonic));
        ClockMap {
            segments: vec![ClockSegment {
                ticks,
                monotonic,
                slope: 1 << 32,
            }],
            measured: false,
        }
    }

    /// Returns true if there were two pairs to draw a line between. If not, durations are in ticks.
    pub fn is_measured(&self) -> bool {
        self.measured
    }

    /// Returns a cursor for times that mostly increase.
    pub fn cursor(&self) -> ClockCursor<'_> {
        ClockCursor {
            segments: &self.segments,
            current: 0,
            end: end_of(&self.segments, 0),
        }
    }
}

fn end_of(segments: &[ClockSegment], segment: usize) -> u64 {
    segments.get(segment + 1).map_or(u64::MAX, |s| s.ticks)
}

/// A converter for ticks one after the other, fastest when they increase.
#[derive(Clone, Debug)]
pub struct ClockCursor<'a> {
    segments: &'a [ClockSegment],
    current: usize,
    end: u64,
}

impl ClockCursor<'_> {
    /// Returns `CLOCK_MONOTONIC` in nanoseconds at a tick (unshifted).
    #[inline]
    pub fn monotonic(&mut self, ticks: u64) -> u64 {
        let segment = &self.segments[self.current];
        if ticks >= self.end || ticks < segment.ticks {
            return self.seek(ticks);
        }
        segment.at(ticks)
    }

    #[cold]
    fn seek(&mut self, ticks: u64) -> u64 {
        let behind = self.segments.partition_point(|s| s.ticks <= ticks);
        self.current = behind.saturating_sub(1);
        self.end = end_of(self.segments, self.current);
        self.segments[self.current].at(ticks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(ticks: u64, monotonic: u64) -> ClockPair {
        ClockPair { ticks, monotonic }
    }

    #[test]
    fn times_lie_on_lines_between_pairs() {
        let map = ClockMap::new(vec![
            pair(1000, 500),
            pair(3000, 1500),
            pair(2500, 9999), // Later by one clock than the third, earlier by the other.
            pair(5000, 11_999),
        ]);
        assert!(map.is_measured());
        let mut cursor = map.cursor();
        assert_eq!(cursor.monotonic(1000), 500);
        assert_eq!(cursor.monotonic(0), 0, "does not go below zero");
        assert_eq!(cursor.monotonic(2500), 9999);
        assert_eq!(cursor.monotonic(7500), 13_998, "rounded down");
        assert_eq!(cursor.monotonic(1000), 500, "backwards too");
    }

    #[test]
    fn without_two_pairs_a_tick_is_a_nanosecond() {
        let map = ClockMap::new(vec![pair(1000, 500)]);
        assert!(!map.is_measured());
        assert_eq!(map.cursor().monotonic(1010), 510);
        assert_eq!(ClockMap::new(Vec::new()).cursor().monotonic(7), 7);
    }

    proptest::proptest! {
        #[test]
        fn time_never_goes_back(
            pairs in proptest::collection::vec((0..1_000_000_u64, 0..1_000_000_u64), 0..8),
            mut ticks in proptest::collection::vec(proptest::prelude::any::<u64>(), 0..50),
            near in proptest::collection::vec(0..2_000_000_u64, 0..50),
        ) {
            let map = ClockMap::new(pairs.into_iter().map(|(t, m)| pair(t, m)).collect());
            ticks.extend(near);
            ticks.sort_unstable();
            let mut cursor = map.cursor();
            let times: Vec<u64> = ticks.iter().map(|&t| cursor.monotonic(t)).collect();
            proptest::prop_assert!(times.is_sorted(), "{times:?}");
        }
    }
}
