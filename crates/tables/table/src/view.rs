//! Parts of a table in any order: what a page shows, which asks for some rows of a table that stays as it is.

use crate::sort::{by_parent, directed};
use crate::{Direction, Mark, Row, Table, TableError};

/// Which rows a view has, and in which order.
#[derive(Default)]
pub struct ViewOptions<'a> {
    /// The column to sort by; `None` for the table's own order. Rows with equal cells keep the table's order.
    pub sort: Option<(usize, Direction)>,
    /// The rows that pass; `None` for all. The rows above one that passes stay, and the rows below it.
    pub passes: Option<&'a dyn Fn(Row<'_>) -> bool>,
    /// Only rows directly below this one, instead of the whole table.
    pub below: Option<u32>,
    /// The number of levels to show; `None` for all.
    pub levels: Option<u32>,
}

/// A row of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViewRow {
    /// The row's id in its table.
    pub row: u32,
    /// The number of rows above it.
    pub depth: u32,
    /// The number of rows directly below it that the filter leaves, whether the view shows them or not.
    pub below: u32,
}

/// The rows of a table that pass a filter, each followed by the rows below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// The rows that are shown.
    pub rows: Vec<ViewRow>,
    /// The number of rows that would be shown without the filter.
    pub unfiltered: usize,
    /// The top rows that the filter leaves and that pass it, or have a row below them that does: those to sum up.
    pub tops: Vec<u32>,
}

impl Table {
    /// Returns the rows that a view shows. The table itself stays as it is.
    ///
    /// # Errors
    /// [`TableError::NoColumn`] if there is no column to sort by, and as [`Table::check`].
    pub fn view(&self, options: &ViewOptions<'_>) -> Result<View, TableError> {
        if let Some((index, _)) = options.sort
            && index >= self.columns.len()
        {
            return Err(TableError::NoColumn {
                index,
                columns: self.columns.len(),
            });
        }
        self.check_width()?;
        let pushed = self.rows.pushed();
        let shown: Vec<u32> = self.rows.shown().collect();
        let mut order = by_parent(shown, pushed, |row| self.rows.parent(row));
        if let Some(by) = options.sort {
            self.sort_siblings(&mut order, by);
        }
        // Rows by their parents, as ranges of `order`: the first range has the top rows.
        let place = |row: u32| {
            self.rows
                .parent(row)
                .map_or(0, |parent| parent as usize + 1)
        };
        let mut firsts = vec![0_usize; pushed + 2];
        for row in &order {
            firsts[place(*row) + 1] += 1;
        }
        for index in 1..firsts.len() {
            firsts[index] += firsts[index - 1];
        }
        let children = |place: usize| &order[firsts[place]..firsts[place + 1]];
        let kept = options.passes.map(|passes| self.kept(&order, passes));
        let is_kept = |row: u32| kept.as_ref().is_none_or(|kept| kept[row as usize]);
        let start = options.below.map_or(0, |row| row as usize + 1);
        if start > pushed {
            return Ok(View::default());
        }
        let levels = options.levels.unwrap_or(u32::MAX);
        let levels = if options.below.is_some() {
            levels.min(1)
        } else {
            levels
        };
        let mut view = View::default();
        let mut depth = 0;
        let mut above = options.below;
        while let Some(row) = above {
            depth += 1;
            above = self.rows.parent(row);
        }
        let bottom = levels.saturating_add(depth);
        // A stack of its own: call trees can be deeper than the thread's stack.
        let mut waiting: Vec<(u32, u32)> = Vec::new();
        let push = |waiting: &mut Vec<(u32, u32)>, place: usize, depth: u32| {
            waiting.extend(children(place).iter().rev().map(|row| (*row, depth)));
        };
        if depth < bottom {
            push(&mut waiting, start, depth);
        }
        while let Some((row, depth)) = waiting.pop() {
            view.unfiltered += 1;
            let below = children(row as usize + 1);
            if is_kept(row) {
                let below = below.iter().filter(|row| is_kept(**row)).count();
                view.rows.push(ViewRow {
                    row,
                    depth,
                    below: u32::try_from(below).unwrap_or(u32::MAX),
                });
            }
            if depth + 1 < bottom {
                push(&mut waiting, row as usize + 1, depth + 1);
            }
        }
        let tops = children(start).iter().copied();
        view.tops = tops.filter(|row| is_kept(*row)).collect();
        Ok(view)
    }

    /// Returns a copy of the table that shows the rows of a view, in its order. Rows keep their ids and parents. If the
    /// view has the rows below one, that row and those above it come first, since renderings show no row without its parent.
    #[must_use]
    pub fn of_view(&self, view: &View) -> Table {
        let mut above = Vec::new();
        let mut at = view
            .rows
            .first()
            .and_then(|first| self.rows.parent(first.row));
        while let Some(row) = at {
            above.push(row);
            at = self.rows.parent(row);
        }
        let rows = view.rows.iter().map(|row| row.row);
        let mut table = self.clone();
        table
            .rows
            .set_order(above.into_iter().rev().chain(rows).collect());
        table
    }

