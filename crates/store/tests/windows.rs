//! Windows in a store hold the counts between the samples of the recording, and the totals of `dioptra info`.
#![cfg(feature = "query")]

mod common;

use common::{checked, dioptra, run, text, word};
use dioptra_perfdata::PerfData;
use dioptra_perfrecords::record::Record;
use dioptra_testprograms::or_skip;
use dioptra_windows::section::WindowsSection;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;

/// Returns the number of windows, and the sum of each event over them, from the samples alone.
fn counted(path: &Path) -> (i64, BTreeMap<String, i64>) {
    let mut data = PerfData::open(path).unwrap();
    let section = WindowsSection::of(&mut data, None).unwrap();
    let [group] = &*section.groups else {
        panic!("{:?}", section.groups)
    };
    let mut samples: Vec<(u64, u32, Vec<u64>)> = Vec::new();
    data.read(|record| {
        if record.event == Some(group.leader as usize)
            && let Some(layout) = data.layout(record.event)
            && let Ok(Record::Sample(sample)) = layout.parse(&record.raw)
        {
            let values = sample.read.unwrap();
            let values = values.iter().map(|value| value.value).collect();
            samples.push((sample.time.unwrap(), sample.tid.unwrap(), values));
        }
        ControlFlow::Continue(())
    });
    let events = std::iter::once(&group.leader).chain(&group.members);
    let names: Vec<String> = events
        .map(|event| data.events()[*event as usize].name.clone())
        .collect();
    let mut sums: BTreeMap<String, i64> = BTreeMap::new();
    let mut windows = 0;
    for burst in &section.bursts {
        let own: Vec<_> = samples
            .iter()
            .filter(|(time, tid, _)| {
                (burst.armed..=burst.ended).contains(time)
                    && burst.tid.is_none_or(|own| own == *tid)
            })
            .collect();
        for pair in own.windows(2).take(usize::from(burst.expected)) {
            windows += 1;
            for (place, name) in names.iter().enumerate() {
                let count = pair[1].2[place] - pair[0].2[place];
                *sums.entry(name.clone()).or_default() += count.cast_signed();
            }
        }
    }
    (windows, sums)
}

fn query(store: &str, sql: &str) -> Value {
    let answer = run(["query", "--store", store, "--format", "json", sql]);
    serde_json::from_str(&answer).unwrap()
}

#[test]
fn windows_hold_the_counts_of_the_recording() {
    let (folder, file) = or_skip!(common::windows());
    let store = word(&folder.path().join("store")).to_owned();
    run(["add", word(&file), "--to", &store]);
    let (windows, sums) = counted(&file);
    assert!(windows > 40, "{windows}");
    let rows = query(
        &store,
        "SELECT event, count(*) AS n, sum(value) AS value FROM windows GROUP BY event",
    );
    let mut stored = BTreeMap::new();
    for row in rows.as_array().unwrap() {
        assert_eq!(row["n"].as_i64(), Some(windows), "{row}");
        let event = row["event"].as_str().unwrap().to_owned();
        stored.insert(event, row["value"].as_i64().unwrap());
    }
    assert_eq!(stored, sums);
    // Known by construction: a page for each fault of one function, and none in the other.
    let by_function = "SELECT start_function, count(*) AS n, sum(value) AS value FROM windows \
         WHERE event = 'minor-faults' AND start_function = function AND flags IS NULL \
         GROUP BY start_function ORDER BY n DESC";
    let rows = query(&store, by_function);
    assert_eq!(rows[0]["start_function"], "touch_and_call", "{rows}");
    assert!(rows[0]["value"].as_i64().unwrap() > 100, "{rows}");
    let dioptra = or_skip!(dioptra());
    let info = checked(Command::new(dioptra).args(["info", "--format", "json", "-i", word(&file)]));
    let info: Value = serde_json::from_str(&text(&info)).unwrap();
    let totals = query(
        &store,
        "SELECT event, value, enabled_ns, running_ns FROM window_totals",
    );
    let totals = totals.as_array().unwrap();
    let known = info["windows"]["totals"].as_array().unwrap();
    assert_eq!(totals.len(), known.len());
    for total in known {
        let same = |row: &&Value| row["event"] == total["event"];
        let row = totals.iter().find(same).unwrap();
        assert_eq!(row["value"], total["value"]);
        assert_eq!(row["enabled_ns"], total["enabled"]);
        assert_eq!(row["running_ns"], total["running"]);
    }
    let verified = run(["verify", "--store", &store]);
    assert!(verified.contains("# 1 profile is whole"), "{verified}");
}
