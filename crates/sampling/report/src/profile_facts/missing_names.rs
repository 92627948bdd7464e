//! Facts on samples without a name, a source line or inlined functions, and on names that may be wrong.

use super::samples;
use dioptra_profile::{
    Count, ModuleId, ModuleNote, Names, Profile, undescribed, unresolved, without_line,
};
use dioptra_symbols::Note;
use dioptra_tables::{Facts, Remedy, Severity};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};

/// The number of modules without names that text lists one by one.
const MODULES_TOLD: usize = 3;

/// Adds facts on the names and lines of the samples of events (indices of [`Profile::events`]).
pub(super) fn add_names(facts: &mut Facts, profile: &Profile, names: &Names, events: &[usize]) {
    // Notes that were added already, by module.
    let mut told = HashSet::new();
    if !names.functions().is_empty() {
        let modules = unresolved(profile, names, events);
        add_missing(facts, (profile, names), modules, &Missing::NAMES, &mut told);
        add_unverified(facts, profile, names);
    }
    if names.has_inlined() {
        add_undescribed(facts, profile, names, events);
    }
    if names.has_lines() {
        let modules = without_line(profile, names, events);
        add_missing(facts, (profile, names), modules, &Missing::LINES, &mut told);
    }
}

/// Adds a fact on samples whose inlined functions are not known.
fn add_undescribed(facts: &mut Facts, profile: &Profile, names: &Names, events: &[usize]) {
    let mut modules = undescribed(profile, names, events);
    modules.sort_by_key(|(module, count)| (std::cmp::Reverse(count.samples), *module));
    let Some((most, _)) = modules.first() else {
        return;
    };
    let without: u64 = modules.iter().map(|(_, count)| count.samples).sum();
    let problems = problems(names.inlined_notes());
    let list: Vec<Value> = modules
        .iter()
        .map(|(module, count)| {
            let path = profile.modules().get(*module).path();
            let notes = texts(problems.get(module));
            json!({"module": path.to_string_lossy(), "samples": count.samples, "notes": notes})
        })
        .collect();
    let plural = if list.len() == 1 { "module" } else { "modules" };
    facts.add(
        Severity::Fallback,
        "no_inline_info",
        format!(
            "{} in {} {plural} lie in code without debug information (most of them in {}): what was inlined there is not told apart",
            samples(without),
            list.len(),
            profile.modules().get(*most).label
        ),
        list,
    );
}

/// A property that samples may lack, and the ids of the facts about it.
struct Missing {
    /// The word for the property.
    what: &'static str,
    /// The ids of three facts: all samples, one module, the number of further modules.
    ids: [&'static str; 3],
}

impl Missing {
    const NAMES: Missing = Missing {
        what: "name",
        ids: ["unnamed_samples", "names", "names_left_out"],
    };
    const LINES: Missing = Missing {
        what: "source line",
        ids: ["samples_without_line", "lines", "lines_left_out"],
    };
}

/// Returns the notes that explain missing names, by module. Notes that are no problem, such as where names came from,
/// are left out.
fn problems(notes: &[ModuleNote]) -> BTreeMap<ModuleId, Vec<&Note>> {
    let mut problems: BTreeMap<ModuleId, Vec<&Note>> = BTreeMap::new();
    for note in notes.iter().filter(|note| note.note.is_problem()) {
        let of_module: &mut Vec<&Note> = problems.entry(note.module).or_default();
        // Names and debug information are looked for in the same files, so a note may come twice.
        if !of_module.contains(&&note.note) {
            of_module.push(&note.note);
        }
    }
    problems
}

/// Returns the texts of a module's notes.
fn texts(notes: Option<&Vec<&Note>>) -> Vec<String> {
    let notes = notes.into_iter().flatten();
    notes.map(ToString::to_string).collect()
}

/// Returns the remedy for a module's missing names, lines or code.
pub(crate) fn remedy(note: &Note) -> Option<Remedy> {
    match note {
        Note::NoFile { .. } | Note::BuildIdMismatch { .. } | Note::Unverified { .. } => {
            Some(Remedy::GiveRecordedFiles)
        }
        Note::NoKernelFile { .. } => Some(Remedy::GiveKernelFile),
        Note::DebugFileRefused { .. } => Some(Remedy::FetchDebugFile),
        _ => None,
    }
}

/// Adds facts on modules whose samples lack something, and why, unless that was `told` already.
fn add_missing(
    facts: &mut Facts,
    (profile, names): (&Profile, &Names),
    modules: Vec<(ModuleId, Count)>,
    missing: &Missing,
    told: &mut HashSet<(ModuleId, String)>,
) {
    let notes = problems(names.notes());
    let mut modules: Vec<(ModuleId, u64)> = modules
        .into_iter()
        .filter(|(module, _)| !profile.modules().get(*module).is_unknown())
        .map(|(module, count)| (module, count.samples))
        .collect();
    modules.sort_by_key(|(module, samples)| (std::cmp::Reverse(*samples), *module));
    let unnamed: u64 = modules.iter().map(|(_, samples)| samples).sum();
    if unnamed == 0 {
        return;
    }
    let list: Vec<Value> = modules
        .iter()
        .map(|(module, samples)| {
            let path = profile.modules().get(*module).path();
            json!({
                "module": path.to_string_lossy(),
                "samples": samples,
                "notes": texts(notes.get(module)),
            })
        })
        .collect();
    let count = modules.len();
    let plural = if count == 1 { "module" } else { "modules" };
    facts.add(
        Severity::Loss,
        missing.ids[0],
        format!(
            "{} in {count} {plural} where no {} was found",
            samples(unnamed),
            missing.what
        ),
        list,
    );
    let mut explained = modules
        .iter()
        .filter_map(|(module, count)| Some((module, count, notes.get(module)?)));
    for (module, count, notes) in explained.by_ref().take(MODULES_TOLD) {
        let label = &profile.modules().get(*module).label;
        for note in notes {
            let text = note.to_string();
            if !told.insert((*module, text.clone())) {
                continue;
            }
            facts.add(
                Severity::Loss,
                missing.ids[1],
                format!("{} of {label}: {text}", samples(*count)),
                text,
            );
            if let Some(remedy) = remedy(note) {
                facts.propose(remedy);
            }
        }
    }
    let more = explained.count();
    if more > 0 {
        let plural = if more == 1 { "module" } else { "modules" };
        facts.add(
            Severity::Loss,
            missing.ids[2],
            format!(
                "{more} more {plural} without {}s, which JSON lists",
                missing.what
            ),
            more,
        );
    }
}

/// Adds a fact on modules whose names come from files that may differ from the recorded ones.
fn add_unverified(facts: &mut Facts, profile: &Profile, names: &Names) {
    let notes = names.notes().iter();
    let unverified: Vec<_> = notes
        .filter(|note| matches!(note.note, Note::Unverified { .. }))
        .collect();
    let Some(first) = unverified.first() else {
        return;
    };
    let list: Vec<Value> = unverified
        .iter()
        .map(|note| {
            let path = profile.modules().get(note.module).path();
            json!({"module": path.to_string_lossy(), "note": note.note.to_string()})
        })
        .collect();
    let others = match unverified.len() - 1 {
        0 => String::new(),
        1 => " (and 1 more module)".to_owned(),
        more => format!(" (and {more} more modules)"),
    };
    facts.add(
        Severity::Fallback,
        "unverified_names",
        format!("{}{others}", first.note),
        list,
    );
    facts.propose(Remedy::GiveRecordedFiles);
}
