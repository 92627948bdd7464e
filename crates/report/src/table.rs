//! The table itself: columns, rows, cells, facts.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::sync::Arc;

use crate::{Cell, Facts, TableError};

/// What a column's numbers are measured in.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Unit {
    /// No unit: names, addresses, plain ratios such as instructions per cycle.
    #[default]
    None,
    /// Occurrences of the column's event.
    Events,
    /// Samples of the column's event.
    Samples,
    /// Hundredths. A [`Cell::Ratio`] is multiplied by 100.
    Percent,
    /// Thousandths, as in misses per thousand instructions. A [`Cell::Ratio`] is multiplied by 1000.
    PerThousand,
    /// Nanoseconds. Text shows them as ns, us, ms or s.
    Nanoseconds,
    /// Bytes.
    Bytes,
    /// Any other unit by its symbol, such as `cycles` or `1/ms`.
    Named(String),
}

impl Unit {
    /// What a ratio in this unit is multiplied by: 100 for percent, 1000 for per thousand, else 1.
    pub fn scale(&self) -> f64 {
        match self {
            Unit::Percent => 100.0,
            Unit::PerThousand => 1000.0,
            _ => 1.0,
        }
    }

    /// The unit's name in JSON; `None` where there is no unit.
    pub fn id(&self) -> Option<&str> {
        match self {
            Unit::None => None,
            Unit::Events => Some("events"),
            Unit::Samples => Some("samples"),
            Unit::Percent => Some("percent"),
            Unit::PerThousand => Some("per_thousand"),
            Unit::Nanoseconds => Some("ns"),
            Unit::Bytes => Some("bytes"),
            Unit::Named(symbol) => Some(symbol),
        }
    }
}

/// What a column's cells are, which also says which cells fit; [`Cell::Empty`] fits everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum ColumnKind {
    /// How many: [`Cell::Count`], or [`Cell::Real`] where counts were scaled or estimated.
    Count,
    /// A sum of periods: [`Cell::Count`] or [`Cell::Real`].
    Weight,
    /// A quotient: [`Cell::Ratio`], or [`Cell::Real`] for one that was computed otherwise.
    #[default]
    Ratio,
    /// A duration or a point in time: [`Cell::Count`] or [`Cell::Real`].
    Time,
    /// [`Cell::Address`].
    Address,
    /// What a row is about: [`Cell::Name`], or [`Cell::Count`] for numbers that name, such as thread ids.
    Name,
}

impl ColumnKind {
    /// The kind's name in JSON.
    pub fn id(self) -> &'static str {
        match self {
            ColumnKind::Count => "count",
            ColumnKind::Weight => "weight",
            ColumnKind::Ratio => "ratio",
            ColumnKind::Time => "time",
            ColumnKind::Address => "address",
            ColumnKind::Name => "name",
        }
    }

    /// Whether a cell may stand in a column of this kind.
    fn fits(self, cell: &Cell) -> bool {
        match cell {
            Cell::Empty => true,
            Cell::Name(_) => self == ColumnKind::Name,
            Cell::Address(_) => self == ColumnKind::Address,
            Cell::Ratio { .. } => self == ColumnKind::Ratio,
            Cell::Count(_) => !matches!(self, ColumnKind::Ratio | ColumnKind::Address),
            Cell::Difference { .. } => {
                matches!(
                    self,
                    ColumnKind::Count | ColumnKind::Weight | ColumnKind::Time
                )
            }
            Cell::Real { .. } => !matches!(self, ColumnKind::Name | ColumnKind::Address),
        }
    }
}

/// One column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// The name for programs (CSV's first row, JSON): short, stable, unique in its table, such as `self_percent`.
    pub id: String,
    /// The heading for people.
    pub name: String,
    /// What its numbers are measured in.
    pub unit: Unit,
    /// What its cells are.
    pub kind: ColumnKind,
    /// The event it is about, if it is about one.
    pub event: Option<String>,
    /// The index of the column that this one breaks down, so that a page can unfold it.
    pub parent: Option<usize>,
    /// Whether only programs read it, in CSV and JSON: text says the same in other columns.
    pub is_for_programs: bool,
}

