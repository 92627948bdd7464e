//! Programs that exchange stacks by themselves, traced in all ways: their results are those of untraced runs.
//!
//! `cargo xtask soak` runs them with ten times as many fibers (`DIOPTRA_SOAK_FIBERS`).

mod traces;

use dioptra_testprograms::{Language, Program, Skip, or_skip, skip};
use dioptra_trace_recorder::Everything;
use std::path::PathBuf;
use std::process::Command;
use traces::{Event, METHODS, alone, everything, read, trace};

/// Returns the largest number of fibers.
fn most() -> u32 {
    let wanted = std::env::var("DIOPTRA_SOAK_FIBERS").ok();
    wanted.and_then(|n| n.parse().ok()).unwrap_or(20_000)
}

fn fibers(compiler: &str, flags: &[&str]) -> Result<PathBuf, Skip> {
    Program::new(Language::C, "trace-fibers")
        .compiler(compiler)
        .no_flags()
        .flags(["-g", "-O1", "-pthread"])
        .flags(flags.iter().copied())
        .build()
}

/// The output of the program.
#[derive(Debug)]
struct Said {
    /// The line with the number of fibers that are right.
    right: String,
    /// The most memory that the program had, in KiB.
    memory: f64,
    /// The largest part of a stack of its own making that was written to, in bytes.
    stack: f64,
}

impl Said {
    fn parse(output: &str) -> Said {
        let number = |name: &str| -> f64 {
            let line = output.lines().find_map(|line| line.strip_prefix(name));
            line.expect("a line with the name").parse().unwrap()
        };
        Said {
            right: output.lines().next().unwrap_or_default().to_owned(),
            memory: number("memory "),
            stack: number("stack "),
        }
    }
}

/// The most bytes of a program's stack that the tracer may take, as docs/uftrace.md says.
const MOST_STACK: f64 = 4096.0;

/// Traces a case, built and patched in some ways: `allowed` is how much more memory each fiber may take than untraced,
/// in KiB.
fn runs_as_untraced(methods: &[&str], case: &str, count: u32, rest: &[&str], allowed: f64) {
    let _turn = alone();
    for (method, flags, plain) in METHODS {
        if !methods.contains(&method) {
            continue;
        }
        let compiler = if method == "xray" { "clang" } else { "gcc" };
        let program = or_skip!(fibers(compiler, flags));
        let number = count.to_string();
        let command = [&[program.to_str().unwrap(), case, &number], rest].concat();
        let untraced = Command::new(command[0]).args(&command[1..]).output();
        let untraced = untraced.unwrap();
        assert!(untraced.status.success(), "{case}: {untraced:?}");
        let untraced = String::from_utf8(untraced.stdout).unwrap();

        let folder = tempfile::tempdir().unwrap();
        let (outcome, output) = trace(folder.path(), &command, everything(plain), |_| {});
        let what = format!("{case} {count} {rest:?} {method}");
        let status = outcome.status.map(|status| status.exit_code());
        assert_eq!(status, Some(0), "{what}: {output}");
        let (said, untraced) = (Said::parse(&output), Said::parse(&untraced));
        assert_eq!(said.right, untraced.right, "{what}");
        let stack = said.stack - untraced.stack;
        assert!(stack < MOST_STACK, "{what}: {stack} bytes of a stack");
        assert_eq!(outcome.ending.missed_no_memory, 0, "{what}");
        assert!(outcome.ending.chunks > 0, "{what}: nothing was recorded");
        let more = said.memory - untraced.memory;
        let bound = 24_576.0 + allowed * f64::from(count);
        assert!(more < bound, "{what}: {more} KiB more, not {bound}");
    }
}

const ALL: &[&str] = &["patchable", "fentry", "mcount", "plain", "cygprof", "xray"];
/// One method that replaces return addresses, and one that does not. The other methods differ from these at functions'
/// beginnings only.
const MANY: &[&str] = &["plain", "cygprof"];

#[test]
fn stacks_exchanged_by_hand() {
    for spacing in ["8", "16", "64", "128", "136"] {
        for count in [4, 100] {
            runs_as_untraced(ALL, "own", count, &[spacing], 0.0);
            runs_as_untraced(ALL, "own", count, &[spacing, "down"], 0.0);
        }
    }
}

#[test]
fn many_stacks_exchanged_by_hand() {
    runs_as_untraced(MANY, "own", most(), &["16"], 1.0);
    runs_as_untraced(MANY, "own", most(), &["16", "down"], 1.0);
}

#[test]
fn copied_stacks() {
    for count in [4, 100] {
        runs_as_untraced(ALL, "copied", count, &[], 0.0);
    }
    runs_as_untraced(MANY, "copied", most(), &[], 1.0);
}

#[test]
fn stacks_that_threads_hand_on() {
    for count in [4, 100] {
        runs_as_untraced(ALL, "pool", count, &["16"], 0.0);
    }
    runs_as_untraced(MANY, "pool", most(), &["16"], 1.0);
}

#[test]
fn contexts_of_the_c_library() {
    for count in [4, 100] {
        runs_as_untraced(ALL, "contexts", count, &["16"], 8.0);
        runs_as_untraced(ALL, "links", count, &[], 0.0);
    }
    runs_as_untraced(MANY, "contexts", most(), &["16"], 8.0);
    runs_as_untraced(ALL, "deep", 4, &[], 4096.0);
}

