//! Traces and windows in a store have the numbers of `dioptra trace report`, `dioptra info` and the recording itself.
#![cfg(feature = "query")]

mod common;

use common::{checked, dioptra, run, store_command, text, word};
use dioptra_testprograms::{Skip, or_skip};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// By function: calls, total time and self time.
type CallSums = BTreeMap<String, [i64; 3]>;

struct Traced {
    folder: TempDir,
    trace: PathBuf,
}

impl Traced {
    fn of(program: &str, words: &[&str], options: &[&str]) -> Result<Traced, Skip> {
        let (folder, trace) = common::trace(program, words, options)?;
        Ok(Traced { folder, trace })
    }

    fn store(&self) -> String {
        word(&self.folder.path().join("store")).to_owned()
    }

    fn report(&self) -> Value {
        let words = [
            "trace",
            "report",
            "--format",
            "json",
            "--fold",
            "-f",
            "total,self,call",
            "-d",
        ];
        let dioptra = dioptra().unwrap_or_else(|skip| panic!("{skip:?}"));
        let report = checked(Command::new(dioptra).args(words).arg(&self.trace));
        serde_json::from_str(&text(&report)).unwrap()
    }

    /// Returns the sums of each function in `dioptra trace report`.
    fn sums(&self) -> CallSums {
        let report = self.report();
        let columns = report["columns"].as_array().unwrap();
        let place = |id: &str| {
            columns
                .iter()
                .position(|column| column["id"] == id)
                .unwrap()
        };
        let [function, calls, total, own] = ["function", "calls", "total", "self"].map(place);
        let rows = report["rows"].as_array().unwrap().iter();
        rows.map(|row| {
            let cells = &row["cells"];
            let number = |place: usize| cells[place].as_i64().unwrap();
            let name = cells[function].as_str().unwrap().to_owned();
            (name, [number(calls), number(total), number(own)])
        })
        .collect()
    }
}

const SUMS: &str = "SELECT function, sum(calls) AS calls, sum(total_ns) AS total_ns, sum(self_ns) AS self_ns \
     FROM calls GROUP BY function";

fn sums_of(rows: &Value) -> CallSums {
    let rows = rows.as_array().unwrap().iter();
    rows.map(|row| {
        let number = |column: &str| row[column].as_i64().unwrap();
        let name = row["function"].as_str().unwrap().to_owned();
        (
            name,
            [number("calls"), number("total_ns"), number("self_ns")],
        )
    })
    .collect()
}

fn query(store: &str, sql: &str) -> Value {
    let answer = run(["query", "--store", store, "--format", "json", sql]);
    serde_json::from_str(&answer).unwrap()
}

#[test]
fn calls_have_the_sums_of_the_trace_report() {
    for (program, words) in [
        ("trace-calls", &[][..]),
        ("recursion", &[]),
        ("trace-five", &[]),
        ("threads", &[]),
    ] {
        let traced = or_skip!(Traced::of(program, words, &["-P", "."]));
        let expected = traced.sums();
        assert!(expected.len() > 2, "{program}: {expected:?}");
        for each in ["200000", "0"] {
            let store = word(&traced.folder.path().join(each)).to_owned();
            run([
                "add",
                word(&traced.trace),
                "--to",
                &store,
                "--each-call",
                each,
            ]);
            assert_eq!(sums_of(&query(&store, SUMS)), expected, "{program} {each}");
            let rows = query(
                &store,
                "SELECT count(*) AS n, sum(calls) AS calls, count(elapsed_ns) AS times FROM calls",
            );
            match each {
                "0" => assert_eq!(rows[0]["times"], 0),
                // Calls beyond the limit have sums, too.
                _ if rows[0]["calls"].as_i64() > Some(200_000) => assert_eq!(rows[0]["times"], 0),
                _ => assert_eq!(rows[0]["times"], rows[0]["calls"]),
            }
            let verified = run(["verify", "--store", &store]);
            assert!(
                verified.contains("# 1 profile is whole, with 0 samples and "),
                "{verified}"
            );
            // A call's caller is the next function of its stack.
            let callers = "SELECT count(*) AS n FROM calls c JOIN stacks s ON c.stack_id = s.stack_id \
                 WHERE coalesce(c.parent, '') <> coalesce(s.frames[2], '')";
            assert_eq!(query(&store, callers)[0]["n"], 0);
        }
    }
}

