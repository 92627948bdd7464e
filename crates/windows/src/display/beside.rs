//! Metrics from windows as columns of other tables.

use super::measure::{Known, Measured, MeasuredRow, measure};
use super::rows::Rows;
use super::{DisplayError, WindowInput, WindowOptions, columns, had_some};
use crate::collect::CollectedWindows;
use crate::estimate::{Difference, Figure};
use dioptra_report::{
    AddedColumns, RowLabels, adjusted, metric_unit, profile_letter, significance,
};
use dioptra_tables::{Cell, Column, ColumnKind, Facts, Table, Unit};
use std::collections::HashMap;

/// Where the rows of a table are in what was measured, by their names: none where several have the same.
type Places = HashMap<Vec<String>, Option<usize>>;

/// One profile's metrics by row.
struct Side {
    measured: Measured,
    places: Places,
    labels: RowLabels,
}

/// Whether these are windows of a profile that was recorded for windows, and there are some.
pub fn has_recorded_windows(windows: Option<&CollectedWindows>) -> bool {
    windows.is_some_and(|windows| had_some(windows) && windows.plan().recorded.is_some())
}

impl Side {
    fn new(
        input: &WindowInput<'_>,
        options: &WindowOptions<'_>,
        tasks_by_name: bool,
    ) -> Result<Option<Side>, DisplayError> {
        let Some(windows) = input.windows else {
            return Ok(None);
        };
        let input = &input.report;
        let rows = Rows::new(input, options.by)?;
        let measured = measure(input, windows, options, &rows);
        let labels = RowLabels::new(input, options.by.dimension(), tasks_by_name);
        let mut places = Places::new();
        for (place, row) in measured.rows.iter().enumerate() {
            let mut cells = Vec::new();
            rows.push_names(input, &labels, row.key, &mut cells);
            let names = cells.iter().map(text).collect();
            places
                .entry(names)
                .and_modify(|known| *known = None)
                .or_insert(Some(place));
        }
        Ok(Some(Side {
            measured,
            places,
            labels,
        }))
    }

    fn row(&self, names: &[String]) -> Option<&MeasuredRow> {
        let place = (*self.places.get(names)?)?;
        self.measured.rows.get(place)
    }
}

fn text(cell: &Cell<'_>) -> String {
    match cell {
        Cell::Name(name) => name.clone().into_owned(),
        Cell::Count(number) => number.to_string(),
        _ => String::new(),
    }
}

/// Where the columns that name rows begin, and the names of each row in order; `None` where rows are something else.
fn names_of(table: &Table, labels: &RowLabels) -> Option<(usize, Vec<Vec<String>>)> {
    let heads = labels.heads();
    let columns: Option<Vec<usize>> = heads
        .iter()
        .map(|head| table.column_index(&head.id))
        .collect();
    let columns = columns?;
    let names = table.rows().map(|row| {
        let cells = columns.iter().map(|column| text(&row.cell(*column)));
        cells.collect()
    });
    Some((*columns.iter().min()?, names.collect()))
}

/// Adds the metrics of a profile that was recorded for windows to a table of such rows ([`WindowOptions::by`]): a column
/// for each, then `kept_windows` and `trust`. False where the table is another.
///
/// # Errors
/// As [`super::window_metrics`].
pub fn add_window_metrics(
    table: &mut Table,
    input: &WindowInput<'_>,
    options: &WindowOptions<'_>,
) -> Result<bool, DisplayError> {
    let Some(side) = Side::new(input, options, false)? else {
        return Ok(false);
    };
    let Some((first, names)) = names_of(table, &side.labels) else {
        return Ok(false);
    };
    let mut added = AddedColumns::new(names.len());
    for metric in &side.measured.metrics {
        let id = free_id(table, &metric.id);
        let head = Column::new(
            id,
            &*metric.title,
            ColumnKind::Ratio,
            metric_unit(&metric.unit),
        );
        added.heads.push(head);
    }
    let windows = Column::new("kept_windows", "windows", ColumnKind::Count, Unit::None);
    let trust = Column::new("trust", "trust", ColumnKind::Name, Unit::None);
    added.heads.extend([windows, trust]);
    for (index, names) in names.iter().enumerate() {
        let (cells, notes) = (&mut added.cells[index], &mut added.notes[index]);
        let row = side.row(names);
        for place in 0..side.measured.metrics.len() {
            let figure = row.and_then(|row| match &row.figures[place] {
                Known::Windows(figure, _) => Some(figure),
                Known::Sampled(_) => None,
            });
            let unreliable = row.is_some_and(MeasuredRow::is_unreliable);
            let figure = figure.unwrap_or(&Figure::NoWindows);
            columns::push_value_of(figure, unreliable, cells, notes);
        }
        let kept = row
            .and_then(|row| row.windows)
            .map(|(kept, _)| Cell::Count(kept));
        let trust = row
            .and_then(|row| row.trust)
            .map(|trust| Cell::name(trust.name()));
        cells.extend([kept.unwrap_or(Cell::Empty), trust.unwrap_or(Cell::Empty)]);
    }
    added.insert(table, first)?;
    columns::tell_few(table);
    table.facts.append(side.measured.facts);
    Ok(true)
}

fn free_id(table: &Table, wanted: &str) -> String {
    match table.column_index(wanted) {
        Some(_) => format!("windows.{wanted}"),
        None => wanted.to_owned(),
    }
}