impl Column {
    /// A column without event and parent.
    pub fn new(
        id: impl Into<String>,
        name: impl Into<String>,
        kind: ColumnKind,
        unit: Unit,
    ) -> Column {
        Column {
            id: id.into(),
            name: name.into(),
            unit,
            kind,
            event: None,
            parent: None,
            is_for_programs: false,
        }
    }

    /// The same column, left out of text.
    pub fn for_programs(mut self) -> Column {
        self.is_for_programs = true;
        self
    }

    /// The same column, about `event`.
    pub fn of_event(mut self, event: impl Into<String>) -> Column {
        self.event = Some(event.into());
        self
    }

    /// The same column, as a part of the column with index `parent`.
    pub fn below(mut self, parent: usize) -> Column {
        self.parent = Some(parent);
        self
    }
}

/// One row.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Unique in its table; survives sorting and filtering.
    pub id: u32,
    /// The id of the row that this one belongs under, in a tree.
    pub parent: Option<u32>,
    /// One cell a column.
    pub cells: Vec<Cell>,
    /// What is known of some cells besides their values, by rising column.
    pub notes: Vec<CellNote>,
}

/// What is known of one cell of a row besides its value.
#[derive(Debug, Clone, PartialEq)]
pub struct CellNote {
    /// The index of the column.
    pub column: usize,
    /// One standard error of the value in the column's unit, if it is known.
    pub standard_error: Option<f64>,
    /// What to think of the value.
    pub mark: Option<Mark>,
}

/// What to think of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mark {
    /// It rests on so few samples that chance may have made it.
    FewSamples,
    /// Some inputs of a sum were not recorded: the whole is larger.
    Partial,
    /// There is none, since these inputs were not recorded.
    Missing(Arc<[String]>),
}

impl Mark {
    /// The mark as programs read it.
    pub(crate) fn id(&self) -> String {
        match self {
            Mark::FewSamples => "few_samples".to_owned(),
            Mark::Partial => "partial".to_owned(),
            Mark::Missing(inputs) => format!("missing: {}", inputs.join(", ")),
        }
    }
}

impl Row {
    /// What is known of a cell besides its value.
    pub fn note(&self, column: usize) -> Option<&CellNote> {
        let found = self.notes.binary_search_by_key(&column, |note| note.column);
        found.ok().map(|index| &self.notes[index])
    }

    /// What to think of a cell.
    pub fn mark(&self, column: usize) -> Option<&Mark> {
        self.note(column)?.mark.as_ref()
    }

    /// The standard error of a cell, from the cell itself or its note, if it has a usable one.
    pub fn standard_error(&self, column: usize) -> Option<f64> {
        let noted = || self.note(column)?.standard_error;
        let own = self.cells.get(column)?.standard_error();
        own.or_else(noted)
            .filter(|error| error.is_finite() && *error >= 0.0)
    }
}

/// Which way to sort.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Smallest first.
    Ascending,
    /// Largest first.
    Descending,
}

/// Columns, rows and facts: what every analysis ends in and every rendering starts from.
///
/// Rows may be sorted, filtered and changed freely; renderings check the whole ([`Table::check`]) before they write.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Table {
    /// The columns, in the order in which they are shown.
    pub columns: Vec<Column>,
    /// The rows. Rows of one parent are shown in the order in which they stand here; where the parent stands does
    /// not matter.
    pub rows: Vec<Row>,
    /// What the reader has to know besides the cells.
    pub facts: Facts,
    /// One more than the largest id that [`Table::push`] gave out.
    next_id: u32,
}

/// How CSV names the column with a row's id, in tables whose rows form a tree.
pub(crate) const ROW_ID: &str = "row_id";
/// How CSV names the column with a row's parent.
pub(crate) const PARENT_ROW_ID: &str = "parent_row_id";
/// What CSV appends to a column's id for the column of its standard errors.
pub(crate) const STANDARD_ERROR: &str = "_standard_error";
/// What CSV appends to a column's id for the column that says what to think of its values.
pub(crate) const NOTE: &str = "_note";

impl Table {
    /// A table without rows and facts.
    pub fn new(columns: Vec<Column>) -> Table {
        Table {
            columns,
            ..Table::default()
        }
    }

