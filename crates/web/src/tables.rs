//! `/api/table`, `/api/export`: the tables of `dioptra report`, a range of rows at a time.

use crate::api::{
    CellValue, Percent, RowKeys, SortedBy, TableAnswer, TableColumn, TableRequest, TableRow,
};
use crate::cache::MemorySize;
use crate::failure::Failure;
use crate::filter::NameFilter;
use crate::jobs::Ticket;
use crate::selected::{Selected, SelectionKey};
use crate::server::Shared;
use crate::texts;
use dioptra_profile::{Dimension, Slices};
use dioptra_report::{PercentOf, ReportOptions, RowKey, report_with_keys};
use dioptra_tables::{
    Cell, ColumnKind, Direction, Format, Mark, Row, Table, TextOptions, View, ViewOptions, ViewRow,
};
use std::num::NonZeroU32;
use std::sync::Arc;

/// The largest number of rows in an answer.
pub(crate) const MOST_ROWS: usize = 2000;
/// The number of rows in an answer unless the request gives one.
pub(crate) const ROWS: usize = 200;

/// Which table: the key of tables that are kept.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TableKey {
    pub selection: SelectionKey,
    events: Vec<usize>,
    by: Vec<Dimension>,
    children: bool,
    percent: Percent,
    errors: bool,
    few: u64,
    slices: NonZeroU32,
}

/// Which rows of a table, in which order: the key of views that are kept.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ViewKey {
    pub table: TableKey,
    sort: Option<(usize, Direction)>,
    filter: Option<(String, bool)>,
    below: Option<u32>,
    levels: Option<u32>,
}

/// A table, and what its rows stand for.
pub(crate) struct KeyedTable {
    pub table: Table,
    pub keys: Vec<RowKey>,
    pub by: Vec<Dimension>,
}

impl MemorySize for KeyedTable {
    fn bytes(&self) -> usize {
        // Cells of numbers take 8 or 16 bytes; names are shared.
        self.keys.len() * (12 + 16 * self.table.columns.len())
    }
}

/// A view, and the sums of its top rows.
pub(crate) struct SummedView {
    view: View,
    totals: Vec<CellValue>,
}

impl MemorySize for SummedView {
    fn bytes(&self) -> usize {
        1 + 12 * self.view.rows.len() + 4 * self.view.tops.len()
    }
}

fn dimension(word: &str) -> Option<Dimension> {
    Some(match word {
        "program" => Dimension::Program,
        "process" => Dimension::Process,
        "thread" => Dimension::Thread,
        "comm" => Dimension::Comm,
        "cpu" => Dimension::Cpu,
        "socket" => Dimension::Socket,
        "module" => Dimension::Module,
        "function" => Dimension::Function,
        "line" => Dimension::Line,
        "instruction" => Dimension::Address,
        "time" => Dimension::Time,
        _ => return None,
    })
}

fn levels(by: Option<&str>) -> Result<Vec<Dimension>, Failure> {
    let words = by.unwrap_or("function").split(',');
    let levels = words.map(|word| {
        dimension(word).ok_or_else(|| Failure::parameter("by", "names a level that there is not"))
    });
    let levels: Vec<Dimension> = levels.collect::<Result<_, _>>()?;
    let is_repeated = |place: usize| levels[..place].contains(&levels[place]);
    match (0..levels.len()).any(is_repeated) {
        true => Err(Failure::parameter("by", "has a level twice")),
        false => Ok(levels),
    }
}

