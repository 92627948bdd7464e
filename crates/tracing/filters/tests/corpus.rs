//! The saved inputs of the fuzz target, again, and random texts: `fuzz/fuzz_targets/rules.rs` asks the same.

use dioptra_filters::{
    Compiler, FunctionDescription, Lane, MatchStyle, Plan, PlanOptions, RuleOption, Rules,
    TraceSwitch,
};
use proptest::prelude::*;
use std::path::Path;

const OPTIONS: [RuleOption; 9] = [
    RuleOption::Filter,
    RuleOption::Notrace,
    RuleOption::Trigger,
    RuleOption::Caller,
    RuleOption::Hide,
    RuleOption::Depth,
    RuleOption::Time,
    RuleOption::Size,
    RuleOption::Location,
];
const STYLES: [MatchStyle; 3] = [MatchStyle::Regex, MatchStyle::Glob, MatchStyle::Simple];

/// Runs calls through a plan for this number of functions.
fn run(plan: &Plan, functions: usize) {
    // Each function has at most one counter of each kind.
    assert!(plan.tail_count() <= plan.sampler_count());
    assert!(plan.sampler_count() <= functions);
    let mut lane = Lane::new(plan, 0);
    for time in 0..40 {
        let action = plan.action_of(time as u32 % 7);
        let _ = plan.probe(action);
        lane.enter(plan, action, TraceSwitch::On, (), time, &mut |_| {});
        if time % 3 == 0 {
            lane.exit(plan, time, &mut |_| {});
        }
    }
    lane.finish(plan, 50, &mut |_| {});
}

/// Does as the fuzz target does. Returns true if the text is a rule that a plan can follow.
fn take(text: &str) -> bool {
    let mut chars = text.chars();
    let (Some(option), Some(style)) = (chars.next(), chars.next()) else {
        return false;
    };
    let text = chars.as_str();
    let mut rules = Rules::new(STYLES[style as usize % STYLES.len()]);
    if let Err(error) = rules.add(OPTIONS[option as usize % OPTIONS.len()], text) {
        let letters = text.chars().count();
        assert!(
            error.column >= 1 && error.column <= letters + 1,
            "{text:?}: {error}"
        );
        assert!(
            error.width >= 1 && error.column + error.width <= letters + 2,
            "{text:?}: {error}"
        );
        assert!(rules.is_empty());
        return false;
    }
    let Ok(mut compiler) = Compiler::new(rules, PlanOptions::default()) else {
        return false;
    };
    let names = ["main", "ns::a(int)", "operator+(V, V)", text];
    for name in names {
        compiler.add(&FunctionDescription {
            name,
            linkage: Some("_Zmain"),
            module: "/lib/libc.so",
            size: Some(20),
            source: Some("src/a.c"),
            ..FunctionDescription::default()
        });
    }
    let _ = compiler.warnings(names);
    run(&compiler.plan(), names.len());
    true
}

fn saved() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/rules");
    let texts: Vec<String> = std::fs::read_dir(&folder)
        .expect("a corpus")
        .filter_map(|entry| {
            let bytes = std::fs::read(entry.expect("an entry").path()).expect("an input");
            String::from_utf8(bytes).ok()
        })
        .collect();
    assert!(texts.len() > 20, "{}", folder.display());
    texts
}

#[test]
fn saved_texts_are_rules_or_point_at_their_error() {
    let plans = saved().iter().filter(|text| take(text)).count();
    assert!(plans >= 15, "{plans}");
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_text_is_taken(text in "[H-P][H-J][ -~µ]{0,40}") {
        take(&text);
    }

    #[test]
    fn texts_of_the_grammars_words_are_taken(
        option in "[H-P][H-J]",
        words in prop::collection::vec(
            prop::sample::select(vec![
                "a", "@", ",", ";", "!", "=", "sample", "1/", "2", "%", "p99", "/s", "depth", "time", "us", "filter",
                "if:", "arg1", "==", "0x", "hide", ".so", "*", "[", "operator", "+", "main", "color", "red", " ", "é",
            ]),
            0..12,
        ),
    ) {
        take(&format!("{option}{}", words.concat()));
    }
}
