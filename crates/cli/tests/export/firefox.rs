//! The Firefox Profiler's file, read as its front end does: samples lead to stacks, frames, functions and names.

use crate::support::{by_function, done, inlined, inside, number, report, threads};
use dioptra_testprograms::{self as programs, Recorded, or_skip};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

fn list(value: &Value) -> &[Value] {
    value
        .as_array()
        .unwrap_or_else(|| panic!("no list: {value}"))
}

fn place(value: &Value) -> usize {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("no place: {value}")) as usize
}

fn read(recorded: &Recorded) -> Value {
    done(recorded.folder.path(), &["export", "--to", "firefox"]);
    let file = std::fs::read(inside(recorded, "profile.firefox.json")).expect("the file");
    serde_json::from_slice(&file).expect("JSON")
}

/// A sample: its names from the innermost function on, and its weight.
pub struct Sample {
    pub names: Vec<String>,
    pub weight: f64,
    pub time: f64,
}

/// Returns the samples of a track.
pub fn samples(file: &Value, thread: &Value) -> Vec<Sample> {
    // The names are the profile's or the thread's, as the version has it.
    let names = match thread["stringArray"].as_array() {
        Some(own) => own,
        None => list(&file["shared"]["stringArray"]),
    };
    let table = &thread["samples"];
    let number = place(&table["length"]);
    let stacks = list(&table["stack"]);
    assert_eq!(stacks.len(), number);
    let times = match table["time"].as_array() {
        Some(times) => times
            .iter()
            .map(|time| time.as_f64().expect("a time"))
            .collect(),
        None => {
            let mut now = 0.0;
            let deltas = list(&table["timeDeltas"]).iter();
            let times = deltas.map(|delta| {
                now += delta.as_f64().expect("a time");
                now
            });
            times.collect::<Vec<f64>>()
        }
    };
    let (stack_table, frames) = (&thread["stackTable"], &thread["frameTable"]);
    let mut samples = Vec::new();
    for at in 0..number {
        let mut sample = Sample {
            names: Vec::new(),
            weight: table["weight"][at].as_f64().expect("a weight"),
            time: times[at],
        };
        let mut stack = &stacks[at];
        while !stack.is_null() {
            let frame = place(&stack_table["frame"][place(stack)]);
            let function = place(&frames["func"][frame]);
            let name = place(&thread["funcTable"]["name"][function]);
            sample
                .names
                .push(names[name].as_str().expect("a name").to_owned());
            stack = &stack_table["prefix"][place(stack)];
        }
        samples.push(sample);
    }
    samples
}

#[test]
fn samples_and_totals_are_the_report_s() {
    let recorded = or_skip!(inlined());
    let folder = recorded.folder.path();
    let file = read(&recorded);
    assert_eq!(file["meta"]["symbolicated"], true);
    assert!(place(&file["meta"]["preprocessedProfileVersion"]) > 40);
    for event in ["cpu-clock", "page-faults"] {
        let mut own: BTreeMap<String, u64> = BTreeMap::new();
        let mut total: BTreeMap<String, u64> = BTreeMap::new();
        let tracks = list(&file["threads"]).iter();
        let name = |track: &&Value| {
            track["name"]
                .as_str()
                .is_some_and(|name| name.ends_with(event))
        };
        for track in tracks.filter(name) {
            let mut before = 0.0;
            for sample in samples(&file, track) {
                assert!(sample.time >= before, "samples are in the order of time");
                before = sample.time;
                let innermost = sample.names.first().expect("a function");
                assert_eq!(sample.weight, 1.0);
                *own.entry(innermost.clone()).or_default() += 1;
                for name in sample.names.iter().collect::<BTreeSet<_>>() {
                    *total.entry(name.clone()).or_default() += 1;
                }
            }
        }
        let rows = report(folder, &["--inline", "-e", event]);
        assert_eq!(own, by_function(&rows, "samples"), "{event}");
        // A clock's samples all weigh the same, so that totals by weight tell totals by samples.
        if event == "cpu-clock" {
            let sum = |column: &str| rows.iter().map(|row| number(&row[column])).sum::<u64>();
            let period = sum("weight") / sum("samples");
            let rows = report(folder, &["--inline", "--children", "-e", event]);
            let mut expected: BTreeMap<String, u64> = BTreeMap::new();
            for (function, weight) in by_function(&rows, "total_weight") {
                expected.insert(function, weight / period);
            }
            // Reports divide callers without a name by ranges of addresses.
            for sums in [&mut total, &mut expected] {
                sums.retain(|name, _| !name.starts_with("[unknown]"));
            }
            assert!(expected.len() > 3, "{expected:?}");
            assert_eq!(total, expected);
        }
    }
}

