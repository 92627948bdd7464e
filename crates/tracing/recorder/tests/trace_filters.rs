//! Hooks leave out the same calls as readers: under the same rules, a trace that was recorded with them shows the same
//! as a trace of everything.

#![cfg(all(target_arch = "x86_64", target_env = "gnu"))]

mod traces;

use dioptra_filters::{
    Compiler, Event as Shown, FunctionDescription, Lane, MatchStyle, PlanOptions, RuleOption,
    Rules, TraceSwitch,
};
use dioptra_testprograms::{Language, Program, or_skip};
use dioptra_trace_recorder::Everything;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use traces::{
    Event, TREES, alone, as_log, built, by_rules, counted, everything, read, sampled, trace,
};

type Counts = BTreeMap<String, (u64, u64)>;
type Texts<'t> = [(RuleOption, &'t str)];

use RuleOption::{Caller, Depth, Filter, Hide, Notrace, Time, Trigger};

const RULES: &[&Texts<'static>] = &[
    &[(Notrace, "f2")],
    &[(Notrace, "f2;f5"), (Notrace, "f7")],
    &[(Filter, "f3")],
    &[(Filter, "round_of")],
    &[(Filter, "f3;f6"), (Notrace, "f1")],
    &[(Filter, "f[0-3]"), (Notrace, "f[23]"), (Filter, "f7")],
    &[(Depth, "1")],
    &[(Depth, "3")],
    &[(Filter, "f4"), (Depth, "2")],
    &[(Filter, "f4"), (Depth, "1"), (Notrace, "f0")],
    &[(Notrace, "f4"), (Depth, "5")],
    &[(Caller, "f6")],
    &[(Caller, "f6"), (Filter, "f2"), (Depth, "3")],
    &[(Hide, "f3"), (Depth, "3"), (Notrace, "f0")],
    &[(Hide, "f3;f5"), (Depth, "2")],
    &[(Hide, "f3"), (Depth, "4"), (Trigger, "f1@sample=2")],
    &[(Hide, "f3"), (Filter, "f[34]"), (Depth, "2")],
    &[(Filter, "f2@depth=2"), (Notrace, "f6")],
    &[(Trigger, "f2@depth=2"), (Depth, "4")],
    &[(Filter, "f2@sample=3"), (Notrace, "f6")],
    &[
        (Filter, "root"),
        (Filter, "f1@sample=2"),
        (Filter, "f2@sample=2"),
    ],
    &[(Trigger, "f1@sample=2"), (Depth, "3")],
    &[(Trigger, "f5@filter,depth=2"), (Trigger, "f1@notrace")],
    &[
        (Trigger, "f5@trace_off"),
        (Trigger, "f6@trace_on"),
        (Filter, "f[1-6]"),
    ],
];

/// Returns the names and depths of the calls that are shown of a thread's events. Only chosen executions of `chosen`
/// functions were recorded.
fn shown<'n>(
    texts: &Texts<'_>,
    events: &[Event],
    names: &[&'n str],
    chosen: &BTreeSet<String>,
) -> Vec<(bool, &'n str, u32)> {
    replayed(texts, events, names, chosen).0
}

