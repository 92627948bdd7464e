//! Queries that need more memory than they may take write to disk, or end with an error that names the remedy.
#![cfg(feature = "query")]

mod common;

use common::{Recording, run, store_command, text, totals_of};
use dioptra_testprograms::or_skip;
use std::process::Output;

/// The samples beside each other.
const SOME: &str = "(SELECT elapsed_ns, stack_id, weight FROM samples ORDER BY elapsed_ns, tid, stack_id LIMIT 300)";

/// Returns a query that groups each of [`SOME`] with every other one.
fn pairs() -> String {
    format!(
        "SELECT sum(weight) AS weight, sum(pairs) AS pairs FROM (\
         SELECT a.elapsed_ns, b.elapsed_ns AS other, a.stack_id, b.stack_id AS stack, sum(a.weight) AS weight, \
         count(*) AS pairs FROM {SOME} a CROSS JOIN {SOME} b \
         GROUP BY a.elapsed_ns, b.elapsed_ns, a.stack_id, b.stack_id) p"
    )
}

fn query(store: &str, memory: &str, sql: &str) -> Output {
    let words = ["query", "--store", store, "--memory", memory];
    let format = ["--format", "json", sql];
    store_command().args(words).args(format).output().unwrap()
}

#[test]
fn a_query_that_is_too_large_says_what_to_do() {
    let recording = or_skip!(Recording::of("shares", &["100"], &["-g"]));
    let store = recording.store();
    recording.add_to(&store);
    let output = query(&store, "64K", &pairs());
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert_eq!(text(&output), "");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.starts_with("dioptra: the query needs more than 64 KiB of memory; ")
            && said.contains("--memory"),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
    let wrong = query(&store, "much", "SELECT 1");
    assert_eq!(wrong.status.code(), Some(2));
}

#[test]
fn a_query_within_its_memory_gives_the_right_answer() {
    let recording = or_skip!(Recording::of("shares", &["250"], &["-g"]));
    let store = recording.store();
    recording.add_to(&store);
    let report = recording.report();
    let answer = query(&store, "64M", common::TOTALS);
    assert!(answer.status.success(), "{answer:?}");
    assert_eq!(
        totals_of(&serde_json::from_str(&text(&answer)).unwrap()),
        report
    );
    let sum = format!("SELECT count(*) AS samples, sum(weight) AS weight FROM {SOME} s");
    let sum = run(["query", "--store", &store, "--format", "json", &sum]);
    let sum: serde_json::Value = serde_json::from_str(&sum).unwrap();
    let (samples, weight) = (&sum[0]["samples"], &sum[0]["weight"]);
    let (samples, weight) = (samples.as_i64().unwrap(), weight.as_i64().unwrap());
    assert!(samples > 100, "{samples}");
    // Each of the samples is beside each other one, so the numbers follow from those of the samples.
    let answer = query(&store, "24M", &pairs());
    assert!(answer.status.success(), "{answer:?}");
    let rows: serde_json::Value = serde_json::from_str(&text(&answer)).unwrap();
    assert_eq!(rows[0]["pairs"], samples * samples);
    assert_eq!(rows[0]["weight"], weight * samples);
}

#[test]
fn a_search_in_stacks_needs_little() {
    let recording = or_skip!(Recording::of("shares", &["250"], &["-g"]));
    let store = recording.store();
    recording.add_to(&store);
    let sql = "SELECT sum(weight) AS weight FROM samples WHERE stack_contains(frames, 'sixty')";
    let free = run(["query", "--store", &store, "--format", "json", sql]);
    let answer = query(&store, "24M", sql);
    assert!(answer.status.success(), "{answer:?}");
    assert_eq!(text(&answer), free);
    let rows: serde_json::Value = serde_json::from_str(&free).unwrap();
    // Nothing is called by it, so its time is that of the samples in it.
    let own: i64 = recording
        .report()
        .iter()
        .filter(|((function, _), _)| function == "sixty")
        .map(|(_, (_, weight))| weight)
        .sum();
    assert!(own > 0);
    assert!(rows[0]["weight"].as_i64().unwrap() >= own, "{rows} {own}");
}
