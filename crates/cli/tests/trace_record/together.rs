//! `dioptra record --trace`: samples and calls of one run.

use super::{DIOPTRA, METHODS, five, text};
use dioptra_testprograms::{self as programs, or_skip};
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn record(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(DIOPTRA)
        .args(["record", "-e", "cpu-clock:u"])
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Returns what a command prints in this folder.
fn shown(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new(DIOPTRA)
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn one_run_has_a_profile_and_a_trace() {
    or_skip!(programs::need_sampling());
    let program = or_skip!(five(METHODS[0]));
    let folder = tempfile::tempdir().unwrap();
    // The program's status is the number of its arguments.
    let command = [program.to_str().unwrap(), "one", "two"];
    let output = record(
        folder.path(),
        &[&["--trace=-F a -d calls", "-o", "samples"], &command[..]].concat(),
    );
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    let calls = shown(
        folder.path(),
        &["trace", "replay", "-d", "calls", "--no-sched", "-f", "none"],
    );
    assert_eq!(calls, super::WHOLE.repeat(5));
    // The profile has the program's exec and its mapping: the recorder of samples was there before the first instruction.
    let dump = shown(folder.path(), &["dump", "-i", "samples"]);
    assert!(
        dump.lines()
            .any(|line| line.contains("MMAP2") && line.contains("trace-five")),
        "{dump}"
    );
    assert!(
        dump.lines()
            .any(|line| line.contains("COMM") && line.contains("exec")),
        "{dump}"
    );
    assert!(!folder.path().join("perf.data").exists());
    assert!(!folder.path().join("dioptra.trace").exists());
}

#[test]
fn the_status_is_the_commands() {
    or_skip!(programs::need_sampling());
    let folder = tempfile::tempdir().unwrap();
    for (command, status) in [
        (&["sh", "-c", "exit 7"][..], 7),
        (&["--", "sh", "-c", "kill -TERM $$"], 128 + 15),
        (&["no-such-command-anywhere"], 127),
    ] {
        let output = record(folder.path(), &[&["-q", "--trace"], command].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{command:?}: {said}");
    }
}

#[test]
fn a_run_that_cannot_have_both_is_a_wrong_argument() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, word) in [
        (
            &["--trace", "-a", "true"][..],
            "--trace goes with a command",
        ),
        (&["--trace", "-p", "1"], "--trace goes with a command"),
        (&["--trace", "-o", "-", "true"], "-o -"),
        (&["--trace=--no-such-option", "true"], "--no-such-option"),
        (&["--trace=-F 'a", "true"], "--trace"),
        (&["--trace=-F a@sampel=2", "true"], "sampel"),
    ] {
        let output = record(folder.path(), arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(word), "{arguments:?}: {said}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn no_trace_is_made_if_samples_cannot_be_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let output = record(
        folder.path(),
        &[
            "--trace",
            "-o",
            "/no/such/folder/perf.data",
            "sh",
            "-c",
            "echo ran > ran",
        ],
    );
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains("/no/such/folder/perf.data"), "{said}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{said}");
}
