//! `record --flight-recorder`: the last seconds, written by a signal, an event, the use of a CPU, and at the end.

use super::support::{Recording, kill, wait_until};
use dioptra_perfdata::PerfData;
use dioptra_perfevents::record::RecordType;
use dioptra_testprograms as programs;
use programs::or_skip;
use serde_json::Value;
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// Returns the file of a trigger.
fn numbered(recording: &Recording, number: u32) -> PathBuf {
    let mut path = recording.path().into_os_string();
    path.push(format!(".{number}"));
    path.into()
}

/// Returns the times of a recording's samples.
fn times(path: &Path) -> Vec<u64> {
    let data = PerfData::open(path).expect("a recording");
    let mut times = Vec::new();
    let summary = data.read(|record| {
        if record.raw.kind == RecordType::SAMPLE {
            times.push(record.time.expect("a time"));
        }
        ControlFlow::Continue(())
    });
    assert_eq!((summary.damages, summary.out_of_order), (0, 0));
    times
}

/// Returns the share of a recording's samples in the function `burn`, in percent.
fn burnt(path: &Path) -> f64 {
    let report = Command::new(env!("CARGO_BIN_EXE_dioptra"))
        .args(["report", "--format", "json", "-i"])
        .arg(path)
        .output()
        .expect("dioptra runs");
    let report: Value = serde_json::from_slice(&report.stdout).expect("JSON");
    let columns = report["columns"].as_array().expect("columns");
    let place = |id: &str| columns.iter().position(|column| column["id"] == id);
    let (name, share) = (
        place("function").expect("names"),
        place("self_percent").expect("shares"),
    );
    let mut rows = report["rows"].as_array().expect("rows").iter();
    let burn = rows.find(|row| row["cells"][name] == "burn");
    burn.and_then(|row| row["cells"][share].as_f64())
        .unwrap_or(0.0)
}

fn start(recording: &Recording, arguments: &[&str], program: &[&OsStr]) -> Child {
    let child = recording
        .command()
        .args(["-e", "cpu-clock:u", "-F", "1000"])
        .args(arguments)
        .arg("--")
        .args(program)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    child.expect("dioptra runs")
}

fn end(child: Child) -> (Output, String) {
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, said)
}

const SIGUSR2: i32 = 12;

/// Longer than a round, and the time for which a machine that does much else may let the recorder wait.
const SLACK: u64 = 1_500_000_000;

#[test]
fn serial_a_signal_and_the_end_write_the_last_seconds() {
    or_skip!(programs::need_sampling());
    let spin = or_skip!(programs::c("spin", &[]));
    let recording = Recording::new();
    let second = numbered(&recording, 2);
    let mut child = start(
        &recording,
        &["--flight-recorder=1"],
        &[spin.as_os_str(), OsStr::new("6")],
    );
    std::thread::sleep(std::time::Duration::from_millis(3000));
    kill(&child, SIGUSR2);
    wait_until(&mut child, "the first recording is there", || {
        numbered(&recording, 1).exists()
    });
    std::thread::sleep(std::time::Duration::from_millis(1000));
    kill(&child, SIGUSR2);
    wait_until(&mut child, "the second recording is there", || {
        second.exists()
    });
    let (output, said) = end(child);
    assert!(output.status.success(), "{said}");
    let mut before = 0;
    for path in [numbered(&recording, 1), second, recording.path()] {
        let times = times(&path);
        let (first, last) = (times[0], times[times.len() - 1]);
        assert!(
            times.len() > 200,
            "{}: {} samples",
            path.display(),
            times.len()
        );
        assert!(last - first < 1_000_000_000 + SLACK, "{first} {last}");
        assert!(last > before, "each is of another time");
        before = last;
        // Its mapping was recorded long before these samples.
        let burnt = burnt(&path);
        assert!(burnt > 90.0, "{}: {burnt} %", path.display());
    }
    for part in ["(SIGUSR2)", "(the end)"] {
        assert!(said.contains(part), "{said}");
    }
    let perf = or_skip!(programs::need_tool("perf"));
    let script = Command::new(perf)
        .args(["script", "-F", "ip,sym", "-i"])
        .arg(numbered(&recording, 1))
        .output()
        .expect("perf runs");
    let script = String::from_utf8_lossy(&script.stdout);
    let named = script.lines().filter(|line| line.ends_with(" burn"));
    let named = named.count();
    assert!(named > 200, "{named}");
}

#[test]
fn serial_an_event_and_the_use_of_a_cpu_are_triggers() {
    or_skip!(programs::need_sampling());
    let spin = or_skip!(programs::c("spin", &[]));
    let recording = Recording::new();
    // The shell sleeps, then its child spins and fills memory with its own pages.
    let script = format!("sleep 1; exec {} 3", spin.display());
    let words = [OsStr::new("sh"), OsStr::new("-c"), OsStr::new(&script)];
    let child = start(
        &recording,
        &["--flight-recorder=30", "--dump-above", "20"],
        &words,
    );
    let (_, said) = end(child);
    assert!(said.contains("% of a CPU)"), "{said}");
    assert!(numbered(&recording, 1).exists() && !numbered(&recording, 2).exists());
    let recording = Recording::new();
    let child = start(
        &recording,
        &[
            "-e",
            "page-faults/period=1/u",
            "--flight-recorder=30",
            "--dump-on",
            "page-faults/period=1/u",
        ],
        &words,
    );
    let (_, said) = end(child);
    assert!(said.contains("(page-faults/period=1/u)"), "{said}");
    let recording = Recording::new();
    let child = start(
        &recording,
        &["--flight-recorder=30", "--dump-on", "cycles"],
        &words,
    );
    let (output, said) = end(child);
    assert!(!output.status.success(), "{said}");
    assert!(
        said.contains("no event of the recording is called cycles"),
        "{said}"
    );
}

#[test]
fn flight_recorders_refuse_what_they_cannot_hold() {
    for (arguments, why) in [
        (&["--dump-on", "x"][..], "--flight-recorder"),
        (&["--flight-recorder", "-z"], "-z"),
        (&["--flight-recorder", "--windows"], "--windows"),
        (&["--flight-recorder", "-o", "-"], "-o"),
        (&["--flight-recorder=0"], "--flight-recorder"),
        (&["--flight-recorder", "--dump-above", "0"], "--dump-above"),
        (
            &["--flight-recorder", "--dump-above", "50", "-t", "1"],
            "--dump-above",
        ),
    ] {
        let mut words = arguments.to_vec();
        words.push("true");
        let output = Command::new(env!("CARGO_BIN_EXE_dioptra"))
            .arg("record")
            .args(&words)
            .output()
            .expect("dioptra runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(why), "{arguments:?}: {said}");
    }
}
