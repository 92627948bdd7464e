//! Any text, as an option's: rules whose plan holds, or an error that points into the text.
//!
//! The first character chooses the option, the second one the style of matching.
#![no_main]

use dioptra_filters::{
    Compiler, FunctionDescription, Lane, MatchStyle, PlanOptions, RuleOption, Rules, TraceSwitch,
};
use libfuzzer_sys::fuzz_target;

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

fuzz_target!(|text: &str| {
    let mut chars = text.chars();
    let (Some(option), Some(style)) = (chars.next(), chars.next()) else {
        return;
    };
    let text = chars.as_str();
    let mut rules = Rules::new(STYLES[style as usize % STYLES.len()]);
    if let Err(error) = rules.add(OPTIONS[option as usize % OPTIONS.len()], text) {
        let letters = text.chars().count();
        assert!(error.column >= 1 && error.column <= letters + 1);
        assert!(error.width >= 1 && error.column + error.width <= letters + 2);
        let _ = error.to_string();
        assert!(rules.is_empty());
        return;
    }
    let Ok(mut compiler) = Compiler::new(rules, PlanOptions::default()) else {
        return;
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
    let plan = compiler.plan();
    let mut lane = Lane::new(&plan, 0);
    for time in 0..20 {
        let action = plan.action_of(time as u32 % 5);
        lane.enter(&plan, action, TraceSwitch::On, (), time, &mut |_| {});
        if time % 3 == 0 {
            lane.exit(&plan, time, &mut |_| {});
        }
    }
    lane.finish(&plan, 30, &mut |_| {});
});
