//! Facts on the matching of functions of several profiles.

use crate::Input;
use crate::grid::MatchNotes;
use dioptra_tables::{Facts, Severity};
use serde_json::json;

/// The most functions or modules that a text names.
const MOST_TOLD: usize = 4;

/// Adds facts on functions that share a row by name alone, and on modules whose builds differ.
pub(crate) fn match_facts(facts: &mut Facts, notes: &MatchNotes, inputs: &[Input<'_>]) {
    if !notes.builds.is_empty() {
        let text = format!(
            "the builds of {} differ: {} matched by name and source file, since addresses moved",
            listed(&notes.builds),
            if notes.builds.len() == 1 {
                "its functions are"
            } else {
                "their functions are"
            },
        );
        facts.add(Severity::Info, "matched_by_name", text, json!(notes.builds));
    }
    if !notes.merged.is_empty() {
        let names = notes.merged.iter().map(|merged| {
            let counts: Vec<String> = merged.functions.iter().map(usize::to_string).collect();
            let counts = counts.join(" and ");
            format!("{} of {} ({counts})", merged.function, merged.module)
        });
        let text = format!(
            "functions that share a name are one row, since nothing tells which is which in the other profile: {}",
            listed(&names.collect::<Vec<_>>())
        );
        let labels: Vec<&str> = inputs.iter().map(|input| input.label).collect();
        let rows = notes.merged.iter().map(|merged| {
            json!({
                "module": merged.module, "function": merged.function,
                "profiles": labels, "functions": merged.functions,
            })
        });
        let rows = rows.collect::<Vec<_>>();
        facts.add(Severity::Fallback, "merged_functions", text, rows);
    }
    if !notes.other_files.is_empty() {
        let names = notes.other_files.iter().map(|other| {
            let (from, to) = &other.files;
            format!("{} of {} ({from}, {to})", other.function, other.module)
        });
        let text = format!(
            "functions are matched by their name although their source files' names differ: {}",
            listed(&names.collect::<Vec<_>>())
        );
        let rows = notes.other_files.iter().map(|other| {
            let files = [&*other.files.0, &*other.files.1];
            json!({"module": other.module, "function": other.function, "files": files})
        });
        let rows = rows.collect::<Vec<_>>();
        facts.add(Severity::Fallback, "other_source_file", text, rows);
    }
}

/// Lists the first names, and the number of the rest.
fn listed(names: &[String]) -> String {
    let shown = names[..names.len().min(MOST_TOLD)].join(", ");
    match names.len().saturating_sub(MOST_TOLD) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