    /// Adds a row at the end, under `parent` if there is one, and gives back its id.
    ///
    /// # Errors
    /// [`TableError::TooManyRows`] when there are no more ids, [`TableError::CellCount`] if there is not one cell a
    /// column.
    pub fn push(&mut self, parent: Option<u32>, cells: Vec<Cell>) -> Result<u32, TableError> {
        let id = self.next_id;
        if cells.len() != self.columns.len() {
            return Err(TableError::CellCount {
                row: id,
                cells: cells.len(),
                columns: self.columns.len(),
            });
        }
        self.next_id = id.checked_add(1).ok_or(TableError::TooManyRows)?;
        self.rows.push(Row {
            id,
            parent,
            cells,
            notes: Vec::new(),
        });
        Ok(id)
    }

    /// As [`Table::push`], with what is known of the cells besides their values.
    ///
    /// # Errors
    /// As [`Table::push`].
    pub fn push_noted(
        &mut self,
        parent: Option<u32>,
        cells: Vec<Cell>,
        mut notes: Vec<CellNote>,
    ) -> Result<u32, TableError> {
        let id = self.push(parent, cells)?;
        notes.sort_by_key(|note| note.column);
        if let Some(row) = self.rows.last_mut() {
            row.notes = notes;
        }
        Ok(id)
    }

