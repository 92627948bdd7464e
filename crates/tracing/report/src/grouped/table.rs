//! The table of a trace, or of the sum of several.

use super::keys::{self, Match};
use super::rows::{GroupedRow, GroupedRows, GroupedTimes, Value, Values};
use super::{Level, TraceInput};
use crate::facts::{RowCounts, counts_ticks, number_of, row_facts};
use dioptra_filters::SampleKind;
use dioptra_tables::{
    Cell, CellNote, Column, ColumnKind, Direction, Facts, Mark, Severity, Table, TableError, Unit,
};
use serde_json::json;

/// The options of [`grouped_table`].
#[derive(Clone, Copy, Debug)]
pub struct GroupedOptions<'a> {
    /// The kinds of rows; several are levels, the first one outermost.
    pub levels: &'a [Level],
    /// Whether rows have their share of the total time, too.
    pub children: bool,
    /// The number of calls below which estimates are marked.
    pub few: u64,
}

/// Builds the table of a trace, or of the sum of several.
///
/// The columns are `self_percent`, `calls`, `self` and `total`, with [`GroupedOptions::children`] also `total_percent`
/// before all others; then the names, as the levels ask: `module` and `function`, `pid` and `process`, …. The total of a
/// row is the time within its calls, where calls within calls of the same row count once. The self time is the part
/// outside of recorded calls below, so that the self times of rows add up to that of the row above.
///
/// With several levels rows have parents, `name` names a row and `level` is the word for its level. Rows are sorted by
/// their share, largest first. Rows of several traces are the same where modules and places in them are, and processes and
/// threads with their numbers and names.
///
/// # Errors
/// [`TableError`] if the table cannot hold a row.
pub fn grouped_table(
    inputs: &[TraceInput<'_, '_>],
    options: &GroupedOptions<'_>,
) -> Result<Table, TableError> {
    let matching = match inputs {
        [_] => Match::Apart,
        _ => Match::Equal,
    };
    let rows = GroupedRows::new(inputs, options.levels, matching);
    let all = |times: &[Option<GroupedTimes>]| -> Option<GroupedTimes> {
        let mut times = times.iter().flatten();
        let mut first = times.next()?.clone();
        for more in times {
            first.times.merge(&more.times);
            first.sampling = first.sampling.or(more.sampling);
        }
        Some(first)
    };
    let whole: Vec<Option<GroupedTimes>> = rows.whole.iter().cloned().map(Some).collect();
    let whole = all(&whole).map(|whole| whole.values());
    let mut heads = number_heads(options.children, unit(inputs));
    let numbers = heads.len();
    let names = NameColumns::push_heads(options.levels, matching, &mut heads);
    let mut table = Table::new(heads);
    table.reserve(rows.rows.len());
    for row in &rows.rows {
        let Some(times) = all(&row.times) else {
            continue;
        };
        let values = times.values();
        let (mut cells, notes) = number_cells(&values, whole.as_ref(), options);
        cells.extend(names.cells(&rows, row));
        // Every row has times, so a row's id is its index.
        let parent = row.parent.map(|parent| parent as u32);
        table.push_noted(parent, cells, notes)?;
    }
    sort(&mut table, numbers)?;
    for (slot, input) in inputs.iter().enumerate() {
        let facts = facts_of(input, slot, &rows);
        table
            .facts
            .append(named(facts, input.label, inputs.len() > 1));
    }
    Ok(table)
}

/// Returns the columns of numbers.
pub(super) fn number_heads(children: bool, unit: Unit) -> Vec<Column> {
    let mut heads = Vec::new();
    if children {
        heads.push(Column::new(
            "total_percent",
            "total",
            ColumnKind::Ratio,
            Unit::Percent,
        ));
    }
    heads.extend([
        Column::new("self_percent", "self", ColumnKind::Ratio, Unit::Percent),
        Column::new("calls", "calls", ColumnKind::Count, Unit::None),
        Column::new("self", "self time", ColumnKind::Time, unit.clone()),
        Column::new("total", "total time", ColumnKind::Time, unit),
    ]);
    heads
}

fn number_cells(
    values: &Values,
    whole: Option<&Values>,
    options: &GroupedOptions<'_>,
) -> (Vec<Cell<'static>>, Vec<CellNote>) {
    let of = |value: Value, whole: Option<Value>| {
        Cell::ratio(value.value, whole.map_or(0, |whole| whole.value))
    };
    let (mut cells, mut notes) = (Vec::new(), Vec::new());
    if options.children {
        cells.push(of(values.total, whole.map(|whole| whole.total)));
    }
    cells.push(of(values.self_time, whole.map(|whole| whole.self_time)));
    for value in [values.calls, values.self_time, values.total] {
        if let Some(calls) = values.estimated_from {
            let is_few = calls < options.few || value.error.is_none();
            notes.push(CellNote {
                column: cells.len(),
                standard_error: value.error,
                mark: is_few.then_some(Mark::FewSamples),
            });
        }
        cells.push(Cell::Count(value.value));
    }
    (cells, notes)
}

/// Returns the unit of times.
pub(super) fn unit(inputs: &[TraceInput<'_, '_>]) -> Unit {
    match inputs.iter().any(|input| counts_ticks(input.view.trace())) {
        true => Unit::Named("ticks".to_owned()),
        false => Unit::Nanoseconds,
    }
}

