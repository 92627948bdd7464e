//! Columns and cells of metrics.

use super::WindowOptions;
use super::measure::{Known, Measured, MeasuredRow};
use super::rows::Rows;
use crate::estimate::{Drift, Estimate, Figure, Interval, Method};
use dioptra_metrics as metrics;
use dioptra_report::{RowLabels, metric_unit, push_metric};
use dioptra_tables::{Cell, CellNote, Column, ColumnKind, Mark, Severity, Table, Unit};

/// How near a value is to be known where a row says how much longer that takes.
const WANTED: f64 = 0.05;

/// Who would have to record for longer than so many seconds will not: people are not told.
const LONGEST: f64 = 3600.0;

/// Of two-sided 95 % in the normal distribution.
pub(super) const NORMAL: f64 = 1.959_963_984_540_054;

/// The columns that each metric has for programs, after its own.
const DETAILS: [&str; 16] = [
    "low",
    "high",
    "raw",
    "raw_low",
    "raw_high",
    "corrected",
    "corrected_low",
    "corrected_high",
    "bursts",
    "windows",
    "events",
    "needs_s",
    "method",
    "apart",
    "drift",
    "drift_p",
];

pub(super) fn heads(
    measured: &Measured,
    rows: &Rows,
    labels: &RowLabels,
    options: &WindowOptions<'_>,
) -> Vec<Column> {
    let ratio = |id: &str, name: &str, unit| Column::new(id, name, ColumnKind::Ratio, unit);
    let count = |id: &str, name: &str| Column::new(id, name, ColumnKind::Count, Unit::None);
    let mut heads = vec![ratio("share_percent", "time", Unit::Percent)];
    if !options.for_people {
        heads.push(ratio("share_low_percent", "time from", Unit::Percent));
        heads.push(ratio("share_high_percent", "time to", Unit::Percent));
        heads.push(count("samples", "samples"));
    }
    if measured.with_kernel {
        heads.push(ratio("kernel_percent", "in kernel", Unit::Percent));
    }
    for metric in &measured.metrics {
        let place = heads.len();
        heads.push(ratio(&metric.id, &metric.title, metric_unit(&metric.unit)));
        if options.for_people {
            continue;
        }
        for detail in DETAILS {
            let id = format!("{}_{detail}", metric.id);
            let column = match detail {
                "bursts" | "windows" | "events" => count(&id, &id),
                "method" | "apart" => Column::new(&*id, &*id, ColumnKind::Name, Unit::None),
                "needs_s" => ratio(&id, &id, Unit::Named("s".into())),
                "drift_p" => ratio(&id, &id, Unit::None),
                _ => ratio(&id, &id, metric_unit(&metric.unit)),
            };
            heads.push(column.below(place));
        }
    }
    if measured.has_windows {
        heads.push(count("kept_windows", "kept"));
        heads.push(count("windows", "windows"));
        heads.push(ratio("discarded_percent", "discarded", Unit::Percent));
        heads.push(Column::new("trust", "trust", ColumnKind::Name, Unit::None));
        if !options.for_people {
            heads.push(ratio("left_percent", "left", Unit::Percent));
            heads.push(ratio("mean_run", "mean run", Unit::Named("windows".into())));
        }
    }
    if says_needs(measured, options) {
        let unit = Unit::Named("s".into());
        heads.push(Column::new("needs", "±5% in", ColumnKind::Count, unit));
    }
    heads.extend(rows.name_heads(labels));
    heads
}