/// The table of a request, and the selection that it shows.
pub(crate) fn table(
    shared: &Shared,
    request: &TableRequest,
    ticket: &Ticket,
) -> Result<(Selected, TableKey, Arc<KeyedTable>), Failure> {
    let by = levels(request.by.as_deref())?;
    let selected = Selected::of(shared, &request.selection, by.contains(&Dimension::Line))?;
    ticket.check()?;
    if request.children && !selected.loaded.has_chains() && !request.selection.inlined {
        return Err(Failure::no_chains());
    }
    if by.contains(&Dimension::Time) && !selected.profile.has_times() {
        return Err(dioptra_profile::SelectError::NoTimes.into());
    }
    let of_cpus = by.contains(&Dimension::Cpu) || by.contains(&Dimension::Socket);
    if of_cpus && !selected.loaded.has_cpus {
        return Err(dioptra_profile::SelectError::NoCpus.into());
    }
    let slices = NonZeroU32::new(request.slices.unwrap_or(20).min(100_000));
    let key = TableKey {
        selection: selected.key.clone(),
        events: selected.events.clone(),
        by,
        children: request.children,
        percent: request.percent.unwrap_or_default(),
        errors: request.errors,
        few: request.few.unwrap_or(10),
        slices: slices.ok_or_else(|| Failure::parameter("slices", "is at least 1"))?,
    };
    let table = shared.tables.get(key.clone(), || {
        ticket.check()?;
        let events = selected.table_events();
        let options = ReportOptions {
            by: &key.by,
            children: key.children,
            events: &events,
            percent_of: match key.percent {
                Percent::Column => PercentOf::Column,
                Percent::Total => PercentOf::Total,
                Percent::Row => PercentOf::Row,
                Percent::Parent => PercentOf::Parent,
            },
            errors: key.errors,
            few: key.few,
            slices: Slices::Number(key.slices),
            ..ReportOptions::default()
        };
        let (table, keys) = report_with_keys(&[selected.input()], &options)?;
        Ok(KeyedTable {
            table,
            keys,
            by: key.by.clone(),
        })
    })?;
    Ok((selected, key, table))
}

/// `COLUMN`, `COLUMN:asc` or `COLUMN:desc`. A column's id may hold colons.
pub(crate) fn sorting(table: &Table, sort: &str) -> Result<(usize, Direction), Failure> {
    let (column, chosen) = match sort.rsplit_once(':') {
        Some((column, "asc")) => (column, Some(Direction::Ascending)),
        Some((column, "desc")) => (column, Some(Direction::Descending)),
        _ => (sort, None),
    };
    let index = table.column_index(column);
    let index = index.ok_or_else(|| Failure::no_key("column", column))?;
    let usual = match table.columns[index].kind {
        ColumnKind::Name => Direction::Ascending,
        _ => Direction::Descending,
    };
    Ok((index, chosen.unwrap_or(usual)))
}

/// The order of rows, for an answer.
pub(crate) fn sorted_by(table: &Table, (column, direction): (usize, Direction)) -> SortedBy {
    SortedBy {
        column: table.columns[column].id.clone(),
        direction: match direction {
            Direction::Ascending => "asc".to_owned(),
            Direction::Descending => "desc".to_owned(),
        },
    }
}

/// The column that names rows: the last one that people read.
fn name_column(table: &Table) -> Option<usize> {
    let named = |id: &str| table.column_index(id);
    let first = ["name", "function", "process", "thread", "program", "comm"];
    first
        .into_iter()
        .find_map(named)
        .or_else(|| named("file"))
        .or_else(|| named("module"))
        .or_else(|| named("cpu"))
}

fn text_of(cell: &Cell<'_>) -> Option<String> {
    match cell {
        Cell::Name(name) => Some(name.to_string()),
        Cell::Count(count) => Some(count.to_string()),
        _ => None,
    }
}

