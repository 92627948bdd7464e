//! The number columns of an event: shares, samples, weights, and their standard errors.

use crate::grid::Measure;
use dioptra_perfrecords::event_type;
use dioptra_profile::{Count, Estimate, EventProfile, SelfAndTotal};
use dioptra_tables::{Cell, CellNote, Column, ColumnKind, Mark, Unit};

/// The whole that a row's percentage is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PercentOf {
    /// The event's sum over the table, that is over the samples that passed the filters.
    #[default]
    Column,
    /// The event's sum over the whole recording.
    Total,
    /// The first event's sum in the same row; for the first event itself, its sum over the table.
    Row,
    /// The event's sum in the row above; for top rows, its sum over the table.
    Parent,
}

/// The columns that an event has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShownNumbers {
    /// Shares in percent.
    pub percent: bool,
    /// Numbers of samples.
    pub samples: bool,
    /// Sums of periods as they were counted.
    pub weight: bool,
    /// Scaled weights and their shares, where counters took turns: each weight times the factor of its own interval.
    pub scaled: bool,
}

impl Default for ShownNumbers {
    /// Returns all columns.
    fn default() -> Self {
        ShownNumbers {
            percent: true,
            samples: true,
            weight: true,
            scaled: true,
        }
    }
}

/// The options of an event's number columns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NumberOptions {
    pub children: bool,
    pub shown: ShownNumbers,
    pub percent_of: PercentOf,
    /// Whether cells have standard errors.
    pub errors: bool,
    /// The number of samples below which values are marked, where errors are shown or percentages are of a row or
    /// parent.
    pub few: u64,
}

impl NumberOptions {
    /// Returns the options for shares, samples and weights without errors or marks.
    pub(crate) fn plain(children: bool) -> Self {
        NumberOptions {
            children,
            shown: ShownNumbers::default(),
            percent_of: PercentOf::Column,
            errors: false,
            few: 0,
        }
    }

    fn marks(&self) -> bool {
        self.errors || matches!(self.percent_of, PercentOf::Row | PercentOf::Parent)
    }
}

/// The other counts of which a row's percentages may be.
#[derive(Clone, Copy, Default)]
pub(crate) struct Context {
    /// The row's count of the first event; `None` for the first event itself.
    pub first: Option<Measure>,
    /// The count of the event in the row above.
    pub above: Option<Measure>,
}

/// The columns of one event.
pub(crate) struct EventColumns {
    name: String,
    /// The count of the samples that passed the filters.
    total: Count,
    total_estimate: Estimate,
    /// The variance of the event's count, divided by the variance of such a count whose samples weigh the same; 1
    /// where all do, or where errors were not asked for.
    spread: f64,
    unfiltered: Count,
    weight_unit: Option<Unit>,
    scaled: bool,
    options: NumberOptions,
}

/// Returns the sum of the counts of all profiles.
fn sum<'a>(events: &[&'a EventProfile], count: impl Fn(&'a EventProfile) -> Count) -> Count {
    let mut sum = Count::default();
    events.iter().for_each(|event| sum.add(count(event)));
    sum
}

impl EventColumns {
    /// Makes the columns of an event for a table of these profiles' counts.
    pub(crate) fn new(name: &str, events: &[&EventProfile], options: NumberOptions) -> Self {
        let mut total_estimate = Estimate::default();
        if options.errors || events.iter().any(|event| event.is_scaled()) {
            let each = events.iter().map(|event| event.total_estimate());
            each.for_each(|estimate| total_estimate.add(estimate));
        }
        let mut weighing = events.iter().filter(|event| event.weighs_events());
        let total = sum(events, EventProfile::total);
        EventColumns {
            name: name.to_owned(),
            total,
            total_estimate,
            spread: spread_of(total, total_estimate),
            unfiltered: sum(events, EventProfile::unfiltered),
            weight_unit: weighing.next().map(|event| weight_unit(event)),
            scaled: events.iter().any(|event| event.is_scaled()),
            options,
        }
    }

    /// Adds the columns of the event at this place; `suffix` follows their ids.
    pub(crate) fn push_heads(&self, place: usize, suffix: &str, heads: &mut Vec<Column>) {
        let mut push = |id: &str, name: &str, kind, unit| {
            let id = format!("{id}{suffix}");
            heads.push(Column::new(id, name, kind, unit).of_event(&*self.name));
        };
        let shown = self.options.shown;
        let of = |name: &str| match self.options.percent_of {
            PercentOf::Column | PercentOf::Total => name.to_owned(),
            PercentOf::Row if place == 0 => name.to_owned(),
            PercentOf::Row => format!("{name} of row"),
            PercentOf::Parent => format!("{name} of above"),
        };
        if shown.percent {
            if self.options.children {
                push(
                    "total_percent",
                    &of("total"),
                    ColumnKind::Ratio,
                    Unit::Percent,
                );
            }
            push(
                "self_percent",
                &of("self"),
                ColumnKind::Ratio,
                Unit::Percent,
            );
        }
        if shown.samples {
            push("samples", "samples", ColumnKind::Count, Unit::Samples);
        }
        let Some(unit) = &self.weight_unit else {
            return;
        };
        if shown.weight {
            let name = weight_name(unit);
            push("weight", name, ColumnKind::Weight, unit.clone());
        }
        if self.scaled && shown.scaled {
            push("scaled_percent", "scaled", ColumnKind::Ratio, Unit::Percent);
            let name = format!("scaled {}", weight_name(unit));
            push("scaled", &name, ColumnKind::Weight, unit.clone());
        }
    }