#[test]
fn each_thread_is_a_track() {
    let recorded = or_skip!(threads());
    let file = read(&recorded);
    let found: BTreeMap<u64, u64> = list(&file["threads"])
        .iter()
        .map(|track| {
            let tid = match &track["tid"] {
                Value::String(text) => text.parse().expect("a number"),
                other => number(other),
            };
            (tid, samples(&file, track).len() as u64)
        })
        .collect();
    let rows = report(recorded.folder.path(), &["--by", "thread"]);
    let expected = rows
        .iter()
        .map(|row| (number(&row["tid"]), number(&row["samples"])));
    assert_eq!(found, expected.collect());
}

/// The markers of a track with this name: when each begins and ends, and its data.
fn markers<'a>(file: &'a Value, track: &'a Value, wanted: &str) -> Vec<(f64, f64, &'a Value)> {
    let names = match track["stringArray"].as_array() {
        Some(own) => own,
        None => list(&file["shared"]["stringArray"]),
    };
    let table = &track["markers"];
    let mut found = Vec::new();
    for at in 0..place(&table["length"]) {
        if names[place(&table["name"][at])] == wanted {
            let time = |column: &str| table[column][at].as_f64().expect("a time");
            assert_eq!(table["phase"][at], 1, "a span");
            found.push((time("startTime"), time("endTime"), &table["data"][at]));
        }
    }
    found
}

#[test]
fn weights_of_events_are_graphs() {
    let recorded = or_skip!(inlined());
    let file = read(&recorded);
    let schemas = list(&file["meta"]["markerSchema"]).iter();
    let schema = schemas
        .filter(|schema| schema["name"] == "dioptra-count")
        .collect::<Vec<_>>();
    assert_eq!(schema.len(), 1, "{:?}", file["meta"]["markerSchema"]);
    assert_eq!(schema[0]["graphs"][0]["key"], "count");
    assert_eq!(schema[0]["graphs"][0]["type"], "bar");
    let mut sum = 0;
    for track in list(&file["threads"]) {
        for (from, to, data) in markers(&file, track, "page-faults") {
            assert!(from < to);
            assert_eq!(data["type"], "dioptra-count");
            sum += number(&data["count"]);
        }
    }
    let rows = report(recorded.folder.path(), &["-e", "page-faults"]);
    assert_eq!(sum, by_function(&rows, "weight").values().sum::<u64>());
}

#[test]
fn waits_have_their_lengths_and_are_markers() {
    or_skip!(programs::need_sampling());
    or_skip!(programs::need_root());
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    done(
        folder,
        &[
            "record",
            "--off-cpu",
            "-g",
            "-o",
            "perf.data",
            "--",
            "sleep",
            "0.3",
        ],
    );
    done(folder, &["export", "--to", "firefox"]);
    let file = std::fs::read(folder.join("profile.firefox.json")).expect("the file");
    let file: Value = serde_json::from_slice(&file).expect("JSON");
    let rows = report(folder, &["--inline", "-e", "off-cpu"]);
    let expected = by_function(&rows, "weight");
    let mut own: BTreeMap<String, u64> = BTreeMap::new();
    for track in list(&file["threads"]) {
        if track["samples"]["weightType"] != "tracing-ms" {
            continue;
        }
        for sample in samples(&file, track) {
            let innermost = sample.names.first().expect("a function").clone();
            *own.entry(innermost).or_default() += (sample.weight * 1e6).round() as u64;
        }
    }
    assert!(own.values().sum::<u64>() >= 300_000_000, "{own:?}");
    let tracks = list(&file["threads"]).iter();
    let spans = tracks.flat_map(|track| markers(&file, track, "off CPU"));
    let lengths: Vec<f64> = spans.map(|(from, to, _)| to - from).collect();
    // The marker of the sleep, in milliseconds.
    assert!(lengths.iter().any(|length| *length >= 299.0), "{lengths:?}");
    assert_eq!(own, expected);
}
