//! Traces of programs whose calls are known.

#![cfg(all(target_arch = "x86_64", target_env = "gnu"))]

mod traces;

use dioptra_filters::RuleOption;
use dioptra_testprograms::{Language, Program, Skip, or_skip};
use dioptra_trace_recorder::Everything;
use dioptra_trace_recorder::{OnFull, TraceOutcome, TraceSpec};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;
use traces::{
    Event, METHODS, Trace, alone, as_log, by_rules, everything, read, read_counting, trace,
};

fn hard(compiler: &str, level: &str, flags: &[&str]) -> Result<PathBuf, Skip> {
    Program::new(Language::Cpp, "trace-hard")
        .no_flags()
        .compiler(compiler)
        .flags([level, "-g", "-pthread", "-fno-optimize-sibling-calls"])
        .flags(flags.iter().copied())
        .build()
}

/// Runs a case with every compiler, level and method, and compares the trace with the program's own log.
fn same_as_log(case: &str, count: &str) {
    let _turn = alone();
    for compiler in ["g++", "clang++"] {
        for level in ["-O0", "-O1", "-O2", "-O3"] {
            for (method, flags, plain) in METHODS {
                if method == "xray" && compiler == "g++" {
                    continue;
                }
                let program = or_skip!(hard(compiler, level, flags));
                let folder = tempfile::tempdir().unwrap();
                let what = format!("{case} by {compiler} {level} {method}");
                let command = [program.to_str().unwrap(), case, count];
                let (outcome, output) = trace(folder.path(), &command, everything(plain), |_| {});
                assert_eq!(outcome.status.map(|s| s.exit_code()), Some(0), "{what}");
                let expected: Vec<&str> = output.lines().collect();
                assert!(expected.len() > 10, "{what}");
                let functions: BTreeSet<&str> = expected.iter().map(|line| &line[1..]).collect();
                let functions: Vec<&str> = functions.into_iter().collect();
                let trace = read(folder.path());
                let stream = &trace
                    .streams
                    .values()
                    .find(|stream| stream.events.contains(&Event::Entry(case.to_owned())))
                    .unwrap_or_else(|| panic!("{what}: {:?}", outcome.notes));
                let mut found = as_log(&stream.events, &functions);
                let mut expected = expected;
                if method == "cygprof" && case == "exceptions" {
                    // gcc's functions report their end, too, when an exception leaves them; clang's do not.
                    found.retain(|line| line.starts_with('+'));
                    expected.retain(|line| line.starts_with('+'));
                }
                assert_eq!(found, expected, "{what}");
                assert!(!stream.events.iter().any(|e| matches!(e, Event::Lost(_))));
                assert!(
                    stream.open.is_empty() || stream.open == ["main"],
                    "{what}: {:?}",
                    stream.open
                );
            }
        }
    }
}

#[test]
fn exceptions_leave_calls() {
    same_as_log("exceptions", "20");
}

