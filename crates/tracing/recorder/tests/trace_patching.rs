//! Programs whose threads run while the tracer patches their code.

#![cfg(all(target_arch = "x86_64", target_env = "gnu"))]

mod traces;

use dioptra_testprograms::{Language, Program, Skip, need_tool, or_skip};
use dioptra_trace_recorder::{Selector, TraceNote, TraceOutcome, TraceSpec};
use std::path::{Path, PathBuf};
use traces::{Event, METHODS, alone, by_rules, everything, read, trace};

/// The number of times that threads and the tracer meet. Before threads were stopped, 5 to 70 of 100 runs went wrong.
const RUNS: usize = 20;

/// Builds a program, linked with a library that is built from the same source with `define`.
fn linked(name: &str, define: &str, flags: &[&str]) -> Result<PathBuf, Skip> {
    let library = library(name, define, flags)?;
    let folder = library.parent().unwrap().to_str().unwrap();
    Program::new(Language::C, name)
        .no_flags()
        .flags(["-O1", "-g", "-pthread", "-Wl,--no-as-needed"])
        .flags([
            format!("-L{folder}"),
            format!("-l{name}"),
            format!("-Wl,-rpath,{folder}"),
        ])
        .build()
}

fn library(name: &str, define: &str, flags: &[&str]) -> Result<PathBuf, Skip> {
    Program::new(Language::C, name)
        .no_flags()
        .shared_library()
        .flags(["-O1", "-g", "-pthread", define])
        .flags(flags.iter().copied())
        .build()
}

/// Returns a selector of a library's functions: the functions that a compiler has prepared, or all.
fn functions_of(name: &str, is_plain: bool) -> Box<dyn Selector> {
    match is_plain {
        true => by_rules(Some(&format!(".@lib{name}.so")), &[]),
        false => Box::new(everything(false)),
    }
}

fn run(folder: &Path, command: &[&str], selector: Box<dyn Selector>) -> (TraceOutcome, String) {
    let change = |spec: &mut TraceSpec| spec.selector = selector;
    trace(folder, command, everything(false), change)
}

/// Returns the number of calls in a trace of functions whose names begin with a prefix.
fn calls(folder: &Path, prefix: &str) -> usize {
    let trace = read(folder);
    let events = trace.streams.values().flat_map(|stream| &stream.events);
    events
        .filter(|event| matches!(event, Event::Entry(name) if name.starts_with(prefix)))
        .count()
}

#[test]
fn threads_that_constructors_have_started_run_on() {
    let _turn = alone();
    for (method, flags, is_plain) in METHODS {
        if ["cygprof", "xray"].contains(&method) {
            continue;
        }
        let program = or_skip!(linked("trace-busy", "-DBUSY", flags));
        for turn in 0..RUNS {
            let folder = tempfile::tempdir().unwrap();
            let program = program.to_str().unwrap();
            // Every other time signals interrupt the threads all the time.
            let timer = ["BUSY_NOTHING=1", "BUSY_TIMER=1"][turn % 2];
            let command = [
                "/usr/bin/env",
                "BUSY_THREADS=8",
                timer,
                program,
                "-",
                "0",
                "1",
                "5",
            ];
            let selector = functions_of("trace-busy", is_plain);
            let (outcome, output) = run(folder.path(), &command, selector);
            let notes = &outcome.notes;
            assert_eq!(
                (
                    output.as_str(),
                    outcome.ending.status,
                    outcome.ending.signal
                ),
                ("right 8\n", Some(0), None),
                "{method}, run {turn}; {notes:?}"
            );
            assert!(
                !notes
                    .iter()
                    .any(|note| note.to_string().contains("not traced")),
                "{method}, run {turn}: {notes:?}"
            );
            if turn == 0 {
                assert!(calls(folder.path(), "busy_") > 0, "{method}");
                assert!(calls(folder.path(), "leaf_") > 0, "{method}");
            }
        }
    }
}

#[test]
fn threads_run_functions_of_a_library_as_soon_as_it_is_loaded() {
    let _turn = alone();
    for (method, flags, is_plain) in METHODS {
        if ["cygprof", "xray"].contains(&method) {
            continue;
        }
        let program = or_skip!(
            Program::new(Language::C, "trace-busy")
                .no_flags()
                .flags(["-O1", "-pthread"])
                .build()
        );
        let library = or_skip!(library("trace-busy", "-DBUSY", flags));
        let library = library.to_str().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let program = program.to_str().unwrap();
        let command = [
            "/usr/bin/env",
            "BUSY_THREADS=1",
            program,
            library,
            "2",
            "3",
            "1",
        ];
        let selector = functions_of("trace-busy", is_plain);
        let (outcome, output) = run(folder.path(), &command, selector);
        assert_eq!(
            (output.as_str(), outcome.ending.status),
            ("right 9\n", Some(0)),
            "{method}; {:?}",
            outcome.notes
        );
        assert!(calls(folder.path(), "busy_begin") > 0, "{method}");
    }
}

