//! The shown calls of one stream.

use crate::{Call, Ending, Step, ViewLosses, Walk};
use dioptra_filters::{Effects, Event, Lane, Plan, Switch};
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
    /// The innermost shown call ends.
    Leave {
        /// When.
        time: u64,
        /// Which.
        call: Call,
        /// How.
        ending: Ending,
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

/// A walk's steps, in which calls without an entry of their own begin, too: with `entered` none, before what first
/// happens in them.
pub(crate) struct Complete<'v> {
    walk: Walk<'v>,
    /// How many of the open calls have begun in what was given.
    begun: usize,
    elsewhere: FxHashMap<u32, usize>,
    stack: u32,
    /// Beginnings still to be given, and the step behind them.
    missing: VecDeque<Call>,
    behind: Option<Step>,
    beginnings: u64,
}

impl<'v> Complete<'v> {
    pub fn new(walk: Walk<'v>) -> Complete<'v> {
        Complete {
            walk,
            begun: 0,
            elsewhere: FxHashMap::default(),
            stack: 0,
            missing: VecDeque::new(),
            behind: None,
            beginnings: 0,
        }
    }

    #[cold]
    fn queued(&mut self) -> Option<Step> {
        let time = self.behind?.time();
        if let Some(call) = self.missing.pop_front() {
            return Some(Step::Enter { time, call });
        }
        self.behind.take()
    }

    /// Gives the calls up to `depth` that have not begun, then `step`.
    #[cold]
    fn begin(&mut self, upto: usize, step: Step) -> Option<Step> {
        let open = self.walk.open().skip(self.begun);
        self.missing.extend(open.take(upto - self.begun));
        if let Step::Leave { call, .. } = step
            && self.missing.len() < upto - self.begun
        {
            self.missing.push_back(Call {
                entered: None,
                ..call
            });
        }
        self.beginnings += self.missing.len() as u64;
        self.begun += self.missing.len();
        self.behind = Some(step);
        self.count(&step);
        self.queued()
    }

    #[inline]
    fn count(&mut self, step: &Step) {
        match step {
            Step::Enter { .. } => self.begun += 1,
            Step::Leave { .. } => self.begun = self.begun.saturating_sub(1),
            Step::Lost { .. } => {}
            Step::Switch { stack, .. } => {
                self.elsewhere.insert(self.stack, self.begun);
                self.stack = *stack;
                self.begun = self.elsewhere.remove(stack).unwrap_or(0);
            }
        }
    }
}

impl Iterator for Complete<'_> {
    type Item = Step;

