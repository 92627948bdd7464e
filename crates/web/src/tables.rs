//! `/api/table`, `/api/export`: the tables of `dioptra report`, a range of rows at a time.

use crate::api::{CellValue, Percent, RowKeys, SortedBy, TableAnswer, TableOf, TableRequest};
use crate::cache::MemorySize;
use crate::failure::Failure;
use crate::filter::NameFilter;
use crate::jobs::Ticket;
use crate::loaded::Named;
use crate::row_keys::row_keys;
use crate::selected::{Selected, SelectionKey};
use crate::server::Shared;
use crate::table_rows::{columns, table_row, totals};
use crate::{comparing, metrics, texts, window_columns};
use dioptra_profile::{Dimension, Slices};
use dioptra_report::{
    Blocks, Input, MetricColumns, PercentOf, ReportOptions, RowKey, TableEvent, report_with_keys,
};
use dioptra_tables::{
    Cell, ColumnKind, Direction, Format, Row, Table, TextOptions, View, ViewOptions,
};
use dioptra_windows::display::WindowRows;
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
    pub by: Vec<Dimension>,
    children: bool,
    percent: Percent,
    errors: bool,
    pub few: u64,
    pub slices: NonZeroU32,
    pub metric: Vec<String>,
    pub kind: TableKind,
}

/// The kind of a table, with what only such tables depend on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TableKind {
    Report,
    Diff {
        with: Box<SelectionKey>,
        normalize: String,
    },
    Beside {
        with: Box<SelectionKey>,
    },
    Metrics {
        rows: WindowRows,
        kernel_apart: bool,
    },
}

impl TableKey {
    /// Whether all profiles of the table pass.
    pub(crate) fn passes(&self, passes: impl Fn(&SelectionKey) -> bool) -> bool {
        let other = match &self.kind {
            TableKind::Diff { with, .. } | TableKind::Beside { with } => passes(with),
            _ => true,
        };
        other && passes(&self.selection)
    }

    /// The options of a report with these events and derived columns.
    pub(crate) fn report_options<'a>(
        &'a self,
        events: &'a [TableEvent],
        metrics: &'a [MetricColumns<'a>],
    ) -> ReportOptions<'a> {
        ReportOptions {
            by: &self.by,
            children: self.children,
            events,
            percent_of: match self.percent {
                Percent::Column => PercentOf::Column,
                Percent::Total => PercentOf::Total,
                Percent::Row => PercentOf::Row,
                Percent::Parent => PercentOf::Parent,
            },
            errors: self.errors,
            few: self.few,
            slices: Slices::Number(self.slices),
            metrics,
            ..ReportOptions::default()
        }
    }
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
    /// The names that functions' keys are of, where they are not the selection's.
    pub named: Option<Arc<Named>>,
    /// The basic blocks that blocks' keys are of.
    pub blocks: Option<Arc<Blocks>>,
    /// By row: the keys, where they were made with the table.
    pub made: Option<Vec<RowKeys>>,
}

impl MemorySize for KeyedTable {
    fn bytes(&self) -> usize {
        // Cells of numbers take 8 or 16 bytes; names are shared.
        let made = self.made.as_ref().map_or(0, |made| 256 * made.len());
        1 + made + self.table.len() * (12 + 16 * self.table.columns.len())
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
        "block" => Dimension::Block,
        "instruction" => Dimension::Address,
        "time" => Dimension::Time,
        _ => return None,
    })
}

