//! Metrics of the nodes of a flame graph, on a recording whose counts are known.

use crate::client::{Running, column};
use crate::records::{ID, Records, SECOND, USER, attr, event, text, two, word};
use dioptra_perfrecords::{Attr, SampleType, event_type};
use serde_json::{Value, json};
use std::path::PathBuf;
use tempfile::TempDir;

const MAIN: u64 = 0x10000;
const LEAF: u64 = 0x10100;
const RARE: u64 = 0x10200;

/// Samples of cycles and of instructions, 10 and 1000 events each: of `main` itself 10 and 20, of `leaf` 40 and 20, of
/// `rare` 3 and 4.
fn recorded() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("tmp")).expect("a folder");
    let map = "10000 100 main\n10100 100 leaf\n10200 100 rare\n";
    std::fs::write(folder.path().join("tmp/perf-42.map"), map).expect("a map");
    let mut records = Records::default();
    records.comm(42, 42, true, "program");
    let ids = [two(42, 42), word(1), word(ID)].concat();
    let range = [word(0x10000), word(0x10000), word(0)].concat();
    records.push(1, 2, &[&two(42, 42), &range, &text("//anon"), &ids]);
    let mut sample = |id: u64, number: usize, stack: &[u64]| {
        for _ in 0..number {
            let mut chain = vec![stack.len() as u64 + 1, USER];
            chain.extend(stack);
            let period = if id == ID { 10 } else { 1000 };
            records.sample(id, (42, 42), stack[0], period, &chain);
        }
    };
    for (id, numbers) in [(ID, [10, 40, 3]), (SECOND, [20, 20, 4])] {
        sample(id, numbers[0], &[MAIN]);
        sample(id, numbers[1], &[LEAF, MAIN]);
        sample(id, numbers[2], &[RARE, MAIN]);
    }
    let hardware = |config| Attr {
        kind: event_type::HARDWARE,
        config,
        ..attr(SampleType::CALLCHAIN)
    };
    let events = [
        event("cycles", hardware(0), &[ID]),
        event("instructions", hardware(1), &[SECOND]),
    ];
    let file = folder.path().join("perf.data");
    std::fs::write(&file, records.file(&events)).expect("the recording");
    (folder, file)
}

#[test]
fn nodes_have_the_metric_of_everything_below_them() {
    let (folder, file) = recorded();
    let web = Running::start(&[&file], Some(folder.path()));
    // Only cycles are drawn; the metric needs both events.
    let flame = web.ask("/api/flame?event=cycles&metric=generic:ipc");
    assert_eq!(flame["events"].as_array().map(Vec::len), Some(1));
    assert_eq!(flame["nodes"]["total"].as_array().map(Vec::len), Some(1));
    let metric = &flame["metrics"][0];
    assert_eq!(metric["name"], "ipc");
    let functions = flame["functions"].as_array().expect("functions");
    let names: Vec<&str> = flame["nodes"]["function"]
        .as_array()
        .expect("nodes")
        .iter()
        .filter_map(|at| functions[at.as_u64()? as usize]["name"].as_str())
        .collect();
    let value = |name: &str, list: &str| {
        let at = names.iter().position(|known| *known == name).expect("it");
        metric[list][at].clone()
    };
    let all = 44_000.0 / 530.0;
    let close = |value: &Value, expected: f64| {
        let value = value.as_f64().expect("a number");
        assert!((value - expected).abs() < 1e-9, "{value} {expected}");
    };
    close(&value("main", "values"), all);
    close(&metric["whole"], all);
    close(&value("leaf", "values"), 50.0);
    assert_eq!(
        (value("leaf", "few"), value("rare", "few")),
        (json!(0), json!(1))
    );
    // Where a function has one path and calls nothing, it is the column of the table, with its error.
    let table = web.ask("/api/table?by=function&event=cycles&metric=generic:ipc&errors=1");
    let at = column(&table, "function")
        .iter()
        .position(|name| *name == "leaf")
        .expect("leaf");
    close(&column(&table, "ipc")[at], 50.0);
    let error = &table["rows"][at]["standard_errors"]["ipc"];
    close(&value("leaf", "errors"), error.as_f64().expect("an error"));
    // Inverted, the callers of `leaf` have its samples only.
    let inverted = web.ask("/api/flame?event=cycles&metric=generic:ipc&direction=callers");
    let values = inverted["metrics"][0]["values"].as_array().expect("values");
    assert!(
        values
            .iter()
            .filter(|value| value.as_f64() == Some(50.0))
            .count()
            == 2,
        "{values:?}"
    );
    // Without the parameter nothing is computed, and the tree is the same.
    let plain = web.ask("/api/flame?event=cycles");
    assert!(plain.get("metrics").is_none());
    assert_eq!(plain["nodes"], flame["nodes"]);
    for (metric, code) in [
        ("nothing", "bad_parameter"),
        ("generic:branch_mispredict_rate", "bad_parameter"),
    ] {
        assert_eq!(
            web.get(&format!("/api/flame?metric={metric}")).code(),
            code,
            "{metric}"
        );
    }
}
