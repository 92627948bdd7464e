//! The raw dump: each entry and exit, stream by stream.

use super::super::events::Event;
use super::super::render::{Labels, Output, push_number, push_timestamp};
use dioptra_calls::{
    CallEnding, FunctionNames, ShownStep, View, ViewLosses, ahead, arguments_text, returned_value,
};
use dioptra_tables::escape;
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
                    ShownStep::Leave {
                        ending: CallEnding::Open,
                        ..
                    }
                );
                let event = match shown {
                    ShownStep::Enter { call, .. } | ShownStep::Leave { call, .. } => {
                        Event::of(trace, call.function)
                    }
                    _ => None,
                };
                let is_told = matches!(shown, ShownStep::Leave { .. })
                    && event.is_some_and(|event| !event.is_period());
                if is_open || is_told || !range.contains(shown.time()) {
                    continue;
                }
                let text = &mut out.text;
                push_timestamp(text, shown.time(), 15);
                push_number(text, u64::from(stream.tid), 7);
                text.extend_from_slice(b": ");
                let call = match (shown, event) {
                    (ShownStep::Enter { .. }, Some(event)) => {
                        text.extend_from_slice(b"[event] ");
                        text.extend_from_slice(event.begin().as_bytes());
                        None
                    }
                    (ShownStep::Leave { .. }, Some(_)) => {
                        text.extend_from_slice(b"[event] linux:sched-in");
                        None
                    }
                    (ShownStep::Enter { call, .. }, None) if call.entered.is_none() => {
                        text.extend_from_slice(b"[open ] ");
                        Some(call)
                    }
                    (ShownStep::Enter { call, .. }, None) => {
                        text.extend_from_slice(b"[entry] ");
                        Some(call)
                    }
                    (ShownStep::Leave { call, ending, .. }, None) => {
                        text.extend_from_slice(match ending {
                            CallEnding::Returned => b"[exit ] ",
                            CallEnding::Unwound(_) => b"[unwnd] ",
                            _ => b"[gone ] ",
                        });
                        Some(call)
                    }
                    (ShownStep::Lost { records, .. }, _) => {
                        text.extend_from_slice(format!("[lost ] {records} records").as_bytes());
                        None
                    }
                    (ShownStep::Switch { stack, .. }, _) => {
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
                    match shown {
                        _ if call.values == 0 => {}
                        ShownStep::Enter { .. } => {
                            let arguments = arguments_text(trace, &call);
                            text.extend_from_slice(format!(" args: ({arguments})").as_bytes());
                        }
                        _ => {
                            if let Some(value) = returned_value(trace, &call) {
                                text.extend_from_slice(format!(" retval: {value}").as_bytes());
                            }
                        }
                    }
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
