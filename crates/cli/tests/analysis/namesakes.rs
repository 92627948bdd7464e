//! Functions of one name in one module: two source files with a `static helper` each.

use super::{Row, Table, dioptra, record, report, shown, table, text};
use dioptra_testprograms::{self as programs, Program, Recorded, Skip, or_skip};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

const OPTIONS: [&str; 4] = ["-e", "cpu-clock", "-F", "2000"];

/// The program, from `namesakes.c` and this other source, with these flags more.
fn build(other: &Path, flags: &[&str]) -> Result<PathBuf, Skip> {
    Program::new(programs::Language::C, "namesakes")
        .flags([other])
        .flags(flags.iter().copied())
        .build()
}

fn other() -> PathBuf {
    programs::repository_root().join("tests/programs/namesakes-other.c")
}

/// Records the program with so many rounds in each of the two functions.
fn run(program: &Path, rounds: [&str; 2]) -> Result<Recorded, Skip> {
    let rounds = rounds.map(OsStr::new);
    record(&OPTIONS, &[program.as_os_str(), rounds[0], rounds[1]])
}

fn helpers(table: &Table) -> Vec<&Row> {
    let rows = table.rows.iter();
    rows.filter(|row| row.text("function") == "helper")
        .collect()
}

/// The row of a source file's `helper`.
fn of_file<'a>(table: &'a Table, file: &str) -> &'a Row {
    let rows = helpers(table);
    let found = rows.iter().find(|row| row.text("location") == file);
    found.unwrap_or_else(|| panic!("{file}: {rows:?}"))
}

/// The file offsets of the functions `helper`, as `nm` has them: addresses and file offsets of code are the same in a
/// program linked with `-z noseparate-code`.
fn addresses(program: &Path) -> Vec<String> {
    let output = Command::new("nm").arg(program).output().expect("nm runs");
    let lines = text(&output.stdout);
    let helpers = lines.lines().filter(|line| line.ends_with(" t helper"));
    let address = |line: &str| u64::from_str_radix(&line[..16], 16).expect("an address");
    let mut found: Vec<u64> = helpers.map(address).collect();
    found.sort_unstable();
    found
        .iter()
        .map(|address| format!("{address:#x}"))
        .collect()
}

#[test]
fn report_tells_them_apart() {
    or_skip!(programs::need_tool("nm"));
    let program = or_skip!(build(&other(), &["-Wl,-z,noseparate-code"]));
    let recorded = or_skip!(run(&program, ["300", "100"]));
    let table = report(&recorded.file, &[]);
    let (own, others) = (
        of_file(&table, "namesakes.c"),
        of_file(&table, "namesakes-other.c"),
    );
    // Three times the rounds; how much that is of the time depends on the machine.
    assert!(own.count("samples") > others.count("samples"));
    let mut found = [own, others].map(|row| row.text("function_address").to_owned());
    found.sort();
    assert_eq!(found.to_vec(), addresses(&program), "as nm has them");
    assert_eq!(own.text("module_id"), others.text("module_id"));
    // The build id as readelf prints it.
    let output = Command::new("readelf").arg("-n").arg(&program).output();
    let notes = text(&output.expect("readelf runs").stdout);
    assert!(notes.contains(own.text("module_id")), "{notes}");
    // No other row has a location.
    let located = table
        .rows
        .iter()
        .filter(|row| !row.cells["location"].is_null());
    assert_eq!(located.count(), 2);

    let file = recorded.file.to_str().expect("a path");
    let lines = shown(&["report", "-i", file]);
    let of = |file: &str| {
        let line = format!("{file:<17}  helper");
        lines.contains(&line)
    };
    assert!(of("namesakes.c") && of("namesakes-other.c"), "{lines}");
    let csv = shown(&["report", "-i", file, "--format", "csv"]);
    let keys: std::collections::BTreeSet<&str> = csv
        .lines()
        .skip(1)
        .map(|line| line.rsplit_once(",helper,").map_or(line, |(_, key)| key))
        .collect();
    assert_eq!(keys.len(), csv.lines().count() - 1, "{csv}");
    let levels = shown(&["report", "-i", file, "--by", "module,function"]);
    assert!(
        levels.contains("helper (namesakes.c)") && levels.contains("helper (namesakes-other.c)"),
        "{levels}"
    );
    // Where names do not collide nothing is added.
    let shares = or_skip!(programs::c("shares", &[]));
    let plain = or_skip!(record(&OPTIONS, &[shares.as_os_str(), "50".as_ref()]));
    let plain = shown(&["report", "-i", plain.file.to_str().expect("a path")]);
    assert!(!plain.contains("location"), "{plain}");
}

