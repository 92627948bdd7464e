//! Traces as inputs of commands that show profiles.

use super::profiles::{By, Selection};
use super::trace::{CallSelection, usage};
use dioptra_calls::{FunctionNames, View};
use dioptra_trace_report::{Level, TraceInput};
use dioptra_tracedata::Trace;
use dioptra_tracelayout::directory;
use std::path::PathBuf;

/// The file by which the directories of uftrace's traces are known.
const UFTRACE_INFO: &str = "info";

/// Returns whether the inputs of a command are traces; fails if some are and others are not.
pub fn are_traces(paths: &[PathBuf]) -> anyhow::Result<bool> {
    let is_trace =
        |path: &&PathBuf| path.join(directory::INFO).is_file() || path.join(UFTRACE_INFO).is_file();
    let (traces, profiles): (Vec<_>, Vec<_>) = paths.iter().partition(is_trace);
    match (traces.first(), profiles.first()) {
        (Some(trace), Some(profile)) => Err(usage(format_args!(
            "{} is a trace and {} is none: samples and calls have no rows in common; `dioptra web` shows both on one axis of time",
            trace.display(),
            profile.display()
        ))),
        (Some(_), None) => Ok(true),
        _ => Ok(false),
    }
}

/// Fails if an option about calls is given for a profile.
pub fn check_profile_options(calls: &CallSelection) -> anyhow::Result<()> {
    match calls.given() {
        Some(option) => Err(usage(format_args!(
            "{option}: only traces have calls to choose from, and the input is a profile"
        ))),
        None => Ok(()),
    }
}

/// Fails if an option about samples is given for a trace.
pub fn check_trace_options(samples: &Selection) -> anyhow::Result<()> {
    match samples.only_for_samples() {
        Some(option) => Err(usage(format_args!(
            "{option}: a trace has calls and no samples; choose calls with -F, -N, --tid, --time"
        ))),
        None => Ok(()),
    }
}

/// Returns the levels of a trace's table.
pub fn levels(by: &[By]) -> anyhow::Result<Vec<Level>> {
    let level = |(place, level): (usize, &By)| match level {
        level if by[..place].contains(level) => Err(usage("--by has a level twice")),
        By::Program => Ok(Level::Program),
        By::Process => Ok(Level::Process),
        By::Thread => Ok(Level::Thread),
        By::Comm => Ok(Level::Comm),
        By::Module => Ok(Level::Module),
        By::Function => Ok(Level::Function),
        _ => Err(usage(
            "--by: a trace has calls, whose rows are program, process, thread, comm, module and function",
        )),
    };
    by.iter().enumerate().map(level).collect()
}

/// Opens traces.
pub fn open(paths: &[PathBuf]) -> anyhow::Result<Vec<Trace>> {
    let each = paths.iter().map(|path| Ok(Trace::open(path)?));
    each.collect()
}

/// The names and the chosen calls of traces.
pub struct ChosenCalls<'t> {
    labels: Vec<String>,
    names: Vec<FunctionNames<'t>>,
    views: Vec<View<'t>>,
}

impl<'t> ChosenCalls<'t> {
    /// Chooses calls of traces. Prints warnings to standard error.
    pub fn of(
        traces: &'t [Trace],
        calls: &CallSelection,
        samples: &Selection,
    ) -> anyhow::Result<ChosenCalls<'t>> {
        let symbols = samples.symbols()?;
        let names: Vec<FunctionNames<'t>> = traces
            .iter()
            .map(|trace| calls.names(trace, symbols.clone()))
            .collect();
        let views = names.iter().map(|names| calls.view(names, samples, false));
        Ok(ChosenCalls {
            labels: traces
                .iter()
                .map(|trace| trace.folder().display().to_string())
                .collect(),
            views: views.collect::<anyhow::Result<_>>()?,
            names,
        })
    }

    /// Returns the inputs of tables.
    pub fn inputs(&self) -> Vec<TraceInput<'_, 't>> {
        let each = self.views.iter().zip(&self.names).zip(&self.labels);
        each.map(|((view, names), label)| TraceInput { view, names, label })
            .collect()
    }

    /// Returns whether any calls stand for others.
    pub fn are_sampled(&self) -> bool {
        self.views.iter().any(View::is_sampled)
    }
}