    /// By row: whether it passes, or a row above or below it does.
    fn kept(&self, order: &[u32], passes: &dyn Fn(Row<'_>) -> bool) -> Vec<bool> {
        let mut kept = vec![false; self.rows.pushed()];
        let mut passing = vec![false; self.rows.pushed()];
        // Parents stand before the rows below them.
        for row in order {
            let above = self.rows.parent(*row);
            let inherited = above.is_some_and(|above| passing[above as usize]);
            passing[*row as usize] = inherited || passes(self.row(*row));
        }
        for row in order.iter().rev() {
            kept[*row as usize] |= passing[*row as usize];
            if let (true, Some(above)) = (kept[*row as usize], self.rows.parent(*row)) {
                kept[above as usize] = true;
            }
        }
        kept
    }

    /// Sorts the rows of each parent, which stand together.
    fn sort_siblings(&self, order: &mut [u32], (column, direction): (usize, Direction)) {
        let scale = self.columns[column].unit.scale();
        let keys = self.rows.sort_keys(column);
        let compare = |one: &u32, other: &u32| match &keys {
            Some(keys) => {
                let order = keys[*one as usize].cmp(&keys[*other as usize]);
                directed(order, direction)
            }
            None => self.compare_cells(*one, *other, (column, direction, scale)),
        };
        let is_sibling =
            |one: &u32, other: &u32| self.rows.parent(*one) == self.rows.parent(*other);
        for siblings in order.chunk_by_mut(is_sibling) {
            siblings.sort_by(compare);
        }
    }
}

impl Mark {
    /// Returns the mark as programs read it, such as `few_samples`.
    pub fn word(&self) -> String {
        self.id()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cell, Column, ColumnKind, Unit};

    fn table(rows: &[(Option<u32>, &'static str, u64)]) -> Table {
        let mut table = Table::new(vec![
            Column::new("samples", "samples", ColumnKind::Count, Unit::Samples),
            Column::new("name", "name", ColumnKind::Name, Unit::None),
        ]);
        for (parent, name, samples) in rows {
            let cells = [Cell::Count(*samples), Cell::name(*name)];
            table.push(*parent, cells).unwrap();
        }
        table
    }

    fn sample() -> Table {
        table(&[
            (None, "a", 1),
            (None, "b", 9),
            (Some(0), "ax", 1),
            (Some(1), "bx", 4),
            (Some(1), "by", 5),
        ])
    }

    fn rows(view: &View) -> Vec<(u32, u32, u32)> {
        let rows = view.rows.iter();
        rows.map(|row| (row.row, row.depth, row.below)).collect()
    }

    #[test]
    fn a_view_sorts_without_changing_the_table() {
        let table = sample();
        let sorted = table.view(&ViewOptions {
            sort: Some((0, Direction::Descending)),
            ..ViewOptions::default()
        });
        let expected = [(1, 0, 2), (4, 1, 0), (3, 1, 0), (0, 0, 1), (2, 1, 0)];
        assert_eq!(rows(&sorted.unwrap()), expected);
        let plain = table.view(&ViewOptions::default()).unwrap();
        let expected = [(0, 0, 1), (2, 1, 0), (1, 0, 2), (3, 1, 0), (4, 1, 0)];
        assert_eq!(rows(&plain), expected);
        let wrong = table.view(&ViewOptions {
            sort: Some((2, Direction::Descending)),
            ..ViewOptions::default()
        });
        assert!(wrong.is_err());
    }

    #[test]
    fn a_filter_keeps_what_is_above_and_below() {
        let table = sample();
        let of = |text: &str, levels, below| {
            let passes = |row: Row<'_>| match row.cell(1) {
                Cell::Name(name) => name.contains(text),
                _ => false,
            };
            let view = table.view(&ViewOptions {
                passes: Some(&passes),
                levels,
                below,
                ..ViewOptions::default()
            });
            view.unwrap()
        };
        assert_eq!(
            rows(&of("x", None, None)),
            [(0, 0, 1), (2, 1, 0), (1, 0, 1), (3, 1, 0)]
        );
        assert_eq!(
            rows(&of("b", None, None)),
            [(1, 0, 2), (3, 1, 0), (4, 1, 0)]
        );
        let top = of("y", Some(1), None);
        assert_eq!(
            (rows(&top), top.unfiltered, top.tops),
            (vec![(1, 0, 1)], 2, vec![1])
        );
        let below = of("", None, Some(1));
        assert_eq!(
            (rows(&below), below.unfiltered),
            (vec![(3, 1, 0), (4, 1, 0)], 2)
        );
        assert_eq!(rows(&of("", None, Some(99))), []);
        let copy = table.of_view(&of("x", None, None));
        let shown: Vec<_> = copy.rows().map(|row| (row.id(), row.parent())).collect();
        assert_eq!(shown, [(0, None), (2, Some(0)), (1, None), (3, Some(1))]);
        let copy = table.of_view(&of("", None, Some(1)));
        let shown: Vec<_> = copy.rows().map(|row| row.id()).collect();
        assert_eq!(shown, [1, 3, 4]);
    }
}
