//! `dioptra info`: the contents of a recording.

mod text;
mod windows;

use super::profiles::{Recording, open};
use crate::exit::Exit;
use crate::formats::TextOrJson;
use crate::screen::stdout;
use dioptra_perfdata::{EventDescription, Features, PerfData, ReadSummary, record_name};
use dioptra_perfevents::record::{Misc, Record, RecordType};
use dioptra_perfevents::{AttrFlags, ByteOrder};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use windows::Windows;

/// Arguments of `dioptra info`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  dioptra info                               what perf.data holds
  dioptra info -i other.data --mappings      with its modules and where they were mapped
  dioptra info --format json | jq .lost      for programs")]
pub struct Arguments {
    /// The recording: a file, a directory of `perf record --threads`, or - for standard input
    #[arg(short, long, value_name = "FILE", default_value = "perf.data")]
    input: PathBuf,
    /// Output format
    #[arg(long, value_enum, default_value_t = TextOrJson::Text)]
    format: TextOrJson,
    /// List the mapped modules as well (JSON always has them)
    #[arg(long)]
    mappings: bool,
}

pub fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let recording = open(&arguments.input)?;
    let info = Info::collect(&recording, &arguments.input);
    let mut out = io::BufWriter::new(stdout(arguments.format.spelling()));
    match arguments.format {
        TextOrJson::Text => text::print(&mut out, &info, arguments.mappings)?,
        TextOrJson::Json => {
            serde_json::to_writer_pretty(&mut out, &info).map_err(io::Error::from)?;
            writeln!(out)?;
        }
    }
    out.flush()?;
    Ok(Exit::Done)
}

/// The whole output, in its order.
#[derive(Serialize)]
struct Info {
    schema: u32,
    file: FileInfo,
    machine: Machine,
    command_line: Vec<String>,
    /// The format of the profile that was imported, if one was.
    imported: Option<String>,
    events: Vec<Event>,
    /// The schedule and outcome of windows, if the recording has any.
    windows: Option<Windows>,
    /// The bytes of each feature section, by its name.
    features: BTreeMap<String, u64>,
    build_ids: Vec<BuildId>,
    time: Option<TimeSpan>,
    mappings: Vec<Mapping>,
    records: BTreeMap<String, u64>,
    lost: u64,
    lost_samples: u64,
    /// Events that were counted in threads too short to be sampled.
    unsampled: Vec<Unsampled>,
    throttled: u64,
    unknown_ids: u64,
    skipped: u64,
    out_of_order: u64,
    salvaged: bool,
    stopped_at: Option<u64>,
    damages: u64,
    damaged: Vec<Damage>,
}

#[derive(Serialize)]
struct Unsampled {
    event: String,
    counted: u64,
    sampled: u64,
    period: u64,
    threads: u64,
    #[serde(skip)]
    text: String,
}

impl Unsampled {
    fn of(unsampled: &dioptra_perfevents::Unsampled) -> Self {
        Self {
            event: unsampled.event.clone(),
            counted: unsampled.counted,
            sampled: unsampled.sampled,
            period: unsampled.period,
            threads: unsampled.threads,
            text: unsampled.to_string(),
        }
    }
}

#[derive(Serialize)]
struct FileInfo {
    path: String,
    format: String,
    /// The file's size in bytes.
    size: u64,
    byte_order: &'static str,
    compression: Option<Compression>,
}

#[derive(Serialize)]
struct Compression {
    kind: &'static str,
    level: u32,
    ratio: u32,
}

#[derive(Serialize)]
struct Machine {
    hostname: Option<String>,
    os_release: Option<String>,
    arch: Option<String>,
    recorder_version: Option<String>,
    cpu_description: Option<String>,
    cpuid: Option<String>,
    cpus_online: Option<u32>,
    cpus_available: Option<u32>,
    /// The machine's memory in KiB.
    total_memory_kib: Option<u64>,
}

#[derive(Serialize)]
struct Event {
    name: String,
    #[serde(rename = "type")]
    kind: u32,
    config: u64,
    /// The number of events between two samples; 0 for an event that takes no samples.
    period: Option<u64>,
    /// The number of samples a second.
    frequency: Option<u64>,
    sample_fields: Vec<&'static str>,
    read_format: Vec<&'static str>,
    flags: Vec<&'static str>,
    precise_ip: u8,
    /// The id of the clock; `None` for the kernel's own clock.
    clockid: Option<i32>,
    attr_size: u32,
    ids: Vec<u64>,
    samples: u64,
    /// The name of the leader whose samples hold the event's counts; `None` for an event that takes samples itself.
    counted_with: Option<String>,
}

#[derive(Serialize)]
struct BuildId {
    build_id: String,
    path: String,
}

/// A time span in nanoseconds of the events' clock.
#[derive(Serialize)]
struct TimeSpan {
    first: u64,
    last: u64,
}

#[derive(Serialize)]
struct Mapping {
    path: String,
    /// The number of times that the file was mapped, over all processes.
    mappings: u64,
}

#[derive(Serialize)]
struct Damage {
    offset: u64,
    why: String,
}

