//! Pages of text.

use super::keys::HELP;
use crate::commands::trace::info;
use dioptra_calls::FunctionNames;
use dioptra_tracedata::Trace;

/// What a trace holds, below what has to be known of it.
pub fn info(facts: Vec<String>, trace: &Trace, names: &FunctionNames<'_>) -> Vec<String> {
    let mut lines = facts;
    if !lines.is_empty() {
        lines.push(String::new());
    }
    let mut out = Vec::new();
    // A list of bytes takes everything.
    let written = info::whole(trace, names, &mut out);
    debug_assert!(written.is_ok());
    lines.extend(String::from_utf8_lossy(&out).lines().map(str::to_owned));
    lines
}

/// Its processes and threads.
pub fn tasks(trace: &Trace) -> Vec<String> {
    let mut out = Vec::new();
    let written = info::tasks(trace, &mut out);
    debug_assert!(written.is_ok());
    let text = String::from_utf8_lossy(&out);
    text.lines().map(str::to_owned).collect()
}

/// The keys.
pub fn help() -> Vec<String> {
    let lines = HELP.iter().map(|(keys, what)| match *keys {
        "" => String::new(),
        keys => format!("  {keys:<18} {what}"),
    });
    lines.collect()
}