/// Functions compiled with -finstrument-functions do not report that an exception leaves them. Later calls are recorded
/// with their true depth all the same.
#[test]
fn what_follows_an_exception_is_as_deep_as_it_is() {
    const COUNT: usize = 20;
    // The calls of `exceptions` in each round. A destructor runs when `between` is left, and another one when `catcher`
    // is.
    let round = [
        ("catcher", 1),
        ("between", 2),
        ("thrower", 3),
        ("leaf", 4),
        ("leaf", 3),
        ("leaf", 2),
        ("leaf", 2),
        ("rethrower", 1),
        ("between", 2),
        ("thrower", 3),
        ("leaf", 4),
        ("leaf", 3),
        ("leaf", 2),
        ("leaf", 1),
    ];
    let mut expected = vec![("exceptions".to_owned(), 0)];
    for _ in 0..COUNT {
        expected.extend(round.map(|(name, depth)| (name.to_owned(), depth)));
    }
    let is_counted = |name: &str| name == "exceptions" || round.iter().any(|(n, _)| *n == name);
    let _turn = alone();
    for compiler in ["g++", "clang++"] {
        for level in ["-O0", "-O1", "-O2", "-O3"] {
            for (method, flags, plain) in METHODS {
                if !matches!(method, "patchable" | "cygprof") {
                    continue;
                }
                let program = or_skip!(hard(compiler, level, flags));
                let folder = tempfile::tempdir().unwrap();
                let what = format!("{compiler} {level} {method}");
                let command = [program.to_str().unwrap(), "exceptions", &COUNT.to_string()];
                let (outcome, _) = trace(folder.path(), &command, everything(plain), |_| {});
                assert_eq!(outcome.status.map(|s| s.exit_code()), Some(0), "{what}");
                let streams = read_counting(folder.path(), is_counted).streams;
                let stream = streams.into_values().find(|stream| {
                    stream
                        .events
                        .contains(&Event::Entry("exceptions".to_owned()))
                });
                let stream = stream.unwrap();
                let all = stream.events.into_iter().zip(stream.depths);
                let found: Vec<(String, usize)> = all
                    .filter_map(|(event, depth)| match event {
                        Event::Entry(name) if is_counted(&name) => Some((name, depth)),
                        _ => None,
                    })
                    .collect();
                assert_eq!(found, expected, "{what}");
            }
        }
    }
}

#[test]
fn jumps_leave_calls() {
    same_as_log("jumps", "50");
}

#[test]
fn signal_handlers_call() {
    same_as_log("signals", "40");
}

#[test]
fn coroutines_have_stacks_of_their_own() {
    same_as_log("coroutines", "20");
}

/// Programs that exchange stacks by themselves run as without the tracer, and all their calls are recorded. The test
/// does not compare returns on a stack that was left meanwhile.
#[test]
fn stacks_that_programs_exchange_themselves() {
    let _turn = alone();
    for compiler in ["g++", "clang++"] {
        for (method, flags, plain) in METHODS {
            if method == "xray" && compiler == "g++" {
                continue;
            }
            let program = or_skip!(hard(compiler, "-O1", flags));
            let folder = tempfile::tempdir().unwrap();
            let what = format!("{compiler} {method}");
            let command = [program.to_str().unwrap(), "own_coroutines", "20"];
            let (outcome, output) = trace(folder.path(), &command, everything(plain), |_| {});
            assert_eq!(outcome.status.map(|s| s.exit_code()), Some(0), "{what}");
            let functions = [
                "own_coroutines",
                "own_coroutine",
                "own_resume",
                "own_step",
                "leaf",
            ];
            let expected: Vec<&str> = output
                .lines()
                .filter(|line| line.starts_with('+'))
                .collect();
            assert_eq!(expected.len(), 1 + 20 * (1 + 6 + 6 + 23), "{what}");
            let trace = read(folder.path());
            let first = Event::Entry("own_coroutines".to_owned());
            let stream = trace.streams.values().find(|s| s.events.contains(&first));
            let mut found = as_log(&stream.expect("a stream").events, &functions);
            found.retain(|line| line.starts_with('+'));
            assert_eq!(found, expected, "{what}");
        }
    }
}

/// Records one case of the program, built in one way.
fn one(
    case: &str,
    count: &str,
    change: impl FnOnce(&mut TraceSpec),
) -> Result<(TraceOutcome, String, Trace), Skip> {
    let program = hard("g++", "-O1", METHODS[0].1)?;
    let folder = tempfile::tempdir().unwrap();
    let command = [program.to_str().unwrap(), case, count];
    let (outcome, output) = trace(folder.path(), &command, everything(false), change);
    Ok((outcome, output, read(folder.path())))
}

fn count(events: &[Event], is_it: impl Fn(&Event) -> bool) -> usize {
    events.iter().filter(|event| is_it(event)).count()
}

