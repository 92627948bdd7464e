//! `sample=pNN` while a program runs: executions are judged at their ends as readers would judge them, and executions
//! that are taken back leave no trace.

#![cfg(all(target_arch = "x86_64", target_env = "gnu"))]

mod traces;

use dioptra_filters::{RuleOption, Tail};
use dioptra_testprograms::{Language, or_skip};
use dioptra_trace_recorder::TraceSpec;
use dioptra_tracedata::Trace;
use dioptra_tracelayout::{Decoder, Record};
use std::collections::HashMap;
use std::path::Path;
use traces::{Event, TREES, alone, built, by_rules, counted, everything, read, trace};

use RuleOption::{Depth, Filter, Notrace};

type Texts<'t> = [(RuleOption, &'t str)];

const RULES: &[(&Texts<'static>, &[(&str, u64)])] = &[
    (&[(Filter, "f2@sample=p70")], &[("f2", 7000)]),
    (&[(Filter, "round_of@sample=p50")], &[("round_of", 5000)]),
    (
        &[
            (Filter, "f1@sample=p30"),
            (Filter, "f4@sample=p60"),
            (Notrace, "f6"),
        ],
        &[("f1", 3000), ("f4", 6000)],
    ),
    (
        &[
            (Filter, "root"),
            (Filter, "^f[35]$@sample=p50"),
            (Depth, "4"),
        ],
        &[("f3", 5000), ("f5", 5000)],
    ),
];

fn record(
    folder: &Path,
    command: &[&str],
    names: Option<&str>,
    texts: &Texts<'_>,
    change: impl FnOnce(&mut TraceSpec),
) -> (String, u64) {
    let (outcome, output) = trace(folder, command, everything(false), |spec| {
        spec.selector = by_rules(names, texts);
        change(spec);
    });
    assert_eq!(outcome.status.map(|status| status.exit_code()), Some(0));
    assert_eq!(outcome.ending.lost, 0);
    (output, outcome.ending.marked)
}

/// Goes through a trace of which nothing was taken back. Returns for each judged execution whether its duration
/// discards it, and whether it was discarded. `percentiles` are those of the functions, by id.
fn judgements(folder: &Path, percentiles: &HashMap<u32, u64>) -> Vec<(bool, bool)> {
    let trace = Trace::open(&folder.join("trace")).unwrap();
    let mut judgements = Vec::new();
    for stream in trace.streams() {
        let mut tails: HashMap<u32, Tail> = HashMap::new();
        let mut stacks: HashMap<u32, Vec<(u32, Option<u64>)>> = HashMap::new();
        let mut judged: HashMap<u32, u32> = HashMap::new();
        let mut stack = 0;
        for chunk in trace.chunks(stream) {
            for record in Decoder::new(chunk.records, chunk.header.base) {
                let open = stacks.entry(stack).or_default();
                let mut end = |(function, start): (u32, Option<u64>), time: u64, was: bool| {
                    let Some(start) = start else {
                        assert!(!was, "only what is judged is discarded");
                        return;
                    };
                    *judged.get_mut(&function).unwrap() -= 1;
                    let tail = tails.entry(function).or_default();
                    let slow = tail.observe(time - start, percentiles[&function]);
                    judgements.push((!slow, was));
                };
                match record.unwrap() {
                    Record::Entry { time, function } => {
                        let mut start = None;
                        if percentiles.contains_key(&function) {
                            let others = judged.entry(function).or_default();
                            // Recursion within an execution belongs to it.
                            if *others == 0 {
                                start = Some(time);
                                *others += 1;
                            }
                        }
                        open.push((function, start));
                    }
                    Record::Exit { time } => end(open.pop().unwrap(), time, false),
                    Record::Discarded { time } => end(open.pop().unwrap(), time, true),
                    Record::Unwound { time, calls, .. } => {
                        for _ in 0..calls {
                            end(open.pop().unwrap(), time, false);
                        }
                    }
                    Record::Stack { stack: next, .. } => stack = next,
                    other => panic!("{other:?}"),
                }
            }
        }
    }
    judgements
}

/// Returns the ids of functions with their percentiles, as the journal's groups of sampled functions list them.
fn ids(folder: &Path, percentiles: &[(&str, u64)]) -> HashMap<u32, u64> {
    let trace = Trace::open(&folder.join("trace")).unwrap();
    let functions = trace.sampled().iter().flat_map(|group| {
        let percentile: f64 = group.how.strip_prefix('p').unwrap().parse().unwrap();
        assert!(group.tree);
        group
            .functions
            .iter()
            .map(move |function| (*function, (percentile * 100.0).round() as u64))
    });
    let functions: HashMap<u32, u64> = functions.collect();
    let mut known: Vec<u64> = functions.values().copied().collect();
    let mut expected: Vec<u64> = percentiles.iter().map(|(_, p)| *p).collect();
    known.sort_unstable();
    expected.sort_unstable();
    assert_eq!(known, expected);
    functions
}

/// Returns the outermost executions of a function, each with the calls in it: by thread, in order.
fn executions(folder: &Path, name: &str) -> Vec<Vec<Vec<Event>>> {
    let streams = read(folder).streams.into_values();
    streams
        .map(|stream| {
            let mut found = Vec::new();
            let mut current: Option<(usize, Vec<Event>)> = None;
            for (event, depth) in stream.events.into_iter().zip(stream.depths) {
                let is_it = matches!(&event, Event::Entry(entered) if entered == name);
                if is_it && current.is_none() {
                    current = Some((depth, Vec::new()));
                }
                let Some((outer, events)) = &mut current else {
                    continue;
                };
                let is_end = !matches!(event, Event::Entry(_)) && depth == *outer;
                events.push(event);
                if is_end {
                    found.extend(current.take().map(|(_, events)| events));
                }
            }
            found
        })
        .filter(|found: &Vec<Vec<Event>>| !found.is_empty())
        .collect()
}

#[test]
fn executions_are_judged_as_readers_would_judge_them() {
    let _turn = alone();
    let mut all = Vec::new();
    for (level, flags) in [
        ("-O1", &["-fpatchable-function-entry=5"] as &[&str]),
        ("-O2", &["-pg"]),
        ("-O2", &[]),
        ("-O1", &["-finstrument-functions"]),
    ] {
        let program = or_skip!(built(
            Language::C,
            "trace-trees",
            &[&[level, "-pthread"], flags]
        ));
        let program = program.to_str().unwrap();
        for (seed, (texts, percentiles)) in RULES.iter().enumerate() {
            let command = [program, &seed.to_string(), "60", "2"];
            let what = format!("{level} {flags:?} {texts:?}");
            let names = TREES.join(";");
            let marked = tempfile::tempdir().unwrap();
            let keep = |spec: &mut TraceSpec| spec.keep_judged = true;
            let (output, _) = record(marked.path(), &command, Some(&names), texts, keep);
            let found = judgements(marked.path(), &ids(marked.path(), percentiles));
            assert!(
                found.iter().all(|(by_duration, was)| by_duration == was),
                "{what}"
            );
            let seen: u64 = counted(marked.path()).values().map(|(seen, _)| *seen).sum();
            assert_eq!(seen, found.len() as u64, "{what}");

            // With small chunks, executions that began in another chunk can't be taken back.
            for chunk in [64 << 10, 4096] {
                let folder = tempfile::tempdir().unwrap();
                let change = |spec: &mut TraceSpec| spec.chunk_size = chunk;
                let (same, kept) = record(folder.path(), &command, Some(&names), texts, change);
                assert_eq!(same, output, "{what}");
                let streams = read(folder.path()).streams.into_values();
                let is_marked = |event: &Event| matches!(event, Event::Discarded(_));
                let marks: usize = streams
                    .map(|stream| stream.events.iter().filter(|e| is_marked(e)).count())
                    .sum();
                assert_eq!(kept, marks as u64, "{what}");
                let counts = counted(folder.path());
                assert_eq!(
                    counts.values().map(|(seen, _)| *seen).sum::<u64>(),
                    seen,
                    "{what}"
                );
                for (name, _) in *percentiles {
                    is_part(
                        &executions(folder.path(), name),
                        &executions(marked.path(), name),
                        &what,
                    );
                }
            }
            all.extend(found);
        }
    }
    let discarded = all.iter().filter(|(_, was)| *was).count();
    assert!(
        discarded * 4 > all.len() && discarded * 10 < all.len() * 9,
        "{discarded} of {}",
        all.len()
    );
}

/// Checks that executions that were taken back are missing as a whole, and that nothing else is missing.
fn is_part(some: &[Vec<Vec<Event>>], all: &[Vec<Vec<Event>>], what: &str) {
    for stream in some {
        let fits = |whole: &&Vec<Vec<Event>>| {
            let mut whole = whole.iter();
            stream
                .iter()
                .all(|execution| whole.any(|other| is_like(execution, other)))
        };
        assert!(all.iter().any(|whole| fits(&whole)), "{what}");
    }
}

/// Returns whether the calls of an execution are found in another one in the same order. The ways in which inner
/// executions ended are not compared, because executions that a jump left report no judgements.
fn is_like(some: &[Event], all: &[Event]) -> bool {
    let call = |event: &Event| match event {
        Event::Entry(name) => (true, name.clone()),
        Event::Exit(name) | Event::Unwound(name) | Event::Discarded(name) => (false, name.clone()),
        Event::Lost(_) => panic!("nothing is lost"),
    };
    let mut all = all.iter().map(call);
    some.iter()
        .map(call)
        .all(|event| all.any(|other| other == event))
}

/// Exceptions, jumps, coroutines, signals, forks and ending threads leave executions in all ways.
#[test]
fn executions_that_are_left_are_judged_and_taken_back() {
    let _turn = alone();
    for level in ["-O2"] {
        let program = or_skip!(built(
            Language::Cpp,
            "trace-hard",
            &[
                &[level, "-pthread", "-fno-optimize-sibling-calls"],
                &["-fpatchable-function-entry=5"]
            ]
        ));
        for case in [
            "exceptions",
            "jumps",
            "deep",
            "coroutines",
            "signals",
            "forks",
            "threads",
        ] {
            let command = [program.to_str().unwrap(), case, "20"];
            let folder = tempfile::tempdir().unwrap();
            let (_, log) = trace(folder.path(), &command, everything(false), |_| {});
            let functions: std::collections::BTreeSet<&str> =
                log.lines().map(|line| &line[1..]).collect();
            for function in functions {
                let rule = format!("^{function}$@sample=p60");
                let texts = [(Filter, "main"), (Filter, rule.as_str())];
                for (keeps, chunk) in [(true, 64 << 10), (false, 4096)] {
                    let folder = tempfile::tempdir().unwrap();
                    let (same, _) = record(folder.path(), &command, None, &texts, |spec| {
                        (spec.keep_judged, spec.chunk_size) = (keeps, chunk);
                    });
                    assert_eq!(same.len(), log.len(), "{case} {level} {function}");
                    // Reading checks that the open calls are those that each chunk lists.
                    read(folder.path());
                }
            }
        }
    }
}

/// Timers interrupt the hooks that judge: their handlers call, jump out, and fork.
#[test]
fn judging_is_interrupted_anywhere() {
    let _turn = alone();
    let texts = [
        (Filter, "^rounds$"),
        (Filter, "^round_of$@sample=p80"),
        (Filter, "^second$@sample=p50"),
    ];
    let percentiles = [("round_of", 8000), ("second", 5000)];
    for flags in [
        &["-fpatchable-function-entry=5"] as &[&str],
        &["-pg"],
        &["-finstrument-functions"],
    ] {
        let program = or_skip!(built(
            Language::C,
            "trace-interrupts",
            &[&["-O1", "-fno-optimize-sibling-calls"], flags]
        ));
        for kind in ["return", "stack", "jump", "fork", "quiet"] {
            for (keeps, chunk) in [(true, 64 << 10), (false, 64 << 10), (false, 4096)] {
                let what = format!("{flags:?} {kind} {keeps} {chunk}");
                let command = ["timeout", "60", program.to_str().unwrap(), "150", kind];
                let folder = tempfile::tempdir().unwrap();
                let (output, _) = record(folder.path(), &command, None, &texts, |spec| {
                    (spec.keep_judged, spec.chunk_size) = (keeps, chunk);
                });
                let begun: u64 = output.split_whitespace().next().unwrap().parse().unwrap();
                let trace = read(folder.path());
                let streams: Vec<_> = trace.streams.values().collect();
                let main = streams.iter().find(|stream| stream.parent == 0).unwrap();
                let (shown, left) = rounds(&main.events, &what);
                let functions = ids(folder.path(), &percentiles);
                let counts = counted(folder.path());
                let (seen, kept) = counts["round_of"];
                eprintln!(
                    "{what}: {begun} begun, {seen} seen, {kept} kept, {shown} shown, {left} left"
                );
                assert!(kind == "jump" || left == 0, "{what}: {left} left");
                // An execution that is left before or after its records are written is never judged. A child judges the
                // execution in which it was forked if that had not quite begun.
                let (hidden, forked) = match kind {
                    "jump" => (150 / 3, 0),
                    "fork" => (0, 150 / 3),
                    "quiet" => (0, 150),
                    _ => (0, 0),
                };
                assert!(
                    seen <= begun + forked && begun <= seen + hidden,
                    "{what}: {seen} of {begun}"
                );
                assert!(
                    kept <= shown + left + forked && shown <= kept + hidden,
                    "{what}: {shown} shown of {kept}"
                );
                if keeps && hidden + forked == 0 {
                    let found = judgements(folder.path(), &functions);
                    assert!(found.iter().all(|(by_duration, was)| by_duration == was));
                    assert!(found.len() as u64 >= 2 * begun - 2, "{what}");
                }
            }
        }
    }
}

/// Returns the number of executions of `round_of` that are shown, each with its calls, and the number of those that a
/// jump left.
fn rounds(events: &[Event], what: &str) -> (u64, u64) {
    let (mut shown, mut left) = (0, 0);
    let mut open: Vec<&str> = Vec::new();
    let mut calls = String::new();
    for event in events {
        let is_handlers =
            |open: &[&str]| open.iter().any(|name| ["handler", "quiet"].contains(name));
        match event {
            Event::Entry(name) => {
                open.push(name);
                if name == "round_of" {
                    calls.clear();
                } else if !is_handlers(&open) {
                    calls.push_str(&format!("{name} "));
                }
            }
            Event::Exit(name) => {
                assert_eq!(open.pop(), Some(name.as_str()), "{what}");
                if name == "round_of" {
                    shown += 1;
                    let is_right =
                        ["first second third first ", "first first "].contains(&calls.as_str());
                    assert!(is_right, "{what}: {calls}");
                }
            }
            Event::Unwound(name) | Event::Discarded(name) => {
                assert_eq!(open.pop(), Some(name.as_str()), "{what}");
                let is_left = matches!(event, Event::Unwound(_));
                left += u64::from(is_left && name == "round_of");
                if name == "second" && !is_left {
                    calls = calls.replace("second third ", "");
                }
            }
            Event::Lost(_) => panic!("{what}: lost"),
        }
    }
    (shown, left)
}
