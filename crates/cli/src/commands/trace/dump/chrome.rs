//! Chrome's trace events, in JSON.

use super::super::events::Event;
use super::super::render::{Output, push_thousandths};
use dioptra_calls::{CallEnding, FunctionNames, OpenCalls, ShownStep, View, ViewLosses, ahead};
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
    // Lines are pieced together from parts that are made once for each stream.
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
    let range = view.range();
    let first_event = trace.event_id(EventPlace::Schedule).unwrap_or(u32::MAX);
    let mut lines = Lines {
        names,
        middles,
        quoted: vec![None; trace.function_count() + 1],
        first,
    };
    let mut open: Vec<OpenCalls<Begun>> = Vec::new();
    open.resize_with(view.streams().len(), OpenCalls::default);
    let (written, merged) = ahead(view.merged(), |merged| -> io::Result<()> {
        for (place, shown) in merged {
            let (time, open) = (shown.time(), &mut open[place]);
            let in_range = range.contains(time);
            if let Some(start) = range.start.filter(|_| in_range) {
                // Calls that began before the range are written as beginning at its start.
                for begun in open.current_mut().iter_mut().filter(|b| !b.is_written) {
                    begun.is_written = true;
                    lines.write(place, start, BEGIN, begun.function, BEFORE, out)?;
                }
            }
            match shown {
                ShownStep::Lost { records, .. } if in_range => {
                    separate(out, &mut lines.first);
                    let stream = view.streams()[place];
                    let line = format!(
                        "{{\"ts\":{}.{:03},\"ph\":\"i\",\"pid\":{},\"tid\":{},\"name\":\"LOST\",\"s\":\"t\",\"args\":{{\"records\":{records}}}}}",
                        time / 1000,
                        time % 1000,
                        stream.pid,
                        stream.tid
                    );
                    out.text.extend_from_slice(line.as_bytes());
                }
                ShownStep::Lost { .. } => {}
                ShownStep::Switch { stack, .. } => open.switch(stack),
                ShownStep::Enter { call, .. } => {
                    let event = match call.function >= first_event {
                        true => Event::of(trace, call.function).filter(|e| !e.is_period()),
                        false => None,
                    };
                    let function = call.function;
                    // Events that are moments have no end.
                    let (is_moment, is_written) = (event.is_some(), in_range || event.is_some());
                    open.push(Begun {
                        function,
                        is_moment,
                        is_written,
                    });
                    match event {
                        _ if !in_range => {}
                        Some(event) => {
                            moment(event, time, view.streams()[place], &mut lines.first, out)?;
                        }
                        None => {
                            let args = if call.entered.is_none() { BEFORE } else { "" };
                            lines.write(place, time, BEGIN, function, args, out)?;
                        }
                    }
                }
                ShownStep::Leave { call, ending, .. } => {
                    let begun = open.pop();
                    let is_begun = begun.is_some_and(|b| b.is_written && !b.is_moment);
                    // The end of a range cuts calls off; at the end of the trace their end is unknown.
                    let is_open = ending == CallEnding::Open && range.stop.is_none();
                    if in_range && is_begun && !is_open {
                        let args = match ending {
                            CallEnding::Returned => "",
                            CallEnding::Open => ",\"args\":{\"end\":\"later\"}",
                            CallEnding::Unwound(cause) => {
                                &format!(",\"args\":{{\"unwound\":\"{cause:?}\"}}")
                            }
                            _ => ",\"args\":{\"end\":\"missing\"}",
                        };
                        lines.write(place, time, END, call.function, args, out)?;
                    }
                }
            }
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

/// A call that has begun.
struct Begun {
    function: u32,
    /// Whether this is an event that takes no time and has no end.
    is_moment: bool,
    /// Whether the beginning is written, or needs no writing.
    is_written: bool,
}

const BEGIN: usize = 0;
const END: usize = 1;
const BEFORE: &str = ",\"args\":{\"began\":\"before\"}";

/// The writer of beginnings and ends, each a line.
struct Lines<'n, 't> {
    names: &'n FunctionNames<'t>,
    /// By the stream's index: the parts of a beginning and of an end between time and name.
    middles: Vec<[String; 2]>,
    /// Quoted names by function; the last one stands for functions that are not in the table.
    quoted: Vec<Option<Box<str>>>,
    first: bool,
}

impl Lines<'_, '_> {
    fn write(
        &mut self,
        place: usize,
        time: u64,
        phase: usize,
        function: u32,
        args: &str,
        out: &mut Output,
    ) -> io::Result<()> {
        separate(out, &mut self.first);
        let text = &mut out.text;
        text.extend_from_slice(b"{\"ts\":");
        push_thousandths(text, time);
        text.extend_from_slice(self.middles[place][phase].as_bytes());
        let name = (function as usize).min(self.quoted.len() - 1);
        let name = match &mut self.quoted[name] {
            Some(name) => &*name,
            name => {
                let made = serde_json::to_string(self.names.get(function));
                &*name.insert(made.map_err(io::Error::from)?.into())
            }
        };
        text.extend_from_slice(name.as_bytes());
        text.extend_from_slice(args.as_bytes());
        text.push(b'}');
        Ok(())
    }
}

/// Writes an event of a thread as an instant event. A new name also becomes the thread's name in the viewer.
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
