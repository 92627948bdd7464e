//! What is left out while a program runs is what readers would leave out: under the same rules, a trace that was
//! recorded with them shows the same as one of everything.

#![cfg(all(target_arch = "x86_64", target_env = "gnu"))]

mod traces;

use dioptra_filters::{
    Compiler, Event as Shown, Function, Lane, MatchStyle, Plan, PlanOptions, RuleOption, Rules,
    Switch,
};
use dioptra_recorder::trace::{Choice, Everything, LibraryCalls, PatchPatterns, RuleSelector};
use dioptra_testprograms::{Language, Program, or_skip};
use std::path::Path;
use traces::{Event, alone, read, trace};

type Texts = [(RuleOption, &'static str)];

use RuleOption::{Caller, Depth, Filter, Hide, Notrace, Time, Trigger};

const RULES: &[&Texts] = &[
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

const NAMES: [&str; 11] = [
    "main", "root", "round_of", "f0", "f1", "f2", "f3", "f4", "f5", "f6", "f7",
];

/// What is shown of a thread's events: names and depths of calls.
fn shown(texts: &Texts, events: &[Event]) -> Vec<(bool, &'static str, u32)> {
    let mut rules = Rules::new(MatchStyle::Regex);
    for (option, text) in texts {
        rules.add(*option, text).unwrap();
    }
    let mut compiler = Compiler::new(rules, PlanOptions::default()).unwrap();
    for name in NAMES {
        compiler.add(&Function {
            name,
            ..Function::default()
        });
    }
    let words = compiler.plan();
    let plan = Plan::from_words(&words).unwrap();
    let mut lane = Lane::new(&plan, 0);
    let mut switch = Switch::On;
    let mut shown = Vec::new();
    let mut tell = |event| match event {
        Shown::Enter { call, depth, .. } => shown.push((true, call, depth)),
        Shown::Exit { call, depth, .. } => shown.push((false, call, depth)),
    };
    for (time, event) in events.iter().enumerate() {
        match event {
            Event::Entry(name) => {
                let id = NAMES.iter().position(|known| known == name).unwrap();
                let action = plan.action_of(id as u32);
                let effects = lane.enter(&plan, action, switch, NAMES[id], time as u64, &mut tell);
                switch = switch.after(effects);
            }
            Event::Exit(_) | Event::Unwound(_) => lane.exit(&plan, time as u64, &mut tell),
            Event::Lost(_) => panic!("lost"),
        }
    }
    lane.finish(&plan, events.len() as u64, &mut tell);
    shown
}

/// The threads' events, in the order in which they ran.
fn record(command: &[&str], texts: Option<&Texts>, folder: &Path) -> Vec<Vec<Event>> {
    let everything = Everything {
        plain: true,
        plain_libraries: false,
        library_calls: false,
    };
    let (outcome, _) = trace(folder, command, everything, |spec| {
        if let Some(texts) = texts {
            let mut patches = PatchPatterns::new(MatchStyle::Regex);
            // The program's functions alone: not those of what the compiler links into each program.
            patches.patch("^main$;^root$;^round_of$;^f[0-7]$").unwrap();
            let choice = Choice {
                patches,
                rules: texts.iter().map(|(o, t)| (*o, (*t).to_owned())).collect(),
                style: MatchStyle::Regex,
                library_calls: LibraryCalls::None,
            };
            spec.selector = Box::new(RuleSelector::new(choice).unwrap());
        }
    });
    assert_eq!(outcome.status.map(|status| status.exit_code()), Some(0));
    assert_eq!(outcome.ending.lost, 0);
    let is_known = |event: &Event| match event {
        Event::Entry(name) | Event::Exit(name) | Event::Unwound(name) => {
            NAMES.contains(&name.as_str())
        }
        Event::Lost(_) => true,
    };
    read(folder)
        .streams
        .into_values()
        .map(|stream| stream.events.into_iter().filter(is_known).collect())
        .filter(|events: &Vec<Event>| {
            // Not the main thread, and not the shell.
            let first = events.first();
            first.is_some() && first != Some(&Event::Entry("main".to_owned()))
        })
        .collect()
}

fn entries(threads: &[Vec<Event>]) -> usize {
    let is_entry = |event: &&Event| matches!(event, Event::Entry(_));
    threads.iter().flatten().filter(is_entry).count()
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
        let program = or_skip!(
            Program::new(Language::C, "trace-trees")
                .no_flags()
                .flags([level, "-g", "-pthread"])
                .flags(flags.iter().copied())
                .build()
        );
        let program = program.to_str().unwrap();
        for (number, texts) in RULES.iter().enumerate() {
            let seed = (number + 1).to_string();
            let command = [program, &seed, "60", "2"];
            let folder = tempfile::tempdir().unwrap();
            let all = record(&command, None, folder.path());
            let folder = tempfile::tempdir().unwrap();
            let some = record(&command, Some(texts), folder.path());
            let what = format!("{level} {flags:?} {texts:?}");
            let by_readers: Vec<_> = all.iter().map(|events| shown(texts, events)).collect();
            let by_both: Vec<_> = some.iter().map(|events| shown(texts, events)).collect();
            let by_readers: Vec<_> = by_readers.into_iter().filter(|c| !c.is_empty()).collect();
            let by_both: Vec<_> = by_both.into_iter().filter(|c| !c.is_empty()).collect();
            assert!(entries(&all) > 500, "{what}");
            for (readers, both) in by_readers.iter().zip(&by_both) {
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
            // Programs that call hooks themselves record what is hidden, too.
            let simple = [Filter, Notrace, Depth];
            if texts
                .iter()
                .all(|(option, text)| simple.contains(option) && !text.contains('@'))
                && !flags.contains(&"-finstrument-functions")
            {
                let shown = by_both.iter().flatten().filter(|(is_entry, ..)| *is_entry);
                // Tracing does not begin before a thread's first call was looked at.
                assert!(entries(&some) <= shown.count() + some.len(), "{what}");
            }
        }
    }
}

#[test]
fn short_calls_are_taken_back() {
    let _turn = alone();
    let program = or_skip!(
        Program::new(Language::C, "trace-trees")
            .no_flags()
            .flags(["-O1", "-g", "-pthread", "-fpatchable-function-entry=5"])
            .build()
    );
    let command = [program.to_str().unwrap(), "1", "200", "1"];
    let folder = tempfile::tempdir().unwrap();
    let all = record(&command, None, folder.path());
    let folder = tempfile::tempdir().unwrap();
    // No machine is so slow; what began in slow paths or was left by jumps stays.
    let some = record(&command, Some(&[(Time, "1h")]), folder.path());
    assert!(
        entries(&some) * 4 < entries(&all),
        "{} of {}",
        entries(&some),
        entries(&all)
    );
    let folder = tempfile::tempdir().unwrap();
    let same = record(&command, Some(&[(Time, "1ns")]), folder.path());
    assert_eq!(same, all);
}
