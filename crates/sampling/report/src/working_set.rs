//! The instruction working set: the distinct cache lines and pages of code that a row executes.
//!
//! Code that ran shows in samples only now and then, so the numbers are lower bounds, which grow with the samples.
//! Branch records show all code between two branches, and make the bound of functions and modules much better.

use crate::Input;
use crate::grid::Grid;
use dioptra_profile::{
    Dimension, Frame, FrameId, HierarchyOptions, ModuleId, SelectError, TimeSlices, hierarchy,
};
use dioptra_tables::{Facts, Severity};
use serde_json::json;
use std::collections::HashMap;

/// Bits of an address within a cache line of 64 bytes.
const LINE: u32 = 6;
/// Bits of an address within a page of 4 KiB.
const PAGE: u32 = 12;

/// The longest run of code in bytes that is believed. Damaged records make longer ones, of which only the ends count.
const LONGEST_RUN: u64 = 1 << 16;

/// The distinct cache lines and pages of one row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CodeSize {
    pub lines: u64,
    pub pages: u64,
}

/// The working sets of a table's rows.
pub(crate) struct WorkingSet {
    /// The size of each row of the grid.
    pub rows: Vec<CodeSize>,
    /// The number of straight runs of branch records that were used.
    runs: usize,
}

impl WorkingSet {
    /// Counts the lines and pages in which samples of these events lie, by row of a grid of one profile. For
    /// functions and modules, lines and pages that ran straight between branches count too.
    ///
    /// # Errors
    /// The errors of [`hierarchy()`].
    pub(crate) fn new(
        input: &Input<'_>,
        grid: &Grid,
        levels: &[Dimension],
        events: &[usize],
        slices: TimeSlices,
    ) -> Result<WorkingSet, SelectError> {
        let mut levels = levels.to_vec();
        if levels.last() != Some(&Dimension::Address) {
            levels.push(Dimension::Address);
        }
        let block_of = |frame| input.blocks.map_or(0, |blocks| blocks.of(frame));
        let options = HierarchyOptions {
            blocks: input.blocks.is_some().then_some(&block_of),
            slices,
            ..HierarchyOptions::default()
        };
        let counted = hierarchy(input.profile, input.names, &levels, events, &options)?;
        // The rows of the grid by parent, level and key.
        let mut known: HashMap<(Option<usize>, usize, u32), usize> = HashMap::new();
        for index in 0..grid.len() {
            let row = grid.row(index);
            known.insert((row.parent, row.level, row.key), index);
        }
        let mut lines: Vec<(usize, ModuleId, u64)> = Vec::new();
        // For each row of `counted`, its row of the grid.
        let mut of_grid: Vec<Option<usize>> = Vec::with_capacity(counted.len());
        let last = levels.len() - 1;
        for (index, row) in counted.rows().enumerate() {
            let above = row.parent.map(|parent| of_grid[parent]);
            let own = match above {
                Some(None) => None,
                _ => known.get(&(above.flatten(), row.level, row.key)).copied(),
            };
            of_grid.push(own);
            let ran = counted.cells(index).any(|cell| cell.count.own.samples > 0);
            if row.level < last || !ran {
                continue;
            }
            let Frame { module, address } = input.profile.frames().get(row.key);
            let mut at = own.or(above.flatten());
            while let Some(place) = at {
                lines.push((place, module, address >> LINE));
                at = grid.row(place).parent;
            }
        }
        drop(counted);
        let mut result = WorkingSet {
            rows: vec![CodeSize::default(); grid.len()],
            runs: 0,
        };
        result.add_runs(input, &known, &levels[..], events, &mut lines);
        lines.sort_unstable();
        lines.dedup();
        for (row, ..) in &lines {
            result.rows[*row].lines += 1;
        }
        // Lines are in order, so those of one page follow each other.
        lines.dedup_by_key(|(row, module, line)| (*row, *module, *line >> (PAGE - LINE)));
        for (row, ..) in &lines {
            result.rows[*row].pages += 1;
        }
        Ok(result)
    }

    /// Adds the lines that ran straight between branches, to rows of functions or modules only: a run does not say
    /// which thread executed it.
    fn add_runs(
        &mut self,
        input: &Input<'_>,
        known: &HashMap<(Option<usize>, usize, u32), usize>,
        levels: &[Dimension],
        events: &[usize],
        lines: &mut Vec<(usize, ModuleId, u64)>,
    ) {
        let rows: &[Dimension] = match levels {
            [rows @ .., Dimension::Address] => rows,
            rows => rows,
        };
        if !matches!(
            rows,
            [Dimension::Function] | [Dimension::Module] | [Dimension::Module, Dimension::Function]
        ) {
            return;
        }
        let frames = input.profile.frames();
        let rows_of = |frame: FrameId| {
            let (mut above, mut found) = (None, Vec::new());
            for (level, dimension) in rows.iter().enumerate() {
                let key = match dimension {
                    Dimension::Module => frames.get(frame).module,
                    _ => input.names.of_frame(frame),
                };
                // Rows without samples are in no table.
                let Some(row) = known.get(&(above, level, key)) else {
                    break;
                };
                found.push(*row);
                above = Some(*row);
            }
            found
        };
        for event in events {
            let branches = input.profile.branches(*event);
            for run in branches.iter().flat_map(|branches| branches.runs()) {
                let (first, end) = (frames.get(run.start), frames.get(run.end));
                self.runs += 1;
                let (start, end_rows) = (rows_of(run.start), rows_of(run.end));
                let range = (first.address >> LINE)..=(end.address >> LINE);
                let is_plausible = end.address - first.address <= LONGEST_RUN;
                for row in &start {
                    match end_rows.contains(row) && is_plausible {
                        true => lines.extend(range.clone().map(|line| (*row, first.module, line))),
                        // The run may lead from one function into the next at an unknown address, so only its ends
                        // count.
                        false => lines.push((*row, first.module, *range.start())),
                    }
                }
                let is_new = |row: &&usize| !is_plausible || !start.contains(row);
                for row in end_rows.iter().filter(is_new) {
                    lines.push((*row, end.module, *range.end()));
                }
            }
        }
    }

    /// Adds a fact on the meaning of the columns.
    pub(crate) fn add_facts(&self, facts: &mut Facts) {
        let (what, from) = match self.runs {
            0 => ("in which samples lie", "samples"),
            _ => (
                "in which samples lie or that ran between two branch records",
                "samples and branch records",
            ),
        };
        facts.add(
            Severity::Info,
            "working_set",
            format!(
                "code lines and pages: distinct cache lines of {} bytes and pages of {} bytes {what}; code that ran unseen is not among them, so these are lower bounds",
                1 << LINE,
                1 << PAGE
            ),
            json!({"line_bytes": 1 << LINE, "page_bytes": 1 << PAGE, "from": from, "lower_bound": true}),
        );
    }
}
