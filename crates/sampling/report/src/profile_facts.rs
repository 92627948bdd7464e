//! Facts for the reader of a profile's table: totals, losses, missing names.

use crate::Blocks;
use crate::columns::weight_unit;
use dioptra_perfrecords::SampleType;
use dioptra_profile::branches::BranchFilter;
use dioptra_profile::{
    Count, Losses, ModuleId, ModuleNote, Names, Profile, traced, undescribed, unresolved,
    without_line,
};
use dioptra_symbols::Note;
use dioptra_tables::{Cell, Facts, Remedy, Severity, Unit};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};

/// The number of modules without names that text lists one by one.
const MODULES_TOLD: usize = 3;

/// Returns the facts of `profile` that concern `events` (indices of [`Profile::events`]). `names` may be empty where
/// nothing was named.
pub fn profile_facts(profile: &Profile, names: &Names, events: &[usize]) -> Facts {
    facts_of_shares(profile, names, events, false)
}

/// Returns the facts of [`profile_facts`]. Percentages are of all samples if `of_all` is set, else of the samples
/// that passed the filters.
pub(crate) fn facts_of_shares(
    profile: &Profile,
    names: &Names,
    events: &[usize],
    of_all: bool,
) -> Facts {
    let mut facts = Facts::new();
    for event in events.iter().map(|index| &profile.events()[*index]) {
        let total = event.total();
        let weight = match weight_unit(event.attr()) {
            _ if !event.weighs_events() => String::new(),
            Unit::Nanoseconds => format!(", {:.3} s", total.weight as f64 / 1e9),
            _ => format!(", about {} events", total.weight),
        };
        facts.add(
            Severity::Info,
            "event",
            format!("{}: {}{weight}", event.name(), samples(total.samples)),
            json!({"name": event.name(), "samples": total.samples, "weight": total.weight}),
        );
        let all = event.unfiltered();
        if all != total {
            let share = Cell::ratio(total.weight, all.weight).value(Unit::Percent.scale());
            facts.add(
                Severity::Info,
                "filtered",
                format!(
                    "{}: {} of {} samples passed the filter, {:.2} % of the weight; percentages are of {}",
                    event.name(),
                    total.samples,
                    all.samples,
                    share.unwrap_or(0.0),
                    if of_all { "the whole recording" } else { "these" }
                ),
                json!({"event": event.name(), "samples": all.samples, "weight": all.weight}),
            );
        }
    }
    for unsampled in &profile.losses().unsampled {
        facts.add(
            Severity::Loss,
            "unsampled_threads",
            format!("{unsampled}; record all CPUs (-a), or with a higher frequency (-F)"),
            json!({
                "event": unsampled.event, "counted": unsampled.counted, "sampled": unsampled.sampled,
                "period": unsampled.period, "threads": unsampled.threads,
            }),
        );
    }
    add_losses(&mut facts, profile.losses());
    if profile.options().call_chains {
        let without = |index: &usize| !profile.events()[*index].has_chains();
        if events.iter().all(without) && !events.is_empty() {
            let has_branches = |index: &usize| {
                let bits = profile.events()[*index].attr().sample_type;
                bits.contains(SampleType::BRANCH_STACK)
            };
            facts.add(
                Severity::Fallback,
                "no_call_chains",
                "no call chains were recorded, so totals equal self counts",
                true,
            );
            facts.propose(Remedy::RecordCallChains);
            if events.iter().any(has_branches) {
                facts.propose(Remedy::ShowBranchCallers);
            }
        }
        let of_lbr = |index: &usize| {
            BranchFilter(profile.events()[*index].attr().branch_sample_type).is_call_stack()
        };
        if events.iter().any(of_lbr) {
            facts.add(
                Severity::Info,
                "call_chains_of_lbr",
                "the user's part of call chains is the CPU's stack of open calls (LBR), which holds the 8 to 32 newest ones",
                true,
            );
        }
        add_unwinding(&mut facts, profile.losses());
        add_traced(&mut facts, profile, traced(profile, events));
    }
    // Notes that were added already, by module.
    let mut told = HashSet::new();
    if !names.functions().is_empty() {
        let modules = unresolved(profile, names, events);
        add_missing(
            &mut facts,
            (profile, names),
            modules,
            &Missing::NAMES,
            &mut told,
        );
        add_unverified(&mut facts, profile, names);
    }
    if names.has_inlined() {
        add_undescribed(&mut facts, profile, names, events);
    }
    if names.has_lines() {
        let modules = without_line(profile, names, events);
        add_missing(
            &mut facts,
            (profile, names),
            modules,
            &Missing::LINES,
            &mut told,
        );
    }
    facts
}