#[test]
fn children_have_streams_of_their_own() {
    let _turn = alone();
    let (_, output, trace) = or_skip!(one("forks", "10", |_| {}));
    let functions = ["forks", "leaf", "child_work"];
    let log: Vec<&str> = output.lines().collect();
    let streams: Vec<_> = trace.streams.iter().collect();
    let (parent, parents) = streams
        .iter()
        .find(|(_, stream)| as_log(&stream.events, &functions) == log)
        .expect("the parent's own stream");
    let children: Vec<_> = streams
        .iter()
        .filter(|(_, stream)| stream.parent == **parent)
        .collect();
    assert_eq!(children.len(), 10);
    for (_, child) in children {
        assert_ne!(child.pid, parents.pid);
        let expected = ["+child_work", "+leaf", "-leaf", "-child_work"];
        assert_eq!(as_log(&child.events, &functions), expected);
        // Calls that were open in the parent when it forked are open in the child.
        assert_eq!(child.open.last().map(String::as_str), Some("forks"));
    }
}

#[test]
fn recursion_is_as_deep_as_the_stack() {
    let _turn = alone();
    let (outcome, _, trace) = or_skip!(one("deep", "100000", |_| {}));
    assert_eq!(outcome.ending.missed_no_memory, 0);
    let stream = trace.streams.values().next().unwrap();
    let deep = |event: &Event| *event == Event::Entry("deep".to_owned());
    assert_eq!(count(&stream.events, deep), 100_001);
    let exits = |event: &Event| *event == Event::Exit("deep".to_owned());
    assert_eq!(count(&stream.events, exits), 100_001);
}

#[test]
fn threads_end_in_all_ways() {
    let _turn = alone();
    let (outcome, _, trace) = or_skip!(one("threads", "20", |_| {}));
    assert_eq!(outcome.status.map(|s| s.exit_code()), Some(0));
    let with = |name: &str| {
        let entry = Event::Entry(name.to_owned());
        trace
            .streams
            .values()
            .filter(move |stream| stream.events.first() == Some(&entry))
            .collect::<Vec<_>>()
    };
    let (returned, left) = (with("returns"), with("exits"));
    assert_eq!((returned.len(), left.len()), (20, 20));
    for stream in returned {
        assert_eq!(
            stream.events.last(),
            Some(&Event::Exit("returns".to_owned()))
        );
        assert!(stream.open.is_empty());
    }
    for stream in left {
        let unwound = ["inner_exit", "exits"].map(|name| Event::Unwound(name.to_owned()));
        assert!(stream.events.ends_with(&unwound), "{:?}", stream.events);
        assert!(stream.open.is_empty());
    }
    // Cancelled threads may not have begun.
    for stream in with("is_cancelled") {
        assert!(stream.open.is_empty(), "{:?}", stream.open);
    }
}

#[test]
fn threads_end_by_a_system_call() {
    let _turn = alone();
    let (outcome, _, trace) = or_skip!(one("unnoticed_ends", "20", |_| {}));
    assert_eq!(outcome.status.map(|s| s.exit_code()), Some(0));
    let functions = ["unnoticed", "ends_unnoticed", "leaf", "caught"];
    let ended = ["+unnoticed", "+ends_unnoticed", "+leaf", "-leaf"];
    let threw = [
        &ended[..],
        &["+caught", "+leaf", "-leaf", "-caught", "-unnoticed"],
    ]
    .concat();
    let with = |log: &[&str]| {
        let streams = trace.streams.values();
        streams
            .filter(|stream| as_log(&stream.events, &functions) == log)
            .count()
    };
    assert_eq!((with(&ended), with(&threw)), (20, 20));
}

#[test]
fn a_thousand_threads_at_once() {
    let _turn = alone();
    let (outcome, _, trace) = or_skip!(one("crowd", "1000", |_| {}));
    assert_eq!(outcome.status.map(|s| s.exit_code()), Some(0));
    let expected = ["+meets", "+leaf", "-leaf", "+leaf", "-leaf", "-meets"];
    let complete = trace
        .streams
        .values()
        .filter(|stream| as_log(&stream.events, &["meets", "leaf"]) == expected)
        .count();
    assert_eq!(complete, 1000);
}

