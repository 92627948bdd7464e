//! Call trees written as text, and their calls that filters leave.

#![allow(dead_code)]

use dioptra_filters::{
    Compiler, Effects, Event, FunctionDescription, Lane, MatchStyle, Plan, PlanOptions, RuleOption,
    Rules, TraceSwitch,
};

/// A call and the calls below it.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    pub name: String,
    pub start: u64,
    pub end: u64,
    pub below: Vec<Call>,
}

/// Parses `a(b c:50) d`: calls with the calls below them; a number adds to a call's own time. Each entry and exit
/// takes 1.
pub fn tree(text: &str) -> Vec<Call> {
    let mut time = 0;
    let mut letters = text.chars().peekable();
    fn calls(letters: &mut std::iter::Peekable<std::str::Chars<'_>>, time: &mut u64) -> Vec<Call> {
        let mut found = Vec::new();
        loop {
            while letters.next_if(|c| c.is_whitespace()).is_some() {}
            if letters.peek().is_none_or(|c| *c == ')') {
                return found;
            }
            let mut word = String::new();
            while let Some(c) = letters.next_if(|c| !c.is_whitespace() && !"()".contains(*c)) {
                word.push(c);
            }
            let (name, own) = word.split_once(':').unwrap_or((&word, "0"));
            *time += 1;
            let start = *time;
            let mut below = Vec::new();
            if letters.next_if_eq(&'(').is_some() {
                below = calls(letters, time);
                assert_eq!(letters.next(), Some(')'));
            }
            *time += 1 + own.parse::<u64>().expect("a duration");
            found.push(Call {
                name: name.to_owned(),
                start,
                end: *time,
                below,
            });
        }
    }
    let found = calls(&mut letters, &mut time);
    assert_eq!(letters.next(), None);
    found
}

/// The notation of [`tree`], without times.
pub fn text(calls: &[Call]) -> String {
    let words: Vec<String> = calls
        .iter()
        .map(|call| match text(&call.below).as_str() {
            "" => call.name.clone(),
            below => format!("{}({below})", call.name),
        })
        .collect();
    words.join(" ")
}

/// The names of functions, each once.
pub fn names(calls: &[Call]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    fn add(calls: &[Call], found: &mut Vec<String>) {
        for call in calls {
            if !found.contains(&call.name) {
                found.push(call.name.clone());
            }
            add(&call.below, found);
        }
    }
    add(calls, &mut found);
    found
}

/// Options as on a command line: `-F a@sample=2 -D 3`.
pub fn rules(options: &str) -> Rules {
    let mut rules = Rules::new(MatchStyle::Regex);
    let mut words = options.split_whitespace();
    while let Some(letter) = words.next() {
        let option = option(letter);
        let text = words.next().expect("an option's text");
        if let Err(error) = rules.add(option, text) {
            panic!("{error}");
        }
    }
    rules
}

pub fn option(letter: &str) -> RuleOption {
    use RuleOption::*;
    [
        Filter, Notrace, Trigger, Caller, Hide, Depth, Time, Size, Location, Argument, Retval,
    ]
    .into_iter()
    .find(|option| option.letter() == letter)
    .expect("an option")
}

/// Functions of a tree; their size is 10 times the length of their name.
pub fn compile(rules: Rules, names: &[String], options: PlanOptions) -> Compiler {
    let mut compiler = Compiler::new(rules, options).expect("rules that can be followed");
    for name in names {
        let source = format!("src/{name}.c");
        compiler.add(&FunctionDescription {
            name,
            module: "/bin/prog",
            size: Some(10 * name.len() as u64),
            source: Some(&source),
            ..FunctionDescription::default()
        });
    }
    compiler
}

/// The remaining calls of a tree, with weights.
pub struct Left {
    pub calls: Vec<Call>,
    /// The weight of each shown call, in order of entry.
    pub weights: Vec<f64>,
    /// The seen and shown executions of each sampled function.
    pub counted: Vec<(u64, u64)>,
    pub backtraces: usize,
}

/// Runs a tree through a [`Lane`]. Tracing is switched as the calls say, for this thread.
pub fn filter(calls: &[Call], names: &[String], plan: &Plan) -> Left {
    let mut lane = Lane::new(plan, 1);
    let mut told: Vec<Event<u32>> = Vec::new();
    let mut switch = TraceSwitch::default();
    walk(calls, names, &mut |step| match step {
        Step::Enter(id, time) => {
            let tell = &mut |event| told.push(event);
            let effects = lane.enter(plan, plan.action_of(id), switch, id, time, tell);
            switch = switch.after(effects);
        }
        Step::Exit(_, time) => lane.exit(plan, time, &mut |event| told.push(event)),
    });
    assert_eq!(lane.open_calls(), 0);
    let counted = lane
        .samplers()
        .iter()
        .map(|s| (s.seen(), s.shown()))
        .collect();
    let weights = told.iter().filter_map(|event| match event {
        Event::Enter { weight, .. } => Some(*weight),
        Event::Exit { .. } => None,
    });
    let backtraces = told
        .iter()
        .filter(|event| matches!(event, Event::Enter { effects, .. } if effects.contains(Effects::BACKTRACE)))
        .count();
    Left {
        weights: weights.collect(),
        counted,
        backtraces,
        calls: assemble(&told, names),
    }
}

/// An entry or exit of a function, with its time.
#[derive(Debug, Clone, Copy)]
pub enum Step {
    Enter(u32, u64),
    Exit(u32, u64),
}

/// Entries and exits in order.
pub fn walk(calls: &[Call], names: &[String], take: &mut impl FnMut(Step)) {
    for call in calls {
        let id = names
            .iter()
            .position(|name| *name == call.name)
            .expect("a name") as u32;
        take(Step::Enter(id, call.start));
        walk(&call.below, names, take);
        take(Step::Exit(id, call.end));
    }
}

/// Returns the tree of the events, which must be balanced and know their depth.
pub fn assemble(told: &[Event<u32>], names: &[String]) -> Vec<Call> {
    let mut open: Vec<Call> = Vec::new();
    let mut roots = Vec::new();
    for event in told {
        match *event {
            Event::Enter {
                call, time, depth, ..
            } => {
                assert_eq!(depth as usize, open.len());
                open.push(Call {
                    name: names[call as usize].clone(),
                    start: time,
                    end: 0,
                    below: Vec::new(),
                });
            }
            Event::Exit {
                call,
                start,
                time,
                depth,
            } => {
                let mut ended = open.pop().expect("an open call");
                assert_eq!(depth as usize, open.len());
                assert_eq!((&ended.name, ended.start), (&names[call as usize], start));
                ended.end = time;
                match open.last_mut() {
                    Some(caller) => caller.below.push(ended),
                    None => roots.push(ended),
                }
            }
        }
    }
    assert!(open.is_empty());
    roots
}

/// Returns the remaining calls of a tree under options, both as text.
pub fn left(options: &str, calls: &str) -> String {
    let calls = tree(calls);
    let names = names(&calls);
    let plan = compile(rules(options), &names, PlanOptions::default()).plan();
    text(&filter(&calls, &names, &plan).calls)
}
