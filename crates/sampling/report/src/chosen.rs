//! The derived columns of tables, as they were chosen for a recording.

use crate::MetricColumns;
use dioptra_metrics::{ChosenColumns, CpuId, Environment, MetricSet, RecordedEvent};
use dioptra_profile::Profile;
use std::borrow::Cow;

/// Metric sets and the columns chosen from them.
#[derive(Clone, Debug)]
pub struct ChosenMetrics {
    /// Each set with its chosen columns, and the indices of the columns that were named.
    sets: Vec<(ChosenColumns, Vec<usize>)>,
    environment: Environment,
}

/// The events that chosen metrics lack in a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingEvents {
    /// The metrics.
    pub wanted: Vec<String>,
    /// The events without which none of them has a value.
    pub missing: Vec<String>,
    /// The generic metrics that the recorded events make.
    pub known: Vec<String>,
    /// The recorded events.
    pub recorded: Vec<String>,
}

impl ChosenMetrics {
    /// Begins without columns, for a recording's CPU, if it is known. Values from fewer samples than `few` are marked.
    pub fn new(cpu: Option<&str>, few: u64) -> ChosenMetrics {
        let mut environment = Environment::new();
        environment.min_samples = few;
        if let Some(cpu) = cpu {
            environment = environment.with_cpu(CpuId::parse(cpu));
        }
        ChosenMetrics {
            sets: Vec::new(),
            environment,
        }
    }

    /// Adds chosen columns. Columns that are there already are not added again.
    pub fn add(&mut self, found: ChosenColumns) {
        let named = found.named();
        let mut known = self.sets.iter_mut();
        match known.find(|(known, _)| known.set.name == found.set.name) {
            Some((known, keep)) => {
                let new = |column: &usize| !known.columns.contains(column);
                let more: Vec<usize> = found.columns.into_iter().filter(new).collect();
                known.columns.extend(more);
                keep.extend(named);
            }
            None => self.sets.push((found, named)),
        }
    }

    /// Adds all columns of the generic set. A table drops those whose events were not recorded.
    pub fn add_generic(&mut self) {
        let set = MetricSet::generic();
        let columns = ChosenColumns {
            set: Cow::Borrowed(set),
            columns: (0..set.columns().len()).collect(),
        };
        self.sets.push((columns, Vec::new()));
    }

    /// Returns whether there are no columns.
    pub fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// Returns whether a set was chosen as a whole, rather than by the names of its columns.
    pub fn has_whole_sets(&self) -> bool {
        self.sets.iter().any(|(_, named)| named.is_empty())
    }

    /// Returns the missing events if the recording has the events of none of the columns.
    pub fn missing(&self, profile: &Profile) -> Option<MissingEvents> {
        let events = recorded_events(profile);
        let mut wanted: Vec<String> = Vec::new();
        let mut missing: Vec<String> = Vec::new();
        for (chosen, named) in &self.sets {
            let bound = chosen.set.bind(&events, &self.environment);
            for column in &chosen.columns {
                let of = &bound.columns()[*column].missing;
                if of.is_empty() {
                    return None;
                }
                if !named.is_empty() && !named.contains(column) {
                    continue;
                }
                wanted.push(chosen.set.columns()[*column].name.clone());
                missing.extend(of.iter().cloned());
            }
        }
        if self.sets.is_empty() {
            return None;
        }
        missing.sort_unstable();
        missing.dedup();
        let generic = MetricSet::generic();
        let known = self.made_columns(generic, &events);
        let known = known.map(|column| generic.columns()[column].name.clone());
        Some(MissingEvents {
            wanted,
            missing,
            known: known.collect(),
            recorded: events.into_iter().map(|event| event.name).collect(),
        })
    }

    /// Returns the columns of a set that the recorded events make, as indices.
    pub fn made(&self, set: &MetricSet, profile: &Profile) -> Vec<usize> {
        self.made_columns(set, &recorded_events(profile)).collect()
    }

    fn made_columns(
        &self,
        set: &MetricSet,
        events: &[RecordedEvent],
    ) -> impl Iterator<Item = usize> + use<> {
        let bound = set.bind(events, &self.environment);
        let made = bound
            .columns()
            .iter()
            .map(|column| column.missing.is_empty());
        let made: Vec<bool> = made.collect();
        (0..made.len()).filter(move |column| made[*column])
    }

    /// Returns the columns for tables. Tables drop a column whose inputs were not recorded, with a diagnostic, unless
    /// that column was named.
    pub fn columns(&self) -> Vec<MetricColumns<'_>> {
        let each = self.sets.iter().map(|(chosen, keep)| MetricColumns {
            set: &chosen.set,
            columns: chosen.columns.clone(),
            keep: keep.clone(),
            environment: self.environment.clone(),
        });
        each.collect()
    }
}

/// Returns the events of a recording that metrics can be made of: those of its windows where it has windows.
fn recorded_events(profile: &Profile) -> Vec<RecordedEvent> {
    let all = profile.events();
    let of_windows = all.iter().any(|event| event.is_set_aside());
    all.iter()
        .filter(|event| !event.is_dummy() && event.is_set_aside() == of_windows)
        .map(|event| RecordedEvent::named(event.name()))
        .collect()
}