/// Adds facts on counters that took turns: the part of the time for which each ran.
pub(crate) fn multiplex_facts(facts: &mut Facts, profile: &Profile, events: &[usize]) {
    for event in events.iter().map(|index| &profile.events()[*index]) {
        let Some(times) = event.multiplexing() else {
            continue;
        };
        if event.is_scaled() {
            let share = Cell::ratio(times.running, times.enabled).value(Unit::Percent.scale());
            let (raw, scaled) = (event.total().weight, event.total_estimate().value);
            let factor = if raw == 0 { 1.0 } else { scaled / raw as f64 };
            facts.add(
                Severity::Info,
                "scaled",
                format!(
                    "{}: its counter ran {:.1} % of the time, in turns with others; `scaled` is the weight times the factor of each sample's own interval, {factor:.3} on average",
                    event.name(),
                    share.unwrap_or(0.0)
                ),
                json!({
                    "event": event.name(), "enabled": times.enabled, "running": times.running,
                    "scaled_samples": times.scaled, "raw": raw, "scaled": scaled, "factor": factor,
                }),
            );
        }
        if times.unknown > 0 {
            facts.add(
                Severity::Loss,
                "not_scaled",
                format!(
                    "{}: {} whose counter's times make no sense, counted as if it had run all the time",
                    event.name(),
                    samples(times.unknown)
                ),
                times.unknown,
            );
        }
    }
}

/// Adds a fact on code that could not be read, whose samples lie in no block.
pub(crate) fn block_facts(facts: &mut Facts, profile: &Profile, blocks: &Blocks) {
    let Some((most, _)) = blocks.without().first() else {
        return;
    };
    let all: u64 = blocks.without().iter().map(|(_, samples)| samples).sum();
    let list: Vec<Value> = blocks
        .without()
        .iter()
        .map(|(module, samples)| {
            let notes = blocks.notes().iter().filter(|note| note.0 == *module);
            let notes: Vec<&str> = notes.map(|(_, note)| note.as_str()).collect();
            let path = profile.modules().get(*module).path();
            json!({"module": path.to_string_lossy(), "samples": samples, "notes": notes})
        })
        .collect();
    facts.add(
        Severity::Fallback,
        "no_code",
        format!(
            "{} in {} {} whose code cannot be read here (most of them in {}) stand together for each function, as [no code]",
            samples(all),
            list.len(),
            if list.len() == 1 { "module" } else { "modules" },
            profile.modules().get(*most).label
        ),
        list,
    );
}

/// Formats a number of samples: `1 sample`, `2 samples`.
fn samples(count: u64) -> String {
    format!("{count} sample{}", if count == 1 { "" } else { "s" })
}

/// Adds facts on call chains that were taken while functions were traced: on chains that lead through the tracer to
/// the callers, and on chains that end there.
fn add_traced(facts: &mut Facts, profile: &Profile, ends: Count) {
    let through = profile.losses().through_thunks;
    if through > 0 {
        facts.add(
            Severity::Info,
            "through_tracer",
            format!(
                "{} taken while functions were traced: the tracer's thunks are left out of their call chains",
                samples(through)
            ),
            through,
        );
    }
    if ends.is_zero() {
        return;
    }
    facts.add(
        Severity::Loss,
        "traced_chains",
        format!(
            "{} taken while functions were traced: their call chains end at the tracer's thunks ([unknown] in memfd:dioptra), which stand for the callers; a recording without tracing shows these, and call chains by frame pointers do (the kernel ends them after kernel.perf_event_max_stack frames, and a traced call takes two)",
            samples(ends.samples)
        ),
        ends.samples,
    );
    facts.propose(Remedy::RecordFramePointers);
}

/// Adds a fact on samples whose callers could not be found from their copies of the stack, and why.
fn add_unwinding(facts: &mut Facts, losses: &Losses) {
    let counts = &losses.unwinding;
    let reasons = [
        ("cut", counts.cut, "the stack goes on above the copy"),
        ("no_table", counts.no_table, "code without unwind tables"),
        ("broken", counts.broken, "the tables lead to no stack"),
        (
            "not_tried",
            counts.not_tried,
            "registers of a machine that is not unwound",
        ),
    ];
    let told: Vec<String> = reasons
        .iter()
        .filter(|(_, count, _)| *count > 0)
        .map(|(_, count, why)| format!("{count}: {why}"))
        .collect();
    if counts.incomplete() == 0 {
        return;
    }
    let mut value = serde_json::Map::new();
    value.insert("complete".to_owned(), counts.complete.into());
    value.extend(reasons.map(|(id, count, _)| (id.to_owned(), count.into())));
    let notes: Vec<String> = losses
        .unwinding_notes
        .iter()
        .map(ToString::to_string)
        .collect();
    value.insert("notes".to_owned(), notes.into());
    facts.add(
        Severity::Loss,
        "incomplete_stacks",
        format!(
            "the outer callers of {} were not found ({})",
            samples(counts.incomplete()),
            told.join("; ")
        ),
        Value::Object(value),
    );
    if counts.cut > 0 {
        facts.propose(Remedy::RecordLargerStacks);
    }
}

