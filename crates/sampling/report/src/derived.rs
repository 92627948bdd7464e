//! Derived columns: the values that a metric set's formulas compute from a row's counts.

use crate::Input;
use crate::events::TableEvent;
use crate::grid::Measure;
use dioptra_metrics::{self as metrics, BindNote, Bound, Environment, Evaluator, MetricSet, Mode};
use dioptra_perfrecords::AttrFlags;
use dioptra_profile::Profile;
use dioptra_tables::{Cell, CellNote, Column, ColumnKind, Facts, Mark, Remedy, Severity, Unit};
use serde_json::{Value, json};
use std::collections::HashSet;

/// The number of columns without values that text names one by one.
const COLUMNS_TOLD: usize = 5;

/// Derived columns of one set.
#[derive(Clone, Debug)]
pub struct MetricColumns<'a> {
    /// The set.
    pub set: &'a MetricSet,
    /// The indices of the set's columns to show; a column stands before the columns that fold under it.
    pub columns: Vec<usize>,
    /// The indices of columns that are shown even where their inputs were not recorded. A fact lists every column
    /// that lacks inputs.
    pub keep: Vec<usize>,
    /// The constants of the machine and the run that formulas may use.
    pub environment: Environment,
}

/// The derived columns of one set, bound to a table's events.
pub(crate) struct Derived<'a> {
    of: &'a MetricColumns<'a>,
    bound: Bound,
    /// The indices of the set's columns that are shown.
    shown: Vec<usize>,
}

fn count(measure: &Measure) -> metrics::Count {
    metrics::Count {
        samples: measure.count.own.samples,
        value: measure.estimate.value,
        variance: measure.estimate.variance,
    }
}

impl<'a> Derived<'a> {
    /// Binds each set, and returns the events that rows have to count: the shown ones, then all that formulas may
    /// need, in the order to which the sets are bound.
    pub(crate) fn all(
        metrics: &'a [MetricColumns<'a>],
        inputs: &[Input<'_>],
        shown: &[TableEvent],
    ) -> (Vec<Self>, Vec<TableEvent>) {
        let profiles: Vec<&Profile> = inputs.iter().map(|input| input.profile).collect();
        let recorded = TableEvent::all(&profiles);
        let derived: Vec<Self> = metrics
            .iter()
            .map(|of| Derived::new(of, inputs, &recorded))
            .collect();
        let mut counted = shown.to_vec();
        let asks = |derived: &Self| derived.inputs().next().is_some();
        if derived.iter().any(asks) {
            counted.extend(recorded);
        }
        (derived, counted)
    }

    /// Binds a set to the events; rows give their counts in this order.
    pub(crate) fn new(
        of: &'a MetricColumns<'a>,
        inputs: &[Input<'_>],
        events: &[TableEvent],
    ) -> Self {
        let recorded: Vec<metrics::RecordedEvent> = events
            .iter()
            .map(|event| {
                let attrs =
                    event.of.iter().zip(inputs).filter_map(|(index, input)| {
                        Some(input.profile.events()[(*index)?].attr())
                    });
                let mut periods: Vec<Option<u64>> = attrs
                    .map(|attr| {
                        let fixed = !attr.flags.contains(AttrFlags::FREQ);
                        fixed.then_some(attr.sample_period)
                    })
                    .collect();
                periods.dedup();
                metrics::RecordedEvent {
                    name: event.name.clone(),
                    period: match periods[..] {
                        [Some(period @ 1..)] => Some(period as f64),
                        _ => None,
                    },
                    group: None,
                }
            })
            .collect();
        let bound = of.set.bind(&recorded, &of.environment);
        let is_missing = |column: usize| !bound.columns()[column].missing.is_empty();
        let shown = of.columns.iter().copied();
        let shown = shown
            .filter(|column| of.keep.contains(column) || !is_missing(*column))
            .collect();
        Derived { of, bound, shown }
    }

    /// Returns the indices of the events that the shown columns need.
    pub(crate) fn inputs(&self) -> impl Iterator<Item = usize> + '_ {
        let columns = self
            .shown
            .iter()
            .map(|column| &self.bound.columns()[*column]);
        columns.flat_map(|column| column.inputs.iter().map(|input| *input as usize))
    }

    /// Returns the name, heading and unit of each column.
    pub(crate) fn columns(&self) -> impl Iterator<Item = (&str, &str, &metrics::Unit)> {
        let columns = self.of.set.columns();
        self.shown.iter().map(|column| {
            let column = &columns[*column];
            (&*column.name, &*column.title, &column.unit)
        })
    }

    /// Appends the columns; `heads` holds the columns that the table has already.
    pub(crate) fn push_heads(&self, heads: &mut Vec<Column>) {
        let set = self.of.set;
        let mut places = vec![None; set.columns().len()];
        let mut taken: HashSet<String> = heads.iter().map(|head| head.id.clone()).collect();
        for column in &self.shown {
            let head = &set.columns()[*column];
            let id = if taken.contains(&head.name) {
                format!("{}.{}", set.name, head.name)
            } else {
                head.name.clone()
            };
            taken.insert(id.clone());
            let mut new = Column::new(id, &*head.title, ColumnKind::Ratio, metric_unit(&head.unit));
            // The column folds under the nearest one above that is shown.
            let mut above = head.parent;
            while let Some(parent) = above {
                if let Some(place) = places[parent] {
                    new = new.below(place);
                    break;
                }
                above = set.columns()[parent].parent;
            }
            places[*column] = Some(heads.len());
            heads.push(new);
        }
    }

