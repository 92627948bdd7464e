//! `dioptra report` on traces.

use super::{Number, Options, Percent, Tree};
use crate::commands::trace::usage;
use crate::commands::traces::{ChosenCalls, check_trace_options, levels, open};
use crate::exit::Exit;
use anyhow::Context;
use dioptra_trace_report::{
    CallTreeOptions, GroupedOptions, Level, TreeDirection, call_tree_table, grouped_table,
};
use std::path::PathBuf;

/// The number of slices of time that `--slices` has unless it is given.
const SLICES: u32 = 20;

impl Options {
    /// Shows the table of a trace, or of the sum of several traces.
    pub(super) fn run_on_traces(&self, inputs: &[PathBuf]) -> anyhow::Result<Exit> {
        if let Some(wrong) = self.not_of_traces() {
            return Err(usage(wrong));
        }
        check_trace_options(&self.selection)?;
        let levels = levels(&self.by)?;
        if self.tree.is_some() && levels != [Level::Function] {
            return Err(usage("--tree goes with --by function"));
        }
        if self.tree.is_some() && inputs.len() > 1 {
            return Err(usage("--tree goes with one trace"));
        }
        let traces = open(inputs)?;
        let chosen = ChosenCalls::of(&traces, &self.of_traces, &self.selection)?;
        let inputs = chosen.inputs();
        let table = match self.tree {
            Some(direction) => {
                let options = CallTreeOptions {
                    direction: match direction {
                        Tree::Callers => TreeDirection::Callers,
                        Tree::Callees => TreeDirection::Callees,
                    },
                    // The argument's parser has checked that the value lies between 0 and 100.
                    least: (self.percent_limit * 100.0).round() as u32,
                    width: self.shown.limit.unwrap_or(usize::MAX),
                };
                let table =
                    call_tree_table(inputs.first().context("there is no trace")?, &options)?;
                // The rows of a tree of callers have numbers of the top row's function, which do not add up.
                match self.shown.is_fitted() && direction == Tree::Callees {
                    true => table.fold_recursion()?,
                    false => table,
                }
            }
            None => {
                let options = GroupedOptions {
                    levels: &levels,
                    children: self.children,
                    few: self.rows.few,
                };
                grouped_table(&inputs, &options)?
            }
        };
        self.shown.write(table, levels.len(), self.errors, &[])?;
        Ok(Exit::Done)
    }

    /// Returns the error for arguments that make no sense on traces.
    fn not_of_traces(&self) -> Option<&'static str> {
        let columns = [
            Number::Percent,
            Number::Samples,
            Number::Weight,
            Number::Scaled,
        ];
        if self.inline || self.no_inline {
            Some("--inline, --no-inline: a trace has no calls of inlined functions")
        } else if self.calls {
            Some("--calls: the tree of a trace counts calls anyway; leave it out")
        } else if !self.derived.is_empty() {
            Some("--metric: a trace has calls and no events to compute metrics from")
        } else if self.working_set {
            Some("--working-set: a trace has no samples to count cache lines of")
        } else if self.columns != columns {
            Some("--columns: the columns of a trace are shares, calls, self and total times")
        } else if self.percent != Percent::Column {
            Some("--percent: shares of a trace's table are of all its calls")
        } else if self.rows.slices.get() != SLICES {
            Some("--slices goes with --by time, which traces do not have; use --time A..B")
        } else {
            None
        }
    }
}
