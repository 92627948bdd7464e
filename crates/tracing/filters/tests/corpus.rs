//! The saved inputs of the fuzz target, again: what `fuzz/fuzz_targets/rules.rs` asks of any text. Damaged plans, too.

use dioptra_filters::{
    Compiler, Function, Lane, MatchStyle, Plan, PlanError, PlanOptions, RuleOption, Rules, Switch,
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

/// Runs calls through a plan, whatever it says.
fn run(words: &[u64]) {
    let Ok(plan) = Plan::from_words(words) else {
        return;
    };
    // However damaged, a plan cannot ask for much memory.
    assert!(plan.sampler_count() + plan.tail_count() < words.len());
    let mut lane = Lane::new(&plan, 0);
    for time in 0..40 {
        let action = plan.action_of(time as u32 % 7);
        let _ = plan.site_need(action);
        lane.enter(&plan, action, Switch::On, (), time, &mut |_| {});
        if time % 3 == 0 {
            lane.exit(&plan, time, &mut |_| {});
        }
    }
    lane.finish(&plan, 50, &mut |_| {});
}

/// What the fuzz target does; the words of the plan, if there is one.
fn take(text: &str) -> Option<Vec<u64>> {
    let mut chars = text.chars();
    let (option, style) = (chars.next()?, chars.next()?);
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
        return None;
    }
    let mut compiler = Compiler::new(rules, PlanOptions::default()).ok()?;
    let names = ["main", "ns::a(int)", "operator+(V, V)", text];
    for name in names {
        compiler.add(&Function {
            name,
            linkage: Some("_Zmain"),
            module: "/lib/libc.so",
            size: Some(20),
            source: Some("src/a.c"),
            ..Function::default()
        });
    }
    let _ = compiler.warnings(names);
    let words = compiler.plan();
    assert!(Plan::from_words(&words).is_ok(), "{text:?}");
    run(&words);
    Some(words)
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
    let plans = saved().iter().filter_map(|text| take(text)).count();
    assert!(plans >= 15, "{plans}");
}

#[test]
fn cut_and_foreign_plans_are_refused() {
    let words = take("HHmain@sample=2;a@sample=p50").expect("a plan");
    for end in 0..words.len() {
        assert_eq!(
            Plan::from_words(&words[..end]).err(),
            Some(PlanError::Short)
        );
    }
    let mut foreign = words.clone();
    foreign[0] += 1;
    assert_eq!(Plan::from_words(&foreign).err(), Some(PlanError::Version));
    // The first function has an action that is not there.
    let mut wrong = words.clone();
    let functions = wrong.len() - 2;
    wrong[functions] = u64::MAX;
    assert_eq!(Plan::from_words(&wrong).err(), Some(PlanError::Index));
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

    #[test]
    fn damaged_plans_do_no_harm(
        place in any::<prop::sample::Index>(),
        bits in any::<u64>(),
        keep in any::<bool>(),
    ) {
        let mut words = take("HHmain@sample=2;a@sample=p50;operator+@depth=2,time=3").expect("a plan");
        let place = place.index(words.len());
        words[place] = if keep { words[place] ^ (1 << (bits % 64)) } else { bits };
        run(&words);
    }
}
