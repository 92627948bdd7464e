//! Facts for the reader of a profile's table: totals, losses, missing names.

mod call_chains;
mod losses;
mod missing_names;
mod waits;

pub(crate) use missing_names::remedy;

use crate::Blocks;
use crate::columns::weight_unit;
use dioptra_profile::{Names, Profile};
use dioptra_tables::{Cell, Facts, Remedy, Severity, Unit};
use serde_json::{Value, json};

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
        let weight = match weight_unit(event) {
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
            unsampled.to_string(),
            json!({
                "event": unsampled.event, "counted": unsampled.counted, "sampled": unsampled.sampled,
                "period": unsampled.period, "threads": unsampled.threads,
            }),
        );
        facts.propose(Remedy::RecordAllCpus);
        facts.propose(Remedy::RecordMoreOften);
    }
    losses::add_losses(&mut facts, profile.losses());
    let off_cpu = |index: &usize| profile.events()[*index].is_off_cpu();
    if events.iter().any(off_cpu) {
        waits::add_waits(&mut facts, &profile.losses().off_cpu);
    }
    if profile.options().call_chains {
        call_chains::add_call_chains(&mut facts, profile, events);
    }
    missing_names::add_names(&mut facts, profile, names, events);
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
