//! Sampling of calls while a program runs: calls are counted exactly, however threads end, and scaled back.

use crate::{METHODS, dioptra, text};
use dioptra_testprograms::{Language, Program, Skip, or_skip};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn program(flags: &[&str]) -> Result<PathBuf, Skip> {
    Program::new(Language::C, "trace-sampled")
        .no_flags()
        .flags(["-O1", "-g", "-pthread", "-fno-optimize-sibling-calls"])
        .flags(flags.iter().copied())
        .build()
}

/// Records a case of the program.
fn record(program: &Path, case: &str, rules: &str, folder: &Path) {
    let program = program.to_str().unwrap();
    let mut arguments = vec!["record", "-q", "--no-sched", "--no-libcall"];
    arguments.extend(rules.split(' '));
    arguments.extend([program, case]);
    let output = dioptra(&arguments, folder);
    let expected = if case == "killed" { 128 + 9 } else { 0 };
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(expected), "{told}");
}

/// Returns the counts of each stream, by the function's id: calls that were seen and calls that were shown.
fn counted(folder: &Path) -> Vec<BTreeMap<u64, (u64, u64)>> {
    let journal = folder.join("dioptra.trace/journal.jsonl");
    let journal = std::fs::read_to_string(journal).unwrap();
    let of_line = |line: &str| {
        let value: Value = serde_json::from_str(line).unwrap();
        let functions = value.get("counted")?["functions"].as_array()?.clone();
        let number = |function: &Value, field: &str| function[field].as_u64().unwrap();
        let counts = functions.iter().map(|f| {
            let counts = (number(f, "seen"), number(f, "shown"));
            (number(f, "function"), counts)
        });
        Some(counts.collect())
    };
    journal.lines().filter_map(of_line).collect()
}

/// Returns the sorted counts of all streams and functions, for traces of a single sampled function.
fn numbers(folder: &Path) -> Vec<(u64, u64)> {
    let counted = counted(folder);
    let mut numbers: Vec<_> = counted.iter().flat_map(BTreeMap::values).copied().collect();
    numbers.sort_unstable();
    numbers
}

/// Returns a column of the report by function: values and their errors.
fn report(folder: &Path, column: &str) -> BTreeMap<String, (f64, f64)> {
    let output = dioptra(&["report", "--format", "json"], folder);
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let columns = json["columns"].as_array().unwrap();
    let place = |id: &str| columns.iter().position(|c| c["id"] == id).unwrap();
    let rows = json["rows"].as_array().unwrap().iter();
    rows.map(|row| {
        let name = row["cells"][place("function")].as_str().unwrap().to_owned();
        let value = row["cells"][place(column)].as_f64().unwrap();
        let error = row["standard_errors"][column].as_f64().unwrap_or(0.0);
        (name, (value, error))
    })
    .collect()
}

/// Returns the number of recorded calls of a function.
fn recorded(folder: &Path, name: &str) -> u64 {
    let output = dioptra(&["replay", "-f", "none"], folder);
    let shown = text(&output.stdout);
    let begins = |line: &&str| line.trim_start().starts_with(&format!("{name}()"));
    shown.lines().filter(begins).count() as u64
}

#[test]
fn executions_are_counted_in_each_thread_whatever_ends_it() {
    for flags in METHODS {
        let program = or_skip!(program(flags));
        for (case, rule, expected) in [
            ("threads", "-F f@sample=7", vec![(1000, 142); 20]),
            ("threads", "-T f@sample=7", vec![(1000, 142); 20]),
            ("killed", "-F f@sample=100", vec![(1003, 10)]),
            ("killed", "-T g@sample=100", vec![(2006, 20)]),
            // No call is recorded, but all are counted.
            ("killed", "-F f@sample=5000", vec![(1003, 0)]),
            ("forked", "-F f@sample=10", vec![(17, 1), (28, 2)]),
            ("forked", "-T g@sample=10", vec![(34, 3), (56, 5)]),
            ("jumps", "-F jumper@sample=4", vec![(90, 22)]),
            ("jumps", "-T jumper@sample=4", vec![(90, 22)]),
            // Counters belong to threads, not to stacks.
            ("stacks", "-F f@sample=7", vec![(20, 2)]),
            ("stacks", "-T f@sample=7", vec![(20, 2)]),
        ] {
            let what = format!("{flags:?} {case} {rule}");
            let folder = tempfile::tempdir().unwrap();
            record(&program, case, rule, folder.path());
            assert_eq!(numbers(folder.path()), expected, "{what}");
            let name = rule.split([' ', '@']).nth(1).unwrap();
            let shown: u64 = expected.iter().map(|(_, shown)| shown).sum();
            assert_eq!(recorded(folder.path(), name), shown, "{what}");
        }
    }
}

