//! `report --metric` and `diff --metric`.

use super::{dioptra, record, report, shown, table, text};
use dioptra_testprograms::{self as programs, or_skip};
use serde_json::Value;

#[test]
fn faults_in_the_time_they_took() {
    let faults = or_skip!(programs::c("faults", &[]));
    let recorded = or_skip!(record(
        &[
            "-e",
            "task-clock/period=100000/",
            "-e",
            "page-faults/period=1/"
        ],
        &[faults.as_os_str(), "20000".as_ref()]
    ));
    let table = report(
        &recorded.file,
        &["--metric", "faults_per_ms", "--by", "module,function"],
    );
    let weights = table.columns.iter().filter(|id| id.starts_with("weight["));
    let weights: Vec<&str> = weights.map(String::as_str).collect();
    assert!(weights[1].contains("page-faults"), "{weights:?}");
    for row in &table.rows {
        let (time, faults) = (
            row.count(weights[0]) as f64 / 1e6,
            row.count(weights[1]) as f64,
        );
        match row.number("faults_per_ms") {
            Some(rate) => assert!((rate - faults / time).abs() <= 1e-9 * rate, "{row:?}"),
            // A row is never 0 where there is no time to divide by.
            None => assert_eq!(time, 0.0, "{row:?}"),
        }
    }
    let touching = table
        .rows
        .iter()
        .find(|row| row.text("function") == "touch_pages");
    let touching = touching.expect("the function that faults");
    // The kernel may take the page of the function's own code or stack away, too.
    let touched = touching.count(weights[1]);
    assert!((20_000..20_100).contains(&touched), "{touched}");
    // Other events than the shown ones are inputs too.
    let one = report(
        &recorded.file,
        &[
            "--metric",
            "faults_per_ms",
            "--by",
            "module,function",
            "--event",
            "page-faults",
        ],
    );
    let same = one
        .rows
        .iter()
        .find(|row| row.text("function") == "touch_pages");
    assert_eq!(
        same.expect("the function").cells["faults_per_ms"],
        touching.cells["faults_per_ms"]
    );
}

#[test]
fn what_was_not_recorded_is_named_and_no_zero() {
    let shares = or_skip!(programs::c("shares", &[]));
    let recorded = or_skip!(record(
        &["-e", "cpu-clock", "-e", "page-faults"],
        &[shares.as_os_str(), "50".as_ref()]
    ));
    let file = recorded.file.to_str().expect("a path");
    let one = report(&recorded.file, &["--metric", "ipc,faults_per_ms"]);
    for row in &one.rows {
        assert_eq!(row.cells["ipc"], Value::Null);
        assert_eq!(row.notes["ipc"], "missing: cycles, instructions");
    }
    let fact = &one.facts["missing_inputs"];
    assert_eq!(
        fact["value"]["ipc"],
        serde_json::json!(["cycles", "instructions"])
    );
    let shown_text = shown(&["report", "-i", file, "--metric", "ipc,faults_per_ms"]);
    assert!(shown_text.contains("no cycles +1"), "{shown_text}");
    // A whole set shows only the columns that have values.
    let all = report(&recorded.file, &["--metric", "generic"]);
    assert!(
        !all.columns.contains(&"ipc".to_owned()),
        "{:?}",
        all.columns
    );
    assert!(all.facts["missing_inputs"]["value"]["ipc"].is_array());
    let output = dioptra(&["report", "-i", file, "--metric", "no-such-metric"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("no-such-metric"));
}

/// Where no metric that was named can have a value, one line says which events are missing.
#[test]
fn a_report_of_metrics_without_their_events_is_refused() {
    let shares = or_skip!(programs::c("shares", &[]));
    let recorded = or_skip!(record(
        &["-e", "cpu-clock"],
        &[shares.as_os_str(), "50".as_ref()]
    ));
    let file = recorded.file.to_str().expect("a path");
    let output = dioptra(&["report", "-i", file, "--metric", "ipc"]);
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    for part in [
        "--metric: ",
        file,
        "ipc has no value without cycles, instructions",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(output.stdout.is_empty());
    // A set that is named as a whole leaves out what it cannot tell.
    let all = report(&recorded.file, &["--metric", "generic"]);
    assert!(all.facts["missing_inputs"]["value"]["ipc"].is_array());
}

#[test]
fn differences_of_metrics() {
    let faults = or_skip!(programs::c("faults", &[]));
    let options = [
        "-e",
        "task-clock/period=100000/",
        "-e",
        "page-faults/period=1/",
    ];
    let one = or_skip!(record(&options, &[faults.as_os_str(), "20000".as_ref()]));
    let two = or_skip!(record(&options, &[faults.as_os_str(), "20000".as_ref()]));
    let (a, b) = (
        one.file.to_str().expect("a path"),
        two.file.to_str().expect("a path"),
    );
    let table = table(&["diff", a, b, "--metric", "faults_per_ms", "--by", "module"]);
    let row = table
        .rows
        .iter()
        .find(|row| row.text("module") == "faults")
        .expect("a row");
    let number = |column: &str| row.number(column).expect("a number");
    let delta = number("b_faults_per_ms") - number("a_faults_per_ms");
    assert!((number("b_faults_per_ms_delta") - delta).abs() < 1e-9);
    assert!(
        row.errors["b_faults_per_ms_delta"]
            .as_f64()
            .is_some_and(|error| error > 0.0)
    );
}
