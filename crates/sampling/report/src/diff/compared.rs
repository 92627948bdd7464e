//! The columns of one event or formula: the value of each profile, and its difference from the first profile.

use super::test::{adjusted, significance, two_sided};
use super::{DiffOptions, Normalize, profile_letter};
use crate::Input;
use crate::by::events_of;
use crate::columns::{share_of, weight_name, weight_unit};
use crate::derived::{Derived, metric_unit};
use crate::events::id_suffixes;
use crate::grid::{Grid, Measure};
use dioptra_metrics as metrics;
use dioptra_profile::{Count, Estimate};
use dioptra_tables::{Cell, CellNote, Column, ColumnKind, Mark, Unit};

/// A number and its variance.
#[derive(Clone, Copy)]
struct Value {
    value: f64,
    variance: f64,
}

/// The count of one profile in a row, and the value that it stands for.
#[derive(Clone, Copy)]
struct SlotValue {
    known: bool,
    own: Count,
    value: Value,
    /// The square of one sample's mean value where the profile has no sample in the row; else 0.
    unseen: f64,
}

/// The scale that makes weights of a profile comparable.
#[derive(Clone, Copy)]
enum Scale {
    Factor(f64),
    /// The share of another event's sum, or the percentage of the event's own sum.
    Share {
        whole: Estimate,
        is_other: bool,
    },
}

impl Scale {
    fn of(self, estimate: Estimate) -> Value {
        match self {
            Scale::Factor(factor) => Value {
                value: estimate.value * factor,
                variance: estimate.variance * factor * factor,
            },
            Scale::Share { whole, is_other } => {
                let (share, error) = share_of(estimate, whole, is_other);
                let percent = if is_other { 1.0 } else { 100.0 };
                Value {
                    value: percent * share,
                    variance: (percent * error).powi(2),
                }
            }
        }
    }

    fn of_one(self, weight: f64) -> f64 {
        match self {
            Scale::Factor(factor) => weight * factor,
            Scale::Share { whole, is_other } => {
                weight / whole.value * if is_other { 1.0 } else { 100.0 }
            }
        }
    }
}

/// A difference that chance may have made.
#[derive(Clone, Copy)]
struct Tested {
    /// The difference divided by its standard error; not finite where one of the values is not known.
    z: f64,
    few: bool,
}

/// One event or formula in all profiles.
#[derive(Default)]
pub(super) struct Compared {
    id: String,
    name: String,
    event: Option<String>,
    unit: Unit,
    kind: ColumnKind,
    /// The number of profiles.
    slots: usize,
    /// The cells of each row and profile.
    cells: Vec<SlotCell>,
    /// The tests of each row and each profile but the first.
    tested: Vec<Tested>,
    /// The differences of each row and each profile but the first.
    deltas: Vec<Cell<'static>>,
    /// The standard errors of the differences.
    errors: Vec<f64>,
    is_event: bool,
    /// The unit of normalized values, if these have columns beside the weights.
    normalized: Option<Unit>,
}

/// The cells of one profile in a row.
#[derive(Clone)]
struct SlotCell {
    /// The share of an event; empty for formulas.
    percent: Cell<'static>,
    samples: Cell<'static>,
    weight: Cell<'static>,
    /// The value that is compared.
    value: f64,
    error: f64,
    mark: Option<Mark>,
    known: bool,
}

