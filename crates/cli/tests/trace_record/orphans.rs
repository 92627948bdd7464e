//! Programs whose recorder is killed: they go on undisturbed, and the records written until then can be read.

use super::plain::calls;
use dioptra_testprograms::{Language, Program, or_skip};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The number of calls of `fib` in `fib(20)`, the first call included.
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
        // The program's full chunks are written soon.
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

#[test]
fn what_every_thread_had_finished_can_be_read() {
    /// Threads of the program.
    const THREADS: u64 = 4;
    /// The least number of calls of each thread that lie in full chunks: those hold 64 KiB, and a call takes 6 bytes.
    const FINISHED: u64 = 2 * (64 << 10) / 7;
    let program = or_skip!(
        Program::new(Language::C, "trace-orphans")
            .no_flags()
            .flags(["-O1", "-g", "-pthread", "-pg", "-mfentry"])
            .build()
    );
    // The program's status comes to the test when the recorder is gone.
    // SAFETY: numbers only.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) }, 0);
    for on_full in ["block", "drop"] {
        let folder = tempfile::tempdir().unwrap();
        let mut recorder = Command::new(env!("CARGO_BIN_EXE_dioptra"))
            .args(["trace", "record", "--no-libcall", "--on-full", on_full])
            .arg(&program)
            .current_dir(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut input = recorder.stdin.take().unwrap();
        let mut output = BufReader::new(recorder.stdout.take().unwrap());
        let mut pid = String::new();
        output.read_line(&mut pid).unwrap();
        let pid: i32 = pid.trim_end().parse().unwrap();
        // The program's full chunks, two of each thread, are written soon.
        let records = folder.path().join("dioptra.trace/records");
        let records = || std::fs::metadata(&records).map_or(0, |metadata| metadata.len());
        while records() < THREADS * 2 * (63 << 10) {
            std::thread::sleep(Duration::from_millis(5));
        }
        recorder.kill().unwrap();
        recorder.wait().unwrap();
        input.write_all(b"on\n").unwrap();
        let mut rest = String::new();
        output.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "54120\n", "{on_full}");
        let mut status = 0;
        // SAFETY: the status outlives the call; the process is our child by now.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        assert!(libc::WIFEXITED(status), "{on_full}: {status}");
        assert_eq!(libc::WEXITSTATUS(status), 7, "{on_full}");
        for command in ["replay", "report", "graph", "dump"] {
            let shown = super::dioptra(&[command], folder.path());
            let told = super::text(&shown.stderr);
            assert!(shown.status.success(), "{command}: {told}");
            assert!(
                told.contains("the recording has no end"),
                "{command}: {told}"
            );
        }
        let info = super::dioptra(&["info"], folder.path());
        let told = super::text(&info.stdout) + &super::text(&info.stderr);
        assert!(info.status.success() && told.contains("no end"), "{told}");
        let json = super::dioptra(&["info", "--format", "json"], folder.path());
        let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
        let threads = json["threads"].as_array().unwrap();
        let whole = threads
            .iter()
            .filter(|thread| thread["chunks"].as_u64() >= Some(2));
        assert_eq!(whole.count() as u64, THREADS, "{on_full}: {threads:?}");
        assert_eq!(json["damage"].as_array().unwrap().len(), 0, "{json}");
        let count = calls(folder.path())["fib"];
        let expected = THREADS * FINISHED..=THREADS * CALLS;
        assert!(expected.contains(&count), "{on_full}: {count}");
    }
}

#[test]
fn a_program_whose_recorder_is_killed_before_it_answers_runs_untraced() {
    let program = or_skip!(
        Program::new(Language::C, "trace-orphan")
            .no_flags()
            .flags(["-O1", "-g", "-pthread", "-pg", "-mfentry"])
            .build()
    );
    let folder = tempfile::tempdir().unwrap();
    let mut recorder = Command::new(env!("CARGO_BIN_EXE_dioptra"))
        .args(["trace", "record", "--no-libcall", "sh", "-c"])
        .arg("echo $$; read word; exec \"$0\"")
        .arg(&program)
        .current_dir(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = recorder.stdin.take().unwrap();
    let mut output = BufReader::new(recorder.stdout.take().unwrap());
    let mut pid = String::new();
    output.read_line(&mut pid).unwrap();
    // From now on the stopped recorder answers nobody: programs that are executed wait for it.
    let recorder_pid = i32::try_from(recorder.id()).unwrap();
    // SAFETY: our child, which was not waited for.
    assert_eq!(unsafe { libc::kill(recorder_pid, libc::SIGSTOP) }, 0);
    input.write_all(b"on\n").unwrap();
    let executable = format!("/proc/{}/exe", pid.trim_end());
    while std::fs::read_link(&executable).is_ok_and(|path| path != program) {
        std::thread::sleep(Duration::from_millis(5));
    }
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    input.write_all(b"on\n").unwrap();
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "6765\n6765\n6765\n");
}
