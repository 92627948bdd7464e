//! The shown calls of one stream.

use crate::recorded::Recorded;
use crate::scheduled::Scheduled;
use crate::{Call, Ending, Frames, Step, TimeRange, ViewLosses};
use dioptra_filters::{Effects, Event, Lane, Plan, Switch};
use dioptra_tracedata::Trace;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// What is shown of a stream. Times are `CLOCK_MONOTONIC` in nanoseconds and never decrease.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shown {
    /// A call begins; or, if its `entered` is none, it turns out that it began before.
    Enter {
        /// When.
        time: u64,
        /// Which; its depth is how many shown calls are around it.
        call: Call,
        /// How many calls it stands for, by the sampling of itself and of calls around it; else 1.
        weight: f64,
        /// Whether a trigger asks for its backtrace.
        backtrace: bool,
    },
    /// The innermost shown call ends; at the end of its stream with [`Ending::Open`].
    Leave {
        /// When.
        time: u64,
        /// Which.
        call: Call,
        /// How.
        ending: Ending,
        /// Its time outside of recorded calls below it, shown or not, in nanoseconds; from the start of the view's time.
        own: u64,
    },
    /// Records are missing here, of shown calls or others.
    Lost {
        /// When the gap was noticed.
        time: u64,
        /// How many; 0 if that is not known.
        records: u64,
    },
    /// The thread goes on, on another call stack; the shown calls that are open are that one's from here on.
    Switch {
        /// When.
        time: u64,
        /// Its number.
        stack: u32,
    },
}

impl Shown {
    /// When it happens.
    #[inline]
    pub fn time(&self) -> u64 {
        match *self {
            Shown::Enter { time, .. }
            | Shown::Leave { time, .. }
            | Shown::Lost { time, .. }
            | Shown::Switch { time, .. } => time,
        }
    }
}

/// An open call.
#[derive(Clone, Copy, Debug)]
struct Begun {
    call: Call,
    start: u64,
    /// Time within calls below it.
    below: u64,
    /// For how many each call below it stands.
    weight: f64,
    /// A chosen execution of a function that was sampled with what it called.
    root: bool,
}

/// For how many calls the recorded ones of a stream stand.
pub(crate) struct Weights<'v> {
    recorded: &'v Recorded,
    trace: &'v Trace,
    stream: u32,
    /// How many chosen executions are open, by function: recursion within one belongs to it.
    open: FxHashMap<u32, u32>,
}

impl<'v> Weights<'v> {
    pub fn new(recorded: &'v Recorded, trace: &'v Trace, stream: u32) -> Weights<'v> {
        Weights {
            recorded,
            trace,
            stream,
            open: FxHashMap::default(),
        }
    }

    /// A call begins: its own weight, that of what it calls, and whether it is a chosen execution with what it calls.
    #[inline]
    fn begin(&mut self, function: u32, around: f64) -> (f64, f64, bool) {
        let Some(sampling) = self.recorded.get(function) else {
            return (around, around, false);
        };
        let own = around * sampling.weight(self.trace, self.stream, function);
        if !sampling.tree {
            return (own, around, false);
        }
        let open = self.open.entry(function).or_default();
        if *open > 0 {
            return (around, around, false);
        }
        *open += 1;
        (own, own, true)
    }

    fn end(&mut self, function: u32) {
        if let Some(open) = self.open.get_mut(&function) {
            *open = open.saturating_sub(1);
        }
    }
}

/// A walk's steps, in which every call begins and ends: those without an entry of their own with `entered` none, before
/// what first happens in them; those that are open at the end with [`Ending::Open`].
pub(crate) struct Complete<'v> {
    walk: Scheduled<'v>,
    open: Frames<Begun>,
    range: TimeRange,
    /// Beginnings still to be given, and the step behind them.
    missing: VecDeque<Call>,
    behind: Option<Step>,
    beginnings: u64,
    missing_ends: u64,
    /// The time at which what is open ends, once everything was given.
    end: Option<u64>,
    /// None if all calls were recorded.
    weights: Option<Weights<'v>>,
}

