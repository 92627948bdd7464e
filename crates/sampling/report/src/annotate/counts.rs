//! The counts of frames.

use super::model::{AnnotatedEvent, PlaceCount};
use crate::columns::weight_unit;
use dioptra_profile::{Dimension, FrameId, HierarchyOptions, Names, Profile, hierarchy};
use dioptra_tables::Unit;

/// What each frame with samples counts of some events.
pub(super) struct FrameCounts {
    /// By rising frame.
    rows: Vec<(FrameId, Vec<PlaceCount>)>,
}

impl FrameCounts {
    pub fn of(profile: &Profile, names: &Names, events: &[usize]) -> FrameCounts {
        let options = HierarchyOptions {
            estimates: true,
            ..HierarchyOptions::default()
        };
        // Addresses ask for nothing that a profile may lack.
        let found = hierarchy(profile, names, &[Dimension::Address], events, &options);
        let found = found.unwrap_or_default();
        let counts = |row: usize| {
            let of = |event: usize| PlaceCount {
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

    pub fn iter(&self) -> impl Iterator<Item = (FrameId, &[PlaceCount])> {
        self.rows
            .iter()
            .map(|(frame, counts)| (*frame, &counts[..]))
    }
}

/// The events, without the function's counts.
pub(super) fn events_of(profile: &Profile, events: &[usize]) -> Vec<AnnotatedEvent> {
    let of = |index: &usize| {
        let event = &profile.events()[*index];
        let unit: Option<Unit> = event.weighs_events().then(|| weight_unit(event.attr()));
        AnnotatedEvent {
            index: *index,
            name: event.name().to_owned(),
            unit,
            is_scaled: event.is_scaled(),
            all: PlaceCount {
                count: event.total(),
                estimate: event.total_estimate(),
            },
            function: PlaceCount::default(),
        }
    };
    events.iter().map(of).collect()
}

/// Adds counts event by event.
pub(super) fn add(sum: &mut [PlaceCount], counts: &[PlaceCount]) {
    for (sum, count) in sum.iter_mut().zip(counts) {
        sum.add(*count);
    }
}
