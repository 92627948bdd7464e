//! The order in which rows are shown, and what a limit leaves out.

use std::collections::{HashMap, HashSet};

use serde_json::json;

use crate::{Cell, Severity, Table, TableError, Unit};

/// One row's place when the table is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// Index into [`Table::rows`].
    pub(crate) row: usize,
    /// How many ancestors it has.
    pub(crate) depth: usize,
}

/// What a limit on the number of top rows leaves out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeftOut {
    /// How many top rows.
    pub rows: usize,
    /// How many rows below those.
    pub below: usize,
    /// Their exact share: numerator and denominator. It comes from the first percent column, by which tables are sorted
    /// as a rule, if the top rows are parts of one whole there (one denominator, and together no more than it), so that
    /// adding them up is right.
    pub share: Option<(u64, u64)>,
}

impl LeftOut {
    /// The sentence for people: `312 more rows, 4.21 %`.
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
    /// Every row after its parent, siblings in their order, so that each row is directly followed by its subtree.
    /// Checks the whole table on the way.
    pub(crate) fn display_order(&self) -> Result<Vec<Place>, TableError> {
        self.check_columns_and_cells()?;
        if !self.is_tree() {
            // Rows as pushed need no set to be known as distinct.
            if !self.rows.windows(2).all(|pair| pair[0].id < pair[1].id) {
                let mut ids = HashSet::with_capacity(self.rows.len());
                if let Some(row) = self.rows.iter().find(|row| !ids.insert(row.id)) {
                    return Err(TableError::DuplicateRow { row: row.id });
                }
            }
            return Ok((0..self.rows.len())
                .map(|row| Place { row, depth: 0 })
                .collect());
        }

        let mut by_id = HashMap::with_capacity(self.rows.len());
        for (index, row) in self.rows.iter().enumerate() {
            if by_id.insert(row.id, index).is_some() {
                return Err(TableError::DuplicateRow { row: row.id });
            }
        }
        // Children as linked lists in two flat arrays; filled backwards, so that they come out in order.
        const NONE: usize = usize::MAX;
        let mut first_child = vec![NONE; self.rows.len()];
        let mut next_sibling = vec![NONE; self.rows.len()];
        let mut first_root = NONE;
        for (index, row) in self.rows.iter().enumerate().rev() {
            let head = match row.parent {
                None => &mut first_root,
                Some(parent) => match by_id.get(&parent) {
                    Some(&parent) => &mut first_child[parent],
                    None => {
                        return Err(TableError::RowParent {
                            row: row.id,
                            parent,
                        });
                    }
                },
            };
            next_sibling[index] = std::mem::replace(head, index);
        }
        // A stack of its own: call trees can be deeper than the thread's stack.
        let mut order = Vec::with_capacity(self.rows.len());
        let mut stack = vec![Place {
            row: first_root,
            depth: 0,
        }];
        while let Some(place) = stack.pop() {
            if place.row == NONE {
                continue;
            }
            order.push(place);
            stack.push(Place {
                row: next_sibling[place.row],
                depth: place.depth,
            });
            stack.push(Place {
                row: first_child[place.row],
                depth: place.depth + 1,
            });
        }
        if order.len() < self.rows.len() {
            let mut reached = vec![false; self.rows.len()];
            order.iter().for_each(|place| reached[place.row] = true);
            return Err(TableError::RowCycle {
                row: self.unreached_cycle(&reached, &by_id),
            });
        }
        Ok(order)
    }

    /// The id of a row on a cycle, given that some rows are not reached from the top.
    fn unreached_cycle(&self, reached: &[bool], by_id: &HashMap<u32, usize>) -> u32 {
        let mut index = reached.iter().position(|reached| !reached).unwrap_or(0);
        // An unreached row is on a cycle or below one; so many steps up certainly end on it.
        for _ in 0..self.rows.len() {
            let parent = self.rows[index]
                .parent
                .and_then(|parent| by_id.get(&parent));
            index = parent.copied().unwrap_or(index);
        }
        self.rows[index].id
    }

    /// What showing only the first `limit` top rows, and what is below them, leaves out; `None` if that is nothing.
    ///
    /// # Errors
    /// As [`Table::check`].
    pub fn left_out(&self, limit: usize) -> Result<Option<LeftOut>, TableError> {
        let order = self.display_order()?;
        Ok(self.left_out_after(&order, kept(&order, limit)))
    }

