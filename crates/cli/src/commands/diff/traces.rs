//! `dioptra diff` of traces.

use super::Arguments;
use crate::commands::trace::usage;
use crate::commands::traces::{ChosenCalls, check_trace_options, levels, open};
use crate::exit::Exit;
use dioptra_trace_report::{GroupedDiffOptions, grouped_diff};

/// Shows the changes from the first trace to the others.
pub fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    if arguments.inline {
        return Err(usage("--inline: a trace has no calls of inlined functions"));
    }
    if !arguments.derived.is_empty() {
        return Err(usage(
            "--metric: a trace has calls and no events to compute metrics from",
        ));
    }
    if arguments.normalize != "none" {
        return Err(usage(
            "--normalize: calls and times of traces are compared as they are",
        ));
    }
    check_trace_options(&arguments.selection)?;
    let levels = levels(&arguments.by)?;
    let traces = open(&arguments.inputs)?;
    let chosen = ChosenCalls::of(&traces, &arguments.of_traces, &arguments.selection)?;
    let options = GroupedDiffOptions {
        levels: &levels,
        few: arguments.rows.few,
    };
    let table = grouped_diff(&chosen.inputs(), &options)?;
    let errors = chosen.are_sampled();
    arguments.shown.write(table, levels.len(), errors, &[])?;
    Ok(Exit::Done)
}
