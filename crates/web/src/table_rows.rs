//! Rows, columns and sums of tables as answers have them.

use crate::api::{CellValue, RowKeys, TableColumn, TableRow};
use crate::texts;
use dioptra_tables::{Cell, ColumnKind, Mark, Table, ViewRow};

/// By column: the sum of some rows; none where a sum means nothing.
pub(crate) fn totals(table: &Table, rows: &[u32]) -> Vec<CellValue> {
    let columns = table.columns.iter().enumerate();
    let sums = columns.map(|(index, column)| {
        let is_sum = match column.kind {
            ColumnKind::Count | ColumnKind::Weight => true,
            ColumnKind::Ratio => is_summed(&column.id),
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

/// Whether the quotients of a column add up. Samples of a called function count in its callers, too; relative changes
/// and their tests are of one row each.
fn is_summed(id: &str) -> bool {
    let id = id.split('[').next().unwrap_or(id);
    let of_rows = ["_change", "_z", "_q"];
    let is_total = id.starts_with("total_") || id.starts_with("b_total_");
    !is_total && !of_rows.iter().any(|end| id.ends_with(end))
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
