//! Hotspots and timelines with another profile's counts beside them, on two recordings whose counts are known.

use crate::client::{Running, column};
use crate::comparing;
use crate::comparing::library_diff;
use crate::made::SCRIPT;
use crate::records::{ID, Records, attr, event, text, two, word};
use dioptra_perfrecords::SampleType;
use dioptra_report::Normalize;
use dioptra_symbols::SymbolOptions;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The cells of a table of functions, by function and column.
fn by_function(table: &Value) -> BTreeMap<String, BTreeMap<String, Value>> {
    let columns = table["columns"].as_array().expect("columns");
    let ids: Vec<&str> = columns
        .iter()
        .filter_map(|one| one["id"].as_str())
        .collect();
    let rows = table["rows"].as_array().expect("rows");
    let named = rows.iter().map(|row| {
        let cells = row["cells"].as_array().expect("cells");
        let cells = ids
            .iter()
            .map(|id| (*id).to_owned())
            .zip(cells.iter().cloned());
        let cells: BTreeMap<String, Value> = cells.collect();
        (
            cells["function"].as_str().expect("a name").to_owned(),
            cells,
        )
    });
    named.collect()
}

fn close(one: &Value, other: &Value) -> bool {
    match (one.as_f64(), other.as_f64()) {
        (Some(one), Some(other)) => (one - other).abs() <= 1e-9 * one.abs().max(1.0),
        (None, None) => one == other,
        _ => false,
    }
}

#[test]
fn each_side_is_its_own_report_and_the_change_is_that_of_diff() {
    let (made, other) = comparing::two();
    let web = Running::start(&[&made.file, &other], Some(made.symfs()));
    let query = "by=function&event=cpu-clock&format=json&errors=1";
    let both = by_function(&web.ask(&format!("/api/export?{query}&with=1")));
    let first = by_function(&web.ask(&format!("/api/export?{query}")));
    let second = by_function(&web.ask(&format!("/api/export?{query}&profile=1")));
    // The library's diff per event of each whole profile compares the same shares.
    let symbols = SymbolOptions {
        symfs: Some(made.symfs().to_path_buf()),
        ..SymbolOptions::default()
    };
    let diff = library_diff([&made.file, &other], &symbols, Normalize::Event(0));
    let diff = by_function(&diff);
    assert_eq!(both.len(), 3);
    for (name, row) in &both {
        for id in ["self_percent", "samples", "weight"] {
            let there = second.get(name).map_or(json!(0), |row| row[id].clone());
            assert!(close(&row[id], &first[name][id]), "{name} {id}");
            assert!(
                close(&row[&format!("b_{id}")], &there),
                "{name} b_{id}: {row:?}"
            );
        }
        let of_diff = &diff[name];
        for (id, of) in [
            ("b_self_percent_points", "b_delta[cpu-clock]"),
            ("b_self_percent_z", "b_z[cpu-clock]"),
            ("b_self_percent_q", "b_q[cpu-clock]"),
            ("b_self_percent_significance", "b_significance[cpu-clock]"),
            ("b_status", "b_status"),
        ] {
            assert!(
                close(&row[id], &of_diff[of]),
                "{name} {id}: {row:?} {of_diff:?}"
            );
        }
    }
    // By hand: 24 of 35 samples become all of 20; the first share has a binomial error, the second one none.
    let leaf = &both["leaf"];
    assert!(close(
        &leaf["b_self_percent_points"],
        &json!(100.0 - 2400.0 / 35.0)
    ));
    let error = 100.0 * (24.0 / 35.0 * 11.0 / 35.0 / 35.0_f64).sqrt();
    let z = leaf["b_self_percent_z"].as_f64().expect("a number");
    assert!(
        (z - (100.0 - 2400.0 / 35.0) / error).abs() < 1e-6,
        "{z} {error}"
    );
    assert_eq!(both[SCRIPT]["b_status"], "gone");
}

#[test]
fn changes_sort_and_chance_is_marked() {
    let (made, other) = comparing::two();
    let web = Running::start(&[&made.file, &other], Some(made.symfs()));
    let path = "/api/table?by=function&event=cpu-clock&with=1";
    let table = web.ask(&format!("{path}&sort=b_self_percent_points:asc"));
    assert_eq!(column(&table, "function")[0], SCRIPT);
    let points = column(&table, "b_self_percent_points");
    let points: Vec<f64> = points.iter().filter_map(Value::as_f64).collect();
    assert!(points.is_sorted() && points.len() == 3, "{points:?}");
    let rows = table["rows"].as_array().expect("rows");
    let note = |row: &Value| row["notes"]["b_self_percent_points"].clone();
    // One sample of the long function is gone: less than chance makes. The other changes are larger.
    assert_eq!(note(&rows[1]), "within_chance", "{rows:?}");
    assert_eq!((note(&rows[0]), note(&rows[2])), (Value::Null, Value::Null));
    assert!(rows[2]["standard_errors"]["b_self_percent_points"].is_number());
    // Errors of the shares themselves were not asked for.
    assert!(rows[2]["standard_errors"]["self_percent"].is_null());
    // Shares add up to the whole in both profiles, and changes to none.
    let place = |id: &str| {
        let columns = table["columns"].as_array().expect("columns");
        columns.iter().position(|one| one["id"] == id).expect("it")
    };
    let total = |id: &str| table["totals"][place(id)].as_f64();
    assert_eq!(total("b_samples"), Some(20.0));
    assert!(total("b_self_percent_points").expect("a sum").abs() < 1e-9);
    assert_eq!(total("b_self_percent_z"), None);
    // With totals: `main` called all samples there, and 31 of 35 here.
    let totals = web.ask(&format!("{path}&children=1"));
    let names = column(&totals, "function");
    let main = names.iter().position(|name| name == "main").expect("it");
    let points = column(&totals, "b_total_percent_points")[main].clone();
    assert!(close(&points, &json!(100.0 - 3100.0 / 35.0)), "{points}");
    // Rows that only the other profile has are there, too, without a key of this one.
    let back = web.ask("/api/table?by=function&event=cpu-clock&profile=1&with=0");
    let names = column(&back, "function");
    let new = names.iter().position(|name| name == SCRIPT).expect("it");
    assert_eq!(back["rows"][new]["key"], json!({}));
    assert_eq!(column(&back, "b_status")[new], "new");
    assert_eq!(column(&back, "b_samples")[new], 10);
    // Levels: the rows of one process are below it.
    let tree = web.ask("/api/table?by=process,module&event=cpu-clock&with=1&percent=parent");
    assert_eq!(tree["rows"][0]["below"], 1);
}

