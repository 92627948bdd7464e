//! `dioptra annotate` against `perf annotate`, `objdump`, `dioptra report` and exact traces.

#[cfg(target_arch = "x86_64")]
mod branches;
#[cfg(target_arch = "x86_64")]
mod calls;
mod kernel;
mod layouts;
#[cfg(target_arch = "x86_64")]
mod memory;
#[cfg(target_arch = "x86_64")]
#[allow(dead_code)]
#[path = "../../../sampling/profile/tests/branches/recording.rs"]
mod recording;
mod shapes;
#[cfg(target_arch = "x86_64")]
#[path = "../../../sampling/profile/tests/support/mod.rs"]
mod support;
#[cfg(target_arch = "x86_64")]
#[allow(dead_code)]
#[path = "../../../sampling/profile/tests/branches/trace.rs"]
mod trace;

use dioptra_testprograms::{self as programs, Recorded, Skip};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// A recording by perf, of many samples a second.
fn record<S: AsRef<OsStr>>(options: &[&str], command: &[S]) -> Result<Recorded, Skip> {
    programs::perf_record(&[&["-F", "4000"], options].concat(), command)
}

fn dioptra(command: &str, arguments: &[&str], file: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dioptra"))
        .arg(command)
        .args(arguments)
        .arg("-i")
        .arg(file)
        .env("LC_ALL", "C.UTF-8")
        .output()
        .expect("dioptra runs")
}

/// The standard output of a command that must succeed.
fn shown(command: &str, arguments: &[&str], file: &Path) -> String {
    let output = dioptra(command, arguments, file);
    assert!(
        output.status.success(),
        "{command} {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// A function's annotation, without a name that of the hottest one; its sums are checked.
fn annotated(function: &str, file: &Path) -> Value {
    let text = if function.is_empty() {
        shown("annotate", &["--format", "json"], file)
    } else {
        shown("annotate", &[function, "--format", "json"], file)
    };
    let json: Value = serde_json::from_str(&text).expect("JSON");
    check_sums(&json);
    json
}

fn list<'a>(json: &'a Value, key: &str) -> &'a [Value] {
    json[key].as_array().map_or(&[], Vec::as_slice)
}

fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

/// Samples and weight of the rows, by event.
fn sums<'a>(rows: impl Iterator<Item = &'a Value>, counts: &str, events: usize) -> Vec<(u64, u64)> {
    let mut sums = vec![(0, 0); events];
    for row in rows {
        for (sum, count) in sums.iter_mut().zip(list(row, counts)) {
            sum.0 += number(&count["samples"]);
            sum.1 += number(&count["weight"]);
        }
    }
    sums
}

/// The sums of instructions, blocks and lines are the function's counts, those of a block's instructions the block's,
/// and those of a loop's blocks the loop's.
fn check_sums(json: &Value) {
    let events = list(json, "events");
    let pair = |count: &Value| (number(&count["samples"]), number(&count["weight"]));
    let whole: Vec<_> = events
        .iter()
        .map(|event| pair(&event["function"]))
        .collect();
    let places = match json.get("instructions") {
        Some(_) => list(json, "instructions"),
        None => list(json, "addresses"),
    };
    let sum = |rows: &[Value], counts| sums(rows.iter(), counts, events.len());
    assert_eq!(sum(places, "counts"), whole);
    assert_eq!(sum(list(json, "lines"), "counts"), whole);
    assert_eq!(sum(list(json, "lines"), "outermost_counts"), whole);
    let blocks = list(json, "blocks");
    if json.get("instructions").is_some() {
        assert_eq!(sum(blocks, "counts"), whole);
    }
    let counts = |row: &Value| -> Vec<_> { list(row, "counts").iter().map(pair).collect() };
    let mut next = 0;
    for block in blocks {
        let first = number(&block["first_instruction"]) as usize;
        let end = first + number(&block["instructions"]) as usize;
        assert_eq!(first, next, "blocks leave no gaps");
        next = end;
        assert_eq!(sum(&places[first..end], "counts"), counts(block));
    }
    for natural in list(json, "loops") {
        let of_loop = list(natural, "blocks").iter();
        let of_loop = of_loop.map(|block| &blocks[number(block) as usize]);
        assert_eq!(sums(of_loop, "counts", events.len()), counts(natural));
    }
}

/// Samples of the first event by address, as objdump prints it; those without are left out.
fn by_address(json: &Value) -> BTreeMap<u64, u64> {
    list(json, "instructions")
        .iter()
        .map(|place| {
            let samples = number(&place["counts"][0]["samples"]);
            (number(&place["virtual_address"]), samples)
        })
        .filter(|(_, samples)| *samples > 0)
        .collect()
}

/// The same as perf tells it.
fn perfs_by_address(function: &str, module: &str, recorded: &Recorded) -> BTreeMap<u64, u64> {
    let output = Command::new("perf")
        .args([
            "annotate", "--stdio", "-n", "-s", function, "-d", module, "-i",
        ])
        .arg(&recorded.file)
        .env("HOME", recorded.folder.path())
        .stdin(Stdio::null())
        .output()
        .expect("perf runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let mut counts = BTreeMap::new();
    for line in text.lines() {
        let Some((samples, code)) = line.split_once(" : ") else {
            continue;
        };
        let Some((address, _)) = code.trim_start().split_once(':') else {
            continue;
        };
        if let (Ok(samples), Ok(address)) = (
            samples.trim().parse::<u64>(),
            u64::from_str_radix(address, 16),
        ) && samples > 0
        {
            *counts.entry(address).or_default() += samples;
        }
    }
    counts
}

/// The functions of a module with samples, the hottest first.
fn functions(recorded: &Recorded, module: &str) -> Vec<(String, u64)> {
    let arguments = [
        "--by",
        "function",
        "--dso",
        module,
        "--format",
        "json",
        "--no-demangle",
    ];
    let output = dioptra("report", &arguments, &recorded.file);
    // A module without samples.
    if output.status.code() == Some(1) {
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(message.contains("no sample has it"), "{message}");
        return Vec::new();
    }
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let columns: Vec<&str> = list(&json, "columns")
        .iter()
        .filter_map(|column| column["id"].as_str())
        .collect();
    let at = |id: &str| {
        columns
            .iter()
            .position(|column| *column == id)
            .expect("a column")
    };
    let (samples, function) = (at("samples"), at("function"));
    let cell = |row: &Value, at: usize| row["cells"][at].clone();
    list(&json, "rows")
        .iter()
        .map(|row| {
            let name = cell(row, function);
            (
                name.as_str().unwrap_or_default().to_owned(),
                number(&cell(row, samples)),
            )
        })
        .collect()
}
