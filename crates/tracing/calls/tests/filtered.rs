//! Views compared with a simple implementation that keeps everything.

#[path = "support/written.rs"]
mod written;

use dioptra_calls::{
    Call, CallEnding, FunctionNames, ShownStep, TimeRange, View, ViewSelection, call_tree,
    statistics,
};
use dioptra_filters::{
    Compiler, Effects, Event, FunctionDescription, FunctionOrigin, Lane, MatchStyle, Plan,
    PlanOptions, RuleOption, Rules, TraceSwitch,
};
use std::collections::{HashMap, VecDeque};
use written::{Act, Random, names, trace};

const FUNCTIONS: u32 = 6;

fn rules(texts: &[(RuleOption, String)]) -> Rules {
    let mut rules = Rules::new(MatchStyle::Regex);
    for (option, text) in texts {
        rules.add(*option, text).expect("a rule");
    }
    rules
}

fn view<'t>(
    names: &FunctionNames<'t>,
    texts: &[(RuleOption, String)],
    range: TimeRange,
) -> View<'t> {
    let selection = ViewSelection {
        rules: rules(texts),
        range,
        ..ViewSelection::default()
    };
    View::new(names, selection).expect("a view")
}

/// A filter of the steps of a view without rules: everything about each call is kept until the end.
struct Simple<'p> {
    plan: &'p Plan,
    stream: u64,
    lane: Lane<u64>,
    stack: u32,
    elsewhere: HashMap<u32, Lane<u64>>,
    /// The calls by their numbers: the call, its own time and its ending.
    calls: Vec<(Call, u64, CallEnding)>,
    open: HashMap<u32, Vec<u64>>,
    out: VecDeque<ShownStep>,
}

impl Simple<'_> {
    fn take(&mut self, shown: ShownStep) {
        let mut events = Vec::new();
        match shown {
            ShownStep::Enter { time, call, .. } => {
                let number = self.calls.len() as u64;
                self.calls.push((call, 0, CallEnding::Open));
                self.open.entry(self.stack).or_default().push(number);
                let action = self.plan.action_of(call.function);
                let mut tell = |event| events.push(event);
                self.lane
                    .enter(self.plan, action, TraceSwitch::On, number, time, &mut tell);
            }
            ShownStep::Leave {
                time, ending, own, ..
            } => {
                let open = self.open.get_mut(&self.stack).expect("open calls");
                let number = open.pop().expect("an open call");
                let call = &mut self.calls[number as usize];
                (call.1, call.2) = (own, ending);
                let mut tell = |event| events.push(event);
                match ending {
                    CallEnding::Discarded => self.lane.discard(self.plan, time, &mut tell),
                    CallEnding::Open => self.lane.cut(self.plan, time, &mut tell),
                    _ => self.lane.exit(self.plan, time, &mut tell),
                }
            }
            ShownStep::Switch { stack, .. } => {
                if stack != self.stack {
                    let new = || Lane::new(self.plan, self.stream);
                    let next = self.elsewhere.remove(&stack).unwrap_or_else(new);
                    let mut left = std::mem::replace(&mut self.lane, next);
                    self.lane.exchange_counters(&mut left);
                    self.elsewhere.insert(self.stack, left);
                    self.stack = stack;
                }
                self.out.push_back(shown);
            }
            ShownStep::Lost { .. } => self.out.push_back(shown),
        }
        for event in events {
            self.tell(event);
        }
    }

    fn tell(&mut self, event: Event<u64>) {
        self.out.push_back(match event {
            Event::Enter {
                call,
                time,
                depth,
                weight,
                effects,
            } => ShownStep::Enter {
                time,
                call: Call {
                    depth,
                    ..self.calls[call as usize].0
                },
                weight,
                backtrace: effects.contains(Effects::BACKTRACE),
            },
            Event::Exit {
                call, time, depth, ..
            } => {
                let (begun, own, ending) = self.calls[call as usize];
                ShownStep::Leave {
                    time,
                    call: Call { depth, ..begun },
                    ending,
                    own,
                }
            }
        });
    }
}

