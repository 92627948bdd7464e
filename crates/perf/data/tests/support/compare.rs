//! Our reading of a recording beside perf's.

use super::{
    BUSY, has_perf, our_counts, our_dump, our_samples, perf, perf_counts, perf_dump, perf_samples,
    record, text,
};
use dioptra_perfdata::PerfData;
use dioptra_perfrecords::SampleType;
use dioptra_perfrecords::record::{RecordType, Sample};
use std::ops::ControlFlow;
use std::path::Path;
use tempfile::TempDir;

/// Options of perf for an event that every machine has.
pub const CLOCK: [&str; 4] = ["-e", "cpu-clock", "-F", "2000"];

pub fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// Compares what we read with what perf reads: counts of every type of record, and the fields of every sample.
#[track_caller]
pub fn compare(path: &Path, what: &str) {
    compare_counts(path, what);
    let recording = PerfData::open(path).expect(what);
    let (ours, perfs) = (our_samples(&recording), perf_samples(path, &recording));
    assert_lines(&ours, &perfs, what);
    compare_names(path, &recording, what);
    compare_fields(path, &recording, what);
}

/// Compares every record with its place, its time and its call chain, in their order.
#[track_caller]
pub fn compare_order(path: &Path, what: &str) {
    compare(path, what);
    let recording = PerfData::open(path).expect(what);
    assert_lines(&our_dump(&recording), &perf_dump(path), what);
}

/// Compares the counts of every type of record.
#[track_caller]
pub fn compare_counts(path: &Path, what: &str) {
    let recording = PerfData::open(path).expect(what);
    let mut ours = our_counts(&recording);
    let mut perfs = perf_counts(path);
    assert!(!perfs.is_empty(), "{what}: perf reads nothing");
    // perf counts a compressed record once for itself and does not tell its name in every version.
    ours.remove("COMPRESSED");
    perfs.remove("COMPRESSED");
    assert_eq!(ours, perfs, "{what}");
}

#[track_caller]
pub fn assert_lines(ours: &[String], perfs: &[String], what: &str) {
    let differs = ours.iter().zip(perfs).position(|(a, b)| a != b);
    if let Some(at) = differs {
        panic!("{what}: {at} is {} and perf says {}", ours[at], perfs[at]);
    }
    assert_eq!(ours.len(), perfs.len(), "{what}");
}

/// The lines of `perf script` with one field; `None` when the samples do not have it.
fn script(path: &Path, field: &str) -> Option<Vec<String>> {
    let arguments = ["script", "--no-itrace", "-G", "-F", field, "-i"];
    let output = perf(&[&arguments[..], &[text(path)]].concat());
    let lines = String::from_utf8_lossy(&output.stdout);
    output.status.success().then(|| {
        let lines = lines.lines().map(str::trim);
        lines
            .filter(|line| !line.is_empty())
            .map(str::to_owned)
            .collect()
    })
}

/// Something of every sample, in order.
fn of_samples(
    recording: &PerfData,
    mut tell: impl FnMut(usize, &Sample<'_>) -> String,
) -> Vec<String> {
    let mut lines = Vec::new();
    recording.read(|record| {
        if record.raw.kind == RecordType::SAMPLE {
            let layout = recording.layout(record.event).expect("a layout");
            let sample = layout.sample(&record.raw).expect("a sample");
            lines.push(tell(record.event.expect("an event"), &sample));
        }
        ControlFlow::Continue(())
    });
    lines
}

#[track_caller]
fn compare_names(path: &Path, recording: &PerfData, what: &str) {
    let Some(perfs) = script(path, "event") else {
        return;
    };
    let names = of_samples(recording, |event, _| {
        let name = &recording.events()[event].name;
        format!("{}:", name.trim_end_matches(':'))
    });
    assert_lines(&names, &perfs, what);
}

/// A field that only some recordings have: its bit, perf's name of it, and its value as perf prints it.
type Field = (SampleType, &'static str, fn(&Sample<'_>) -> String);

const FIELDS: [Field; 7] = [
    (SampleType::ADDR, "addr", |sample| hex(sample.addr)),
    (SampleType::WEIGHT, "weight", |sample| {
        sample.weight.expect("a weight").to_string()
    }),
    (SampleType::WEIGHT_STRUCT, "weight", |sample| {
        // The lower half; the others are latencies of the pipeline.
        (sample.weight.expect("a weight") as u32).to_string()
    }),
    (SampleType::DATA_SRC, "data_src", |sample| {
        hex(sample.data_src)
    }),
    (SampleType::PHYS_ADDR, "phys_addr", |sample| {
        hex(sample.phys_addr)
    }),
    (SampleType::DATA_PAGE_SIZE, "data_page_size", |sample| {
        page_size(sample.data_page_size)
    }),
    (SampleType::CODE_PAGE_SIZE, "code_page_size", |sample| {
        page_size(sample.code_page_size)
    }),
];

fn hex(value: Option<u64>) -> String {
    format!("{:x}", value.expect("the field"))
}

fn page_size(bytes: Option<u64>) -> String {
    match bytes.expect("a size") {
        0 => "N/A".to_owned(),
        bytes if bytes < 1 << 20 => format!("{}K", bytes >> 10),
        bytes if bytes < 1 << 30 => format!("{}M", bytes >> 20),
        bytes => format!("{}G", bytes >> 30),
    }
}

#[track_caller]
fn compare_fields(path: &Path, recording: &PerfData, what: &str) {
    let sampling = || {
        recording
            .events()
            .iter()
            .filter(|event| event.attr.samples())
    };
    for (bit, name, value) in FIELDS {
        if !sampling().all(|event| event.attr.sample_type.contains(bit)) {
            continue;
        }
        let mut perfs = script(path, name).expect(name);
        for line in &mut perfs {
            // The meaning of a data source's bits stands behind them.
            line.truncate(line.find(' ').unwrap_or(line.len()));
        }
        let ours = of_samples(recording, |_, sample| value(sample));
        assert_lines(&ours, &perfs, &format!("{what}: {name}"));
    }
}

/// Records with `options` behind those of a clock, and compares.
#[track_caller]
pub fn variant(options: &[&str]) {
    variant_with(options, compare);
}

#[track_caller]
pub fn variant_with(options: &[&str], compare: impl Fn(&Path, &str)) {
    if !has_perf() {
        return;
    }
    let folder = folder();
    let path = folder.path().join("perf.data");
    let options = [&CLOCK[..], options].concat();
    if record(&path, &options, BUSY).is_some() {
        compare(&path, &options.join(" "));
    }
}