    #[inline]
    fn next(&mut self) -> Option<Step> {
        if self.behind.is_some() {
            return self.queued();
        }
        let step = self.walk.next()?;
        let needed = match &step {
            Step::Enter { call, .. } => call.depth as usize,
            Step::Leave { call, .. } => call.depth as usize + 1,
            _ => 0,
        };
        if needed > self.begun {
            return self.begin(needed, step);
        }
        self.count(&step);
        Some(step)
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
    /// How calls ended otherwise than by returning, until that is told.
    endings: FxHashMap<u64, Ending>,
    lost: Option<Lost>,
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
            endings: FxHashMap::default(),
            lost: None,
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
        match shown {
            Shown::Enter {
                time, call, weight, ..
            } => return self.enter(time, call, weight, switch, out),
            Shown::Leave { time, call, ending } => self.leave(time, call, ending, out),
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
                    let left = std::mem::replace(&mut self.stack, next);
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
        let (endings, lost) = (&mut self.endings, &mut self.lost);
        let mut tell = |event| tell(event, endings, lost, out);
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

    fn leave(&mut self, time: u64, call: Call, ending: Ending, out: &mut VecDeque<Shown>) {
        if !self.left_out.is_empty() && !self.stack.known.pop().unwrap_or(true) {
            return;
        }
        let (endings, lost) = (&mut self.endings, &mut self.lost);
        match (&mut self.stack.lane, &self.plan) {
            (Some(lane), Some(plan)) => {
                let serial = lane.innermost().map(|opened| opened.serial);
                if let (Some(serial), true) = (serial, ending != Ending::Returned) {
                    endings.insert(serial, ending);
                }
                lane.exit(plan, time, &mut |event| tell(event, endings, lost, out));
            }
            _ => {
                if let Some(depth) = self.stack.depth.checked_sub(1) {
                    self.stack.depth = depth;
                    out.push_back(Shown::Leave {
                        time,
                        call: Call { depth, ..call },
                        ending,
                    });
                }
            }
        }
    }

    /// The stream ends at `time`.
    pub fn finish(&mut self, time: u64, out: &mut VecDeque<Shown>) {
        if let Some(plan) = &self.plan {
            let (endings, lost) = (&mut self.endings, &mut self.lost);
            let elsewhere = self.elsewhere.values_mut();
            for stack in elsewhere.chain([&mut self.stack]) {
                if let Some(lane) = &mut stack.lane {
                    lane.finish(plan, time, &mut |event| tell(event, endings, lost, out));
                }
            }
        }
        out.extend(self.lost.take().map(Lost::shown));
    }
}

impl Stack {
    fn is_idle(&self) -> bool {
        self.known.is_empty()
            && self.depth == 0
            && self.lane.as_ref().is_none_or(|lane| lane.open_calls() == 0)
    }
}

fn tell(
    event: Event<Opened>,
    endings: &mut FxHashMap<u64, Ending>,
    lost: &mut Option<Lost>,
    out: &mut VecDeque<Shown>,
) {
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
            let ending = match endings.is_empty() {
                true => Ending::Returned,
                false => endings.remove(&call.serial).unwrap_or(Ending::Returned),
            };
            out.push_back(Shown::Leave {
                time,
                call: Call {
                    function: call.function,
                    depth,
                    entered: call.entered.then_some(start),
                },
                ending,
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
    stop: u64,
    missing_ends: u64,
    ended: bool,
}

impl<'v> Calls<'v> {
    pub(crate) fn new(steps: Complete<'v>, stages: Vec<Stage<'v>>, stop: Option<u64>) -> Calls<'v> {
        Calls {
            steps,
            stages,
            stop: stop.unwrap_or(u64::MAX),
            missing_ends: 0,
            ended: false,
        }
    }

    /// What is missing so far.
    pub fn losses(&self) -> ViewLosses {
        ViewLosses {
            walk: self.steps.walk.losses(),
            missing_ends: self.missing_ends,
            missing_beginnings: self.steps.beginnings,
        }
    }

    /// The time of the last record that was looked at, or the end of the time that is shown.
    pub fn time(&self) -> u64 {
        self.steps.walk.time().min(self.stop)
    }

    /// The next step, unfiltered; none at the end of the stream or of the time that is shown.
    #[inline]
    fn step(&mut self) -> Option<Shown> {
        if self.ended {
            return None;
        }
        let Some(step) = self.steps.next().filter(|step| step.time() <= self.stop) else {
            self.ended = true;
            return None;
        };
        Some(match step {
            Step::Enter { time, call } => Shown::Enter {
                time,
                call,
                weight: 1.0,
                backtrace: false,
            },
            Step::Leave { time, call, ending } => {
                self.missing_ends += u64::from(ending == Ending::Missing);
                Shown::Leave { time, call, ending }
            }
            Step::Lost { time, records } => Shown::Lost { time, records },
            Step::Switch { time, stack } => Shown::Switch { time, stack },
        })
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
            match self.step() {
                Some(shown) => {
                    self.stages.first_mut()?.take(shown);
                    for next in 1..self.stages.len() {
                        self.pass_on(next);
                    }
                }
                None => {
                    let end = self.time();
                    for stage in 0..self.stages.len() {
                        self.pass_on(stage);
                        let stage = &mut self.stages[stage];
                        stage.filter.finish(end, &mut stage.out);
                    }
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
            self.step()
        } else {
            self.next_filtered()
        }
    }
}