/// The rows of a table that a request asks for.
fn view(
    shared: &Shared,
    request: &TableRequest,
    key: TableKey,
    table: &Table,
) -> Result<(Arc<SummedView>, Option<SortedBy>), Failure> {
    let sort = request.sort.as_deref();
    let sort = sort.map(|sort| sorting(table, sort)).transpose()?;
    let filter = request.filter.clone();
    let filter = filter.map(|text| (text, request.regex));
    if let Some(row) = request.below
        && row as usize >= table.rows().len()
    {
        return Err(Failure::no_key("row", &row.to_string()));
    }
    let key = ViewKey {
        table: key,
        sort,
        filter,
        below: request.below,
        levels: request.levels,
    };
    let sorted_by = sort.map(|sort| sorted_by(table, sort));
    let view = shared.views.get(key, || {
        let filter = request.filter.as_deref();
        let filter = filter.map(|text| NameFilter::new(text, request.regex));
        let filter = filter.transpose()?;
        let column = name_column(table);
        let passes = |row: Row<'_>| {
            let (Some(filter), Some(column)) = (&filter, column) else {
                return true;
            };
            match row.cell(column) {
                Cell::Name(name) => filter.passes(&name),
                other => text_of(&other).is_some_and(|text| filter.passes(&text)),
            }
        };
        let view = table.view(&ViewOptions {
            sort,
            passes: filter.is_some().then_some(&passes),
            below: request.below,
            levels: request.levels,
        })?;
        Ok(SummedView {
            totals: totals(table, &view.tops),
            view,
        })
    })?;
    Ok((view, sorted_by))
}

/// By column: the sum of some rows; none where a sum means nothing.
fn totals(table: &Table, rows: &[u32]) -> Vec<CellValue> {
    let columns = table.columns.iter().enumerate();
    let sums = columns.map(|(index, column)| {
        let is_sum = match column.kind {
            ColumnKind::Count | ColumnKind::Weight => true,
            // Samples of a called function count in its callers, too.
            ColumnKind::Ratio => !column.id.starts_with("total_"),
            _ => false,
        };
        if !is_sum {
            return CellValue::Empty(());
        }
        let cells = rows.iter().map(|row| table.row(*row).cell(index));
        sum(cells, column.unit.scale())
    });
    sums.collect()
}

/// The sum of cells: of quotients only if they have one denominator.
pub(crate) fn sum<'a>(cells: impl Iterator<Item = Cell<'a>>, scale: f64) -> CellValue {
    let (mut counts, mut reals, mut parts, mut whole) = (None, None, 0_u64, None);
    for cell in cells {
        match cell {
            Cell::Empty => {}
            Cell::Count(count) => counts = Some(counts.unwrap_or(0_u64).saturating_add(count)),
            Cell::Real { value, .. } if value.is_finite() => {
                reals = Some(reals.unwrap_or(0.0) + value);
            }
            Cell::Ratio {
                numerator,
                denominator,
            } if *whole.get_or_insert(denominator) == denominator => {
                parts = parts.saturating_add(numerator);
            }
            _ => return CellValue::Empty(()),
        }
    }
    match (counts, reals, whole) {
        (Some(count), None, None) => CellValue::Count(count),
        (None, Some(real), None) => CellValue::Real(real),
        (None, None, Some(whole)) => {
            let value = Cell::ratio(parts, whole).value(scale);
            value.map_or(CellValue::Empty(()), CellValue::Real)
        }
        _ => CellValue::Empty(()),
    }
}

/// A cell as an answer has it, and whether its middle was left out.
fn value(cell: &Cell<'_>, scale: f64) -> (CellValue, bool) {
    let value = match cell {
        Cell::Name(name) => {
            let (name, cut) = texts::shortened(name);
            return (CellValue::Text(name), cut);
        }
        Cell::Count(count) => CellValue::Count(*count),
        Cell::Address(address) => CellValue::Text(format!("{address:#x}")),
        Cell::Difference {
            minuend,
            subtrahend,
        } => {
            let difference = i128::from(*minuend) - i128::from(*subtrahend);
            i64::try_from(difference).map_or(CellValue::Empty(()), CellValue::Difference)
        }
        Cell::Empty | Cell::Ratio { .. } | Cell::Real { .. } => {
            let value = cell.value(scale);
            value.map_or(CellValue::Empty(()), CellValue::Real)
        }
    };
    (value, false)
}