#[test]
fn a_function_has_one_id_in_profiles_and_traces() {
    let traced = or_skip!(Traced::of("shares", &["20"], &["-P", "."]));
    let recording = or_skip!(common::Recording::of("shares", &["100"], &["-g"]));
    let store = traced.store();
    run(["add", word(&traced.trace), "--to", &store]);
    run(["add", word(&recording.file), "--to", &store]);
    for function in ["sixty", "thirty", "ten", "main"] {
        let sql = format!(
            "SELECT count(DISTINCT f.function_id) AS ids, count(DISTINCT c.function_id) AS traced \
             FROM functions f LEFT JOIN calls c ON c.function_id = f.function_id WHERE f.name = '{function}'"
        );
        let row = &query(&store, &sql)[0];
        assert_eq!(
            (&row["ids"], &row["traced"]),
            (&1.into(), &1.into()),
            "{function}"
        );
    }
    // Both at once: time of samples and calls of one function.
    let both = "SELECT s.weight, c.calls FROM \
         (SELECT function_id, sum(weight) AS weight FROM samples GROUP BY function_id) s JOIN \
         (SELECT function_id, sum(calls) AS calls FROM calls GROUP BY function_id) c ON s.function_id = c.function_id";
    assert!(query(&store, both).as_array().unwrap().len() >= 3);
    let list = run(["list", "--store", &store]);
    assert!(list.ends_with("# 2 profiles\n"), "{list}");
}

#[test]
fn sampled_calls_have_their_estimates() {
    let traced = or_skip!(Traced::of(
        "shares",
        &["200"],
        &["-P", ".", "-F", "sixty@sample=1/3"]
    ));
    let store = traced.store();
    run(["add", word(&traced.trace), "--to", &store]);
    let report = traced.report();
    let columns = report["columns"].as_array().unwrap();
    let place = |id: &str| {
        columns
            .iter()
            .position(|column| column["id"] == id)
            .unwrap()
    };
    let rows = query(&store, "SELECT * FROM call_estimates ORDER BY function");
    let rows = rows.as_array().unwrap();
    assert!(!rows.is_empty(), "{report}");
    for row in rows {
        let shown = report["rows"].as_array().unwrap().iter();
        let mut named = shown.filter(|shown| shown["cells"][place("function")] == row["function"]);
        let shown = named.next().unwrap();
        let cells = &shown["cells"];
        for (column, id) in [
            ("calls_error", "calls"),
            ("total_error_ns", "total"),
            ("self_error_ns", "self"),
        ] {
            let known = shown["standard_errors"][id].as_f64();
            let (known, stored) = (known.unwrap(), row[column].as_f64().unwrap());
            assert!((known - stored).abs() <= 1e-6 * known, "{row} {shown}");
        }
        assert!(named.next().is_none(), "{report}");
        for (column, id) in [
            ("calls", "calls"),
            ("total_ns", "total"),
            ("self_ns", "self"),
        ] {
            let shown = cells[place(id)].as_f64().unwrap();
            let stored = row[column].as_f64().unwrap();
            assert!(
                (stored - shown).abs() <= 0.5 + shown * 1e-9,
                "{row} {cells}"
            );
        }
        // The calls themselves carry the weights that make the estimate.
        let sql = format!(
            "SELECT sum(weighted_calls) AS calls, sum(weighted_self_ns) AS self_ns FROM calls WHERE function_id = '{}'",
            row["function_id"].as_str().unwrap()
        );
        let weighted = &query(&store, &sql)[0];
        for column in ["calls", "self_ns"] {
            let (one, other) = (
                weighted[column].as_f64().unwrap(),
                row[column].as_f64().unwrap(),
            );
            assert!(
                (one - other).abs() <= 1e-6 * other.abs() + 1e-6,
                "{weighted} {row}"
            );
        }
    }
}

#[test]
fn traces_are_added_once_and_damage_is_refused() {
    let traced = or_skip!(Traced::of("trace-calls", &[], &["-P", "."]));
    let store = traced.store();
    run(["add", word(&traced.trace), "--to", &store]);
    let copy = traced.folder.path().join("copy");
    checked(Command::new("cp").arg("-a").arg(&traced.trace).arg(&copy));
    let again = checked(store_command().args(["add", word(&copy), "--to", &store]));
    assert!(String::from_utf8_lossy(&again.stderr).contains("is there already"));
    for table in ["calls", "stacks"] {
        let file = common::only_file(&Path::new(&store).join(table));
        let bytes = std::fs::read(&file).unwrap();
        std::fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
        let mended = checked(store_command().args(["add", word(&copy), "--to", &store]));
        assert!(String::from_utf8_lossy(&mended.stderr).contains("whole again"));
        assert_eq!(std::fs::read(&file).unwrap(), bytes);
    }
    let records = copy.join("records");
    let bytes = std::fs::read(&records).unwrap();
    std::fs::write(&records, &bytes[..bytes.len() - 1]).unwrap();
    let cut = store_command()
        .args(["add", word(&copy), "--to", &store])
        .output()
        .unwrap();
    assert_eq!(cut.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&cut.stderr).contains("damaged"),
        "{cut:?}"
    );
    let folder = traced.folder.path();
    let none = store_command()
        .args(["add", word(folder), "--to", &store])
        .output()
        .unwrap();
    assert!(
        String::from_utf8_lossy(&none.stderr).contains("no trace of calls"),
        "{none:?}"
    );
    let list = run(["list", "--store", &store]);
    assert!(list.ends_with("# 1 profile\n"), "{list}");
}