#[test]
fn a_crash_loses_nothing() {
    let _turn = alone();
    let (outcome, _, trace) = or_skip!(one("crash", "1", |_| {}));
    assert_eq!(outcome.ending.signal, Some(libc::SIGSEGV));
    let stream = trace.streams.values().next().unwrap();
    assert_eq!(stream.open, ["main", "crash"]);
    assert_eq!(as_log(&stream.events, &["leaf"]), ["+leaf", "-leaf"]);
}

#[test]
fn what_a_killed_program_did_is_a_prefix() {
    let _turn = alone();
    let program = or_skip!(hard("g++", "-O1", METHODS[0].1));
    for milliseconds in [30, 70, 110] {
        let folder = tempfile::tempdir().unwrap();
        let seconds = format!("0.{milliseconds:03}");
        let command = [
            "timeout",
            "-s",
            "KILL",
            &seconds,
            program.to_str().unwrap(),
            "endless",
        ];
        trace(folder.path(), &command, everything(false), |_| {});
        let trace = read(folder.path());
        let Some(stream) = trace.streams.values().next() else {
            continue;
        };
        assert_eq!(stream.open[..2], ["main", "endless"]);
        assert!(stream.open.len() <= 3);
        let mut events = stream.events[2..].iter();
        while let Some(event) = events.next() {
            assert_eq!(*event, Event::Entry("leaf".to_owned()));
            if let Some(event) = events.next() {
                assert_eq!(*event, Event::Exit("leaf".to_owned()));
            }
        }
    }
}

#[test]
fn what_is_dropped_is_counted() {
    let _turn = alone();
    let program = or_skip!(hard("g++", "-O1", METHODS[0].1));
    let command = [program.to_str().unwrap(), "deep", "200000"];
    // A recorder with a CPU of its own may keep up with all of a run. The counts have to be right in each run.
    let dropped = (0..20).any(|_| {
        let folder = tempfile::tempdir().unwrap();
        let (outcome, _) = trace(folder.path(), &command, everything(false), |spec| {
            spec.on_full = OnFull::Drop;
            spec.memory = 4 * 4096;
            spec.chunk_size = 4096;
        });
        let trace = read(folder.path());
        let stream = trace.streams.values().next().unwrap();
        let lost: u64 = stream
            .events
            .iter()
            .map(|event| match event {
                Event::Lost(records) => *records,
                _ => 0,
            })
            .sum();
        let records = count(&stream.events, |event| !matches!(event, Event::Lost(_)));
        // All losses are in place: a thread reports its own when it ends, the first thread when the process ends.
        assert_eq!(lost, outcome.ending.lost);
        assert_eq!(records as u64 + outcome.ending.lost, 2 * 200_001 + 2);
        lost > 0
    });
    assert!(dropped, "nothing was dropped in 20 runs");
}

#[test]
fn the_last_part_can_be_kept_alone() {
    let _turn = alone();
    let program = or_skip!(hard("g++", "-O1", METHODS[0].1));
    let folder = tempfile::tempdir().unwrap();
    let command = [
        "timeout",
        "-s",
        "KILL",
        "0.3",
        program.to_str().unwrap(),
        "endless",
    ];
    let (outcome, _) = trace(folder.path(), &command, everything(false), |spec| {
        spec.last = Some(Duration::from_secs(10));
        spec.memory = 1 << 20;
    });
    assert!(outcome.ending.discarded_chunks > 0, "{outcome:?}");
    // The thread's own chunk comes on top of the chunks that wait.
    assert!(outcome.ending.bytes <= (1 << 20) + (1 << 16), "{outcome:?}");
}

