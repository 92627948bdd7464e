//! `dioptra report` and `perf report` on the same files: functions, percentages, samples and weights are equal.
//!
//! Recordings are perf's and our own, short, of real programs. Both tools read the same file, so a busy machine changes
//! what is recorded but not whether the tables agree.

mod alias;
mod compare;
mod filters;
mod inline;
mod jit;
mod lines;
mod programs_of_the_machine;
mod stripped;
mod table;
mod trees;

use compare::assert_equal;
use dioptra_testprograms::{self as programs, Skip, or_skip};
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};
use table::{Recording, Table};
use tempfile::TempDir;

/// Who records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recorder {
    Perf,
    Dioptra,
}

const BOTH: [Recorder; 2] = [Recorder::Perf, Recorder::Dioptra];

/// A recording in a folder of its own.
struct Recorded {
    _folder: TempDir,
    recording: Recording,
}

/// Records `command`, run in the new folder.
fn record<S: AsRef<OsStr>>(
    recorder: Recorder,
    options: &[&str],
    command: &[S],
) -> Result<Recorded, Skip> {
    programs::need_tool("perf")?;
    let options = [&["-e", "cpu-clock"], options].concat();
    let programs::Recorded { folder, file } = match recorder {
        Recorder::Perf => programs::perf_record(&options, command)?,
        Recorder::Dioptra => record_ourselves(&options, command)?,
    };
    let cache = folder.path().join("cache");
    std::fs::create_dir(&cache).expect("a folder");
    Ok(Recorded {
        _folder: folder,
        recording: Recording { file, cache },
    })
}

fn record_ourselves<S: AsRef<OsStr>>(
    options: &[&str],
    command: &[S],
) -> Result<programs::Recorded, Skip> {
    programs::need_sampling()?;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("perf.data");
    let output = Command::new(env!("CARGO_BIN_EXE_dioptra"))
        .arg("record")
        .args(options)
        .arg("-o")
        .arg(&file)
        .arg("--")
        .args(command)
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()
        .expect("dioptra starts");
    assert!(
        file.exists(),
        "dioptra record wrote nothing: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(programs::Recorded { folder, file })
}

/// The self share of a function in percent, over the rows of its name.
fn share(table: &Table, function: &str) -> f64 {
    let rows = table.values().next().expect("an event");
    let all: u64 = rows.iter().map(|row| row.weight).sum();
    let own: u64 = rows
        .iter()
        .filter(|row| row.name == function)
        .map(|row| row.weight)
        .sum();
    100.0 * own as f64 / all as f64
}

#[test]
fn shares_known_by_construction() {
    let shares = or_skip!(programs::c("shares", &[]));
    for recorder in BOTH {
        for options in [&["-F", "2000"][..], &["-F", "2000", "-g"]] {
            let recorded = or_skip!(record(recorder, options, &[shares.as_os_str()]));
            let table = assert_equal(&recorded.recording);
            // Ten points leave room for a machine that was stopped in between.
            for (function, expected) in [("sixty", 60.0), ("thirty", 30.0), ("ten", 10.0)] {
                let found = share(&table, function);
                assert!(
                    (found - expected).abs() < 10.0,
                    "{recorder:?}: {function} {found} %"
                );
            }
        }
    }
}

#[test]
fn python() {
    let python = or_skip!(programs::need_tool("python3"));
    let script = "import json\nfor i in range(40): json.loads(json.dumps([{'a': i, 'b': [1, 2, 3]}] * 2000))";
    for recorder in BOTH {
        let command = [python.as_os_str(), OsStr::new("-c"), OsStr::new(script)];
        let recorded = or_skip!(record(recorder, &["-F", "4000", "-g"], &command));
        assert_equal(&recorded.recording);
    }
}

/// Checks our table by `dimension` ("process" or "thread"), whose numbers are in the column `number`, against perf's.
fn assert_tasks_equal(recording: &Recording, dimension: &str, number: &str) {
    let perfs = recording.perfs_by("pid");
    let ours = recording.ours_by(dimension, |cells| {
        format!("{}:{}", cells[number], cells[dimension])
    });
    // perf prints `pid:comm` with the number right-aligned, and the last name a process had.
    let close = |name: &str| name.split_whitespace().collect::<String>();
    let perfs: Vec<_> = perfs
        .iter()
        .map(|(name, weight)| (close(name), weight))
        .collect();
    let ours: Vec<_> = ours
        .iter()
        .map(|(name, weight)| (close(name), weight))
        .collect();
    assert_eq!(perfs, ours);
}

#[test]
fn a_compiler_and_its_children() {
    or_skip!(programs::need_tool("gcc"));
    for recorder in BOTH {
        let script = "for i in 1 2 3 4 5; do printf '#include <stdio.h>\\n#include <stdlib.h>\\nint main(void){return 0;}\\n' | gcc -O2 -x c -o out -; done";
        let recorded = or_skip!(record(
            recorder,
            &["-F", "4000", "-g"],
            &["sh", "-c", script]
        ));
        let recording = &recorded.recording;
        assert_equal(recording);
        assert_tasks_equal(recording, "process", "pid");
    }
}

#[test]
fn rust_threads() {
    let threaded = or_skip!(programs::rust("threaded", &[]));
    for recorder in BOTH {
        let command = [threaded.as_os_str(), OsStr::new("4"), OsStr::new("20")];
        let recorded = or_skip!(record(recorder, &["-F", "2000", "-g"], &command));
        let recording = &recorded.recording;
        assert_equal(recording);
        assert_tasks_equal(recording, "thread", "tid");
    }
}

#[test]
fn the_whole_machine() {
    or_skip!(programs::need_root());
    let shares = or_skip!(programs::c("shares", &[]));
    for recorder in BOTH {
        let command = [shares.as_os_str(), OsStr::new("300")];
        let recorded = or_skip!(record(recorder, &["-a", "-F", "1000", "-g"], &command));
        assert_equal(&recorded.recording);
    }
}

#[test]
fn recursion_counts_once_in_a_stack() {
    let recursion = or_skip!(programs::c("recursion", &[]));
    for recorder in BOTH {
        let recorded = or_skip!(record(
            recorder,
            &["-F", "2000", "-g"],
            &[recursion.as_os_str()]
        ));
        assert_equal(&recorded.recording);
    }
}

#[test]
fn several_events_side_by_side() {
    let faults = or_skip!(programs::c("faults", &[]));
    let options = ["-F", "2000", "-e", "page-faults", "-g"];
    for recorder in BOTH {
        let recorded = or_skip!(record(recorder, &options, &[faults.as_os_str()]));
        let table = assert_equal(&recorded.recording);
        assert_eq!(table.len(), 2, "{:?}", table.keys());
    }
}

#[test]
fn libraries_that_come_and_go() {
    let program = or_skip!(programs::c("dlopen", &["-ldl"]));
    let first = or_skip!(programs::shared_library(
        "plugin",
        "first",
        &["-DPLUGIN_WORK=first_work"]
    ));
    let second = or_skip!(programs::shared_library(
        "plugin",
        "second",
        &["-DPLUGIN_WORK=second_work"]
    ));
    for recorder in BOTH {
        let command: [&Path; 5] = [
            &program,
            &first,
            Path::new("first_work"),
            &second,
            Path::new("second_work"),
        ];
        let recorded = or_skip!(record(recorder, &["-F", "2000", "-g"], &command));
        assert_equal(&recorded.recording);
    }
}
