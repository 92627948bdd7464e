//! Clusters of other engines read the same files and give the same answers to the same SQL: Spark with two workers and
//! Ballista with two executors, as processes on loopback.
//!
//! `cargo xtask store --engines` installs and builds them. `DIOPTRA_PYTHON` names a Python that has pyspark,
//! `DIOPTRA_BALLISTA` the program of crates/store/engines/ballista.

mod common;

use common::{Recording, TOTALS, checked, run, store_command, text};
use dioptra_testprograms::{self as programs, Skip, or_skip};
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Sums, lists of frames, conditions on partitions.
const FRAMES: &str = "SELECT service, host, sum(samples) AS samples, \
     sum(CASE WHEN array_contains(frames, 'sixty') THEN weight ELSE 0 END) AS weight \
     FROM samples WHERE date >= '2026-01-01' AND time_ns > 0 GROUP BY service, host";

/// A join of the views with each other.
const JOINS: &str = "SELECT f.name, m.name AS module, m.kind, count(*) AS stacks, max(s.depth) AS depth \
     FROM stacks s JOIN functions f ON s.function_id = f.function_id JOIN modules m ON f.module_id = m.module_id \
     GROUP BY f.name, m.name, m.kind";

/// A store with two profiles of two hosts, and with rows of a third whose own row is not there.
struct Fixture {
    store: String,
    _recordings: [Recording; 3],
    _folder: TempDir,
}

impl Fixture {
    fn new() -> Result<Fixture, Skip> {
        let recordings = [
            Recording::of("shares", &["100"], &["-g"])?,
            Recording::of("inline", &["100"], &["-g"])?,
            Recording::of("shares", &["50"], &["-g"])?,
        ];
        let folder = tempfile::tempdir().unwrap();
        let store = common::word(&folder.path().join("store")).to_owned();
        let rows = Path::new(&store).join("profiles");
        let mut kept = Vec::new();
        for (recording, host) in recordings.iter().zip(["one", "123", "orphan"]) {
            kept = common::files_below(&rows);
            let file = common::word(&recording.file);
            let service = ["--service", "web", "--host", host];
            checked(
                store_command()
                    .args(["add", file, "--to", &store])
                    .args(service),
            );
        }
        for row in common::files_below(&rows) {
            if !kept.contains(&row) {
                std::fs::remove_file(row).unwrap();
            }
        }
        Ok(Fixture {
            store,
            _recordings: recordings,
            _folder: folder,
        })
    }

    /// Returns the queries that all engines must answer alike: some of our own, and those that named questions ask.
    fn queries(&self) -> Vec<String> {
        let mut queries = [TOTALS, FRAMES, JOINS].map(str::to_owned).to_vec();
        queries.extend(self.asked(&["top-functions", "--group-by", "host", "--limit", "5"]));
        queries.extend(self.asked(&["regressions", "--from", "host=one", "--to", "host=123"]));
        queries
    }

    /// Returns the SQL that a named question shows.
    fn asked(&self, question: &[&str]) -> Vec<String> {
        let output = checked(
            store_command()
                .args(["query", "--store", &self.store])
                .args(question)
                .arg("--show-sql"),
        );
        let messages = String::from_utf8(output.stderr).unwrap();
        let shown: Vec<String> = messages
            .lines()
            .filter_map(|line| line.strip_prefix("# SQL: "))
            .map(str::to_owned)
            .collect();
        assert!(shown.len() >= 2, "{messages}");
        shown
    }

    /// Returns the rows of the embedded engine.
    fn own(&self, sql: &str) -> Value {
        let answer = run(["query", "--store", &self.store, "--format", "json", sql]);
        serde_json::from_str(&answer).unwrap()
    }

    /// Has a cluster answer all queries, and compares. Each of its two executors must have worked.
    fn assert_same_answers(&self, cluster: &mut Command) {
        let queries = self.queries();
        let mut child = cluster
            .arg(&self.store)
            .args(&queries)
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
        let messages = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{messages}");
        let answer: Value = serde_json::from_str(&text(&output)).unwrap();
        let answers = answer["answers"].as_array().unwrap();
        assert_eq!(answers.len(), queries.len());
        for (sql, rows) in queries.iter().zip(answers) {
            let own = self.own(sql);
            assert!(!own.as_array().unwrap().is_empty(), "no rows: {sql}");
            assert_same_rows(sql, &own, rows);
        }
        let executors = answer["executors"].as_object().unwrap();
        assert_eq!(executors.len(), 2, "{executors:?}");
        for (name, work) in executors {
            assert!(work.as_u64().unwrap() > 0, "{name} did nothing");
        }
    }
}

/// Compares rows: in their order where the query has one. Floating-point numbers may differ by the order of a sum.
fn assert_same_rows(sql: &str, own: &Value, other: &Value) {
    let sorted = |rows: &Value| {
        let mut rows = rows.as_array().unwrap().clone();
        if !sql.contains(") WHERE place") {
            rows.sort_by_key(exact_part);
        }
        rows
    };
    let (own, other) = (sorted(own), sorted(other));
    let is_same = own.len() == other.len()
        && own
            .iter()
            .zip(&other)
            .all(|(one, two)| is_same_row(one, two));
    assert!(is_same, "{sql}\nembedded: {own:#?}\ncluster: {other:#?}");
}

/// Returns a row's texts and integers.
fn exact_part(row: &Value) -> String {
    let cells = row.as_object().unwrap().iter();
    let exact: Vec<String> = cells
        .filter(|(_, cell)| !cell.is_f64())
        .map(|(name, cell)| format!("{name}={cell}"))
        .collect();
    exact.join(" ")
}

fn is_same_row(one: &Value, two: &Value) -> bool {
    let (one, two) = (one.as_object().unwrap(), two.as_object().unwrap());
    one.len() == two.len()
        && one
            .iter()
            .all(|(name, cell)| two.get(name).is_some_and(|other| is_same(cell, other)))
}

fn is_same(one: &Value, two: &Value) -> bool {
    match (one.as_f64(), two.as_f64()) {
        (Some(a), Some(b)) if one.is_f64() || two.is_f64() => {
            (a - b).abs() <= 1e-12 * a.abs().max(b.abs())
        }
        _ => one == two,
    }
}

#[test]
fn spark_with_two_workers_gives_the_same_answers() {
    or_skip!(programs::need_tool("java"));
    let python = or_skip!(common::python_with("pyspark"));
    let fixture = or_skip!(Fixture::new());
    let script = programs::repository_root().join("crates/store/tests/engines/spark_cluster.py");
    fixture.assert_same_answers(Command::new(python).arg(script));
}

#[test]
fn ballista_with_two_executors_gives_the_same_answers() {
    let program = or_skip!(ballista());
    let fixture = or_skip!(Fixture::new());
    fixture.assert_same_answers(Command::new(program).arg("cluster"));
}

fn ballista() -> Result<PathBuf, Skip> {
    let own = programs::repository_root().join("crates/store/engines/ballista/target");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(own, PathBuf::from);
    let built = ["debug", "release"].map(|kind| target.join(kind).join("dioptra-store-ballista"));
    let named = std::env::var_os("DIOPTRA_BALLISTA").map(PathBuf::from);
    let found = named.into_iter().chain(built).find(|path| path.is_file());
    let remedy = "there is no dioptra-store-ballista; `cargo xtask store --engines` builds it";
    found.ok_or_else(|| Skip::new(remedy))
}
