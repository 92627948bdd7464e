//! `dioptra report` as a command: formats, columns, errors and exit codes, on perf's recordings.

use dioptra_testprograms::{self as programs, Skip, or_skip};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

fn report(arguments: &[&str], file: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dioptra"))
        .arg("report")
        .args(arguments)
        .arg("-i")
        .arg(file)
        .output()
        .expect("dioptra runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The standard output of a report that must succeed.
fn shown(arguments: &[&str], file: &Path) -> String {
    let output = report(arguments, file);
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// A short recording by perf with call chains and two events.
fn recording() -> Result<(TempDir, PathBuf), Skip> {
    programs::need_tool("perf")?;
    programs::need_sampling()?;
    let program = programs::c("shares", &[])?;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("perf.data");
    let status = Command::new("perf")
        .args([
            "record",
            "-q",
            "-e",
            "cpu-clock,page-faults",
            "-g",
            "-F",
            "1000",
            "-o",
        ])
        .arg(&file)
        .arg("--")
        .arg(program)
        .arg("100")
        .env("HOME", folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .expect("perf runs");
    assert!(status.success(), "perf record: {status}");
    Ok((folder, file))
}

#[test]
fn every_rendering_holds_the_same_table() {
    let (_folder, file) = or_skip!(recording());
    let table = shown(&[], &file);
    assert!(
        table.contains("sixty") && table.contains("page-faults"),
        "{table}"
    );
    let json: serde_json::Value =
        serde_json::from_str(&shown(&["--format", "json"], &file)).expect("JSON");
    let csv = shown(&["--format", "csv"], &file);
    let rows = json["rows"].as_array().expect("rows");
    assert_eq!(csv.lines().count(), rows.len() + 1);
    let ids: Vec<&str> = json["columns"]
        .as_array()
        .expect("columns")
        .iter()
        .map(|column| column["id"].as_str().expect("an id"))
        .collect();
    assert_eq!(csv.lines().next(), Some(ids.join(",").as_str()));
    // One event alone, by name and by number.
    let one = shown(&["--event", "cpu-clock", "--format", "csv"], &file);
    assert_eq!(one, shown(&["--event", "1", "--format", "csv"], &file));
    assert_eq!(
        one.lines().next(),
        Some("self_percent,samples,weight,module,function,module_id,function_address")
    );
}

#[test]
fn rows_can_be_sorted_and_limited() {
    let (_folder, file) = or_skip!(recording());
    let csv = shown(
        &[
            "--sort", "function", "--event", "1", "--format", "csv", "--limit", "3",
        ],
        &file,
    );
    let functions: Vec<&str> = csv
        .lines()
        .skip(1)
        .map(|line| line.rsplit(',').nth(2).expect("a cell"))
        .collect();
    assert_eq!(functions.len(), 3, "{csv}");
    assert!(functions.is_sorted(), "{csv}");
    for by in ["function", "module", "process", "thread"] {
        let table = shown(&["--by", by, "--limit", "1"], &file);
        assert!(
            table.contains("100.00%") || by == "function" || by == "module",
            "{table}"
        );
    }
    assert!(shown(&["--children"], &file).contains("total"));
}

#[test]
fn standard_input_reads_like_the_file() {
    let (_folder, file) = or_skip!(recording());
    let output = Command::new(env!("CARGO_BIN_EXE_dioptra"))
        .args(["report", "--format", "csv", "-i", "-"])
        .stdin(std::fs::File::open(&file).expect("the file"))
        .output()
        .expect("dioptra runs");
    assert_eq!(text(&output.stdout), shown(&["--format", "csv"], &file));
}

#[test]
fn errors_say_what_where_and_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = folder.path().join("none.data");
    let check = |output: &Output, code: i32, words: &[&str]| {
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{message}");
        for word in words {
            assert!(message.contains(word), "no `{word}` in: {message}");
        }
    };
    check(&report(&[], &missing), 1, &["none.data", "record"]);
    let wrong = folder.path().join("wrong");
    std::fs::write(&wrong, "#!/bin/sh\nexit 0\n").expect("written");
    check(&report(&[], &wrong), 1, &["not a perf.data file"]);
    check(
        &report(&["--by", "nothing"], &wrong),
        2,
        &["function", "module"],
    );
    check(
        &report(&["--children", "--by", "process"], &wrong),
        2,
        &["--children"],
    );
    check(
        &report(&["--symfs", &missing.to_string_lossy()], &wrong),
        1,
        &["--symfs"],
    );
}

#[test]
fn what_is_there_of_a_cut_file_is_shown() {
    let (folder, file) = or_skip!(recording());
    let whole = std::fs::read(&file).expect("the file");
    let cut = folder.path().join("cut.data");
    std::fs::write(&cut, &whole[..whole.len() * 3 / 4]).expect("written");
    let output = report(&["--event", "1"], &cut);
    let table = text(&output.stdout);
    assert!(table.contains("sixty"), "{table}\n{}", text(&output.stderr));
    assert!(table.contains("# loss: "), "{table}");
    // Unknown names are told with those that there are.
    let output = report(&["--event", "cycles"], &file);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("page-faults"));
    let output = report(&["--sort", "nothing"], &file);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("self_percent"));
}

/// Without build ids, a file of another machine may lie where the recorded one lay.
#[test]
fn names_from_files_of_another_machine_are_doubted() {
    let name = "perfdata/perf.data.piped.header_features_aligned-6.12";
    let file = or_skip!(programs::need_shared_data(name));
    let json: serde_json::Value =
        serde_json::from_str(&shown(&["--format", "json"], &file)).expect("JSON");
    let rows = json["rows"].as_array().expect("rows");
    let named: Vec<&str> = rows
        .iter()
        .filter(|row| !row["cells"][4].as_str().unwrap_or("[").starts_with('['))
        .filter_map(|row| row["cells"][3].as_str())
        .collect();
    let facts = &json["facts"]["unverified_names"];
    let doubted = facts["value"].as_array().cloned().unwrap_or_default();
    for module in named {
        let told = |fact: &serde_json::Value| {
            fact["module"]
                .as_str()
                .is_some_and(|path| path.ends_with(module))
        };
        assert!(doubted.iter().any(told), "{module}: {json}");
    }
}