/// Returns the calls that are shown, and the numbers of executions of sampled functions that were counted and chosen.
fn replayed<'n>(
    texts: &Texts<'_>,
    events: &[Event],
    names: &[&'n str],
    chosen: &BTreeSet<String>,
) -> (Vec<(bool, &'n str, u32)>, Counts) {
    let mut rules = Rules::new(MatchStyle::Regex);
    for (option, text) in texts {
        rules.add(*option, text).unwrap();
    }
    let mut compiler = Compiler::new(rules, PlanOptions::default()).unwrap();
    for name in names {
        compiler.add(&FunctionDescription {
            name,
            is_chosen: chosen.contains(*name),
            ..FunctionDescription::default()
        });
    }
    let plan = compiler.plan();
    let mut lane = Lane::new(&plan, 0);
    let mut switch = TraceSwitch::On;
    let mut shown = Vec::new();
    let mut tell = |event| match event {
        Shown::Enter { call, depth, .. } => shown.push((true, call, depth)),
        Shown::Exit { call, depth, .. } => shown.push((false, call, depth)),
    };
    for (time, event) in events.iter().enumerate() {
        match event {
            Event::Entry(name) => {
                let id = names.iter().position(|known| known == name).unwrap();
                let action = plan.action_of(id as u32);
                let effects = lane.enter(&plan, action, switch, names[id], time as u64, &mut tell);
                switch = switch.after(effects);
            }
            Event::Exit(_) | Event::Unwound(_) => lane.exit(&plan, time as u64, &mut tell),
            Event::Discarded(_) => lane.discard(&plan, time as u64, &mut tell),
            Event::Lost(_) => panic!("lost"),
        }
    }
    lane.finish(&plan, events.len() as u64, &mut tell);
    let mut counts = Counts::new();
    for (id, name) in names.iter().enumerate() {
        let sampling = plan.sampling(plan.action_of(id as u32));
        if let Some(sampler) = sampling.and_then(|s| lane.samplers().get(s.slot as usize))
            && sampler.seen() > 0
        {
            counts.insert((*name).to_owned(), (sampler.seen(), sampler.shown()));
        }
    }
    (shown, counts)
}

/// Returns the events of the threads that called any of the functions, in the order in which they began; the program's
/// output; and the functions that were sampled.
fn record(
    command: &[&str],
    names: &[&str],
    texts: Option<&Texts<'_>>,
    folder: &Path,
) -> (Vec<Vec<Event>>, String, BTreeSet<String>) {
    let everything = Everything {
        plain: true,
        plain_libraries: false,
        library_calls: false,
    };
    let (outcome, output) = trace(folder, command, everything, |spec| {
        if let Some(texts) = texts {
            // Only the program's own functions are traced, not those that the compiler links into each program.
            spec.selector = by_rules(Some(&names.join(";")), texts);
        }
    });
    assert_eq!(outcome.status.map(|status| status.exit_code()), Some(0));
    assert_eq!(outcome.ending.lost, 0);
    let is_known = |event: &Event| match event {
        Event::Entry(name) | Event::Exit(name) | Event::Unwound(name) | Event::Discarded(name) => {
            names.contains(&name.as_str())
        }
        Event::Lost(_) => true,
    };
    let streams = read(folder)
        .streams
        .into_values()
        .map(|stream| stream.events.into_iter().filter(is_known).collect())
        .filter(|events: &Vec<Event>| !events.is_empty())
        .collect();
    (streams, output, sampled(folder))
}

fn entries(threads: &[Vec<Event>]) -> usize {
    let is_entry = |event: &&Event| matches!(event, Event::Entry(_));
    threads.iter().flatten().filter(is_entry).count()
}

/// Checks that the same calls are shown of each thread.
fn compare(by_readers: &[Vec<(bool, &str, u32)>], by_both: &[Vec<(bool, &str, u32)>], what: &str) {
    for (readers, both) in by_readers.iter().zip(by_both) {
        let differs = readers.iter().zip(both).position(|(a, b)| a != b);
        if let Some(at) = differs {
            let from = at.saturating_sub(10);
            panic!(
                "{what}: at {at}: {:?} is {:?}",
                &readers[from..(at + 5).min(readers.len())],
                &both[from..(at + 5).min(both.len())]
            );
        }
        assert_eq!(readers.len(), both.len(), "{what}");
    }
    assert_eq!(by_readers.len(), by_both.len(), "{what}");
}

#[test]
fn what_is_left_out_at_run_time_is_what_readers_leave_out() {
    let _turn = alone();
    for (level, flags) in [
        ("-O1", &["-fpatchable-function-entry=5"] as &[&str]),
        ("-O2", &["-pg", "-mfentry"]),
        ("-O2", &[]),
        ("-O1", &["-finstrument-functions"]),
    ] {
        let program = or_skip!(built(
            Language::C,
            "trace-trees",
            &[&[level, "-pthread"], flags]
        ));
        let program = program.to_str().unwrap();
        for (number, texts) in RULES.iter().enumerate() {
            let seed = (number + 1).to_string();
            let command = [program, &seed, "60", "2"];
            let folder = tempfile::tempdir().unwrap();
            let all = record(&command, &TREES, None, folder.path()).0;
            let folder = tempfile::tempdir().unwrap();
            let (some, _, chosen) = record(&command, &TREES, Some(texts), folder.path());
            let what = format!("{level} {flags:?} {texts:?}");
            let none = BTreeSet::new();
            // In all rounds, also behind jumps, `round_of` calls `many`.
            let all_shown: Vec<_> = all
                .iter()
                .flat_map(|e| shown(&[], e, &TREES, &none))
                .collect();
            let many = all_shown.iter().filter(|(_, name, _)| *name == "many");
            assert!(many.clone().all(|(.., depth)| *depth == 2), "{what}");
            assert!(many.count() >= 2 * 60 * 2, "{what}");
            let by_readers: Vec<_> = all
                .iter()
                .map(|events| shown(texts, events, &TREES, &none))
                .collect();
            let by_both: Vec<_> = some
                .iter()
                .map(|events| shown(texts, events, &TREES, &chosen))
                .collect();
            let by_readers: Vec<_> = by_readers.into_iter().filter(|c| !c.is_empty()).collect();
            let by_both: Vec<_> = by_both.into_iter().filter(|c| !c.is_empty()).collect();
            assert!(entries(&all) > 500, "{what}");
            compare(&by_readers, &by_both, &what);
            let simple = [Filter, Notrace, Depth, Hide];
            let filters = |(option, _): &(RuleOption, &str)| *option == Filter;
            let hides = |(option, _): &(RuleOption, &str)| *option == Hide;
            if !(texts.iter().any(filters) && texts.iter().any(hides))
                && texts
                    .iter()
                    .all(|(option, text)| simple.contains(option) && !text.contains('@'))
            {
                let shown = by_both.iter().flatten().filter(|(is_entry, ..)| *is_entry);
                // Tracing does not begin before a thread's first call was looked at.
                assert!(entries(&some) <= shown.count() + some.len(), "{what}");
            }
        }
    }
}

/// A source of numbers without an order.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % limit
    }

    fn function(&mut self) -> String {
        match self.below(9) {
            8 => "f[135]".to_owned(),
            number => format!("f{number}"),
        }
    }

    /// Returns rules of which at least one samples.
    fn rules(&mut self) -> Vec<(RuleOption, String)> {
        let interval = 1 + self.below(6);
        let function = self.function();
        let mut rules = vec![match self.below(2) {
            0 => (Filter, format!("{function}@sample={interval}")),
            _ => (Trigger, format!("{function}@sample={interval}")),
        }];
        for _ in 0..self.below(4) {
            let (function, number) = (self.function(), 1 + self.below(4));
            rules.push(match self.below(16) {
                0..3 => (Filter, function),
                3..5 => (Filter, format!("{function}@sample={number}")),
                5 => (Filter, format!("{function}@sample={number},depth=2")),
                6..9 => (Trigger, format!("{function}@sample={number}")),
                9..11 => (Notrace, function),
                11 => (Depth, (2 + number).to_string()),
                12 => (Caller, function),
                13 => (Hide, function),
                14 => (Trigger, format!("{function}@depth={number}")),
                _ => (Trigger, format!("{function}@trace_off")),
            });
        }
        if self.below(3) == 0 {
            rules.push((Filter, "root".to_owned()));
        }
        rules
    }
}

