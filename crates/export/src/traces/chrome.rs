//! Calls as Chrome's trace events, in JSON.

use super::slices::{Moment, SliceWriter, TaskMoment, argument_name, each, ending_words};
use super::{ExportedTrace, TraceSource};
use crate::error::ExportError;
use crate::lost::{Lost, LostKind};
use dioptra_calls::{Call, CallEnding, ViewLosses, arguments, returned_value};
use dioptra_tracedata::{Digits, Value};
use dioptra_tracelayout::EventPlace;
use serde_json::{Map, json};
use std::io::{self, Write};

/// Writes calls as Chrome's trace events: each call begins and ends, in microseconds of `CLOCK_MONOTONIC` with three
/// decimals.
///
/// # Errors
/// Writing failed.
pub fn write_trace_chrome(
    source: &TraceSource<'_, '_>,
    out: &mut dyn Write,
) -> Result<ExportedTrace, ExportError> {
    let view = source.view;
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
    let mut writer = Writer {
        source,
        middles,
        quoted: vec![None; view.trace().function_count() + 1],
        first: true,
        text: Vec::new(),
        out,
    };
    writer.text.extend_from_slice(b"{\"traceEvents\":[\n");
    writer.names()?;
    let slices = each(view, &mut writer)?;
    let info = view.trace().info();
    let metadata = json!({
        "version": info.recorder,
        "command_line": info.command,
        "started_realtime_ns": info.started_realtime,
        "start_monotonic_ns": info.clock.start.monotonic,
        "losses": losses_json(&slices.losses),
    });
    let end = format!("\n], \"displayTimeUnit\": \"ns\", \"metadata\": {metadata} }}\n");
    writer.text.extend_from_slice(end.as_bytes());
    writer.out.write_all(&writer.text)?;
    let mut lost = Vec::new();
    if view.is_sampled() && slices.calls > 0 {
        lost.push(Lost {
            kind: LostKind::CallWeights,
            count: slices.calls,
        });
    }
    Ok(ExportedTrace {
        calls: Some(slices.calls),
        began_before: slices.began_before,
        open: slices.open,
        losses: slices.losses,
        lost,
        ..ExportedTrace::default()
    })
}

/// The number of bytes from which on the text is written.
const FULL: usize = 1 << 16;

const BEGIN: usize = 0;
const END: usize = 1;

struct Writer<'a, 't, 'o> {
    source: &'a TraceSource<'a, 't>,
    /// By the stream's index: the parts of a beginning and of an end between time and name.
    middles: Vec<[String; 2]>,
    /// Quoted names by function; the last one stands for functions that are not in the table.
    quoted: Vec<Option<Box<str>>>,
    first: bool,
    text: Vec<u8>,
    out: &'o mut dyn Write,
}

impl Writer<'_, '_, '_> {
    fn separate(&mut self) {
        if !std::mem::take(&mut self.first) {
            self.text.extend_from_slice(b",\n");
        }
    }

    fn flush_some(&mut self) -> io::Result<()> {
        if self.text.len() >= FULL {
            self.out.write_all(&self.text)?;
            self.text.clear();
        }
        Ok(())
    }

    /// Writes the names of processes and threads.
    fn names(&mut self) -> io::Result<()> {
        let view = self.source.view;
        for (place, stream) in view.streams().iter().enumerate() {
            let name = format!("[{}] {}", stream.tid, view.task_name(place));
            let name = serde_json::to_string(&name)?;
            for what in ["process_name", "thread_name"] {
                if what == "process_name" && stream.tid != stream.pid {
                    continue;
                }
                self.separate();
                let line = format!(
                    "{{\"ts\":0,\"ph\":\"M\",\"pid\":{},\"tid\":{},\"name\":\"{what}\",\"args\":{{\"name\":{name}}}}}",
                    stream.pid, stream.tid
                );
                self.text.extend_from_slice(line.as_bytes());
            }
        }
        Ok(())
    }

    fn line(
        &mut self,
        at: Moment,
        phase: usize,
        function: u32,
        args: Map<String, serde_json::Value>,
    ) -> io::Result<()> {
        self.separate();
        self.text.extend_from_slice(b"{\"ts\":");
        push_microseconds(&mut self.text, at.time);
        self.text
            .extend_from_slice(self.middles[at.place][phase].as_bytes());
        let name = (function as usize).min(self.quoted.len() - 1);
        let name = match &mut self.quoted[name] {
            Some(name) => &*name,
            name => {
                let made = serde_json::to_string(self.source.names.get(function))?;
                &*name.insert(made.into())
            }
        };
        self.text.extend_from_slice(name.as_bytes());
        if !args.is_empty() {
            self.text.extend_from_slice(b",\"args\":");
            serde_json::to_writer(&mut self.text, &args)?;
        }
        self.text.push(b'}');
        self.flush_some()
    }
}

