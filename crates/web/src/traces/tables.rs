//! `/api/trace/table`, `/api/trace/export`: the tables of `dioptra trace report`, a range of rows at a time.

use super::interned::module_name;
use super::loaded::OpenTrace;
use super::selected::{CallsKey, selected, thread_keys, view};
use crate::api::{CallRows, CallTableRequest, CellValue, RowKeys, TableAnswer};
use crate::cache::MemorySize;
use crate::failure::Failure;
use crate::filter::NameFilter;
use crate::jobs::Ticket;
use crate::server::Shared;
use crate::table_rows::{columns, sum, table_row};
use crate::tables::{MOST_ROWS, ROWS, sorted_by, sorting};
use crate::texts;
use dioptra_calls::{Statistics, StatisticsOptions, View, statistics_with};
use dioptra_tables::{
    Cell, CellNote, Column, ColumnKind, Direction, Facts, Format, Row, Severity, Table,
    TextOptions, Unit, View as TableView, ViewOptions,
};
use dioptra_trace_report::{
    Field, Key, Of, call_facts, counts_ticks, function_facts, function_rows, function_table, sort,
    tell_apart, thread_table, threads,
};
use std::sync::Arc;

/// The columns of functions.
const FIELDS: [Field; 18] = [
    Field::Total(Of::Sum),
    Field::Self_(Of::Sum),
    Field::Calls,
    Field::Total(Of::Average),
    Field::Total(Of::Shortest),
    Field::Total(Of::Longest),
    Field::Total(Of::Deviation),
    Field::Total(Of::Percentile(50)),
    Field::Total(Of::Percentile(90)),
    Field::Total(Of::Percentile(99)),
    Field::Self_(Of::Average),
    Field::Self_(Of::Shortest),
    Field::Self_(Of::Longest),
    Field::Self_(Of::Deviation),
    Field::Self_(Of::Percentile(50)),
    Field::Self_(Of::Percentile(90)),
    Field::Self_(Of::Percentile(99)),
    Field::Size,
];

/// Which table: the key of tables that are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TraceTableKey {
    pub calls: CallsKey,
    by: CallRows,
}

/// Which rows of a table, in which order: the key of views that are kept.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TraceViewKey {
    pub table: TraceTableKey,
    sort: Option<(usize, Direction)>,
    filter: Option<(String, bool)>,
}

/// A table, and the values of selection parameters that select its rows.
pub(crate) struct TraceTable {
    table: Table,
    keys: Vec<RowKeys>,
}

impl MemorySize for TraceTable {
    fn bytes(&self) -> usize {
        let texts = |keys: &RowKeys| {
            let all = [&keys.function, &keys.thread, &keys.process];
            all.into_iter().flatten().map(String::len).sum::<usize>()
        };
        let keys = self
            .keys
            .iter()
            .map(|keys| size_of::<RowKeys>() + texts(keys));
        // Names take about as much as numbers.
        keys.sum::<usize>() + 1 + self.keys.len() * 32 * self.table.columns.len()
    }
}

/// A view, and the sums of its rows.
pub(crate) struct TraceView {
    view: TableView,
    totals: Vec<CellValue>,
}

impl MemorySize for TraceView {
    fn bytes(&self) -> usize {
        1 + 12 * self.view.rows.len() + 4 * self.view.tops.len()
    }
}

/// Adds the damage of files that were cut off since they were opened.
pub(crate) fn add_truncated(open: &OpenTrace<'_>, facts: &mut Facts) {
    for damage in open.trace.truncated() {
        let text = damage.to_string();
        facts.add(Severity::Loss, "damage", text.clone(), text);
    }
}

fn of_functions(
    open: &OpenTrace<'_>,
    view: &View<'_>,
    sums: &Statistics,
) -> Result<TraceTable, Failure> {
    let names = &open.names;
    let mut rows = function_rows(sums, names, view);
    tell_apart(&mut rows, names);
    sort(&mut rows, &[Key::Field(Field::Total(Of::Sum))]);
    let ticks = counts_ticks(open.trace);
    let plain = function_table(&rows, &FIELDS, false, ticks)?;
    // The module stands behind the columns of the command's table.
    let mut columns = plain.columns.clone();
    columns.push(Column::new(
        "module",
        "Module",
        ColumnKind::Name,
        Unit::None,
    ));
    let mut table = Table::new(columns);
    for (row, times) in plain.rows().zip(&rows) {
        let notes = (0..plain.columns.len()).filter_map(|column| {
            let (mark, error) = (row.mark(column), row.noted_error(column));
            (mark.is_some() || error.is_some()).then(|| CellNote {
                column,
                standard_error: error,
                mark: mark.cloned(),
            })
        });
        let notes: Vec<_> = notes.collect();
        let module = module_name(open, times.times.function);
        let cells = row.cells().chain([Cell::name(module)]);
        table.push_noted(None, cells.collect::<Vec<_>>(), notes)?;
    }
    table.facts = function_facts(view, names, sums, &rows);
    let keys = rows.iter().map(|row| RowKeys {
        function: Some(open.keys().key(row.times.function)),
        ..RowKeys::default()
    });
    Ok(TraceTable {
        keys: keys.collect(),
        table,
    })
}

