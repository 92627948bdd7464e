//! Folding of recursion in a call tree.

use crate::{Cell, ColumnKind, Direction, Table, TableError};
use std::collections::HashMap;

/// A row of the folded tree.
struct Folded<'a> {
    parent: Option<usize>,
    cells: Vec<Cell<'a>>,
    /// The greatest number of rows of the same function that lie below each other in this row.
    deep: usize,
}

impl Table {
    /// Folds recursion in a call tree, as the crate `dioptra-report` makes it. A function directly below itself becomes one row,
    /// whose name says how deep the recursion is, and the rows below become rows below that one.
    ///
    /// The totals of such a row are those of its uppermost part, which contain the totals of all other parts; other
    /// numbers are added up. Rows are sorted by their first column, largest first.
    ///
    /// # Errors
    /// [`TableError`] if the table contradicts itself.
    pub fn fold_recursion(&self) -> Result<Table, TableError> {
        let names: Vec<usize> = (0..self.columns.len())
            .filter(|index| {
                // Keys for programs tell functions of one name apart.
                let column = &self.columns[*index];
                column.kind == ColumnKind::Name || column.is_for_programs
            })
            .collect();
        let mut seen = names
            .iter()
            .filter(|index| !self.columns[**index].is_for_programs);
        let Some(&named) = seen.next_back() else {
            return Ok(self.clone());
        };
        let is_total: Vec<bool> = self
            .columns
            .iter()
            .map(|column| column.id.starts_with("total"))
            .collect();
        let mut rows: Vec<Folded<'_>> = Vec::new();
        // `known`: a folded row, by the row above it and its names. `folded`: for each row of this table, its folded
        // row and its depth within that one.
        let mut known: HashMap<(Option<usize>, Vec<String>), usize> = HashMap::new();
        let mut folded: HashMap<u32, (usize, usize)> = HashMap::new();
        for place in self.display_order()? {
            let row = self.row(place.row);
            let name: Vec<String> = names
                .iter()
                .map(|index| format!("{:?}", row.cell(*index)))
                .collect();
            let above = row.parent().and_then(|parent| folded.get(&parent).copied());
            let same_above = above.filter(|(above, _)| {
                names
                    .iter()
                    .all(|index| rows[*above].cells[*index] == row.cell(*index))
            });
            let (to, deep) = match same_above {
                Some((above, deep)) => {
                    add(&mut rows[above].cells, row.cells(), |index| {
                        !is_total[index]
                    });
                    (above, deep + 1)
                }
                None => {
                    let above = above.map(|(above, _)| above);
                    match known.get(&(above, name.clone())) {
                        // Two parts of a recursion called this function; its samples below these parts have nothing in
                        // common.
                        Some(&same) => {
                            add(&mut rows[same].cells, row.cells(), |_| true);
                            (same, 1)
                        }
                        None => {
                            known.insert((above, name), rows.len());
                            rows.push(Folded {
                                parent: above,
                                cells: row.cells().collect(),
                                deep: 1,
                            });
                            (rows.len() - 1, 1)
                        }
                    }
                }
            };
            rows[to].deep = rows[to].deep.max(deep);
            folded.insert(row.id(), (to, deep));
        }
        let mut table = Table::new(self.columns.clone());
        table.facts = self.facts.clone();
        for mut row in rows {
            if row.deep > 1
                && let Cell::Name(name) = &row.cells[named]
            {
                row.cells[named] = Cell::name(format!("{name} (recursion, {} deep)", row.deep));
            }
            table.push(row.parent.map(|parent| parent as u32), row.cells)?;
        }
        if !table.columns.is_empty() {
            table.sort_by(0, Direction::Descending)?;
        }
        Ok(table)
    }
}

/// Adds the numbers of a row to those of another row, in some columns.
fn add<'a>(
    to: &mut [Cell<'a>],
    cells: impl Iterator<Item = Cell<'a>>,
    is_added: impl Fn(usize) -> bool,
) {
    for (index, (to, cell)) in to.iter_mut().zip(cells).enumerate() {
        if !is_added(index) {
            continue;
        }
        match (to, cell) {
            (Cell::Count(to), Cell::Count(count)) => *to = to.saturating_add(count),
            (Cell::Ratio { numerator: to, .. }, Cell::Ratio { numerator, .. }) => {
                *to = to.saturating_add(numerator);
            }
            (Cell::Real { value: to, .. }, Cell::Real { value, .. }) => *to += value,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Column, Unit};

    /// Names, totals and own counts of rows with their depths.
    fn shown(table: &Table) -> Vec<String> {
        let order = table.display_order().unwrap();
        let text = |place: &crate::order::RowPosition| {
            let row = table.row(place.row);
            let (Cell::Ratio { numerator, .. }, Cell::Count(own), Cell::Name(name)) =
                (row.cell(0), row.cell(1), row.cell(2))
            else {
                panic!("other cells");
            };
            format!(
                "{}{name} {numerator} {own}",
                " ".repeat(place.depth as usize)
            )
        };
        order.iter().map(text).collect()
    }

    #[test]
    fn a_function_below_itself_is_one_row() {
        let mut table = Table::new(vec![
            Column::new("total_percent", "total", ColumnKind::Ratio, Unit::Percent),
            Column::new("samples", "samples", ColumnKind::Count, Unit::Samples),
            Column::new("function", "function", ColumnKind::Name, Unit::None),
        ]);
        for (parent, total, own, name) in [
            (None, 100, 0, "main"),
            (Some(0), 90, 10, "walk"),
            (Some(1), 60, 5, "walk"),
            (Some(2), 30, 1, "walk"),
            (Some(1), 20, 20, "leaf"),
            (Some(2), 25, 25, "leaf"),
            (Some(3), 29, 29, "work"),
            (Some(0), 10, 10, "leaf"),
        ] {
            let cells = [Cell::ratio(total, 100), Cell::Count(own), Cell::name(name)];
            table.push(parent, cells).unwrap();
        }
        let folded = table.fold_recursion().unwrap();
        assert_eq!(
            shown(&folded),
            [
                "main 100 0",
                " walk (recursion, 3 deep) 90 16",
                "  leaf 45 45",
                "  work 29 29",
                " leaf 10 10",
            ]
        );
        // Nothing is counted twice or lost.
        let own = |table: &Table| -> u64 {
            let own = table.rows().map(|row| row.cell(1));
            own.map(|own| if let Cell::Count(own) = own { own } else { 0 })
                .sum()
        };
        assert_eq!(own(&folded), own(&table));
        assert_eq!(shown(&folded.fold_recursion().unwrap()), shown(&folded));
    }
}
