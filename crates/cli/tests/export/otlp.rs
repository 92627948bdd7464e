//! OpenTelemetry's profiles, read with OpenTelemetry's own definitions.

use crate::support::{by_function, done, inlined, number, report, threads};
use dioptra_testprograms::{self as programs, Skip, or_skip};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The packages that hold the definitions, and read by them.
const PACKAGES: [&str; 2] = ["opentelemetry-proto==1.45.2", "protobuf==7.36.2"];

/// Exports the profile in a folder and reads the file with `read_otlp.py`, which checks the format's rules.
fn read(folder: &Path) -> Result<Value, Skip> {
    done(folder, &["export", "--to", "otlp"]);
    read_file(&folder.join("profile.otlp.pb"))
}

/// Reads a file with `read_otlp.py`, which checks the format's rules.
pub fn read_file(file: &Path) -> Result<Value, Skip> {
    let mut python = programs::python_with(&PACKAGES)?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/export/read_otlp.py");
    let output = python.arg(script).arg(file).output().expect("Python runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    Ok(serde_json::from_slice(&output.stdout).expect("JSON"))
}

pub fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

fn name(frame: &Value) -> String {
    frame["name"].as_str().expect("a name").to_owned()
}

fn sum(values: &Value) -> u64 {
    list(values).iter().map(number).sum()
}

/// Returns the profile of a type.
pub fn profile<'a>(file: &'a Value, kind: &str, unit: &str) -> &'a Value {
    let mut profiles = list(&file["profiles"]).iter();
    let wanted = serde_json::json!([kind, unit]);
    let found = profiles.find(|profile| profile["type"] == wanted);
    found.unwrap_or_else(|| panic!("no profile of {wanted}"))
}

/// The sums of a profile's values by innermost function, and by function on the stack.
pub fn sums(profile: &Value) -> (BTreeMap<String, u64>, BTreeMap<String, u64>) {
    let mut own: BTreeMap<String, u64> = BTreeMap::new();
    let mut total: BTreeMap<String, u64> = BTreeMap::new();
    for sample in list(&profile["samples"]) {
        let frames = list(&sample["frames"]);
        let value = sum(&sample["values"]);
        *own.entry(name(frames.first().expect("a frame")))
            .or_default() += value;
        for name in frames.iter().map(name).collect::<BTreeSet<_>>() {
            *total.entry(name).or_default() += value;
        }
    }
    (own, total)
}

#[test]
fn sums_are_the_report_s_where_the_wall_clock_is_unknown() {
    let recorded = or_skip!(inlined());
    let folder = recorded.folder.path();
    let file = or_skip!(read(folder));
    assert_eq!(
        list(&file["profiles"]).len(),
        4,
        "two events, two values each"
    );
    for (event, unit) in [("cpu-clock", "nanoseconds"), ("page-faults", "count")] {
        let (own, mut total) = sums(profile(&file, event, unit));
        let (samples, _) = sums(profile(&file, &format!("samples:{event}"), "count"));
        let rows = report(folder, &["--inline", "-e", event]);
        assert_eq!(own, by_function(&rows, "weight"), "{event}");
        assert_eq!(samples, by_function(&rows, "samples"), "{event}");
        let rows = report(folder, &["--inline", "--children", "-e", event]);
        let mut expected = by_function(&rows, "total_weight");
        // Reports divide callers without a name by ranges of addresses.
        for sums in [&mut total, &mut expected] {
            sums.retain(|name, _| !name.starts_with("[unknown]"));
        }
        assert!(expected.len() > 3, "{expected:?}");
        assert_eq!(total, expected, "{event}");
    }
    let (_, said) = done(folder, &["export", "--to", "otlp"]);
    assert!(
        said.contains("otlp has no place for: the times of"),
        "{said}"
    );
}

