//! `dioptra sum`.

use super::{Table, dioptra, record, report, shared_files, table, text};
use dioptra_testprograms::{self as programs, or_skip};
use std::collections::BTreeMap;
use std::path::Path;

fn sum(files: &[&Path], arguments: &[&str]) -> Table {
    let mut all: Vec<&std::ffi::OsStr> = vec!["sum".as_ref()];
    all.extend(files.iter().map(|file| file.as_os_str()));
    all.extend(arguments.iter().map(AsRef::<std::ffi::OsStr>::as_ref));
    table(&all)
}

/// Checks that each row of the sum is exactly the sum of the parts' rows of the same names.
fn assert_sum(files: &[&Path], by: &str, names: &[&str], column: &str) {
    let whole = sum(files, &["--by", by, "--event", "1"]);
    whole.assert_sums(by);
    let mut parts: BTreeMap<Vec<String>, u64> = BTreeMap::new();
    for file in files {
        let part = report(file, &["--by", by, "--event", "1"]);
        for (key, count) in part.by(column, names, |_| true) {
            *parts.entry(key).or_default() += count;
        }
    }
    assert_eq!(whole.by(column, names, |_| true), parts, "{by}");
}

#[test]
fn sums_of_runs_are_the_sums_of_their_tables() {
    let shares = or_skip!(programs::c("shares", &[]));
    let faults = or_skip!(programs::c("faults", &[]));
    let options = ["-e", "cpu-clock,page-faults", "-F", "2000"];
    let one = or_skip!(record(&options, &[shares.as_os_str(), "200".as_ref()]));
    let two = or_skip!(record(&options, &[shares.as_os_str(), "300".as_ref()]));
    let three = or_skip!(record(&options, &[faults.as_os_str()]));
    let files = [one.file.as_path(), &two.file, &three.file];
    for column in ["samples", "weight"] {
        assert_sum(&files, "function", &["module", "function"], column);
        assert_sum(&files, "module", &["module"], column);
        assert_sum(&files, "line", &["module", "file", "line"], column);
        assert_sum(&files, "process", &["pid", "process"], column);
        assert_sum(&files, "program", &["program"], column);
        assert_sum(&files, "comm", &["comm"], column);
        assert_sum(&files, "address", &["module", "address"], column);
        assert_sum(
            &files,
            "program,module,function",
            &["program", "module", "function", "level"],
            column,
        );
    }
    // The two runs of one program are one program with two processes.
    let table = sum(&files[..2], &["--by", "program"]);
    assert_eq!(table.rows.len(), 1, "{table:?}");
    // `report` with several inputs is the same.
    let by_report = report(
        &one.file,
        &["-i", two.file.to_str().expect("a path"), "--by", "program"],
    );
    assert_eq!(by_report.rows[0].cells, table.rows[0].cells);
}

#[test]
fn others_files_add_up() {
    let files = shared_files();
    for pair in files.chunks(2).filter(|pair| pair.len() == 2) {
        let pair = [pair[0].as_path(), pair[1].as_path()];
        // Events of one name only add up; all of both are there.
        let whole = sum(&pair, &["--by", "module"]);
        let samples = |table: &Table| -> u64 {
            let columns = table
                .sums()
                .into_iter()
                .filter(|id| id.starts_with("samples"));
            columns.map(|id| table.total(id)).sum()
        };
        let parts: u64 = pair
            .iter()
            .map(|file| samples(&report(file, &["--by", "module"])))
            .sum();
        assert_eq!(samples(&whole), parts, "{pair:?}");
    }
}

#[test]
fn what_is_not_in_all_is_told() {
    let shares = or_skip!(programs::c("shares", &[]));
    let clock = or_skip!(record(
        &["-e", "cpu-clock"],
        &[shares.as_os_str(), "100".as_ref()]
    ));
    let faults = or_skip!(record(
        &["-e", "page-faults"],
        &[shares.as_os_str(), "100".as_ref()]
    ));
    let table = sum(&[&clock.file, &faults.file], &[]);
    let fact = &table.facts["event_not_in_all"];
    assert_eq!(fact["severity"], "loss", "{fact}");
    let output = dioptra(&["sum", "-", "-"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("standard input"));
}

#[test]
fn columns_of_several_events_name_them() {
    let shares = or_skip!(programs::c("shares", &[]));
    let options = ["-e", "cpu-clock,page-faults", "-F", "2000"];
    let recorded = or_skip!(record(&options, &[shares.as_os_str(), "100".as_ref()]));
    let file = recorded.file.to_str().expect("a path");
    let csv = super::shown(&["report", "-i", file, "--format", "csv"]);
    let heads = csv.lines().next().expect("a line");
    for id in [
        "samples[cpu-clock]",
        "samples[page-faults]",
        "self_percent[page-faults]",
    ] {
        assert!(heads.split(',').any(|head| head == id), "{heads}");
    }
    // The plain name is the first event's.
    let by = |column: &str| super::shown(&["report", "-i", file, "--sort", column]);
    assert_eq!(by("samples"), by("samples[cpu-clock]"));
    let diff = super::table(&["diff", file, file]);
    assert!(diff.columns.contains(&"b_delta[page-faults]".to_owned()));
}
