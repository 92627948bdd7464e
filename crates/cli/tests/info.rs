//! `dioptra info`: what it prints of real recordings, and what it says about files that are none.

use dioptra_testprograms::{Skip, need_shared_data, or_skip};
use serde_json::Value;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

fn info(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dioptra"))
        .arg("info")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("dioptra runs")
}

/// A recording that does not come with the repository.
fn shared(name: &str) -> Result<PathBuf, Skip> {
    need_shared_data(&format!("perfdata/{name}"))
}

#[test]
fn json_counts_every_type_of_record() {
    let path = or_skip!(shared("perf.data.throttle-3.8"));
    let output = info(&["--format", "json", "-i", path.to_str().expect("a path")]);
    assert!(output.status.success());
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    // As `perf report --stats` counts them.
    let expected = serde_json::json!({
        "MMAP": 1653, "COMM": 230, "EXIT": 4, "THROTTLE": 68, "UNTHROTTLE": 64, "FORK": 2, "SAMPLE": 14980
    });
    assert_eq!(json["records"], expected);
    assert_eq!(json["throttled"], 68);
    assert_eq!(json["lost"], 0);
    assert_eq!(json["salvaged"], false);
    assert_eq!(json["events"][0]["name"], "cycles");
    assert_eq!(json["events"][0]["samples"], 9036);
    assert_eq!(json["events"][1]["samples"], 5944);
    assert_eq!(json["machine"]["os_release"], "3.8.11");
}

#[test]
fn standard_input_is_read() {
    let path = or_skip!(shared("perf.data.piped.target-3.8"));
    let file = std::fs::File::open(path).expect("the recording");
    let output = Command::new(env!("CARGO_BIN_EXE_dioptra"))
        .args(["info", "-i", "-"])
        .stdin(file)
        .output()
        .expect("dioptra runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success());
    assert!(text.contains("5218  SAMPLE"), "{text}");
    assert!(
        text.contains("event           branch-misses: 885 samples"),
        "{text}"
    );
}

#[test]
fn a_cut_file_is_salvaged_and_says_so() {
    let path = or_skip!(shared("perf.data.throttle-3.8"));
    let bytes = std::fs::read(path).expect("the recording");
    let mut cut = tempfile::NamedTempFile::new().expect("a file");
    cut.write_all(&bytes[..500_001]).expect("a part");
    let output = info(&["-i", cut.path().to_str().expect("a path")]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success());
    assert!(text.contains("salvaged"), "{text}");
    assert!(text.contains("reading stopped at offset"), "{text}");
}

#[test]
fn what_is_no_recording_is_named() {
    let folder = tempfile::tempdir().expect("a directory");
    let empty = folder.path().join("empty");
    std::fs::write(&empty, b"").expect("a file");
    let text = folder.path().join("text");
    std::fs::write(&text, b"hello, world").expect("a file");
    let missing = folder.path().join("missing");
    for (path, what, remedy) in [
        (empty.as_path(), "is empty", "record again"),
        (&text, "begins with \"hello, w\"", "dioptra record"),
        (&missing, "no such file", "dioptra record"),
        (folder.path(), "is a directory", "name the recording's file"),
    ] {
        let output = info(&["-i", path.to_str().expect("a path")]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains(what) && error.contains(remedy), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}
