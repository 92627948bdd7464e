//! The definition of filtering: slow, allocating, and with the whole tree before it.

use crate::calls::Call;
use dioptra_filters::Tail;
use std::collections::BTreeMap;

/// The sampling of a function.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Sample {
    Every(u64),
    /// One in each period of so many nanoseconds.
    Period(u64),
    /// Hundredths of a percent.
    Percentile(u64),
}

/// The rules for one function.
#[derive(Debug, Clone, Default)]
pub struct Spec {
    pub filter: bool,
    pub notrace: bool,
    pub hide: bool,
    pub caller: bool,
    pub trace: bool,
    pub on: bool,
    pub off: bool,
    pub finish: bool,
    pub depth: Option<u32>,
    pub time: Option<u64>,
    pub size: Option<u64>,
    pub sample: Option<Sample>,
}

/// All rules.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    pub functions: BTreeMap<String, Spec>,
    pub sizes: BTreeMap<String, u64>,
    pub depth: Option<u32>,
    pub time: Option<u64>,
    pub size: Option<u64>,
}

/// The facts about a call, without regard to durations.
#[derive(Debug, Clone, Default)]
struct Fact {
    name: String,
    spec: Spec,
    /// The rule's actions happened.
    fired: bool,
    visible: bool,
    mutes: bool,
    /// A chosen execution of a sampled filter.
    opened: bool,
    stands_for: u64,
    /// Hidden by its percentile.
    too_fast: bool,
    threshold: u64,
    below: Vec<Fact>,
}

#[derive(Default)]
struct Counter {
    seen: u64,
    shown: u64,
    since: u64,
    next: u64,
    tail: Tail,
}

/// A filtered tree, the weights of its calls in order of entry, and executions seen and shown by function.
pub struct Expected {
    pub calls: Vec<Call>,
    pub weights: Vec<f64>,
    pub counted: BTreeMap<String, (u64, u64)>,
}

pub fn filter(asked: &Asked, calls: &[Call]) -> Expected {
    let mut world = World {
        asked,
        on: true,
        finished: false,
        counters: BTreeMap::new(),
    };
    let facts: Vec<Fact> = calls.iter().map(|call| world.visit(call, &[])).collect();
    let mut weights = Vec::new();
    let mut shown = Vec::new();
    for (call, fact) in calls.iter().zip(&facts) {
        shown.extend(world.shown(call, fact, 1.0));
    }
    fn strip(calls: Vec<Shown>, weights: &mut Vec<f64>) -> Vec<Call> {
        calls
            .into_iter()
            .map(|shown| {
                weights.push(shown.weight);
                Call {
                    below: strip(shown.below, weights),
                    ..shown.call
                }
            })
            .collect()
    }
    Expected {
        calls: strip(shown, &mut weights),
        weights,
        counted: world
            .counters
            .into_iter()
            .map(|(name, counter)| (name, (counter.seen, counter.shown)))
            .collect(),
    }
}

struct Shown {
    call: Call,
    weight: f64,
    below: Vec<Shown>,
}

struct World<'a> {
    asked: &'a Asked,
    on: bool,
    finished: bool,
    counters: BTreeMap<String, Counter>,
}

