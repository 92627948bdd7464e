//! Chrome's trace events, in JSON.

use super::super::events::Event;
use super::super::render::{Output, push_thousandths};
use dioptra_calls::{Ending, FunctionNames, Shown, View, ViewLosses, ahead};
use dioptra_tracedata::Stream;
use dioptra_tracelayout::EventPlace;
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
    // Beginnings and ends are pieced together from parts that are made once.
    let middles: Vec<[String; 2]> = view
        .streams()
        .iter()
        .map(|stream| {
            let middle = |phase| {
                let (pid, tid) = (stream.pid, stream.tid);
                format!(",\"ph\":\"{phase}\",\"pid\":{pid},\"tid\":{tid},\"name\":")
            };
            [middle('B'), middle('E')]
        })
        .collect();
    // Names with their quotes, by function; of those that are not in the table at the end.
    let mut quoted: Vec<Option<Box<str>>> = vec![None; trace.function_count() + 1];
    let range = view.range();
    let first_event = trace.event_id(EventPlace::Schedule).unwrap_or(u32::MAX);
    let (written, merged) = ahead(view.merged(), |merged| -> io::Result<()> {
        for (place, shown) in merged {
            if !range.contains(shown.time()) {
                continue;
            }
            let (end, call) = match shown {
                Shown::Enter { call, .. } => (0, call),
                Shown::Leave {
                    ending: Ending::Open,
                    ..
                } => continue,
                Shown::Leave { call, .. } => (1, call),
                Shown::Lost { time, records } => {
                    separate(out, &mut first);
                    let stream = view.streams()[place];
                    let line = format!(
                        "{{\"ts\":{}.{:03},\"ph\":\"i\",\"pid\":{},\"tid\":{},\"name\":\"LOST\",\"s\":\"t\",\"args\":{{\"records\":{records}}}}}",
                        time / 1000,
                        time % 1000,
                        stream.pid,
                        stream.tid
                    );
                    out.text.extend_from_slice(line.as_bytes());
                    continue;
                }
                Shown::Switch { .. } => continue,
            };
            if call.function >= first_event
                && let Some(event) = Event::of(trace, call.function)
                && !event.is_period()
            {
                if end == 0 {
                    let stream = view.streams()[place];
                    moment(event, shown.time(), stream, &mut first, out)?;
                }
                continue;
            }
            separate(out, &mut first);
            let text = &mut out.text;
            text.extend_from_slice(b"{\"ts\":");
            push_thousandths(text, shown.time());
            text.extend_from_slice(middles[place][end].as_bytes());
            let name = (call.function as usize).min(quoted.len() - 1);
            let name = match &mut quoted[name] {
                Some(name) => &*name,
                name => {
                    let made = serde_json::to_string(names.get(call.function));
                    &*name.insert(made.map_err(io::Error::from)?.into())
                }
            };
            text.extend_from_slice(name.as_bytes());
            match shown {
                Shown::Enter { call, .. } if call.entered.is_none() => {
                    text.extend_from_slice(b",\"args\":{\"began\":\"before\"}");
                }
                Shown::Leave {
                    ending: Ending::Returned,
                    ..
                } => {}
                Shown::Leave {
                    ending: Ending::Unwound(cause),
                    ..
                } => {
                    let args = format!(",\"args\":{{\"unwound\":\"{cause:?}\"}}");
                    text.extend_from_slice(args.as_bytes());
                }
                Shown::Leave { .. } => text.extend_from_slice(b",\"args\":{\"end\":\"missing\"}"),
                _ => {}
            }
            text.push(b'}');
            out.flush_some()?;
        }
        Ok(())
    });
    written?;
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

/// What became of a thread: an instant event; a new name is the thread's from then on.
fn moment(
    event: Event<'_>,
    time: u64,
    stream: &Stream,
    first: &mut bool,
    out: &mut Output,
) -> io::Result<()> {
    let mut head = Vec::new();
    push_thousandths(&mut head, time);
    let head = String::from_utf8_lossy(&head).into_owned();
    let (pid, tid, name) = (stream.pid, stream.tid, event.place.name());
    let comm = serde_json::to_string(event.name).map_err(io::Error::from)?;
    let is_name = event.place == EventPlace::TaskName;
    let args = match is_name {
        true => format!(",\"args\":{{\"comm\":{comm}}}"),
        false => String::new(),
    };
    separate(out, first);
    let line = format!(
        "{{\"ts\":{head},\"ph\":\"i\",\"pid\":{pid},\"tid\":{tid},\"name\":\"{name}\",\"s\":\"t\"{args}}}"
    );
    out.text.extend_from_slice(line.as_bytes());
    if is_name {
        separate(out, first);
        let name = format!("[{tid}] {}", event.name);
        let name = serde_json::to_string(&name).map_err(io::Error::from)?;
        let line = format!(
            "{{\"ts\":0,\"ph\":\"M\",\"pid\":{pid},\"tid\":{tid},\"name\":\"thread_name\",\"args\":{{\"name\":{name}}}}}"
        );
        out.text.extend_from_slice(line.as_bytes());
    }
    Ok(())
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
