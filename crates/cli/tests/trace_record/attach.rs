//! Attaching to running processes: what is recorded of them, and what is left in them.

use dioptra_testprograms::{Language, Program, Skip, or_skip};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

const PROGRAM: &str = env!("CARGO_BIN_EXE_dioptra");

/// The functions of `trace-running.c` that are traced, with the values of one.
const STEPS: [&str; 8] = [
    "-P",
    "^(step|outer|halves|tick)$",
    "-A",
    "step@arg1/i64",
    "-R",
    "step@retval/i64",
    "--no-event",
    "--no-libcall",
];

fn built(flags: &[&str]) -> Result<PathBuf, Skip> {
    let program = Program::new(Language::C, "trace-running").no_flags();
    program
        .flags(["-g", "-O1", "-pthread"])
        .flags(flags)
        .build()
}

/// A program that runs until SIGTERM ends it.
struct Running {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl Running {
    fn start(program: &Path, words: &[&str]) -> Running {
        let mut child = Command::new(program)
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut said = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        said.read_line(&mut line).expect("a line");
        assert_eq!(line, "running\n");
        // All threads have begun.
        std::thread::sleep(Duration::from_millis(50));
        Running { child, said }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends the program, and returns what it says.
    fn end(mut self) -> String {
        let pid = libc::pid_t::try_from(self.pid()).expect("a pid");
        // SAFETY: a child of this test that was not waited for.
        unsafe { libc::kill(pid, libc::SIGTERM) };
        let mut text = String::new();
        self.said.read_to_string(&mut text).expect("its last words");
        let status = self.child.wait().expect("its end");
        assert!(status.success(), "{status}: {text}");
        text
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn record(pid: u32, options: &[&str], folder: &Path) -> Output {
    Command::new(PROGRAM)
        .args(["trace", "record", "-p", &pid.to_string()])
        .args(options)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .expect("dioptra runs")
}

fn recorded(pid: u32, options: &[&str], folder: &Path) -> String {
    let output = record(pid, &[&STEPS, options].concat(), folder);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    said
}

/// Returns the arguments of the calls of `step` in each thread, in their order.
fn steps(folder: &Path) -> BTreeMap<u32, Vec<i64>> {
    let output = Command::new(PROGRAM)
        .args(["trace", "replay", "-f", "tid"])
        .current_dir(folder)
        .output()
        .expect("dioptra runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let mut threads: BTreeMap<u32, Vec<i64>> = BTreeMap::new();
    for line in text.lines() {
        let Some(at) = line.find("step(") else {
            continue;
        };
        let tid = line.trim_start().trim_start_matches('[').trim_start();
        let tid: String = tid.chars().take_while(char::is_ascii_digit).collect();
        let (argument, rest) = line[at + 5..].split_once(')').expect("an argument");
        let argument: i64 = argument.parse().expect("a number");
        if let Some(value) = rest.trim().strip_prefix("= ") {
            let value: i64 = value.trim_end_matches(';').parse().expect("a number");
            assert_eq!(value, argument + 1, "{line}");
        }
        let tid = tid.parse().expect("a thread's id");
        threads.entry(tid).or_default().push(argument);
    }
    threads
}

/// Checks that the threads' calls follow each other without a gap.
fn assert_unbroken(threads: &BTreeMap<u32, Vec<i64>>) {
    for (tid, calls) in threads {
        let gap = calls.windows(2).find(|pair| pair[1] != pair[0] + 1);
        assert_eq!(gap, None, "thread {tid} of {}", threads.len());
    }
}

/// Returns the executable code of a process that is not as its file has it, as addresses.
fn changed_code(pid: u32) -> Vec<u64> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("its maps");
    let memory = File::open(format!("/proc/{pid}/mem")).expect("its memory");
    let mut changed = Vec::new();
    for line in maps.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [range, "r-xp", offset, _, _, path] = words[..] else {
            continue;
        };
        let Ok(file) = File::open(path) else {
            continue;
        };
        let (start, end) = range.split_once('-').expect("a range");
        let number = |text| u64::from_str_radix(text, 16).expect("a number");
        let (start, end, offset) = (number(start), number(end), number(offset));
        let mut here = vec![0; (end - start) as usize];
        let mut there = vec![0; here.len()];
        memory.read_exact_at(&mut here, start).expect("its code");
        let read = file.read_at(&mut there, offset).expect("the file");
        changed.extend(
            (0..read)
                .filter(|at| here[*at] != there[*at])
                .map(|at| start + at as u64),
        );
    }
    changed
}

#[test]
fn attached_threads_calls_form_unbroken_rows() {
    let program = or_skip!(built(&[]));
    for (threads, mode) in [(1, "calm"), (2, "busy"), (4, "calm"), (2, "handlers")] {
        let folder = tempfile::tempdir().expect("a folder");
        let running = Running::start(&program, &[&threads.to_string(), mode]);
        let said = recorded(running.pid(), &["--duration", "200ms"], folder.path());
        assert!(!said.contains("were lost"), "{mode}: {said}");
        let steps = steps(folder.path());
        assert_eq!(steps.len(), threads, "{mode}: {said}");
        assert!(steps.values().all(|calls| calls.len() > 3), "{mode}");
        assert_unbroken(&steps);
        assert_eq!(changed_code(running.pid()), Vec::<u64>::new(), "{mode}");
        assert_eq!(running.end(), format!("right {threads}\n"), "{mode}");
    }
}

#[test]
fn functions_with_room_are_traced_too() {
    for flags in [
        &["-fpatchable-function-entry=5"][..],
        &["-pg", "-mfentry"],
        &["-pg"],
    ] {
        let program = or_skip!(built(flags));
        let folder = tempfile::tempdir().expect("a folder");
        let running = Running::start(&program, &["2", "calm"]);
        recorded(running.pid(), &["--duration", "200ms"], folder.path());
        let steps = steps(folder.path());
        assert_eq!(steps.len(), 2, "{flags:?}");
        assert_unbroken(&steps);
        assert_eq!(changed_code(running.pid()), Vec::<u64>::new(), "{flags:?}");
        assert_eq!(running.end(), "right 2\n");
    }
}

#[test]
fn functions_that_call_the_tracer_themselves_are_said_to_be_missing() {
    let program = or_skip!(built(&["-finstrument-functions"]));
    let folder = tempfile::tempdir().expect("a folder");
    let running = Running::start(&program, &["2", "calm"]);
    let options = ["--duration", "100ms", "--no-event"];
    let output = record(running.pid(), &options, folder.path());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("-finstrument-functions"), "{said}");
    assert_eq!(running.end(), "right 2\n");
}

/// Returns the number of attachments of the test below: `cargo xtask soak attach` asks for more.
fn cycles() -> u32 {
    let asked = std::env::var("DIOPTRA_SOAK_ATTACH").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(12)
}

#[test]
fn serial_a_process_survives_many_attachments() {
    let program = or_skip!(built(&[]));
    let folder = tempfile::tempdir().expect("a folder");
    let running = Running::start(&program, &["50", "mixed"]);
    for cycle in 0..cycles() {
        let said = recorded(running.pid(), &["--duration", "30ms"], folder.path());
        assert!(!said.contains("were lost"), "{cycle}: {said}");
        assert_unbroken(&steps(folder.path()));
        assert_eq!(changed_code(running.pid()), Vec::<u64>::new(), "{cycle}");
    }
    assert_eq!(running.end(), "right 50\n");
}

#[test]
fn children_and_executed_programs_are_followed() {
    let program = or_skip!(built(&[]));
    let folder = tempfile::tempdir().expect("a folder");
    let running = Running::start(&program, &["2", "execs"]);
    recorded(running.pid(), &["--duration", "700ms"], folder.path());
    let output = Command::new(PROGRAM)
        .args(["trace", "info"])
        .current_dir(folder.path())
        .output()
        .expect("dioptra runs");
    let info = String::from_utf8_lossy(&output.stdout);
    assert!(info.contains("/true"), "{info}");
    assert_eq!(changed_code(running.pid()), Vec::<u64>::new());
    assert_eq!(running.end(), "right 2\n");
}

#[test]
fn ctrl_c_detaches_and_a_killed_recorder_does_no_harm() {
    let program = or_skip!(built(&[]));
    let folder = tempfile::tempdir().expect("a folder");
    let running = Running::start(&program, &["3", "mixed"]);
    for (signal, is_clean) in [(libc::SIGINT, true), (libc::SIGKILL, false)] {
        let mut recorder = Command::new(PROGRAM)
            .args(["trace", "record", "-p", &running.pid().to_string()])
            .args(STEPS)
            .current_dir(folder.path())
            .stderr(Stdio::null())
            .spawn()
            .expect("dioptra runs");
        let end = std::time::Instant::now() + Duration::from_secs(20);
        while changed_code(running.pid()).is_empty() && std::time::Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_ne!(changed_code(running.pid()), Vec::<u64>::new());
        // Another recorder keeps away.
        let output = record(running.pid(), &["--duration", "10ms"], folder.path());
        assert_eq!(output.status.code(), Some(125));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("dioptra traces it already"), "{said}");
        let pid = libc::pid_t::try_from(recorder.id()).expect("a pid");
        // SAFETY: a child of this test that was not waited for.
        unsafe { libc::kill(pid, signal) };
        let status = recorder.wait().expect("its end");
        assert_eq!(status.success(), is_clean, "{status}");
        if is_clean {
            assert_eq!(changed_code(running.pid()), Vec::<u64>::new());
            assert_unbroken(&steps(folder.path()));
        }
    }
    // The jumps of the killed recorder are still there.
    std::thread::sleep(Duration::from_millis(200));
    let said = recorded(running.pid(), &["--duration", "50ms"], folder.path());
    assert!(!said.contains("were lost"), "{said}");
    assert_unbroken(&steps(folder.path()));
    assert_eq!(changed_code(running.pid()), Vec::<u64>::new());
    assert_eq!(running.end(), "right 3\n");
}

#[test]
fn what_cannot_be_attached_to_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let refused = |pid: u32| {
        let output = record(pid, &["--duration", "10ms"], folder.path());
        assert_eq!(output.status.code(), Some(125));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    // Larger than all ids.
    let said = refused(1 << 30);
    assert!(said.contains("there is no such process"), "{said}");
    let program = or_skip!(built(&[]));
    let running = Running::start(&program, &["2", "calm"]);
    let pid = libc::pid_t::try_from(running.pid()).expect("a pid");
    // SAFETY: a child of this test that was not waited for.
    unsafe { libc::kill(pid, libc::SIGSTOP) };
    std::thread::sleep(Duration::from_millis(20));
    let said = refused(running.pid());
    assert!(said.contains("kill -CONT"), "{said}");
    // SAFETY: as above.
    unsafe { libc::kill(pid, libc::SIGCONT) };
    assert_eq!(running.end(), "right 2\n");
    let fixed = or_skip!(built(&["-static"]));
    let running = Running::start(&fixed, &["1", "calm"]);
    let said = refused(running.pid());
    assert!(said.contains("not linked dynamically to glibc"), "{said}");
    assert_eq!(running.end(), "right 1\n");
    // No trace was begun.
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
}