#[test]
fn threads_beyond_those_that_can_count_are_told() {
    let program = or_skip!(program(&["-fpatchable-function-entry=5"]));
    let folder = tempfile::tempdir().unwrap();
    let program = program.to_str().unwrap();
    let arguments = ["record", "--no-sched", "-F", "f@sample=7", program, "crowd"];
    let output = dioptra(&arguments, folder.path());
    let told = "88 threads beyond those that can count at a time";
    let said = text(&output.stderr);
    assert!(said.contains(told), "{said}");
    // All threads are sampled in the same way; 512 of the 600 threads are counted.
    assert_eq!(numbers(folder.path()), [(100, 14); 512]);
    assert_eq!(recorded(folder.path(), "f"), 600 * 14);
    let said = text(&dioptra(&["report"], folder.path()).stderr);
    assert!(said.contains(told), "{said}");
}

#[test]
fn reports_scale_what_was_recorded_to_what_was_counted() {
    for flags in [["-fpatchable-function-entry=5"], ["-finstrument-functions"]] {
        scales(&or_skip!(program(&flags)));
    }
}

fn scales(program: &Path) {
    // Expected are calls of f, of g and of h.
    for (rule, expected) in [
        ("-F f@sample=100", [20_000.0, 40_000.0, 40_000.0]),
        ("-F f@sample=1/100", [20_000.0, 40_000.0, 40_000.0]),
        ("-F f@sample=1%", [20_000.0, 40_000.0, 40_000.0]),
        ("-T f@sample=300", [20_000.0, 40_000.0, 40_000.0]),
        (
            "-T f@sample=1/50 -T h@sample=7",
            [20_000.0, 40_000.0, 40_000.0],
        ),
        (
            "-F f@sample=20 -F h@sample=9",
            [20_000.0, 40_000.0, 40_000.0],
        ),
        ("-F f@sample=auto", [20_000.0, 40_000.0, 40_000.0]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        record(program, "many", rule, folder.path());
        let calls = report(folder.path(), "calls");
        for (name, expected) in ["f", "g", "h"].iter().zip(expected) {
            let (value, _) = calls[*name];
            // The count of executions of f is exact, and so is the number of calls that each execution makes.
            assert!((value - expected).abs() < 1.0, "{rule}: {name} {value}");
            assert_eq!(value, value.round(), "{rule}: {name} {value}");
        }
        assert!(recorded(folder.path(), "f") < 4_000, "{rule}");
    }
}

#[test]
fn threads_in_which_nothing_was_chosen_are_in_the_estimates() {
    let program = or_skip!(program(&["-fpatchable-function-entry=5"]));
    // About half of the 20 threads with 1,000 calls each have no chosen call.
    for rule in ["-F f@sample=1/1500", "-T f@sample=1/1500"] {
        let folder = tempfile::tempdir().unwrap();
        record(&program, "threads", rule, folder.path());
        let counts = numbers(folder.path());
        assert!(counts.contains(&(1000, 0)), "{counts:?}");
        assert_eq!(
            report(folder.path(), "calls")["f"],
            (20_000.0, 0.0),
            "{rule}"
        );
    }
    // The same rule at reading counts the same calls.
    let folder = tempfile::tempdir().unwrap();
    record(&program, "threads", "-N main", folder.path());
    let output = dioptra(
        &["report", "--format", "json", "-F", "f@sample=1/1500"],
        folder.path(),
    );
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let rows = json["rows"].as_array().unwrap();
    let f = rows.iter().find(|row| row["cells"][0] == "f").unwrap();
    assert!(
        f["cells"]
            .as_array()
            .unwrap()
            .contains(&Value::from(20_000)),
        "{f}"
    );
}

#[test]
fn what_was_sampled_is_told() {
    let program = or_skip!(program(&["-fpatchable-function-entry=5"]));
    let folder = tempfile::tempdir().unwrap();
    record(
        &program,
        "many",
        "-F f@sample=100 -F h@sample=3000",
        folder.path(),
    );
    let info = text(&dioptra(&["info"], folder.path()).stdout);
    assert!(
        info.contains("sample=100          : f: 200 of 20000 calls recorded, with what it calls"),
        "{info}"
    );
    let output = dioptra(&["report"], folder.path());
    let told = text(&output.stderr);
    assert!(
        told.contains(
            "400 calls of 1 sampled functions are not in the table, since none was recorded: h"
        ),
        "{told}"
    );
    // Readers apply rules that depend on more than a call's place, and a message says so.
    let arguments = [
        "record",
        "--no-sched",
        "-F",
        "f@sample=100",
        "-T",
        "g@trace_off",
        program.to_str().unwrap(),
        "many",
    ];
    let output = dioptra(&arguments, folder.path());
    let told = text(&output.stderr);
    assert!(
        told.contains("for the sake of trace_on, trace_off and finish"),
        "{told}"
    );
    assert!(counted(folder.path()).is_empty());
}