/// Sorts by the first column, then by the other numbers, then by names. Columns of ids, such as pids, stand before texts.
pub(super) fn sort(table: &mut Table, numbers: usize) -> Result<(), TableError> {
    let shares = (0..numbers).map(|column| (column, Direction::Descending));
    let names = numbers..table.columns.len();
    let order: Vec<_> = shares
        .chain(names.map(|column| (column, Direction::Ascending)))
        .collect();
    table.sort_by_all(&order)
}

/// Returns the facts of one trace in a table.
pub(super) fn facts_of(input: &TraceInput<'_, '_>, slot: usize, rows: &GroupedRows) -> Facts {
    let own = || {
        rows.rows
            .iter()
            .filter_map(move |row| row.times.get(slot)?.as_ref())
    };
    let kind = |kind| own().filter(|times| times.sampling == Some(kind)).count();
    let is_estimated = |times: &&GroupedTimes| times.values().estimated_from.is_some();
    let whole = rows.whole.get(slot);
    let counts = RowCounts {
        open: whole.map_or(0, |whole| whole.times.open),
        // Nothing is marked here: the fact below says so in other words.
        estimated: 0,
        skewed: kind(SampleKind::Rate),
        slowest: kind(SampleKind::Tail),
    };
    let mut facts = Facts::new();
    if let Some(whole) = whole {
        let values = whole.values();
        let threads = input.view.streams().iter();
        let threads: std::collections::BTreeSet<(u32, u32)> =
            threads.map(|stream| (stream.pid, stream.tid)).collect();
        let sign = if values.estimated_from.is_some() {
            "~"
        } else {
            ""
        };
        facts.add(
            Severity::Info,
            "calls",
            format!(
                "{sign}{} in {}",
                number_of(values.calls.value, "call"),
                number_of(threads.len() as u64, "thread")
            ),
            json!({
                "calls": values.calls.value, "threads": threads.len(),
                "self": values.self_time.value, "total": values.total.value,
            }),
        );
    }
    let losses = rows.losses.get(slot).copied().unwrap_or_default();
    facts.append(row_facts(input.view, input.names, &losses, counts));
    let estimated = own().filter(is_estimated).count();
    if estimated > 0 {
        facts.add(
            Severity::Info,
            "sampled_functions",
            format!(
                "the numbers of {} are estimates, scaled from sampled calls; an error is one standard error",
                number_of(estimated as u64, "row")
            ),
            estimated,
        );
    }
    facts
}

/// Returns facts with the name of their trace, if there are several traces.
pub(super) fn named(facts: Facts, label: &str, several: bool) -> Facts {
    if !several {
        return facts;
    }
    let mut named = Facts::new();
    for fact in &facts {
        named.add(
            fact.severity,
            fact.id.as_str(),
            format!("{label}: {}", fact.text),
            json!({"trace": label, "value": fact.value}),
        );
    }
    named
}

/// The columns that name rows.
pub(super) struct NameColumns {
    levels: Vec<Level>,
    /// The number of columns without `level` and `name`.
    details: usize,
    /// For each level, the indices among the details of its cells.
    places: Vec<Vec<usize>>,
}

impl NameColumns {
    pub fn push_heads(levels: &[Level], matching: Match, heads: &mut Vec<Column>) -> NameColumns {
        let first = heads.len();
        let has_levels = levels.len() > 1;
        let mut places = Vec::new();
        for level in levels {
            let each = keys::heads(*level, matching)
                .iter()
                .map(|(id, for_programs)| {
                    let known = heads[first..].iter().position(|head| head.id == *id);
                    known.unwrap_or_else(|| {
                        let kind = match *id {
                            "function_address" => ColumnKind::Address,
                            _ => ColumnKind::Name,
                        };
                        let mut head = Column::new(*id, id.replace('_', " "), kind, Unit::None);
                        head.is_for_programs = has_levels || *for_programs;
                        heads.push(head);
                        heads.len() - 1 - first
                    })
                });
            places.push(each.collect());
        }
        let details = heads.len() - first;
        if has_levels {
            let words: Vec<&str> = levels.iter().map(|level| level.word()).collect();
            let level = Column::new("level", "level", ColumnKind::Name, Unit::None);
            heads.push(level.for_programs());
            let heading = words.join(" / ");
            heads.push(Column::new("name", heading, ColumnKind::Name, Unit::None));
        }
        NameColumns {
            levels: levels.to_vec(),
            details,
            places,
        }
    }

    /// Returns the cells that name a row.
    pub fn cells(&self, rows: &GroupedRows, row: &GroupedRow) -> Vec<Cell<'static>> {
        let mut cells = vec![Cell::Empty; self.details];
        let mut named = Some(row);
        // The row itself comes last, so that its names win over those of the rows above it.
        let mut path = Vec::new();
        while let Some(row) = named {
            path.push(row);
            named = row.parent.and_then(|parent| rows.rows.get(parent));
        }
        for row in path.into_iter().rev() {
            let own = self.places[row.level].iter().zip(&row.names.cells);
            for (place, cell) in own {
                cells[*place] = cell.clone();
            }
        }
        if self.levels.len() > 1 {
            let level = self.levels[row.level];
            cells.push(Cell::name(level.word()));
            let text = keys::text(level, &row.names.cells, &self.levels[..row.level]);
            cells.push(Cell::name(text));
        }
        cells
    }
}