#[test]
fn what_threads_do_not_leave_is_left_alone() {
    let _turn = alone();
    let program = or_skip!(linked("trace-held", "-DHELD", &[]));
    let folder = tempfile::tempdir().unwrap();
    let command = [program.to_str().unwrap()];
    let selector = functions_of("trace-held", true);
    let (outcome, output) = run(folder.path(), &command, selector);
    assert_eq!(
        (output.as_str(), outcome.ending.status),
        ("right\n", Some(0)),
        "{:?}",
        outcome.notes
    );
    let end = ": threads were in the middle of their first instructions, and stayed there";
    let is_it = |note: &&TraceNote| {
        let note = note.to_string();
        note.contains(": 2 functions of ") && note.ends_with(end)
    };
    assert_eq!(
        outcome.notes.iter().filter(is_it).count(),
        1,
        "{:?}",
        outcome.notes
    );
    assert_eq!(calls(folder.path(), "held_end"), 1);
    assert_eq!(calls(folder.path(), "held_call"), 0);
    assert_eq!(calls(folder.path(), "held_handler"), 0);
}

#[test]
fn system_calls_that_wait_are_not_interrupted() {
    let _turn = alone();
    let program = or_skip!(linked("trace-waiting", "-DWAITING", &[]));
    for _ in 0..3 {
        let folder = tempfile::tempdir().unwrap();
        let command = [program.to_str().unwrap()];
        let selector = functions_of("trace-waiting", true);
        let (outcome, output) = run(folder.path(), &command, selector);
        assert_eq!(
            (output.as_str(), outcome.ending.status),
            ("waited 11\n", Some(0)),
            "{:?}",
            outcome.notes
        );
        assert_eq!(calls(folder.path(), "waiting_end"), 1);
    }
}

/// strace has the threads, so nobody else can stop them. Only patches of one instruction are written.
#[test]
fn threads_of_another_tracer_run_on() {
    let _turn = alone();
    let strace = or_skip!(need_tool("strace"));
    for (method, flags, is_plain) in METHODS {
        if !["plain", "fentry"].contains(&method) {
            continue;
        }
        let program = or_skip!(linked("trace-busy", "-DBUSY", flags));
        let folder = tempfile::tempdir().unwrap();
        let command = [
            strace.to_str().unwrap(),
            "-f",
            "--trace=none",
            "-o",
            "/dev/null",
            "/usr/bin/env",
            "BUSY_THREADS=4",
            program.to_str().unwrap(),
            "-",
            "0",
            "1",
            "5",
        ];
        let selector = functions_of("trace-busy", is_plain);
        let (outcome, output) = run(folder.path(), &command, selector);
        let notes = &outcome.notes;
        assert_eq!(
            (output.as_str(), outcome.ending.status),
            ("right 4\n", Some(0)),
            "{method}; {notes:?}"
        );
        let why =
            "are not traced: other threads run that may execute them, and they can't be stopped";
        assert!(
            notes.iter().any(|note| note.to_string().contains(why)),
            "{method}; {notes:?}"
        );
    }
}

/// Where a policy keeps code from being written to, nothing is patched, and the note says why.
#[test]
fn code_that_must_not_be_written_to_is_left_alone() {
    const SOURCE: &str = "#include <sys/prctl.h>\n#include <unistd.h>\n\
        int main(int n, char **words) { \
        if (prctl(65, 1, 0, 0, 0)) return 77; /* PR_SET_MDWE: refuse to gain PROT_EXEC */ \
        execv(words[1], words + 1); return n; }";
    let _turn = alone();
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("strict.c");
    std::fs::write(&source, SOURCE).unwrap();
    let strict = or_skip!(Program::from_source(Language::C, source).build());
    let program = or_skip!(linked("trace-busy", "-DBUSY", &["-pg", "-mfentry"]));
    let command = [
        strict.to_str().unwrap(),
        program.to_str().unwrap(),
        "-",
        "4",
        "1",
        "5",
    ];
    let (outcome, output) = run(folder.path(), &command, Box::new(everything(false)));
    if outcome.ending.status == Some(77) {
        return dioptra_testprograms::skip("the kernel has no PR_SET_MDWE");
    }
    let notes = &outcome.notes;
    assert_eq!(
        (output.as_str(), outcome.ending.status),
        ("right 4\n", Some(0)),
        "{notes:?}"
    );
    let why = "its code could not be made writable, which SELinux or systemd's MemoryDenyWriteExecute= forbids (Permission denied";
    assert!(
        notes.iter().any(|note| note.to_string().contains(why)),
        "{notes:?}"
    );
}
