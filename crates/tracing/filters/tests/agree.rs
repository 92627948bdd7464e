//! Random trees and rules: the state machine, its cheaper uses and the definition agree.

mod calls;
mod model;

use calls::{Call, Step, assemble, walk};
use dioptra_filters::{
    Compiler, Effects, Event, ExitVerdict, FunctionDescription, Lane, MatchStyle, OffReasons, Plan,
    PlanOptions, RuleOption, Rules, Sampler, Scope, Show, SiteNeed, Store, Tail, ThreadState,
    TraceSwitch,
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

/// A call that is open in [`Sites`].
enum Open {
    Passed,
    Recorded {
        id: u32,
        start: u64,
    },
    Timed {
        at: usize,
        id: u32,
        start: u64,
        at_least: u64,
    },
    Evaluated {
        at: usize,
        id: u32,
        entry: dioptra_filters::EntryAnswer,
    },
}

/// A tracer's use of the plan: each site does its least duty, entries are written at once and taken back.
struct Sites<'a> {
    plan: &'a Plan,
    state: ThreadState,
    samplers: Vec<Sampler>,
    tails: Vec<Tail>,
    open: Vec<Open>,
    /// The events, each with whether it still stands.
    log: Vec<(Event<u32>, bool)>,
    switch: TraceSwitch,
    evaluated: usize,
}

impl<'a> Sites<'a> {
    fn new(plan: &'a Plan) -> Self {
        Self {
            state: ThreadState::new(plan, 1),
            samplers: vec![Sampler::default(); plan.sampler_count()],
            tails: vec![Tail::default(); plan.tail_count()],
            open: Vec::new(),
            log: Vec::new(),
            switch: TraceSwitch::default(),
            evaluated: 0,
            plan,
        }
    }

    fn enter(&mut self, id: u32, time: u64) {
        let action = self.plan.action_of(id);
        let need = self.plan.site_need(action);
        let off = if self.switch == TraceSwitch::On {
            OffReasons::OPEN
        } else {
            OffReasons::OFF
        };
        let at = self.log.len();
        let open = if (self.state.gate() | off).meets(need.skip()) {
            Open::Passed
        } else {
            match need {
                SiteNeed::Unneeded => Open::Passed,
                SiteNeed::Record { .. } => {
                    self.write_entry(id, time);
                    Open::Recorded { id, start: time }
                }
                SiteNeed::Timed { at_least, .. } => {
                    self.write_entry(id, time);
                    Open::Timed {
                        at,
                        id,
                        start: time,
                        at_least,
                    }
                }
                SiteNeed::Count { slot, .. } if self.samplers[slot as usize].left > 0 => {
                    self.samplers[slot as usize].left -= 1;
                    Open::Passed
                }
                SiteNeed::Mute { .. } | SiteNeed::Count { .. } | SiteNeed::Evaluate { .. } => {
                    self.evaluated += usize::from(!matches!(need, SiteNeed::Mute { .. }));
                    let mut store = Store {
                        samplers: &mut self.samplers,
                        tails: &mut self.tails,
                    };
                    let entry =
                        self.state
                            .enter(self.plan, &mut store, action, self.switch, || time);
                    self.switch = self.switch.after(entry.effects);
                    if !matches!(entry.show, Show::Hidden | Show::Held(Scope::Below)) {
                        self.write_entry(id, time);
                    }
                    Open::Evaluated { at, id, entry }
                }
            }
        };
        self.open.push(open);
    }

    fn exit(&mut self, time: u64) {
        match self.open.pop().expect("an open call") {
            Open::Passed => {}
            Open::Recorded { id, start } => self.write_exit(id, start, time),
            Open::Timed {
                at,
                id,
                start,
                at_least,
            } => {
                if time - start < at_least && self.is_last(at) {
                    self.log.truncate(at);
                } else {
                    self.write_exit(id, start, time);
                }
            }
            Open::Evaluated { at, id, entry } => {
                let mut store = Store {
                    samplers: &mut self.samplers,
                    tails: &mut self.tails,
                };
                let exit = self
                    .state
                    .exit(self.plan, &mut store, &entry.frame, || time);
                let below = entry.show == Show::Held(Scope::Below);
                match exit.verdict {
                    ExitVerdict::Hidden => {}
                    ExitVerdict::KeepForDescendants if self.is_last(at) => self.log.truncate(at),
                    ExitVerdict::Keep | ExitVerdict::KeepForDescendants if below => {}
                    ExitVerdict::Keep | ExitVerdict::KeepForDescendants => {
                        self.write_exit(id, entry.time, time);
                    }
                    ExitVerdict::Discard(Scope::Call) => self.log[at].1 = false,
                    ExitVerdict::Discard(_) => self.log.truncate(at),
                }
            }
        }
    }

