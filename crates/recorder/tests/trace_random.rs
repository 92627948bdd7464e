//! Random trees of calls, with exceptions, jumps, signals, threads, coroutines and processes: the trace of the program that
//! executes them says what its own log says.
//!
//! Some hundred trees are executed in each run of the tests. `cargo xtask soak` lets them be as many as are wanted, of
//! other seeds; what fails then is made smaller, printed, and belongs into [`REGRESSIONS`] once it is mended.

#![cfg(all(target_arch = "x86_64", target_env = "gnu"))]

mod traces;

use dioptra_recorder::trace::Everything;
use dioptra_testprograms::{Language, Program, Skip, or_skip};
use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use traces::trees::{self, Tree};
use traces::{Event, METHODS, Stream, Trace, alone, everything, read_counting, trace};

/// How many trees a run of the tests executes with each way to build the program.
const TREES: u64 = 200;
/// How many trees a run of the program executes.
const TOGETHER: usize = 100;

/// Trees that once failed.
const REGRESSIONS: &[&str] = &[
    // The stack of handlers lies above that of a coroutine.
    "co(alt)",
    // A forked child goes on on a coroutine's stack.
    "co(fork(f32))",
    // An exception on a stack on which a thread was left by an exit.
    "thread thread f26",
    "try(throw : thread(set0(f11(exit))))",
    "thread(try(f38(throw)))",
    // Variable arguments, with mcount behind a branch.
    "f21",
];

/// A way to build and trace the program.
#[derive(Clone, Copy, Debug)]
struct Way {
    compiler: &'static str,
    level: &'static str,
    method: &'static str,
    flags: &'static [&'static str],
    choice: Everything,
}

fn ways() -> Vec<Way> {
    let mut ways = Vec::new();
    for compiler in ["g++", "clang++"] {
        for level in ["-O0", "-O1", "-O2", "-O3"] {
            for (method, flags, plain) in METHODS {
                if method == "xray" && compiler == "g++" {
                    continue;
                }
                ways.push(Way {
                    compiler,
                    level,
                    method,
                    flags,
                    choice: everything(plain),
                });
            }
        }
    }
    ways
}

impl Way {
    fn build(&self) -> Result<PathBuf, Skip> {
        Program::new(Language::Cpp, "trace-interpreter")
            .no_flags()
            .compiler(self.compiler)
            .flags([self.level, "-g", "-pthread", "-Wno-clobbered"])
            .flags(self.flags.iter().copied())
            .build()
    }

    /// Executes lines and compares; says what differs.
    fn check(&self, program: &Path, lines: &[String]) -> Result<(), String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let file = folder.path().join("trees");
        fs::write(&file, lines.join("\n")).map_err(|error| error.to_string())?;
        let command = [
            "timeout",
            "60",
            program.to_str().unwrap_or_default(),
            file.to_str().unwrap_or_default(),
        ];
        let (outcome, log) = trace(folder.path(), &command, self.choice, |_| {});
        if outcome.status.map(|status| status.exit_code()) != Some(0) {
            return Err(format!("it ended so: {:?}", outcome.status));
        }
        if outcome.ending.lost > 0
            || outcome.ending.missed_in_handlers > 0
            || outcome.ending.missed_no_memory > 0
        {
            return Err(format!("records are missing: {:?}", outcome.ending));
        }
        let names: HashSet<&str> = log
            .lines()
            .filter_map(|line| line.strip_prefix('-').or(line.strip_prefix('+')))
            .map(|line| line.split(' ').next().unwrap_or(line))
            .collect();
        let read = || read_counting(folder.path(), |name| names.contains(name));
        let trace = panic::catch_unwind(AssertUnwindSafe(read))
            .map_err(|_| "the trace contradicts itself".to_owned())?;
        let by_readers = traces::walked(folder.path());
        for (number, stream) in read_counting(folder.path(), |_| true).streams {
            let all = stream.events.into_iter().zip(stream.depths);
            if by_readers.get(&number) != Some(&all.collect()) {
                return Err(format!("stream {number} is walked through otherwise"));
            }
        }
        let detail = match (self.method, self.compiler) {
            ("cygprof", "clang++") => Detail::Names,
            ("cygprof", _) => Detail::Depths,
            _ => Detail::All,
        };
        log.split('=')
            .filter(|log| !log.is_empty())
            .try_for_each(|log| same(log, &trace, &names, detail))
    }
}

