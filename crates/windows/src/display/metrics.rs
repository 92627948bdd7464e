//! The metrics of a table, bound to events.

use dioptra_metrics::{BindNote, Bound, RecordedEvent, Unit};
use dioptra_report::MetricColumns;
use dioptra_tables::{Facts, Remedy, Severity};
use serde_json::{Value, json};

/// Metrics of several sets, as one list.
pub(super) struct Metrics {
    pub bound: Vec<Bound>,
    pub list: Vec<Metric>,
}

/// One metric.
#[derive(Clone, Debug)]
pub(super) struct Metric {
    /// The index of the set in [`Metrics::bound`].
    pub set: usize,
    /// The index of the set's column.
    pub column: usize,
    /// Unique.
    pub id: String,
    pub title: String,
    pub unit: Unit,
}

impl Metrics {
    /// Binds sets to events. The list has the metrics with a value, and those that were named.
    pub fn new(sets: &[MetricColumns<'_>], events: &[RecordedEvent]) -> Metrics {
        let bound: Vec<Bound> = sets
            .iter()
            .map(|of| of.set.bind(events, &of.environment))
            .collect();
        let mut list: Vec<Metric> = Vec::new();
        for (set, (of, bound)) in sets.iter().zip(&bound).enumerate() {
            for column in &of.columns {
                let is_missing = !bound.columns()[*column].missing.is_empty();
                if is_missing && !of.keep.contains(column) {
                    continue;
                }
                let of_set = &of.set.columns()[*column];
                let taken = list.iter().any(|known| known.id == of_set.name);
                list.push(Metric {
                    set,
                    column: *column,
                    id: match taken {
                        true => format!("{}.{}", of.set.name, of_set.name),
                        false => of_set.name.clone(),
                    },
                    title: of_set.title.clone(),
                    unit: of_set.unit.clone(),
                });
            }
        }
        Metrics { bound, list }
    }

    /// Adds the facts about choices of binding, and about metrics of named sets that have no value.
    pub fn add_facts(&self, sets: &[MetricColumns<'_>], tell_missing: bool, facts: &mut Facts) {
        for (set, (of, bound)) in sets.iter().zip(&self.bound).enumerate() {
            let shown = |name: &str| {
                let mut list = self.list.iter().filter(|metric| metric.set == set);
                list.any(|metric| of.set.columns()[metric.column].name == *name)
            };
            let left: Vec<&str> = of
                .columns
                .iter()
                .map(|column| &*of.set.columns()[*column].name)
                .filter(|name| !shown(name))
                .collect();
            // A set that was asked for as a whole.
            if tell_missing && of.keep.is_empty() && !left.is_empty() {
                facts.add(
                    Severity::Info,
                    "missing_inputs",
                    format!(
                        "{}: {} metrics have no value, since their events were not recorded",
                        of.set.name,
                        left.len(),
                    ),
                    json!(left),
                );
                facts.propose(Remedy::RecordWindows(of.set.name.clone()));
            }
            for note in bound.notes() {
                let told = match note {
                    BindNote::Several { wanted, chosen, .. } => {
                        Some(format!("{wanted} in formulas is the event {chosen}"))
                    }
                    BindNote::MixedModifiers { column, inputs } if shown(column) => Some(format!(
                        "{column} compares events that were counted in different modes: {}",
                        inputs.join(", ")
                    )),
                    BindNote::TooLarge { column } => {
                        Some(format!("{column}: the formula is too large"))
                    }
                    _ => None,
                };
                if let Some(told) = told {
                    facts.add(Severity::Fallback, "metric_inputs", told, Value::Null);
                }
            }
        }
    }
}
