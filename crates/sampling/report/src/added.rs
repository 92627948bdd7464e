//! Columns that other crates add to a table.

use dioptra_tables::{Cell, CellNote, Column, Table, TableError};

/// Columns to be inserted into a table without a tree, with a cell for each of the table's rows.
pub struct AddedColumns {
    /// The columns, in their order.
    pub heads: Vec<Column>,
    /// The cells of each row, one for each column.
    pub cells: Vec<Vec<Cell<'static>>>,
    /// The notes of each row. [`CellNote::column`] counts from the first added column.
    pub notes: Vec<Vec<CellNote>>,
}

impl AddedColumns {
    /// Returns an empty set of columns for a table of `rows` rows.
    pub fn new(rows: usize) -> AddedColumns {
        AddedColumns {
            heads: Vec::new(),
            cells: vec![Vec::new(); rows],
            notes: vec![Vec::new(); rows],
        }
    }

    /// Inserts the columns before the table's column `first`. No column from `first` on may be a parent of another one.
    ///
    /// # Errors
    /// [`TableError`] if the cells do not fit the columns.
    pub fn insert(mut self, table: &mut Table, first: usize) -> Result<(), TableError> {
        let mut heads = table.columns.clone();
        heads.splice(first..first, self.heads);
        let mut new = Table::new(heads);
        new.reserve(table.len());
        for ((row, own), own_notes) in table.rows().zip(&self.cells).zip(&mut self.notes) {
            let mut cells: Vec<Cell<'_>> = row.cells().collect();
            let mut notes: Vec<CellNote> = (0..cells.len())
                .map(|column| CellNote {
                    column: if column < first {
                        column
                    } else {
                        column + own.len()
                    },
                    standard_error: row.noted_error(column),
                    mark: row.mark(column).cloned(),
                })
                .filter(|note| note.standard_error.is_some() || note.mark.is_some())
                .collect();
            cells.splice(first..first, own.iter().cloned());
            own_notes.iter_mut().for_each(|note| note.column += first);
            notes.append(own_notes);
            new.push_noted(None, cells, notes)?;
        }
        new.facts = std::mem::take(&mut table.facts);
        *table = new;
        Ok(())
    }
}