impl World<'_> {
    /// The facts of a call and all below it, in order of time; `around` are the calls around it, the outermost first.
    fn visit(&mut self, call: &Call, around: &[Fact]) -> Fact {
        let mut fact = self.enter(call, around);
        let mut path = around.to_vec();
        path.push(fact.clone());
        fact.below = call
            .below
            .iter()
            .map(|below| self.visit(below, &path))
            .collect();
        if let (Some(Sample::Percentile(p)), true) = (fact.spec.sample, fact.stands_for > 0) {
            let judged = fact.opened || fact.visible;
            if judged {
                let counter = self.counters.entry(call.name.clone()).or_default();
                let slow = counter.tail.observe(call.end - call.start, p);
                counter.seen += 1;
                counter.shown += u64::from(slow);
                fact.too_fast = !slow;
            }
        }
        fact
    }

    fn enter(&mut self, call: &Call, around: &[Fact]) -> Fact {
        let spec = self
            .asked
            .functions
            .get(&call.name)
            .cloned()
            .unwrap_or_default();
        let mut fact = Fact {
            name: call.name.clone(),
            spec: spec.clone(),
            ..Fact::default()
        };
        if around.iter().any(|fact| fact.mutes) {
            return fact;
        }
        if spec.notrace {
            fact.mutes = true;
            return fact;
        }
        let any_filter = self.asked.functions.values().any(|spec| spec.filter);
        let inside = spec.filter || around.iter().any(|fact| fact.fired && fact.spec.filter);
        if any_filter && !inside {
            return fact;
        }
        // As if its rule fired.
        fact.fired = true;
        let mut path: Vec<&Fact> = around
            .iter()
            .filter(|fact| fact.fired || fact.visible)
            .collect();
        path.push(&fact);
        let setting = |get: fn(&Spec) -> Option<u64>, base: Option<u64>| {
            let inner = path.iter().rev().filter(|fact| fact.fired);
            inner.filter_map(|fact| get(&fact.spec)).next().or(base)
        };
        let limit = setting(
            |spec| spec.depth.map(u64::from),
            self.asked.depth.map(u64::from),
        );
        let min_size = setting(|spec| spec.size, self.asked.size);
        let threshold = setting(|spec| spec.time, self.asked.time).unwrap_or(0);
        let begins = path
            .iter()
            .rposition(|fact| fact.fired && (fact.spec.filter || fact.spec.depth.is_some()));
        let depth = path[begins.unwrap_or(0)..]
            .iter()
            .filter(|fact| fact.visible)
            .count() as u64;
        let small = match (self.asked.sizes.get(&call.name), min_size) {
            (Some(size), Some(least)) => size < &least,
            _ => false,
        };
        let on = self.on || spec.on && !self.finished;
        let in_view = !spec.hide && !small && limit.is_none_or(|limit| depth < limit);
        fact.visible = on && !spec.off && !spec.finish && in_view;
        fact.threshold = threshold;
        fact.stands_for = 1;
        if let Some(sample) = spec.sample {
            let within = around
                .iter()
                .any(|fact| fact.opened && fact.name == call.name);
            if spec.filter && (!on || within) {
                // Not counted, and not in the way.
                fact.stands_for = 0;
            } else if !(spec.filter || on && in_view) {
                return Fact {
                    spec,
                    ..Fact::default()
                };
            } else {
                match self.draw(&call.name, sample, call.start) {
                    None => {
                        return Fact {
                            mutes: spec.filter,
                            spec,
                            ..Fact::default()
                        };
                    }
                    Some(stands_for) => fact.stands_for = stands_for,
                }
                fact.opened = spec.filter;
            }
        }
        self.on = on && !spec.off;
        self.finished |= spec.finish;
        self.on &= !self.finished;
        fact
    }

    /// Returns the number of executions that a chosen one stands for.
    fn draw(&mut self, name: &str, sample: Sample, now: u64) -> Option<u64> {
        let counter = self.counters.entry(name.to_owned()).or_default();
        match sample {
            Sample::Every(interval) => {
                counter.seen += 1;
                let hit = counter.seen.is_multiple_of(interval);
                counter.shown += u64::from(hit);
                hit.then_some(interval)
            }
            Sample::Period(period) => {
                counter.seen += 1;
                counter.since += 1;
                if now < counter.next {
                    return None;
                }
                counter.shown += 1;
                let on_time = counter.next + period > now;
                counter.next = if on_time { counter.next } else { now } + period;
                Some(std::mem::take(&mut counter.since))
            }
            Sample::Percentile(_) => Some(1),
        }
    }

    fn shown(&self, call: &Call, fact: &Fact, around: f64) -> Vec<Shown> {
        let weight = around * fact.stands_for.max(1) as f64;
        let inner = if fact.opened { weight } else { around };
        let mut below = Vec::new();
        for (call, fact) in call.below.iter().zip(&fact.below) {
            below.extend(self.shown(call, fact, inner));
        }
        if fact.too_fast {
            return if fact.spec.filter { Vec::new() } else { below };
        }
        let any_caller = self.asked.functions.values().any(|spec| spec.caller);
        let long = call.end - call.start >= fact.threshold;
        let by_itself = fact.spec.trace || long && (fact.spec.caller || !any_caller);
        if !fact.visible || !by_itself && below.is_empty() {
            return below;
        }
        vec![Shown {
            call: Call {
                below: Vec::new(),
                ..call.clone()
            },
            weight,
            below,
        }]
    }
}
