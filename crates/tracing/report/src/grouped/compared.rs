//! The table of changes between traces.

use super::keys::Match;
use super::rows::{GroupedRow, GroupedRows, Value, Values};
use super::table::{NameColumns, facts_of, named, unit};
use super::{Level, TraceInput};
use crate::facts::number_of;
use dioptra_tables::{Cell, CellNote, Column, ColumnKind, Mark, Severity, Table, TableError, Unit};
use serde_json::json;

/// The options of [`grouped_diff`].
#[derive(Clone, Copy, Debug)]
pub struct GroupedDiffOptions<'a> {
    /// The kinds of rows; several are levels, the first one outermost.
    pub levels: &'a [Level],
    /// The number of calls below which differences of estimates are marked.
    pub few: u64,
}

/// The number of standard errors within which chance may have made a difference.
const WITHIN_CHANCE: f64 = 1.96;

/// Returns the letter of a trace among several: `a`, `b`, ….
pub fn trace_letter(slot: usize) -> String {
    let letter = char::from(b'a' + (slot % 26) as u8);
    match slot / 26 {
        0 => letter.to_string(),
        more => format!("{letter}{more}"),
    }
}

/// A number of each row that is compared.
struct Measure {
    id: &'static str,
    name: &'static str,
    kind: ColumnKind,
    unit: Unit,
    of: fn(&Values) -> Value,
}

/// Builds the table of changes from the first of `inputs` to each of the others. Rows with the same names are one row:
/// programs and modules of one file name, processes and threads of one name, functions of one full name in a module.
///
/// For each of `self`, `total` and `calls` there are the numbers of each trace, `a_self`, `b_self`, …, and for each trace
/// but the first the difference `b_self_delta`, and `b_self_change` in percent. `b_status` marks rows that are `new` or
/// `gone`; where calls are sampled, so that there may have been some, `new?` or `gone?`. Rows with the largest difference
/// of self times come first.
///
/// Differences of counted calls and times are exact. A difference of estimates has its standard error; it is marked if it
/// is no larger than chance makes it, or rests on few calls.
///
/// # Errors
/// [`TableError`] if the table cannot hold a row.
pub fn grouped_diff(
    inputs: &[TraceInput<'_, '_>],
    options: &GroupedDiffOptions<'_>,
) -> Result<Table, TableError> {
    let rows = GroupedRows::new(inputs, options.levels, Match::Versions);
    let time = unit(inputs);
    let measures = [
        Measure {
            id: "self",
            name: "self",
            kind: ColumnKind::Time,
            unit: time.clone(),
            of: |values| values.self_time,
        },
        Measure {
            id: "total",
            name: "total",
            kind: ColumnKind::Time,
            unit: time,
            of: |values| values.total,
        },
        Measure {
            id: "calls",
            name: "calls",
            kind: ColumnKind::Count,
            unit: Unit::None,
            of: |values| values.calls,
        },
    ];
    let mut heads = heads(&measures, inputs.len());
    let names = NameColumns::push_heads(options.levels, Match::Versions, &mut heads);
    let mut table = Table::new(heads);
    let values: Vec<Vec<Option<Values>>> = rows
        .rows
        .iter()
        .map(|row| {
            let each = row.times.iter();
            each.map(|times| times.as_ref().map(|times| times.values()))
                .collect()
        })
        .collect();
    // Parents come before the rows below them.
    let mut order: Vec<usize> = (0..rows.rows.len()).collect();
    order.sort_by_key(|row| {
        let of = |of: fn(&Values) -> Value| largest(&values[*row], of);
        let sizes = measures.each_ref().map(|measure| of(measure.of));
        (rows.rows[*row].level, sizes.map(std::cmp::Reverse))
    });
    let mut ids = vec![0_u32; rows.rows.len()];
    for index in order {
        let row = &rows.rows[index];
        let (mut cells, notes) = number_cells(&values[index], &measures, options.few);
        cells.extend(statuses(row, inputs));
        cells.extend(names.cells(&rows, row));
        let parent = row.parent.map(|parent| ids[parent]);
        ids[index] = table.push_noted(parent, cells, notes)?;
    }
    add_facts(&mut table, inputs, &rows);
    Ok(table)
}

fn heads(measures: &[Measure], slots: usize) -> Vec<Column> {
    let capital = |slot| trace_letter(slot).to_uppercase();
    let of = |slot| match slots {
        2 => String::new(),
        _ => format!("{} ", capital(slot)),
    };
    let mut heads = Vec::new();
    for measure in measures {
        let Measure { id, name, kind, .. } = *measure;
        for slot in 0..slots {
            let id = format!("{}_{id}", trace_letter(slot));
            let name = format!("{} {name}", capital(slot));
            heads.push(Column::new(id, name, kind, measure.unit.clone()));
        }
        for slot in 1..slots {
            let letter = trace_letter(slot);
            let (delta, change) = (
                format!("{letter}_{id}_delta"),
                format!("{letter}_{id}_change"),
            );
            let name = |what| match name {
                "self" => format!("{}{what}", of(slot)),
                _ => format!("{}{name} {what}", of(slot)),
            };
            heads.push(Column::new(
                delta,
                name("delta"),
                kind,
                measure.unit.clone(),
            ));
            heads.push(Column::new(
                change,
                name("change"),
                ColumnKind::Ratio,
                Unit::Percent,
            ));
        }
    }
    for slot in 1..slots {
        let id = format!("{}_status", trace_letter(slot));
        let name = format!("{}status", of(slot));
        heads.push(Column::new(id, name, ColumnKind::Name, Unit::None));
    }
    heads
}