#[test]
fn executed_programs_are_traced_whatever_their_environment() {
    let _turn = alone();
    let program = or_skip!(
        Program::new(Language::C, "trace-execs")
            .no_flags()
            .flags(["-O1", "-fpatchable-function-entry=5"])
            .build()
    );
    let folder = tempfile::tempdir().unwrap();
    let command = [program.to_str().unwrap()];
    let (outcome, output) = trace(folder.path(), &command, everything(false), |_| {});
    assert_eq!(
        (output.as_str(), outcome.ending.status),
        ("done\n", Some(0)),
        "{:?}",
        outcome.notes
    );
    let trace = read(folder.path());
    for name in [
        "with_execve_and_no_environment",
        "with_execv_after_clearenv",
        "with_execl",
        "with_execle",
        "with_spawn",
        "with_vfork",
        "with_system",
    ] {
        let entry = Event::Entry(name.to_owned());
        let calls: usize = trace
            .streams
            .values()
            .map(|stream| count(&stream.events, |event| *event == entry))
            .sum();
        assert_eq!(calls, 1, "{name}: {:?}", outcome.notes);
    }
}

#[test]
fn library_calls_are_named() {
    let _turn = alone();
    for flags in [
        &["-Wl,-z,lazy"][..],
        &["-Wl,-z,now"],
        &["-Wl,-z,now", "-no-pie"],
    ] {
        let program = or_skip!(
            Program::new(Language::C, "trace-execs")
                .no_flags()
                .flags(["-O1"])
                .flags(flags.iter().copied())
                .build()
        );
        let folder = tempfile::tempdir().unwrap();
        let command = [program.to_str().unwrap()];
        let library_calls = Everything {
            library_calls: true,
            ..everything(false)
        };
        let (outcome, output) = trace(folder.path(), &command, library_calls, |_| {});
        assert_eq!(
            (output.as_str(), outcome.ending.status),
            ("done\n", Some(0))
        );
        let trace = read(folder.path());
        let calls = |name: &str| -> usize {
            let entry = Event::Entry(name.to_owned());
            trace
                .streams
                .values()
                .map(|stream| count(&stream.events, |event| *event == entry))
                .sum()
        };
        let found = [
            "fork",
            "waitpid",
            "posix_spawn",
            "system",
            "puts",
            "clearenv",
        ]
        .map(calls);
        assert_eq!(found, [4, 6, 1, 1, 1, 1], "{flags:?}");
    }
}

/// Calls among functions' first instructions come from the functions, with all registers, whether or not the processor
/// is meant to return there.
#[test]
fn calls_among_first_instructions_come_from_their_functions() {
    const ROUNDS: usize = 5;
    let functions = [
        "by_none",
        "by_one",
        "by_two",
        "by_four",
        "by_pointer",
        "by_catch",
    ];
    let _turn = alone();
    for compiler in ["g++", "clang++"] {
        for flags in [["-O2", "-no-pie"], ["-O2", "-pie"]] {
            let program = Program::new(Language::Cpp, "trace-opens")
                .no_flags()
                .compiler(compiler)
                .flags(flags.into_iter().chain(["-fPIC"]));
            let program = or_skip!(program.build());
            let command = [program.to_str().unwrap(), &ROUNDS.to_string()];
            // With rules, other code comes before the thunks.
            for rules in [&[] as &[_], &[(RuleOption::Depth, "9")]] {
                let what = format!("{compiler} {flags:?} {rules:?}");
                let plain = std::process::Command::new(command[0])
                    .args(&command[1..])
                    .output()
                    .unwrap();
                let plain = String::from_utf8_lossy(&plain.stdout).into_owned();
                assert_eq!(plain.matches("as it is").count(), 5 * ROUNDS, "{what}");
                let folder = tempfile::tempdir().unwrap();
                let (outcome, output) = trace(folder.path(), &command, everything(true), |spec| {
                    spec.selector = by_rules(Some(&functions.join(";")), rules);
                });
                assert_eq!(output, plain, "{what}: {:?}", outcome.notes);
                let trace = read(folder.path());
                let stream = trace.streams.values().next().unwrap();
                for function in functions {
                    let times = if function == "by_catch" { 1 } else { 3 };
                    let entry = Event::Entry(function.to_owned());
                    let entries = stream.events.iter().filter(|event| **event == entry);
                    assert_eq!(entries.count(), times * ROUNDS, "{what}: {function}");
                }
            }
        }
    }
}

