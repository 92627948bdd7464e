//! Call paths as collapsed stacks, and as a flame graph.

use super::paths::{PathFunction, TracePaths, Written};
use super::{ExportedTrace, TraceSource};
use crate::collapsed::plain;
use crate::error::ExportError;
use crate::flamegraph::Picture;
use crate::lost::{Lost, LostKind, number};
use crate::source::Value;
use hashbrown::{HashMap, HashSet};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Write;

/// Returns the kinds of data that both formats have no place for.
fn no_place(value: Value) -> [LostKind; 4] {
    [
        match value {
            Value::Weight => LostKind::CallNumbers,
            Value::Samples => LostKind::SelfTimes,
        },
        LostKind::CallMoments,
        LostKind::Threads,
        LostKind::OpenMarks,
    ]
}

/// Returns the value of a node.
fn of(value: Value, node: &super::paths::PathNode) -> u64 {
    match value {
        Value::Weight => node.self_time,
        Value::Samples => node.calls,
    }
}

/// Writes call paths as collapsed stacks: self times in nanoseconds, or with [`Value::Samples`] numbers of calls. The
/// first name of each line is the thread's. Lines are ordered by their names.
///
/// # Errors
/// Writing failed.
pub fn write_trace_collapsed(
    source: &TraceSource<'_, '_>,
    value: Value,
    out: &mut dyn Write,
) -> Result<ExportedTrace, ExportError> {
    let paths = TracePaths::of(source);
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    let mut changed: HashSet<&str> = HashSet::new();
    let mut written = Written::default();
    let mut functions = Vec::new();
    for thread in &paths.threads {
        let comm = source.thread_name(thread.place);
        let mut text = |line: &mut String, name| {
            let plain = plain(name);
            if matches!(plain, Cow::Owned(_)) {
                changed.insert(name);
            }
            line.push_str(&plain);
        };
        for (at, node) in thread.nodes.iter().enumerate() {
            written.add(node);
            if of(value, node) == 0 {
                continue;
            }
            let mut line = String::new();
            text(&mut line, comm);
            thread.functions(at, &mut functions);
            for function in &functions {
                line.push(';');
                text(&mut line, paths.name(*function));
            }
            let sum = lines.entry(line).or_default();
            *sum = sum.saturating_add(of(value, node));
        }
    }
    for (line, value) in &lines {
        writeln!(out, "{line} {value}")?;
    }
    let mut exported = paths.exported(written, &no_place(value))?;
    if !changed.is_empty() {
        exported.lost.push(Lost {
            kind: LostKind::Characters,
            count: number(changed.len()),
        });
    }
    Ok(exported)
}

/// Writes call paths as a flame graph of self times in nanoseconds, or with [`Value::Samples`] of numbers of calls.
///
/// # Errors
/// Writing failed.
pub fn write_trace_flamegraph(
    source: &TraceSource<'_, '_>,
    value: Value,
    out: &mut dyn Write,
) -> Result<ExportedTrace, ExportError> {
    let paths = TracePaths::of(source);
    let (title, unit) = match value {
        Value::Weight => ("self time", "ns"),
        Value::Samples => ("calls", "calls"),
    };
    let mut picture = Picture::new(unit);
    let mut labels: HashMap<PathFunction, u32> = HashMap::new();
    let mut comms: HashMap<&str, u32> = HashMap::new();
    let mut written = Written::default();
    for thread in &paths.threads {
        let comm = source.thread_name(thread.place);
        let comm = *comms.entry(comm).or_insert_with(|| picture.label(comm));
        let root = picture.below(0, comm);
        // By node: its frame.
        let mut frames: Vec<usize> = Vec::with_capacity(thread.nodes.len());
        for node in &thread.nodes {
            let label = *labels
                .entry(node.function)
                .or_insert_with(|| picture.label(paths.name(node.function)));
            let around = node.parent.map_or(root, |parent| frames[parent]);
            let frame = picture.below(around, label);
            picture.add(frame, of(value, node));
            frames.push(frame);
            written.add(node);
        }
    }
    let (_, narrow) = picture.write(title, out)?;
    let mut exported = paths.exported(written, &no_place(value))?;
    if narrow > 0 {
        exported.lost.push(Lost {
            kind: LostKind::NarrowFrames,
            count: narrow,
        });
    }
    Ok(exported)
}