impl<'v> Complete<'v> {
    pub fn new(
        walk: Scheduled<'v>,
        range: TimeRange,
        weights: Option<Weights<'v>>,
    ) -> Complete<'v> {
        Complete {
            walk,
            open: Frames::default(),
            range,
            missing: VecDeque::new(),
            behind: None,
            beginnings: 0,
            missing_ends: 0,
            end: None,
            weights,
        }
    }

    #[cold]
    fn queued(&mut self) -> Option<Shown> {
        let step = self.behind?;
        if let Some(call) = self.missing.pop_front() {
            self.beginnings += 1;
            return self.give(Step::Enter {
                time: step.time(),
                call,
            });
        }
        self.behind = None;
        self.give(step)
    }

    /// Gives the calls up to `depth` that have not begun, then `step`.
    #[cold]
    fn begin(&mut self, depth: usize, step: Step) -> Option<Shown> {
        let begun = self.open.current().len();
        self.missing
            .extend(self.walk.open().skip(begun).take(depth - begun));
        if let Step::Leave { call, .. } = step
            && self.missing.len() < depth - begun
        {
            self.missing.push_back(Call {
                entered: None,
                ..call
            });
        }
        self.behind = Some(step);
        self.queued()
    }

    #[inline]
    fn give(&mut self, step: Step) -> Option<Shown> {
        Some(match step {
            Step::Enter { time, call } => {
                let around = self.open.last().map_or(1.0, |around| around.weight);
                let (weight, below, root) = match &mut self.weights {
                    Some(weights) => weights.begin(call.function, around),
                    None => (1.0, 1.0, false),
                };
                self.open.push(Begun {
                    call,
                    start: time,
                    below: 0,
                    weight: below,
                    root,
                });
                Shown::Enter {
                    time,
                    call,
                    weight,
                    backtrace: false,
                }
            }
            Step::Leave { time, call, ending } => {
                self.missing_ends += u64::from(ending == Ending::Missing);
                let own = self.end(time);
                Shown::Leave {
                    time,
                    call,
                    ending,
                    own,
                }
            }
            Step::Lost { time, records } => Shown::Lost { time, records },
            Step::Switch { time, stack } => {
                self.open.switch(stack);
                Shown::Switch { time, stack }
            }
        })
    }

    /// The innermost call ends; returns its own time.
    #[inline]
    fn end(&mut self, time: u64) -> u64 {
        let Some(begun) = self.open.pop() else {
            return 0;
        };
        if begun.root
            && let Some(weights) = &mut self.weights
        {
            weights.end(begun.call.function);
        }
        let start = begun.start.max(self.range.start.unwrap_or(0));
        let duration = time.saturating_sub(start);
        if let Some(around) = self.open.last_mut() {
            around.below = around.below.saturating_add(duration);
        }
        duration.saturating_sub(begun.below)
    }

    /// Ends what is open, stack by stack.
    #[cold]
    fn finish(&mut self) -> Option<Shown> {
        let time = self.end?;
        let stack = self.open.next_open()?;
        match self.open.last().copied() {
            Some(begun) => {
                let own = self.end(time);
                Some(Shown::Leave {
                    time,
                    call: begun.call,
                    ending: Ending::Open,
                    own,
                })
            }
            None => {
                self.open.switch(stack);
                Some(Shown::Switch { time, stack })
            }
        }
    }
}

impl Iterator for Complete<'_> {
    type Item = Shown;

    #[inline]
    fn next(&mut self) -> Option<Shown> {
        if self.behind.is_some() {
            return self.queued();
        }
        if self.end.is_some() {
            return self.finish();
        }
        let stop = self.range.stop.unwrap_or(u64::MAX);
        let Some(step) = self.walk.next().filter(|step| step.time() <= stop) else {
            self.end = Some(self.walk.time().min(stop));
            return self.finish();
        };
        let needed = match &step {
            Step::Enter { call, .. } => call.depth as usize,
            Step::Leave { call, .. } => call.depth as usize + 1,
            _ => 0,
        };
        if needed > self.open.current().len() {
            return self.begin(needed, step);
        }
        self.give(step)
    }
}