fn add_losses(facts: &mut Facts, losses: &Losses) {
    let summary = &losses.summary;
    // Adds a loss; the pair holds the words for one and for several.
    let mut loss = |id: &str, count: u64, (one, several): (&str, &str), text: &str| {
        if count > 0 {
            let what = if count == 1 { one } else { several };
            facts.add(Severity::Loss, id, format!("{count} {what}{text}"), count);
        }
    };
    loss(
        "lost_records",
        summary.lost,
        ("record was", "records were"),
        " lost while recording; use a larger buffer (-m) or a lower frequency (-F)",
    );
    // perf writes LOST_SAMPLES records at its end that repeat the counts of LOST records.
    loss(
        "lost_samples",
        if summary.lost_samples <= summary.lost {
            0
        } else {
            summary.lost_samples
        },
        ("sample was", "samples were"),
        " lost while recording; use a larger buffer (-m) or a lower frequency (-F)",
    );
    loss(
        "throttled",
        summary.throttled,
        ("time", "times"),
        " the kernel throttled an event; use a lower frequency (-F)",
    );
    loss(
        "unknown_events",
        losses.unknown_event,
        ("sample is of an event", "samples are of events"),
        " that the recording does not describe, and in no count",
    );
    loss(
        "malformed_records",
        losses.malformed,
        (
            "record is shorter than its event says",
            "records are shorter than their events say",
        ),
        ", and in no count",
    );
    loss(
        "bad_call_chains",
        losses.bad_chains,
        ("call chain is", "call chains are"),
        " corrupt; such samples count without callers",
    );
    loss(
        "spaces_not_copied",
        losses.spaces_not_copied,
        ("process has", "processes have"),
        " more mappings than make sense; they were dropped",
    );
    loss(
        "jit_dumps_without_times",
        losses.jit_dumps_without_times,
        ("jitdump file has", "jitdump files have"),
        " times of another clock than the recording, so that code which was replaced has the name of what came last; record with -k mono",
    );
    loss(
        "jit_dumps_refused",
        losses.jit_dumps_refused,
        ("jitdump file was", "jitdump files were"),
        " not read, since the recording names more than make sense",
    );
    loss(
        "unmapped_samples",
        losses.unmapped,
        ("sample lies", "samples lie"),
        if summary.lost > 0 {
            " outside of all known mappings; their mappings are probably among the lost records"
        } else {
            " outside of all known mappings"
        },
    );
    loss(
        "skipped_records",
        summary.skipped,
        (
            "record is of an unknown type",
            "records are of unknown types",
        ),
        " or could not be unpacked, and skipped",
    );
    loss(
        "late_records",
        summary.out_of_order,
        ("record", "records"),
        " came too late for the order of time; the mappings at that time may be others",
    );
    if summary.damages > 0 {
        let list: Vec<Value> = summary
            .damaged
            .iter()
            .map(|damage| json!({"offset": damage.offset, "why": damage.why.as_str()}))
            .collect();
        let first = summary.damaged.first().map_or_else(String::new, |damage| {
            format!(", first at byte {}: {}", damage.offset, damage.why)
        });
        let places = if summary.damages == 1 {
            "place"
        } else {
            "places"
        };
        facts.add(
            Severity::Loss,
            "damaged",
            format!(
                "the profile is damaged in {} {places} ({} bytes passed over){first}",
                summary.damages, summary.skipped_bytes
            ),
            list,
        );
    }
    if let Some(offset) = summary.stopped_at {
        facts.add(
            Severity::Loss,
            "stopped_at",
            format!("reading stopped at byte {offset}, before the end"),
            offset,
        );
    }
    if summary.message_bytes > 0 {
        facts.add(
            Severity::Info,
            "recorder_messages",
            format!(
                "the last {} bytes are perf's messages, not records: its standard error was written into the profile",
                summary.message_bytes
            ),
            summary.message_bytes,
        );
    }
    if summary.salvaged {
        facts.add(
            Severity::Loss,
            "salvaged",
            "the recorder was stopped before it finished the file, or the file's end is missing; this is what could be read",
            true,
        );
    }
    if losses.adopted > 0 {
        facts.add(
            Severity::Fallback,
            "unknown_ids",
            format!(
                "{} of ids that the recording does not tell; counted for its only event that may have such samples",
                samples(losses.adopted)
            ),
            losses.adopted,
        );
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