/// Returns the sums of all threads' counts of these functions.
fn sum(counts: impl Iterator<Item = Counts>, of: &BTreeSet<String>) -> Counts {
    let mut sums = Counts::new();
    for (name, (seen, shown)) in counts.flatten().filter(|(name, _)| of.contains(name)) {
        let sum = sums.entry(name).or_default();
        *sum = (sum.0 + seen, sum.1 + shown);
    }
    sums
}

#[test]
fn random_rules_that_sample_show_the_same_at_run_time_and_at_reading() {
    let _turn = alone();
    let mut numbers = Numbers(7);
    let (mut sampling, mut fewer, mut deep) = (0, 0, 0);
    for (level, flags) in [
        ("-O1", &["-fpatchable-function-entry=5"] as &[&str]),
        ("-O2", &[]),
        ("-O0", &["-pg", "-mfentry"]),
        ("-O0", &["-finstrument-functions"]),
        ("-O2", &["-finstrument-functions"]),
    ] {
        let program = or_skip!(built(
            Language::C,
            "trace-trees",
            &[&[level, "-pthread"], flags]
        ));
        let program = program.to_str().unwrap();
        for seed in 0..6 {
            let seed = seed.to_string();
            let command = [program, &seed, "40", "3"];
            let folder = tempfile::tempdir().unwrap();
            let (all, output, none) = record(&command, &TREES, None, folder.path());
            for _ in 0..6 {
                let rules = numbers.rules();
                let texts: Vec<(RuleOption, &str)> =
                    rules.iter().map(|(o, t)| (*o, t.as_str())).collect();
                let what = format!("{level} {flags:?}, seed {seed}: {texts:?}");
                let mut parsed = Rules::new(MatchStyle::Regex);
                let sound = texts.iter().all(|(o, t)| parsed.add(*o, t).is_ok());
                if !sound || Compiler::new(parsed, PlanOptions::default()).is_err() {
                    continue;
                }
                let folder = tempfile::tempdir().unwrap();
                let (some, same, chosen) = record(&command, &TREES, Some(&texts), folder.path());
                assert_eq!(output, same, "{what}");
                let by_readers = all.iter().map(|e| shown(&texts, e, &TREES, &none));
                let by_both = some.iter().map(|e| shown(&texts, e, &TREES, &chosen));
                let by_readers: Vec<_> = by_readers.filter(|calls| !calls.is_empty()).collect();
                let by_both: Vec<_> = by_both.filter(|calls| !calls.is_empty()).collect();
                compare(&by_readers, &by_both, &what);
                if !chosen.is_empty() {
                    let by_readers = all.iter().map(|e| replayed(&texts, e, &TREES, &none).1);
                    assert_eq!(counted(folder.path()), sum(by_readers, &chosen), "{what}");
                }
                let limits = |(_, text): &(RuleOption, &str)| text.contains("depth=");
                sampling += usize::from(!chosen.is_empty());
                deep += usize::from(!chosen.is_empty() && texts.iter().any(limits));
                fewer += usize::from(entries(&some) < entries(&all));
            }
        }
    }
    assert!(
        sampling > 60 && fewer > 60 && deep > 5,
        "{sampling} {fewer} {deep}"
    );
}