/// When tracing was switched on or off, and by which call: the stream's place and the number of its call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SwitchAt {
    pub time: u64,
    pub place: usize,
    pub serial: u64,
    pub switch: Switch,
}

/// A call as the lane knows it.
#[derive(Clone, Copy, Debug)]
struct Opened {
    serial: u64,
    function: u32,
    entered: bool,
    /// How many calls it stands for by what was filtered before.
    weight: f64,
}

/// The calls of one call stack.
#[derive(Debug)]
struct Stack {
    lane: Option<Lane<Opened>>,
    /// Of each open call, if any function is left out: whether the lane knows it.
    known: Vec<bool>,
    /// Without a lane: how many open calls are shown.
    depth: u32,
}

/// What filters one stream.
#[derive(Debug)]
pub(crate) struct Filter<'v> {
    plan: Option<Plan<'v>>,
    left_out: &'v [bool],
    thread: u64,
    stack: Stack,
    number: u32,
    elsewhere: FxHashMap<u32, Stack>,
    /// Stacks without open calls, to be used again.
    idle: Vec<Stack>,
    serial: u64,
    ends: Ends,
    lost: Option<Lost>,
    /// When something happened last.
    last: u64,
}

/// How calls ended, until that is told, by their numbers: the own time and the ending.
#[derive(Debug, Default)]
struct Ends {
    last: Option<(u64, u64, Ending)>,
    held: FxHashMap<u64, (u64, Ending)>,
}

impl Ends {
    #[inline]
    fn take(&mut self, serial: u64) -> (u64, Ending) {
        match self.last.take_if(|last| last.0 == serial) {
            Some((_, own, ending)) => (own, ending),
            None => self.held.remove(&serial).unwrap_or((0, Ending::Returned)),
        }
    }
}

/// A gap that is not told yet.
#[derive(Clone, Copy, Debug)]
struct Lost {
    time: u64,
    serial: u64,
    records: u64,
    unknown: bool,
}

impl Lost {
    fn shown(self) -> Shown {
        Shown::Lost {
            time: self.time,
            records: if self.unknown { 0 } else { self.records },
        }
    }
}