fn simple(whole: &View<'_>, place: usize, texts: &[(RuleOption, String)]) -> Vec<ShownStep> {
    let mut compiler = Compiler::new(rules(texts), PlanOptions::default()).expect("rules");
    let known: Vec<String> = (1..=FUNCTIONS).map(|id| format!("f{id}")).collect();
    compiler.add(&FunctionDescription::default());
    for name in &known {
        compiler.add(&FunctionDescription {
            name,
            kind: FunctionOrigin::LibraryCall,
            ..FunctionDescription::default()
        });
    }
    let plan = compiler.plan();
    let stream = u64::from(whole.streams()[place].stream);
    let mut simple = Simple {
        plan: &plan,
        stream,
        lane: Lane::new(&plan, stream),
        stack: 0,
        elsewhere: HashMap::new(),
        calls: Vec::new(),
        open: HashMap::new(),
        out: VecDeque::new(),
    };
    whole.calls(place).for_each(|shown| simple.take(shown));
    simple.out.into()
}

fn random_rules(random: &mut Random) -> Vec<(RuleOption, String)> {
    let mut texts = Vec::new();
    for _ in 0..=random.below(3) {
        let function = format!("^f{}$", 1 + random.below(u64::from(FUNCTIONS)));
        let time = [20, 300, 3_000, 100_000][random.below(4) as usize];
        texts.push(match random.below(12) {
            0..4 => (RuleOption::Time, format!("{time}ns")),
            4 | 5 => (RuleOption::Caller, function),
            6 => (RuleOption::Filter, function),
            7 => (RuleOption::Notrace, function),
            8 => (RuleOption::Hide, function),
            9 => (RuleOption::Depth, (1 + random.below(6)).to_string()),
            10 => (RuleOption::Trigger, format!("{function}@time={time}ns")),
            _ => {
                let action = ["trace", "backtrace", "depth=2", "sample=p80"];
                let action = action[random.below(4) as usize];
                (RuleOption::Trigger, format!("{function}@{action}"))
            }
        });
    }
    texts
}

#[test]
fn views_show_what_a_simple_implementation_shows() {
    let mut random = Random(11);
    for case in 0..300 {
        let stacks = if case % 4 == 0 { 3 } else { 1 };
        let deep = 2 + random.below(12) as usize;
        let count = random.below(400) as usize;
        let threads = [
            random.acts(count, u64::from(FUNCTIONS), deep, stacks),
            random.acts(count, u64::from(FUNCTIONS), deep, 1),
        ];
        let folder = tempfile::tempdir().expect("a folder");
        let most = 1 + random.below(50) as usize;
        let trace = trace(&folder.path().join("t"), FUNCTIONS, &threads, most);
        let names = names(&trace);
        let whole = view(&names, &[], TimeRange::default());
        for _ in 0..4 {
            let texts = random_rules(&mut random);
            if texts
                .iter()
                .any(|(option, _)| *option == RuleOption::Notrace)
                && texts
                    .iter()
                    .any(|(option, _)| *option == RuleOption::Trigger)
            {
                // Some of these contradict each other.
                continue;
            }
            let filtered = view(&names, &texts, TimeRange::default());
            for place in 0..whole.streams().len() {
                let expected = simple(&whole, place, &texts);
                let one_by_one: Vec<ShownStep> = filtered.calls(place).collect();
                assert_eq!(one_by_one, expected, "case {case}: {texts:?}");
                let mut at_once = Vec::new();
                filtered.calls(place).each(|shown| at_once.push(shown));
                assert_eq!(at_once, expected, "case {case}: {texts:?}");
            }
        }
    }
}

/// Returns the steps in a range, without the beginnings of calls that do not end.
fn within(view: &View<'_>, place: usize) -> Vec<ShownStep> {
    let range = view.range();
    let shown = view.calls(place).filter(|s| range.contains(s.time()));
    shown
        .map(|mut shown| {
            if let ShownStep::Leave { call, ending, .. } = &mut shown
                && *ending == CallEnding::Open
            {
                call.entered = None;
            }
            shown
        })
        .collect()
}