impl Compared {
    pub(super) fn event(
        grid: &Grid,
        inputs: &[Input<'_>],
        options: &DiffOptions<'_>,
        totals: &[Vec<Measure>],
        place: usize,
    ) -> Compared {
        let event = &options.events[place];
        let profiles = events_of(event, inputs);
        let unit = profiles.first().map_or(Unit::Events, |first| {
            if first.weighs_events() {
                weight_unit(first)
            } else {
                Unit::Samples
            }
        });
        let scaled = profiles.iter().any(|profile| profile.is_scaled());
        let is_time = unit == Unit::Nanoseconds;
        let normalized = match &options.normalize {
            Normalize::None => None,
            Normalize::Time(_) if is_time => Some(Unit::Named("ms/s".into())),
            Normalize::Time(_) => Some(Unit::Named("1/s".into())),
            Normalize::Event(by) if *by == place => Some(Unit::Percent),
            Normalize::Event(by) => Some(match options.events.get(*by) {
                Some(by) => Unit::Named(format!("per {}", by.name)),
                None => Unit::None,
            }),
        };
        let scales: Vec<Scale> = totals
            .iter()
            .enumerate()
            .map(|(slot, totals)| match &options.normalize {
                Normalize::None => Scale::Factor(1.0),
                Normalize::Time(seconds) => {
                    let milli = if is_time { 1e-6 } else { 1.0 };
                    Scale::Factor(milli / seconds.get(slot).copied().unwrap_or(f64::NAN))
                }
                Normalize::Event(by) => {
                    let whole = totals
                        .get(*by)
                        .map_or(Estimate::default(), |by| by.estimate);
                    Scale::Share {
                        whole,
                        is_other: *by != place,
                    }
                }
            })
            .collect();
        let mut compared = Compared {
            id: {
                let shown = options.shown.min(options.events.len());
                let names = options.events[..shown].iter().map(|event| &*event.name);
                id_suffixes(&names.collect::<Vec<_>>()).swap_remove(place)
            },
            name: weight_name(&unit).to_owned(),
            event: Some(event.name.clone()),
            unit,
            kind: ColumnKind::Weight,
            slots: inputs.len(),
            is_event: true,
            normalized,
            ..Compared::default()
        };
        for row in 0..grid.len() {
            let mut values: Vec<SlotValue> = Vec::with_capacity(inputs.len());
            for (slot, scale) in scales.iter().enumerate() {
                let measure = grid.measure(row, slot, place);
                let total = totals[slot][place];
                let own = measure.count.own;
                let estimate = if scaled {
                    measure.estimate
                } else {
                    exact(own, measure.estimate)
                };
                let value = SlotValue {
                    known: event.of[slot].is_some(),
                    own,
                    value: scale.of(estimate),
                    // No sample was seen in this row, but chance might have brought one.
                    unseen: match (own.samples, total.count.own.samples) {
                        (0, all @ 1..) => scale.of_one(total.estimate.value / all as f64).powi(2),
                        _ => 0.0,
                    },
                };
                let cell = |cell: Cell<'static>| if value.known { cell } else { Cell::Empty };
                compared.cells.push(SlotCell {
                    percent: cell(Cell::ratio(own.weight, total.count.own.weight)),
                    samples: cell(Cell::Count(own.samples)),
                    weight: cell(if scaled {
                        Cell::real(estimate.value)
                    } else {
                        Cell::Count(own.weight)
                    }),
                    value: value.value.value,
                    error: value.value.variance.sqrt(),
                    mark: None,
                    known: value.known,
                });
                values.push(value);
            }
            let base = values[0];
            for other in &values[1..] {
                let known = base.known && other.known;
                let difference = other.value.value - base.value.value;
                let delta = match (known, scaled, &options.normalize) {
                    (false, ..) => Cell::Empty,
                    (true, false, Normalize::None) => Cell::Difference {
                        minuend: other.own.weight,
                        subtrahend: base.own.weight,
                    },
                    _ => Cell::real(difference),
                };
                let variance = base.value.variance + other.value.variance;
                let spread = (variance + base.unseen + other.unseen).sqrt();
                let most = base.own.samples.max(other.own.samples);
                compared.deltas.push(delta);
                compared.errors.push(variance.sqrt());
                compared.tested.push(Tested {
                    z: if known { difference / spread } else { f64::NAN },
                    few: (1..options.few).contains(&most),
                });
            }
        }
        compared
    }

    pub(super) fn formulas(
        grid: &Grid,
        derived: &Derived<'_>,
        totals: &[Vec<Measure>],
        first: usize,
    ) -> Vec<Compared> {
        let slots = totals.len();
        let of_formulas = |measures: &[Measure]| measures.get(first..).unwrap_or_default().to_vec();
        let mut columns: Vec<Compared> = derived
            .columns()
            .map(|(name, title, of)| Compared {
                id: name.to_owned(),
                name: title.to_owned(),
                event: None,
                unit: metric_unit(of),
                kind: ColumnKind::Ratio,
                slots,
                ..Compared::default()
            })
            .collect();
        let mut evaluators: Vec<_> = totals
            .iter()
            .map(|totals| derived.evaluator(&of_formulas(totals)))
            .collect();
        for row in 0..grid.len() {
            for (slot, evaluator) in evaluators.iter_mut().enumerate() {
                let measures: Vec<Measure> = grid.measures(row, slot).skip(first).collect();
                let values = derived.values(evaluator, &measures);
                for (column, value) in columns.iter_mut().zip(values) {
                    let (value, error, mark) = match value {
                        metrics::Cell::Value {
                            value,
                            error,
                            low_counts,
                            ..
                        } => (value, error, low_counts.then_some(Mark::FewSamples)),
                        metrics::Cell::Missing(inputs) => {
                            (f64::NAN, f64::NAN, Some(Mark::Missing(inputs)))
                        }
                        metrics::Cell::Undefined => (f64::NAN, f64::NAN, None),
                    };
                    column.cells.push(SlotCell {
                        percent: Cell::Empty,
                        samples: Cell::Empty,
                        weight: if value.is_nan() {
                            Cell::Empty
                        } else {
                            Cell::real(value)
                        },
                        value,
                        error,
                        mark,
                        known: true,
                    });
                }
            }
            for column in &mut columns {
                let of_row = &column.cells[row * slots..];
                let base = of_row[0].clone();
                for other in &of_row[1..slots] {
                    let difference = other.value - base.value;
                    let error = base.error.hypot(other.error);
                    let is_few = |cell: &SlotCell| cell.mark == Some(Mark::FewSamples);
                    column.deltas.push(Cell::real(difference));
                    column.errors.push(error);
                    column.tested.push(Tested {
                        z: difference / error,
                        few: is_few(&base) || is_few(other),
                    });
                }
            }
        }
        columns
    }

    pub(super) fn push_heads(&self, heads: &mut Vec<Column>) {
        let mut push = |id: String, name: String, kind, unit| {
            let mut head = Column::new(id, name, kind, unit);
            head.event.clone_from(&self.event);
            heads.push(head);
            heads.len() - 1
        };
        let capital = |slot| profile_letter(slot).to_uppercase();
        let id = |slot: usize, what: &str| match self.is_event {
            true => format!("{}_{what}{}", profile_letter(slot), self.id),
            false if what == "weight" => format!("{}_{}", profile_letter(slot), self.id),
            false => format!("{}_{}_{what}", profile_letter(slot), self.id),
        };
        let mut for_programs = Vec::new();
        if self.is_event {
            for slot in 0..self.slots {
                push(
                    id(slot, "percent"),
                    capital(slot),
                    ColumnKind::Ratio,
                    Unit::Percent,
                );
                let name = format!("{} samples", capital(slot));
                for_programs.push(push(
                    id(slot, "samples"),
                    name,
                    ColumnKind::Count,
                    Unit::Samples,
                ));
            }
        }
        for slot in 0..self.slots {
            let name = format!("{} {}", capital(slot), self.name);
            let place = push(
                id(slot, "weight"),
                name.clone(),
                self.kind,
                self.unit.clone(),
            );
            if let Some(unit) = &self.normalized {
                for_programs.push(place);
                push(id(slot, "value"), name, ColumnKind::Ratio, unit.clone());
            }
        }
        for slot in 1..self.slots {
            let of = if self.slots == 2 {
                String::new()
            } else {
                format!("{} ", capital(slot))
            };
            let (kind, unit) = match &self.normalized {
                Some(unit) => (ColumnKind::Ratio, unit.clone()),
                None => (self.kind, self.unit.clone()),
            };
            push(id(slot, "delta"), format!("{of}delta"), kind, unit);
            let (z, q) = (format!("{of}z"), format!("{of}q"));
            let change = format!("{of}change");
            push(id(slot, "change"), change, ColumnKind::Ratio, Unit::Percent);
            for_programs.push(push(id(slot, "z"), z, ColumnKind::Ratio, Unit::None));
            for_programs.push(push(id(slot, "q"), q, ColumnKind::Ratio, Unit::None));
            push(
                id(slot, "significance"),
                format!("{of}sig"),
                ColumnKind::Name,
                Unit::None,
            );
        }
        for place in for_programs {
            heads[place].is_for_programs = true;
        }
    }

    /// Returns for each profile but the first, and each row, the adjusted probability that chance made the
    /// difference. The rows of each level are judged together.
    pub(super) fn adjust(&self, grid: &Grid) -> Vec<Vec<f64>> {
        let others = self.slots - 1;
        let levels = (0..grid.len())
            .map(|row| grid.row(row).level + 1)
            .max()
            .unwrap_or(0);
        (0..others)
            .map(|other| {
                let mut all = vec![f64::NAN; grid.len()];
                for level in 0..levels {
                    let rows: Vec<usize> = (0..grid.len())
                        .filter(|row| grid.row(*row).level == level)
                        .collect();
                    let z = rows.iter().map(|row| self.tested[row * others + other].z);
                    let of_level = adjusted(&z.map(two_sided).collect::<Vec<_>>());
                    for (row, q) in rows.iter().zip(of_level) {
                        all[*row] = q;
                    }
                }
                all
            })
            .collect()
    }

    /// Returns the size of a row's largest difference.
    pub(super) fn largest(&self, row: usize) -> f64 {
        let others = self.slots - 1;
        let deltas = &self.deltas[row * others..(row + 1) * others];
        let size = |cell: &Cell<'_>| cell.value(1.0).map_or(0.0, f64::abs);
        deltas.iter().map(size).fold(0.0, f64::max)
    }

    /// Returns the largest value of a row.
    pub(super) fn most(&self, row: usize) -> f64 {
        let own = &self.cells[row * self.slots..(row + 1) * self.slots];
        own.iter().map(|cell| cell.value).fold(0.0, f64::max)
    }

    pub(super) fn push_cells(
        &self,
        row: usize,
        adjusted: &[Vec<f64>],
        cells: &mut Vec<Cell<'_>>,
        notes: &mut Vec<CellNote>,
    ) {
        let own = &self.cells[row * self.slots..(row + 1) * self.slots];
        if self.is_event {
            for slot in own {
                cells.extend([slot.percent.clone(), slot.samples.clone()]);
            }
        }
        for slot in own {
            if let Some(mark) = &slot.mark {
                notes.push(CellNote {
                    column: cells.len(),
                    standard_error: None,
                    mark: Some(mark.clone()),
                });
            }
            cells.push(slot.weight.clone());
            if self.normalized.is_some() {
                cells.push(if slot.known {
                    Cell::real(slot.value)
                } else {
                    Cell::Empty
                });
            }
        }
        let others = self.slots - 1;
        for other in 0..others {
            let at = row * others + other;
            let tested = self.tested[at];
            notes.push(CellNote {
                column: cells.len(),
                standard_error: Some(self.errors[at]).filter(|error| *error > 0.0),
                mark: tested.few.then_some(Mark::FewSamples),
            });
            cells.push(self.deltas[at].clone());
            let (base, now) = (own[0].value, own[other + 1].value);
            let change = 100.0 * (now - base) / base;
            let known = self.deltas[at] != Cell::Empty;
            let number = |value: f64| {
                if known {
                    Cell::real(value)
                } else {
                    Cell::Empty
                }
            };
            let q = adjusted[other][row];
            cells.extend([number(change), number(tested.z), number(q)]);
            cells.push(match significance(q) {
                "" => Cell::Empty,
                stars => Cell::name(stars),
            });
        }
    }
}

/// Returns the weight as counted, with the variance of its estimate.
fn exact(count: Count, estimate: Estimate) -> Estimate {
    Estimate {
        value: count.weight as f64,
        variance: estimate.variance,
    }
}