impl SliceWriter for Writer<'_, '_, '_> {
    fn begin(
        &mut self,
        at: Moment,
        function: u32,
        began_before: bool,
        call: Option<&Call>,
    ) -> io::Result<()> {
        let mut args = Map::new();
        if began_before {
            args.insert("began".to_owned(), "before".into());
        }
        let trace = self.source.view.trace();
        for (described, value) in call.iter().flat_map(|call| arguments(trace, call)) {
            args.insert(argument_name(described).to_owned(), json_of(&value));
        }
        self.line(at, BEGIN, function, args)
    }

    fn end(&mut self, at: Moment, call: &Call, ending: CallEnding) -> io::Result<()> {
        let mut args = Map::new();
        if let Some(value) = returned_value(self.source.view.trace(), call) {
            args.insert("retval".to_owned(), json_of(&value));
        }
        if let Some((key, word)) = ending_words(ending) {
            args.insert(key.to_owned(), word.into());
        }
        self.line(at, END, call.function, args)
    }

    /// Writes an event of a thread as an instant event. A new name also becomes the thread's name in the viewer.
    fn moment(&mut self, at: Moment, event: TaskMoment<'_>) -> io::Result<()> {
        let stream = self.source.view.streams()[at.place];
        let (pid, tid, name) = (stream.pid, stream.tid, event.event.name());
        let is_name = event.event == EventPlace::TaskName;
        let args = match is_name {
            true => format!(",\"args\":{}", json!({ "comm": event.name })),
            false => String::new(),
        };
        self.separate();
        self.text.extend_from_slice(b"{\"ts\":");
        push_microseconds(&mut self.text, at.time);
        let rest = format!(
            ",\"ph\":\"i\",\"pid\":{pid},\"tid\":{tid},\"name\":\"{name}\",\"s\":\"t\"{args}}}"
        );
        self.text.extend_from_slice(rest.as_bytes());
        if is_name {
            self.separate();
            let name = format!("[{tid}] {}", event.name);
            let line = format!(
                "{{\"ts\":0,\"ph\":\"M\",\"pid\":{pid},\"tid\":{tid},\"name\":\"thread_name\",\"args\":{}}}",
                json!({ "name": name })
            );
            self.text.extend_from_slice(line.as_bytes());
        }
        self.flush_some()
    }

    fn lost(&mut self, at: Moment, records: u64) -> io::Result<()> {
        let stream = self.source.view.streams()[at.place];
        self.separate();
        self.text.extend_from_slice(b"{\"ts\":");
        push_microseconds(&mut self.text, at.time);
        let rest = format!(
            ",\"ph\":\"i\",\"pid\":{},\"tid\":{},\"name\":\"LOST\",\"s\":\"t\",\"args\":{{\"records\":{records}}}}}",
            stream.pid, stream.tid
        );
        self.text.extend_from_slice(rest.as_bytes());
        self.flush_some()
    }
}

/// Returns a value of a call: numbers, truth values and texts as such, other values as texts as `replay` shows them.
fn json_of(value: &Value) -> serde_json::Value {
    let text = || value.to_string().into();
    match value {
        Value::Integer(number, Digits::Decimal) => {
            i64::try_from(*number).map_or_else(|_| text(), Into::into)
        }
        Value::Boolean(value) => (*value).into(),
        Value::Float(number, _) => {
            serde_json::Number::from_f64(*number).map_or_else(text, serde_json::Value::Number)
        }
        Value::Text(bytes, false) => match str::from_utf8(bytes) {
            Ok(found) => found.into(),
            Err(_) => text(),
        },
        _ => text(),
    }
}

/// Adds nanoseconds as microseconds with three decimals.
fn push_microseconds(text: &mut Vec<u8>, mut nanoseconds: u64) {
    // 20 digits and a point.
    let mut digits = [0_u8; 24];
    let mut at = digits.len();
    for place in 0.. {
        if place == 3 {
            at -= 1;
            digits[at] = b'.';
        }
        if place > 3 && nanoseconds == 0 {
            break;
        }
        at -= 1;
        digits[at] = b'0' + (nanoseconds % 10) as u8;
        nanoseconds /= 10;
    }
    text.extend_from_slice(&digits[at..]);
}

fn losses_json(losses: &ViewLosses) -> serde_json::Value {
    json!({
        "records": losses.walk.records,
        "gaps": losses.walk.gaps,
        "malformed_chunks": losses.walk.malformed,
        "stray_exits": losses.walk.stray_exits,
        "missing_ends": losses.missing_ends,
        "missing_beginnings": losses.missing_beginnings,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_keep_their_nanoseconds() {
        let text = |nanoseconds| {
            let mut text = Vec::new();
            push_microseconds(&mut text, nanoseconds);
            String::from_utf8(text).expect("digits")
        };
        assert_eq!(text(0), "0.000");
        assert_eq!(text(1_002_003), "1002.003");
        assert_eq!(text(12_000), "12.000");
        assert_eq!(text(u64::MAX), "18446744073709551.615");
    }
}
