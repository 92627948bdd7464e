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
        Self::counted(profile, events, |_| true)
    }

    /// Counts in some frames, which takes less time than counting in all.
    pub fn within(profile: &Profile, events: &[usize], frames: &[FrameId]) -> FrameCounts {
        let mut wanted = vec![false; profile.frames().len()];
        for frame in frames {
            if let Some(wanted) = wanted.get_mut(*frame as usize) {
                *wanted = true;
            }
        }
        let wanted = |frame: FrameId| wanted.get(frame as usize) == Some(&true);
        Self::counted(profile, events, wanted)
    }

    fn counted(
        profile: &Profile,
        events: &[usize],
        wanted: impl Fn(FrameId) -> bool,
    ) -> FrameCounts {
        const NONE: usize = usize::MAX;
        let mut firsts = vec![NONE; profile.frames().len()];
        let mut found = FrameCounts {
            rows: Vec::new(),
            counts: Vec::new(),
            events: events.len(),
        };
        for (column, event) in events.iter().enumerate() {
            profile.own_counts(*event, &wanted, |frame, count, estimate| {
                if count.is_zero() {
                    return;
                }
                let first = &mut firsts[frame as usize];
                if *first == NONE {
                    *first = found.counts.len();
                    let empty = found.counts.len() + events.len();
                    found.counts.resize(empty, AddressCount::default());
                    found.rows.push((frame, *first));
                }
                found.counts[*first + column].add(AddressCount { count, estimate });
            });
        }
        found.rows.sort_unstable();
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
        let unit: Option<Unit> = event.weighs_events().then(|| weight_unit(event.attr()));
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
