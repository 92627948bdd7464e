//! Perfetto's trace, read with Perfetto's own definitions.

use crate::support::{by_function, dioptra, done, inlined, inside, number, report, threads};
use dioptra_testprograms::{self as programs, Recorded, Skip, or_skip};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The packages that hold the definitions, and read by them.
const PACKAGES: [&str; 2] = ["perfetto==0.59.1", "protobuf==7.36.2"];

/// Reads a trace with `read_perfetto.py`, which checks the format's rules.
pub fn decoded(file: &Path) -> Result<Value, Skip> {
    let mut python = programs::python_with(&PACKAGES)?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/export/read_perfetto.py");
    let output = python.arg(script).arg(file).output().expect("Python runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    Ok(serde_json::from_slice(&output.stdout).expect("JSON"))
}

fn read(recorded: &Recorded) -> Result<Value, Skip> {
    done(recorded.folder.path(), &["export", "--to", "perfetto"]);
    decoded(&inside(recorded, "profile.pftrace"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

fn name(frame: &Value) -> String {
    frame["name"].as_str().expect("a name").to_owned()
}

#[test]
fn samples_and_weights_are_the_report_s() {
    let recorded = or_skip!(inlined());
    let folder = recorded.folder.path();
    let trace = or_skip!(read(&recorded));
    for event in ["cpu-clock", "page-faults"] {
        let mut own: BTreeMap<String, u64> = BTreeMap::new();
        let mut weights: BTreeMap<String, u64> = BTreeMap::new();
        let mut total: BTreeMap<String, u64> = BTreeMap::new();
        for sample in list(&trace["samples"]) {
            if sample["event"] != event {
                continue;
            }
            let frames = list(&sample["frames"]);
            let weight = number(&sample["weight"]);
            let innermost = name(frames.last().expect("a frame"));
            *own.entry(innermost.clone()).or_default() += 1;
            *weights.entry(innermost).or_default() += weight;
            for name in frames.iter().map(name).collect::<BTreeSet<_>>() {
                *total.entry(name).or_default() += weight;
            }
        }
        let rows = report(folder, &["--inline", "-e", event]);
        assert_eq!(own, by_function(&rows, "samples"), "{event}");
        assert_eq!(weights, by_function(&rows, "weight"), "{event}");
        let rows = report(folder, &["--inline", "--children", "-e", event]);
        let mut expected = by_function(&rows, "total_weight");
        // Reports divide callers without a name by ranges of addresses.
        for sums in [&mut total, &mut expected] {
            sums.retain(|name, _| !name.starts_with("[unknown]"));
        }
        assert!(expected.len() > 3, "{expected:?}");
        assert_eq!(total, expected, "{event}");
    }
}

#[test]
fn lines_modules_and_build_ids_are_there() {
    let recorded = or_skip!(inlined());
    let folder = recorded.folder.path();
    let trace = or_skip!(read(&recorded));
    let rows = report(folder, &["-e", "cpu-clock", "--by", "line"]);
    let of_program = |file: &Value| {
        file.as_str()
            .is_some_and(|file| file.ends_with("/inline.c"))
    };
    let mut expected: BTreeMap<u64, u64> = BTreeMap::new();
    for row in rows.iter().filter(|row| of_program(&row["file"])) {
        *expected.entry(number(&row["line"])).or_default() += number(&row["weight"]);
    }
    let mut found: BTreeMap<u64, u64> = BTreeMap::new();
    let mut build_ids = BTreeSet::new();
    for sample in list(&trace["samples"]) {
        let frames = list(&sample["frames"]);
        for frame in frames {
            assert_eq!(frame["inside"], true, "{frame}");
            if frame["module"]
                .as_str()
                .is_some_and(|path| path.contains("/inline"))
            {
                build_ids.insert(frame["build_id"].as_str().map(str::to_owned));
            }
        }
        let innermost = frames.last().expect("a frame");
        if sample["event"] == "cpu-clock" && of_program(&innermost["file"]) {
            *found.entry(number(&innermost["line"])).or_default() += number(&sample["weight"]);
        }
    }
    assert!(!expected.is_empty(), "{rows:?}");
    assert_eq!(found, expected);
    // perf knows the build id, too.
    let perf = or_skip!(programs::need_tool("perf"));
    let listed = std::process::Command::new(perf)
        .args(["buildid-list", "-i", "perf.data"])
        .current_dir(folder)
        .output()
        .expect("perf runs");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert_eq!(build_ids.len(), 1, "{build_ids:?}");
    let build_id = build_ids.pop_first().flatten().expect("a build id");
    let line = listed.lines().find(|line| line.contains("/inline"));
    assert!(
        line.is_some_and(|line| line.starts_with(&build_id)),
        "{build_id}: {listed}"
    );
}

#[test]
fn threads_cpus_and_times_are_there() {
    let recorded = or_skip!(threads());
    let folder = recorded.folder.path();
    let trace = or_skip!(read(&recorded));
    let mut by_thread: BTreeMap<u64, u64> = BTreeMap::new();
    let mut by_cpu: BTreeMap<u64, u64> = BTreeMap::new();
    for sample in list(&trace["samples"]) {
        *by_thread.entry(number(&sample["tid"])).or_default() += 1;
        *by_cpu.entry(number(&sample["cpu"])).or_default() += number(&sample["weight"]);
    }
    let rows = report(folder, &["--by", "thread"]);
    let expected = rows
        .iter()
        .map(|row| (number(&row["tid"]), number(&row["samples"])));
    assert_eq!(by_thread, expected.collect());
    assert!(by_thread.len() > 3, "{by_thread:?}");
    let rows = report(folder, &["--by", "cpu"]);
    let expected = rows
        .iter()
        .map(|row| (number(&row["cpu"]), number(&row["weight"])));
    assert_eq!(by_cpu, expected.collect());
    // perf prints the same times, in seconds with nanoseconds.
    let perf = or_skip!(programs::need_tool("perf"));
    let printed = std::process::Command::new(perf)
        .args(["script", "-i", "perf.data", "--ns", "-G", "-F", "tid,time"])
        .current_dir(folder)
        .output()
        .expect("perf runs");
    let mut expected = BTreeSet::new();
    for line in String::from_utf8_lossy(&printed.stdout).lines() {
        let mut fields = line.split_whitespace();
        let tid: u64 = fields.next().expect("a thread").parse().expect("a number");
        let time = fields.next().expect("a time").trim_end_matches(':');
        let (seconds, rest) = time.split_once('.').expect("nanoseconds");
        let (seconds, rest): (u64, u64) = (
            seconds.parse().expect("seconds"),
            rest.parse().expect("nanoseconds"),
        );
        expected.insert((tid, seconds * 1_000_000_000 + rest));
    }
    let samples = list(&trace["samples"]).iter();
    let found = samples.map(|sample| (number(&sample["tid"]), number(&sample["time"])));
    assert_eq!(found.collect::<BTreeSet<_>>(), expected);
    // perf used its own clock, which has no name in the format.
    assert!(trace["clocks"].is_null(), "{}", trace["clocks"]);
}

#[test]
fn our_own_recordings_name_their_clock() {
    or_skip!(programs::need_sampling());
    let program = or_skip!(programs::c("inline", &[]));
    let folder = tempfile::tempdir().expect("a folder");
    let program = program.to_string_lossy().into_owned();
    done(
        folder.path(),
        &[
            "record",
            "-e",
            "cpu-clock",
            "-F",
            "1999",
            "--",
            &program,
            "100",
        ],
    );
    done(folder.path(), &["export", "--to", "perfetto"]);
    let trace = or_skip!(decoded(&folder.path().join("profile.pftrace")));
    // CLOCK_MONOTONIC is number 3 of `BuiltinClock`, the wall clock number 1.
    assert_eq!(trace["primary_clock"], 3);
    assert!(number(&trace["clocks"]["3"]) > 0);
    let wall = number(&trace["clocks"]["1"]);
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .expect("a time after 1970");
    assert!(wall > 1_600_000_000_000_000_000 && u128::from(wall) < now.as_nanos());
    assert!(!list(&trace["samples"]).is_empty());
    for sample in list(&trace["samples"]) {
        assert_eq!(sample["clock"], 3);
    }
}

#[test]
fn samples_without_times_are_refused() {
    let program = or_skip!(programs::c("inline", &[]));
    let options = ["-e", "cpu-clock", "-F", "1999", "--no-timestamp"];
    let words = [program.as_os_str(), "20".as_ref()];
    let recorded = or_skip!(programs::perf_record(&options, &words));
    let output = dioptra(recorded.folder.path(), &["export", "--to", "perfetto"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("have no times"), "{said}");
    assert!(!inside(&recorded, "profile.pftrace").exists());
}
