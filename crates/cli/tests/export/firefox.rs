//! The Firefox Profiler's file, read as its front end does: samples lead to stacks, frames, functions and names.

use crate::support::{by_function, done, inlined, inside, number, report, threads};
use dioptra_testprograms::{Recorded, or_skip};
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
struct Sample {
    names: Vec<String>,
    weight: u64,
    time: f64,
}

/// Returns the samples of a track.
fn samples(file: &Value, thread: &Value) -> Vec<Sample> {
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
            weight: table["weight"][at].as_u64().expect("a weight"),
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
                *own.entry(innermost.clone()).or_default() += sample.weight;
                for name in sample.names.iter().collect::<BTreeSet<_>>() {
                    *total.entry(name.clone()).or_default() += sample.weight;
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
            let weight = samples(&file, track)
                .into_iter()
                .map(|sample| sample.weight);
            (tid, weight.sum())
        })
        .collect();
    let rows = report(recorded.folder.path(), &["--by", "thread"]);
    let expected = rows
        .iter()
        .map(|row| (number(&row["tid"]), number(&row["samples"])));
    assert_eq!(found, expected.collect());
}
