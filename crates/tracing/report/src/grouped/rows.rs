//! The rows of groups of several traces, matched.

use super::keys::{GroupNames, Keys, Match};
use super::{Level, TraceInput};
use dioptra_calls::{CallGroups, FunctionTimes, GroupKey, ScaledEstimate, ViewLosses, call_groups};
use dioptra_filters::SampleKind;
use std::collections::HashMap;

/// A row.
pub(super) struct GroupedRow {
    /// The index of the row above; it is smaller.
    pub parent: Option<usize>,
    pub level: usize,
    pub names: GroupNames,
    /// The sums of each trace, if it has the row.
    pub times: Vec<Option<GroupedTimes>>,
}

/// The sums of a trace in a row.
#[derive(Clone, Debug)]
pub(super) struct GroupedTimes {
    pub times: FunctionTimes,
    /// The way in which the function is sampled, in rows of one function.
    pub sampling: Option<SampleKind>,
}

/// A number with its standard error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Value {
    /// The number, rounded if it is an estimate.
    pub value: u64,
    /// The standard error: 0 for a number that is counted, none for an estimate of which too little is known.
    pub error: Option<f64>,
}

/// The numbers of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Values {
    pub calls: Value,
    pub self_time: Value,
    pub total: Value,
    /// Whether the numbers are estimates, and how many calls they come from.
    pub estimated_from: Option<u64>,
}

/// All rows.
pub(super) struct GroupedRows {
    pub rows: Vec<GroupedRow>,
    /// All calls of each trace.
    pub whole: Vec<GroupedTimes>,
    pub losses: Vec<ViewLosses>,
    /// The number of groups that share their row with another group of their trace.
    pub merged: u64,
}

impl GroupedTimes {
    /// Returns the numbers as they are shown.
    pub fn values(&self) -> Values {
        let times = &self.times;
        let slowest_only =
            |calls: f64| self.sampling == Some(SampleKind::Tail) && calls == times.calls as f64;
        match times.sampled {
            Some(sampled) if !slowest_only(sampled.calls.value) => {
                let value = |estimate: ScaledEstimate| Value {
                    value: estimate.value.round() as u64,
                    error: estimate.standard_error,
                };
                Values {
                    calls: value(sampled.calls),
                    self_time: value(sampled.self_time),
                    total: value(sampled.total),
                    estimated_from: Some(times.calls),
                }
            }
            _ => {
                let value = |value| Value {
                    value,
                    error: Some(0.0),
                };
                Values {
                    calls: value(times.calls),
                    self_time: value(times.self_time),
                    total: value(times.total),
                    estimated_from: None,
                }
            }
        }
    }
}

impl GroupedRows {
    pub fn new(inputs: &[TraceInput<'_, '_>], levels: &[Level], matching: Match) -> GroupedRows {
        let mut rows = GroupedRows {
            rows: Vec::new(),
            whole: Vec::new(),
            losses: Vec::new(),
            merged: 0,
        };
        let mut known: HashMap<(Option<usize>, String), usize> = HashMap::new();
        for (slot, input) in inputs.iter().enumerate() {
            let keys = &Keys::new(*input);
            let by: Vec<_> = levels
                .iter()
                .map(|level| move |place: usize, function: u32| keys.key(*level, place, function))
                .collect();
            let by: Vec<GroupKey<'_>> = by.iter().map(|key| key as GroupKey<'_>).collect();
            let CallGroups { groups, losses } = call_groups(input.view, &by);
            rows.losses.push(losses);
            let labels = keys.labels(groups.iter(), levels);
            // The row of each group; none of the group of all calls.
            let mut places: Vec<Option<usize>> = Vec::with_capacity(groups.len());
            for (number, group) in groups.into_iter().enumerate() {
                let level = levels.get(group.level).copied();
                let is_function = level == Some(Level::Function) && number > 0;
                let sampling = is_function
                    .then(|| input.view.sampling(group.key))
                    .flatten();
                let times = GroupedTimes {
                    times: group.times,
                    sampling,
                };
                let Some(level) = level.filter(|_| number > 0) else {
                    rows.whole.push(times);
                    places.push(None);
                    continue;
                };
                let parent = places.get(group.parent as usize).copied().flatten();
                let names = keys.names(level, group.key, &labels, matching);
                let identity = match matching {
                    Match::Apart => group.key.to_string(),
                    _ => names.identity.clone(),
                };
                let next = rows.rows.len();
                let place = *known.entry((parent, identity)).or_insert(next);
                if place == next {
                    rows.rows.push(GroupedRow {
                        parent,
                        level: group.level,
                        names,
                        times: vec![None; inputs.len()],
                    });
                }
                places.push(Some(place));
                rows.add(place, slot, times);
            }
        }
        rows
    }

    fn add(&mut self, row: usize, slot: usize, times: GroupedTimes) {
        match &mut self.rows[row].times[slot] {
            Some(here) => {
                self.merged += 1;
                here.times.merge(&times.times);
                here.sampling = here.sampling.or(times.sampling);
            }
            none => *none = Some(times),
        }
    }
}
