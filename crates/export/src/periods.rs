//! The period of an event, and the stretch of time that samples cover.

use crate::source::Source;
use dioptra_perfrecords::AttrFlags;

/// The wall clock at the first of some samples and the time until the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// Nanoseconds since 1970, where the recording relates its clock to the wall clock.
    pub start: Option<u64>,
    /// Nanoseconds; 0 where times are not known.
    pub duration: u64,
}

impl Source<'_> {
    /// Returns the number of events, or nanoseconds, between samples of an event, and its unit; `None` where the kernel
    /// chose it anew for each sample, or an imported profile does not state it.
    pub(crate) fn period(&self, index: usize) -> Option<(u64, &'static str)> {
        let attr = self.event(index).attr();
        let is_clock = self.is_clock(index);
        let unit = if is_clock { "nanoseconds" } else { "count" };
        match attr.flags.contains(AttrFlags::FREQ) {
            true if is_clock => Some((1_000_000_000_u64.checked_div(attr.sample_period)?, unit)),
            true => None,
            // An imported profile of time has this period if its own is not known.
            false if is_clock && attr.sample_period == 1 => None,
            false => Some((attr.sample_period, unit)),
        }
    }

    /// Returns the stretch of time from the first to the last sample of some events.
    pub(crate) fn span(&self, events: &[usize]) -> Span {
        let mut ends: Option<(u64, u64)> = None;
        for index in events {
            self.event(*index).samples(|sample| {
                if let Some(time) = sample.elapsed {
                    let (first, last) = ends.unwrap_or((time, time));
                    ends = Some((first.min(time), last.max(time)));
                }
            });
        }
        let (first, last) = ends.unwrap_or_default();
        Span {
            start: self.wall_clock(first),
            duration: last - first,
        }
    }

    /// Returns the wall clock, in nanoseconds since 1970, at a time since the recording's first sample; `None` where
    /// samples have no times or the recording does not relate its clock to the wall clock.
    pub(crate) fn wall_clock(&self, elapsed: u64) -> Option<u64> {
        let first = self.profile.first_time()?;
        self.origin.wall_clock(first.saturating_add(elapsed))
    }
}
