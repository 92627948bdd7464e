//! Counts of sampled functions belong to the thread that counted. Children that are forked anywhere, also in the middle
//! of the tracer's hooks, do not change their parent's counts.

#![cfg(all(target_arch = "x86_64", target_env = "gnu"))]

mod traces;

use dioptra_filters::{MatchStyle, RuleOption};
use dioptra_testprograms::{Language, Program, or_skip};
use dioptra_trace_recorder::{Choice, LibraryCalls, PatchPatterns, RuleSelector};
use std::path::Path;
use traces::{Event, alone, everything, read, trace};

/// Returns for each stream its number and the counts of the only function that is sampled: executions seen, and
/// executions chosen.
fn counts(folder: &Path) -> Vec<(u64, u64, u64)> {
    let journal = std::fs::read_to_string(folder.join("trace/journal.jsonl")).unwrap();
    let of_line = |line: &str| {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        let counted = value.get("counted")?;
        let function = counted["functions"].as_array()?.first()?;
        let number = |value: &serde_json::Value| value.as_u64().unwrap();
        let (seen, shown) = (number(&function["seen"]), number(&function["shown"]));
        Some((number(&counted["stream"]), seen, shown))
    };
    journal.lines().filter_map(of_line).collect()
}

#[test]
fn children_that_are_forked_anywhere_count_for_themselves() {
    const STEPPED: u64 = 4;
    const CALLS: u64 = 10 + STEPPED + 100;
    let _turn = alone();
    for (flags, plain) in [
        (&["-fpatchable-function-entry=5"] as &[&str], false),
        (&[], true),
        (&["-finstrument-functions"], false),
    ] {
        let program = or_skip!(
            Program::new(Language::C, "trace-stepped")
                .no_flags()
                .flags(["-O1", "-g"])
                .flags(flags.iter().copied())
                .build()
        );
        for (option, rule) in [
            (RuleOption::Filter, "f@sample=2"),
            (RuleOption::Trigger, "f@sample=2"),
        ] {
            let what = format!("{flags:?} {rule} {option:?}");
            let mut patches = PatchPatterns::new(MatchStyle::Regex);
            // Functions that call the tracer themselves are traced as well, unless they are left out first.
            patches.unpatch(".").unwrap();
            patches.patch("f").unwrap();
            let choice = Choice {
                patches,
                rules: vec![(option, rule.to_owned())],
                style: MatchStyle::Regex,
                library_calls: LibraryCalls::None,
                typed_values: false,
            };
            let folder = tempfile::tempdir().unwrap();
            let stepped = STEPPED.to_string();
            let command = [program.to_str().unwrap(), "10", &stepped, "100"];
            let (outcome, output) = trace(folder.path(), &command, everything(plain), |spec| {
                spec.selector = Box::new(RuleSelector::new(choice).unwrap());
            });
            assert_eq!(
                outcome.status.map(|status| status.exit_code()),
                Some(0),
                "{what}: {output}"
            );
            let children: u64 = output.trim().parse().unwrap();
            assert!(children > STEPPED * 20, "{what}: {children}");
            let counts = counts(folder.path());
            let streams = read(folder.path()).streams;
            let (number, main) = streams.iter().find(|(_, s)| s.parent == 0).unwrap();
            let (_, seen, shown) = *counts
                .iter()
                .find(|(stream, ..)| *stream == u64::from(*number))
                .unwrap();
            let is_entry = |event: &&Event| matches!(event, Event::Entry(_));
            let recorded = main.events.iter().filter(is_entry).count() as u64;
            assert_eq!((seen, shown), (CALLS, CALLS / 2), "{what}");
            assert_eq!(recorded, shown, "{what}");
            // Each child was forked in one call.
            let others = counts.iter().filter(|(s, ..)| *s != u64::from(*number));
            for (_, seen, shown) in others {
                assert!(*seen <= 1 && *shown == 0, "{what}: {seen} {shown}");
            }
        }
    }
}