impl Info {
    fn collect(opened: &Recording, path: &Path) -> Info {
        let (recording, windows) = (&opened.data, opened.windows.as_ref());
        let mut mapped = BTreeMap::<Vec<u8>, u64>::new();
        let mut span: Option<TimeSpan> = None;
        let summary = recording.read(|record| {
            let kind = record.raw.kind;
            if kind == RecordType::SAMPLE {
                if let Some(time) = record.time {
                    let span = span.get_or_insert(TimeSpan {
                        first: time,
                        last: time,
                    });
                    span.first = span.first.min(time);
                    span.last = span.last.max(time);
                }
            } else if kind == RecordType::MMAP || kind == RecordType::MMAP2 {
                let layout = recording.layout(record.event);
                if let Some(Ok(Record::Mmap(mmap, _))) =
                    layout.map(|layout| layout.parse(&record.raw))
                    && !mmap.misc.has(Misc::MMAP_DATA)
                {
                    match mapped.get_mut(mmap.name) {
                        Some(count) => *count += 1,
                        None => {
                            mapped.insert(mmap.name.to_vec(), 1);
                        }
                    }
                }
            }
            ControlFlow::Continue(())
        });
        let features = recording.features();
        let events = recording.events().iter().zip(&summary.samples);
        let mappings = mapped.iter().map(|(path, mappings)| Mapping {
            path: String::from_utf8_lossy(path).into_owned(),
            mappings: *mappings,
        });
        let sections = features.sections.iter();
        let build_ids = features.build_ids.iter().map(|id| BuildId {
            build_id: id
                .build_id
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect(),
            path: String::from_utf8_lossy(&id.path).into_owned(),
        });
        let damaged = summary.damaged.iter().map(|damage| Damage {
            offset: damage.offset,
            why: damage.why.clone(),
        });
        Info {
            schema: 1,
            file: FileInfo::of(recording, path),
            machine: Machine::of(features),
            command_line: features.command_line.clone(),
            imported: features.imported.as_ref().map(|names| names.format.clone()),
            events: events
                .enumerate()
                .map(|(index, (event, samples))| {
                    let is_imported = features.imported.is_some();
                    let counted_with = counted_with(recording, index);
                    Event::of(event, *samples, counted_with, is_imported)
                })
                .collect(),
            windows: windows.map(|windows| Windows::of(windows, recording)),
            features: sections
                .map(|(name, bytes)| (name.to_string(), *bytes))
                .collect(),
            build_ids: build_ids.collect(),
            time: span,
            mappings: mappings.collect(),
            records: named_counts(&summary),
            lost: summary.lost,
            lost_samples: summary.lost_samples,
            unsampled: features.unsampled.iter().map(Unsampled::of).collect(),
            throttled: summary.throttled,
            unknown_ids: summary.unknown_ids,
            skipped: summary.skipped,
            out_of_order: summary.out_of_order,
            salvaged: summary.salvaged,
            stopped_at: summary.stopped_at,
            damages: summary.damages,
            damaged: damaged.collect(),
        }
    }
}

/// Returns the counts by perf's names of the record types, without `PERF_RECORD_`.
fn named_counts(summary: &ReadSummary) -> BTreeMap<String, u64> {
    let counts = summary.records.iter();
    counts
        .map(|(kind, count)| {
            let name = record_name(kind).map_or_else(|| kind.0.to_string(), str::to_owned);
            (name, count)
        })
        .collect()
}

impl FileInfo {
    fn of(recording: &PerfData, path: &Path) -> Self {
        let compression = recording.features().compressed;
        FileInfo {
            path: path.display().to_string(),
            format: recording.format().to_string(),
            size: recording.size(),
            byte_order: match recording.byte_order() {
                ByteOrder::Little => "little",
                ByteOrder::Big => "big",
            },
            compression: compression.map(|compression| Compression {
                kind: if compression.kind == 1 {
                    "zstd"
                } else {
                    "unknown"
                },
                level: compression.level,
                ratio: compression.ratio,
            }),
        }
    }
}

impl Machine {
    fn of(features: &Features) -> Self {
        Machine {
            hostname: features.hostname.clone(),
            os_release: features.os_release.clone(),
            arch: features.arch.clone(),
            recorder_version: features.version.clone(),
            cpu_description: features.cpu_description.clone(),
            cpuid: features.cpuid.clone(),
            cpus_online: features.cpus_online,
            cpus_available: features.cpus_available,
            total_memory_kib: features.total_memory,
        }
    }
}

/// Returns the name of the leader of an event's group, if the event takes no samples itself.
fn counted_with(recording: &PerfData, index: usize) -> Option<String> {
    let events = recording.events();
    let member = u32::try_from(index).ok()?;
    let group = recording
        .features()
        .group_descriptions
        .iter()
        .find(|group| {
            let behind_leader = group.leader.saturating_add(1);
            (behind_leader..group.leader.saturating_add(group.members)).contains(&member)
        })?;
    let leader = events.get(group.leader as usize)?;
    (!events.get(index)?.attr.samples()).then(|| leader.name.clone())
}

impl Event {
    fn of(
        event: &EventDescription,
        samples: u64,
        counted_with: Option<String>,
        is_imported: bool,
    ) -> Self {
        let attr = &event.attr;
        let by_frequency = attr.flags.contains(AttrFlags::FREQ);
        // Most imported profiles do not state a rate. Their attributes hold a one.
        let value = Some(attr.sample_period).filter(|value| !is_imported || *value != 1);
        let precise = AttrFlags::PRECISE_LOW | AttrFlags::PRECISE_HIGH;
        let flags = attr.flags.difference(precise);
        Event {
            name: event.name.clone(),
            kind: attr.kind,
            config: attr.config,
            period: value.filter(|_| !by_frequency),
            frequency: value.filter(|_| by_frequency),
            sample_fields: attr
                .sample_type
                .iter_names()
                .map(|(name, _)| name)
                .collect(),
            read_format: attr
                .read_format
                .iter_names()
                .map(|(name, _)| name)
                .collect(),
            flags: flags.iter_names().map(|(name, _)| name).collect(),
            precise_ip: attr.precise_ip(),
            clockid: attr
                .flags
                .contains(AttrFlags::USE_CLOCKID)
                .then_some(attr.clockid),
            attr_size: attr.size,
            ids: event.ids.clone(),
            samples,
            counted_with,
        }
    }
}
