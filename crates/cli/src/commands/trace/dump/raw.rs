//! Each entry and exit, stream by stream.

use super::super::render::{Labels, Output, push_number, push_timestamp};
use dioptra_calls::{Call, Ending, FunctionNames, Shown, View, ViewLosses, ahead};
use dioptra_report::escape;
use dioptra_tracelayout::EventPlace;
use std::io;

pub fn write(
    view: &View<'_>,
    names: &FunctionNames<'_>,
    out: &mut Output,
) -> io::Result<ViewLosses> {
    let trace = view.trace();
    let info = trace.info();
    for (what, value) in [
        ("layout", info.layout.to_string()),
        ("recorder", info.recorder.clone()),
        ("command", info.command.join(" ")),
        (
            "clock",
            format!("{} (shifted by {})", info.clock.source, info.clock.shift),
        ),
        ("functions", trace.function_count().to_string()),
        ("streams", trace.streams().len().to_string()),
        ("record bytes", trace.record_bytes().to_string()),
    ] {
        out.line(&format!("dioptra trace: {what:<13} = {}", escape(&value)));
    }
    let mut labels = Labels::new(names, false);
    let mut losses = ViewLosses::default();
    let range = view.range();
    for (place, stream) in view.streams().iter().enumerate() {
        out.line("");
        let line = format!(
            "reading stream {}: thread {} of process {}, {} chunks, {}",
            stream.stream,
            stream.tid,
            stream.pid,
            stream.chunk_count(),
            escape(view.task_name(place))
        );
        out.line(&line);
        let (written, calls) = ahead(view.calls(place), |calls| -> io::Result<()> {
            for shown in calls {
                let is_open = matches!(
                    shown,
                    Shown::Leave {
                        ending: Ending::Open,
                        ..
                    }
                );
                if is_open || !range.contains(shown.time()) {
                    continue;
                }
                let text = &mut out.text;
                push_timestamp(text, shown.time(), 15);
                push_number(text, u64::from(stream.tid), 7);
                text.extend_from_slice(b": ");
                let event = |call: &Call| trace.function(call.function).as_event();
                let call = match shown {
                    Shown::Enter { call, .. } if event(&call).is_some() => {
                        text.extend_from_slice(match event(&call) {
                            Some(EventPlace::SchedulePreempted) => {
                                b"[event] linux:sched-out (pre-empted)"
                            }
                            _ => &b"[event] linux:sched-out"[..],
                        });
                        None
                    }
                    Shown::Leave { call, .. } if event(&call).is_some() => {
                        text.extend_from_slice(b"[event] linux:sched-in");
                        None
                    }
                    Shown::Enter { call, .. } if call.entered.is_none() => {
                        text.extend_from_slice(b"[open ] ");
                        Some(call)
                    }
                    Shown::Enter { call, .. } => {
                        text.extend_from_slice(b"[entry] ");
                        Some(call)
                    }
                    Shown::Leave { call, ending, .. } => {
                        text.extend_from_slice(match ending {
                            Ending::Returned => b"[exit ] ",
                            Ending::Unwound(_) => b"[unwnd] ",
                            _ => b"[gone ] ",
                        });
                        Some(call)
                    }
                    Shown::Lost { records, .. } => {
                        text.extend_from_slice(format!("[lost ] {records} records").as_bytes());
                        None
                    }
                    Shown::Switch { stack, .. } => {
                        text.extend_from_slice(format!("[stack] {stack}").as_bytes());
                        None
                    }
                };
                if let Some(call) = call {
                    let text = &mut out.text;
                    text.extend_from_slice(labels.get(call.function).as_bytes());
                    text.push(b'(');
                    push_number(text, u64::from(call.function), 0);
                    text.extend_from_slice(b") depth: ");
                    push_number(text, u64::from(call.depth), 0);
                }
                out.text.push(b'\n');
                out.flush_some()?;
            }
            Ok(())
        });
        written?;
        losses += calls.losses();
    }
    Ok(losses)
}
