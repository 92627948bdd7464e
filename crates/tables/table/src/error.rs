//! The errors of tables and of their renderings.

use thiserror::Error;

/// A table that contradicts itself. Each of these is a mistake of the code that built the table, not of its user.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TableError {
    /// Two columns share an id.
    #[error("two columns have the id `{id}`; give one of them another id")]
    DuplicateColumn {
        /// The id in question.
        id: String,
    },
    /// A column's id is empty or kept for the columns that CSV adds.
    #[error(
        "`{id}` cannot be a column id: it is empty, or kept for a column that CSV adds; choose another id"
    )]
    ReservedColumn {
        /// The id in question.
        id: String,
    },
    /// A column's parent does not exist, or the column is its own ancestor.
    #[error(
        "column `{id}` has no usable parent: the parent must be another column's index, without a cycle"
    )]
    ColumnParent {
        /// The column's id.
        id: String,
    },
    /// A row has more or fewer cells than there are columns.
    #[error("row {row} has {cells} cells for {columns} columns; give it one cell a column")]
    CellCount {
        /// The row's id.
        row: u32,
        /// The number of the row's cells.
        cells: usize,
        /// The number of the table's columns.
        columns: usize,
    },
    /// A cell does not fit its column's kind.
    #[error("row {row} has a cell in column `{column}` that does not fit the column's kind")]
    CellKind {
        /// The row's id.
        row: u32,
        /// The column's id.
        column: String,
    },
    /// A row's parent does not exist.
    #[error(
        "row {row} has the parent {parent}, which is no row of the table yet; push the parent first"
    )]
    RowParent {
        /// The row's id.
        row: u32,
        /// The id it names as its parent.
        parent: u32,
    },
    /// More rows than ids.
    #[error("a table holds at most 4294967295 rows; aggregate further, or filter")]
    TooManyRows,
    /// A column that is asked for does not exist.
    #[error("there is no column {index}; the table has {columns}")]
    NoColumn {
        /// The index asked for.
        index: usize,
        /// The number of the table's columns.
        columns: usize,
    },
}

/// A reason why a table could not be written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RenderError {
    /// The table contradicts itself; nothing was written.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The output could not be written.
    #[error("cannot write the table")]
    Io(#[from] std::io::Error),
}

impl RenderError {
    /// Returns true if the reader of the output went away (`… | head`), which is no failure for a program that only
    /// prints.
    pub fn is_closed_pipe(&self) -> bool {
        matches!(self, RenderError::Io(error) if error.kind() == std::io::ErrorKind::BrokenPipe)
    }
}

impl From<serde_json::Error> for RenderError {
    fn from(error: serde_json::Error) -> RenderError {
        RenderError::Io(error.into())
    }
}
