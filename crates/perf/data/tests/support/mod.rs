//! Helpers of the tests: finding recordings and perf, and reading what perf says about a recording.
#![allow(dead_code, reason = "each test binary uses its own part")]

pub mod compare;

use dioptra_perfdata::{PerfData, is_file_type, record_name};
use dioptra_perfrecords::SampleType;
use dioptra_perfrecords::record::RecordType;
use dioptra_testprograms::{Limit, need_shared_data, need_tool, skip};
use linux_perf_data::linux_perf_event_reader::EventRecord;
use linux_perf_data::{PerfFileReader, PerfFileRecord};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::BufReader;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Recordings of many perfs and machines, which do not come with the repository; empty where they are missing.
#[track_caller]
pub fn shared_recordings() -> Vec<PathBuf> {
    let folder = match need_shared_data("perfdata") {
        Ok(folder) => folder,
        Err(lacking) => {
            lacking.print();
            return Vec::new();
        }
    };
    let entries = std::fs::read_dir(folder).expect("the folder");
    let mut found: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| name(path).contains("data"))
        .collect();
    found.sort();
    found
}

/// The file's name.
pub fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Whether perf can be run.
#[track_caller]
pub fn has_perf() -> bool {
    match need_tool("perf") {
        Ok(_) => true,
        Err(lacking) => {
            lacking.print();
            false
        }
    }
}

/// Runs perf.
pub fn perf(arguments: &[&str]) -> Output {
    Command::new("perf")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("perf runs")
}

/// The path as an argument.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// Records `command` with perf into `path`; `None`, and why, where that does not work on this machine.
#[track_caller]
pub fn record(path: &Path, options: &[&str], command: &[&str]) -> Option<()> {
    let mut arguments = vec!["record", "-o", text(path)];
    arguments.extend(options);
    arguments.push("--");
    arguments.extend(command);
    let output = perf(&arguments);
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        if is_about_tracepoints(options) && Limit::NoTracepoints.holds() {
            skip(Limit::NoTracepoints);
        } else {
            skip(format!("perf {arguments:?} does not work here: {why}"));
        }
        return None;
    }
    Some(())
}

/// Whether perf is asked for an event that only the tracing file system knows.
pub fn is_about_tracepoints(options: &[&str]) -> bool {
    options.iter().any(|option| option.contains("sched:"))
}

/// A short command that uses the CPU, maps files and starts processes.
pub const BUSY: &[&str] = &[
    "sh",
    "-c",
    "for i in 1 2 3; do ls /usr/bin >/dev/null; done; i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done",
];

