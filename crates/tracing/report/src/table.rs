//! The table of functions.

use crate::fields::Field;
use crate::rows::{Row, estimates};
use dioptra_tables::{Cell, CellNote, Column, ColumnKind, Mark, Table, TableError, Unit};

/// Makes a table with a row for each function, and these columns. `sources` adds a column for the place in the source;
/// `ticks` says that the length of the clock's ticks is unknown ([`counts_ticks`](crate::counts_ticks)).
///
/// # Errors
/// [`TableError`] if the table cannot hold a row.
pub fn function_table(
    rows: &[Row],
    fields: &[Field],
    sources: bool,
    ticks: bool,
) -> Result<Table, TableError> {
    let mut columns = vec![
        Column::new("function", "Function", ColumnKind::Name, Unit::None),
        Column::new("function_id", "Id", ColumnKind::Name, Unit::None).for_programs(),
    ];
    columns.extend(fields.iter().map(|field| field.column(ticks)));
    if sources {
        columns.push(Column::new(
            "source",
            "Source",
            ColumnKind::Name,
            Unit::None,
        ));
    }
    let mut table = Table::new(columns);
    for row in rows {
        let mut cells = vec![
            Cell::name(row.name.as_str()),
            Cell::Count(u64::from(row.times.function)),
        ];
        let mut notes = Vec::new();
        for field in fields {
            let cell = field.cell(row);
            if estimates(row).is_some() && field.is_sum() {
                let few = row.times.calls < 2;
                notes.push(CellNote {
                    column: cells.len(),
                    standard_error: field.standard_error(row),
                    mark: few.then_some(Mark::FewSamples),
                });
            }
            cells.push(cell);
        }
        if sources {
            cells.push(row.source.as_deref().map_or(Cell::Empty, Cell::name));
        }
        table.push_noted(None, cells, notes)?;
    }
    Ok(table)
}
