//! Facts on what a recording or its reader lost.

use super::samples;
use dioptra_profile::Losses;
use dioptra_tables::{Facts, Remedy, Severity};
use serde_json::{Value, json};

/// Adds a fact on each kind of loss.
pub(super) fn add_losses(facts: &mut Facts, losses: &Losses) {
    let summary = &losses.summary;
    // Adds a loss; the pair holds the words for one and for several.
    let mut add =
        |id: &str, count: u64, (one, several): (&str, &str), text: &str, remedies: &[Remedy]| {
            if count > 0 {
                let what = if count == 1 { one } else { several };
                facts.add(Severity::Loss, id, format!("{count} {what}{text}"), count);
                remedies
                    .iter()
                    .for_each(|remedy| facts.propose(remedy.clone()));
            }
        };
    add(
        "lost_records",
        summary.lost,
        ("record was", "records were"),
        " lost while recording",
        &[Remedy::RecordWithLargerBuffer, Remedy::RecordLessOften],
    );
    // perf writes LOST_SAMPLES records at its end that repeat the counts of LOST records.
    add(
        "lost_samples",
        if summary.lost_samples <= summary.lost {
            0
        } else {
            summary.lost_samples
        },
        ("sample was", "samples were"),
        " lost while recording",
        &[Remedy::RecordWithLargerBuffer, Remedy::RecordLessOften],
    );
    add(
        "throttled",
        summary.throttled,
        ("time", "times"),
        " the kernel throttled an event",
        &[Remedy::RecordLessOften],
    );
    add(
        "jit_dumps_without_times",
        losses.jit_dumps_without_times,
        ("jitdump file has", "jitdump files have"),
        " times of another clock than the recording, so that code which was replaced has the name of what came last",
        &[Remedy::RecordOnMonotonicClock],
    );
    let mut loss =
        |id: &str, count: u64, words: (&str, &str), text: &str| add(id, count, words, text, &[]);
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