/// What is compared. Compilers differ in what functions that say themselves when they begin and end do when an exception
/// leaves them: gcc's say that they end, as if they returned, and clang's say nothing, so that it shows only when a
/// function returns that is further out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Detail {
    /// Which functions are entered, how deep, and which return.
    All,
    /// Which are entered, and how deep.
    Depths,
    /// Which are entered.
    Names,
}

/// Compares a thread's log with its stream.
fn same(log: &str, trace: &Trace, names: &HashSet<&str>, detail: Detail) -> Result<(), String> {
    let (thread, log) = log.split_once('\n').unwrap_or((log, ""));
    let exits = detail == Detail::All;
    let expected: Vec<&str> = log
        .lines()
        .filter(|line| exits || line.starts_with('+'))
        .map(|line| match (detail, line.split_once(' ')) {
            (Detail::Names, Some((name, _))) => name,
            _ => line,
        })
        .collect();
    let streams: Vec<&Stream> = trace
        .streams
        .values()
        .filter(|stream| format!("{} {}", stream.pid, stream.tid) == thread)
        .collect();
    let [stream] = streams.as_slice() else {
        return match expected.is_empty() {
            true => Ok(()),
            false => Err(format!("{} streams of {thread}", streams.len())),
        };
    };
    let events = stream.events.iter().zip(&stream.depths);
    let found: Vec<String> = events
        .filter_map(|(event, depth)| match event {
            Event::Entry(name) if names.contains(name.as_str()) => Some(match detail {
                Detail::Names => format!("+{name}"),
                _ => format!("+{name} {depth}"),
            }),
            Event::Exit(name) if exits && names.contains(name.as_str()) => Some(format!("-{name}")),
            _ => None,
        })
        .collect();
    let same = expected.iter().zip(&found).take_while(|(a, b)| a == b);
    let at = same.count();
    if at == expected.len() && at == found.len() {
        return Ok(());
    }
    let number = expected[..at]
        .iter()
        .filter(|line| line.starts_with("+tree"))
        .count();
    let from = at.saturating_sub(12);
    let mut text = format!("thread {thread}, tree {number}:\n expected:");
    for line in expected.iter().skip(from).take(18) {
        let _ = write!(text, " {line}");
    }
    text.push_str("\n    found:");
    for line in found.iter().skip(from).take(18) {
        let _ = write!(text, " {line}");
    }
    Err(text)
}

/// Executes lists of trees in runs; a failure is made as small as it gets, and told.
fn all_same(way: &Way, program: &Path, lists: &[Vec<Tree>]) -> Result<(), String> {
    for lists in lists.chunks(TOGETHER) {
        let lines: Vec<String> = lists.iter().map(|list| trees::text(list)).collect();
        if way.check(program, &lines).is_ok() {
            continue;
        }
        let fails = |lists: &[Vec<Tree>]| {
            let lines: Vec<String> = lists.iter().map(|list| trees::text(list)).collect();
            way.check(program, &lines).is_err()
        };
        let small = trees::shrink(lists.to_vec(), 600, fails);
        let small: Vec<String> = small.iter().map(|list| trees::text(list)).collect();
        let why = way.check(program, &small).err().unwrap_or_default();
        return Err(format!("{way:?}: {small:?}: {why}"));
    }
    Ok(())
}

#[test]
fn traces_are_what_programs_say() {
    let _turn = alone();
    let number = |name: &str| Some(std::env::var(name).ok()?.parse::<u64>().expect("a number"));
    let count = number("DIOPTRA_SOAK_TREES").unwrap_or(TREES);
    let mut seed = number("DIOPTRA_SOAK_SEED").unwrap_or(1);
    // Each way has trees of its own where there are many; all have the same few.
    let is_soak = count > TREES;
    let only = std::env::var("DIOPTRA_SOAK_ONLY").unwrap_or_default();
    let mut ways = ways();
    ways.retain(|way| format!("{} {} {}", way.compiler, way.level, way.method).contains(&only));
    let each = if is_soak {
        count.div_ceil(ways.len() as u64)
    } else {
        count
    };
    let mut failures = Vec::new();
    for way in &ways {
        let program = or_skip!(way.build());
        let lines: Vec<String> = REGRESSIONS.iter().map(|line| (*line).to_owned()).collect();
        if let Err(why) = way.check(&program, &lines) {
            failures.push(format!("{way:?}: the regressions: {why}"));
        }
        let lists: Vec<Vec<Tree>> = (seed..seed + each).map(trees::random).collect();
        if is_soak {
            seed += each;
            eprintln!("{} {} {}", way.compiler, way.level, way.method);
        }
        failures.extend(all_same(way, &program, &lists).err());
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
