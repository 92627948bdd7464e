//! Chrome's trace event JSON: samples with their times, whose stacks lie in a tree of frames.
//!
//! Perfetto skips the sections of samples and frames. Each sample is therefore an instant event of its thread, too, with the
//! name of its innermost function.

use crate::error::ExportError;
use crate::exported::{EventTotal, Exported};
use crate::labels::Labels;
use crate::lost::{Lost, LostKind, lost};
use crate::paths::{PathId, Paths};
use crate::source::Source;
use crate::tasks::{TaskNames, TaskNumbers};
use crate::timed_samples::TimedSample;
use dioptra_profile::UNKNOWN;
use serde_json::{Value as Json, json};
use std::io::Write;

/// The kinds of data that the format has no place for.
const NO_PLACE: &[LostKind] = &[
    LostKind::BuildIds,
    LostKind::Addresses,
    LostKind::Lines,
    LostKind::InlinedMarks,
    LostKind::Branches,
];

/// Writes all events as Chrome's trace event JSON, with times since the recording's first sample.
///
/// # Errors
/// There is no event, the profile has no stacks or no times, or writing failed.
pub fn write_chrome(source: &Source<'_>, out: &mut dyn Write) -> Result<Exported, ExportError> {
    source.first_event()?;
    let samples = source.timed_samples()?;
    let tasks = source.task_names(&samples);
    let mut writer = Writer {
        source,
        names: source.event_names(),
        paths: Paths::of(source),
        labels: Labels::new(source),
        used: Vec::new(),
    };
    out.write_all(br#"{"displayTimeUnit":"ns","otherData":"#)?;
    write!(out, "{}", writer.origin())?;
    out.write_all(br#","traceEvents":["#)?;
    names_of_tasks(&tasks, out)?;
    writer.instants(&samples, out)?;
    out.write_all(br#"],"samples":["#)?;
    let totals = writer.samples(&samples, out)?;
    out.write_all(br#"],"stackFrames":{"#)?;
    writer.frames(out)?;
    out.write_all(b"}}\n")?;
    let mut lost = lost(source, source.events, NO_PLACE);
    if tasks.earlier > 0 {
        lost.push(Lost {
            kind: LostKind::EarlierNames,
            count: tasks.earlier,
        });
    }
    Ok(Exported { totals, lost })
}

/// Writes the names of the processes and threads.
fn names_of_tasks(tasks: &TaskNames<'_>, out: &mut dyn Write) -> Result<(), ExportError> {
    let processes = tasks.processes.iter().map(|(pid, name)| {
        json!({ "name": "process_name", "ph": "M", "pid": pid, "tid": pid, "args": { "name": name } })
    });
    let threads = tasks.threads.iter().map(|(numbers, name)| {
        json!({
            "name": "thread_name", "ph": "M", "pid": numbers.pid, "tid": numbers.tid, "args": { "name": name }
        })
    });
    for (place, event) in processes.chain(threads).enumerate() {
        let comma = if place == 0 { "" } else { "," };
        write!(out, "{comma}{event}")?;
    }
    Ok(())
}

struct Writer<'a> {
    source: &'a Source<'a>,
    names: Vec<String>,
    paths: Paths,
    labels: Labels,
    /// By path: whether it is the stack of a sample, or leads to one.
    used: Vec<bool>,
}

impl<'a> Writer<'a> {
    /// Returns the recording's machine and command.
    fn origin(&self) -> Json {
        let origin = self.source.origin;
        let facts = [
            ("command", Some(origin.command_line.join(" "))),
            ("hostname", origin.hostname.clone()),
            ("kernel", origin.os_release.clone()),
            ("cpu", origin.cpu.clone()),
        ];
        let known = facts
            .into_iter()
            .filter_map(|(key, fact)| Some((key, fact?)))
            .filter(|(_, fact)| !fact.is_empty());
        known
            .map(|(key, fact)| (key.to_owned(), Json::from(fact)))
            .collect::<serde_json::Map<String, Json>>()
            .into()
    }

    /// Writes an instant event for each sample, behind the names of the tasks.
    fn instants(
        &mut self,
        samples: &[TimedSample],
        out: &mut dyn Write,
    ) -> Result<(), ExportError> {
        for TimedSample { event, sample } in samples {
            let TaskNumbers { pid, tid } = self.source.numbers(sample.sample_key);
            let path = self.paths.of_stack(sample.place);
            let name = match path {
                0 => UNKNOWN,
                path => {
                    let function = self.paths.get(path).function;
                    self.labels.of(self.source, function)
                }
            };
            write!(
                out,
                r#",{}{{"name":{},"cat":{},"ph":"i","s":"t","pid":{pid},"tid":{tid},"ts":{},"args":{{"weight":{}}}"#,
                '\n',
                json!(name),
                json!(self.names[*event]),
                microseconds(sample.elapsed.unwrap_or(0)),
                sample.weight
            )?;
            if path != 0 {
                write!(out, r#","sf":"{path}""#)?;
            }
            out.write_all(b"}")?;
        }
        Ok(())
    }

    /// Writes samples, which are in the order of time.
    fn samples(
        &mut self,
        samples: &[TimedSample],
        out: &mut dyn Write,
    ) -> Result<Vec<EventTotal>, ExportError> {
        let events = self.source.events.iter();
        let mut totals: Vec<EventTotal> = events
            .map(|event| EventTotal {
                event: *event,
                samples: Some(0),
                weight: Some(0),
            })
            .collect();
        let names: Vec<Json> = self.names.iter().map(|name| json!(name)).collect();
        for (place, TimedSample { event, sample }) in samples.iter().enumerate() {
            let comma = if place == 0 { "" } else { ",\n" };
            let TaskNumbers { pid, tid } = self.source.numbers(sample.sample_key);
            let key = self.source.profile.sample_keys().get(sample.sample_key);
            write!(
                out,
                r#"{comma}{{"name":{},"pid":{pid},"tid":{tid},"ts":{},"weight":{}"#,
                names[*event],
                microseconds(sample.elapsed.unwrap_or(0)),
                sample.weight
            )?;
            if let Some(cpu) = key.cpu {
                write!(out, r#","cpu":{cpu}"#)?;
            }
            let path = self.paths.of_stack(sample.place);
            if path != 0 {
                self.mark(path);
                write!(out, r#","sf":"{path}""#)?;
            }
            out.write_all(b"}")?;
            totals[*event].add_samples(1);
            totals[*event].add_weight(sample.weight);
        }
        Ok(totals)
    }

    /// Marks a path and those of its callers as used.
    fn mark(&mut self, path: PathId) {
        let mut at = path;
        while at != 0 {
            let place = at as usize;
            if self.used.len() <= place {
                self.used.resize(place + 1, false);
            }
            if std::mem::replace(&mut self.used[place], true) {
                return;
            }
            at = self.paths.get(at).parent;
        }
    }

    /// Writes the frames of the samples, each after its caller.
    fn frames(&mut self, out: &mut dyn Write) -> Result<(), ExportError> {
        let mut comma = "";
        for (path, used) in (0..).zip(&self.used) {
            if !used {
                continue;
            }
            let node = self.paths.get(path);
            let function = &self.source.names.functions()[node.function as usize];
            let module = &self.source.profile.modules().get(function.module).label;
            let mut frame = json!({
                "category": if module.is_empty() { UNKNOWN } else { module },
                "name": self.labels.of(self.source, node.function),
            });
            if node.parent != 0 {
                // The keys of the section are texts, and so are references to them.
                frame["parent"] = json!(node.parent.to_string());
            }
            write!(out, "{comma}\"{path}\":{frame}")?;
            comma = ",\n";
        }
        Ok(())
    }
}

/// Returns nanoseconds as microseconds with all their digits.
fn microseconds(nanoseconds: u64) -> String {
    format!("{}.{:03}", nanoseconds / 1000, nanoseconds % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_keep_their_nanoseconds() {
        assert_eq!(microseconds(0), "0.000");
        assert_eq!(microseconds(1_002_003), "1002.003");
        assert_eq!(microseconds(u64::MAX), "18446744073709551.615");
    }
}
