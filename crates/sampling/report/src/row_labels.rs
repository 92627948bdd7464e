//! The names of rows, for tables that other crates make.

use crate::Input;
use crate::labels::Labels;
use dioptra_profile::{Dimension, Slices};
use dioptra_tables::{Cell, Column};
use std::num::NonZeroU32;

/// The columns that name the rows of one dimension, as in every table, and their cells.
pub struct RowLabels {
    labels: Labels,
    dimension: Dimension,
}

impl RowLabels {
    /// Names the rows of one profile. With `tasks_by_name`, processes and threads are named without their numbers.
    /// Slices of time ([`Dimension::Time`]) have no names here.
    pub fn new(input: &Input<'_>, dimension: Dimension, tasks_by_name: bool) -> RowLabels {
        let slices = Slices::Number(const { NonZeroU32::new(1).unwrap() });
        RowLabels {
            labels: Labels::new(&[*input], &[dimension], slices, tasks_by_name),
            dimension,
        }
    }

    /// Returns the columns.
    pub fn heads(&self) -> Vec<Column> {
        self.labels.heads(self.dimension)
    }

    /// Appends the cells of the row with this key, one for each column.
    pub fn push_cells<'a>(&self, input: &Input<'a>, key: u32, cells: &mut Vec<Cell<'a>>) {
        self.labels.push_cells(input, self.dimension, key, cells);
    }

    /// Returns one text that names the row with this key.
    pub fn text(&self, input: &Input<'_>, key: u32) -> String {
        let mut cells = Vec::new();
        self.push_cells(input, key, &mut cells);
        self.labels
            .text(self.dimension, &cells, &[], None)
            .into_owned()
    }
}