/// A recording with samples of threads at times: its name, number, time.
fn timed(samples: &[(&str, u32, u64)]) -> Vec<u8> {
    let mut records = Records::default();
    // The process has the name of its first thread.
    let names = samples.iter().map(|(name, tid, _)| (*name, tid));
    for (name, tid) in std::iter::once(("main", &5)).chain(names) {
        records.time += 1;
        let ids = [two(5, *tid), word(records.time), two(0, 0), word(ID)].concat();
        records.push(3, 0, &[&two(5, *tid), &text(name), &ids]);
    }
    for (_, tid, time) in samples {
        records.time = 10_000 + time - 1;
        records.sample_on(ID, (5, *tid), 0x10, 1, tid % 2, &[]);
    }
    records.file(&[event("cpu-clock", attr(SampleType::CPU), &[ID])])
}

#[test]
fn lanes_have_the_other_recordings_samples_from_its_first_one_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, samples: &[(&str, u32, u64)]| {
        let file = folder.path().join(name);
        std::fs::write(&file, timed(samples)).expect("the recording");
        file
    };
    let first = [
        ("main", 5, 0),
        ("worker", 6, 10),
        ("worker", 6, 11),
        ("worker", 6, 99),
        ("worker", 7, 20),
        ("alone", 8, 30),
    ];
    // The other one began later, its numbers are others, and `main` has none of its own.
    let other = [
        ("worker", 16, 500),
        ("worker", 17, 515),
        ("worker", 17, 516),
        ("worker", 19, 599),
        ("new", 18, 610),
    ];
    let files = [write("a.data", &first), write("b.data", &other)];
    let web = Running::start(&[&files[0], &files[1]], None);
    let timeline = web.ask("/api/timeline?bins=10&span=0..100&with=1");
    let rows = timeline["rows"].as_array().expect("rows");
    let row = |tid: u32| rows.iter().find(|row| row["number"] == tid).expect("a row");
    // The heaviest worker there stands for the heaviest one here.
    assert_eq!(row(6)["other"]["number"], 17);
    assert_eq!(
        row(6)["other"]["values"],
        json!([0, 2, 0, 0, 0, 0, 0, 0, 0, 0])
    );
    // Among equally heavy workers the first one is taken.
    assert_eq!(row(7)["other"]["number"], 16);
    assert_eq!(
        row(7)["other"]["values"],
        json!([1, 0, 0, 0, 0, 0, 0, 0, 0, 0])
    );
    for tid in [5, 8] {
        assert!(row(tid).get("other").is_none(), "{tid}");
    }
    // Another worker is no thread of this recording; `new` began after the span.
    assert_eq!(timeline["other"]["unmatched_rows"], 1);
    assert_eq!(timeline["other"]["unmatched_samples"], 1);
    assert_eq!(
        (&timeline["other"]["samples"], &timeline["other"]["peak"]),
        (&json!(4), &json!(2))
    );
    assert_eq!(timeline["other"]["end_ns"], 111);
    // A range of rows has the partners that the whole has.
    let second = web.ask("/api/timeline?bins=10&span=0..100&with=1&from=1&count=1");
    assert_eq!(second["rows"][0], rows[1]);
    let all = web.ask("/api/timeline?bins=10&span=0..100&with=1&rows=all");
    assert_eq!(
        all["rows"][0]["other"]["values"],
        json!([1, 2, 0, 0, 0, 0, 0, 0, 0, 1])
    );
    let alone = web.ask("/api/timeline?bins=10&span=0..100&profile=1&rows=all");
    assert_eq!(
        all["rows"][0]["other"]["values"],
        alone["rows"][0]["values"]
    );
    let cpus = web.ask("/api/timeline?bins=10&span=0..100&with=1&rows=cpu");
    let cpu = |number: u32| {
        let rows = cpus["rows"].as_array().expect("rows");
        let found = rows.iter().find(|row| row["number"] == number);
        found.expect("the CPU")["other"]["samples"].clone()
    };
    assert_eq!((cpu(0), cpu(1)), (json!(1), json!(3)));
    let none = web.get("/api/timeline?with=0");
    assert_eq!(none.code(), "bad_parameter");
}
