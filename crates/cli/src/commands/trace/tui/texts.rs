//! Pages of text: facts about the trace, its threads, and the keys.

use super::keys::HELP;
use crate::commands::trace::info;
use dioptra_calls::FunctionNames;
use dioptra_tracedata::Trace;

/// Returns the diagnostics, and below them the facts about a trace.
pub fn info(facts: Vec<String>, trace: &Trace, names: &FunctionNames<'_>) -> Vec<String> {
    let mut lines = facts;
    if !lines.is_empty() {
        lines.push(String::new());
    }
    let mut out = Vec::new();
    // Writing to a list of bytes can't fail.
    let written = info::whole(trace, names, &mut out);
    debug_assert!(written.is_ok());
    lines.extend(String::from_utf8_lossy(&out).lines().map(str::to_owned));
    lines
}

/// Returns the trace's processes and threads.
pub fn tasks(trace: &Trace) -> Vec<String> {
    let mut out = Vec::new();
    let written = info::tasks(trace, &mut out);
    debug_assert!(written.is_ok());
    let text = String::from_utf8_lossy(&out);
    text.lines().map(str::to_owned).collect()
}

/// Returns the keys and their commands.
pub fn help() -> Vec<String> {
    let lines = HELP.iter().map(|(keys, what)| match *keys {
        "" => String::new(),
        keys => format!("  {keys:<18} {what}"),
    });
    lines.collect()
}
