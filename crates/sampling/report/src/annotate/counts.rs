//! The counts of frames.

use super::model::{AddressCount, AnnotatedEvent};
use crate::columns::weight_unit;
use dioptra_profile::{Dimension, FrameId, HierarchyOptions, Names, Profile, hierarchy};
use dioptra_tables::Unit;

/// The counts of some events in each frame that has samples.
pub(super) struct FrameCounts {
    /// The frames in rising order, each with a count for each event.
    rows: Vec<(FrameId, Vec<AddressCount>)>,
}

impl FrameCounts {
    pub fn of(profile: &Profile, names: &Names, events: &[usize]) -> FrameCounts {
        let options = HierarchyOptions {
            estimates: true,
            ..HierarchyOptions::default()
        };
        // Every profile has addresses, so this does not fail.
        let found = hierarchy(profile, names, &[Dimension::Address], events, &options);
        let found = found.unwrap_or_default();
        let counts = |row: usize| {
            let of = |event: usize| AddressCount {
                count: found.count(row, event).own,
                estimate: found.estimate(row, event),
            };
            (0..events.len()).map(of).collect()
        };
        let rows = found.rows().enumerate();
        FrameCounts {
            rows: rows.map(|(row, frame)| (frame.key, counts(row))).collect(),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (FrameId, &[AddressCount])> {
        self.rows
            .iter()
            .map(|(frame, counts)| (*frame, &counts[..]))
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