    /// Appends the cells of a row without errors.
    pub(crate) fn push_cells(&self, count: SelfAndTotal, cells: &mut Vec<Cell<'_>>) {
        let measure = Measure {
            count,
            estimate: Estimate::default(),
        };
        self.push(measure, Context::default(), cells, &mut Vec::new());
    }

    /// Appends the cells of a row, with notes of their errors and marks.
    pub(crate) fn push(
        &self,
        measure: Measure,
        context: Context,
        cells: &mut Vec<Cell<'_>>,
        notes: &mut Vec<CellNote>,
    ) {
        let Measure { count, estimate } = measure;
        let options = &self.options;
        let shown = options.shown;
        let mut push = |cell, error: f64, few: bool| {
            let mark = (few && options.marks()).then_some(Mark::FewSamples);
            // A count of zero says nothing about its error.
            let standard_error = (options.errors && error > 0.0).then_some(error);
            if mark.is_some() || standard_error.is_some() {
                notes.push(CellNote {
                    column: cells.len(),
                    standard_error,
                    mark,
                });
            }
            cells.push(cell);
        };
        let is_few = |count: Count| count.samples > 0 && count.samples < options.few;
        let own = uncertain(count.own, estimate);
        let share = |own: Count, estimate: Estimate, above: Option<(Count, Estimate)>, rest| {
            let (whole, mut of_whole, independent) =
                match (options.percent_of, context.first, above) {
                    (PercentOf::Total, ..) => {
                        (self.unfiltered, self.typical(self.unfiltered), false)
                    }
                    (PercentOf::Row, Some(first), _) => {
                        let own = first.count.own;
                        (own, uncertain(own, first.estimate), true)
                    }
                    (PercentOf::Parent, _, Some((above, estimate))) => (above, estimate, false),
                    _ => (self.total, self.typical(self.total), false),
                };
            if rest && !independent {
                of_whole.variance = estimate.variance + self.typical(less(whole, own)).variance;
            }
            let whole_few = independent && whole.samples < options.few && own.samples > 0;
            (
                Cell::ratio(own.weight, whole.weight),
                100.0 * share_of(estimate, of_whole, independent).1,
                is_few(own) || whole_few,
            )
        };
        if shown.percent {
            if options.children {
                let above = context.above.map(|above| above.count.total);
                let above = above.map(|above| (above, self.typical(above)));
                // Squares of weights are summed for self counts only, so the weights of callees are taken to vary as
                // the event's do.
                let mut total = self.typical(less(count.total, count.own));
                total.add(own);
                let (cell, error, few) = share(count.total, total, above, true);
                push(cell, error, few);
            }
            let above = context.above.map(|above| above.measured());
            let (cell, error, few) = share(count.own, own, above, false);
            push(cell, error, few);
        }
        if shown.samples {
            let cell = Cell::Count(count.own.samples);
            push(cell, (count.own.samples as f64).sqrt(), false);
        }
        if self.weight_unit.is_none() {
            return;
        }
        if shown.weight {
            push(Cell::Count(count.own.weight), own.error(), false);
        }
        if self.scaled && shown.scaled {
            let whole = self.total_estimate;
            let share = estimate.value / whole.value;
            let error = of_whole(estimate, share, whole.value, whole.variance);
            push(Cell::real(100.0 * share), 100.0 * error, is_few(count.own));
            push(Cell::real(estimate.value), estimate.error(), false);
        }
    }

    /// Returns a count with its error, taking its samples' weights to vary as the weights of all the event's samples
    /// do.
    fn typical(&self, count: Count) -> Estimate {
        let equal = Estimate::of(count);
        Estimate {
            variance: equal.variance * self.spread,
            ..equal
        }
    }
}

impl Measure {
    /// Returns the self count and its estimate.
    fn measured(&self) -> (Count, Estimate) {
        (self.count.own, uncertain(self.count.own, self.estimate))
    }
}

/// Returns a count without a part of it.
fn less(count: Count, part: Count) -> Count {
    Count {
        samples: count.samples.saturating_sub(part.samples),
        weight: count.weight.saturating_sub(part.weight),
    }
}

/// Returns a raw count with the relative error of its estimate, whether that is scaled or not.
fn uncertain(count: Count, estimate: Estimate) -> Estimate {
    let raw = Estimate::of(count);
    if estimate.value <= 0.0 {
        return raw;
    }
    let scale = raw.value / estimate.value;
    Estimate {
        variance: estimate.variance * scale * scale,
        ..raw
    }
}

/// Returns the value of [`EventColumns::spread`].
fn spread_of(count: Count, estimate: Estimate) -> f64 {
    let equal = Estimate::of(count).variance;
    let spread = uncertain(count, estimate).variance / equal;
    if spread.is_finite() { spread } else { 1.0 }
}

