//! The rows of a table, column by column: a table may have a row for each address that was sampled.

mod names;
mod values;

use crate::{Cell, CellNote, Column, Mark, TableError};
use names::Pool;
use values::Values;

/// The number that stands for no row.
const NONE: u32 = u32::MAX;

/// All rows that were pushed, and which of them are shown.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rows {
    columns: Vec<OfColumn>,
    /// The row above, by row.
    parents: Vec<u32>,
    /// Rows in the order in which they are shown; `None` where all rows are shown in the order in which they were
    /// pushed.
    order: Option<Vec<u32>>,
    names: Pool,
    is_tree: bool,
}

/// One column's cells, with their standard errors and marks.
#[derive(Debug, Clone, Default)]
struct OfColumn {
    values: Values,
    /// The standard error, by row, up to the last row that has one; NaN where a row has none.
    errors: Vec<f64>,
    /// One more than the index in `known_marks`, by row, up to the last row that has a mark; 0 where a row has none.
    marks: Vec<u32>,
    /// The column's marks, each once: there are few.
    known_marks: Vec<Mark>,
}

impl OfColumn {
    fn mark(&self, row: u32) -> Option<&Mark> {
        let mark = *self.marks.get(row as usize)? as usize;
        self.known_marks.get(mark.checked_sub(1)?)
    }

    fn error(&self, row: u32) -> Option<f64> {
        let error = *self.errors.get(row as usize)?;
        (error.is_finite() && error >= 0.0).then_some(error)
    }

    fn add_mark(&mut self, row: usize, mark: &Mark) {
        let last = self.marks.last().map_or(0, |last| *last as usize);
        let is = |index: &usize| self.known_marks.get(*index) == Some(mark);
        let known = last.checked_sub(1).filter(is);
        let known = known.or_else(|| self.known_marks.iter().position(|known| known == mark));
        let index = known.unwrap_or_else(|| {
            self.known_marks.push(mark.clone());
            self.known_marks.len() - 1
        });
        self.marks.resize(row, 0);
        // A column has no more marks than rows, so the index fits.
        self.marks.push(index as u32 + 1);
    }
}

impl Rows {
    /// Makes an empty list for rows of this number of columns.
    pub(crate) fn new(columns: usize) -> Rows {
        Rows {
            columns: vec![OfColumn::default(); columns],
            ..Rows::default()
        }
    }

    /// Makes room for this number of additional rows.
    pub(crate) fn reserve(&mut self, rows: usize) {
        self.parents.reserve_exact(rows);
    }

    /// Returns the number of a row's columns.
    pub(crate) fn width(&self) -> usize {
        self.columns.len()
    }

    /// Adds a row: its first cells, then those that may repeat the row above it. Returns its id.
    pub(crate) fn push<'a>(
        &mut self,
        parent: Option<u32>,
        cells: &[Cell<'a>],
        names: &[Option<Cell<'a>>],
        notes: &[CellNote],
    ) -> Result<u32, TableError> {
        let row = self.parents.len();
        let id = u32::try_from(row).ok().filter(|id| *id != NONE);
        let id = id.ok_or(TableError::TooManyRows)?;
        if cells.len() + names.len() != self.columns.len() {
            return Err(TableError::CellCount {
                row: id,
                cells: cells.len() + names.len(),
                columns: self.columns.len(),
            });
        }
        if let Some(parent) = parent.filter(|parent| *parent >= id) {
            return Err(TableError::RowParent { row: id, parent });
        }
        let (first, rest) = self.columns.split_at_mut(cells.len());
        let room = self.parents.capacity();
        for (column, cell) in first.iter_mut().zip(cells) {
            column.values.push(cell, (row, room), &mut self.names);
        }
        for (column, name) in rest.iter_mut().zip(names) {
            match (name, parent) {
                (Some(cell), _) => column.values.push(cell, (row, room), &mut self.names),
                (None, Some(parent)) => column.values.repeat(parent as usize),
                (None, None) => column
                    .values
                    .push(&Cell::Empty, (row, room), &mut self.names),
            }
        }
        for note in notes {
            let Some(column) = self.columns.get_mut(note.column) else {
                continue;
            };
            if let Some(error) = note.standard_error {
                column.errors.resize(row, f64::NAN);
                column.errors.push(error);
            }
            if let Some(mark) = &note.mark {
                column.add_mark(row, mark);
            }
        }
        self.parents.push(parent.unwrap_or(NONE));
        self.is_tree |= parent.is_some();
        if let Some(order) = &mut self.order {
            order.push(id);
        }
        Ok(id)
    }

    /// Returns the number of rows that are shown.
    pub(crate) fn len(&self) -> usize {
        self.order.as_ref().map_or(self.parents.len(), Vec::len)
    }

    /// Returns the number of rows that were pushed.
    pub(crate) fn pushed(&self) -> usize {
        self.parents.len()
    }

    /// Returns true if any row that was pushed has a parent.
    pub(crate) fn is_tree(&self) -> bool {
        self.is_tree
    }

    /// Returns the rows that are shown, those of one parent in their order.
    pub(crate) fn shown(&self) -> impl DoubleEndedIterator<Item = u32> + ExactSizeIterator + '_ {
        let order = self.order.as_deref();
        (0..self.len()).map(move |index| order.map_or(index as u32, |order| order[index]))
    }

