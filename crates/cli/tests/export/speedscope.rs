//! speedscope's file, against its published schema's rules.

use crate::support::{by_function, done, inlined, inside, report, threads};
use dioptra_testprograms::or_skip;
use serde_json::Value;
use std::collections::BTreeMap;

fn read(file: &std::path::Path) -> Value {
    serde_json::from_slice(&std::fs::read(file).expect("the file")).expect("JSON")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

#[test]
fn samples_and_weights_are_the_report_s() {
    let recorded = or_skip!(inlined());
    let folder = recorded.folder.path();
    done(folder, &["export", "--to", "speedscope"]);
    let file = read(&inside(&recorded, "profile.speedscope.json"));
    let frames = list(&file["shared"]["frames"]);
    for event in ["cpu-clock", "page-faults"] {
        let mut weights: BTreeMap<String, u64> = BTreeMap::new();
        let mut samples: BTreeMap<String, u64> = BTreeMap::new();
        let name = |profile: &&Value| {
            profile["name"]
                .as_str()
                .is_some_and(|name| name.ends_with(event))
        };
        for profile in list(&file["profiles"]).iter().filter(name) {
            assert_eq!(profile["type"], "sampled");
            let unit = if event == "cpu-clock" {
                "nanoseconds"
            } else {
                "none"
            };
            assert_eq!(profile["unit"], unit);
            let of_profile = list(&profile["weights"]);
            assert_eq!(of_profile.len(), list(&profile["samples"]).len());
            let sum: u64 = of_profile.iter().filter_map(Value::as_u64).sum();
            assert_eq!(profile["endValue"], sum);
            for (stack, weight) in list(&profile["samples"]).iter().zip(of_profile) {
                let innermost = list(stack).last().and_then(Value::as_u64).expect("a frame");
                let name = frames[innermost as usize]["name"].as_str().expect("a name");
                *weights.entry(name.to_owned()).or_default() += weight.as_u64().expect("a weight");
                *samples.entry(name.to_owned()).or_default() += 1;
            }
        }
        let rows = report(folder, &["--inline", "-e", event]);
        assert_eq!(weights, by_function(&rows, "weight"), "{event}");
        assert_eq!(samples, by_function(&rows, "samples"), "{event}");
    }
}

#[test]
fn each_thread_is_a_profile() {
    let recorded = or_skip!(threads());
    let folder = recorded.folder.path();
    done(folder, &["export", "--to", "speedscope"]);
    let file = read(&inside(&recorded, "profile.speedscope.json"));
    let found: BTreeMap<u64, u64> = list(&file["profiles"])
        .iter()
        .map(|profile| {
            let name = profile["name"].as_str().expect("a name");
            let (_, rest) = name.rsplit_once('/').expect("a thread");
            let (tid, _) = rest.split_once(' ').expect("an event");
            let end = profile["endValue"].as_u64().expect("a sum");
            (tid.parse().expect("a number"), end)
        })
        .collect();
    let rows = report(folder, &["--by", "thread"]);
    let expected = rows.iter().map(|row| {
        let tid = crate::support::number(&row["tid"]);
        (tid, crate::support::number(&row["weight"]))
    });
    assert_eq!(found, expected.collect());
}