fn of_threads(
    open: &OpenTrace<'_>,
    view: &View<'_>,
    sums: &Statistics,
) -> Result<TraceTable, Failure> {
    let mut rows = threads(view, sums);
    rows.sort_by_key(|row| std::cmp::Reverse(row.total));
    let mut table = thread_table(&rows)?;
    table.facts = call_facts(open.trace, &open.names, &sums.losses);
    let keys = rows.iter().map(|row| thread_keys(row.pid, row.tid));
    Ok(TraceTable {
        keys: keys.collect(),
        table,
    })
}

/// Returns the table of a request, and its key.
fn table(
    shared: &Shared,
    request: &CallTableRequest,
    ticket: &Ticket,
) -> Result<(TraceTableKey, Arc<TraceTable>), Failure> {
    let (loaded, calls) = selected(shared, &request.selection)?;
    let key = TraceTableKey {
        calls,
        by: request.by.unwrap_or_default(),
    };
    let table = shared.trace_tables.get(key.clone(), || {
        ticket.check()?;
        let (selection, by) = (request.selection.clone(), key.by);
        loaded.run(move |open| {
            let view = view(open, &selection, false)?;
            let options = StatisticsOptions {
                distributions: by == CallRows::Function,
                ..StatisticsOptions::default()
            };
            let sums = statistics_with(&view, options);
            let mut made = match by {
                CallRows::Function => of_functions(open, &view, &sums)?,
                CallRows::Thread => of_threads(open, &view, &sums)?,
            };
            add_truncated(open, &mut made.table.facts);
            Ok(made)
        })
    })?;
    Ok((key, table))
}

/// By column: the sum of some rows; none where a sum means nothing. Times of functions are in those of their callers, too.
fn totals(table: &Table, rows: &[u32]) -> Vec<CellValue> {
    let columns = table.columns.iter().enumerate();
    let sums = columns.map(|(index, column)| match column.id.as_str() {
        "self" | "calls" => {
            let cells = rows.iter().map(|row| table.row(*row).cell(index));
            sum(cells, column.unit.scale())
        }
        _ => CellValue::Empty(()),
    });
    sums.collect()
}

/// Answers `/api/trace/table`.
pub(crate) fn answer(
    shared: &Shared,
    request: &CallTableRequest,
    ticket: &Ticket,
) -> Result<TableAnswer, Failure> {
    let (key, keyed) = table(shared, request, ticket)?;
    ticket.check()?;
    let table = &keyed.table;
    let sort = request.sort.as_deref();
    let sort = sort.map(|sort| sorting(table, sort)).transpose()?;
    let view_key = TraceViewKey {
        table: key.clone(),
        sort,
        filter: request.filter.clone().map(|text| (text, request.regex)),
    };
    let summed = shared.trace_views.get(view_key, || {
        let filter = request.filter.as_deref();
        let filter = filter.map(|text| NameFilter::new(text, request.regex));
        let filter = filter.transpose()?;
        // The first column is the row's name.
        let passes = |row: Row<'_>| match (&filter, row.cell(0)) {
            (Some(filter), Cell::Name(name)) => filter.passes(&name),
            _ => true,
        };
        let view = table.view(&ViewOptions {
            sort,
            passes: filter.is_some().then_some(&passes),
            below: None,
            levels: None,
        })?;
        Ok(TraceView {
            totals: totals(table, &view.tops),
            view,
        })
    })?;
    let view = &summed.view;
    let from = request.from.unwrap_or(0).min(view.rows.len());
    let count = request.count.unwrap_or(ROWS).min(MOST_ROWS);
    let shown = view.rows[from..].iter().take(count);
    let rows = shown.map(|place| {
        let key = keyed.keys.get(place.row as usize).cloned();
        table_row(table, place, key.unwrap_or_default())
    });
    Ok(TableAnswer {
        schema: 1,
        profile: key.calls.profile,
        generation: key.calls.generation,
        rows: rows.collect(),
        columns: columns(table),
        from,
        total_rows: view.unfiltered,
        matching_rows: view.rows.len(),
        totals: summed.totals.clone(),
        sorted_by: sort.map(|sort| sorted_by(table, sort)),
        facts: texts::facts(&table.facts),
    })
}

/// Answers `/api/trace/export`: the whole table.
pub(crate) fn export(
    shared: &Shared,
    request: &CallTableRequest,
    format: Format,
    ticket: &Ticket,
) -> Result<Vec<u8>, Failure> {
    let (_, keyed) = table(shared, request, ticket)?;
    ticket.check()?;
    let mut sorted = keyed.table.clone();
    if let Some(sort) = &request.sort {
        let (column, direction) = sorting(&sorted, sort)?;
        sorted.sort_by(column, direction)?;
    }
    let mut text = Vec::new();
    let written = format.write_limited(&sorted, &TextOptions::default(), &mut text);
    written.map_err(|error| Failure::Internal(error.to_string()))?;
    Ok(text)
}