impl<'v> Filter<'v> {
    pub fn new(plan: Option<Plan<'v>>, left_out: &'v [bool], thread: u64) -> Filter<'v> {
        let mut filter = Filter {
            plan,
            left_out,
            thread,
            stack: Stack {
                lane: None,
                known: Vec::new(),
                depth: 0,
            },
            number: 0,
            elsewhere: FxHashMap::default(),
            idle: Vec::new(),
            serial: 0,
            ends: Ends::default(),
            lost: None,
            last: 0,
        };
        filter.stack = filter.new_stack();
        filter
    }

    fn new_stack(&self) -> Stack {
        Stack {
            lane: self.plan.map(|plan| Lane::new(&plan, self.thread)),
            known: Vec::new(),
            depth: 0,
        }
    }

    /// How many calls have begun.
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// Takes what was shown so far and adds what still is to `out`. Returns what a beginning call switches.
    pub fn take(&mut self, shown: Shown, switch: Switch, out: &mut VecDeque<Shown>) -> Effects {
        self.last = shown.time();
        match shown {
            Shown::Enter {
                time, call, weight, ..
            } => return self.enter(time, call, weight, switch, out),
            Shown::Leave {
                time,
                call,
                ending,
                own,
            } => self.leave(time, call, ending, own, out),
            Shown::Lost { time, records } => {
                let serial = self.serial;
                let lost = self.lost.get_or_insert(Lost {
                    time,
                    serial,
                    records: 0,
                    unknown: false,
                });
                lost.records = lost.records.saturating_add(records);
                lost.unknown |= records == 0;
            }
            Shown::Switch { time, stack } => {
                if stack != self.number {
                    let next = match self.elsewhere.remove(&stack) {
                        Some(next) => next,
                        None => self.idle.pop().unwrap_or_else(|| self.new_stack()),
                    };
                    let mut left = std::mem::replace(&mut self.stack, next);
                    if let (Some(next), Some(left)) = (&mut self.stack.lane, &mut left.lane) {
                        next.exchange_counters(left);
                    }
                    if left.is_idle() {
                        self.idle.push(left);
                    } else {
                        self.elsewhere.insert(self.number, left);
                    }
                    self.number = stack;
                }
                out.push_back(Shown::Switch { time, stack });
            }
        }
        Effects::NONE
    }

    fn enter(
        &mut self,
        time: u64,
        call: Call,
        weight: f64,
        switch: Switch,
        out: &mut VecDeque<Shown>,
    ) -> Effects {
        self.serial += 1;
        if !self.left_out.is_empty() {
            let known = !self
                .left_out
                .get(call.function as usize)
                .is_some_and(|l| *l);
            self.stack.known.push(known);
            if !known {
                return Effects::NONE;
            }
        }
        let opened = Opened {
            serial: self.serial,
            function: call.function,
            entered: call.entered.is_some(),
            weight,
        };
        let (ends, lost) = (&mut self.ends, &mut self.lost);
        let mut tell = |event| tell(event, ends, lost, out);
        match (&mut self.stack.lane, &self.plan) {
            (Some(lane), Some(plan)) => {
                let action = plan.action_of(call.function);
                lane.enter(plan, action, switch, opened, time, &mut tell)
            }
            _ => {
                // Without rules nothing can switch tracing on.
                if switch == Switch::On {
                    tell(Event::Enter {
                        call: opened,
                        time,
                        depth: self.stack.depth,
                        weight: 1.0,
                        effects: Effects::NONE,
                    });
                    self.stack.depth += 1;
                }
                Effects::NONE
            }
        }
    }

    fn leave(
        &mut self,
        time: u64,
        call: Call,
        ending: Ending,
        own: u64,
        out: &mut VecDeque<Shown>,
    ) {
        if !self.left_out.is_empty() && !self.stack.known.pop().unwrap_or(true) {
            return;
        }
        let (ends, lost) = (&mut self.ends, &mut self.lost);
        match (&mut self.stack.lane, &self.plan) {
            (Some(lane), Some(plan)) => {
                let serial = lane.innermost().map(|opened| opened.serial);
                ends.last = serial.map(|serial| (serial, own, ending));
                lane.exit(plan, time, &mut |event| tell(event, ends, lost, out));
                if !lane.is_holding() {
                    ends.held.clear();
                } else if let Some((serial, own, ending)) = ends.last.take() {
                    ends.held.insert(serial, (own, ending));
                }
            }
            _ => {
                if let Some(depth) = self.stack.depth.checked_sub(1) {
                    self.stack.depth = depth;
                    out.extend(lost.take().map(Lost::shown));
                    out.push_back(Shown::Leave {
                        time,
                        call: Call { depth, ..call },
                        ending,
                        own,
                    });
                }
            }
        }
    }

    /// The stream has ended, and all of its calls.
    pub fn finish(&mut self, out: &mut VecDeque<Shown>) {
        if let Some(lost) = self.lost.take() {
            let time = self.last;
            out.push_back(Lost { time, ..lost }.shown());
        }
    }
}

impl Stack {
    fn is_idle(&self) -> bool {
        self.known.is_empty()
            && self.depth == 0
            && self.lane.as_ref().is_none_or(|lane| lane.open_calls() == 0)
    }
}

