//! A finished hierarchy: rows and their cells, stored column by column, since there may be a row for each sampled
//! address.

use crate::counts::counter::Count;
use crate::counts::estimate::Estimate;
use crate::rows::aggregate::{AggregateRow, SelfAndTotal};
use std::ops::Range;

/// Counts along several dimensions, made by [`crate::hierarchy()`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hierarchy {
    /// By row: one more than the row above it; 0 on the first level.
    pub(super) above: Vec<u32>,
    /// The keys, by row.
    pub(super) keys: Vec<u32>,
    /// The levels, by row; there are few levels.
    pub(super) levels: Vec<u8>,
    /// By row: the start of its cells, with one more entry for the end. Empty where each row has one cell, for the
    /// first event.
    pub(super) firsts: Vec<usize>,
    /// By cell: its event; empty where `firsts` is empty.
    pub(super) events: Vec<u32>,
    /// Self counts, by cell.
    pub(super) own: Vec<Count>,
    /// Totals, by cell; empty where they equal self counts.
    pub(super) totals: Vec<Count>,
    /// Estimates, by cell; empty unless asked for.
    pub(super) estimates: Vec<Estimate>,
}

/// One row of a hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HierarchyRow {
    /// The row above it; always an earlier one.
    pub parent: Option<usize>,
    /// The level it belongs to, from 0.
    pub level: usize,
    /// The key for the level's dimension, as in [`crate::AggregateRow::key`].
    pub key: u32,
}

/// The counts of one row for one event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HierarchyCell {
    /// The index of the event among the events asked for.
    pub event: u32,
    /// `own` is exactly the sum of the rows below. `total` is the count at any place that this row stands for or
    /// anything it called, each sample once.
    pub count: SelfAndTotal,
    /// The estimated number of events of `own`, with its error; zero unless estimates were asked for.
    pub estimate: Estimate,
}

impl Hierarchy {
    /// Makes a hierarchy of one level from the rows of [`crate::aggregate()`].
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

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns one row.
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

    /// Returns all rows: each before the rows below it, and the rows below one row by rising key.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = HierarchyRow> + '_ {
        (0..self.len()).map(|row| self.row(row))
    }

    /// Returns the counts of a row, by rising event. Events without counts in this row are left out.
    pub fn cells(&self, row: usize) -> impl Iterator<Item = HierarchyCell> + '_ {
        self.range(row).map(|cell| HierarchyCell {
            event: self.event(cell),
            count: self.count_of(cell),
            estimate: self.estimates.get(cell).copied().unwrap_or_default(),
        })
    }

    /// Returns the counts of a row for the event with this index among the events asked for.
    pub fn count(&self, row: usize, event: usize) -> SelfAndTotal {
        self.find(row, event)
            .map_or_else(SelfAndTotal::default, |cell| self.count_of(cell))
    }

    /// Returns the estimated number of events of a row's `own`, with its error; zero unless estimates were asked for.
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