/// Coroutines in the same memory whose stacks are copied, contexts in which the program writes whole signal sets, and
/// stacks that can't be read while they are suspended.
#[test]
fn contexts_that_share_a_stack_or_lose_their_mark() {
    for count in [4, 100] {
        runs_as_untraced(ALL, "shared", count, &[], 8.0);
        runs_as_untraced(ALL, "masks", count, &["16"], 8.0);
    }
    runs_as_untraced(MANY, "shared", 2000, &[], 8.0);
    runs_as_untraced(MANY, "hidden", 1000, &["16"], 8.0);
}

/// Memory does not grow with the number of coroutines that end without returning.
#[test]
fn coroutines_that_are_left_for_good() {
    runs_as_untraced(MANY, "reused", most(), &["64"], 0.0);
    runs_as_untraced(MANY, "repeated", most(), &["64"], 0.0);
}

/// Exceptions pass functions that ended in jumps and whose entries have been copied: the caller's frame pointer is its
/// own.
#[test]
fn exceptions_through_copied_entries() {
    let _turn = alone();
    let program = or_skip!(
        Program::new(Language::Cpp, "trace-tails")
            .no_flags()
            .flags(["-g", "-O2", "-pg", "-mfentry"])
            .build()
    );
    let untraced = Command::new(&program).output().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let command = [program.to_str().unwrap()];
    let (outcome, output) = trace(folder.path(), &command, everything(true), |_| {});
    assert_eq!(outcome.status.map(|status| status.exit_code()), Some(0));
    assert_eq!(output, String::from_utf8(untraced.stdout).unwrap());
}

/// Handlers that interrupt hooks exchange stacks, and copied stacks are resumed more than once: recording ends, or
/// shows less, but the programs come to their results.
#[test]
fn coroutines_that_are_preempted_and_continuations() {
    let _turn = alone();
    for (method, flags, plain) in METHODS {
        if method == "xray" {
            continue;
        }
        let program = Program::new(Language::C, "trace-preempted").no_flags();
        let program = or_skip!(program.flags(["-g", "-O1"]).flags(flags).build());
        for case in ["coroutines", "continuation"] {
            let untraced = Command::new(&program).arg(case).output().unwrap();
            for _ in 0..3 {
                let folder = tempfile::tempdir().unwrap();
                let command = [program.to_str().unwrap(), case];
                let (outcome, output) = trace(folder.path(), &command, everything(plain), |_| {});
                let status = outcome.status.map(|status| status.exit_code());
                assert_eq!(status, Some(0), "{method} {case}: {output}");
                assert_eq!(output.as_bytes(), untraced.stdout, "{method} {case}");
            }
        }
    }
}

#[test]
fn stacks_made_by_a_handler() {
    for count in [4, 100] {
        runs_as_untraced(ALL, "altstacks", count, &["64"], 0.0);
    }
    runs_as_untraced(MANY, "altstacks", most(), &["16"], 4.0);
}

/// The memory of calls that are left for good does not grow with their number.
#[test]
fn calls_that_are_left_for_good() {
    runs_as_untraced(ALL, "jumps", 100, &[], 0.0);
    runs_as_untraced(ALL, "own_jumps", 100, &[], 0.0);
    // These are more calls than the tracer keeps open when it learns of the jumps that have left them.
    runs_as_untraced(MANY, "jumps", 10 * most(), &[], 0.0);
    runs_as_untraced(MANY, "own_jumps", most(), &[], 1.0);
}

#[test]
fn fibers_of_boost() {
    let _turn = alone();
    for (flags, plain) in [(&[][..], true), (&["-pg", "-mfentry"], false)] {
        let program = Program::new(Language::Cpp, "trace-boost").no_flags();
        let program = program.flags(["-g", "-O1", "-lboost_context"]).flags(flags);
        let program = or_skip!(program.build());
        for count in ["4", "100", "3000"] {
            let folder = tempfile::tempdir().unwrap();
            let command = [program.to_str().unwrap(), count];
            let (outcome, output) = trace(folder.path(), &command, everything(plain), |_| {});
            let status = outcome.status.map(|status| status.exit_code());
            assert_eq!(status, Some(0), "{count} {flags:?}: {output}");
            let calls = read(folder.path());
            let entered = |name: &str| {
                let is_it = |event: &&Event| **event == Event::Entry(name.to_owned());
                let streams = calls.streams.values();
                streams
                    .flat_map(|stream| stream.events.iter().filter(is_it))
                    .count()
            };
            assert_eq!(entered("leaf"), count.parse::<usize>().unwrap() * 3 * 6);
        }
    }
}

/// Greenlets copy stacks, and gevent's run in a loop of the event library's.
#[test]
fn greenlets_of_python() {
    const SCRIPT: &str = "
import gevent
total = 0
def work(number):
    global total
    for _ in range(5):
        gevent.sleep(0)
        total += number
gevent.joinall([gevent.spawn(work, number) for number in range(300)])
print(total)
";
    let has_gevent = |python: &&str| {
        let imports = Command::new(python).args(["-c", "import gevent"]).output();
        imports.is_ok_and(|output| output.status.success())
    };
    let Some(python) = ["/usr/bin/python3", "python3"].into_iter().find(has_gevent) else {
        return skip("no python3 has gevent (Debian: python3-gevent)");
    };
    let _turn = alone();
    for libraries in [false, true] {
        let choice = Everything {
            plain: true,
            plain_libraries: libraries,
            library_calls: false,
        };
        let folder = tempfile::tempdir().unwrap();
        let command = [python, "-c", SCRIPT];
        let (outcome, output) = trace(folder.path(), &command, choice, |_| {});
        let status = outcome.status.map(|status| status.exit_code());
        assert_eq!(status, Some(0), "libraries: {libraries}");
        assert_eq!(output.trim(), (5 * 299 * 300 / 2).to_string());
        assert!(outcome.ending.chunks > 0, "nothing was recorded");
    }
}