/// Returns the quotient of `part` and `whole`, and its standard error.
pub(crate) fn share_of(part: Estimate, whole: Estimate, independent: bool) -> (f64, f64) {
    let share = part.value / whole.value;
    let error = if independent {
        (part.variance + share * share * whole.variance).sqrt() / whole.value
    } else {
        of_whole(part, share, whole.value, whole.variance)
    };
    (share, error)
}

/// Returns the standard error of a share whose part is contained in the whole.
fn of_whole(part: Estimate, share: f64, whole: f64, variance: f64) -> f64 {
    let rest = (variance - part.variance).max(0.0);
    let other = 1.0 - share;
    (other * other * part.variance + share * share * rest).sqrt() / whole
}

/// Returns the name of a column of weights.
pub(crate) fn weight_name(unit: &Unit) -> &'static str {
    if *unit == Unit::Nanoseconds {
        "time"
    } else {
        "events"
    }
}

/// Returns the unit of an event's weights.
pub(crate) fn weight_unit(event: &EventProfile) -> Unit {
    /// `PERF_COUNT_SW_CPU_CLOCK` and `PERF_COUNT_SW_TASK_CLOCK` count nanoseconds.
    const CLOCKS: [u64; 2] = [0, 1];
    let attr = event.attr();
    let is_clock = attr.kind == event_type::SOFTWARE && CLOCKS.contains(&attr.config);
    if is_clock || event.is_off_cpu() {
        Unit::Nanoseconds
    } else {
        Unit::Events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_shares() {
        let count = |samples| Count {
            samples,
            weight: 1000 * samples,
        };
        let error = |part, whole, independent| {
            100.0 * share_of(part, Estimate::of(count(whole)), independent).1
        };
        // Binomial: a quarter of 400 samples, √(0.25 × 0.75 / 400).
        let part = Estimate::of(count(100));
        let quarter = error(part, 400, false);
        assert!((quarter - 2.165).abs() < 0.001, "{quarter}");
        // The share of everything has no error.
        assert_eq!(error(Estimate::of(count(400)), 400, false), 0.0);
        // Two independent events: the errors of both count.
        let two = error(part, 400, true);
        assert!((two - 25.0 * (0.01_f64 + 0.0025).sqrt()).abs() < 1e-9);
        assert!(error(part, 0, true).is_nan());
    }

    /// 300 samples of weight 1 and 100 of weight 9, a quarter of each in one function, half in what it calls.
    #[test]
    fn errors_of_unequal_weights() {
        let count = |ones: u64, nines: u64| Count {
            samples: ones + nines,
            weight: ones + 9 * nines,
        };
        let estimate = |ones: u64, nines: u64| Estimate {
            value: (ones + 9 * nines) as f64,
            variance: (ones + 81 * nines) as f64,
        };
        let columns = EventColumns {
            name: "event".to_owned(),
            total: count(300, 100),
            total_estimate: estimate(300, 100),
            spread: spread_of(count(300, 100), estimate(300, 100)),
            unfiltered: count(300, 100),
            weight_unit: None,
            scaled: false,
            options: NumberOptions {
                errors: true,
                ..NumberOptions::plain(true)
            },
        };
        let errors = |own: (u64, u64), total: (u64, u64)| {
            let measure = Measure {
                count: SelfAndTotal {
                    own: count(own.0, own.1),
                    total: count(total.0, total.1),
                },
                estimate: estimate(own.0, own.1),
            };
            let (mut cells, mut notes) = (Vec::new(), Vec::new());
            columns.push(measure, Context::default(), &mut cells, &mut notes);
            let of = |column| notes.iter().find(|note| note.column == column);
            [0, 1].map(|column| {
                of(column)
                    .and_then(|note| note.standard_error)
                    .unwrap_or(0.0)
            })
        };
        // The samples inside vary, and so do the samples outside: √((1 − p)² Σ w² inside + p² Σ w² outside) / Σ w.
        let exact = |ones: f64, nines: f64| {
            let (inside, all) = (ones + 81.0 * nines, 300.0 + 8100.0);
            let share = (ones + 9.0 * nines) / 1200.0;
            let variance = (1.0 - share).powi(2) * inside + share * share * (all - inside);
            100.0 * variance.sqrt() / 1200.0
        };
        let near =
            |found: f64, exact: f64| assert!((found - exact).abs() < 1e-9, "{found} {exact}");
        let [total, own] = errors((75, 25), (225, 75));
        near(own, exact(75.0, 25.0));
        near(total, exact(225.0, 75.0));
        // Whatever the mix of weights, the share of everything has no error.
        near(errors((75, 25), (300, 100))[0], 0.0);
        let [total, own] = errors((0, 100), (0, 100));
        near(own, exact(0.0, 100.0));
        // The weights of samples outside are taken to vary as the weights of all the event's samples do.
        let outside = 300.0 * 300.0 / 300.0 * (8400.0 / 3600.0);
        let taken = (0.25_f64.powi(2) * 8100.0 + 0.75_f64.powi(2) * outside).sqrt() / 12.0;
        near(total, taken);
    }
}
