//! Facts about a trace's calls that people must know: rules, losses, estimates.

use crate::rows::{Row, estimates, is_slowest};
use dioptra_calls::{CallPathTree, FunctionNames, Statistics, View, ViewLosses};
use dioptra_filters::SampleKind;
use dioptra_tables::{Facts, Remedy, Severity};
use dioptra_tracedata::{RecordingEnd, Trace};
use std::collections::BTreeMap;

/// Formats a number of things, such as `1 call` or `2 calls`.
pub fn number_of(number: u64, thing: &str) -> String {
    match number {
        1 => format!("1 {thing}"),
        number => format!("{number} {thing}s"),
    }
}

/// Returns whether the length of the trace's clock ticks is unknown.
pub fn counts_ticks(trace: &Trace) -> bool {
    !trace.clock().is_measured() && trace.info().clock.source != "monotonic"
}

/// Returns the diagnostics of calls: missing or damaged records, and limits of the recording.
pub fn call_facts(trace: &Trace, names: &FunctionNames<'_>, losses: &ViewLosses) -> Facts {
    let mut facts = Facts::new();
    trace_facts(trace, &mut facts);
    if trace
        .streams()
        .iter()
        .all(|stream| stream.chunk_count() == 0)
    {
        let left_out: u64 = trace.counted().values().map(|(seen, _)| *seen).sum();
        let why = if left_out > 0 {
            format!("of {left_out} calls of sampled functions none was chosen")
        } else if trace.info().ending.is_none() {
            "none was written before the recorder ended".to_owned()
        } else {
            "none of the functions that were to be traced was called, or none could be".to_owned()
        };
        facts.add(
            Severity::Fallback,
            "no_calls",
            format!("the trace has no calls: {why}"),
            true,
        );
        facts.propose(Remedy::ShowTraceInfo);
    }
    let walk = &losses.walk;
    let mut loss = |id: &str, count: u64, what: &str| {
        if count > 0 {
            facts.add(Severity::Loss, id, format!("{count} {what}"), count);
        }
    };
    loss("lost_records", walk.records, "records are missing");
    loss(
        "gaps",
        walk.gaps,
        "gaps of unknown size between chunks of records",
    );
    loss(
        "malformed_chunks",
        walk.malformed,
        "chunks end in bytes that are no records",
    );
    loss(
        "stray_exits",
        walk.stray_exits,
        "exits have no call that they belong to",
    );
    loss(
        "missing_ends",
        losses.missing_ends,
        "calls ended unseen: their durations reach to the end of the gap in which they did",
    );
    if walk.overlaps > 0 {
        facts.add(
            Severity::Info,
            "switch_overlaps",
            format!(
                "{} periods without a CPU overlap recorded calls and are shown up to these or from them: a child that shares its parent's memory (vfork) made them, or context switches are missing",
                walk.overlaps
            ),
            walk.overlaps,
        );
    }
    if losses.missing_beginnings > 0 {
        facts.add(
            Severity::Info,
            "missing_beginnings",
            format!(
                "{} calls began before their thread's records do, or unseen: their durations are counted from there, and they are not counted as calls",
                losses.missing_beginnings
            ),
            losses.missing_beginnings,
        );
    }
    for note in names.notes() {
        facts.add(
            Severity::Fallback,
            "names",
            note.to_string(),
            note.to_string(),
        );
    }
    facts
}

/// Returns the sentence about threads that waited for the tracer, if any did.
pub fn tracer_waits(ending: &RecordingEnd) -> Option<String> {
    let memory = match ending.memory >> 20 {
        0 => "its memory".to_owned(),
        megabytes => format!("its {megabytes} MiB of memory"),
    };
    let times = match ending.waits {
        0 => return None,
        1 => "once a thread".to_owned(),
        times => format!("{times} times a thread"),
    };
    Some(format!(
        "{times} of the program waited for the tracer, which was writing {memory}, for {:.3} ms together (linux:schedule (tracer) is the part of it without a CPU)",
        ending.waited as f64 / 1e6
    ))
}

