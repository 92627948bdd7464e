//! Queries give the numbers of `dioptra report`, `dioptra export` and the programs' construction.

mod common;

use common::{Recording, checked, dioptra, run, text, totals, word};
use dioptra_testprograms::or_skip;
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;

#[test]
fn totals_are_those_of_the_report() {
    for (program, options) in [
        ("shares", &["-g"][..]),
        ("inline", &["-g"]),
        ("shares", &[]),
        ("threads", &["-g", "-z"]),
        // Functions that are inlined in one place and called in another.
        ("shares", &["-g", "-a"]),
    ] {
        let recording = or_skip!(Recording::of(program, &[], options));
        let store = recording.store();
        recording.add_to(&store);
        let report = recording.report();
        assert!(report.len() > 2, "{program}: {report:?}");
        // Run time code without a name is one module of all processes in the store.
        let mut missing = BTreeMap::new();
        for ((function, module), (samples, weight)) in report {
            let is_jit = module.starts_with("[JIT] tid ");
            let module = if is_jit { "[JIT]".to_owned() } else { module };
            let sums = missing.entry((function, module)).or_insert((0, 0));
            *sums = (sums.0 + samples, sums.1 + weight);
        }
        let mut found = totals(&store);
        // Only rows that differ are worth showing: those of a whole machine fill screens.
        found.retain(|row, sums| missing.get(row) != Some(sums) || missing.remove(row).is_none());
        assert!(
            found.is_empty() && missing.is_empty(),
            "{program} {options:?}: the store has {found:?}, the report {missing:?}"
        );
    }
}

#[test]
fn shares_are_those_of_the_program() {
    let recording = or_skip!(Recording::of("shares", &[], &["-g"]));
    let store = recording.store();
    recording.add_to(&store);
    let top = run([
        "query",
        "--store",
        &store,
        "--format",
        "json",
        "top-functions",
        "--limit",
        "3",
        "--group-by",
        "service,process",
    ]);
    let top: Value = serde_json::from_str(&top).unwrap();
    let rows = top.as_array().unwrap();
    let names: Vec<&str> = rows
        .iter()
        .map(|row| row["function"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["sixty", "thirty", "ten"]);
    for (row, share) in rows.iter().zip([60.0, 30.0, 10.0]) {
        assert_eq!(row["service"], "web");
        assert_eq!(row["process"], "shares");
        let percent = row["percent"].as_f64().unwrap();
        assert!((percent - share).abs() < 5.0, "{row}");
    }
    let since = |time: &str| {
        let words = ["query", "--store", &store, "top-functions", "--since", time];
        common::store_command().args(words).output().unwrap()
    };
    let day = since("1d");
    assert!(
        day.status.success() && text(&day).contains("sixty"),
        "{}",
        text(&day)
    );
    let none = since("0s");
    assert_eq!(none.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&none.stderr).contains("there are no samples"));
    // Rounds of the three are all that main does.
    let through = |function: &str| {
        let sql = format!(
            "SELECT sum(weight) AS weight FROM samples WHERE stack_contains(frames, '{function}')"
        );
        let answer = run(["query", "--store", &store, "--format", "csv", &sql]);
        answer.lines().nth(1).unwrap().parse::<i64>().unwrap()
    };
    let main = through("main");
    let parts: i64 = ["sixty", "thirty", "ten"].map(through).iter().sum();
    assert!(parts <= main, "{parts} {main}");
    assert!(parts as f64 > 0.95 * main as f64, "{parts} {main}");
}

#[test]
fn collapsed_stacks_are_those_of_the_export() {
    let recording = or_skip!(Recording::of("inline", &[], &["-g"]));
    let store = recording.store();
    recording.add_to(&store);
    let exported = checked(Command::new(or_skip!(dioptra())).args([
        "export",
        "--to",
        "collapsed",
        "-i",
        word(&recording.file),
    ]));
    let flame = run(["query", "--store", &store, "flame"]);
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let exported = text(&exported);
    // A location without a name has its module's in the export.
    let named = |text: &str| {
        let lines = sorted(text).into_iter();
        let named = lines.filter(|line| !line.contains('['));
        named.collect::<Vec<_>>()
    };
    assert!(!named(&flame).is_empty(), "{flame}");
    assert_eq!(named(&flame), named(&exported));
    let sum = |text: &str| -> u64 {
        let values = text.lines().map(|line| line.rsplit_once(' ').unwrap().1);
        values.map(|value| value.parse::<u64>().unwrap()).sum()
    };
    assert_eq!(sum(&flame), sum(&exported));
}

#[test]
fn a_function_has_one_id_in_all_recordings() {
    let recordings = [(); 2].map(|()| Recording::of("shares", &["100"], &["-g"]));
    let [one, two] = recordings;
    let (one, two) = (or_skip!(one), or_skip!(two));
    let store = one.store();
    run([
        "add",
        word(&one.file),
        "--to",
        &store,
        "--host",
        "a",
        "--date",
        "2026-11-01",
    ]);
    run([
        "add",
        word(&two.file),
        "--to",
        &store,
        "--host",
        "b",
        "--date",
        "2026-11-02",
    ]);
    let ids = run([
        "query",
        "--store",
        &store,
        "--format",
        "csv",
        "SELECT count(*) AS n FROM functions WHERE name = 'sixty'",
    ]);
    assert_eq!(ids, "n\n1\n");
    let hosts = run([
        "query",
        "--store",
        &store,
        "--format",
        "csv",
        "SELECT host, date FROM samples WHERE function = 'sixty' GROUP BY host, date ORDER BY host",
    ]);
    assert_eq!(hosts, "host,date\na,2026-11-01\nb,2026-11-02\n");
    // Two runs of one program differ by chance only.
    let regressions = run([
        "query",
        "--store",
        &store,
        "--format",
        "json",
        "regressions",
        "--from",
        "host=a",
        "--to",
        "2026-11-02",
        "--all",
    ]);
    let rows: Value = serde_json::from_str(&regressions).unwrap();
    let sixty = rows.as_array().unwrap().iter();
    let sixty = sixty
        .clone()
        .find(|row| row["function"] == "sixty")
        .unwrap();
    let (delta, error) = (
        sixty["delta"].as_f64().unwrap(),
        sixty["error"].as_f64().unwrap(),
    );
    assert!(delta.abs() < 6.0 * error, "{sixty}");
}

