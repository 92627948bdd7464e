//! Random trees and rules: the state machine and the definition agree.

mod calls;
mod model;

use calls::{Call, Step, walk};
use dioptra_filters::{
    Compiler, Event, FunctionDescription, Lane, MatchStyle, Plan, PlanOptions, Probe, RuleOption,
    Rules, TraceSwitch,
};
use model::{Asked, Sample, Spec};
use proptest::prelude::*;

const FUNCTIONS: usize = 6;

fn name(function: usize) -> String {
    format!("f{function}")
}

/// Random trees with times that grow.
fn trees() -> impl Strategy<Value = Vec<Call>> {
    // Each step opens a call of a function or closes one, and takes some time.
    prop::collection::vec((0..FUNCTIONS + 4, 0..30_u64), 0..60).prop_map(|steps| {
        let mut open: Vec<Call> = Vec::new();
        let mut roots = Vec::new();
        let mut now = 0;
        let close = |open: &mut Vec<Call>, roots: &mut Vec<Call>, now| {
            if let Some(mut call) = open.pop() {
                call.end = now;
                open.last_mut()
                    .map_or(roots, |caller| &mut caller.below)
                    .push(call);
            }
        };
        for (step, time) in steps {
            now += time;
            if step < FUNCTIONS {
                open.push(Call {
                    name: name(step),
                    start: now,
                    end: 0,
                    below: Vec::new(),
                });
            } else {
                close(&mut open, &mut roots, now);
            }
        }
        while !open.is_empty() {
            now += 1;
            close(&mut open, &mut roots, now);
        }
        roots
    })
}

fn rarely<T: Clone + std::fmt::Debug>(
    strategy: impl Strategy<Value = T>,
) -> impl Strategy<Value = Option<T>> {
    prop::option::weighted(0.2, strategy)
}

fn specs() -> impl Strategy<Value = Spec> {
    let sample = prop_oneof![
        (1..4_u64).prop_map(Sample::Every),
        (1..80_u64).prop_map(Sample::Period),
        prop::sample::select(vec![5_000, 9_000]).prop_map(Sample::Percentile),
    ];
    let settings = (
        rarely(1..4_u32),
        rarely(0..60_u64),
        rarely(0..60_u64),
        prop::option::weighted(0.4, sample),
    );
    (0..10_u8, prop::bits::u8::ANY, 0..14_u8, settings).prop_map(
        |(mode, bits, switch, (depth, time, size, sample))| {
            if mode == 0 {
                return Spec {
                    notrace: true,
                    ..Spec::default()
                };
            }
            let filter = mode < 4;
            Spec {
                filter,
                notrace: false,
                // Contradictions are errors.
                hide: bits & 3 == 0 && (sample.is_none() || filter),
                caller: bits & 0b1110_0000 == 0,
                trace: bits & 12 == 0,
                on: switch == 0,
                off: switch == 1,
                finish: switch == 2,
                depth,
                time,
                size,
                sample,
            }
        },
    )
}

fn asked() -> impl Strategy<Value = Asked> {
    let functions = prop::collection::btree_map((0..FUNCTIONS).prop_map(name), specs(), 0..4);
    (
        functions,
        rarely(1..4_u32),
        rarely(0..60_u64),
        rarely(0..60_u64),
    )
        .prop_map(|(functions, depth, time, size)| Asked {
            functions,
            // The last function has none.
            sizes: (1..FUNCTIONS)
                .map(|f| (name(f - 1), 10 * f as u64))
                .collect(),
            depth,
            time,
            size,
        })
}

/// The options that ask for it.
fn rules(asked: &Asked) -> Rules {
    let mut rules = Rules::new(MatchStyle::Regex);
    let mut add = |option, text: &str| {
        rules
            .add(option, text)
            .unwrap_or_else(|error| panic!("{error}"))
    };
    for (name, spec) in &asked.functions {
        let mut actions = Vec::new();
        for (word, is_asked) in [
            ("filter", spec.filter),
            ("notrace", spec.notrace),
            ("hide", spec.hide),
            ("caller", spec.caller),
            ("trace", spec.trace),
            ("trace_on", spec.on),
            ("trace_off", spec.off),
            ("finish", spec.finish),
        ] {
            if is_asked {
                actions.push(word.to_owned());
            }
        }
        actions.extend(spec.depth.map(|depth| format!("depth={depth}")));
        actions.extend(spec.time.map(|time| format!("time={time}ns")));
        actions.extend(spec.size.map(|size| format!("size={size}")));
        actions.extend(spec.sample.map(|sample| match sample {
            Sample::Every(interval) => format!("sample={interval}"),
            Sample::Period(period) => format!("sample={:.9}/s", 1e9 / period as f64),
            Sample::Percentile(p) => format!("sample=p{}", p as f64 / 100.0),
        }));
        if !actions.is_empty() {
            add(
                RuleOption::Trigger,
                &format!("{name}@{}", actions.join(",")),
            );
        }
    }
    for (option, value) in [
        (RuleOption::Depth, asked.depth.map(u64::from)),
        (RuleOption::Time, asked.time),
        (RuleOption::Size, asked.size),
    ] {
        if let Some(value) = value {
            add(option, &value.to_string());
        }
    }
    rules
}

fn plan(asked: &Asked) -> Plan {
    let mut compiler = Compiler::new(rules(asked), PlanOptions::default()).unwrap();
    for function in 0..FUNCTIONS {
        let name = name(function);
        compiler.add(&FunctionDescription {
            name: &name,
            module: "prog",
            size: asked.sizes.get(&name).copied(),
            ..FunctionDescription::default()
        });
    }
    compiler.plan()
}

