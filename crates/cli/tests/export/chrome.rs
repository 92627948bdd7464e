//! Chrome's trace events: the rules of the format, and the report's numbers.

use crate::support::{by_function, dioptra, done, inlined, inside, number, report, threads};
use dioptra_testprograms::{self as programs, Recorded, or_skip};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

fn read(recorded: &Recorded) -> Value {
    done(recorded.folder.path(), &["export", "--to", "chrome"]);
    let file = std::fs::read(inside(recorded, "profile.chrome.json")).expect("the file");
    let file: Value = serde_json::from_slice(&file).expect("JSON");
    check(&file);
    file
}

fn list<'a>(file: &'a Value, key: &str) -> &'a [Value] {
    file[key].as_array().expect("a list")
}

fn frames(file: &Value) -> &Map<String, Value> {
    file["stackFrames"].as_object().expect("frames")
}

/// The names of a sample's functions, from the innermost one on.
fn stack<'a>(file: &'a Value, sample: &'a Value) -> Vec<&'a str> {
    let mut names = Vec::new();
    let mut at = sample["sf"].as_str();
    while let Some(id) = at {
        let frame = &frames(file)[id];
        names.push(frame["name"].as_str().expect("a name"));
        at = frame["parent"].as_str();
        assert!(names.len() < 10_000, "frame {id} is its own caller");
    }
    names
}

/// Checks the format's rules.
fn check(file: &Value) {
    let frames = frames(file);
    for (id, frame) in frames {
        assert!(frame["name"].is_string() && frame["category"].is_string());
        if let Some(parent) = frame.get("parent") {
            let parent = parent.as_str().expect("a text, as keys are");
            assert!(frames.contains_key(parent), "{id}: {parent} is missing");
        }
    }
    let mut named = BTreeSet::new();
    let (instants, names): (Vec<&Value>, Vec<&Value>) = list(file, "traceEvents")
        .iter()
        .partition(|event| event["ph"] == "i");
    // Each sample is an instant of its thread, named after its innermost function.
    let samples = list(file, "samples");
    assert_eq!(instants.len(), samples.len());
    for (instant, sample) in instants.into_iter().zip(samples) {
        assert_eq!(instant["s"], "t", "{instant}");
        assert_eq!(instant["name"], stack(file, sample)[0]);
        assert_eq!(instant["cat"], sample["name"]);
        assert_eq!(instant["args"]["weight"], sample["weight"]);
        for key in ["pid", "tid", "ts", "sf"] {
            assert_eq!(instant[key], sample[key], "{instant}");
        }
    }
    for event in names {
        assert_eq!(event["ph"], "M", "{event}");
        assert!(event["args"]["name"].is_string(), "{event}");
        let kind = event["name"].as_str().expect("a name").to_owned();
        let task = (number(&event["pid"]), number(&event["tid"]));
        assert!(named.insert((kind, task)), "{event} is there twice");
    }
    let mut before = 0.0;
    let mut used = BTreeSet::new();
    for sample in list(file, "samples") {
        let time = sample["ts"].as_f64().expect("a time");
        assert!(time >= before, "samples are in the order of time");
        before = time;
        let (pid, tid) = (number(&sample["pid"]), number(&sample["tid"]));
        assert!(named.contains(&("thread_name".to_owned(), (pid, tid))));
        assert!(named.contains(&("process_name".to_owned(), (pid, pid))));
        let mut at = Some(sample["sf"].as_str().expect("a stack"));
        while let Some(id) = at {
            used.insert(id);
            assert!(frames.contains_key(id), "{sample}: no frame {id}");
            at = frames[id]["parent"].as_str();
        }
    }
    assert!(before > 0.0, "the samples have times");
    assert_eq!(used.len(), frames.len(), "each frame has samples");
}

#[test]
fn samples_and_weights_are_the_report_s() {
    let recorded = or_skip!(inlined());
    let file = read(&recorded);
    for event in ["cpu-clock", "page-faults"] {
        let mut own: BTreeMap<String, u64> = BTreeMap::new();
        let mut weights: BTreeMap<String, u64> = BTreeMap::new();
        let mut total: BTreeMap<String, u64> = BTreeMap::new();
        for sample in list(&file, "samples") {
            if sample["name"] != event {
                continue;
            }
            let names = stack(&file, sample);
            let weight = number(&sample["weight"]);
            *own.entry(names[0].to_owned()).or_default() += 1;
            *weights.entry(names[0].to_owned()).or_default() += weight;
            for name in names.into_iter().collect::<BTreeSet<_>>() {
                *total.entry(name.to_owned()).or_default() += weight;
            }
        }
        let folder = recorded.folder.path();
        let rows = report(folder, &["--inline", "-e", event]);
        assert_eq!(own, by_function(&rows, "samples"), "{event}");
        assert_eq!(weights, by_function(&rows, "weight"), "{event}");
        let rows = report(folder, &["--inline", "--children", "-e", event]);
        let mut expected = by_function(&rows, "total_weight");
        // Reports divide callers without a name by ranges of addresses.
        for sums in [&mut total, &mut expected] {
            sums.retain(|name, _| !name.starts_with("[unknown]"));
        }
        assert!(expected.len() > 3, "{expected:?}");
        assert_eq!(total, expected, "{event}");
    }
}

#[test]
fn threads_have_their_samples() {
    let recorded = or_skip!(threads());
    let file = read(&recorded);
    let mut found: BTreeMap<u64, u64> = BTreeMap::new();
    for sample in list(&file, "samples") {
        assert!(sample["cpu"].is_u64(), "{sample}");
        *found.entry(number(&sample["tid"])).or_default() += 1;
    }
    let rows = report(recorded.folder.path(), &["--by", "thread"]);
    let expected = rows
        .iter()
        .map(|row| (number(&row["tid"]), number(&row["samples"])));
    assert_eq!(found, expected.collect());
    assert!(found.len() > 3, "{found:?}");
}

#[test]
fn samples_without_times_are_refused() {
    let program = or_skip!(programs::c("inline", &[]));
    let options = ["-e", "cpu-clock", "-F", "1999", "--no-timestamp"];
    let words = [program.as_os_str(), "20".as_ref()];
    let recorded = or_skip!(programs::perf_record(&options, &words));
    let output = dioptra(recorded.folder.path(), &["export", "--to", "chrome"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("have no times") && said.contains("--timestamp"),
        "{said}"
    );
    assert!(!inside(&recorded, "profile.chrome.json").exists());
}
