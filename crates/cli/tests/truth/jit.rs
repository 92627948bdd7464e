//! Code made at run time has the names that perf gives it.

use crate::compare::assert_equal;
use crate::table::{Recording, Table};
use crate::{BOTH, Recorder, record};
use dioptra_testprograms::{self as programs, or_skip};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::process::Command;

/// The weights of the functions that the program makes.
fn made(table: &Table) -> BTreeMap<String, u64> {
    let mut weights = BTreeMap::new();
    for row in table.values().flatten() {
        if row.name.starts_with("made_") {
            *weights.entry(row.name.clone()).or_default() += row.weight;
        }
    }
    weights
}

/// The first function runs three times as long as the second.
fn assert_shares(weights: &BTreeMap<String, u64>) {
    let of = |name: &str| weights.get(name).copied().unwrap_or(0) as f64;
    let share = of("made_first") / (of("made_first") + of("made_second"));
    assert!((share - 0.75).abs() < 0.15, "{weights:?}");
}

#[test]
fn map_files_name_memory_without_a_file() {
    let program = or_skip!(programs::c("jitcode", &[]));
    for recorder in BOTH {
        let command = [program.as_os_str(), OsStr::new("map")];
        let recorded = or_skip!(record(recorder, &["-F", "2000"], &command));
        let table = assert_equal(&recorded.recording);
        assert_shares(&made(&table));
        let module = table
            .values()
            .flatten()
            .find_map(|row| row.module.strip_prefix("[JIT] tid "))
            .expect("a process");
        std::fs::remove_file(format!("/tmp/perf-{module}.map")).expect("the map file goes");
    }
}

#[test]
fn dumps_tell_code_apart_that_replaced_other_code() {
    let program = or_skip!(programs::c("jitcode", &[]));
    let command = [program.as_os_str(), OsStr::new("dump")];
    let recorded = or_skip!(record(
        Recorder::Perf,
        &["-F", "2000", "-k", "mono"],
        &command
    ));
    let recording = &recorded.recording;
    let ours = made(&recording.ours(false, &[]));
    assert_shares(&ours);
    let folder = recording.file.parent().expect("a folder");
    let injected = Recording {
        file: folder.join("injected.data"),
        cache: recording.cache.clone(),
    };
    let output = Command::new("perf")
        .args(["inject", "-j", "-i"])
        .arg(&recording.file)
        .arg("-o")
        .arg(&injected.file)
        .current_dir(folder)
        .env("HOME", folder)
        .output()
        .expect("perf runs");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(made(&injected.perfs(false, None, &[])), ours);
    // Lines of both functions, though both lie at the same addresses.
    let lines = recording.ours_json(&["--by", "line"]).to_string();
    assert!(lines.contains("made.src"), "{lines}");
    // Our recordings have the clock of such files anyway.
    let recorded = or_skip!(record(Recorder::Dioptra, &["-F", "2000"], &command));
    assert_shares(&made(&recorded.recording.ours(false, &[])));
}

#[test]
fn dumps_without_comparable_times_are_told() {
    let program = or_skip!(programs::c("jitcode", &[]));
    let command = [program.as_os_str(), OsStr::new("dump")];
    let recorded = or_skip!(record(Recorder::Perf, &["-F", "2000"], &command));
    let json = recorded.recording.ours_json(&[]);
    assert_eq!(json["facts"]["jit_dumps_without_times"]["value"], 1);
    let ours = made(&recorded.recording.ours(false, &[]));
    assert!(ours.contains_key("made_second") && !ours.contains_key("made_first"));
}