pub(crate) fn levels(by: Option<&str>) -> Result<Vec<Dimension>, Failure> {
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

/// Whether rows of these levels name source lines.
pub(crate) fn need_lines(by: &[Dimension]) -> bool {
    by.contains(&Dimension::Line) || by.contains(&Dimension::Block)
}

/// Fails if the samples lack what the levels need.
pub(crate) fn check_levels(selected: &Selected, by: &[Dimension]) -> Result<(), Failure> {
    if by.contains(&Dimension::Time) && !selected.profile.has_times() {
        return Err(dioptra_profile::SelectError::NoTimes.into());
    }
    let of_cpus = by.contains(&Dimension::Cpu) || by.contains(&Dimension::Socket);
    if of_cpus && !selected.loaded.has_cpus {
        return Err(dioptra_profile::SelectError::NoCpus.into());
    }
    Ok(())
}

/// The key of a request's table.
pub(crate) fn key_of(
    selected: &Selected,
    request: &TableRequest,
    by: Vec<Dimension>,
    kind: TableKind,
) -> Result<TableKey, Failure> {
    let slices = NonZeroU32::new(request.slices.unwrap_or(20).min(100_000));
    Ok(TableKey {
        selection: selected.key.clone(),
        events: selected.events.clone(),
        by,
        children: request.children,
        percent: request.percent.unwrap_or_default(),
        errors: request.errors,
        few: request.few.unwrap_or(10),
        slices: slices.ok_or_else(|| Failure::parameter("slices", "is at least 1"))?,
        metric: request.metric.clone(),
        kind,
    })
}

/// The table of a request, and the selection that it shows.
pub(crate) fn table(
    shared: &Shared,
    request: &TableRequest,
    ticket: &Ticket,
) -> Result<(Selected, TableKey, Arc<KeyedTable>), Failure> {
    match request.of.unwrap_or_default() {
        TableOf::Report => report(shared, request, ticket),
        TableOf::Diff => comparing::table(shared, request, ticket),
        TableOf::Metrics => metrics::table(shared, request, ticket),
    }
}

fn report(
    shared: &Shared,
    request: &TableRequest,
    ticket: &Ticket,
) -> Result<(Selected, TableKey, Arc<KeyedTable>), Failure> {
    if request.normalize.is_some() || request.kernel_apart {
        return Err(Failure::parameter(
            "of",
            "report goes without normalize and kernel_apart",
        ));
    }
    if request.with.is_some() {
        return comparing::beside(shared, request, ticket);
    }
    let by = levels(request.by.as_deref())?;
    let selected = Selected::of(shared, &request.selection, need_lines(&by))?;
    ticket.check()?;
    if request.children && !selected.loaded.has_chains() && !request.selection.inlined {
        return Err(Failure::no_chains());
    }
    check_levels(&selected, &by)?;
    let key = key_of(&selected, request, by, TableKind::Report)?;
    let table = shared.tables.get(key.clone(), || {
        ticket.check()?;
        let events = selected.table_events();
        let chosen = metrics::chosen(&selected.loaded, &key.metric, key.few)?;
        let columns = chosen.columns();
        let of_windows = selected.loaded.has_windows() && !columns.is_empty();
        let of_samples = if of_windows { &[][..] } else { &columns };
        let options = key.report_options(&events, of_samples);
        let blocks = selected.blocks(&key.by);
        ticket.check()?;
        let input = Input {
            blocks: blocks.as_deref(),
            ..selected.input()
        };
        let (mut table, keys) = report_with_keys(&[input], &options)?;
        if of_windows {
            let added = (&key.by[..], &columns[..]);
            window_columns::add(shared, &[&selected], added, &mut table, ticket)?;
        }
        Ok(KeyedTable {
            table,
            keys,
            by: key.by.clone(),
            blocks,
            named: None,
            made: None,
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

/// Answers `/api/export`: the rows that pass the filter, as `dioptra report` writes them.
pub(crate) fn export(
    shared: &Shared,
    request: &TableRequest,
    format: Format,
    ticket: &Ticket,
) -> Result<Vec<u8>, Failure> {
    let (_, key, keyed) = table(shared, request, ticket)?;
    ticket.check()?;
    let mut text = Vec::new();
    let options = TextOptions::default();
    let is_whole = request.sort.is_none()
        && request.filter.is_none()
        && request.below.is_none()
        && request.levels.is_none();
    let written = match is_whole {
        true => format.write_limited(&keyed.table, &options, &mut text),
        false => {
            let (summed, _) = view(shared, request, key, &keyed.table)?;
            ticket.check()?;
            let table = keyed.table.of_view(&summed.view);
            format.write_limited(&table, &options, &mut text)
        }
    };
    written.map_err(|error| Failure::Internal(error.to_string()))?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table_rows::sum;

    #[test]
    fn levels_are_words() {
        assert_eq!(
            levels(Some("process,module")),
            Ok(vec![Dimension::Process, Dimension::Module])
        );
        assert_eq!(levels(None), Ok(vec![Dimension::Function]));
        for wrong in ["", "blocks", "function,function", "function,"] {
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