/// Sums by function and by path. Of equal extremes either may be kept.
fn sums(view: &View<'_>) -> (Vec<[u128; 6]>, Vec<[u64; 4]>) {
    let functions = statistics(view).functions;
    let by_function = functions.iter().map(|times| {
        let numbers = [
            u64::from(times.function),
            times.calls,
            times.open,
            times.total,
            times.self_time,
        ];
        let [function, calls, open, total, own] = numbers.map(u128::from);
        [function, calls, open, total, own, times.totals.squares]
    });
    let tree = call_tree(view);
    let nodes = tree.nodes().iter();
    let by_path = nodes.map(|node| {
        [
            u64::from(node.function),
            node.calls,
            node.total,
            node.self_time,
        ]
    });
    let mut by_path: Vec<_> = by_path.collect();
    by_path.sort_unstable();
    (by_function.collect(), by_path)
}

#[test]
fn ranges_show_the_same_wherever_reading_begins() {
    let mut random = Random(5);
    // The function is never called; because it is sampled, reading begins at the start.
    let never = (
        RuleOption::Trigger,
        format!("^f{}$@sample=1", FUNCTIONS + 1),
    );
    for case in 0..150 {
        let stacks = if case % 5 == 0 { 3 } else { 1 };
        let deep = 2 + random.below(12) as usize;
        let count = 100 + random.below(600) as usize;
        let threads = [
            random.acts(count, u64::from(FUNCTIONS), deep, stacks),
            random.acts(count, u64::from(FUNCTIONS), deep, 1),
        ];
        let folder = tempfile::tempdir().expect("a folder");
        let most = 1 + random.below(50) as usize;
        let trace = trace(&folder.path().join("t"), FUNCTIONS + 1, &threads, most);
        let names = names(&trace);
        let last = threads[0].last().map_or(0, |act| match act {
            Act::Enter(time, _) | Act::Leave(time) | Act::Stack(time, _) => *time,
        });
        for round in 0..6 {
            let start = random.below(last + 100);
            let range = TimeRange {
                start: Some(start),
                stop: (round % 3 > 0).then(|| start + random.below(last)),
            };
            let mut texts = match round {
                0 | 1 => Vec::new(),
                2 => vec![(RuleOption::Time, "300ns".to_owned())],
                _ => random_rules(&mut random),
            };
            texts.retain(|(option, _)| *option != RuleOption::Trigger);
            let sought = view(&names, &texts, range);
            texts.push(never.clone());
            let whole = view(&names, &texts, range);
            let what = format!("case {case}: {texts:?} {range:?}");
            for place in 0..2 {
                assert_eq!(within(&sought, place), within(&whole, place), "{what}");
            }
            assert_eq!(sums(&sought), sums(&whole), "{what}");
        }
    }
}

#[test]
fn what_is_before_a_range_is_not_read() {
    // `f1` calls `f2` over and over, until behind the range.
    let mut acts = vec![Act::Enter(1_000, 1)];
    for call in 1..=2_000 {
        acts.push(Act::Enter(1_000 + call * 100, 2));
        acts.push(Act::Leave(1_050 + call * 100));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("t");
    drop(trace(&path, 2, &[acts], 100));
    // Bytes that are no records, in the middle of the second chunk.
    let records = path.join("records");
    let mut bytes = std::fs::read(&records).expect("records");
    let second = u32::from_le_bytes(bytes[4..8].try_into().expect("a size")) as usize;
    bytes[second + 150..second + 160].fill(0xff);
    std::fs::write(&records, bytes).expect("records");
    let trace = dioptra_tracedata::Trace::open(&path).expect("a trace");
    let names = names(&trace);
    let calls_in = |start, stop| {
        let range = TimeRange {
            start: Some(start),
            stop: Some(stop),
        };
        let view = view(&names, &[], range);
        let mut calls = view.calls(0);
        let shown = calls.by_ref().filter(|s| range.contains(s.time()));
        let shown: Vec<ShownStep> = shown.collect();
        let left = shown.iter().filter_map(|shown| match shown {
            ShownStep::Leave {
                time,
                call,
                ending: CallEnding::Returned,
                ..
            } => Some(time - call.entered.expect("known")),
            _ => None,
        });
        (left.collect::<Vec<_>>(), calls.losses().walk)
    };
    let (left, losses) = calls_in(101_020, 102_060);
    assert_eq!(left, [50; 11]);
    assert_eq!((losses.malformed, losses.stray_exits), (0, 0), "{losses:?}");
    // A reader of a larger range gets the damage.
    let (_, losses) = calls_in(1_000, 102_060);
    assert!(losses.malformed + losses.stray_exits > 0, "{losses:?}");
}