/// Adds the diagnostics of a trace's files, which hold for every view of it.
pub fn trace_facts(trace: &Trace, facts: &mut Facts) {
    const MOST: usize = 5;
    for damage in trace.damage().iter().take(MOST) {
        let text = damage.to_string();
        facts.add(Severity::Loss, "damage", text.clone(), text);
    }
    if let Some(more @ 1..) = trace.damage().len().checked_sub(MOST) {
        let text = format!("{more} more places are damaged");
        facts.add(Severity::Loss, "more_damage", text, more);
        facts.propose(Remedy::ShowTraceInfo);
    }
    for text in trace.untraced().iter().take(MOST) {
        facts.add(Severity::Loss, "untraced", text.clone(), text.clone());
    }
    if let Some(more @ 1..) = trace.untraced().len().checked_sub(MOST) {
        let text = format!("{more} more things were not traced");
        facts.add(Severity::Loss, "more_untraced", text, more);
        facts.propose(Remedy::ShowTraceInfo);
    }
    if counts_ticks(trace) {
        facts.add(
            Severity::Fallback,
            "clock",
            "the records' clock was read once only: durations are in its ticks (tk), not in nanoseconds",
            trace.info().clock.source.clone(),
        );
    }
    match &trace.info().ending {
        None => {
            facts.add(
                Severity::Loss,
                "no_end",
                "the recording has no end: its recorder was killed or is still at work, and what it had not written is missing",
                true,
            );
        }
        Some(ending) => {
            let placed = trace.streams().iter().map(|stream| stream.lost);
            let placed = placed.fold(0, u64::saturating_add);
            for (id, count, what) in [
                (
                    "lost_elsewhere",
                    ending.lost.saturating_sub(placed),
                    "more records are missing, which nothing shows in place: at the ends of threads, or before what was kept",
                ),
                (
                    "missed_in_handlers",
                    ending.missed_in_handlers.unwrap_or(0),
                    "calls in signal handlers were not recorded",
                ),
                (
                    "missed_no_memory",
                    ending.missed_no_memory,
                    "calls were not recorded for want of memory",
                ),
                (
                    "lost_switches",
                    ending.lost_switches,
                    "context switches are missing: the kernel had no room for them",
                ),
                (
                    "uncounted_threads",
                    ending.uncounted_threads,
                    "threads beyond those that can count at a time: of their sampled calls only the recorded ones are known",
                ),
            ] {
                if count > 0 {
                    facts.add(Severity::Loss, id, format!("{count} {what}"), count);
                }
            }
            if let Some(text) = tracer_waits(ending) {
                let value =
                    serde_json::json!({"waits": ending.waits, "nanoseconds": ending.waited});
                facts.add(Severity::Info, "tracer_waits", text, value);
                facts.propose(Remedy::TraceLess);
            }
            if ending.missed_in_handlers.is_none() {
                facts.add(
                    Severity::Loss,
                    "missed_in_handlers",
                    "an unknown number of calls in signal handlers was not recorded: the recorder's count of them is wrong",
                    "unknown",
                );
            }
            if ending.marked > 0 {
                facts.add(
                    Severity::Info,
                    "marked_executions",
                    format!(
                        "{} executions were not slow (sample=pNN) and are in the recording all the same, with what they called: their records filled a chunk, or it was full before they ended; they are not shown",
                        ending.marked
                    ),
                    ending.marked,
                );
            }
            if ending.discarded_chunks > 0 {
                facts.add(
                    Severity::Info,
                    "discarded_chunks",
                    format!(
                        "{} chunks were older than what was to be kept",
                        ending.discarded_chunks
                    ),
                    ending.discarded_chunks,
                );
            }
        }
    }
}

/// Returns the diagnostics of a call graph.
pub fn graph_facts(view: &View<'_>, names: &FunctionNames<'_>, tree: &CallPathTree) -> Facts {
    let mut facts = call_facts(view.trace(), names, &tree.losses);
    if tree.open > 0 {
        facts.add(
            Severity::Info,
            "open_calls",
            open_calls(view, tree.open),
            tree.open,
        );
    }
    if view.is_sampled() {
        let text = "numbers are scaled from sampled calls (marked ~)";
        facts.add(Severity::Info, "sampled", text, true);
        facts.propose(Remedy::ShowCallErrors);
    }
    facts
}

/// Returns the diagnostics of a replay.
pub fn replay_facts(view: &View<'_>, names: &FunctionNames<'_>, losses: &ViewLosses) -> Facts {
    let mut facts = call_facts(view.trace(), names, losses);
    sampled_fact(view, names, &mut facts);
    facts
}

