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
    let mut lines = Lines::default();
    let mut labels: HashMap<PathFunction, u32> = HashMap::new();
    let mut written = Written::default();
    for thread in &paths.threads {
        let comm = lines.label(source.thread_name(thread.place));
        let root = lines.below(0, comm);
        // By node: its line.
        let mut places: Vec<usize> = Vec::with_capacity(thread.nodes.len());
        for node in &thread.nodes {
            let label = *labels
                .entry(node.function)
                .or_insert_with(|| lines.label(paths.name(node.function)));
            let around = node.parent.map_or(root, |parent| places[parent]);
            let place = lines.below(around, label);
            let line = &mut lines.nodes[place];
            line.value = line.value.saturating_add(of(value, node));
            places.push(place);
            written.add(node);
        }
    }
    let changed = number(lines.changed.len());
    lines.write(out)?;
    let mut exported = paths.exported(written, &no_place(value))?;
    if changed > 0 {
        exported.lost.push(Lost {
            kind: LostKind::Characters,
            count: changed,
        });
    }
    Ok(exported)
}

/// The lines of all threads, as a tree of names. A line is made when it is written: those of deep paths are long.
struct Lines {
    /// Node 0 is the root.
    nodes: Vec<Line>,
    ids: HashMap<(usize, u32), usize>,
    /// Names without separators, each once.
    labels: Vec<String>,
    label_ids: HashMap<String, u32>,
    /// The names that held separators.
    changed: HashSet<String>,
}

/// A name below its callers.
#[derive(Default)]
struct Line {
    label: u32,
    value: u64,
    below: Vec<usize>,
}

impl Default for Lines {
    fn default() -> Self {
        Lines {
            nodes: vec![Line::default()],
            ids: HashMap::new(),
            labels: Vec::new(),
            label_ids: HashMap::new(),
            changed: HashSet::new(),
        }
    }
}

impl Lines {
    /// Returns the number of a name.
    fn label(&mut self, name: &str) -> u32 {
        let text = plain(name);
        if matches!(text, Cow::Owned(_)) {
            self.changed.insert(name.to_owned());
        }
        if let Some(known) = self.label_ids.get(&*text) {
            return *known;
        }
        // There are at most as many names as functions and threads, whose ids have 32 bits.
        let id = u32::try_from(self.labels.len()).unwrap_or(u32::MAX);
        self.labels.push(text.clone().into_owned());
        self.label_ids.insert(text.into_owned(), id);
        id
    }

    /// Returns the node of a name below another one.
    fn below(&mut self, caller: usize, label: u32) -> usize {
        let next = self.nodes.len();
        let at = *self.ids.entry((caller, label)).or_insert(next);
        if at == next {
            self.nodes.push(Line {
                label,
                ..Line::default()
            });
            self.nodes[caller].below.push(at);
        }
        at
    }

    /// Writes the lines that have a value, in the order of their names.
    fn write(mut self, out: &mut dyn Write) -> Result<(), ExportError> {
        let mut line = String::new();
        let mut waiting = vec![(0, 0)];
        while let Some((at, length)) = waiting.pop() {
            line.truncate(length);
            if at != 0 {
                if length > 0 {
                    line.push(';');
                }
                line.push_str(&self.labels[self.nodes[at].label as usize]);
            }
            if self.nodes[at].value > 0 {
                writeln!(out, "{line} {}", self.nodes[at].value)?;
            }
            let mut below = std::mem::take(&mut self.nodes[at].below);
            let name = |node: &usize| &self.labels[self.nodes[*node].label as usize];
            below.sort_by(|one, other| name(other).cmp(name(one)));
            waiting.extend(below.into_iter().map(|node| (node, line.len())));
        }
        Ok(())
    }
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