#[test]
fn a_seed_repeats_the_random_choices() {
    let _turn = alone();
    let program = or_skip!(built(
        Language::C,
        "trace-trees",
        &[&["-O1", "-pthread", "-fpatchable-function-entry=5"]]
    ));
    let command = [program.to_str().unwrap(), "1", "60", "1"];
    let run = |seed: u64| {
        let folder = tempfile::tempdir().unwrap();
        trace(folder.path(), &command, everything(false), |spec| {
            let texts = [(Trigger, "f[1-6]@sample=1/4")];
            spec.selector = by_rules(Some(&TREES.join(";")), &texts);
            spec.seed = seed;
        });
        let streams = read(folder.path()).streams.into_values();
        let events: Vec<Vec<Event>> = streams.map(|stream| stream.events).collect();
        (events, counted(folder.path()))
    };
    let first = run(5);
    assert!(
        first
            .1
            .values()
            .any(|(seen, shown)| *shown > 3 && shown * 2 < *seen)
    );
    assert_eq!(run(5), first);
    let other = run(6);
    let seen = |counts: &Counts| counts.values().map(|(seen, _)| *seen).sum::<u64>();
    assert_eq!(seen(&other.1), seen(&first.1));
    assert_ne!(other.0, first.0);
}

#[test]
fn short_calls_are_taken_back() {
    let _turn = alone();
    let program = or_skip!(built(
        Language::C,
        "trace-trees",
        &[&["-O1", "-pthread", "-fpatchable-function-entry=5"]]
    ));
    let command = [program.to_str().unwrap(), "1", "200", "1"];
    let folder = tempfile::tempdir().unwrap();
    let all = record(&command, &TREES, None, folder.path()).0;
    let folder = tempfile::tempdir().unwrap();
    // No machine is so slow. Calls that began in slow paths or were left by jumps stay.
    let some = record(&command, &TREES, Some(&[(Time, "1h")]), folder.path()).0;
    assert!(
        entries(&some) * 4 < entries(&all),
        "{} of {}",
        entries(&some),
        entries(&all)
    );
    let folder = tempfile::tempdir().unwrap();
    let same = record(&command, &TREES, Some(&[(Time, "1ns")]), folder.path()).0;
    assert_eq!(same, all);
}

