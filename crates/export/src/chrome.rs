//! Chrome's trace event JSON: samples with their times, whose stacks lie in a tree of frames.
//!
//! Perfetto skips the sections of samples and frames. Each sample is therefore an instant event of its thread, too, with the
//! name of its innermost function.

use crate::error::ExportError;
use crate::exported::{EventTotal, Exported};
use crate::labels::Labels;
use crate::lost::{LostKind, lost};
use crate::paths::{PathId, Paths};
use crate::source::Source;
use dioptra_profile::{LoggedSample, Thread, UNKNOWN};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
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
    if !source.profile.has_times() {
        return Err(ExportError::NoTimes);
    }
    let mut samples: Vec<(usize, LoggedSample)> = Vec::new();
    for (place, index) in source.events.iter().enumerate() {
        let event = source.event(*index);
        event.samples(|sample| samples.push((place, sample)));
    }
    // Samples of the same time keep the order of their events.
    samples.sort_by_key(|(_, sample)| sample.elapsed);
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
    writer.names_of_tasks(&samples, out)?;
    writer.instants(&samples, out)?;
    out.write_all(br#"],"samples":["#)?;
    let totals = writer.samples(&samples, out)?;
    out.write_all(br#"],"stackFrames":{"#)?;
    writer.frames(out)?;
    out.write_all(b"}}\n")?;
    Ok(Exported {
        totals,
        lost: lost(source, source.events, NO_PLACE),
    })
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

    fn thread(&self, sample: &LoggedSample) -> Option<&'a Thread> {
        let profile = self.source.profile;
        let thread = profile.sample_keys().get(sample.sample_key).thread?;
        Some(&profile.tasks().threads()[thread as usize])
    }

    fn pid(&self, thread: Option<&Thread>) -> u32 {
        let processes = self.source.profile.tasks().processes();
        thread.map_or(0, |thread| processes[thread.process as usize].pid)
    }

    /// Writes the names of the processes and threads that have samples. A number that was used again has its last name.
    fn names_of_tasks(
        &self,
        samples: &[(usize, LoggedSample)],
        out: &mut dyn Write,
    ) -> Result<(), ExportError> {
        let tasks = self.source.profile.tasks();
        let mut processes: BTreeMap<u32, &str> = BTreeMap::new();
        let mut threads: BTreeMap<(u32, u32), &str> = BTreeMap::new();
        for (_, sample) in samples {
            let thread = self.thread(sample);
            let pid = self.pid(thread);
            let comm = thread.and_then(|thread| thread.comm.as_deref());
            let comm = comm.unwrap_or(UNKNOWN);
            let process = thread.map(|thread| &tasks.processes()[thread.process as usize]);
            let process = process.and_then(|process| process.comm.as_deref());
            processes.insert(pid, process.unwrap_or(comm));
            threads.insert((pid, thread.map_or(0, |thread| thread.tid)), comm);
        }
        let processes = processes.into_iter().map(|(pid, name)| {
            json!({ "name": "process_name", "ph": "M", "pid": pid, "tid": pid, "args": { "name": name } })
        });
        let threads = threads.into_iter().map(|((pid, tid), name)| {
            json!({ "name": "thread_name", "ph": "M", "pid": pid, "tid": tid, "args": { "name": name } })
        });
        for (place, event) in processes.chain(threads).enumerate() {
            let comma = if place == 0 { "" } else { "," };
            write!(out, "{comma}{event}")?;
        }
        Ok(())
    }

    /// Writes an instant event for each sample, behind the names of the tasks.
    fn instants(
        &mut self,
        samples: &[(usize, LoggedSample)],
        out: &mut dyn Write,
    ) -> Result<(), ExportError> {
        for (event, sample) in samples {
            let thread = self.thread(sample);
            let pid = self.pid(thread);
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
                r#",{}{{"name":{},"cat":{},"ph":"i","s":"t","pid":{pid},"tid":{},"ts":{},"args":{{"weight":{}}}"#,
                '\n',
                json!(name),
                json!(self.names[*event]),
                thread.map_or(0, |thread| thread.tid),
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
        samples: &[(usize, LoggedSample)],
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
        for (place, (event, sample)) in samples.iter().enumerate() {
            let comma = if place == 0 { "" } else { ",\n" };
            let thread = self.thread(sample);
            let key = self.source.profile.sample_keys().get(sample.sample_key);
            write!(
                out,
                r#"{comma}{{"name":{},"pid":{},"tid":{},"ts":{},"weight":{}"#,
                names[*event],
                self.pid(thread),
                thread.map_or(0, |thread| thread.tid),
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
