//! Call paths as a file of speedscope: a profile for each thread, each path with its self time.

use super::paths::{PathFunction, TracePaths, Written};
use super::{ExportedTrace, TraceSource};
use crate::error::ExportError;
use crate::lost::LostKind;
use hashbrown::HashMap;
use serde_json::json;
use std::io::Write;

/// The kinds of data that the format has no place for.
const NO_PLACE: &[LostKind] = &[
    LostKind::CallNumbers,
    LostKind::CallMoments,
    LostKind::OpenMarks,
];

/// Writes call paths as a file of speedscope, with self times in nanoseconds.
///
/// # Errors
/// Writing failed.
pub fn write_trace_speedscope(
    source: &TraceSource<'_, '_>,
    out: &mut dyn Write,
) -> Result<ExportedTrace, ExportError> {
    let paths = TracePaths::of(source);
    let mut written = Written::default();
    let mut frames: HashMap<PathFunction, usize> = HashMap::new();
    let mut used: Vec<PathFunction> = Vec::new();
    let mut functions = Vec::new();
    out.write_all(
        br#"{"$schema":"https://www.speedscope.app/file-format-schema.json","exporter":"dioptra","activeProfileIndex":0,"profiles":["#,
    )?;
    for (number, thread) in paths.threads.iter().enumerate() {
        let stream = source.view.streams()[thread.place];
        let comm = source.thread_name(thread.place);
        let title = format!("{comm} {}/{} self time", stream.pid, stream.tid);
        let timed: Vec<usize> = (0..thread.nodes.len())
            .filter(|node| thread.nodes[*node].self_time > 0)
            .collect();
        let times = timed.iter().map(|node| thread.nodes[*node].self_time);
        let end = times.fold(0, u64::saturating_add);
        write!(
            out,
            r#"{}{{"type":"sampled","name":{},"unit":"nanoseconds","startValue":0,"endValue":{end},"samples":["#,
            if number == 0 { "" } else { "," },
            json!(title)
        )?;
        for (place, node) in timed.iter().enumerate() {
            out.write_all(if place == 0 { b"[" } else { b",[" })?;
            thread.functions(*node, &mut functions);
            for (place, function) in functions.iter().enumerate() {
                let frame = *frames.entry(*function).or_insert_with(|| {
                    used.push(*function);
                    used.len() - 1
                });
                let comma = if place == 0 { "" } else { "," };
                write!(out, "{comma}{frame}")?;
            }
            out.write_all(b"]")?;
        }
        out.write_all(br#"],"weights":["#)?;
        for (place, node) in timed.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            write!(out, "{comma}{}", thread.nodes[*node].self_time)?;
            written.add(&thread.nodes[*node]);
        }
        out.write_all(b"]}")?;
    }
    out.write_all(br#"],"shared":{"frames":["#)?;
    for (place, function) in used.iter().enumerate() {
        let comma = if place == 0 { "" } else { "," };
        let frame = json!({ "name": paths.name(*function) });
        write!(out, "{comma}{frame}")?;
    }
    out.write_all(b"]}}\n")?;
    paths.exported(written, NO_PLACE)
}