#[test]
fn plain_programs_do_what_they_did() {
    let _turn = alone();
    let python = "import json,re
print(json.dumps({str(i): i * i for i in range(50)}))
print(len(re.findall('a+b', 'aab' * 500)))
try:
    1 / 0
except ZeroDivisionError as error:
    print(error)";
    let sql = "create table t(a, b); with recursive c(x) as (select 1 union all select x + 1 from c where x < 500) \
        insert into t select x, x * x from c; select sum(a), sum(b) from t; select count(*) from t where b % 7 = 1;";
    let shell = "f() { local a=$1; [ $a -gt 0 ] && f $((a - 1)) || echo end; }; f 40; for i in $(seq 50); do x=$((x + i)); done; echo $x";
    let cases: [&[&str]; 3] = [
        &["python3", "-c", python],
        &["sqlite3", ":memory:", sql],
        &["bash", "-c", shell],
    ];
    for command in cases {
        or_skip!(dioptra_testprograms::need_tool(command[0]));
        let plain = std::process::Command::new(command[0])
            .args(&command[1..])
            .output()
            .unwrap();
        let folder = tempfile::tempdir().unwrap();
        let (outcome, output) = trace(folder.path(), command, everything(true), |_| {});
        assert_eq!(
            output,
            String::from_utf8_lossy(&plain.stdout),
            "{command:?}"
        );
        assert_eq!(outcome.ending.status, Some(0));
        let trace = read(folder.path());
        let entries: usize = trace
            .streams
            .values()
            .map(|stream| count(&stream.events, |event| matches!(event, Event::Entry(_))))
            .sum();
        assert!(
            entries > 100,
            "{command:?}: {entries} calls; {:?}",
            outcome.notes
        );
    }
}

#[test]
fn libraries_that_are_loaded_later_are_traced() {
    let _turn = alone();
    for flags in [
        &["-fpatchable-function-entry=5"][..],
        &["-pg", "-mfentry"],
        &["-finstrument-functions"],
    ] {
        let program = or_skip!(
            Program::new(Language::C, "trace-loads")
                .no_flags()
                .flags(["-O1"])
                .build()
        );
        let library = or_skip!(
            Program::new(Language::C, "trace-loads")
                .no_flags()
                .shared_library()
                .flags(["-O1", "-DPLUGIN"])
                .flags(flags.iter().copied())
                .build()
        );
        let folder = tempfile::tempdir().unwrap();
        let command = [program.to_str().unwrap(), library.to_str().unwrap(), "5"];
        let (outcome, output) = trace(folder.path(), &command, everything(false), |_| {});
        assert_eq!(
            (output.as_str(), outcome.ending.status),
            ("5\n", Some(0)),
            "{:?}",
            outcome.notes
        );
        let trace = read(folder.path());
        let stream = trace.streams.values().next().expect("a stream");
        let functions = ["at_load", "plugged", "inner"];
        let once = [
            "+at_load", "+inner", "-inner", "-at_load", "+plugged", "+inner", "-inner", "+inner",
            "-inner", "-plugged",
        ];
        let log = as_log(&stream.events, &functions);
        assert_eq!(log, once.repeat(5), "{flags:?}; {:?}", outcome.notes);
    }
}

#[test]
fn a_daemon_is_traced_to_its_end() {
    let _turn = alone();
    let program = or_skip!(
        Program::new(Language::C, "trace-daemon")
            .no_flags()
            .flags(["-O1", "-fpatchable-function-entry=5"])
            .build()
    );
    let folder = tempfile::tempdir().unwrap();
    let command = [program.to_str().unwrap()];
    trace(folder.path(), &command, everything(false), |_| {});
    let trace = read(folder.path());
    let calls = |name: &str| -> usize {
        let entry = Event::Entry(name.to_owned());
        trace
            .streams
            .values()
            .map(|stream| count(&stream.events, |event| *event == entry))
            .sum()
    };
    assert_eq!((calls("before"), calls("after")), (1, 1001));
    assert_eq!(trace.streams.len(), 2);
}
