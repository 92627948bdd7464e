//! Slices of a recording's time.

use crate::profile::Profile;
use std::num::{NonZeroU32, NonZeroU64};

/// The way in which time is cut into slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slices {
    /// This number of slices of equal width.
    Number(NonZeroU32),
    /// Slices of this width in nanoseconds, as many as are needed.
    Width(NonZeroU64),
}

/// Slices of equal width, numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeSlices {
    /// The start of the first slice, in nanoseconds since the recording's first sample.
    pub start: u64,
    /// The width of each slice, in nanoseconds.
    pub width: NonZeroU64,
    /// The number of slices.
    pub number: u32,
}

impl Default for TimeSlices {
    fn default() -> Self {
        TimeSlices {
            start: 0,
            width: NonZeroU64::MAX,
            number: 1,
        }
    }
}

impl TimeSlices {
    /// The key of samples without a time.
    pub const TIMELESS: u32 = u32::MAX;

    /// Returns the slice of a time. Times outside of all slices belong to the first or the last slice.
    #[inline]
    pub fn of(&self, elapsed: Option<u64>) -> u32 {
        let Some(elapsed) = elapsed else {
            return Self::TIMELESS;
        };
        let slice = elapsed.saturating_sub(self.start) / self.width;
        u32::try_from(slice)
            .unwrap_or(u32::MAX)
            .min(self.number.saturating_sub(1))
    }

    /// Returns the start and the end of a slice, in nanoseconds since the recording's first sample. The end is not
    /// included.
    pub fn span(&self, slice: u32) -> (u64, u64) {
        let at = |slice: u64| {
            self.start
                .saturating_add(slice.saturating_mul(self.width.get()))
        };
        (at(slice.into()), at(u64::from(slice) + 1))
    }
}

impl Profile {
    /// Returns slices that hold all counted samples. The first one begins with the recording's first sample or, in a
    /// selection of a span of time, with the span. In such a selection the last one may end with the span. `None`
    /// without [`crate::LoadPlan::log`] or samples.
    pub fn time_slices(&self, slices: Slices) -> Option<TimeSlices> {
        let mut ends: Option<(u64, u64)> = None;
        for event in &self.events {
            event.counts.samples(|_, hit| {
                if let Some(time) = hit.elapsed {
                    let (first, last) = ends.get_or_insert((time, time));
                    *first = time.min(*first);
                    *last = time.max(*last);
                }
            });
        }
        let (first, last) = ends?;
        let span = self.events.first()?.counts.span();
        let start = span.0.unwrap_or(0).min(first);
        let last = span.1.map_or(last, |end| (end - 1).max(last));
        // The last nanosecond is included.
        let length = u128::from(last - start) + 1;
        let least = length.div_ceil(u128::from(u32::MAX - 1));
        let width = match slices {
            Slices::Number(number) => length.div_ceil(u128::from(number.get())),
            Slices::Width(width) => u128::from(width.get()),
        };
        let width = u64::try_from(width.max(least)).unwrap_or(u64::MAX);
        let number = length.div_ceil(u128::from(width.max(1)));
        Some(TimeSlices {
            start,
            width: NonZeroU64::new(width).unwrap_or(NonZeroU64::MIN),
            number: u32::try_from(number).unwrap_or(u32::MAX - 1),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_times_have_a_slice() {
        let slices = TimeSlices {
            start: 100,
            width: NonZeroU64::new(10).unwrap(),
            number: 3,
        };
        let of = |time| slices.of(Some(time));
        assert_eq!([of(0), of(100), of(109), of(110)], [0, 0, 0, 1]);
        assert_eq!([of(129), of(130), of(u64::MAX)], [2, 2, 2]);
        assert_eq!(slices.of(None), TimeSlices::TIMELESS);
        assert_eq!(slices.span(1), (110, 120));
    }
}
