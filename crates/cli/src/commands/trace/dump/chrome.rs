//! Chrome's trace events, in JSON.

use super::super::render::{Output, push_number, push_three};
use dioptra_calls::{Ending, FunctionNames, Shown, View, ViewLosses};
use std::io;

pub fn write(
    view: &View<'_>,
    names: &FunctionNames<'_>,
    out: &mut Output,
) -> io::Result<ViewLosses> {
    let trace = view.trace();
    out.line("{\"traceEvents\":[");
    let mut first = true;
    for (place, stream) in view.streams().iter().enumerate() {
        let name = format!("[{}] {}", stream.tid, view.task_name(place));
        let name = serde_json::to_string(&name).map_err(io::Error::from)?;
        for what in ["process_name", "thread_name"] {
            if what == "process_name" && stream.tid != stream.pid {
                continue;
            }
            separate(out, &mut first);
            let line = format!(
                "{{\"ts\":0,\"ph\":\"M\",\"pid\":{},\"tid\":{},\"name\":\"{what}\",\"args\":{{\"name\":{name}}}}}",
                stream.pid, stream.tid
            );
            out.text.extend_from_slice(line.as_bytes());
        }
    }
    // Names with their quotes, by function.
    let mut quoted: Vec<Option<Box<str>>> = vec![None; trace.function_count()];
    let range = view.range();
    let mut merged = view.merged();
    for (place, shown) in merged.by_ref() {
        if !range.contains(shown.time()) {
            continue;
        }
        let stream = view.streams()[place];
        let (phase, call, ending) = match shown {
            Shown::Enter { call, .. } => (b'B', Some(call), None),
            Shown::Leave {
                ending: Ending::Open,
                ..
            } => continue,
            Shown::Leave { call, ending, .. } => (b'E', Some(call), Some(ending)),
            Shown::Lost { .. } => (b'i', None, None),
            Shown::Switch { .. } => continue,
        };
        separate(out, &mut first);
        let text = &mut out.text;
        text.extend_from_slice(b"{\"ts\":");
        push_number(text, shown.time() / 1000, 0);
        text.push(b'.');
        push_three(text, shown.time() % 1000);
        text.extend_from_slice(b",\"ph\":\"");
        text.push(phase);
        text.extend_from_slice(b"\",\"pid\":");
        push_number(text, u64::from(stream.pid), 0);
        text.extend_from_slice(b",\"tid\":");
        push_number(text, u64::from(stream.tid), 0);
        text.extend_from_slice(b",\"name\":");
        match (call, shown) {
            (Some(call), _) => {
                let name = match quoted.get_mut(call.function as usize) {
                    Some(Some(name)) => &*name,
                    Some(name) => {
                        let made = serde_json::to_string(names.get(call.function));
                        &*name.insert(made.map_err(io::Error::from)?.into())
                    }
                    None => "\"<unknown>\"",
                };
                text.extend_from_slice(name.as_bytes());
                if call.entered.is_none() && ending.is_none() {
                    text.extend_from_slice(b",\"args\":{\"began\":\"before\"}");
                }
            }
            (None, Shown::Lost { records, .. }) => {
                let args = format!("\"LOST\",\"s\":\"t\",\"args\":{{\"records\":{records}}}");
                text.extend_from_slice(args.as_bytes());
            }
            (None, _) => text.extend_from_slice(b"\"\""),
        }
        match ending {
            None | Some(Ending::Returned) => {}
            Some(Ending::Unwound(cause)) => {
                let args = format!(",\"args\":{{\"unwound\":\"{cause:?}\"}}");
                text.extend_from_slice(args.as_bytes());
            }
            Some(_) => text.extend_from_slice(b",\"args\":{\"end\":\"missing\"}"),
        }
        text.push(b'}');
        out.flush_some()?;
    }
    let info = trace.info();
    let metadata = serde_json::json!({
        "version": info.recorder,
        "command_line": info.command,
        "started_realtime_ns": info.started_realtime,
        "start_monotonic_ns": info.clock.start.monotonic,
        "losses": losses_json(&merged.losses()),
    });
    out.line("");
    out.line(&format!(
        "], \"displayTimeUnit\": \"ns\", \"metadata\": {metadata} }}"
    ));
    Ok(merged.losses())
}

fn losses_json(losses: &ViewLosses) -> serde_json::Value {
    serde_json::json!({
        "records": losses.walk.records,
        "gaps": losses.walk.gaps,
        "malformed_chunks": losses.walk.malformed,
        "stray_exits": losses.walk.stray_exits,
        "missing_ends": losses.missing_ends,
        "missing_beginnings": losses.missing_beginnings,
    })
}

fn separate(out: &mut Output, first: &mut bool) {
    if !std::mem::take(first) {
        out.text.extend_from_slice(b",\n");
    }
}
