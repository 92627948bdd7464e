//! What the reader of a profile's table has to know: totals, losses, missing names.

use crate::by::weight_unit;
use crate::{Facts, Severity, Unit};
use dioptra_profile::{Losses, ModuleId, Names, Profile, unresolved};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// How many modules without names are told one by one in text.
const MODULES_TOLD: usize = 5;

/// The facts of `profile` as far as they concern `events` (indices of [`Profile::events`]). `names` may be empty
/// where nothing was named.
pub(crate) fn profile_facts(profile: &Profile, names: &Names, events: &[usize]) -> Facts {
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
            format!("{}: {} samples{weight}", event.name(), total.samples),
            json!({"name": event.name(), "samples": total.samples, "weight": total.weight}),
        );
    }
    add_losses(&mut facts, profile.losses());
    let stack_copies = profile.losses().stacks_not_unwound;
    if profile.options().call_chains {
        let without = |index: &usize| !profile.events()[*index].has_chains();
        if events.iter().all(without) && !events.is_empty() {
            facts.add(
                Severity::Fallback,
                "no_call_chains",
                "no call chains were recorded, so totals equal self counts; record with -g",
                true,
            );
        }
        if stack_copies > 0 {
            facts.add(
                Severity::Loss,
                "stacks_not_unwound",
                format!("{stack_copies} samples hold copies of user stacks, which are not unwound: their totals lack user callers; record with --call-graph fp"),
                stack_copies,
            );
        }
    }
    if !names.functions().is_empty() {
        add_missing_names(&mut facts, profile, names, events);
    }
    facts
}

fn add_losses(facts: &mut Facts, losses: &Losses) {
    let summary = &losses.summary;
    let mut loss = |id: &str, count: u64, text: &str| {
        if count > 0 {
            facts.add(Severity::Loss, id, format!("{count} {text}"), count);
        }
    };
    loss(
        "lost_records",
        summary.lost,
        "records were lost while recording; use a larger buffer (-m) or a lower frequency (-F)",
    );
    loss(
        "lost_samples",
        summary.lost_samples,
        "samples were lost while recording; use a larger buffer (-m) or a lower frequency (-F)",
    );
    loss(
        "throttled",
        summary.throttled,
        "times the kernel throttled an event; use a lower frequency (-F)",
    );
    loss(
        "unknown_events",
        losses.unknown_event,
        "samples are of events that the recording does not describe; they are in no count",
    );
    loss(
        "malformed_records",
        losses.malformed,
        "records are shorter than their events say; they are in no count",
    );
    loss(
        "bad_call_chains",
        losses.bad_chains,
        "call chains are corrupt; their samples count without callers",
    );
    loss(
        "spaces_not_copied",
        losses.spaces_not_copied,
        "processes have more mappings than make sense; theirs were dropped",
    );
    loss(
        "unmapped_samples",
        losses.unmapped,
        "samples lie outside of all known mappings",
    );
    loss(
        "skipped_records",
        summary.skipped,
        "records are of unknown types or could not be unpacked; they were skipped",
    );
    loss(
        "late_records",
        summary.out_of_order,
        "records came too late for the order of time; the mappings at their time may be others",
    );
    if summary.damages > 0 {
        let list: Vec<Value> = summary
            .damaged
            .iter()
            .map(|damage| json!({"offset": damage.offset, "why": damage.why.as_str()}))
            .collect();
        let first = summary.damaged.first().map_or_else(String::new, |damage| {
            format!(" time(s), first at byte {}: {}", damage.offset, damage.why)
        });
        facts.add(
            Severity::Loss,
            "damaged",
            format!("damage in the profile: {} time(s){first}", summary.damages),
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
            format!("{} samples have ids that the recording does not tell; they count for its only sampling event", losses.adopted),
            losses.adopted,
        );
    }
}

/// Tells which modules have samples that could not be named, and why.
fn add_missing_names(facts: &mut Facts, profile: &Profile, names: &Names, events: &[usize]) {
    let mut notes: BTreeMap<ModuleId, Vec<String>> = BTreeMap::new();
    for note in names.notes() {
        notes
            .entry(note.module)
            .or_default()
            .push(note.note.to_string());
    }
    let mut modules: Vec<(ModuleId, u64)> = unresolved(profile, names, events)
        .into_iter()
        .filter(|(module, _)| !profile.modules().get(*module).is_unknown())
        .map(|(module, count)| (module, count.samples))
        .collect();
    modules.sort_by_key(|(module, samples)| (std::cmp::Reverse(*samples), *module));
    let samples: u64 = modules.iter().map(|(_, samples)| samples).sum();
    if samples == 0 {
        return;
    }
    let list: Vec<Value> = modules
        .iter()
        .map(|(module, samples)| {
            let path = profile.modules().get(*module).path();
            json!({
                "module": path.to_string_lossy(),
                "samples": samples,
                "notes": notes.get(module).cloned().unwrap_or_default(),
            })
        })
        .collect();
    let count = modules.len();
    let plural = if count == 1 { "module" } else { "modules" };
    facts.add(
        Severity::Loss,
        "unnamed_samples",
        format!("{samples} samples lie in {count} {plural} where no name was found for them"),
        list,
    );
    for (module, samples) in modules.iter().take(MODULES_TOLD) {
        let label = &profile.modules().get(*module).label;
        for note in notes.get(module).into_iter().flatten() {
            facts.add(
                Severity::Loss,
                "names",
                format!("{samples} samples of {label}: {note}"),
                note.as_str(),
            );
        }
    }
}
