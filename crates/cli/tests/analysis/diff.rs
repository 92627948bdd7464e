//! `dioptra diff`.

use super::{Row, Table, dioptra, record, report, table, text};
use dioptra_testprograms::{self as programs, or_skip};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

fn diff(files: &[&Path], arguments: &[&str]) -> Table {
    let mut all: Vec<&std::ffi::OsStr> = vec!["diff".as_ref()];
    all.extend(files.iter().map(|file| file.as_os_str()));
    all.extend(arguments.iter().map(AsRef::<std::ffi::OsStr>::as_ref));
    table(&all)
}

fn delta(row: &Row) -> i64 {
    row.cells["b_delta"].as_i64().expect("an exact difference")
}

fn find<'a>(table: &'a Table, function: &str) -> &'a Row {
    let row = table
        .rows
        .iter()
        .find(|row| row.text("function") == function);
    row.unwrap_or_else(|| panic!("no {function}"))
}

#[test]
fn deltas_sum_to_the_difference_of_totals() {
    let shares = or_skip!(programs::c("shares", &[]));
    let options = ["-e", "cpu-clock", "-F", "2000"];
    let one = or_skip!(record(&options, &[shares.as_os_str(), "200".as_ref()]));
    let two = or_skip!(record(&options, &[shares.as_os_str(), "400".as_ref()]));
    let (a, b) = (report(&one.file, &[]), report(&two.file, &[]));
    let difference = b.total("weight") as i64 - a.total("weight") as i64;
    for by in [
        "function",
        "module",
        "line",
        "process",
        "comm",
        "module,function",
    ] {
        let table = diff(&[&one.file, &two.file], &["--by", by]);
        let top = table.rows.iter().filter(|row| row.parent.is_none());
        assert_eq!(top.map(delta).sum::<i64>(), difference, "{by}");
        for row in &table.rows {
            let (before, after) = (row.count("a_weight") as i64, row.count("b_weight") as i64);
            assert_eq!(delta(row), after - before, "{row:?}");
        }
        let sum = |column| {
            table
                .rows
                .iter()
                .filter(|row| row.parent.is_none())
                .map(|row| row.count(column))
                .sum::<u64>()
        };
        assert_eq!(
            (sum("a_weight"), sum("b_weight")),
            (a.total("weight"), b.total("weight"))
        );
    }
    // Twice the work of each function is more than chance, and about twice the time.
    let table = diff(&[&one.file, &two.file], &[]);
    for function in ["sixty", "thirty", "ten"] {
        let row = find(&table, function);
        assert_ne!(row.text("b_significance"), "", "{row:?}");
        let change = row.number("b_change").expect("a change");
        assert!((50.0..200.0).contains(&change), "{row:?}");
        // Each count varies as the number of its samples does.
        let error = row.errors["b_delta"].as_f64().expect("an error");
        let samples = (row.count("a_samples") + row.count("b_samples")) as f64;
        let weight = (row.count("a_weight") + row.count("b_weight")) as f64;
        let expected = weight / samples * samples.sqrt();
        assert!((error / expected - 1.0).abs() < 0.01, "{error} {expected}");
    }
    // The shares are the same: no more than noise, whatever the totals.
    let shares = diff(&[&one.file, &two.file], &["--normalize", "cpu-clock"]);
    let change = find(&shares, "thirty")
        .number("b_delta")
        .expect("a difference");
    assert!(change.abs() < 10.0, "{change}");
    let sum: f64 = shares
        .rows
        .iter()
        .filter_map(|row| row.number("b_delta"))
        .sum();
    assert!(sum.abs() < 1e-9, "{sum}");
    // A profile does not differ from itself.
    let same = diff(&[&one.file, &one.file, &one.file], &[]);
    for row in &same.rows {
        assert_eq!((delta(row), row.text("c_significance")), (0, ""), "{row:?}");
    }
}