pub(crate) fn columns(table: &Table) -> Vec<TableColumn> {
    let id = |index: usize| table.columns.get(index).map(|column| column.id.clone());
    let columns = table.columns.iter().map(|column| TableColumn {
        id: column.id.clone(),
        name: column.name.clone(),
        unit: column.unit.id().map(str::to_owned),
        kind: column.kind.id().to_owned(),
        event: column.event.clone(),
        parent: column.parent.and_then(id),
        for_programs: column.is_for_programs,
    });
    columns.collect()
}

/// The values of selection parameters of a row and those above it.
pub(crate) fn row_keys(selected: &Selected, keyed: &KeyedTable, row: u32) -> RowKeys {
    let mut found = RowKeys::default();
    let mut at = Some(row);
    while let Some(id) = at {
        if let Some(key) = keyed.keys.get(id as usize) {
            add_key(selected, keyed, id, *key, &mut found);
        }
        at = keyed.table.row(id).parent();
    }
    found
}

fn add_key(selected: &Selected, keyed: &KeyedTable, id: u32, row: RowKey, found: &mut RowKeys) {
    let Some(dimension) = keyed.by.get(usize::from(row.level)) else {
        return;
    };
    let (keys, profile) = (&selected.loaded.keys, &selected.profile);
    let tasks = profile.tasks();
    let named = selected.named();
    let put = |slot: &mut Option<String>, key: String| {
        slot.get_or_insert(key);
    };
    let module = |function: u32| {
        let function = named.names.functions().get(function as usize);
        function.map(|function| keys.module(function.module))
    };
    match dimension {
        Dimension::Program if (row.key as usize) < tasks.programs().len() => {
            put(&mut found.program, keys.program(row.key));
        }
        Dimension::Process if (row.key as usize) < tasks.processes().len() => {
            put(&mut found.process, keys.process(row.key));
        }
        Dimension::Thread => {
            if let Some(thread) = tasks.threads().get(row.key as usize) {
                put(&mut found.thread, keys.thread(row.key));
                put(&mut found.process, keys.process(thread.process));
            }
        }
        Dimension::Comm => {
            if let Some(comm) = tasks.comms().get(row.key as usize) {
                put(&mut found.comm, comm.clone());
            }
        }
        Dimension::Cpu if row.key != u32::MAX => put(&mut found.cpu, row.key.to_string()),
        Dimension::Module => put(&mut found.module, keys.module(row.key)),
        Dimension::Function => {
            put(&mut found.function, named.function_key(keys, row.key));
            found.module = found.module.take().or_else(|| module(row.key));
        }
        Dimension::Line => {
            let line = named.names.lines().get(row.key as usize);
            let module = line.map(|line| keys.module(line.module));
            found.module = found.module.take().or(module);
        }
        Dimension::Address if (row.key as usize) < profile.frames().len() => {
            let function = named.names.of_frame(row.key);
            put(&mut found.function, named.function_key(keys, function));
            let module = profile.frames().get(row.key).module;
            put(&mut found.module, keys.module(module));
        }
        Dimension::Time => found.time = time_of(keyed, id),
        _ => {}
    }
}

/// The slice of time of a row.
fn time_of(keyed: &KeyedTable, row: u32) -> Option<(u64, u64)> {
    let cell = |id: &str| match keyed.table.row(row).cell(keyed.table.column_index(id)?) {
        Cell::Count(time) => Some(time),
        _ => None,
    };
    Some((cell("start")?, cell("end")?))
}

