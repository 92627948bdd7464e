//! Programs whose recorder is killed: they go on as if nothing had happened, and what was written until then can be read.

use super::plain::calls;
use dioptra_testprograms::{Language, Program, or_skip};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

/// How often `fib(20)` calls itself, with the first call.
const CALLS: u64 = 21_891;

#[test]
fn a_program_goes_on_when_its_recorder_is_killed() {
    for (flags, on_full) in [
        (&["-pg", "-mfentry"][..], "block"),
        (&["-pg", "-mfentry"], "drop"),
        (&["-finstrument-functions"], "block"),
        (&[], "block"),
    ] {
        let program = or_skip!(
            Program::new(Language::C, "trace-orphan")
                .no_flags()
                .flags(["-O1", "-g", "-pthread"])
                .flags(flags.iter().copied())
                .build()
        );
        let folder = tempfile::tempdir().unwrap();
        let mut recorder = Command::new(env!("CARGO_BIN_EXE_dioptra"))
            .args([
                "trace",
                "record",
                "--no-sched",
                "--no-libcall",
                "--memory",
                "256k",
            ])
            .args(["--on-full", on_full, "-P", "^fib$"])
            .arg(program)
            .current_dir(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut input = recorder.stdin.take().unwrap();
        let mut output = BufReader::new(recorder.stdout.take().unwrap());
        let mut first = String::new();
        output.read_line(&mut first).unwrap();
        assert_eq!(first, "6765\n", "{flags:?}");
        // Its full chunks are written soon.
        let records = folder.path().join("dioptra.trace/records");
        let records = || std::fs::metadata(&records).map_or(0, |metadata| metadata.len());
        while records() == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
        recorder.kill().unwrap();
        recorder.wait().unwrap();
        input.write_all(b"on\n").unwrap();
        let mut rest = String::new();
        output.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "6765\n6765\n", "{flags:?}");
        let counts = calls(folder.path());
        let count = counts.get("fib").copied().unwrap_or(0);
        assert!((1..=CALLS).contains(&count), "{flags:?}: {counts:?}");
    }
}