#[test]
fn sums_and_differences_of_one_build_match_by_address() {
    let program = or_skip!(build(&other(), &[]));
    let one = or_skip!(run(&program, ["300", "0"]));
    let two = or_skip!(run(&program, ["0", "300"]));
    let files = [one.file.as_os_str(), two.file.as_os_str()];
    let sum = table(&["sum".as_ref(), files[0], files[1]]);
    assert_eq!(helpers(&sum).len(), 2, "{sum:?}");
    let of = |file: &Path| -> u64 {
        let table = report(file, &[]);
        helpers(&table).iter().map(|row| row.count("samples")).sum()
    };
    assert_eq!(of_file(&sum, "namesakes.c").count("samples"), of(&one.file));
    assert_eq!(
        of_file(&sum, "namesakes-other.c").count("samples"),
        of(&two.file)
    );

    let diff = table(&["diff".as_ref(), files[0], files[1]]);
    let (own, others) = (
        of_file(&diff, "namesakes.c"),
        of_file(&diff, "namesakes-other.c"),
    );
    assert_eq!((own.count("b_samples"), others.count("a_samples")), (0, 0));
    assert_eq!(
        (own.text("b_status"), others.text("b_status")),
        ("gone", "new")
    );
    assert!(diff.facts["merged_functions"].is_null(), "{}", diff.facts);
}

#[test]
fn other_builds_match_by_name_and_file() {
    let old = or_skip!(build(&other(), &[]));
    let new = or_skip!(build(&other(), &["-DMOVED", "-falign-functions=128"]));
    let one = or_skip!(run(&old, ["300", "100"]));
    let two = or_skip!(run(&new, ["300", "100"]));
    let files = [one.file.as_os_str(), two.file.as_os_str()];
    let diff = table(&["diff".as_ref(), files[0], files[1]]);
    for file in ["namesakes.c", "namesakes-other.c"] {
        let row = of_file(&diff, file);
        let counts = (row.count("a_samples"), row.count("b_samples"));
        assert!(counts.0 > 20 && counts.1 > 20, "{file}: {counts:?}");
    }
    assert!(diff.facts["merged_functions"].is_null(), "{}", diff.facts);
    let fact = &diff.facts["matched_by_name"];
    assert_eq!(fact["value"][0], "namesakes", "{fact}");
}

#[test]
fn what_nothing_tells_apart_is_merged_and_told() {
    let source = tempfile::tempdir().expect("a folder");
    // Two sources of one file name: only addresses tell their functions apart.
    let copy = source.path().join("namesakes.c");
    std::fs::copy(other(), &copy).expect("a copy");
    let old = or_skip!(build(&copy, &[]));
    let new = or_skip!(build(&copy, &["-falign-functions=128"]));
    let one = or_skip!(run(&old, ["300", "100"]));
    let two = or_skip!(run(&new, ["300", "100"]));
    let own = report(&one.file, &[]);
    let located = helpers(&own);
    assert_eq!(located.len(), 2, "{located:?}");
    for row in &located {
        let expected = format!("namesakes.c {}", row.text("function_address"));
        assert_eq!(row.text("location"), expected);
    }
    let files = [one.file.as_os_str(), two.file.as_os_str()];
    let diff = table(&["diff".as_ref(), files[0], files[1]]);
    assert_eq!(helpers(&diff).len(), 1, "{diff:?}");
    let fact = &diff.facts["merged_functions"];
    assert_eq!(fact["severity"], "fallback", "{fact}");
    assert_eq!(fact["value"][0]["function"], "helper", "{fact}");
    assert_eq!(fact["value"][0]["functions"], serde_json::json!([2, 2]));
    let output = dioptra(&["diff".as_ref(), files[0], files[1]]);
    let shown = text(&output.stdout);
    assert!(shown.contains("helper of namesakes (2 and 2)"), "{shown}");
}
