//! Output that can't be written is an error of every command that writes any.

use crate::made::{script, trace};
use std::fs::File;
use std::path::Path;
use std::process::Command;

/// A profile of a clock, with a few samples.
const PROFILE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../perf/records/tests/fixtures/clock.perf.data"
);

/// Runs `dioptra` with its standard output on a full device.
fn fails(arguments: &[&str], folder: &Path) {
    let full = File::options()
        .write(true)
        .open("/dev/full")
        .expect("it opens");
    let output = Command::new(env!("CARGO_BIN_EXE_dioptra"))
        .args(arguments)
        .current_dir(folder)
        .stdout(full)
        .output()
        .expect("it runs");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && told.contains("No space left on device"),
        "{arguments:?}: {:?}: {told}",
        output.status
    );
}

#[test]
fn a_full_device_is_told_by_commands_that_read_a_trace() {
    let made = trace(&[(7, script("main( a( b ) b )", 1_000, 1_000))]);
    let folder = made.folder().to_str().expect("a path");
    for arguments in [
        "replay",
        "replay --flat",
        "replay --format html",
        "report",
        "report --task",
        "report --format csv",
        "report --format json",
        "report --format html",
        "graph",
        "graph main",
        "graph --task",
        "graph --format html",
        "dump",
        "dump --format chrome",
        "dump --format flame-graph",
        "dump --format graphviz",
        "dump --format mermaid",
        "dump --format mermaid-text",
        "info",
        "info --format json",
        "info --task",
        "info --system",
    ] {
        let words = arguments.split(' ');
        let words: Vec<&str> = ["trace"]
            .into_iter()
            .chain(words)
            .chain(["-d", folder])
            .collect();
        fails(&words, made.folder());
    }
    let diff = ["trace", "report", "-d", folder, "--diff", folder];
    fails(&diff, made.folder());
    fails(&["trace", "--help"], made.folder());
}

#[test]
fn a_full_device_is_told_by_all_other_commands() {
    let folder = tempfile::tempdir().expect("a folder");
    for arguments in [
        "report",
        "report --format csv",
        "report --format json",
        "info",
        "info --format json",
        "dump",
        "dump --format json",
    ] {
        let words: Vec<&str> = arguments.split(' ').chain(["-i", PROFILE]).collect();
        fails(&words, folder.path());
    }
    fails(&["diff", PROFILE, PROFILE], folder.path());
    fails(&["sum", PROFILE, PROFILE], folder.path());
    for arguments in [
        "doctor",
        "doctor --format json",
        "list events",
        "list metrics",
        "list cpus",
        "--help",
        "--version",
        "report --help",
    ] {
        let words: Vec<&str> = arguments.split(' ').collect();
        fails(&words, folder.path());
    }
}