    /// Takes the order in which rows are shown, which the caller changes and gives back to [`Rows::set_order`].
    pub(crate) fn take_order(&mut self) -> Vec<u32> {
        let order = self.order.take();
        order.unwrap_or_else(|| (0..).take(self.parents.len()).collect())
    }

    /// Shows these rows in this order.
    pub(crate) fn set_order(&mut self, order: Vec<u32>) {
        self.order = Some(order);
    }

    #[inline]
    pub(crate) fn parent(&self, row: u32) -> Option<u32> {
        Some(self.parents[row as usize]).filter(|parent| *parent != NONE)
    }

    #[inline]
    pub(crate) fn cell(&self, row: u32, column: usize) -> Cell<'_> {
        self.columns[column].values.get(row as usize, &self.names)
    }

    pub(crate) fn mark(&self, row: u32, column: usize) -> Option<&Mark> {
        self.columns.get(column)?.mark(row)
    }

    /// Returns the standard error that was noted for a cell, if it can be used.
    pub(crate) fn noted_error(&self, row: u32, column: usize) -> Option<f64> {
        self.columns.get(column)?.error(row)
    }

    /// Returns the number of cells with this mark, of all rows that were pushed.
    pub(crate) fn count_marks(&self, mark: &Mark) -> usize {
        let of_column = |column: &OfColumn| {
            let index = column.known_marks.iter().position(|known| known == mark);
            let Some(index) = index else {
                return 0;
            };
            let is = |mark: &&u32| **mark as usize == index + 1;
            column.marks.iter().filter(is).count()
        };
        self.columns.iter().map(of_column).sum()
    }

    /// Returns numbers that are in the order of a column's cells, by row, if the cells are of one kind and all have a
    /// value.
    pub(crate) fn sort_keys(&self, column: usize) -> Option<Vec<u64>> {
        self.columns[column].values.sort_keys(self.parents.len())
    }

    /// Returns true if two rows are known to have the same name in a column; cells that are no names are never
    /// compared.
    #[inline]
    pub(crate) fn is_same_name(&self, column: usize, one: u32, other: u32) -> bool {
        let values = &self.columns[column].values;
        values.is_same_name(one as usize, other as usize)
    }

    /// Returns the error of the first row with a cell that does not fit its column.
    pub(crate) fn misfit(&self, columns: &[Column]) -> Option<TableError> {
        if self.columns.len() != columns.len() && self.len() > 0 {
            return Some(TableError::CellCount {
                row: self.shown().next().unwrap_or(0),
                cells: self.columns.len(),
                columns: columns.len(),
            });
        }
        for (column, of_column) in columns.iter().zip(&self.columns) {
            if of_column.values.all_fit(column.kind) {
                continue;
            }
            let fits = |row: &u32| {
                let cell = of_column.values.get(*row as usize, &self.names);
                column.kind.fits(&cell)
            };
            if let Some(row) = self.shown().find(|row| !fits(row)) {
                return Some(TableError::CellKind {
                    row,
                    column: column.id.clone(),
                });
            }
        }
        None
    }
}