/// Returns the number of records of each type that perf counts: `perf report --stats`, its first section.
pub fn perf_counts(path: &Path) -> BTreeMap<String, u64> {
    let output = perf(&["report", "--stats", "-i", text(path)]);
    let text = String::from_utf8_lossy(&output.stdout);
    let mut counts = BTreeMap::new();
    let lines = text
        .lines()
        .skip_while(|line| !line.starts_with("Aggregated stats"));
    for line in lines.skip(1).take_while(|line| line.starts_with(' ')) {
        let mut words = line.split_whitespace();
        let (Some(kind), Some("events:"), Some(count)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        if kind != "TOTAL" {
            counts.insert(kind.to_owned(), count.parse().expect("a count"));
        }
    }
    counts
}

/// The kernel's records by type number, as the crate linux-perf-data reads them.
pub fn linux_perf_data_counts(path: &Path) -> BTreeMap<u32, u64> {
    let open = || BufReader::new(File::open(path).expect("a file"));
    // The reader of files refuses pipes.
    let reader = PerfFileReader::parse_file(open());
    let reader = reader.or_else(|_| PerfFileReader::parse_pipe(open()));
    let PerfFileReader {
        mut perf_file,
        mut record_iter,
    } = reader.expect("a file or a pipe");
    let mut counts = BTreeMap::new();
    while let Ok(Some(record)) = record_iter.next_record(&mut perf_file) {
        if let PerfFileRecord::EventRecord { record, .. } = record {
            *counts.entry(record.record_type.0).or_default() += 1;
        }
    }
    counts
}

/// The samples in order as linux-perf-data reads them: process, thread, CPU, time, period, address.
pub fn linux_perf_data_samples(path: &Path) -> Vec<SampleFields> {
    let open = || BufReader::new(File::open(path).expect("a file"));
    let reader = PerfFileReader::parse_file(open());
    let reader = reader.or_else(|_| PerfFileReader::parse_pipe(open()));
    let PerfFileReader {
        mut perf_file,
        mut record_iter,
    } = reader.expect("a file or a pipe");
    let mut samples = Vec::new();
    while let Ok(Some(record)) = record_iter.next_record(&mut perf_file) {
        if let PerfFileRecord::EventRecord { record, .. } = record
            && let Ok(EventRecord::Sample(sample)) = record.parse()
        {
            samples.push((
                sample.pid.map(i32::cast_unsigned),
                sample.tid.map(i32::cast_unsigned),
                sample.cpu,
                sample.timestamp,
                sample.period,
                sample.ip,
            ));
        }
    }
    samples
}

/// Process, thread, CPU, time, period, address.
pub type SampleFields = (
    Option<u32>,
    Option<u32>,
    Option<u32>,
    Option<u64>,
    Option<u64>,
    Option<u64>,
);

/// The same as we read them.
pub fn our_sample_fields(recording: &PerfData) -> Vec<SampleFields> {
    let mut samples = Vec::new();
    recording.read(|record| {
        if record.raw.kind == RecordType::SAMPLE {
            let layout = recording.layout(record.event).expect("a layout");
            let sample = layout.sample(&record.raw).expect("a sample");
            samples.push((
                sample.pid,
                sample.tid,
                sample.cpu,
                sample.time,
                sample.period,
                sample.ip,
            ));
        }
        ControlFlow::Continue(())
    });
    samples
}

/// The kernel's records by type number, as we read them.
pub fn our_kernel_counts(recording: &PerfData) -> BTreeMap<u32, u64> {
    let mut counts = BTreeMap::new();
    recording.read(|record| {
        if !is_file_type(record.raw.kind) {
            *counts.entry(record.raw.kind.0).or_default() += 1;
        }
        ControlFlow::Continue(())
    });
    counts
}

/// Returns the number of samples that perf finds in a recording that comes through a pipe.
pub fn perf_samples_of_stream(path: &Path) -> usize {
    let command = "cat \"$0\" | perf script -F time -i -";
    let output = Command::new("sh").args(["-c", command]).arg(path).output();
    let output = output.expect("a shell runs").stdout;
    String::from_utf8_lossy(&output)
        .lines()
        .filter(|line| !line.trim().is_empty())
        .count()
}

/// Returns the number of records of each type that we count, compressed ones by their content.
pub fn our_counts(recording: &PerfData) -> BTreeMap<String, u64> {
    let summary = recording.read(|_| ControlFlow::Continue(()));
    let counts = summary.records.iter();
    counts
        .map(|(kind, count)| {
            let name = record_name(kind).map_or_else(|| kind.to_string(), str::to_owned);
            (name, count)
        })
        .collect()
}

/// The fields that all samples have.
fn common_fields(recording: &PerfData) -> SampleType {
    let events = recording.events().iter();
    let sampling = events.filter(|event| event.attr.samples());
    sampling.fold(SampleType::all(), |all, event| all & event.attr.sample_type)
}

/// The samples in order, a line each, in our own form: what `perf script` tells of them.
pub fn our_samples(recording: &PerfData) -> Vec<String> {
    let mut lines = Vec::new();
    let common = common_fields(recording);
    recording.read(|record| {
        if record.raw.kind != RecordType::SAMPLE {
            return ControlFlow::Continue(());
        }
        let layout = recording.layout(record.event).expect("a layout");
        let sample = layout.sample(&record.raw).expect("a sample");
        let mut line = String::new();
        if let (Some(pid), Some(tid)) = (sample.pid, sample.tid) {
            let _ = write!(line, "{}/{} ", pid.cast_signed(), tid.cast_signed());
        }
        if let Some(cpu) = sample.cpu.filter(|_| common.contains(SampleType::CPU)) {
            let _ = write!(line, "[{cpu:03}] ");
        }
        if let Some(time) = sample.time {
            let (seconds, nanoseconds) = (time / 1_000_000_000, time % 1_000_000_000);
            let _ = write!(line, "{seconds}.{nanoseconds:09}: ");
        }
        let event = record.event.expect("an event");
        let period = sample
            .period
            .unwrap_or(recording.events()[event].attr.sample_period);
        let _ = write!(line, "{period} {:x}", sample.ip.unwrap_or(0));
        lines.push(line);
        ControlFlow::Continue(())
    });
    lines
}

/// The same lines from `perf script`.
pub fn perf_samples(path: &Path, recording: &PerfData) -> Vec<String> {
    let common = common_fields(recording);
    let mut fields = String::from("period,ip");
    for (field, name) in [
        (SampleType::TID, ",pid,tid"),
        (SampleType::CPU, ",cpu"),
        (SampleType::TIME, ",time"),
    ] {
        if common.contains(field) {
            fields.push_str(name);
        }
    }
    let output = perf(&[
        "script",
        "--no-itrace",
        "--ns",
        "-G",
        "-F",
        &fields,
        "-i",
        text(path),
    ]);
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .filter(|line| !line.is_empty())
        .collect()
}

/// All records in order, a line each: time, offset, size, type, and the call chain of a sample.
pub fn our_dump(recording: &PerfData) -> Vec<String> {
    let mut lines = Vec::new();
    recording.read(|record| {
        let kind = record_name(record.raw.kind).unwrap_or("unknown");
        let (time, size) = (record.time.unwrap_or(0), 8 + record.raw.body.len());
        let mut line = format!("{time} {:#x} [{size:#x}] {kind}", record.offset);
        if record.raw.kind == RecordType::SAMPLE {
            let layout = recording.layout(record.event).expect("a layout");
            let sample = layout.sample(&record.raw).expect("a sample");
            for address in sample.callchain.into_iter().flat_map(|chain| chain.iter()) {
                let _ = write!(line, " {address:x}");
            }
        }
        lines.push(line);
        ControlFlow::Continue(())
    });
    lines
}

/// The same from `perf script -D`.
pub fn perf_dump(path: &Path) -> Vec<String> {
    let output = perf(&["script", "-D", "--no-itrace", "-i", text(path)]);
    let dump = String::from_utf8_lossy(&output.stdout);
    let mut lines: Vec<String> = Vec::new();
    for line in dump.lines() {
        if let Some(line) = dumped_record(line) {
            lines.push(line);
        } else if let Some(frame) = line.strip_prefix("..... ")
            && let Some((number, address)) = frame.split_once(": ")
            && number.trim().parse::<u32>().is_ok()
            && let Ok(address) = u64::from_str_radix(address.trim(), 16)
            && let Some(last) = lines.last_mut()
        {
            let _ = write!(last, " {address:x}");
        }
    }
    lines
}

/// A line such as `0 14424495396615 0x26988 [0x188]: PERF_RECORD_SAMPLE(IP, 0x1): 0/0: …`; the CPU and the
/// time before the offset may be missing.
fn dumped_record(line: &str) -> Option<String> {
    let (before, after) = line.split_once(": PERF_RECORD_")?;
    let (before, size) = before.split_once(" [")?;
    let words: Vec<_> = before.split_whitespace().collect();
    let (offset, before) = words.split_last()?;
    let time = before.last().filter(|time| **time != "-1").unwrap_or(&"0");
    let end =
        |letter: char| !letter.is_ascii_uppercase() && !letter.is_ascii_digit() && letter != '_';
    let kind = after.split(end).next()?;
    Some(format!("{time} {offset} [{size} {kind}"))
}
