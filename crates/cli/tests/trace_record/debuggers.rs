//! Programs that a debugger runs while they are traced: breakpoints hold, call stacks are whole, the program behaves as
//! without a tracer, and a message names the functions that are not traced because of breakpoints.

use super::plain::calls;
use super::{five, text};
use dioptra_testprograms::{self as programs, or_skip};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// Returns gdb's output for some commands, with gdb either recorded or recording; `None` if gdb may not run a program.
/// A debugger that waits forever is ended.
fn run(words: &[&str], commands: &[&str], program: &[&str], folder: &Path) -> Option<String> {
    let mut run = Command::new("timeout");
    run.args(["-k", "5", "100"]).args(words);
    run.args(["gdb", "-q", "-nx", "-batch", "-ex", "set pagination off"]);
    for command in commands {
        run.args(["-ex", command]);
    }
    let output = run
        .arg("--args")
        .args(program)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = text(&output.stdout) + &text(&output.stderr);
    if said.contains("ptrace: Operation not permitted") {
        programs::skip("gdb may not run a process");
        return None;
    }
    assert_ne!(output.status.code(), Some(124), "it hangs: {said}");
    // Programs for tests are kept when their sources are checked out anew.
    Some(said.replace("warning: Source file is more recent than executable.", ""))
}

/// Records with `options` a program that prints its pid and waits, and attaches gdb with `commands` to it. Returns
/// gdb's output; `None` if gdb may not attach. The signal ends the program, unless gdb did.
pub fn attach(
    options: &[&str],
    program: &Path,
    commands: &[&str],
    folder: &Path,
    signal: i32,
) -> Option<String> {
    let mut recorder = Command::new(env!("CARGO_BIN_EXE_dioptra"))
        .args(["trace", "record", "--no-sched", "--no-libcall"])
        .args(options)
        .arg(program)
        .current_dir(folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(recorder.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    let process: i32 = line.trim().parse().unwrap();
    let seen = Command::new("gdb")
        .args(["-q", "-nx", "-batch", "-ex", "set debuginfod enabled off"])
        .args(["-ex", "set pagination off", "-p", line.trim()])
        .args(commands)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    // SAFETY: a plain system call; the process is the recorder's child, which waits for it.
    unsafe { libc::kill(process, signal) };
    let recorded = recorder.wait().unwrap();
    assert_eq!(recorded.code(), Some(128 + signal));
    let seen = text(&seen.stdout) + &text(&seen.stderr);
    if seen.contains("ptrace: Operation not permitted") {
        programs::skip("gdb may not attach to a process");
        return None;
    }
    Some(seen)
}

fn record(patterns: &str) -> [&str; 7] {
    let dioptra = env!("CARGO_BIN_EXE_dioptra");
    [
        dioptra,
        "trace",
        "record",
        "--no-sched",
        "--no-libcall",
        "-P",
        patterns,
    ]
}

/// Returns the functions of the call stacks that were shown.
fn frames(said: &str) -> Vec<&str> {
    let is_name = |word: &&str| matches!(*word, "a" | "b" | "c" | "main" | "dioptra_thunks");
    let lines = said.lines().filter(|line| line.starts_with('#'));
    lines
        .flat_map(|line| line.split(' ').find(is_name))
        .collect()
}

#[test]
fn a_traced_debugger_runs_a_traced_program() {
    or_skip!(programs::need_tool("gdb"));
    for (flags, thunks) in [
        (&["-pg", "-mfentry"][..], true),
        (&["-fpatchable-function-entry=5"], true),
        // With these flags the breakpoint would lie in the middle of the patched jump.
        (&["-O0"], false),
    ] {
        let program = or_skip!(five(flags));
        let folder = tempfile::tempdir().unwrap();
        let commands = [
            "break c", "start", "bt", "break b", "continue", "bt", "finish", "step", "delete",
            "continue",
        ];
        let program = [program.to_str().unwrap()];
        let words = record("^[abc]$");
        let Some(said) = run(&words, &commands, &program, folder.path()) else {
            return;
        };
        assert!(said.contains("exited normally"), "{flags:?}: {said}");
        assert!(!said.contains("warning: "), "{flags:?}: {said}");
        let expected = match thunks {
            true => ["main", "b", "a", "dioptra_thunks", "main"].as_slice(),
            false => &["main", "b", "a", "main"],
        };
        assert_eq!(frames(&said), expected, "{flags:?}: {said}");
        let counts = calls(folder.path());
        let count = |name: &str| counts.get(name).copied();
        if thunks {
            assert_eq!(
                [count("a"), count("b"), count("c")],
                [Some(5), Some(5), None]
            );
            assert!(
                said.contains(
                    "1 functions are not traced because a debugger (gdb) had set breakpoints"
                ),
                "{said}"
            );
        } else {
            assert_eq!([count("a"), count("b"), count("c")], [None; 3], "{said}");
            assert!(
                said.contains("2 functions are not traced because a debugger"),
                "{said}"
            );
        }
    }
}

#[test]
fn a_recorder_in_a_debugger_that_follows_its_child_works() {
    or_skip!(programs::need_tool("gdb"));
    let program = or_skip!(five(&["-pg", "-mfentry"]));
    let folder = tempfile::tempdir().unwrap();
    let words = record("^[abc]$");
    let command = [&words[..], &[program.to_str().unwrap()]].concat();
    let commands = [
        "set follow-fork-mode child",
        "set breakpoint pending on",
        "break trace-five.c:6",
        "run",
        "bt",
        "delete",
        "continue",
    ];
    let Some(said) = run(&[], &commands, &command, folder.path()) else {
        return;
    };
    assert!(said.contains("exited normally"), "{said}");
    let stack = ["c", "b", "dioptra_thunks", "a", "dioptra_thunks", "main"];
    assert_eq!(frames(&said), stack, "{said}");
    assert_eq!(calls(folder.path()).get("b"), Some(&5));
}

#[test]
fn other_tracers_do_not_matter() {
    or_skip!(programs::need_tool("strace"));
    let program = or_skip!(five(&["-O2"]));
    let folder = tempfile::tempdir().unwrap();
    let strace = ["strace", "-f", "-o", "/dev/null", program.to_str().unwrap()];
    let words = record("^[abc]$");
    let output = Command::new(words[0])
        .args(&words[1..])
        .args(strace)
        .current_dir(folder.path())
        .output()
        .unwrap();
    let said = text(&output.stderr);
    if said.contains("Operation not permitted") {
        programs::skip("strace may not run a process");
        return;
    }
    assert!(output.status.success(), "{said}");
    let counts = calls(folder.path());
    assert_eq!(
        ["a", "b", "c"].map(|name| counts.get(name)),
        [Some(&5); 3],
        "{said}"
    );
}