    /// Returns an evaluator for a profile with these sums.
    pub(crate) fn evaluator(&self, totals: &[Measure]) -> Evaluator<'_> {
        let totals: Vec<metrics::Count> = totals.iter().map(count).collect();
        self.bound.evaluator(&totals, Mode::Exact)
    }

    /// Returns the values of a row, one for each column.
    pub(crate) fn values(
        &self,
        evaluator: &mut Evaluator<'_>,
        counts: &[Measure],
    ) -> Vec<metrics::Cell> {
        let counts: Vec<metrics::Count> = counts.iter().map(count).collect();
        let cells = evaluator.row(&counts);
        self.shown
            .iter()
            .map(|column| cells[*column].clone())
            .collect()
    }

    /// Appends the cells of a row, with notes of their errors and marks.
    pub(crate) fn push(
        &self,
        evaluator: &mut Evaluator<'_>,
        counts: &[Measure],
        cells: &mut Vec<Cell<'_>>,
        notes: &mut Vec<CellNote>,
    ) {
        for value in self.values(evaluator, counts) {
            push_metric(&value, cells, notes);
        }
    }

    /// Adds facts on missing inputs, on sums without some of their events, and on the choice of events.
    pub(crate) fn add_facts(&self, facts: &mut Facts) {
        let set = self.of.set;
        let missing = |column: &usize| {
            let inputs = &self.bound.columns()[*column].missing;
            (!inputs.is_empty()).then(|| (&*set.columns()[*column].name, inputs.clone()))
        };
        let list: Vec<_> = self.of.columns.iter().filter_map(missing).collect();
        if !list.is_empty() {
            let mut told: Vec<String> = list
                .iter()
                .take(COLUMNS_TOLD)
                .map(|(name, inputs)| format!("{name} (no {})", inputs.join(", ")))
                .collect();
            if let Some(more @ 1..) = list.len().checked_sub(COLUMNS_TOLD) {
                told.push(format!("{more} more, which JSON lists"));
            }
            let value: serde_json::Map<String, Value> = list
                .iter()
                .map(|(name, inputs)| ((*name).to_owned(), json!(inputs.to_vec())))
                .collect();
            let what = if list.len() > 1 {
                "columns"
            } else {
                "a column"
            };
            facts.add(
                Severity::Info,
                "missing_inputs",
                format!(
                    "{}: {what} without values, since events were not recorded: {}",
                    set.name,
                    told.join("; ")
                ),
                Value::Object(value),
            );
            facts.propose(Remedy::RecordMetrics(set.name.clone()));
        }
        for column in &self.shown {
            let left_out = &self.bound.columns()[*column].left_out;
            if !left_out.is_empty() {
                let name = &set.columns()[*column].name;
                facts.add(
                    Severity::Loss,
                    "partial_sum",
                    format!(
                        "{name} is a lower bound: without {}, which were not recorded",
                        left_out.join(", ")
                    ),
                    json!({"column": name, "left_out": left_out.to_vec()}),
                );
            }
        }
        let is_shown = |name: &str| {
            let column = set.column(name);
            column.is_some_and(|column| self.shown.contains(&column))
        };
        for note in self.bound.notes() {
            let told = match note {
                BindNote::Several {
                    wanted,
                    chosen,
                    others,
                } => Some(format!(
                    "{wanted} in formulas is the event {chosen}, not {}",
                    others.join(", ")
                )),
                BindNote::MixedModifiers { column, inputs } if is_shown(column) => Some(format!(
                    "{column} compares events that were counted in different modes: {}",
                    inputs.join(", ")
                )),
                BindNote::ApartGroups { column } if is_shown(column) => Some(format!(
                    "{column} compares events that were not counted at the same time"
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
        let unknown = set.unknown.iter();
        unknown.for_each(|what| {
            facts.add(
                Severity::Info,
                "metric_set",
                what.as_str(),
                set.name.as_str(),
            );
        });
    }
}

/// Appends the value of a metric as a cell, with its standard error and mark.
pub fn push_metric(value: &metrics::Cell, cells: &mut Vec<Cell<'_>>, notes: &mut Vec<CellNote>) {
    let (cell, standard_error, mark) = match value {
        metrics::Cell::Value {
            value,
            error,
            low_counts,
            partial,
        } => {
            let mark = match (low_counts, partial) {
                (true, _) => Some(Mark::FewSamples),
                (false, true) => Some(Mark::Partial),
                (false, false) => None,
            };
            (Cell::real(*value), Some(*error), mark)
        }
        metrics::Cell::Missing(inputs) => (Cell::Empty, None, Some(Mark::Missing(inputs.clone()))),
        metrics::Cell::Undefined => (Cell::real(f64::NAN), None, None),
    };
    notes.push(CellNote {
        column: cells.len(),
        standard_error,
        mark,
    });
    cells.push(cell);
}

/// Returns the unit of a metric's column. Values in percent are times 100 already.
pub fn metric_unit(unit: &metrics::Unit) -> Unit {
    match unit {
        metrics::Unit::Events => Unit::Events,
        metrics::Unit::Percent(_) => Unit::Percent,
        metrics::Unit::Ratio => Unit::None,
        other => Unit::Named(other.to_string()),
    }
}