fn check(asked: &Asked, calls: &[Call]) -> Result<(), TestCaseError> {
    let names: Vec<String> = (0..FUNCTIONS).map(name).collect();
    let plan = plan(asked);
    let expected = model::filter(asked, calls);

    let left = calls::filter(calls, &names, &plan);
    prop_assert_eq!(&left.calls, &expected.calls);
    prop_assert_eq!(&left.weights, &expected.weights);
    let sampled: Vec<(u64, u64)> = asked
        .functions
        .iter()
        .filter(|(_, spec)| spec.sample.is_some())
        .map(|(name, _)| expected.counted.get(name).copied().unwrap_or_default())
        .collect();
    prop_assert_eq!(&left.counted, &sampled);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 4_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_machine_and_the_definition_agree(asked in asked(), calls in trees()) {
        check(&asked, &calls)?;
    }

    /// A trace that ends in the middle shows what one shows whose open calls all end there, without those exits.
    #[test]
    fn open_calls_are_judged_by_their_time_so_far(asked in asked(), calls in trees(), cut in 0..60_usize) {
        let names: Vec<String> = (0..FUNCTIONS).map(name).collect();
        let plan = plan(&asked);
        let mut steps = Vec::new();
        walk(&calls, &names, &mut |step| steps.push(step));
        steps.truncate(cut);
        let end = steps.last().map_or(0, |step| match step {
            Step::Enter(_, time) | Step::Exit(_, time) => *time,
        });
        let run = |exits: bool| {
            let mut lane = Lane::new(&plan, 1);
            let mut switch = TraceSwitch::default();
            let mut told = Vec::new();
            let tell = &mut |event: Event<u32>| told.push(event);
            for step in &steps {
                match *step {
                    Step::Enter(id, time) => {
                        let effects = lane.enter(&plan, plan.action_of(id), switch, id, time, tell);
                        switch = switch.after(effects);
                    }
                    Step::Exit(_, time) => lane.exit(&plan, time, tell),
                }
            }
            while exits && lane.open_calls() > 0 {
                lane.exit(&plan, end, tell);
            }
            lane.finish(&plan, end, tell);
            told
        };
        let (closed, open) = (run(true), run(false));
        let entries = |told: &[Event<u32>]| -> Vec<Event<u32>> {
            told.iter().filter(|event| matches!(event, Event::Enter { .. })).copied().collect()
        };
        prop_assert_eq!(entries(&closed), entries(&open));
        let exits = |told: &[Event<u32>]| told.len() - entries(told).len();
        prop_assert!(exits(&open) <= exits(&closed));
    }
}

/// The cheap duties are chosen where they are enough.
#[test]
fn sites_do_no_more_than_they_must() {
    let probe = |options: &str, function: &str| {
        let names: Vec<String> = ["f", "tiny", "other"].map(str::to_owned).into();
        let compiler = calls::compile(calls::rules(options), &names, PlanOptions::default());
        let plan = compiler.plan();
        let id = names
            .iter()
            .position(|name| name == function)
            .expect("a function");
        plan.probe(plan.action_of(id as u32))
    };
    for (options, function, expected) in [
        ("", "f", Probe::Record),
        ("-T f@backtrace", "f", Probe::Record),
        ("-H f", "f", Probe::Skip),
        ("-Z 20", "f", Probe::Skip),
        ("-Z 20", "tiny", Probe::Record),
        ("-Z 20 -F f", "f", Probe::Filter),
        ("-Z 20 -T tiny@size=5", "f", Probe::Record),
        ("-Z 20 -T tiny@size=15", "f", Probe::Skip),
        ("-L tiny.c", "f", Probe::Skip),
        ("-L tiny.c", "tiny", Probe::Record),
        ("-N f", "f", Probe::Mute),
        ("-N f", "other", Probe::Record),
        ("-F f", "f", Probe::Filter),
        ("-F f -H f", "f", Probe::Filter),
        ("-F f", "other", Probe::Record),
        ("-D 3", "f", Probe::Record),
        ("-t 1us", "f", Probe::Timed),
        ("-t 1us -D 3", "f", Probe::Timed),
        ("-t 1us -T f@trace", "f", Probe::Record),
        ("-t 1us -D 3 -T f@trace", "f", Probe::Record),
        // Readers count executions of any duration.
        ("-t 1us -D 3 -T f@sample=p99", "f", Probe::Record),
        ("-C f", "other", Probe::Record),
        ("-T f@sample=1", "f", Probe::Record),
        ("-T f@sample=p99", "f", Probe::Record),
        ("-T f@sample=9 -H f", "f", Probe::Skip),
        ("-F f@sample=9", "other", Probe::Record),
        ("-T f@trace_on", "f", Probe::Record),
        ("-T f@trace_on -H f", "f", Probe::Record),
        ("-T f@trace_on", "other", Probe::Record),
    ] {
        assert_eq!(probe(options, function), expected, "{options} {function}");
    }
    for options in ["-T f@sample=9", "-T f@sample=1%", "-T f@sample=9/s"] {
        let found = probe(options, "f");
        assert!(matches!(found, Probe::Sample(_)), "{options}");
        assert_eq!(found.unsampled(), Probe::Record);
    }
    let sampled = probe("-F f@sample=9 -H f", "f");
    let judged = probe("-F f@sample=p99", "f");
    assert!(matches!(sampled, Probe::SampleFilter(_)));
    assert!(matches!(judged, Probe::JudgeFilter(_)));
    assert_eq!([sampled, judged].map(Probe::unsampled), [Probe::Filter; 2]);
}
