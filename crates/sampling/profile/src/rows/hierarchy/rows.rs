//! What a hierarchy is once it is made: rows and their cells, column by column, since there may be a row for each
//! address that was sampled.

use crate::counts::counter::Count;
use crate::counts::estimate::Estimate;
use crate::rows::aggregate::{AggregateRow, SelfAndTotal};
use std::ops::Range;

/// Counts along several dimensions, as [`crate::hierarchy()`] makes them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hierarchy {
    /// By row: one more than the row above it, 0 on the first level.
    pub(super) above: Vec<u32>,
    /// By row.
    pub(super) keys: Vec<u32>,
    /// By row; there are few levels.
    pub(super) levels: Vec<u8>,
    /// By row: where its cells begin; one more at the end. Empty where each row has one cell, of the first event.
    pub(super) firsts: Vec<usize>,
    /// By cell: its event; empty as `firsts` is.
    pub(super) events: Vec<u32>,
    /// By cell.
    pub(super) own: Vec<Count>,
    /// By cell; empty where they are self counts.
    pub(super) totals: Vec<Count>,
    /// By cell; empty unless asked for.
    pub(super) estimates: Vec<Estimate>,
}

/// One row of a hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HierarchyRow {
    /// The row above it; always an earlier one.
    pub parent: Option<usize>,
    /// Which of the levels it belongs to, from 0.
    pub level: usize,
    /// As [`crate::AggregateRow::key`], for the level's dimension.
    pub key: u32,
}

/// What one row counts of one event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HierarchyCell {
    /// Which of the events asked for, from 0.
    pub event: u32,
    /// `own` is exactly the sum of the rows below; `total` is what was counted at any place that this row stands for or
    /// anything it called, each sample once.
    pub count: SelfAndTotal,
    /// What `own` stands for and its error; zero unless estimates were asked for.
    pub estimate: Estimate,
}

impl Hierarchy {
    /// The rows of [`crate::aggregate()`].
    pub fn of_one_level(rows: Vec<AggregateRow>) -> Hierarchy {
        let mut hierarchy = Hierarchy {
            above: vec![0; rows.len()],
            levels: vec![0; rows.len()],
            firsts: vec![0],
            ..Hierarchy::default()
        };
        for row in rows {
            hierarchy.keys.push(row.key);
            for (event, count) in (0..).zip(row.counts) {
                if !(count.own.is_zero() && count.total.is_zero()) {
                    hierarchy.events.push(event);
                    hierarchy.own.push(count.own);
                    hierarchy.totals.push(count.total);
                }
            }
            hierarchy.firsts.push(hierarchy.own.len());
        }
        hierarchy
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// One row.
    ///
    /// # Panics
    /// If there are not so many rows.
    #[inline]
    pub fn row(&self, row: usize) -> HierarchyRow {
        HierarchyRow {
            parent: (self.above[row] as usize).checked_sub(1),
            level: self.levels[row].into(),
            key: self.keys[row],
        }
    }

    /// All rows: each before those below it, the rows below one by rising key.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = HierarchyRow> + '_ {
        (0..self.len()).map(|row| self.row(row))
    }

    /// What a row counts, by rising event; events of which it counts nothing are left out.
    pub fn cells(&self, row: usize) -> impl Iterator<Item = HierarchyCell> + '_ {
        self.range(row).map(|cell| HierarchyCell {
            event: self.event(cell),
            count: self.count_of(cell),
            estimate: self.estimates.get(cell).copied().unwrap_or_default(),
        })
    }

    /// What a row counts of the event with this place among those asked for.
    pub fn count(&self, row: usize, event: usize) -> SelfAndTotal {
        self.find(row, event)
            .map_or_else(SelfAndTotal::default, |cell| self.count_of(cell))
    }

    /// What a row's `own` stands for and its error; zero unless estimates were asked for.
    pub fn estimate(&self, row: usize, event: usize) -> Estimate {
        self.find(row, event)
            .and_then(|cell| self.estimates.get(cell).copied())
            .unwrap_or_default()
    }

    #[inline]
    fn range(&self, row: usize) -> Range<usize> {
        match self.firsts.is_empty() {
            true => row.min(self.own.len())..row.saturating_add(1).min(self.own.len()),
            false => {
                let at = |index: usize| self.firsts.get(index).copied().unwrap_or(self.own.len());
                at(row)..at(row.saturating_add(1))
            }
        }
    }

    #[inline]
    fn event(&self, cell: usize) -> u32 {
        self.events.get(cell).copied().unwrap_or(0)
    }

    #[inline]
    fn count_of(&self, cell: usize) -> SelfAndTotal {
        let own = self.own[cell];
        SelfAndTotal {
            own,
            total: self.totals.get(cell).copied().unwrap_or(own),
        }
    }

    #[inline]
    fn find(&self, row: usize, event: usize) -> Option<usize> {
        self.range(row)
            .find(|cell| self.event(*cell) as usize == event)
    }
}
