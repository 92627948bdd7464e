//! The order in which rows are shown, and what a limit leaves out.

use serde_json::json;

use crate::{Cell, Severity, Table, TableError, Unit};

/// One row's place when the table is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowPosition {
    /// The row's id.
    pub(crate) row: u32,
    /// The number of the row's ancestors.
    pub(crate) depth: u32,
}

/// The rows that a limit on the number of top rows leaves out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeftOut {
    /// The number of top rows that are left out.
    pub rows: usize,
    /// The number of rows below those top rows.
    pub below: usize,
    /// The exact share of these rows: numerator and denominator. The share comes from the first percent column, by
    /// which tables are usually sorted. `None` unless the top rows are parts of one whole there (one denominator, and
    /// together no more than it), so that adding them up is right.
    pub share: Option<(u64, u64)>,
}

impl LeftOut {
    /// Returns the sentence for people: `312 more rows, 4.21 %`.
    pub fn sentence(&self) -> String {
        let mut text = format!("{} more {}", self.rows, plural(self.rows));
        if self.below > 0 {
            text += &format!(" ({} below them)", self.below);
        }
        if let Some((numerator, denominator)) = self.share
            && let Some(percent) = Cell::ratio(numerator, denominator).value(Unit::Percent.scale())
        {
            text += &format!(", {percent:.2} %");
        }
        text
    }
}

fn plural(rows: usize) -> &'static str {
    if rows == 1 { "row" } else { "rows" }
}

impl Table {
    /// Returns every row after its parent, siblings in their order, so that each row is directly followed by its
    /// subtree. Checks the whole table on the way.
    pub(crate) fn display_order(&self) -> Result<Vec<RowPosition>, TableError> {
        self.check()?;
        let rows = &self.rows;
        if !rows.is_tree() {
            return Ok(rows
                .shown()
                .map(|row| RowPosition { row, depth: 0 })
                .collect());
        }
        // Children as linked lists in two flat arrays; filled backwards, so that they come out in order.
        const NONE: u32 = u32::MAX;
        let mut first_child = vec![NONE; rows.pushed()];
        let mut next_sibling = vec![NONE; rows.pushed()];
        let mut first_root = NONE;
        for row in rows.shown().rev() {
            let head = match rows.parent(row) {
                None => &mut first_root,
                // A parent's id is smaller than the row's, so it is an index of the array.
                Some(parent) => &mut first_child[parent as usize],
            };
            next_sibling[row as usize] = std::mem::replace(head, row);
        }
        // A stack of its own: call trees can be deeper than the thread's stack.
        let mut order = Vec::with_capacity(rows.len());
        let mut stack = vec![RowPosition {
            row: first_root,
            depth: 0,
        }];
        while let Some(place) = stack.pop() {
            if place.row == NONE {
                continue;
            }
            order.push(place);
            stack.push(RowPosition {
                row: next_sibling[place.row as usize],
                depth: place.depth,
            });
            stack.push(RowPosition {
                row: first_child[place.row as usize],
                depth: place.depth + 1,
            });
        }
        Ok(order)
    }

    /// Returns the rows that are left out where only the first `limit` top rows, and the rows below them, are shown;
    /// `None` if no row is left out.
    ///
    /// # Errors
    /// Fails as [`Table::check`] does.
    pub fn left_out(&self, limit: usize) -> Result<Option<LeftOut>, TableError> {
        let order = self.display_order()?;
        Ok(self.left_out_after(&order, kept(&order, limit)))
    }

    /// Sums up the rows `order[kept..]`.
    pub(crate) fn left_out_after(&self, order: &[RowPosition], kept: usize) -> Option<LeftOut> {
        let rest = &order[kept..];
        if rest.is_empty() {
            return None;
        }
        let rows = rest.iter().filter(|place| place.depth == 0).count();
        Some(LeftOut {
            rows,
            below: rest.len() - rows,
            share: self
                .columns
                .iter()
                .position(|column| column.unit == Unit::Percent)
                .and_then(|column| self.share(column, order, kept)),
        })
    }

