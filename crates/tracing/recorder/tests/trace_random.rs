//! Random trees of calls, with exceptions, jumps, signals, threads, coroutines and processes: the trace of the program
//! that executes them says what its own log says.
//!
//! Each run of the tests executes some hundred trees. `cargo xtask soak` executes as many as are wanted, from other
//! seeds. A failing list is made smaller and printed, and belongs into [`REGRESSIONS`] once the cause is mended.

#![cfg(all(target_arch = "x86_64", target_env = "gnu"))]

mod traces;

use dioptra_testprograms::{Language, Program, Skip, or_skip};
use dioptra_trace_recorder::Everything;
use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::FileExt;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::time::Duration;
use traces::trees::{self, Tree};
use traces::{Event, METHODS, Stream, Trace, alone, everything, read_counting, trace};

/// The number of trees that a run of the tests executes with each way to build the program.
const TREES: u64 = 200;
/// The number of trees that a run of the program executes.
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
    // An earlier call left a return address in a frame of more than a kibibyte.
    "tryb(throwb : f57 deep1(f57(f27)))",
    // Variable arguments, with mcount behind a branch.
    "f21",
    // A thread of a forked child is in the middle of calls when the thread that forked calls for the first time.
    "fork(thread(loop4000(f1(f2))) loop30000 f1(f3)) fork(thread(loop4000(f1(f2))) loop100000 f1(f3)) fork(thread(loop4000(f1(f2))) loop200000 f1(f3)) fork(thread(loop4000(f1(f2))) loop400000 f1(f3))",
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

    /// Executes lines and compares the trace with the log. The error says how they differ.
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
            || outcome.ending.missed_in_handlers != Some(0)
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

/// The parts of a log that are compared. Compilers differ in functions that report their own beginnings and ends when
/// an exception leaves them. gcc's functions report an end, as if they returned. clang's report nothing, so that it
/// shows only when a function further out returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Detail {
    /// The functions that are entered, their depths, and the functions that return.
    All,
    /// The functions that are entered, and their depths.
    Depths,
    /// The functions that are entered.
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

/// Executes lists of trees in runs. A failing list is made as small as possible for the error.
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

/// The trees in which a program is killed: threads that call, throw, jump, handle signals and change stacks without
/// end.
const ENDLESS: &str = "\
    thread(loop1000000(f0(f1 f2(f3)) try(f2(throw) : f4) set(f5(jump)) deep5(f6))) \
    thread(loop1000000(co(f1 yield f2) resume sig(f3(f4)))) \
    thread(loop1000000(f1(f2(f3(f4(f5)))))) \
    loop1000000(f7 f3(f5) alt(f6 f1))";

/// Returns the logs that a killed program has left, by thread.
fn kept_logs(file: &Path) -> Vec<(u32, Vec<String>)> {
    const ROOM: usize = 1 << 20;
    let file = fs::File::open(file).expect("logs");
    let mut logs = Vec::new();
    for number in 0.. {
        let mut bytes = vec![0; ROOM];
        file.read_exact_at(&mut bytes, (number * ROOM) as u64)
            .expect("a log");
        let tid = u32::from_ne_bytes(bytes[4..8].try_into().unwrap());
        let size = u64::from_ne_bytes(bytes[8..16].try_into().unwrap()) as usize;
        if tid == 0 {
            break;
        }
        let text = String::from_utf8(bytes[16..16 + size].to_vec()).expect("text");
        logs.push((tid, text.lines().map(str::to_owned).collect()));
    }
    logs
}

/// A killed program loses at most its last event: a call begins before the program logs its beginning, and ends after
/// the program has logged its end.
#[test]
fn killed_programs_lose_nothing() {
    let _turn = alone();
    let number = |name: &str| Some(std::env::var(name).ok()?.parse::<u64>().expect("a number"));
    let kills = number("DIOPTRA_SOAK_KILLS").unwrap_or(6);
    let ways = ways();
    let ways: Vec<&Way> = ways.iter().filter(|way| way.level == "-O1").collect();
    for kill in 0..kills {
        let way = ways[(kill * 5) as usize % ways.len()];
        // Every other time only the last part is kept.
        let ring = kill % 2 == 1;
        let program = or_skip!(way.build());
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("trees");
        fs::write(&file, ENDLESS).unwrap();
        let logs = folder.path().join("logs");
        let seconds = format!("0.{:03}", 20 + kill * 37 % 211);
        let words = ["timeout", "-s", "KILL", &seconds];
        let paths = [&program, &file, &logs].map(|path| path.to_str().unwrap());
        let command = [&words[..], &paths[..]].concat();
        let (outcome, _) = trace(folder.path(), &command, way.choice, |spec| {
            if ring {
                spec.last = Some(Duration::from_secs(60));
                spec.memory = 128 << 10;
                spec.chunk_size = 16 << 10;
            }
        });
        let what = format!("{way:?} after {seconds} s, ring {ring}");
        assert_eq!(outcome.ending.lost, 0, "{what}");
        if !logs.exists() {
            continue;
        }
        let logs = kept_logs(&logs);
        let walked = traces::walked_threads(folder.path());
        for (tid, log) in logs {
            let names: HashSet<&str> = log.iter().map(|line| name_of(line)).collect();
            let log: Vec<&str> = log
                .iter()
                .map(|line| line.split(' ').next().unwrap())
                .collect();
            let events = walked.get(&tid).map_or(&[][..], Vec::as_slice);
            let exits = way.method != "cygprof";
            let is_wanted = |line: &str| exits || line.starts_with('+');
            let log: Vec<&str> = log.into_iter().filter(|line| is_wanted(line)).collect();
            let found: Vec<String> = events
                .iter()
                .filter_map(|event| match event {
                    Event::Entry(name) if names.contains(name.as_str()) => Some(format!("+{name}")),
                    Event::Exit(name) if names.contains(name.as_str()) => Some(format!("-{name}")),
                    _ => None,
                })
                .filter(|line| is_wanted(line))
                .collect();
            // The trace does not know which calls were open on other stacks when the kept part begins, so their ends
            // are missing.
            let found = match ring {
                true => &found[found.len().min(200)..],
                false => &found,
            };
            // The last event of the log may be missing in the trace, or that of the trace in the log.
            let fits = |found: &[String], log: &[&str]| match ring {
                true => log.len() >= found.len() && log[log.len() - found.len()..].iter().eq(found),
                false => log.iter().eq(found),
            };
            let less = |all: usize| all.saturating_sub(1);
            let same = fits(found, &log)
                || fits(&found[..less(found.len())], &log)
                || fits(found, &log[..less(log.len())]);
            let end = |length: usize| length.saturating_sub(8);
            assert!(
                same,
                "{what}: thread {tid}: {} in the log, {} in the trace: {:?} {:?}",
                log.len(),
                found.len(),
                &log[end(log.len())..],
                &found[end(found.len())..]
            );
        }
    }
}

/// Returns the name of the function in a line of a log.
fn name_of(line: &str) -> &str {
    line[1..].split(' ').next().unwrap_or_default()
}

#[test]
fn traces_are_what_programs_say() {
    let _turn = alone();
    let number = |name: &str| Some(std::env::var(name).ok()?.parse::<u64>().expect("a number"));
    let count = number("DIOPTRA_SOAK_TREES").unwrap_or(TREES);
    let mut seed = number("DIOPTRA_SOAK_SEED").unwrap_or(1);
    // In a soak, each way has trees of its own. In the tests, all ways have the same few.
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