#[test]
fn lines_and_build_ids_are_there() {
    let recorded = or_skip!(inlined());
    let folder = recorded.folder.path();
    let file = or_skip!(read(folder));
    let of_program = |file: &Value| {
        file.as_str()
            .is_some_and(|file| file.ends_with("/inline.c"))
    };
    let rows = report(folder, &["-e", "cpu-clock", "--by", "line"]);
    let mut expected: BTreeMap<u64, u64> = BTreeMap::new();
    for row in rows.iter().filter(|row| of_program(&row["file"])) {
        *expected.entry(number(&row["line"])).or_default() += number(&row["weight"]);
    }
    let mut found: BTreeMap<u64, u64> = BTreeMap::new();
    let mut build_ids = BTreeSet::new();
    for sample in list(&profile(&file, "cpu-clock", "nanoseconds")["samples"]) {
        let frames = list(&sample["frames"]);
        let innermost = frames.first().expect("a frame");
        if of_program(&innermost["file"]) {
            *found.entry(number(&innermost["line"])).or_default() += sum(&sample["values"]);
        }
        for frame in frames {
            let module = frame["module"].as_str().expect("a module");
            if module.contains("/inline") {
                assert_eq!(frame["kind"], "native");
                build_ids.insert(frame["build_id"].as_str().expect("a build id").to_owned());
            }
        }
    }
    assert!(!expected.is_empty(), "{rows:?}");
    assert_eq!(found, expected);
    let perf = or_skip!(programs::need_tool("perf"));
    let listed = std::process::Command::new(perf)
        .args(["buildid-list", "-i", "perf.data"])
        .current_dir(folder)
        .output()
        .expect("perf runs");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let line = listed.lines().find(|line| line.contains("/inline"));
    let listed: Option<String> = line
        .and_then(|line| line.split_whitespace().next())
        .map(str::to_owned);
    assert_eq!(
        build_ids.into_iter().collect::<Vec<_>>(),
        Vec::from_iter(listed)
    );
}

#[test]
fn threads_and_cpus_are_attributes() {
    let recorded = or_skip!(threads());
    let folder = recorded.folder.path();
    let file = or_skip!(read(folder));
    let mut by_thread: BTreeMap<(u64, String), u64> = BTreeMap::new();
    let mut by_cpu: BTreeMap<u64, u64> = BTreeMap::new();
    let mut pids = BTreeSet::new();
    for sample in list(&profile(&file, "samples", "count")["samples"]) {
        let attributes = &sample["attributes"];
        let comm = attributes["thread.name"].as_str().expect("a name");
        let thread = (number(&attributes["thread.id"]), comm.to_owned());
        let value = sum(&sample["values"]);
        *by_thread.entry(thread).or_default() += value;
        *by_cpu
            .entry(number(&attributes["cpu.logical_number"]))
            .or_default() += value;
        pids.insert(number(&attributes["process.pid"]));
    }
    let rows = report(folder, &["--by", "thread,comm"]);
    let mut expected: BTreeMap<(u64, String), u64> = BTreeMap::new();
    let mut tid = 0;
    for row in &rows {
        tid = row["tid"].as_u64().unwrap_or(tid);
        if let Some(comm) = row["comm"].as_str() {
            *expected.entry((tid, comm.to_owned())).or_default() += number(&row["samples"]);
        }
    }
    assert_eq!(by_thread, expected);
    assert!(by_thread.len() > 3, "{by_thread:?}");
    let rows = report(folder, &["--by", "cpu"]);
    let expected = rows
        .iter()
        .map(|row| (number(&row["cpu"]), number(&row["samples"])));
    assert_eq!(by_cpu, expected.collect());
    let rows = report(folder, &["--by", "process"]);
    let expected = rows.iter().map(|row| number(&row["pid"]));
    assert_eq!(pids, expected.collect());
}

#[test]
fn samples_have_their_times_on_the_wall_clock() {
    or_skip!(programs::need_sampling());
    let program = or_skip!(programs::c("inline", &[]));
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let program = program.to_string_lossy().into_owned();
    let clock = || {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        u64::try_from(now.expect("a time after 1970").as_nanos()).expect("a time of our days")
    };
    let before = clock();
    let words = [
        "record",
        "-g",
        "-e",
        "cpu-clock",
        "-c",
        "1000000",
        "--",
        &program,
        "100",
    ];
    done(folder, &words);
    let after = clock();
    let file = or_skip!(read(folder));
    let profile = profile(&file, "cpu-clock", "nanoseconds");
    assert_eq!(list(&file["profiles"]).len(), 1);
    assert_eq!(
        profile["period_type"],
        serde_json::json!(["cpu-clock", "nanoseconds"])
    );
    assert_eq!(profile["period"], 1_000_000);
    let samples = list(&profile["samples"]);
    let times = samples.iter().flat_map(|sample| list(&sample["times"]));
    let times: Vec<u64> = times.map(number).collect();
    // The clocks are compared once, and the wall clock may be set by less than a second.
    let tolerance = 1_000_000_000;
    for time in &times {
        assert!(
            (before - tolerance..after + tolerance).contains(time),
            "{time}"
        );
    }
    assert_eq!(times.iter().min().copied(), profile["start"].as_u64());
    let rows = report(folder, &["--inline"]);
    let (own, _) = sums(profile);
    assert_eq!(own, by_function(&rows, "weight"));
    let recorded: u64 = by_function(&rows, "samples").values().sum();
    assert_eq!(times.len() as u64, recorded);
    assert_eq!(file["resource"]["os.type"], "linux");
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("the name");
    assert_eq!(file["resource"]["host.name"], name.trim());
}