#[test]
fn percentages_are_those_of_perf_diff() {
    let shares = or_skip!(programs::c("shares", &[]));
    let options = ["-e", "cpu-clock", "-F", "2000"];
    let one = or_skip!(record(&options, &[shares.as_os_str(), "200".as_ref()]));
    let two = or_skip!(record(&options, &[shares.as_os_str(), "100".as_ref()]));
    let folder = tempfile::tempdir().expect("a folder");
    let output = Command::new("perf")
        .arg("--buildid-dir")
        .arg(folder.path())
        .args(["diff", "--sort", "dso,sym"])
        .args([&one.file, &two.file])
        .output()
        .expect("perf runs");
    let perfs: BTreeMap<String, (String, String)> = text(&output.stdout)
        .lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                [baseline, change, "shares", _, function] => Some((
                    function.to_owned(),
                    (baseline.to_owned(), change.to_owned()),
                )),
                _ => None,
            }
        })
        .collect();
    assert!(perfs.len() >= 3, "{}", text(&output.stdout));
    let table = diff(&[&one.file, &two.file], &[]);
    for (function, (baseline, change)) in perfs {
        let row = find(&table, &function);
        let (a, b) = (row.number("a_percent"), row.number("b_percent"));
        let (a, b) = (a.expect("a share"), b.expect("a share"));
        assert_eq!(format!("{a:.2}%"), baseline, "{function}");
        assert_eq!(format!("{:+.2}%", b - a), change, "{function}");
    }
}

#[test]
fn new_and_gone_functions_of_another_build() {
    // A function has another name in the second build, of the same file name.
    let old = or_skip!(programs::c("shares", &["-O1"]));
    let new = or_skip!(programs::c("shares", &["-O1", "-Dthirty=dreissig"]));
    let options = ["-e", "cpu-clock", "-F", "2000"];
    let one = or_skip!(record(&options, &[old.as_os_str(), "200".as_ref()]));
    let two = or_skip!(record(&options, &[new.as_os_str(), "200".as_ref()]));
    let table = diff(&[&one.file, &two.file], &[]);
    assert_eq!(find(&table, "thirty").text("b_status"), "gone");
    assert_eq!(find(&table, "dreissig").text("b_status"), "new");
    assert!(find(&table, "dreissig").number("b_change").is_none());
    let kept = find(&table, "sixty");
    assert_eq!(kept.text("b_status"), "", "the same function of two builds");
    assert!(kept.count("a_samples") > 100 && kept.count("b_samples") > 100);
}

#[test]
fn functions_without_names_are_known_by_their_code() {
    or_skip!(programs::need_tool("strip"));
    let old = or_skip!(programs::c("shares", &["-O1", "-s"]));
    // The functions of this build start elsewhere.
    let new = or_skip!(programs::c(
        "shares",
        &["-O1", "-s", "-falign-functions=256"]
    ));
    let options = ["-e", "cpu-clock", "-F", "2000"];
    let one = or_skip!(record(&options, &[old.as_os_str(), "200".as_ref()]));
    let two = or_skip!(record(&options, &[new.as_os_str(), "200".as_ref()]));
    let table = diff(&[&one.file, &two.file], &[]);
    let both = table.rows.iter().filter(|row| {
        row.text("module") == "shares" && row.count("a_samples") > 20 && row.count("b_samples") > 20
    });
    assert_eq!(both.count(), 3, "{table:?}");
}

#[test]
fn wrong_questions() {
    let shares = or_skip!(programs::c("shares", &[]));
    let one = or_skip!(record(
        &["-e", "cpu-clock"],
        &[shares.as_os_str(), "50".as_ref()]
    ));
    let file = one.file.to_str().expect("a path");
    let output = dioptra(&["diff", file]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    let output = dioptra(&["diff", file, file, "--normalize", "instructions"]);
    assert_eq!(output.status.code(), Some(1));
    let message = text(&output.stderr);
    assert!(
        message.contains("--normalize") && message.contains("cpu-clock"),
        "{message}"
    );
}

#[test]
fn events_of_perf_and_ours_are_one_event() {
    let shares = or_skip!(programs::c("shares", &[]));
    // perf's name of the event depends on the precision that perf asks for.
    let perfs = or_skip!(record(
        &["-e", "cpu-clock:ppp", "-F", "2000"],
        &[shares.as_os_str(), "200".as_ref()]
    ));
    let folder = tempfile::tempdir().expect("a folder");
    let ours = folder.path().join("ours.data");
    let arguments = ["record", "-e", "cpu-clock", "-F", "2000", "-o"].map(AsRef::as_ref);
    let command: [&std::ffi::OsStr; 4] = [
        ours.as_os_str(),
        "--".as_ref(),
        shares.as_os_str(),
        "200".as_ref(),
    ];
    let output = dioptra(&[&arguments[..], &command].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = diff(&[&perfs.file, &ours], &[]);
    let row = find(&table, "sixty");
    assert!(row.count("a_samples") > 50 && row.count("b_samples") > 50);
    assert!(table.facts["event_not_in_all"].is_null(), "{}", table.facts);
    let fact = &table.facts["paired_events"];
    assert_eq!(fact["value"][1], "cpu-clock:ppp", "{fact}");
}