/// Answers `/api/table`.
pub(crate) fn answer(
    shared: &Shared,
    request: &TableRequest,
    ticket: &Ticket,
) -> Result<TableAnswer, Failure> {
    let (selected, key, keyed) = table(shared, request, ticket)?;
    ticket.check()?;
    let table = &keyed.table;
    let (summed, sorted_by) = view(shared, request, key, table)?;
    let view = &summed.view;
    let from = request.from.unwrap_or(0).min(view.rows.len());
    let count = request.count.unwrap_or(ROWS).min(MOST_ROWS);
    let shown = view.rows[from..].iter().take(count);
    let rows = shown.map(|place| {
        let key = row_keys(&selected, &keyed, place.row);
        table_row(table, place, key)
    });
    Ok(TableAnswer {
        schema: 1,
        profile: selected.loaded.index,
        generation: selected.loaded.generation,
        rows: rows.collect(),
        columns: columns(table),
        from,
        total_rows: view.unfiltered,
        matching_rows: view.rows.len(),
        totals: summed.totals.clone(),
        sorted_by,
        facts: texts::facts(&table.facts),
    })
}

/// A row as an answer has it.
pub(crate) fn table_row(table: &Table, place: &ViewRow, key: RowKeys) -> TableRow {
    let row = table.row(place.row);
    let mut is_cut = false;
    let cells = table.columns.iter().zip(row.cells());
    let cells = cells.map(|(column, cell)| {
        let (value, cut) = value(&cell, column.unit.scale());
        is_cut |= cut;
        value
    });
    let cells = cells.collect();
    let each = || table.columns.iter().enumerate();
    let errors =
        each().filter_map(|(index, column)| Some((column.id.clone(), row.standard_error(index)?)));
    let notes = each()
        .filter_map(|(index, column)| Some((column.id.clone(), row.mark(index)?)))
        .map(|(id, mark)| (id, Mark::word(mark)));
    let (errors, notes) = (errors.collect(), notes.collect());
    TableRow {
        id: place.row,
        parent: row.parent(),
        depth: place.depth,
        below: place.below,
        key,
        cells,
        standard_errors: some(errors, std::collections::BTreeMap::is_empty),
        notes: some(notes, std::collections::BTreeMap::is_empty),
        cut: is_cut.then_some(true),
    }
}

fn some<T>(list: T, is_empty: impl Fn(&T) -> bool) -> Option<T> {
    match is_empty(&list) {
        true => None,
        false => Some(list),
    }
}

/// Answers `/api/export`: the whole table as `dioptra report` writes it.
pub(crate) fn export(
    shared: &Shared,
    request: &TableRequest,
    format: Format,
    ticket: &Ticket,
) -> Result<Vec<u8>, Failure> {
    let (_, _, keyed) = table(shared, request, ticket)?;
    ticket.check()?;
    let mut text = Vec::new();
    let options = TextOptions::default();
    let written = match &request.sort {
        None => format.write_limited(&keyed.table, &options, &mut text),
        Some(sort) => {
            let (column, direction) = sorting(&keyed.table, sort)?;
            let mut table = keyed.table.clone();
            table.sort_by(column, direction)?;
            format.write_limited(&table, &options, &mut text)
        }
    };
    written.map_err(|error| Failure::Internal(error.to_string()))?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_words() {
        assert_eq!(
            levels(Some("process,module")),
            Ok(vec![Dimension::Process, Dimension::Module])
        );
        assert_eq!(levels(None), Ok(vec![Dimension::Function]));
        for wrong in ["", "block", "function,function", "function,"] {
            assert!(levels(Some(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sums_of_one_kind() {
        let of = |cells: &[Cell<'static>]| sum(cells.iter().cloned(), 100.0);
        assert_eq!(of(&[Cell::Count(2), Cell::Count(3)]), CellValue::Count(5));
        let half = [Cell::ratio(1, 4), Cell::Empty, Cell::ratio(1, 4)];
        assert_eq!(of(&half), CellValue::Real(50.0));
        assert_eq!(
            of(&[Cell::ratio(1, 4), Cell::ratio(1, 5)]),
            CellValue::Empty(())
        );
        assert_eq!(of(&[]), CellValue::Empty(()));
    }
}
