//! `record --off-cpu`: the waits that a program measures itself, at the functions that wait.

use super::support::Recording;
use dioptra_testprograms as programs;
use programs::or_skip;
use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

fn report(recording: &Path, arguments: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_dioptra"))
        .args(["report", "--format", "json", "--event", "off-cpu", "-i"])
        .arg(recording)
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The waits of a function.
#[derive(Clone, Copy, Debug)]
struct Waits {
    /// Nanoseconds in it and in all that it calls.
    total: f64,
    /// The number of waits in the function itself.
    own: u64,
}

/// Returns the waits of each function, by name.
fn waits(report: &Value) -> HashMap<String, Waits> {
    let columns = report["columns"].as_array().unwrap();
    let place = |id: &str| {
        let place = columns.iter().position(|column| column["id"] == id);
        place.unwrap_or_else(|| panic!("no {id} among {columns:?}"))
    };
    let (name, samples) = (place("function"), place("samples"));
    let (weight, share) = (place("weight"), place("total_percent"));
    let rows = report["rows"].as_array().unwrap();
    let number = |row: &Value, at: usize| row["cells"][at].as_u64().unwrap();
    let all: u64 = rows.iter().map(|row| number(row, weight)).sum();
    let waits = |row: &Value| Waits {
        total: row["cells"][share].as_f64().unwrap() / 100.0 * all as f64,
        own: number(row, samples),
    };
    rows.iter()
        .map(|row| (row["cells"][name].as_str().unwrap().to_owned(), waits(row)))
        .collect()
}

#[test]
fn serial_waits_count_with_their_time_at_the_functions_that_wait() {
    or_skip!(programs::need_sampling());
    or_skip!(programs::need_root());
    let program = or_skip!(programs::c(
        "offcpu",
        &["-g", "-O1", "-fno-omit-frame-pointer", "-pthread"]
    ));
    let recording = Recording::new();
    let output = recording
        .command()
        .args(["-q", "-e", "cpu-clock:u", "--off-cpu", "--call-graph"])
        .arg("dwarf")
        .arg("--")
        .arg(&program)
        .args(["50", "40", "30"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let report = report(&recording.path(), &["--children", "--limit", "2000"]);
    let waits = waits(&report);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(said.lines().count(), 3, "{said}");
    for line in said.lines() {
        let (name, us) = line.split_once(' ').unwrap();
        let measured = us.parse::<f64>().unwrap() * 1000.0;
        let total = waits.get(name).map_or(0.0, |waits| waits.total);
        // The program's own times hold its way into the kernel and back, and the time in line for a CPU. It measures in
        // `locking` only the lock, and not the message that comes before.
        let most = if name == "locking" { 1.5 } else { 1.01 };
        assert!(
            (0.85 * measured..=most * measured).contains(&total),
            "{name}: {total} ns, the program says {measured}; {waits:?}"
        );
    }
    // Each function of the program naps once a turn, itself or by its thread.
    let naps = waits
        .iter()
        .find(|(name, _)| name.contains("clock_nanosleep"));
    let naps = naps.map_or(0, |(_, waits)| waits.own);
    assert!((115..=125).contains(&naps), "{naps} naps; {waits:?}");
}

#[test]
fn serial_waits_have_callers_by_frame_pointers_without_asking() {
    or_skip!(programs::need_sampling());
    or_skip!(programs::need_root());
    let program = or_skip!(programs::c(
        "offcpu",
        &["-g", "-O1", "-fno-omit-frame-pointer", "-pthread"]
    ));
    let recording = Recording::new();
    let output = recording
        .command()
        .args(["-q", "-e", "cpu-clock:u", "--off-cpu", "--"])
        .arg(&program)
        .args(["20", "0", "0"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    // libc saves no frame pointer, so its caller is missing, but not the caller's caller.
    let waits = waits(&report(
        &recording.path(),
        &["--children", "--limit", "2000"],
    ));
    let total = waits.get("times").map_or(0.0, |waits| waits.total);
    assert!(total > 20.0 * 4e6, "{waits:?}");
    // perf reads the file, and counts the switches.
    let perf = or_skip!(programs::need_tool("perf"));
    let read = Command::new(perf)
        .args(["report", "--stdio", "-i"])
        .arg(recording.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&read.stdout);
    assert!(text.contains("of event 'off-cpu'"), "{text}");
}

#[test]
fn context_switches_cannot_be_sampled_twice() {
    let output = Recording::new().run(["-e", "context-switches", "--off-cpu", "true"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("--off-cpu"), "{said}");
}
