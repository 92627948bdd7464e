//! The profile that is exported.

use crate::error::ExportError;
use crate::origin::Origin;
use dioptra_profile::{Count, EventProfile, Names, Profile, SampleKeyId, StackId};
use dioptra_report::unit_of;
use dioptra_tables::Unit;

/// The value of each stack in formats that have room for one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Value {
    /// The sum of the samples' periods: nanoseconds of clocks, else a number of events.
    #[default]
    Weight,
    /// The number of samples.
    Samples,
}

impl Value {
    /// Returns this value of a count.
    pub fn of(self, count: Count) -> u64 {
        match self {
            Value::Weight => count.weight,
            Value::Samples => count.samples,
        }
    }
}

/// A profile to export.
///
/// The profile must have call stacks ([`dioptra_profile::LoadOptions::call_chains`]; profiles without chains then have
/// stacks of one frame). Threads, CPUs, times, mappings, lines and inlined functions are exported as far as they were
/// loaded.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    /// The profile.
    pub profile: &'a Profile,
    /// The names of its locations.
    pub names: &'a Names,
    /// The exported events, as indices of [`Profile::events`]. Formats with room for one event export the first.
    pub events: &'a [usize],
    /// The recording's machine and command.
    pub origin: &'a Origin,
}

/// The count of a stack and sample key in one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StackCount {
    pub stack: StackId,
    pub sample_key: SampleKeyId,
    /// The event's place in [`Source::events`].
    pub event: u32,
    pub samples: u64,
    pub weight: u64,
}

impl<'a> Source<'a> {
    /// Checks that there is something to export, and returns the first event's index.
    pub(crate) fn first_event(&self) -> Result<usize, ExportError> {
        if !self.profile.options().call_chains {
            return Err(ExportError::NoStacks);
        }
        let first = self.events.first().copied();
        first
            .filter(|event| self.profile.events().get(*event).is_some())
            .ok_or(ExportError::NoEvent)
    }

    /// Returns an event of the profile.
    pub(crate) fn event(&self, index: usize) -> &'a EventProfile {
        &self.profile.events()[index]
    }

    /// Returns the counts of some events, ordered by stack, sample key and event.
    pub(crate) fn stack_counts(&self, events: &[usize]) -> Vec<StackCount> {
        let mut counts = Vec::new();
        for (place, index) in (0_u32..).zip(events) {
            let event = self.event(*index);
            self.profile.counts(event, |sample_key, stack, count| {
                counts.push(StackCount {
                    stack,
                    sample_key,
                    event: place,
                    samples: count.samples,
                    weight: count.weight,
                });
            });
        }
        counts.sort_unstable();
        counts
    }

    /// Returns the name of the thread that ran samples of this key.
    pub(crate) fn comm_of(&self, sample_key: SampleKeyId) -> String {
        let key = self.profile.sample_keys().get(sample_key);
        self.profile.tasks().comm_of(key)
    }

    /// Returns whether an event's weights are nanoseconds.
    pub(crate) fn is_clock(&self, event: usize) -> bool {
        unit_of(self.event(event)) == Some(Unit::Nanoseconds)
    }

    /// Returns names for the exported events that differ from each other.
    pub(crate) fn event_names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for index in self.events {
            let own = self.event(*index).name();
            let mut name = own.to_owned();
            let mut number = 1;
            while names.contains(&name) {
                number += 1;
                name = format!("{own}#{number}");
            }
            names.push(name);
        }
        names
    }
}