    /// Returns the share of `order[kept..]` in one column, if the column's top rows are parts of one whole.
    fn share(&self, column: usize, order: &[RowPosition], kept: usize) -> Option<(u64, u64)> {
        let (mut whole, mut all, mut rest) = (None, 0_u64, 0_u64);
        for (index, place) in order
            .iter()
            .enumerate()
            .filter(|(_, place)| place.depth == 0)
        {
            match self.rows.cell(place.row, column) {
                Cell::Empty => {}
                Cell::Ratio {
                    numerator,
                    denominator,
                } => {
                    if denominator == 0 || *whole.get_or_insert(denominator) != denominator {
                        return None;
                    }
                    all = all
                        .checked_add(numerator)
                        .filter(|all| *all <= denominator)?;
                    if index >= kept {
                        rest += numerator;
                    }
                }
                _ => return None,
            }
        }
        whole.map(|whole| (rest, whole))
    }

    /// Drops all but the first `limit` top rows and the rows below them, and adds a sentence about the dropped rows to
    /// the facts, as `rows_left_out`. Renderings that take the table as it is need this; text has a limit of its own.
    ///
    /// # Errors
    /// Fails as [`Table::check`] does; the table is then unchanged.
    pub fn limit(&mut self, limit: usize) -> Result<Option<LeftOut>, TableError> {
        let order = self.display_order()?;
        let kept = kept(&order, limit);
        let Some(left_out) = self.left_out_after(&order, kept) else {
            return Ok(None);
        };
        let mut keep = vec![false; self.rows.pushed()];
        order[..kept]
            .iter()
            .for_each(|place| keep[place.row as usize] = true);
        self.keep(&keep);
        let value = json!({
            "rows": left_out.rows,
            "rows_below": left_out.below,
            "share_numerator": left_out.share.map(|share| share.0),
            "share_denominator": left_out.share.map(|share| share.1),
        });
        let sentence = format!("{} left out by the limit", left_out.sentence());
        self.facts
            .add(Severity::Info, "rows_left_out", sentence, value);
        Ok(Some(left_out))
    }

    /// Drops all but the first `limit` rows below each row, with the rows below the dropped ones. Adds the number of
    /// dropped rows to the facts, as `rows_below_left_out`. Top rows are not limited.
    ///
    /// # Errors
    /// Fails as [`Table::check`] does; the table is then unchanged.
    pub fn limit_below(&mut self, limit: usize) -> Result<(), TableError> {
        let order = self.display_order()?;
        // By depth: the number of rows since the row above.
        let mut seen: Vec<usize> = Vec::new();
        let mut keep = vec![false; self.rows.pushed()];
        let mut dropped_at = u32::MAX;
        for place in &order {
            if place.depth > dropped_at {
                continue;
            }
            dropped_at = u32::MAX;
            let depth = place.depth as usize;
            seen.truncate(depth + 1);
            seen.resize(depth + 1, 0);
            seen[depth] += 1;
            let keep = &mut keep[place.row as usize];
            *keep = depth == 0 || seen[depth] <= limit;
            if !*keep {
                dropped_at = place.depth;
            }
        }
        let before = self.len();
        self.keep(&keep);
        let left_out = before - self.len();
        if left_out > 0 {
            let sentence = format!(
                "{left_out} {} below others left out: {limit} below each are shown",
                plural(left_out)
            );
            self.facts
                .add(Severity::Info, "rows_below_left_out", sentence, left_out);
        }
        Ok(())
    }
}

impl Table {
    /// Drops the rows that are not to be kept; the rows above a kept row must be kept too.
    fn keep(&mut self, keep: &[bool]) {
        let mut order = self.rows.take_order();
        order.retain(|row| keep[*row as usize]);
        self.rows.set_order(order);
    }
}

