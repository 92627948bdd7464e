//! Other engines read the same files and give the same answers to the same SQL.
//!
//! `DIOPTRA_PYTHON` names a Python that has the engines: `pip install duckdb pyspark`.

mod common;

use common::{Recording, TOTALS, Totals, python_with, run, text, totals, totals_of};
use dioptra_testprograms::{self as programs, or_skip};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// SQL beyond sums that all engines share: joins, lists of frames, conditions on partitions.
const OTHER: &str = "SELECT service AS function, host AS module, sum(samples) AS samples, \
     sum(CASE WHEN array_contains(frames, 'sixty') THEN weight ELSE 0 END) AS weight \
     FROM samples WHERE date >= '2026-01-01' AND time_ns > 0 GROUP BY service, host";

/// Returns the rows that a script prints for SQL over a store.
fn rows(python: &PathBuf, script: &str, store: &str, sql: &str) -> Totals {
    let script = programs::repository_root()
        .join("crates/store/tests/engines")
        .join(script);
    let mut child = Command::new(python)
        .arg(script)
        .args([store, sql])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let views = run(["query", "--show-views"]);
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(views.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    totals_of(&serde_json::from_str(&text(&output)).unwrap())
}

fn same_answers(module: &str, script: &str) {
    let python = or_skip!(python_with(module));
    let one = or_skip!(Recording::of("shares", &["100"], &["-g"]));
    let two = or_skip!(Recording::of("inline", &["100"], &["-g"]));
    let store = one.store();
    one.add_to(&store);
    run([
        "add",
        common::word(&two.file),
        "--to",
        &store,
        "--host",
        "123",
    ]);
    // The rows of a profile that is not there must not count.
    let orphan = or_skip!(Recording::of("shares", &["50"], &["-g"]));
    let kept = common::files_below(&std::path::Path::new(&store).join("profiles"));
    orphan.add_to(&store);
    for row in common::files_below(&std::path::Path::new(&store).join("profiles")) {
        if !kept.contains(&row) {
            std::fs::remove_file(row).unwrap();
        }
    }
    let own = totals(&store);
    assert!(own.len() > 3, "{own:?}");
    assert_eq!(rows(&python, script, &store, TOTALS), own);
    let answer = run(["query", "--store", &store, "--format", "json", OTHER]);
    let own = totals_of(&serde_json::from_str(&answer).unwrap());
    assert_eq!(own.len(), 2, "{own:?}");
    assert_eq!(rows(&python, script, &store, OTHER), own);
}

#[test]
fn duckdb_gives_the_same_answers() {
    same_answers("duckdb", "duckdb_rows.py");
}

#[test]
fn spark_gives_the_same_answers() {
    or_skip!(programs::need_tool("java"));
    same_answers("pyspark", "spark_rows.py");
}

#[test]
fn duckdb_gives_the_same_sums_of_calls() {
    const CALLS: &str = "SELECT function, module, CAST(sum(calls) AS BIGINT) AS samples, \
         CAST(sum(total_ns) AS BIGINT) AS weight FROM calls GROUP BY function, module";
    let python = or_skip!(python_with("duckdb"));
    let dioptra = or_skip!(common::dioptra());
    let program = or_skip!(programs::c("shares", &[]));
    let folder = tempfile::tempdir().unwrap();
    let trace = common::word(&folder.path().join("trace")).to_owned();
    let mut record = Command::new(dioptra);
    record.args(["trace", "record", "-d", &trace, "-P", ".", "--"]);
    record.arg(program).arg("20").output().unwrap();
    if !folder.path().join("trace/info.json").exists() {
        return programs::skip("nothing can be traced here");
    }
    let store = common::word(&folder.path().join("store")).to_owned();
    run(["add", &trace, "--to", &store]);
    let answer = run(["query", "--store", &store, "--format", "json", CALLS]);
    let own = totals_of(&serde_json::from_str(&answer).unwrap());
    assert!(own.len() > 3, "{own:?}");
    assert_eq!(rows(&python, "duckdb_rows.py", &store, CALLS), own);
}