#[test]
fn regressions_are_those_of_diff() {
    let one = or_skip!(Recording::of("shares", &["200"], &["-g"]));
    let two = or_skip!(Recording::of("inline", &["200"], &["-g"]));
    let store = one.store();
    run(["add", word(&one.file), "--to", &store, "--service", "a"]);
    run(["add", word(&two.file), "--to", &store, "--service", "b"]);
    let found = run([
        "query",
        "--store",
        &store,
        "--format",
        "json",
        "regressions",
        "--from",
        "service=a",
        "--to",
        "service=b",
        "--all",
        "--limit",
        "1000",
    ]);
    let found: Value = serde_json::from_str(&found).unwrap();
    let event = run([
        "query",
        "--store",
        &store,
        "--format",
        "csv",
        "SELECT DISTINCT event FROM samples",
    ]);
    let event = event.lines().nth(1).unwrap();
    let diff = checked(Command::new(or_skip!(dioptra())).args([
        "diff",
        word(&one.file),
        word(&two.file),
        "--normalize",
        event,
        "--format",
        "json",
        "--by",
        "module,function",
    ]));
    let diff: Value = serde_json::from_str(&text(&diff)).unwrap();
    let columns = diff["columns"].as_array().unwrap();
    let place = |id: &str| {
        columns
            .iter()
            .position(|column| column["id"] == id)
            .unwrap()
    };
    let mut compared = 0;
    for row in found.as_array().unwrap() {
        let cells = diff["rows"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| &row["cells"]);
        let with_name: Vec<&Value> = cells
            .filter(|cells| cells[place("function")] == row["function"])
            .collect();
        // A name may be that of several functions.
        let [cells] = &*with_name else { continue };
        let delta = cells[place("b_delta")].as_f64().unwrap();
        let z = cells[place("b_z")].as_f64().unwrap();
        assert!(
            (row["delta"].as_f64().unwrap() - delta).abs() < 0.006,
            "{row} {cells}"
        );
        assert!(
            (row["z"].as_f64().unwrap() - z).abs() < 0.02,
            "{row} {cells}"
        );
        compared += 1;
    }
    assert!(compared > 3, "{found}");
    let first = &found[0];
    assert_eq!(first["significance"], "***", "{first}");
}

#[test]
fn answers_come_in_every_format() {
    let recording = or_skip!(Recording::of("shares", &["50"], &["-g"]));
    let store = recording.store();
    recording.add_to(&store);
    let sql = "SELECT function, frames, samples FROM samples WHERE function = 'sixty' LIMIT 2";
    let csv = run(["query", "--store", &store, "--format", "csv", sql]);
    assert_eq!(csv.lines().count(), 3, "{csv}");
    assert!(csv.lines().nth(1).unwrap().contains(";main;"), "{csv}");
    let json = run(["query", "--store", &store, "--format", "json", sql]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert!(
        json[0]["frames"]
            .as_array()
            .unwrap()
            .iter()
            .any(|frame| frame == "main")
    );
    let words = run(["query", "--store", &store, sql]);
    assert!(words.ends_with("# 2 rows\n"), "{words}");
    let file = recording.folder.path().join("answer.parquet");
    run([
        "query",
        "--store",
        &store,
        "--format",
        "parquet",
        "-o",
        word(&file),
        sql,
    ]);
    let bytes = std::fs::read(&file).unwrap();
    assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
}

#[test]
fn statements_that_change_things_are_refused() {
    let recording = or_skip!(Recording::of("shares", &["50"], &[]));
    let store = recording.store();
    recording.add_to(&store);
    let target = recording.folder.path().join("copy.parquet");
    let copy = format!("COPY samples TO '{}'", word(&target));
    for statement in ["DROP VIEW samples", "CREATE TABLE t AS SELECT 1", &copy] {
        let output = common::store_command()
            .args(["query", "--store", &store, statement])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1), "{statement}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("dioptra: "));
    }
    assert!(!target.exists());
    let wrong = common::store_command()
        .args(["query", "--store", &store, "SELECT nothing FROM samples"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&wrong.stderr);
    assert_eq!(said.matches("nothing").count(), 1, "{said}");
}

#[test]
fn flame_graphs_and_pages_hold_the_values() {
    let recording = or_skip!(Recording::of("shares", &["50"], &["-g"]));
    let store = recording.store();
    recording.add_to(&store);
    let weight: i64 = totals(&store).values().map(|(_, weight)| weight).sum();
    let whole = format!("data-whole=\"{weight}\"");
    let picture = run([
        "query",
        "--store",
        &store,
        "flame",
        "--format",
        "flamegraph",
    ]);
    assert!(
        picture.contains(&whole) && picture.contains("<title>sixty ("),
        "{whole}"
    );
    let sql = "SELECT frames, weight FROM samples";
    let picture = run(["query", "--store", &store, "--format", "flamegraph", sql]);
    assert!(picture.contains(&whole), "{whole}");
    let page = run([
        "query",
        "--store",
        &store,
        "--format",
        "html",
        "top-functions",
    ]);
    assert!(page.contains("<td>sixty</td>"), "{page}");
}
