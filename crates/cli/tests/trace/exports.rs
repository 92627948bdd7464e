//! Exports of traces that are known by construction: incomplete calls, coroutines, missing records, unmeasured clocks.

use crate::made::{Made, PROGRAM, Step, script, trace};
use dioptra_testprograms::{self as programs, Skip, or_skip};
use dioptra_tracelayout::record::UnwindCause;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

fn enter(time: u64, name: &str) -> Step {
    Step::Enter(time, name.to_owned())
}

/// Runs `dioptra export` on a trace. Returns its standard output and standard error.
fn export(made: &Made, arguments: &str) -> (Vec<u8>, String) {
    let output = Command::new(PROGRAM.expect("known to integration tests"))
        .args(["export", "-o", "-", "-d"])
        .arg(made.folder())
        .args(arguments.split_whitespace())
        .output()
        .expect("dioptra runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    (output.stdout, said)
}

/// Exports a trace for Perfetto, and reads the file with Perfetto's definitions.
fn perfetto(made: &Made, arguments: &str) -> Result<(Value, String), Skip> {
    let (trace, said) = export(made, &format!("--to perfetto {arguments}"));
    let file = made.folder().join("exported");
    std::fs::write(&file, trace).expect("a file");
    let mut python = programs::python_with(&["perfetto==0.59.1", "protobuf==7.36.2"])?;
    let reader = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/export/read_perfetto.py");
    let output = python.arg(reader).arg(file).output().expect("Python runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let read = serde_json::from_slice(&output.stdout).expect("JSON");
    Ok((read, said))
}

/// The slices: name, begin, end, names of the slices around, track, notes.
fn slices(read: &Value) -> Vec<Value> {
    let slices = read["slices"].as_array().expect("slices").iter();
    let keys = ["name", "begin", "end", "around", "track", "notes"];
    slices
        .map(|slice| keys.iter().map(|key| slice[*key].clone()).collect())
        .collect()
}

fn incomplete() -> Made {
    let steps = vec![
        enter(1_000, "main"),
        enter(2_000, "thrown"),
        Step::Unwound(2_500, UnwindCause::Exception, 1),
        Step::Stack(3_000, 1),
        enter(3_100, "coroutine"),
        Step::Stack(3_200, 0),
        enter(3_300, "b"),
        Step::Leave(3_400),
        Step::Stack(3_500, 1),
        Step::Leave(3_600),
        Step::Stack(3_700, 0),
        enter(3_800, "cut"),
        Step::Lost(5),
        Step::Leave(4_000),
    ];
    trace(&[(7, steps)])
}

#[test]
fn incomplete_calls_and_coroutines_say_so() {
    let (read, said) = or_skip!(perfetto(&incomplete(), ""));
    let expected = [
        json!(["main", 1_000, null, [], "", {}]),
        json!(["thrown", 2_000, 2_500, ["main"], "", { "unwound": "Exception" }]),
        json!(["coroutine", 3_100, 3_600, [], "call stack 1", {}]),
        json!(["b", 3_300, 3_400, ["main"], "", {}]),
        json!(["cut", 3_800, 4_000, ["main"], "", {}]),
    ];
    assert_eq!(slices(&read), expected);
    let lost = json!([{ "name": "LOST", "tid": 7, "notes": { "records": "5" } }]);
    assert_eq!(read["instants"], lost);
    assert!(said.contains("5 records are missing"), "{said}");
}

#[test]
fn open_calls_count_with_their_known_time_in_sums() {
    let made = incomplete();
    let (text, said) = export(&made, "--to collapsed");
    let text = String::from_utf8(text).expect("text");
    let report: Value = serde_json::from_str(&made.shown("report", "--format json")).expect("JSON");
    for row in report["rows"].as_array().expect("rows") {
        let (name, own) = (row["cells"][0].as_str().expect("a name"), &row["cells"][3]);
        let line = text.lines().find(|line| {
            let stack = line.rsplit_once(' ').map_or(*line, |(stack, _)| stack);
            stack.rsplit(';').next() == Some(name)
        });
        let value = line.and_then(|line| line.rsplit_once(' '));
        assert_eq!(
            value.map(|(_, value)| value),
            Some(&*own.to_string()),
            "{name}: {text}"
        );
    }
    assert!(text.contains("program;coroutine 500\n"), "{text}");
    assert!(said.contains("5 records are missing"), "{said}");
}

#[test]
fn calls_from_before_the_range_begin_at_its_start() {
    let made = trace(&[(7, script("main( a( b ) )", 1_000, 1_000))]);
    let (read, _) = or_skip!(perfetto(&made, "-r 1500ns~3500ns"));
    let before = json!({ "began": "before" });
    let mut found = slices(&read);
    assert_eq!(found.len(), 3, "{found:?}");
    assert_eq!(
        found[0],
        json!(["main", 2_500, 4_500, [], "", { "began": "before", "end": "later" }])
    );
    assert_eq!(found.remove(1)[5]["began"], before["began"]);
}

#[test]
fn times_of_an_unmeasured_clock_have_no_clock() {
    let made = trace(&[(7, script("main( a )", 1_000, 1_000))]);
    let path = made.folder().join("info.json");
    let mut info: Value =
        serde_json::from_slice(&std::fs::read(&path).expect("a file")).expect("JSON");
    info["clock"]["source"] = "tsc".into();
    info.as_object_mut().expect("an object").remove("ending");
    std::fs::write(&path, info.to_string()).expect("a file");
    let (read, said) = or_skip!(perfetto(&made, ""));
    assert!(read["primary_clock"].is_null(), "{read}");
    assert_eq!(read["slices"][0]["clock"], 0);
    assert!(said.contains("times are ticks of a clock"), "{said}");
}
