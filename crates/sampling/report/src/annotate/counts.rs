//! The counts of frames.

use super::model::{AddressCount, AnnotatedEvent};
use crate::columns::weight_unit;
use dioptra_profile::{FrameId, Profile};
use dioptra_tables::Unit;

/// The counts of some events in each frame that has samples.
pub(super) struct FrameCounts {
    /// The frames in rising order, each with the index of its first count.
    rows: Vec<(FrameId, usize)>,
    /// For each frame, a count for each event.
    counts: Vec<AddressCount>,
    events: usize,
}

impl FrameCounts {
    /// Counts in all frames.
    pub fn of(profile: &Profile, events: &[usize]) -> FrameCounts {
        let all = u32::try_from(profile.frames().len()).unwrap_or(u32::MAX);
        Self::counted(profile, events, 0..all)
    }

    /// Counts in some frames, which takes less time than counting in all.
    pub fn within(profile: &Profile, events: &[usize], frames: &[FrameId]) -> FrameCounts {
        let mut frames = frames.to_vec();
        frames.sort_unstable();
        frames.dedup();
        Self::counted(profile, events, frames)
    }

    /// Counts in frames, which come in rising order.
    fn counted(
        profile: &Profile,
        events: &[usize],
        frames: impl IntoIterator<Item = FrameId>,
    ) -> FrameCounts {
        let mut found = FrameCounts {
            rows: Vec::new(),
            counts: Vec::new(),
            events: events.len(),
        };
        for frame in frames {
            let first = found.counts.len();
            found
                .counts
                .resize(first + events.len(), AddressCount::default());
            let mut is_counted = false;
            for (column, event) in events.iter().enumerate() {
                profile.own_counts(*event, [frame], |_, count, estimate| {
                    is_counted = true;
                    found.counts[first + column].add(AddressCount { count, estimate });
                });
            }
            match is_counted {
                true => found.rows.push((frame, first)),
                false => found.counts.truncate(first),
            }
        }
        found
    }

    pub fn iter(&self) -> impl Iterator<Item = (FrameId, &[AddressCount])> {
        let counts = |first: usize| &self.counts[first..first + self.events];
        self.rows
            .iter()
            .map(move |(frame, first)| (*frame, counts(*first)))
    }
}

/// Returns the events, without the function's counts.
pub(super) fn events_of(profile: &Profile, events: &[usize]) -> Vec<AnnotatedEvent> {
    let of = |index: &usize| {
        let event = &profile.events()[*index];
        let unit: Option<Unit> = event.weighs_events().then(|| weight_unit(event));
        AnnotatedEvent {
            index: *index,
            name: event.name().to_owned(),
            unit,
            is_scaled: event.is_scaled(),
            all: AddressCount {
                count: event.total(),
                estimate: event.total_estimate(),
            },
            function: AddressCount::default(),
        }
    };
    events.iter().map(of).collect()
}

/// Adds counts event by event.
pub(super) fn add(sum: &mut [AddressCount], counts: &[AddressCount]) {
    for (sum, count) in sum.iter_mut().zip(counts) {
        sum.add(*count);
    }
}