/// Adds the diagnostic that sampling left calls out while they were recorded.
fn sampled_fact(view: &View<'_>, names: &FunctionNames<'_>, facts: &mut Facts) {
    const MOST: usize = 3;
    let counted = view.counted();
    let sampled = counted.iter().filter(|(_, (seen, shown))| seen > shown);
    let each: Vec<String> = sampled
        .map(|(id, (seen, shown))| format!("{shown} of {seen} calls of {}", names.get(*id)))
        .collect();
    if each.is_empty() {
        return;
    }
    let more = if each.len() > MOST { ", …" } else { "" };
    let first = each[..each.len().min(MOST)].join(", ");
    let text = format!("sampled while it was recorded: {first}{more}");
    facts.add(Severity::Info, "sampled", text, each.len());
}

/// Returns the sentence about calls that are open at the end of the shown range.
pub fn open_calls(view: &View<'_>, open: u64) -> String {
    let calls = number_of(open, "call");
    match view.range().stop {
        Some(_) => {
            format!("{calls} had not ended at the end of the range: their durations reach to it")
        }
        None => format!("{calls} had not ended: their durations reach to the end"),
    }
}

/// The numbers of a table's rows that people must know about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RowCounts {
    /// The number of calls that are open at the end.
    pub open: u64,
    /// The number of rows with estimates.
    pub estimated: usize,
    /// The number of functions that are sampled by rate.
    pub skewed: usize,
    /// The number of functions of which only the slowest calls are shown.
    pub slowest: usize,
}

/// Returns the diagnostics of the rows of functions.
pub fn function_facts(
    view: &View<'_>,
    names: &FunctionNames<'_>,
    sums: &Statistics,
    rows: &[Row],
) -> Facts {
    let by_rate = |row: &&Row| row.sampling == Some(SampleKind::Rate);
    let counts = RowCounts {
        open: sums.functions.iter().map(|times| times.open).sum(),
        estimated: rows.iter().filter(|row| estimates(row).is_some()).count(),
        skewed: rows.iter().filter(by_rate).count(),
        slowest: rows.iter().filter(|row| is_slowest(row)).count(),
    };
    row_facts(view, names, &sums.losses, counts)
}

/// Returns the diagnostics of rows of sums.
pub(crate) fn row_facts(
    view: &View<'_>,
    names: &FunctionNames<'_>,
    losses: &ViewLosses,
    counts: RowCounts,
) -> Facts {
    let mut facts = call_facts(view.trace(), names, losses);
    let open = counts.open;
    if open > 0 {
        facts.add(Severity::Info, "open_calls", open_calls(view, open), open);
    }
    let sampled = counts.estimated;
    if sampled > 0 {
        facts.add(
            Severity::Info,
            "sampled_functions",
            format!("estimates, marked ~, are scaled from sampled calls, in {}; an error is one standard error", number_of(sampled as u64, "row")),
            sampled,
        );
    }
    let skewed = counts.skewed;
    if skewed > 0 {
        facts.add(
            Severity::Fallback,
            "skewed_samples",
            format!("{skewed} functions are sampled by rate: the shown calls do not stand for the others, so what is estimated of their times is skewed"),
            skewed,
        );
    }
    let slow = counts.slowest;
    if slow > 0 {
        facts.add(
            Severity::Fallback,
            "slowest_calls",
            format!("{slow} functions are shown with their slowest calls only (sample=pNN): neither their numbers nor those of what they call stand for all calls"),
            slow,
        );
    }
    let unseen = [
        ("unrecorded_functions", view.counted(), "none was recorded"),
        (
            "unchosen_functions",
            view.counted_by_rules(),
            "none was chosen",
        ),
    ];
    for (id, counted, why) in unseen {
        unseen_fact(id, &counted, why, names, &mut facts);
    }
    facts
}

/// Adds the diagnostic about functions of which no execution was chosen. `counted` has all executions and the chosen
/// ones.
fn unseen_fact(
    id: &str,
    counted: &BTreeMap<u32, (u64, u64)>,
    why: &str,
    names: &FunctionNames<'_>,
    facts: &mut Facts,
) {
    let unseen = counted
        .iter()
        .filter(|(_, (seen, shown))| *seen > 0 && *shown == 0);
    let unseen: Vec<_> = unseen.collect();
    if unseen.is_empty() {
        return;
    }
    let calls: u64 = unseen.iter().map(|(_, (seen, _))| *seen).sum();
    let first = unseen.iter().take(3).map(|(id, _)| names.get(**id));
    let first: Vec<&str> = first.collect();
    let more = if unseen.len() > 3 { ", …" } else { "" };
    facts.add(
        Severity::Info,
        id,
        format!(
            "{calls} calls of {} sampled functions are not in the table, since {why}: {}{more}",
            unseen.len(),
            first.join(", ")
        ),
        calls,
    );
}