/// Exceptions, jumps out of handlers, destructors that call: programs that keep a log of their own.
#[test]
fn hard_control_flow_leaves_hidden_calls_too() {
    const HARD: &[(&str, &Texts<'static>)] = &[
        ("exceptions", &[(Notrace, "between")]),
        ("exceptions", &[(Notrace, "thrower")]),
        ("exceptions", &[(Filter, "between")]),
        ("exceptions", &[(Filter, "rethrower"), (Notrace, "thrower")]),
        ("exceptions", &[(Depth, "2")]),
        ("exceptions", &[(Filter, "catcher"), (Depth, "2")]),
        ("jumps", &[(Notrace, "leaf")]),
        ("jumps", &[(Depth, "2")]),
        ("signals", &[(Notrace, "leaf")]),
        ("exceptions", &[(Filter, "between@sample=2")]),
        ("exceptions", &[(Filter, "catcher@sample=3")]),
        (
            "exceptions",
            &[(Filter, "catcher"), (Filter, "thrower@sample=2")],
        ),
        ("exceptions", &[(Trigger, "thrower@sample=2")]),
        (
            "exceptions",
            &[(Trigger, "between@sample=3"), (Notrace, "leaf")],
        ),
        ("jumps", &[(Filter, "jumps"), (Filter, "leaf@sample=2")]),
        ("jumps", &[(Trigger, "leaf@sample=3")]),
        ("signals", &[(Trigger, "leaf@sample=2")]),
        ("above", &[(Notrace, "interrupted")]),
        ("above", &[(Filter, "interrupted"), (Depth, "1")]),
        ("above", &[(Filter, "interrupted@sample=2")]),
    ];
    let _turn = alone();
    for level in ["-O0", "-O2"] {
        for flags in [
            &["-fpatchable-function-entry=5"] as &[&str],
            &[],
            &["-finstrument-functions"],
        ] {
            let program = or_skip!(built(
                Language::Cpp,
                "trace-hard",
                &[&[level, "-pthread", "-fno-optimize-sibling-calls"], flags]
            ));
            for (case, texts) in HARD {
                let what = format!("{case} {level} {flags:?} {texts:?}");
                let command = [program.to_str().unwrap(), case, "20"];
                let folder = tempfile::tempdir().unwrap();
                let (_, log, none) = record(&command, &[case], None, folder.path());
                let names: BTreeSet<&str> = log.lines().map(|line| &line[1..]).collect();
                let names: Vec<&str> = names.into_iter().collect();
                let all = traced(folder.path(), case, &names);
                let mut told: Vec<&str> = log.lines().collect();
                let mut seen = as_log(&all, &names);
                if flags.contains(&"-finstrument-functions") {
                    // Functions that an exception leaves report their end to the tracer.
                    told.retain(|line| line.starts_with('+'));
                    seen.retain(|line| line.starts_with('+'));
                }
                assert_eq!(seen, told, "{what}");
                let folder = tempfile::tempdir().unwrap();
                let (some, same, chosen) = record(&command, &names, Some(texts), folder.path());
                assert_eq!(same, log, "{what}");
                let by_readers = shown(texts, &all, &names, &none);
                let some_events = some.first().map_or(&[][..], Vec::as_slice);
                let by_both = shown(texts, some_events, &names, &chosen);
                assert_eq!(by_readers, by_both, "{what}");
                assert!(some.iter().flatten().count() < all.len(), "{what}");
            }
        }
    }
}

/// Functions whose frames grow end when they report their end: they have neither the stack pointer nor the frame of
/// their beginning.
#[test]
fn frames_that_grow_are_left_when_their_functions_end() {
    const RULES: [&Texts<'static>; 5] = [
        &[(Depth, "2")],
        &[(Notrace, "leaf")],
        &[(Filter, "grower")],
        &[(Trigger, "grower@sample=2")],
        &[(Filter, "grown"), (Filter, "grower@sample=3")],
    ];
    let names = ["grown", "grower", "leaf"];
    let _turn = alone();
    for (level, compiler) in [("-O0", "g++"), ("-O2", "g++"), ("-O2", "clang++")] {
        let program = Program::new(Language::Cpp, "trace-hard")
            .no_flags()
            .compiler(compiler)
            .flags([level, "-g", "-pthread", "-finstrument-functions"])
            .build();
        let program = or_skip!(program);
        let command = [program.to_str().unwrap(), "grown", "60"];
        let folder = tempfile::tempdir().unwrap();
        record(&command, &names, None, folder.path());
        let all = traced(folder.path(), "grown", &names);
        for texts in RULES {
            let what = format!("{compiler} {level} {texts:?}");
            let folder = tempfile::tempdir().unwrap();
            let (some, _, chosen) = record(&command, &names, Some(texts), folder.path());
            let some: Vec<Event> = some.into_iter().flatten().collect();
            let is_jump = |event: &&Event| matches!(event, Event::Unwound(_));
            assert_eq!(some.iter().find(is_jump), None, "{what}");
            let by_readers = shown(texts, &all, &names, &BTreeSet::new());
            assert!(by_readers.len() > 30, "{what}");
            assert_eq!(shown(texts, &some, &names, &chosen), by_readers, "{what}");
            assert!(some.len() < all.len(), "{what}");
        }
    }
}

/// Returns the events of these functions in the thread that called `case`.
fn traced(folder: &Path, case: &str, names: &[&str]) -> Vec<Event> {
    let trace = read(folder);
    let entry = Event::Entry(case.to_owned());
    let stream = trace
        .streams
        .into_values()
        .find(|s| s.events.contains(&entry));
    let is_known = |event: &Event| match event {
        Event::Entry(name) | Event::Exit(name) | Event::Unwound(name) | Event::Discarded(name) => {
            names.contains(&name.as_str())
        }
        Event::Lost(_) => true,
    };
    let events = stream.map(|stream| stream.events).unwrap_or_default();
    events.into_iter().filter(is_known).collect()
}