/// Returns the number of places of `order` that belong to the first `limit` top rows.
pub(crate) fn kept(order: &[RowPosition], limit: usize) -> usize {
    order
        .iter()
        .enumerate()
        .filter(|(_, place)| place.depth == 0)
        .nth(limit)
        .map_or(order.len(), |(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Column, ColumnKind};

    fn tree(parents: &[Option<u32>]) -> Table {
        let mut table = Table::new(vec![Column::new(
            "share",
            "self",
            ColumnKind::Ratio,
            Unit::Percent,
        )]);
        for parent in parents {
            table.push(*parent, vec![Cell::ratio(1, 10)]).unwrap();
        }
        table
    }

    fn order(table: &Table) -> Vec<(u32, u32)> {
        let order = table.display_order().unwrap();
        order.iter().map(|place| (place.row, place.depth)).collect()
    }

    #[test]
    fn subtrees_follow_their_rows_wherever_these_stand() {
        let mut table = tree(&[None, Some(0), None, Some(2), Some(0), Some(4)]);
        assert_eq!(
            order(&table),
            [(0, 0), (1, 1), (4, 1), (5, 2), (2, 0), (3, 1)]
        );
        let mut reversed = table.rows.take_order();
        reversed.reverse();
        table.rows.set_order(reversed);
        assert_eq!(
            order(&table),
            [(2, 0), (3, 1), (0, 0), (4, 1), (5, 2), (1, 1)]
        );
        // A row that is pushed then comes last, below the same rows.
        table.push(Some(4), [Cell::ratio(1, 10)]).unwrap();
        assert_eq!(
            order(&table),
            [(2, 0), (3, 1), (0, 0), (4, 1), (5, 2), (6, 2), (1, 1)]
        );
    }

    #[test]
    fn a_very_deep_tree_is_walked() {
        let parents: Vec<Option<u32>> = (0..200_000_u32).map(|row| row.checked_sub(1)).collect();
        assert_eq!(order(&tree(&parents)).last(), Some(&(199_999, 199_999)));
    }

    #[test]
    fn a_limit_below_each_row() {
        let mut table = tree(&[None, Some(0), Some(0), Some(1), Some(1), Some(2), None]);
        table.limit_below(2).unwrap();
        assert_eq!(table.facts.len(), 0);
        table.limit_below(1).unwrap();
        assert_eq!(order(&table), [(0, 0), (1, 1), (3, 2), (6, 0)]);
        assert_eq!(table.facts.get("rows_below_left_out").unwrap().value, 3);
    }

    #[test]
    fn what_a_limit_leaves_out() {
        let mut table = tree(&[None, Some(0), None, Some(2), None]);
        let left = table.left_out(1).unwrap().unwrap();
        assert_eq!(
            left,
            LeftOut {
                rows: 2,
                below: 1,
                share: Some((2, 10))
            }
        );
        assert_eq!(left.sentence(), "2 more rows (1 below them), 20.00 %");
        assert_eq!(table.left_out(3).unwrap(), None);
        assert_eq!(table.left_out(0).unwrap().unwrap().share, Some((3, 10)));

        // Parts of more than the whole, or of different wholes, cannot be added up.
        for first in [Cell::ratio(9, 10), Cell::ratio(1, 11)] {
            let mut totals = Table::new(table.columns.clone());
            for row in table.rows() {
                let cell = if row.id() == 0 {
                    first.clone()
                } else {
                    row.cell(0)
                };
                totals.push(row.parent(), [cell]).unwrap();
            }
            let left = totals.left_out(1).unwrap().unwrap();
            assert_eq!(left.share, None);
            assert_eq!(left.sentence(), "2 more rows (1 below them)");
        }

        assert_eq!(table.limit(1).unwrap(), Some(left));
        assert_eq!(order(&table), [(0, 0), (1, 1)]);
        assert_eq!(table.facts.get("rows_left_out").unwrap().value["rows"], 2);
        assert_eq!(table.limit(1).unwrap(), None);
        assert_eq!(table.facts.len(), 1);
    }
}