pub(super) fn push(
    measured: &Measured,
    row: &MeasuredRow,
    options: &WindowOptions<'_>,
    cells: &mut Vec<Cell<'_>>,
    notes: &mut Vec<CellNote>,
) {
    push_share(row, options, cells);
    if measured.with_kernel {
        let part = row.in_kernel.filter(|_| row.share.is_some());
        cells.push(part.map_or(Cell::Empty, |part| Cell::real(100.0 * part)));
    }
    for figure in &row.figures {
        match figure {
            Known::Windows(figure, drift) => {
                push_figure(
                    (figure, drift.as_ref()),
                    row.is_unreliable(),
                    measured.seconds,
                    options,
                    cells,
                    notes,
                );
            }
            Known::Sampled(cell) => push_sampled(cell, options, cells, notes),
        }
    }
    if measured.has_windows {
        let (kept, all) = row.windows.unwrap_or_default();
        cells.extend([Cell::Count(kept), Cell::Count(all)]);
        let discarded = row.discarded.map(|ratio| Cell::real(100.0 * ratio));
        let trust = row.trust.map(|trust| Cell::name(trust.name()));
        cells.extend([discarded, trust].map(|cell| cell.unwrap_or(Cell::Empty)));
        if !options.for_people {
            let left = row.left.map(|(left, _)| Cell::real(100.0 * left));
            let run = row.left.map(|(_, run)| Cell::real(run));
            cells.extend([left, run].map(|cell| cell.unwrap_or(Cell::Empty)));
        }
    }
    if says_needs(measured, options) {
        let needs = match row.figures.first() {
            Some(Known::Windows(figure, _)) if !says_nothing(figure) && !row.is_unreliable() => {
                needs(figure, measured.seconds)
            }
            _ => None,
        };
        let needs = needs.filter(|seconds| *seconds <= LONGEST);
        cells.push(needs.map_or(Cell::Empty, |seconds| Cell::Count(seconds.ceil() as u64)));
    }
}

/// Whether a column tells how long the first metric takes to be known well; programs have one for each metric.
fn says_needs(measured: &Measured, options: &WindowOptions<'_>) -> bool {
    options.for_people && measured.has_windows && !measured.metrics.is_empty()
}

fn push_share(row: &MeasuredRow, options: &WindowOptions<'_>, cells: &mut Vec<Cell<'_>>) {
    let Some(share) = row.share else {
        let columns = if options.for_people { 1 } else { 4 };
        cells.extend(std::iter::repeat_n(Cell::Empty, columns));
        return;
    };
    let value = 100.0 * share.value;
    if options.for_people {
        let reach = (share.high - share.value).max(share.value - share.low);
        cells.push(Cell::estimate(value, 100.0 * reach));
        return;
    }
    cells.push(Cell::estimate(value, 100.0 * share.error));
    cells.push(Cell::real(100.0 * share.low));
    cells.push(Cell::real(100.0 * share.high));
    cells.push(Cell::Count(share.samples));
}

/// How many more seconds it takes.
fn needs(figure: &Figure, seconds: f64) -> Option<f64> {
    let estimate = figure.estimate()?;
    estimate.seconds_for(WANTED, seconds)
}

/// The farther limit's distance.
fn reach(interval: &Interval) -> f64 {
    (interval.high - interval.value).max(interval.value - interval.low)
}

/// Whether a value is from so little that nothing is known yet, not even that there is any.
pub(super) fn says_nothing(figure: &Figure) -> bool {
    let estimate = figure.estimate().filter(|estimate| estimate.few_bursts);
    estimate.is_some_and(|estimate| {
        let best = estimate.best();
        reach(best) >= best.value.abs()
    })
}

fn push_figure(
    (figure, drift): (&Figure, Option<&Drift>),
    unreliable: bool,
    seconds: f64,
    options: &WindowOptions<'_>,
    cells: &mut Vec<Cell<'_>>,
    notes: &mut Vec<CellNote>,
) {
    if options.for_people && says_nothing(figure) {
        cells.push(Cell::Empty);
        return;
    }
    push_value_of(figure, unreliable, cells, notes);
    let Figure::Value(estimate) = figure else {
        let details = if options.for_people { 0 } else { DETAILS.len() };
        cells.extend(std::iter::repeat_n(Cell::Empty, details));
        return;
    };
    let best = estimate.best();
    if options.for_people {
        if let Some(note) = notes.last_mut().filter(|_| !unreliable) {
            note.standard_error = Some(reach(best));
        }
        return;
    }
    // The value stays, for those who know better. An interval would say how near it is to the truth, and nobody knows that.
    let limit = |limit: f64| match unreliable {
        true => Cell::Empty,
        false => Cell::real(limit),
    };
    let interval = |interval: &Interval| {
        [
            Cell::real(interval.value),
            limit(interval.low),
            limit(interval.high),
        ]
    };
    let low = match estimate.never_negative {
        true => best.low.max(0.0),
        false => best.low,
    };
    cells.extend([low, best.high].map(limit));
    cells.extend(interval(&estimate.raw));
    match &estimate.corrected {
        Some(corrected) => cells.extend(interval(corrected)),
        None => cells.extend([Cell::Empty, Cell::Empty, Cell::Empty]),
    }
    cells.push(Cell::Count(estimate.bursts));
    cells.push(Cell::Count(estimate.windows));
    cells.push(Cell::Count(estimate.events));
    let needs = needs(figure, seconds).filter(|_| !unreliable);
    cells.push(needs.map_or(Cell::Empty, Cell::real));
    cells.push(Cell::name(match (estimate.method, estimate.few_events) {
        (Method::Delta, false) => "delta",
        (Method::Delta, true) => "delta, poisson",
        (Method::Jackknife, false) => "jackknife",
        (Method::Jackknife, true) => "jackknife, poisson",
    }));
    cells.push(if estimate.apart {
        Cell::name("apart")
    } else {
        Cell::Empty
    });
    let drift = drift.map(|drift| (drift.difference(), drift.probability));
    cells.push(drift.map_or(Cell::Empty, |(difference, _)| Cell::real(difference)));
    cells.push(drift.map_or(Cell::Empty, |(_, probability)| Cell::real(probability)));
}