    /// What `order[kept..]` amounts to.
    pub(crate) fn left_out_after(&self, order: &[Place], kept: usize) -> Option<LeftOut> {
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

    /// The share of `order[kept..]` in one column, if the column's top rows are parts of one whole.
    fn share(&self, column: usize, order: &[Place], kept: usize) -> Option<(u64, u64)> {
        let (mut whole, mut all, mut rest) = (None, 0_u64, 0_u64);
        for (index, place) in order
            .iter()
            .enumerate()
            .filter(|(_, place)| place.depth == 0)
        {
            match self.rows[place.row].cells[column] {
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

    /// Drops all but the first `limit` top rows and what is below them, and adds what was left out to the facts, as
    /// `rows_left_out`. For renderings that take the table as it is; text has a limit of its own.
    ///
    /// # Errors
    /// As [`Table::check`]; the table is then unchanged.
    pub fn limit(&mut self, limit: usize) -> Result<Option<LeftOut>, TableError> {
        let order = self.display_order()?;
        let kept = kept(&order, limit);
        let Some(left_out) = self.left_out_after(&order, kept) else {
            return Ok(None);
        };
        let mut keep = vec![false; self.rows.len()];
        order[..kept]
            .iter()
            .for_each(|place| keep[place.row] = true);
        let mut keep = keep.into_iter();
        self.rows.retain(|_| keep.next().unwrap_or(false));
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

    /// Drops all but the first `limit` rows below each row, with what is below those, and adds how many were left out to
    /// the facts, as `rows_below_left_out`. Top rows are not limited.
    ///
    /// # Errors
    /// As [`Table::check`]; the table is then unchanged.
    pub fn limit_below(&mut self, limit: usize) -> Result<(), TableError> {
        let order = self.display_order()?;
        // By depth: how many rows there were since the row above.
        let mut seen: Vec<usize> = Vec::new();
        let mut keep = vec![false; self.rows.len()];
        let mut dropped_at = usize::MAX;
        for place in &order {
            if place.depth > dropped_at {
                continue;
            }
            dropped_at = usize::MAX;
            seen.truncate(place.depth + 1);
            seen.resize(place.depth + 1, 0);
            seen[place.depth] += 1;
            keep[place.row] = place.depth == 0 || seen[place.depth] <= limit;
            if !keep[place.row] {
                dropped_at = place.depth;
            }
        }
        let before = self.rows.len();
        let mut keep = keep.into_iter();
        self.rows.retain(|_| keep.next().unwrap_or(false));
        let left_out = before - self.rows.len();
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

/// How many places of `order` belong to the first `limit` top rows.
pub(crate) fn kept(order: &[Place], limit: usize) -> usize {
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

    fn order(table: &Table) -> Vec<(u32, usize)> {
        let order = table.display_order().unwrap();
        order
            .iter()
            .map(|place| (table.rows[place.row].id, place.depth))
            .collect()
    }

    #[test]
    fn subtrees_follow_their_rows_wherever_these_stand() {
        let mut table = tree(&[None, Some(0), None, Some(2), Some(0), Some(4)]);
        assert_eq!(
            order(&table),
            [(0, 0), (1, 1), (4, 1), (5, 2), (2, 0), (3, 1)]
        );
        table.rows.reverse();
        assert_eq!(
            order(&table),
            [(2, 0), (3, 1), (0, 0), (4, 1), (5, 2), (1, 1)]
        );
    }

    #[test]
    fn wrong_trees_are_refused() {
        let mut table = tree(&[None, Some(2), Some(1), Some(2)]);
        assert!(matches!(
            table.check(),
            Err(TableError::RowCycle { row: 1 | 2 })
        ));
        table.rows[1].parent = Some(9);
        assert_eq!(
            table.check(),
            Err(TableError::RowParent { row: 1, parent: 9 })
        );
        table.rows[1].id = 0;
        assert_eq!(table.check(), Err(TableError::DuplicateRow { row: 0 }));
        let mut flat = tree(&[None, None]);
        flat.rows[1].id = 0;
        assert_eq!(flat.check(), Err(TableError::DuplicateRow { row: 0 }));
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
        let mut totals = table.clone();
        totals.rows[0].cells[0] = Cell::ratio(9, 10);
        assert_eq!(totals.left_out(1).unwrap().unwrap().share, None);
        totals.rows[0].cells[0] = Cell::ratio(1, 11);
        assert_eq!(
            totals.left_out(1).unwrap().unwrap().sentence(),
            "2 more rows (1 below them)"
        );

        assert_eq!(table.limit(1).unwrap(), Some(left));
        assert_eq!(order(&table), [(0, 0), (1, 1)]);
        assert_eq!(table.facts.get("rows_left_out").unwrap().value["rows"], 2);
        assert_eq!(table.limit(1).unwrap(), None);
        assert_eq!(table.facts.len(), 1);
    }
}