    /// The index of the column with this id.
    pub fn column_index(&self, id: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.id == id)
    }

    /// Whether any row has a parent.
    pub fn is_tree(&self) -> bool {
        self.rows.iter().any(|row| row.parent.is_some())
    }

    /// The events that the columns are about, each once, in the order of the columns.
    pub fn events(&self) -> Vec<&str> {
        let mut events: Vec<&str> = Vec::new();
        for event in self
            .columns
            .iter()
            .filter_map(|column| column.event.as_deref())
        {
            if !events.contains(&event) {
                events.push(event);
            }
        }
        events
    }

    /// Sorts the rows by one column, exactly (ratios are not divided). Rows with no value there come last either
    /// way, and rows that are equal keep their order. In a tree, this sorts the rows of each parent.
    ///
    /// # Errors
    /// [`TableError::NoColumn`] if there is no such column, [`TableError::CellCount`] if a row lacks cells.
    pub fn sort_by(&mut self, column: usize, direction: Direction) -> Result<(), TableError> {
        self.sort_by_all(&[(column, direction)])
    }

    /// Sorts the rows by several columns as [`Table::sort_by`] does by one: the first one decides, the others among rows
    /// that are equal there.
    ///
    /// # Errors
    /// As [`Table::sort_by`].
    pub fn sort_by_all(&mut self, columns: &[(usize, Direction)]) -> Result<(), TableError> {
        let mut orders = Vec::with_capacity(columns.len());
        for (index, direction) in columns {
            match self.columns.get(*index) {
                Some(column) => orders.push((*index, *direction, column.unit.scale())),
                None => {
                    return Err(TableError::NoColumn {
                        index: *index,
                        columns: self.columns.len(),
                    });
                }
            }
        }
        self.check_cell_counts()?;
        let compare = |one: &Row, other: &Row| {
            orders
                .iter()
                .map(|(column, direction, scale)| {
                    let (one, other) = (&one.cells[*column], &other.cells[*column]);
                    let order = one.compare(other, *scale);
                    let reverses = *direction == Direction::Descending
                        // Undefined cells compare as the smallest, so only ascending order has to move them.
                        || one.is_undefined() != other.is_undefined();
                    if reverses { order.reverse() } else { order }
                })
                .find(|order| order.is_ne())
                .unwrap_or(Ordering::Equal)
        };
        // Rows of different parents need no order among each other.
        self.rows.sort_by(|one, other| {
            one.parent
                .cmp(&other.parent)
                .then_with(|| compare(one, other))
        });
        Ok(())
    }

    /// Checks that the table does not contradict itself: unique ids, one fitting cell a column in each row, parents
    /// that exist and form trees.
    ///
    /// # Errors
    /// The first contradiction found.
    pub fn check(&self) -> Result<(), TableError> {
        self.display_order().map(drop)
    }

    /// Everything that [`Table::check`] promises, except for the rows' tree.
    pub(crate) fn check_columns_and_cells(&self) -> Result<(), TableError> {
        let mut ids = HashSet::new();
        for column in &self.columns {
            let id = column.id.as_str();
            let reserved = [ROW_ID, PARENT_ROW_ID].contains(&id)
                || id.ends_with(STANDARD_ERROR)
                || id.ends_with(NOTE);
            if id.is_empty() || reserved {
                return Err(TableError::ReservedColumn { id: id.to_owned() });
            }
            if !ids.insert(id) {
                return Err(TableError::DuplicateColumn { id: id.to_owned() });
            }
            self.check_column_parents(column)?;
        }
        self.check_cell_counts()?;
        for row in &self.rows {
            for (column, cell) in self.columns.iter().zip(&row.cells) {
                if !column.kind.fits(cell) {
                    return Err(TableError::CellKind {
                        row: row.id,
                        column: column.id.clone(),
                    });
                }
            }
        }
        Ok(())
    }

    /// Follows a column's parents to the top; more steps than columns are a cycle.
    fn check_column_parents(&self, column: &Column) -> Result<(), TableError> {
        let bad = || TableError::ColumnParent {
            id: column.id.clone(),
        };
        let mut parent = column.parent;
        for _ in 0..self.columns.len() {
            match parent {
                None => return Ok(()),
                Some(index) => parent = self.columns.get(index).ok_or_else(bad)?.parent,
            }
        }
        if parent.is_none() { Ok(()) } else { Err(bad()) }
    }

    fn check_cell_counts(&self) -> Result<(), TableError> {
        match self
            .rows
            .iter()
            .find(|row| row.cells.len() != self.columns.len())
        {
            None => Ok(()),
            Some(row) => Err(TableError::CellCount {
                row: row.id,
                cells: row.cells.len(),
                columns: self.columns.len(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        Table::new(vec![
            Column::new("share", "self", ColumnKind::Ratio, Unit::Percent),
            Column::new("function", "function", ColumnKind::Name, Unit::None),
        ])
    }

    #[test]
    fn contradictions_are_named() {
        let mut wrong = table();
        wrong.columns[1].id = "share".into();
        assert_eq!(
            wrong.check(),
            Err(TableError::DuplicateColumn { id: "share".into() })
        );
        for id in [
            "",
            "row_id",
            "parent_row_id",
            "ipc_standard_error",
            "ipc_note",
        ] {
            let mut wrong = table();
            wrong.columns[1].id = id.into();
            assert_eq!(
                wrong.check(),
                Err(TableError::ReservedColumn { id: id.into() })
            );
        }
        for parent in [0, 7] {
            let mut wrong = table();
            wrong.columns[0].parent = Some(parent);
            assert_eq!(
                wrong.check(),
                Err(TableError::ColumnParent { id: "share".into() })
            );
        }
        let mut right = table();
        right.columns[1].parent = Some(0);
        assert_eq!(right.check(), Ok(()));

        let mut wrong = table();
        assert_eq!(
            wrong.push(None, vec![Cell::Empty]),
            Err(TableError::CellCount {
                row: 0,
                cells: 1,
                columns: 2
            })
        );
        wrong
            .push(None, vec![Cell::name("x"), Cell::Empty])
            .unwrap();
        assert_eq!(
            wrong.check(),
            Err(TableError::CellKind {
                row: 0,
                column: "share".into()
            })
        );
        wrong.rows[0].cells.clear();
        assert!(matches!(wrong.check(), Err(TableError::CellCount { .. })));
        assert!(matches!(
            wrong.sort_by(0, Direction::Ascending),
            Err(TableError::CellCount { .. })
        ));
        assert_eq!(
            wrong.sort_by(2, Direction::Ascending),
            Err(TableError::NoColumn {
                index: 2,
                columns: 2
            })
        );
    }

    #[test]
    fn sorting_keeps_rows_without_a_value_last() {
        let mut table = table();
        for (numerator, denominator, name) in
            [(1, 4, "a"), (0, 0, "none"), (3, 4, "b"), (1, 4, "c")]
        {
            table
                .push(
                    None,
                    vec![Cell::ratio(numerator, denominator), Cell::name(name)],
                )
                .unwrap();
        }
        let names = |table: &Table| -> Vec<u32> { table.rows.iter().map(|row| row.id).collect() };
        table.sort_by(0, Direction::Descending).unwrap();
        assert_eq!(names(&table), [2, 0, 3, 1]);
        table.sort_by(0, Direction::Ascending).unwrap();
        assert_eq!(names(&table), [0, 3, 2, 1]);
        table.sort_by(1, Direction::Ascending).unwrap();
        assert_eq!(names(&table), [0, 2, 3, 1]);
    }
}
