//! speedscope's file: a profile for each event and thread, each sample a stack with its weight, in the order of time.

use crate::error::ExportError;
use crate::exported::{EventTotal, Exported};
use crate::labels::Labels;
use crate::lost::{LostKind, lost};
use crate::paths::{PathId, Paths};
use crate::source::Source;
use dioptra_profile::{FunctionId, ThreadId};
use serde_json::json;
use std::io::Write;

/// The kinds of data that the format has no place for, where samples have times.
const NO_PLACE: &[LostKind] = &[
    LostKind::Modules,
    LostKind::BuildIds,
    LostKind::Addresses,
    LostKind::Lines,
    LostKind::InlinedMarks,
    LostKind::Cpus,
    // Their order is kept.
    LostKind::Times,
    LostKind::Branches,
];

/// A sample, or all samples of one stack where times are not known.
struct Weighed {
    thread: Option<ThreadId>,
    path: PathId,
    samples: u64,
    weight: u64,
}

/// Writes all events as a file of speedscope.
///
/// # Errors
/// There is no event, the profile has no stacks, or writing failed.
pub fn write_speedscope(source: &Source<'_>, out: &mut dyn Write) -> Result<Exported, ExportError> {
    source.first_event()?;
    let mut writer = Writer {
        source,
        paths: Paths::of(source),
        ids: vec![None; source.names.functions().len()],
        used: Vec::new(),
        is_first: true,
    };
    out.write_all(
        br#"{"$schema":"https://www.speedscope.app/file-format-schema.json","exporter":"dioptra","activeProfileIndex":0,"profiles":["#,
    )?;
    let mut totals = Vec::new();
    for (index, name) in source.events.iter().zip(source.event_names()) {
        totals.push(writer.event(*index, &name, out)?);
    }
    out.write_all(br#"],"shared":{"frames":["#)?;
    let mut labels = Labels::new(source);
    for (place, function) in writer.used.iter().enumerate() {
        let comma = if place == 0 { "" } else { "," };
        let name = labels.of(source, *function);
        let file = source.names.functions()[*function as usize].file.as_deref();
        let frame = match file {
            Some(file) => json!({ "name": name, "file": file }),
            None => json!({ "name": name }),
        };
        write!(out, "{comma}{frame}")?;
    }
    out.write_all(b"]}}\n")?;
    let mut kinds = NO_PLACE.to_vec();
    if !source.profile.has_times() {
        kinds.push(LostKind::Samples);
    }
    Ok(Exported {
        totals,
        lost: lost(source, source.events, &kinds),
    })
}

struct Writer<'a> {
    source: &'a Source<'a>,
    paths: Paths,
    /// By function: the number of its frame.
    ids: Vec<Option<u32>>,
    /// By number of the frame: its function.
    used: Vec<FunctionId>,
    is_first: bool,
}

impl Writer<'_> {
    /// Writes the profiles of an event, one for each thread.
    fn event(
        &mut self,
        index: usize,
        name: &str,
        out: &mut dyn Write,
    ) -> Result<EventTotal, ExportError> {
        let source = self.source;
        let event = source.event(index);
        let mut samples = Vec::new();
        let thread = |key| source.profile.sample_keys().get(key).thread;
        if source.profile.has_times() {
            event.samples(|sample| {
                samples.push(Weighed {
                    thread: thread(sample.sample_key),
                    path: self.paths.of_stack(sample.place),
                    samples: 1,
                    weight: sample.weight,
                });
            });
        } else {
            source.profile.counts(event, |key, stack, count| {
                samples.push(Weighed {
                    thread: thread(key),
                    path: self.paths.of_stack(stack),
                    samples: count.samples,
                    weight: count.weight,
                });
            });
        }
        // Samples of one thread keep their order.
        samples.sort_by_key(|sample| sample.thread);
        let mut total = EventTotal {
            event: index,
            samples: source.profile.has_times().then_some(0),
            weight: Some(0),
        };
        for of_thread in samples.chunk_by(|one, other| one.thread == other.thread) {
            self.thread(index, name, of_thread, out)?;
            for sample in of_thread {
                total.add_weight(sample.weight);
                if total.samples.is_some() {
                    total.add_samples(sample.samples);
                }
            }
        }
        Ok(total)
    }

    fn thread(
        &mut self,
        index: usize,
        event: &str,
        samples: &[Weighed],
        out: &mut dyn Write,
    ) -> Result<(), ExportError> {
        let source = self.source;
        let tasks = source.profile.tasks();
        let thread = samples[0]
            .thread
            .map(|thread| &tasks.threads()[thread as usize]);
        let name = match thread {
            Some(thread) => {
                let comm = thread.comm.as_deref().unwrap_or(dioptra_profile::UNKNOWN);
                let pid = tasks.processes()[thread.process as usize].pid;
                match pid {
                    u32::MAX => format!("{comm} {} {event}", thread.tid),
                    pid => format!("{comm} {pid}/{} {event}", thread.tid),
                }
            }
            None => event.to_owned(),
        };
        let unit = match source.is_clock(index) {
            true => "nanoseconds",
            false => "none",
        };
        let end = samples
            .iter()
            .fold(0_u64, |sum, sample| sum.saturating_add(sample.weight));
        let comma = if self.is_first { "" } else { "," };
        self.is_first = false;
        write!(
            out,
            r#"{comma}{{"type":"sampled","name":{},"unit":"{unit}","startValue":0,"endValue":{end},"samples":["#,
            json!(name)
        )?;
        let mut functions = Vec::new();
        for (place, sample) in samples.iter().enumerate() {
            out.write_all(if place == 0 { b"[" } else { b",[" })?;
            self.paths.functions(sample.path, &mut functions);
            for (place, function) in functions.iter().enumerate() {
                let comma = if place == 0 { "" } else { "," };
                write!(out, "{comma}{}", self.frame(*function))?;
            }
            out.write_all(b"]")?;
        }
        out.write_all(br#"],"weights":["#)?;
        for (place, sample) in samples.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            write!(out, "{comma}{}", sample.weight)?;
        }
        out.write_all(b"]}")?;
        Ok(())
    }

    /// Returns the number of a function's frame.
    fn frame(&mut self, function: FunctionId) -> u32 {
        *self.ids[function as usize].get_or_insert_with(|| {
            self.used.push(function);
            // There are at most as many frames as functions, whose ids have 32 bits.
            u32::try_from(self.used.len() - 1).unwrap_or(u32::MAX)
        })
    }
}
