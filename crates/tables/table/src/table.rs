//! The table itself: columns, rows, cells, facts.

use std::collections::HashSet;
use std::sync::Arc;

use crate::rows::Rows;
use crate::{Cell, Facts, TableError};

/// The unit of a column's numbers.
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
    /// Returns the factor by which a ratio in this unit is multiplied: 100 for percent, 1000 for per thousand, else 1.
    pub fn scale(&self) -> f64 {
        match self {
            Unit::Percent => 100.0,
            Unit::PerThousand => 1000.0,
            _ => 1.0,
        }
    }

    /// Returns the unit's name in JSON; `None` where there is no unit.
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

/// The meaning of a column's cells, which also determines the cells that fit; [`Cell::Empty`] fits everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum ColumnKind {
    /// A number of things: [`Cell::Count`], or [`Cell::Real`] where counts were scaled or estimated.
    Count,
    /// A sum of periods: [`Cell::Count`] or [`Cell::Real`].
    Weight,
    /// A quotient: [`Cell::Ratio`], or [`Cell::Real`] for a quotient that was computed otherwise.
    #[default]
    Ratio,
    /// A duration or a point in time: [`Cell::Count`] or [`Cell::Real`].
    Time,
    /// An address: [`Cell::Address`].
    Address,
    /// The subject of a row: [`Cell::Name`], or [`Cell::Count`] for numbers that name, such as thread ids.
    Name,
}

impl ColumnKind {
    /// Returns the kind's name in JSON.
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

    /// Returns true if a cell may stand in a column of this kind.
    pub(crate) fn fits(self, cell: &Cell<'_>) -> bool {
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

/// One column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// The name for programs (CSV's first row, JSON): short, stable, unique in its table, such as `self_percent`.
    pub id: String,
    /// The heading for people.
    pub name: String,
    /// The unit of the column's numbers.
    pub unit: Unit,
    /// The kind of the column's cells.
    pub kind: ColumnKind,
    /// The event that the column is about, if it is about one.
    pub event: Option<String>,
    /// The index of the column that this one breaks down, so that a page can unfold it.
    pub parent: Option<usize>,
    /// Whether only programs read the column, in CSV and JSON: text says the same in other columns.
    pub is_for_programs: bool,
}

impl Column {
    /// Makes a column without event and parent.
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

    /// Leaves the column out of text.
    pub fn for_programs(mut self) -> Column {
        self.is_for_programs = true;
        self
    }

    /// Makes the column one about `event`.
    pub fn of_event(mut self, event: impl Into<String>) -> Column {
        self.event = Some(event.into());
        self
    }

    /// Makes the column a part of the column with index `parent`.
    pub fn below(mut self, parent: usize) -> Column {
        self.parent = Some(parent);
        self
    }
}

/// One row of a table.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    rows: &'a Rows,
    id: u32,
}

/// The details of one cell of a row besides its value.
#[derive(Debug, Clone, PartialEq)]
pub struct CellNote {
    /// The index of the column.
    pub column: usize,
    /// One standard error of the value in the column's unit, if it is known.
    pub standard_error: Option<f64>,
    /// The reservation about the value, if there is one.
    pub mark: Option<Mark>,
}

/// A reservation about a value.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mark {
    /// The value rests on so few samples that chance may have made it.
    FewSamples,
    /// The difference is no larger than chance makes it.
    WithinChance,
    /// Some inputs of a sum were not recorded: the whole is larger.
    Partial,
    /// The clock that the value is divided by contains interrupts, whose time is not known.
    HoldsInterrupts,
    /// The value belongs to its row and to neighbours that cannot be told apart from it: no interval holds for it.
    Unreliable,
    /// There is no value, since these inputs were not recorded.
    Missing(Arc<[String]>),
}

impl Mark {
    /// Returns the mark as programs read it.
    pub(crate) fn id(&self) -> String {
        match self {
            Mark::FewSamples => "few_samples".to_owned(),
            Mark::WithinChance => "within_chance".to_owned(),
            Mark::Partial => "partial".to_owned(),
            Mark::HoldsInterrupts => "holds_interrupts".to_owned(),
            Mark::Unreliable => "unreliable".to_owned(),
            Mark::Missing(inputs) => format!("missing: {}", inputs.join(", ")),
        }
    }
}

impl<'a> Row<'a> {
    /// Returns the row's id, which is unique in its table and survives sorting and filtering. Rows are numbered as they
    /// are pushed, from 0.
    pub fn id(self) -> u32 {
        self.id
    }

    /// Returns the id of the row that this one belongs under, in a tree. The parent's id is always the smaller one.
    pub fn parent(self) -> Option<u32> {
        self.rows.parent(self.id)
    }

    /// Returns the cell of a column.
    ///
    /// # Panics
    /// Panics if the table had fewer columns when it was made.
    #[inline]
    pub fn cell(self, column: usize) -> Cell<'a> {
        self.rows.cell(self.id, column)
    }

    /// Returns all cells, one a column.
    pub fn cells(self) -> impl ExactSizeIterator<Item = Cell<'a>> {
        (0..self.rows.width()).map(move |column| self.cell(column))
    }

    /// Returns the reservation about a cell, if there is one.
    pub fn mark(self, column: usize) -> Option<&'a Mark> {
        self.rows.mark(self.id, column)
    }

    /// Returns a cell's standard error, which the cell itself holds or which was pushed beside it, if it is a usable
    /// one.
    pub fn standard_error(self, column: usize) -> Option<f64> {
        let own = self.cell(column).standard_error();
        own.or_else(|| self.noted_error(column))
    }

    /// Returns the standard error that was pushed beside a cell, if it is a usable one.
    pub fn noted_error(self, column: usize) -> Option<f64> {
        self.rows.noted_error(self.id, column)
    }
}