    /// Returns true if no standing event was written after the entry.
    fn is_last(&self, at: usize) -> bool {
        self.log[at + 1..].iter().all(|(_, stands)| !stands)
    }

    fn write_entry(&mut self, call: u32, time: u64) {
        let event = Event::Enter {
            call,
            time,
            depth: 0,
            weight: 1.0,
            effects: Effects::NONE,
        };
        self.log.push((event, true));
    }

    fn write_exit(&mut self, call: u32, start: u64, time: u64) {
        let event = Event::Exit {
            call,
            start,
            time,
            depth: 0,
        };
        self.log.push((event, true));
    }

    fn told(self) -> Vec<Event<u32>> {
        let mut nesting = 0;
        let stands = self.log.into_iter().filter(|(_, stands)| *stands);
        stands
            .map(|(mut event, _)| {
                match &mut event {
                    Event::Enter { depth, .. } => {
                        *depth = nesting;
                        nesting += 1;
                    }
                    Event::Exit { depth, .. } => {
                        nesting -= 1;
                        *depth = nesting;
                    }
                }
                event
            })
            .collect()
    }
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

    let mut sites = Sites::new(&plan);
    walk(calls, &names, &mut |step| match step {
        Step::Enter(id, time) => sites.enter(id, time),
        Step::Exit(_, time) => sites.exit(time),
    });
    let counted: Vec<(u64, u64)> = sites
        .samplers
        .iter()
        .map(|s| (s.seen(), s.shown()))
        .collect();
    prop_assert_eq!(&counted, &sampled);
    prop_assert_eq!(sites.state, ThreadState::new(&plan, 1));
    let by_sites = assemble(&sites.told(), &names);
    prop_assert_eq!(&by_sites, &expected.calls);
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
    let skips = |bits: &[OffReasons]| bits.iter().fold(OffReasons::OPEN, |all, bit| all | *bit);
    let need = |options: &str, function: &str| {
        let names: Vec<String> = ["f", "tiny", "other"].map(str::to_owned).into();
        let compiler = calls::compile(calls::rules(options), &names, PlanOptions::default());
        let plan = compiler.plan();
        let id = names
            .iter()
            .position(|name| name == function)
            .expect("a function");
        plan.site_need(plan.action_of(id as u32))
    };
    let off = OffReasons::OFF;
    let evaluate = |bits: &[OffReasons]| SiteNeed::Evaluate { skip: skips(bits) };
    let record = |bits: &[OffReasons]| SiteNeed::Record { skip: skips(bits) };
    for (options, function, expected) in [
        ("", "f", record(&[off])),
        ("-T f@backtrace", "f", record(&[off])),
        ("-H f", "f", SiteNeed::Unneeded),
        ("-Z 20", "f", SiteNeed::Unneeded),
        ("-Z 20", "tiny", record(&[off])),
        ("-Z 20 -F f", "f", evaluate(&[])),
        ("-Z 20 -T tiny@size=5", "f", evaluate(&[off])),
        ("-Z 20 -T tiny@size=15", "f", SiteNeed::Unneeded),
        ("-L tiny.c", "f", SiteNeed::Unneeded),
        ("-L tiny.c", "tiny", record(&[off])),
        (
            "-N f",
            "f",
            SiteNeed::Mute {
                skip: OffReasons::MUTED,
            },
        ),
        ("-N f", "other", record(&[off, OffReasons::MUTED])),
        ("-F f", "f", evaluate(&[])),
        ("-F f", "other", record(&[off, OffReasons::OUTSIDE])),
        ("-D 3", "f", evaluate(&[off, OffReasons::DEEP])),
        (
            "-t 1us",
            "f",
            SiteNeed::Timed {
                skip: off,
                at_least: 1_000,
            },
        ),
        ("-t 1us -T f@trace", "f", record(&[off])),
        ("-t 1us -T other@time=2us", "f", evaluate(&[off])),
        ("-C f", "other", evaluate(&[off])),
        ("-T f@sample=9", "f", SiteNeed::Count { skip: off, slot: 0 }),
        (
            "-T f@sample=1%",
            "f",
            SiteNeed::Count { skip: off, slot: 0 },
        ),
        (
            "-T f@sample=9 -D 3",
            "f",
            evaluate(&[off, OffReasons::DEEP]),
        ),
        ("-T f@sample=9/s", "f", evaluate(&[off])),
        ("-T f@sample=p99", "f", evaluate(&[off])),
        ("-F f@sample=9", "f", evaluate(&[OffReasons::MUTED])),
        (
            "-F f@sample=9",
            "other",
            record(&[off, OffReasons::MUTED, OffReasons::OUTSIDE]),
        ),
        ("-T f@trace_on", "f", evaluate(&[])),
        ("-T f@trace_on", "other", record(&[off])),
    ] {
        assert_eq!(need(options, function), expected, "{options} {function}");
    }
}
