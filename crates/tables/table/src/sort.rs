//! Sorting a table's rows.

use crate::{Direction, Table, TableError};
use std::cmp::Ordering;

impl Table {
    /// Sorts the rows by one column, exactly (ratios are not divided). Rows with no value there come last either
    /// way, and rows that are equal keep their order. In a tree, this sorts the rows of each parent.
    ///
    /// # Errors
    /// [`TableError::NoColumn`] if there is no such column, [`TableError::CellCount`] if rows lack cells.
    pub fn sort_by(&mut self, column: usize, direction: Direction) -> Result<(), TableError> {
        self.sort_by_all(&[(column, direction)])
    }

    /// Sorts the rows by several columns as [`Table::sort_by`] does by one: each further column decides among rows that
    /// are equal in the columns before it.
    ///
    /// # Errors
    /// Fails as [`Table::sort_by`] does.
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
        self.check_width()?;
        let order = self.rows.take_order();
        let mut order = by_parent(order, self.rows.pushed(), |row| self.rows.parent(row));
        // Most rows differ in the first column, which has a value in all of them.
        let first = orders.first().and_then(|(column, direction, _)| {
            let keys = self.rows.sort_keys(*column)?;
            Some((keys, *direction))
        });
        let rest = &orders[usize::from(first.is_some())..];
        let compare = |one: &u32, other: &u32| {
            let by_first = first.as_ref().map_or(Ordering::Equal, |(keys, direction)| {
                let order = keys[*one as usize].cmp(&keys[*other as usize]);
                directed(order, *direction)
            });
            by_first.then_with(|| {
                let mut each = rest.iter().map(|by| self.compare_cells(*one, *other, *by));
                each.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
            })
        };
        // Rows of different parents need no order among each other.
        let same_parent =
            |one: &u32, other: &u32| self.rows.parent(*one) == self.rows.parent(*other);
        for siblings in order.chunk_by_mut(same_parent) {
            siblings.sort_by(compare);
        }
        self.rows.set_order(order);
        Ok(())
    }

    /// Compares two rows by one column.
    pub(crate) fn compare_cells(
        &self,
        one: u32,
        other: u32,
        (column, direction, scale): (usize, Direction, f64),
    ) -> Ordering {
        if self.rows.is_same_name(column, one, other) {
            return Ordering::Equal;
        }
        let (one, other) = (self.rows.cell(one, column), self.rows.cell(other, column));
        let order = one.compare(&other, scale);
        // Undefined cells compare as the smallest, so only ascending order has to move them.
        match one.is_undefined() != other.is_undefined() {
            true => order.reverse(),
            false => directed(order, direction),
        }
    }

    /// Checks that rows have as many cells as there are columns.
    pub(crate) fn check_width(&self) -> Result<(), TableError> {
        let cells = self.rows.width();
        if cells == self.columns.len() || self.is_empty() {
            return Ok(());
        }
        Err(TableError::CellCount {
            row: self.rows().next().map_or(0, |row| row.id()),
            cells,
            columns: self.columns.len(),
        })
    }
}

pub(crate) fn directed(order: Ordering, direction: Direction) -> Ordering {
    match direction {
        Direction::Ascending => order,
        Direction::Descending => order.reverse(),
    }
}

/// Returns the rows of each parent together, parents by their ids, top rows first. Rows of one parent keep their order.
/// `rows` is one more than the largest row.
pub(crate) fn by_parent(
    order: Vec<u32>,
    rows: usize,
    parent: impl Fn(u32) -> Option<u32>,
) -> Vec<u32> {
    let place = |row: u32| parent(row).map_or(0, |parent| parent as usize + 1);
    // The place of the next row, by parent.
    let mut next = vec![0_u32; rows + 2];
    for row in &order {
        next[place(*row) + 1] += 1;
    }
    for index in 1..next.len() {
        next[index] += next[index - 1];
    }
    let mut sorted = vec![0_u32; order.len()];
    for row in order {
        let to = &mut next[place(row)];
        sorted[*to as usize] = row;
        *to += 1;
    }
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cell, Column, ColumnKind, Row, Unit};
    use proptest::prelude::*;

    fn cells() -> impl Strategy<Value = (Cell<'static>, Cell<'static>)> {
        let share = prop_oneof![
            8 => (0..4_u64).prop_map(|part| Cell::ratio(part, 9)),
            1 => Just(Cell::Empty),
            1 => Just(Cell::ratio(0, 0)),
            1 => (0..4_u64).prop_map(|part| Cell::ratio(part, 8)),
        ];
        let name = prop_oneof![
            "[ab]{0,2}".prop_map(Cell::name),
            Just(Cell::name("a")),
            Just(Cell::Empty)
        ];
        (share, name)
    }

    proptest! {
        /// The expected order: whole rows sorted by each column from the last to the first, then by parent.
        #[test]
        fn rows_come_in_the_order_of_their_cells(
            rows in prop::collection::vec((any::<prop::sample::Index>(), cells()), 0..30),
            directions in prop::array::uniform2(any::<bool>()),
        ) {
            let mut table = Table::new(vec![
                Column::new("share", "share", ColumnKind::Ratio, Unit::Percent),
                Column::new("name", "name", ColumnKind::Name, Unit::None),
            ]);
            for (row, (parent, (share, name))) in (0_usize..).zip(&rows) {
                let parent = parent.index(row + 1) as u32;
                let parent = parent.checked_sub(1);
                table.push(parent, [share.clone(), name.clone()]).unwrap();
            }
            let direction = |up| if up { Direction::Ascending } else { Direction::Descending };
            let by = [(0, direction(directions[0])), (1, direction(directions[1]))];
            let mut expected: Vec<(u32, Option<u32>, [Cell<'_>; 2])> = table
                .rows()
                .map(|row| (row.id(), row.parent(), [row.cell(0), row.cell(1)]))
                .collect();
            for (column, direction) in by.into_iter().rev() {
                expected.sort_by(|one, other| {
                    let (one, other) = (&one.2[column], &other.2[column]);
                    match (one.is_undefined(), other.is_undefined()) {
                        (false, false) => directed(one.compare(other, 100.0), direction),
                        (one, other) => one.cmp(&other),
                    }
                });
            }
            expected.sort_by_key(|(_, parent, _)| *parent);
            let expected: Vec<u32> = expected.iter().map(|(id, ..)| *id).collect();
            table.sort_by_all(&by).unwrap();
            let found: Vec<u32> = table.rows().map(Row::id).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