/// Pushes the value of a metric, with its standard error and mark. One of an unreliable row has no error.
pub(super) fn push_value_of(
    figure: &Figure,
    unreliable: bool,
    cells: &mut Vec<Cell<'_>>,
    notes: &mut Vec<CellNote>,
) {
    let interval = figure.estimate().map(Estimate::best);
    let column = cells.len();
    let mark = match figure {
        Figure::Value(_) if unreliable => Some(Mark::Unreliable),
        Figure::Value(estimate) if estimate.few_bursts => Some(Mark::FewSamples),
        Figure::Value(estimate) if estimate.holds_interrupts => Some(Mark::HoldsInterrupts),
        Figure::Value(estimate) if estimate.partial => Some(Mark::Partial),
        Figure::Missing(inputs) => Some(Mark::Missing(inputs.clone())),
        _ => None,
    };
    let cell = match (interval, figure) {
        (Some(interval), _) => Cell::real(interval.value),
        (None, Figure::Undefined | Figure::NothingInCommon) => Cell::real(f64::NAN),
        (None, _) => Cell::Empty,
    };
    let interval = interval.filter(|_| !unreliable);
    let standard_error = interval.map(|interval| interval.error);
    if standard_error.is_some() || mark.is_some() {
        notes.push(CellNote {
            column,
            standard_error,
            mark,
        });
    }
    cells.push(cell);
}

/// A ratio of sampled counts.
fn push_sampled(
    cell: &metrics::Cell,
    options: &WindowOptions<'_>,
    cells: &mut Vec<Cell<'_>>,
    notes: &mut Vec<CellNote>,
) {
    push_metric(cell, cells, notes);
    let metrics::Cell::Value { value, error, .. } = cell else {
        let details = if options.for_people { 0 } else { DETAILS.len() };
        cells.extend(std::iter::repeat_n(Cell::Empty, details));
        return;
    };
    let reach = NORMAL * error;
    if options.for_people {
        if let Some(note) = notes.last_mut() {
            note.standard_error = Some(reach);
        }
        return;
    }
    let limits = [value - reach, value + reach].map(Cell::real);
    cells.extend(limits.clone());
    cells.push(Cell::real(*value));
    cells.extend(limits);
    // What is not corrected, has no bursts, and can say nothing of the time it takes.
    cells.extend(std::iter::repeat_n(Cell::Empty, 7));
    cells.push(Cell::name("sampled"));
    cells.extend([Cell::Empty, Cell::Empty, Cell::Empty]);
}

/// Says what marks mean, where there are any.
pub(super) fn tell_few(table: &mut Table) {
    let few = table.count_marks(&Mark::FewSamples);
    if few > 0 {
        table.facts.add(
            Severity::Info,
            "few_bursts",
            "values that end in ? are from fewer than 10 bursts (or sampled events): record longer",
            few,
        );
    }
    let unreliable = table.count_marks(&Mark::Unreliable);
    if unreliable > 0 {
        table.facts.add(
            Severity::Info,
            "unreliable_values",
            "values in [brackets] are of rows that run shorter than windows: they mix the row with its neighbours, and have \
             no interval",
            unreliable,
        );
    }
    let holding = table.count_marks(&Mark::HoldsInterrupts);
    if holding > 0 {
        table.facts.add(
            Severity::Info,
            "hold_interrupts",
            "values that end in ~ are of windows whose interrupts take a time that is not known yet: rates are low by its share, \
             which no interval holds; record longer",
            holding,
        );
    }
}
