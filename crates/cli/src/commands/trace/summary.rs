//! Messages at the end of `dioptra trace record`.

use crate::commands::record::bytes;
use crate::output::say;
use anyhow::Context;
use dioptra_calls::{StreamWalk, WalkStep};
use dioptra_trace_recorder::TraceOutcome;
use dioptra_trace_report::{number_of, tracer_waits};
use dioptra_tracedata::Trace;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

/// The remedy for threads that wait for the tracer.
pub const TRACE_LESS: &str =
    "record fewer functions (-N, -U, -t), give more --memory, or let records go (--on-full drop)";

/// The largest trace, in bytes, that is read again to count its calls; that takes a moment only.
const READ_AT_ONCE: u64 = 64 << 20;

/// Writes losses and other warnings to standard error.
pub fn warnings(outcome: &TraceOutcome) {
    for text in outcome.notes.iter().chain(&outcome.warnings) {
        say!("{text}");
    }
    let ending = &outcome.ending;
    if let Some(text) = tracer_waits(ending) {
        eprintln!("dioptra: {text}; {TRACE_LESS}");
    }
    for (count, what) in [
        (
            ending.lost,
            "records were lost: raise --memory, or leave out functions with -U or -N",
        ),
        (
            ending.missed_in_handlers.unwrap_or(0),
            "calls in signal handlers were not recorded: they interrupted the tracer itself",
        ),
        (
            ending.missed_no_memory,
            "calls were not recorded for want of memory",
        ),
        (
            ending.lost_switches,
            "context switches were lost: the kernel had no room for them",
        ),
        (
            ending.uncounted_threads,
            "threads beyond those that can count at a time: of their sampled calls only the recorded ones are known",
        ),
    ] {
        if count > 0 {
            say!("{count} {what}");
        }
    }
}

/// Writes the figures to standard error. A failure here is no failure of the recording.
pub fn write(outcome: &TraceOutcome, folder: &Path, time: Duration) {
    let figures = Trace::open(folder)
        .context("reading it again")
        .map(|trace| figures(&trace, outcome, time));
    match figures {
        Ok([calls, patches]) => {
            say!("{calls}");
            say!("{patches}");
        }
        Err(error) => say!("the trace cannot be summed up: {error:#}"),
    }
}

/// Returns the line of figures and the line about patched functions. The first is such as `2692538 calls of 2 functions
/// in 0.08 s, 15.4 MiB (6.0 bytes a call), 0 lost: dioptra.trace`.
fn figures(trace: &Trace, outcome: &TraceOutcome, time: Duration) -> [String; 2] {
    let size = trace.record_bytes();
    let mut text = String::new();
    if size <= READ_AT_ONCE {
        let (calls, functions) = count(trace);
        let calls_of = number_of(calls, "call");
        let functions = number_of(functions as u64, "function");
        let _ = write!(text, "{calls_of} of {functions} in ");
        let _ = write!(text, "{:.2} s, {}", time.as_secs_f64(), bytes(size));
        if calls > 0 {
            let _ = write!(text, " ({:.1} bytes a call)", size as f64 / calls as f64);
        }
    } else {
        let _ = write!(text, "{:.2} s, {}", time.as_secs_f64(), bytes(size));
    }
    let lost = outcome.ending.lost;
    let folder = trace.folder().display();
    let _ = write!(text, ", {lost} lost: {folder}");
    if outcome.ending.discarded_chunks > 0 {
        let chunks = outcome.ending.discarded_chunks;
        let _ = write!(text, "; {chunks} older chunks were thrown away");
    }
    if outcome.processes > 1 {
        let _ = write!(text, "; {} process images", outcome.processes);
    }
    let mut methods: BTreeMap<&str, u64> = BTreeMap::new();
    let mut refused: BTreeMap<&str, u64> = BTreeMap::new();
    for module in trace.modules() {
        for (method, count) in &module.methods {
            *methods.entry(method).or_default() += u64::from(*count);
        }
        for refusal in &module.refused {
            *refused.entry(&refusal.reason).or_default() += u64::from(refusal.count);
        }
    }
    let list = |counts: &BTreeMap<&str, u64>| {
        let parts: Vec<String> = counts
            .iter()
            .map(|(what, n)| format!("{n} {what}"))
            .collect();
        parts.join(", ")
    };
    let mut patches = match methods.is_empty() {
        true => "no function was traced".to_owned(),
        false => format!("functions patched: {}", list(&methods)),
    };
    if !refused.is_empty() {
        let all: u64 = refused.values().sum();
        let _ = write!(patches, "; {all} cannot be patched: {}", list(&refused));
    }
    [text, patches]
}

/// Returns the number of calls that began, and the number of functions that were called.
fn count(trace: &Trace) -> (u64, usize) {
    let mut calls = 0;
    let mut called = vec![false; trace.function_count()];
    for stream in trace.streams() {
        for step in StreamWalk::new(trace, stream) {
            if let WalkStep::Enter { call, .. } = step {
                calls += 1;
                if let Some(called) = called.get_mut(call.function as usize) {
                    *called = true;
                }
            }
        }
    }
    (calls, called.into_iter().filter(|called| *called).count())
}
