//! Facts on call chains: missing, incomplete and traced ones.

use super::samples;
use dioptra_perfrecords::SampleType;
use dioptra_profile::branches::BranchFilter;
use dioptra_profile::{Count, Losses, Profile, traced};
use dioptra_tables::{Facts, Remedy, Severity};
use serde_json::Value;

/// Adds facts on the call chains of events (indices of [`Profile::events`]).
pub(super) fn add_call_chains(facts: &mut Facts, profile: &Profile, events: &[usize]) {
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
    add_unwinding(facts, profile.losses());
    add_traced(facts, profile, traced(profile, events));
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
            "{} taken while functions were traced: their call chains end at the tracer's thunks ([hooks and thunks] in [dioptra trace]), which stand for the callers; a recording without tracing shows these, and call chains by frame pointers do (the kernel ends them after kernel.perf_event_max_stack frames, and a traced call takes two)",
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