fn tell(event: Event<Opened>, ends: &mut Ends, lost: &mut Option<Lost>, out: &mut VecDeque<Shown>) {
    match event {
        Event::Enter {
            call,
            time,
            depth,
            weight,
            effects,
        } => {
            if let Some(gap) = lost.take_if(|gap| gap.serial < call.serial) {
                out.push_back(gap.shown());
            }
            out.push_back(Shown::Enter {
                time,
                call: Call {
                    function: call.function,
                    depth,
                    entered: call.entered.then_some(time),
                },
                weight: weight * call.weight,
                backtrace: effects.contains(Effects::BACKTRACE),
            });
        }
        Event::Exit {
            call,
            start,
            time,
            depth,
        } => {
            if let Some(gap) = lost.take_if(|gap| gap.time <= time) {
                out.push_back(gap.shown());
            }
            let (own, ending) = ends.take(call.serial);
            out.push_back(Shown::Leave {
                time,
                call: Call {
                    function: call.function,
                    depth,
                    entered: call.entered.then_some(start),
                },
                ending,
                own,
            });
        }
    }
}

/// A filter, and the switch that it is told.
pub(crate) struct Stage<'v> {
    filter: Filter<'v>,
    place: usize,
    switch: Switch,
    /// What switches later on.
    switches: &'v [SwitchAt],
    out: VecDeque<Shown>,
}

impl<'v> Stage<'v> {
    pub fn new(
        filter: Filter<'v>,
        place: usize,
        initial: Switch,
        switches: &'v [SwitchAt],
    ) -> Stage<'v> {
        Stage {
            filter,
            place,
            switch: initial,
            switches,
            out: VecDeque::new(),
        }
    }

    fn take(&mut self, shown: Shown) {
        if let Shown::Enter { time, .. } = shown {
            self.look(time);
        }
        self.filter.take(shown, self.switch, &mut self.out);
    }

    /// Follows the switch up to a call that begins at `time`, the next one of this stream.
    #[inline]
    fn look(&mut self, time: u64) {
        let serial = self.filter.serial() + 1;
        while let Some((next, rest)) = self.switches.split_first() {
            let before = match next.place == self.place {
                true => next.serial < serial,
                false => (next.time, next.place) < (time, self.place),
            };
            if !before {
                break;
            }
            self.switch = next.switch;
            self.switches = rest;
        }
    }
}

/// The shown calls of one stream: an iterator, see [`View::calls`](crate::View::calls).
pub struct Calls<'v> {
    steps: Complete<'v>,
    /// What is shown passes them one after the other.
    stages: Vec<Stage<'v>>,
    ended: bool,
}

impl<'v> Calls<'v> {
    pub(crate) fn new(steps: Complete<'v>, stages: Vec<Stage<'v>>) -> Calls<'v> {
        Calls {
            steps,
            stages,
            ended: false,
        }
    }

    /// What is missing so far.
    pub fn losses(&self) -> ViewLosses {
        ViewLosses {
            walk: self.steps.walk.losses(),
            missing_ends: self.steps.missing_ends,
            missing_beginnings: self.steps.beginnings,
        }
    }

    fn next_filtered(&mut self) -> Option<Shown> {
        loop {
            let last = self.stages.last_mut()?;
            if let Some(shown) = last.out.pop_front() {
                return Some(shown);
            }
            if self.ended {
                return None;
            }
            match self.steps.next() {
                Some(shown) => {
                    self.stages.first_mut()?.take(shown);
                    for next in 1..self.stages.len() {
                        self.pass_on(next);
                    }
                }
                None => {
                    for stage in 0..self.stages.len() {
                        self.pass_on(stage);
                        let stage = &mut self.stages[stage];
                        stage.filter.finish(&mut stage.out);
                    }
                    self.ended = true;
                }
            }
        }
    }

    /// Hands what a stage shows to the next one.
    fn pass_on(&mut self, stage: usize) {
        let (before, rest) = self.stages.split_at_mut(stage);
        if let (Some(before), Some(stage)) = (before.last_mut(), rest.first_mut()) {
            while let Some(shown) = before.out.pop_front() {
                stage.take(shown);
            }
        }
    }
}

impl Iterator for Calls<'_> {
    type Item = Shown;

    #[inline]
    fn next(&mut self) -> Option<Shown> {
        if self.stages.is_empty() {
            self.steps.next()
        } else {
            self.next_filtered()
        }
    }
}