/// The direction of sorting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Smallest first.
    Ascending,
    /// Largest first.
    Descending,
}

/// Columns, rows and facts. Every analysis ends in a table, and every rendering starts from one.
///
/// Columns and facts may be changed freely; renderings check the whole ([`Table::check`]) before they write. Rows are
/// pushed, sorted and limited; each takes tens of bytes, so a table may have a row for every address that was sampled.
#[derive(Debug, Clone, Default)]
pub struct Table {
    /// The columns, in the order in which they are shown.
    pub columns: Vec<Column>,
    /// The remarks that a reader needs besides the cells.
    pub facts: Facts,
    /// The rows. Rows of one parent are shown in their order in this list; the parent's own place does not matter.
    pub(crate) rows: Rows,
}

/// CSV's name of the column with a row's id, in tables whose rows form a tree.
pub(crate) const ROW_ID: &str = "row_id";
/// CSV's name of the column with a row's parent.
pub(crate) const PARENT_ROW_ID: &str = "parent_row_id";
/// The suffix that CSV appends to a column's id for the column of its standard errors.
pub(crate) const STANDARD_ERROR: &str = "_standard_error";
/// The suffix that CSV appends to a column's id for the column of its marks.
pub(crate) const NOTE: &str = "_note";

impl Table {
    /// Makes a table without rows and facts.
    pub fn new(columns: Vec<Column>) -> Table {
        Table {
            rows: Rows::new(columns.len()),
            columns,
            facts: Facts::default(),
        }
    }

    /// Makes room for this number of additional rows, so that pushing them copies none.
    pub fn reserve(&mut self, rows: usize) {
        self.rows.reserve(rows);
    }

    /// Adds a row at the end, under `parent` if there is one, and returns its id.
    ///
    /// # Errors
    /// [`TableError::TooManyRows`] when there are no more ids, [`TableError::CellCount`] if there is not one cell a
    /// column, [`TableError::RowParent`] if there is no such parent yet.
    pub fn push<'a>(
        &mut self,
        parent: Option<u32>,
        cells: impl AsRef<[Cell<'a>]>,
    ) -> Result<u32, TableError> {
        self.rows.push(parent, cells.as_ref(), &[], &[])
    }

    /// Adds a row as [`Table::push`] does, with the details of its cells besides their values.
    ///
    /// # Errors
    /// Fails as [`Table::push`] does.
    pub fn push_noted<'a>(
        &mut self,
        parent: Option<u32>,
        cells: impl AsRef<[Cell<'a>]>,
        notes: impl AsRef<[CellNote]>,
    ) -> Result<u32, TableError> {
        self.rows.push(parent, cells.as_ref(), &[], notes.as_ref())
    }

    /// Adds a row whose last cells may repeat those of the row above it.
    ///
    /// `cells` are the row's first cells. `names` are the rest: `None` repeats the parent's cell, or is empty without a
    /// parent. Rows of one parent then share the text of its name.
    ///
    /// # Errors
    /// Fails as [`Table::push`] does.
    pub fn push_repeating<'a>(
        &mut self,
        parent: Option<u32>,
        cells: &[Cell<'a>],
        names: &[Option<Cell<'a>>],
        notes: &[CellNote],
    ) -> Result<u32, TableError> {
        self.rows.push(parent, cells, names, notes)
    }

    /// Returns the number of cells with this mark, of all rows that were pushed.
    pub fn count_marks(&self, mark: &Mark) -> usize {
        self.rows.count_marks(mark)
    }

    /// Returns the number of rows that are shown.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns true if no row is shown.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the rows in their order, those of one parent as they are shown.
    pub fn rows(&self) -> impl DoubleEndedIterator<Item = Row<'_>> + ExactSizeIterator {
        self.rows.shown().map(|id| self.row(id))
    }

    /// Returns the row with this id, which [`Table::push`] gave.
    #[inline]
    pub fn row(&self, id: u32) -> Row<'_> {
        Row {
            rows: &self.rows,
            id,
        }
    }

    /// Returns the index of the column with this id.
    pub fn column_index(&self, id: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.id == id)
    }

    /// Returns true if any row that is shown has a parent.
    pub fn is_tree(&self) -> bool {
        self.rows.is_tree() && self.rows().any(|row| row.parent().is_some())
    }

    /// Returns the events that the columns are about, each once, in the order of the columns.
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

    /// Checks that the table does not contradict itself: unique ids of columns, one fitting cell a column in each row.
    ///
    /// # Errors
    /// Returns the first contradiction found.
    pub fn check(&self) -> Result<(), TableError> {
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
        self.rows.misfit(&self.columns).map_or(Ok(()), Err)
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
        let mut more = wrong.clone();
        more.columns
            .push(Column::new("more", "more", ColumnKind::Name, Unit::None));
        assert!(matches!(more.check(), Err(TableError::CellCount { .. })));
        assert!(matches!(
            more.sort_by(0, Direction::Ascending),
            Err(TableError::CellCount { .. })
        ));
        assert_eq!(
            wrong.push(Some(1), vec![Cell::Empty, Cell::Empty]),
            Err(TableError::RowParent { row: 1, parent: 1 })
        );
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
        let names = |table: &Table| -> Vec<u32> { table.rows().map(Row::id).collect() };
        table.sort_by(0, Direction::Descending).unwrap();
        assert_eq!(names(&table), [2, 0, 3, 1]);
        table.sort_by(0, Direction::Ascending).unwrap();
        assert_eq!(names(&table), [0, 3, 2, 1]);
        table.sort_by(1, Direction::Ascending).unwrap();
        assert_eq!(names(&table), [0, 2, 3, 1]);
    }
}