/// Adds metrics of several profiles that were recorded for windows to the table of their differences, of rows that have
/// the same names and no others of one profile have: of each metric `a_METRIC`, `b_METRIC`, …, and for each profile but the first `b_METRIC_delta` with its standard error,
/// `b_METRIC_significance` and, for programs, `b_METRIC_q`. False where the table is another.
///
/// # Errors
/// As [`super::window_metrics`].
pub fn add_window_differences(
    table: &mut Table,
    inputs: &[WindowInput<'_>],
    options: &WindowOptions<'_>,
) -> Result<bool, DisplayError> {
    let mut sides = Vec::new();
    for input in inputs {
        match Side::new(input, options, true)? {
            Some(side) => sides.push(side),
            None => return Ok(false),
        }
    }
    let labels = sides.first().map(|side| &side.labels);
    let Some((first, names)) = labels.and_then(|labels| names_of(table, labels)) else {
        return Ok(false);
    };
    let mut added = AddedColumns::new(names.len());
    let known: Vec<_> = sides
        .first()
        .map_or_else(Vec::new, |side| side.measured.metrics.clone());
    for (place, metric) in known.iter().enumerate() {
        let of_side = |side: &Side| {
            side.measured
                .metrics
                .iter()
                .position(|other| other.id == metric.id)
        };
        let places: Vec<Option<usize>> = sides.iter().map(of_side).collect();
        let figure = |slot: usize, names: &[String]| -> Option<&Figure> {
            let side: &Side = &sides[slot];
            match side.row(names)?.figures.get(places[slot]?)? {
                Known::Windows(figure, _) => Some(figure),
                Known::Sampled(_) => None,
            }
        };
        let unreliable = |slot: usize, names: &[String]| {
            sides[slot]
                .row(names)
                .is_some_and(MeasuredRow::is_unreliable)
        };
        debug_assert_eq!(places[0], Some(place));
        for slot in 0..sides.len() {
            let id = format!("{}_{}", profile_letter(slot), metric.id);
            let name = format!("{} {}", profile_letter(slot).to_uppercase(), metric.title);
            let head = Column::new(id, name, ColumnKind::Ratio, metric_unit(&metric.unit));
            added.heads.push(head);
            for (index, names) in names.iter().enumerate() {
                let (cells, notes) = (&mut added.cells[index], &mut added.notes[index]);
                let of_slot = figure(slot, names).unwrap_or(&Figure::NoWindows);
                let unreliable = unreliable(slot, names);
                columns::push_value_of(of_slot, unreliable, cells, notes);
            }
        }
        for slot in 1..sides.len() {
            let differences: Vec<_> = names
                .iter()
                .map(|names| {
                    let (from, to) = (
                        figure(0, names)?.estimate()?,
                        figure(slot, names)?.estimate()?,
                    );
                    Some(from.difference(to))
                })
                .collect();
            // Neighbours of unreliable rows may have changed instead.
            let tells: Vec<bool> = names
                .iter()
                .map(|names| !unreliable(0, names) && !unreliable(slot, names))
                .collect();
            let probability = |(difference, tells): (&Option<Difference>, &bool)| {
                let difference = difference.as_ref().filter(|_| *tells);
                difference.map_or(f64::NAN, |difference| difference.probability)
            };
            let probabilities: Vec<f64> = differences.iter().zip(&tells).map(probability).collect();
            let adjusted = adjusted(&probabilities);
            let id = |what| format!("{}_{}_{what}", profile_letter(slot), metric.id);
            let name = |what: &str| match sides.len() {
                2 => what.to_owned(),
                _ => format!("{} {what}", profile_letter(slot).to_uppercase()),
            };
            added.heads.extend([
                Column::new(
                    id("delta"),
                    name("delta"),
                    ColumnKind::Ratio,
                    metric_unit(&metric.unit),
                ),
                Column::new(
                    id("delta_low"),
                    id("delta_low"),
                    ColumnKind::Ratio,
                    metric_unit(&metric.unit),
                )
                .for_programs(),
                Column::new(
                    id("delta_high"),
                    id("delta_high"),
                    ColumnKind::Ratio,
                    metric_unit(&metric.unit),
                )
                .for_programs(),
                Column::new(id("q"), id("q"), ColumnKind::Ratio, Unit::None).for_programs(),
                Column::new(id("significance"), "", ColumnKind::Name, Unit::None),
            ]);
            for (index, (difference, q)) in differences.iter().zip(adjusted).enumerate() {
                let cells = &mut added.cells[index];
                let real = |number: Option<f64>| number.map_or(Cell::Empty, Cell::real);
                cells.push(real(difference.map(|difference| difference.value)));
                let limits = difference.filter(|_| tells[index]);
                cells.push(real(limits.map(|difference| difference.low)));
                cells.push(real(limits.map(|difference| difference.high)));
                cells.push(real(Some(q).filter(|q| !q.is_nan())));
                cells.push(Cell::name(significance(q)));
            }
        }
    }
    added.insert(table, first)?;
    columns::tell_few(table);
    let several = sides.len() > 1;
    for (slot, side) in sides.into_iter().enumerate() {
        table.facts.append(labelled(
            side.measured.facts,
            several.then(|| profile_letter(slot)),
        ));
    }
    Ok(true)
}

/// Facts that say of which profile they are.
fn labelled(facts: Facts, label: Option<String>) -> Facts {
    let Some(label) = label else {
        return facts;
    };
    let mut told = Facts::new();
    for fact in &facts {
        let text = format!("{}: {}", label.to_uppercase(), fact.text);
        let value = serde_json::json!({"profile": label, "value": fact.value});
        told.add(fact.severity, fact.id.as_str(), text, value);
    }
    told
}
