//! Windows of programs that run on this machine.

use super::{dioptra, facts, json, number, row};
use dioptra_testprograms::{self as programs, Skip, or_skip};
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use tempfile::TempDir;

struct Recorded {
    _folder: TempDir,
    file: PathBuf,
}

/// Records `faults` for windows: `touch_pages` faults at each page, `touch_again` never.
fn record(options: &[&str], command: &[&OsStr]) -> Result<Recorded, Skip> {
    programs::need_sampling()?;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("perf.data");
    let mut all: Vec<&OsStr> = vec!["record".as_ref(), "-o".as_ref(), file.as_ref()];
    all.extend(options.iter().map(OsStr::new));
    all.push("--".as_ref());
    all.extend(command);
    let output = dioptra(&all);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(Recorded {
        _folder: folder,
        file,
    })
}

/// The rate of faults is 0 in functions that never fault, and above 0 in functions that fault at every step.
#[test]
fn faults_belong_to_the_function_that_faults() {
    let faults = or_skip!(programs::c("faults", &[]));
    let command = [faults.as_os_str(), "20000".as_ref(), "20".as_ref()];
    let recorded = or_skip!(record(&["--windows=short=100us,long=1ms"], &command));
    let table = json("metrics", &recorded.file, &["--set", "faults_per_ms"]);
    let discards = facts(&table, "discarded_windows")[0]
        .as_object()
        .expect("an object");
    let all: u64 = discards
        .values()
        .filter_map(serde_json::Value::as_u64)
        .sum();
    let info = json("info", &recorded.file, &[]);
    let seen = info["windows"]["windows_seen"].as_u64().expect("a number");
    // The analysis covers all windows that the recorder saw.
    assert_eq!(all, seen);
    assert!(seen > 0, "{info}");
    let total = |event: &str| {
        let totals = info["windows"]["totals"].as_array().expect("totals");
        let found = totals.iter().find(|total| total["event"] == event);
        found.expect("a total")["value"].as_u64().expect("a number")
    };
    assert!(total("page-faults") >= 400_000, "{info}");
    if let Some(touching) = row(&table, "function", "touch_pages")
        && touching["kept_windows"].as_u64() > Some(5)
    {
        assert!(number(&touching, "faults_per_ms") > 1.0, "{touching:?}");
    }
    if let Some(again) = row(&table, "function", "touch_again")
        && again["kept_windows"].as_u64() > Some(0)
    {
        assert_eq!(number(&again, "faults_per_ms_raw"), 0.0, "{again:?}");
    }
    // The ordinary report keeps the kernel apart; with `--kernel-apart` the rows have the same samples.
    let table = json(
        "metrics",
        &recorded.file,
        &["--set", "faults_per_ms", "--kernel-apart"],
    );
    let report = json("report", &recorded.file, &[]);
    for name in ["touch_pages", "touch_again"] {
        let (one, other) = (
            row(&table, "function", name),
            row(&report, "function", name),
        );
        let samples = |row: Option<serde_json::Map<String, serde_json::Value>>| {
            row.map(|row| row["samples"].clone())
        };
        assert_eq!(samples(one), samples(other), "{name}");
    }
}

/// Windows of a clock contain the interrupts that end them. The interrupts' time follows from windows of several
/// lengths, and is taken off.
#[test]
fn interrupts_are_taken_off_windows_of_clocks() {
    let program = or_skip!(programs::c("windows", &[]));
    let windows = "--windows=short=70us,jitter=30us,long=500us";
    let options = [windows, "-e", "{task-clock,page-faults}"];
    let command = [program.as_os_str(), "150".as_ref()];
    let recorded = or_skip!(record(&options, &command));
    let table = json("metrics", &recorded.file, &["--set", "faults_per_ms"]);
    if facts(&table, "windows")[0]["source"] != "refresh" {
        return programs::skip("clocks cannot be armed here");
    }
    let told = facts(&table, "clock_windows")[0];
    if programs::paranoid().is_some_and(|level| level > 1)
        && !programs::is_root()
        && told["taken_off"] == false
    {
        // With events of user space alone, windows hold too little of the interrupts to find their time, and a message
        // says so.
        assert!(told["per_window"].is_null(), "{told}");
        assert!(told["why"].is_string(), "{told}");
        return;
    }
    let taken = told["per_window"].as_f64().expect("a number");
    assert!((0.0..50_000.0).contains(&taken), "{told}");
    assert_eq!(told["taken_off"], true);
    // Windows are some 70 us long, so taking off the interrupts raises the rate at least this much. Where the kernel is
    // recorded, the faults count for its functions.
    if let Some(touching) = row(&table, "function", "touch_and_call")
        && touching["kept_windows"].as_u64() > Some(20)
    {
        let raw = number(&touching, "faults_per_ms_raw");
        let corrected = number(&touching, "faults_per_ms_corrected");
        let least = raw * 70_000.0 / (70_000.0 - 0.5 * taken);
        assert!(least <= corrected, "{told} {touching:?}");
        assert_eq!(
            touching["faults_per_ms"],
            touching["faults_per_ms_corrected"]
        );
    }
    let computing = row(&table, "function", "compute").expect("the other one");
    assert_eq!(number(&computing, "faults_per_ms"), 0.0, "{computing:?}");
    // The time taken off the windows is taken off the program's time too. Arming this many bursts takes up to a fifth
    // of that time, which the clock counts and no window holds.
    let closure = facts(&table, "closure")[0];
    let of = |what: &str| closure[what].as_f64().expect("a number");
    let half = (of("error_high") - of("error_low")) / 2.0;
    assert!(
        (-2.5 * half..2.5 * half + 0.2).contains(&of("error")),
        "{closure}"
    );
}

/// perf's own recordings of groups: windows between all samples.
#[test]
fn groups_that_perf_recorded_have_windows() {
    or_skip!(programs::need_tool("perf"));
    or_skip!(programs::need_sampling());
    let faults = or_skip!(programs::c("faults", &[]));
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("perf.data");
    let perf = |events: &[&str]| {
        let status = Command::new("perf")
            .args(["record", "-q", "--no-buildid-cache", "--no-inherit"])
            .args(events)
            .arg("-o")
            .arg(&file)
            .arg("--")
            .arg(&faults)
            .args(["20000", "10"])
            .env("HOME", folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status();
        assert!(status.expect("perf runs").success());
    };
    perf(&["-e", "{task-clock,page-faults}:S", "-c", "200000"]);
    let table = json("metrics", &file, &["--set", "faults_per_ms"]);
    assert_eq!(facts(&table, "windows")[0]["source"], "samples");
    let again = row(&table, "function", "touch_again");
    if let Some(again) = again.filter(|again| again["kept_windows"].as_u64() > Some(0)) {
        assert_eq!(number(&again, "faults_per_ms_raw"), 0.0, "{again:?}");
    }
    // Each event sampled for itself: ratios of sampled counts, as `report` has them.
    perf(&[
        "-e",
        "task-clock/period=100000/",
        "-e",
        "page-faults/period=1/",
    ]);
    let table = json("metrics", &file, &["--set", "faults_per_ms"]);
    assert_eq!(facts(&table, "sampled_events")[0]["source"], "period");
    let report = json("report", &file, &["--metric", "faults_per_ms"]);
    let touching = |table| row(table, "function", "touch_pages").expect("the function that faults");
    let (one, other) = (touching(&table), touching(&report));
    assert_eq!(one["faults_per_ms"], other["faults_per_ms"]);
    assert!(
        one.get("kept_windows").is_none()
            && number(&one, "faults_per_ms_low") < number(&one, "faults_per_ms")
    );
}