/// Returns a row's largest difference from the first trace.
fn largest(values: &[Option<Values>], of: fn(&Values) -> Value) -> u64 {
    let value = |values: &Option<Values>| values.as_ref().map_or(0, |values| of(values).value);
    let base = values.first().map_or(0, value);
    let others = values.iter().skip(1);
    others
        .map(|other| value(other).abs_diff(base))
        .max()
        .unwrap_or(0)
}

fn number_cells(
    values: &[Option<Values>],
    measures: &[Measure],
    few: u64,
) -> (Vec<Cell<'static>>, Vec<CellNote>) {
    let (mut cells, mut notes) = (Vec::new(), Vec::new());
    for measure in measures {
        let value = |slot: usize| -> Value {
            // A row that a trace lacks has no calls there.
            let none = Value {
                value: 0,
                error: Some(0.0),
            };
            values[slot]
                .as_ref()
                .map_or(none, |values| (measure.of)(values))
        };
        let from = |slot: usize| {
            values[slot]
                .as_ref()
                .and_then(|values| values.estimated_from)
        };
        for (slot, found) in values.iter().enumerate() {
            if from(slot).is_some() {
                notes.push(CellNote {
                    column: cells.len(),
                    standard_error: value(slot).error,
                    mark: value(slot).error.is_none().then_some(Mark::FewSamples),
                });
            }
            let shown = found.as_ref().map(|_| Cell::Count(value(slot).value));
            cells.push(shown.unwrap_or(Cell::Empty));
        }
        let base = value(0);
        for slot in 1..values.len() {
            let other = value(slot);
            if let Some(calls) = from(0).into_iter().chain(from(slot)).min() {
                let error = base.error.zip(other.error);
                let error = error.map(|(base, other)| base.hypot(other));
                let delta = other.value.abs_diff(base.value) as f64;
                notes.push(CellNote {
                    column: cells.len(),
                    standard_error: error,
                    mark: match error {
                        None => Some(Mark::FewSamples),
                        Some(_) if calls < few => Some(Mark::FewSamples),
                        Some(error) if error > 0.0 && delta < WITHIN_CHANCE * error => {
                            Some(Mark::WithinChance)
                        }
                        Some(_) => None,
                    },
                });
            }
            cells.push(Cell::Difference {
                minuend: other.value,
                subtrahend: base.value,
            });
            let change = (other.value as f64 - base.value as f64) / base.value as f64;
            cells.push(match base.value {
                0 => Cell::Empty,
                _ => Cell::real(100.0 * change),
            });
        }
    }
    (cells, notes)
}

/// Returns the status of a row in each trace but the first.
fn statuses(row: &GroupedRow, inputs: &[TraceInput<'_, '_>]) -> Vec<Cell<'static>> {
    let has = |slot: usize| row.times[slot].is_some();
    let may_miss = |slot: usize| inputs[slot].view.is_sampled();
    let status = |slot| match (has(0), has(slot)) {
        (false, true) if may_miss(0) => Cell::name("new?"),
        (false, true) => Cell::name("new"),
        (true, false) if may_miss(slot) => Cell::name("gone?"),
        (true, false) => Cell::name("gone"),
        _ => Cell::Empty,
    };
    (1..inputs.len()).map(status).collect()
}

fn add_facts(table: &mut Table, inputs: &[TraceInput<'_, '_>], rows: &GroupedRows) {
    let capital = |slot| trace_letter(slot).to_uppercase();
    for (slot, input) in inputs.iter().enumerate() {
        table.facts.add(
            Severity::Info,
            "trace",
            format!("{}: {}", capital(slot), input.label),
            json!({"name": trace_letter(slot), "trace": input.label}),
        );
    }
    for (slot, input) in inputs.iter().enumerate() {
        let facts = facts_of(input, slot, rows);
        table.facts.append(named(facts, &capital(slot), true));
    }
    if rows.merged > 0 {
        table.facts.add(
            Severity::Info,
            "merged_rows",
            format!(
                "{} of a trace had the names of another row and were added to it",
                number_of(rows.merged, "row")
            ),
            rows.merged,
        );
    }
    let within = table.count_marks(&Mark::WithinChance);
    if within > 0 {
        table.facts.add(
            Severity::Info,
            "within_chance",
            format!(
                "{} of estimates are no larger than chance makes them (95 %)",
                number_of(within as u64, "difference")
            ),
            within,
        );
    }
}
