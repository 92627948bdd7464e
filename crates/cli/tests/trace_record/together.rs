//! `dioptra record --trace`: samples and calls of one run.

use super::{DIOPTRA, METHODS, five, text};
use dioptra_testprograms::{self as programs, Language, Program, or_skip};
use std::fs;
use std::os::unix::fs::PermissionsExt;
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

/// The profile names the code that the tracer has made, and perf counts as many samples there.
#[test]
fn serial_samples_of_the_tracer_are_named() {
    or_skip!(programs::need_sampling());
    or_skip!(programs::need_tool("perf"));
    let flags = METHODS[0].iter().copied().chain(["-O1"]);
    let program = or_skip!(
        Program::new(Language::C, "trace-calls")
            .no_flags()
            .flags(flags)
            .build()
    );
    let folder = tempfile::tempdir().unwrap();
    let program = program.to_str().unwrap();
    let output = record(
        folder.path(),
        &["-q", "-F", "2000", "--trace", "--", program, "fib", "27"],
    );
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = shown(folder.path(), &["report", "--format", "json"]);
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let columns = report["columns"].as_array().unwrap();
    let column = |id: &str| {
        columns
            .iter()
            .position(|column| column["id"] == id)
            .unwrap()
    };
    let (module, function) = (column("module"), column("function"));
    let samples = column("samples");
    let rows = report["rows"].as_array().unwrap().iter();
    let named: Vec<(&str, u64)> = rows
        .map(|row| &row["cells"])
        .filter(|cells| cells[module] == "[dioptra trace]")
        .map(|cells| {
            (
                cells[function].as_str().unwrap(),
                cells[samples].as_u64().unwrap(),
            )
        })
        .collect();
    let perf = Command::new("perf")
        .args(["script", "-i", "perf.data", "-F", "ip,sym,dso"])
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(perf.status.success(), "{}", text(&perf.stderr));
    let perf = text(&perf.stdout);
    let counted = perf.lines().filter(|line| line.contains("memfd:dioptra"));
    let counted = counted.count() as u64;
    assert!(counted > 0, "{perf}");
    assert_eq!(named, [("[hooks and thunks]", counted)], "{report}");
}

/// Commands that can't execute, found out before and after the recorder of samples has begun.
#[test]
fn an_older_profile_stays_if_the_command_cannot_start() {
    or_skip!(programs::need_sampling());
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script");
    fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(folder.path().join("text"), "no program\n").unwrap();
    let recorded = record(folder.path(), &["-q", "--", "true"]);
    assert!(recorded.status.success(), "{}", text(&recorded.stderr));
    let file = folder.path().join("perf.data");
    let before = fs::read(&file).unwrap();
    for trace in [&["-q"][..], &["-q", "--trace"]] {
        for command in ["no-such-command-anywhere", "./script", "./text"] {
            let output = record(folder.path(), &[trace, &["--", command]].concat());
            let said = text(&output.stderr);
            let status = output.status.code();
            assert!(
                matches!(status, Some(126 | 127)),
                "{trace:?} {command}: {status:?} {said}"
            );
            assert_eq!(fs::read(&file).unwrap(), before, "{trace:?} {command}");
        }
    }
    // The script, the text and the profile are all that is there.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    let output = record(folder.path(), &["-q", "--trace", "--", "true"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_ne!(fs::read(&file).unwrap(), before);
    assert_eq!(
        fs::read(folder.path().join("perf.data.old")).unwrap(),
        before
    );
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
