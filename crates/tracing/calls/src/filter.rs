//! One set of rules, applied to one stream.

use crate::{Call, Ending, Shown};
use dioptra_filters::{Effects, Event, Lane, Plan, Sampler, Switch};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// A call as the lane knows it.
#[derive(Clone, Copy, Debug)]
struct Opened {
    serial: u64,
    function: u32,
    /// When it began; none if that is not in the trace.
    entered: Option<u64>,
    /// How many calls it stands for by what was filtered before.
    weight: f64,
    /// Its own time and how it ended, once it has.
    own: u64,
    ending: Ending,
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
    /// For how many executions a chosen one stands; see [`Lane::scaled`].
    scales: Option<Arc<[f64]>>,
    stack: Stack,
    number: u32,
    elsewhere: FxHashMap<u32, Stack>,
    /// Stacks without open calls, to be used again.
    idle: Vec<Stack>,
    serial: u64,
    lost: Option<Lost>,
    /// When something happened last.
    last: u64,
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
    pub fn new(
        plan: Option<Plan<'v>>,
        left_out: &'v [bool],
        thread: u64,
        scales: Option<Arc<[f64]>>,
    ) -> Filter<'v> {
        let mut filter = Filter {
            plan,
            left_out,
            thread,
            scales,
            stack: Stack {
                lane: None,
                known: Vec::new(),
                depth: 0,
            },
            number: 0,
            elsewhere: FxHashMap::default(),
            idle: Vec::new(),
            serial: 0,
            lost: None,
            last: 0,
        };
        filter.stack = filter.new_stack();
        filter
    }

    fn new_stack(&self) -> Stack {
        Stack {
            lane: self
                .plan
                .map(|plan| Lane::new(&plan, self.thread).scaled(self.scales.clone())),
            known: Vec::new(),
            depth: 0,
        }
    }

    /// The counters of the sampled functions, by [`Sampling::slot`](dioptra_filters::Sampling::slot).
    pub fn samplers(&self) -> &[Sampler] {
        self.stack.lane.as_ref().map_or(&[], Lane::samplers)
    }

    /// How many calls have begun.
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// Takes what was shown so far and gives what still is to `out`. Returns what a beginning call switches.
    #[inline]
    pub fn take(&mut self, shown: Shown, switch: Switch, out: &mut impl FnMut(Shown)) -> Effects {
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
                out(Shown::Switch { time, stack });
            }
        }
        Effects::NONE
    }

    #[inline]
    fn enter(
        &mut self,
        time: u64,
        call: Call,
        weight: f64,
        switch: Switch,
        out: &mut impl FnMut(Shown),
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
            entered: call.entered,
            weight,
            own: 0,
            ending: Ending::Returned,
        };
        let lost = &mut self.lost;
        let mut tell = |event| tell(event, lost, out);
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

    #[inline]
    fn leave(
        &mut self,
        time: u64,
        call: Call,
        ending: Ending,
        own: u64,
        out: &mut impl FnMut(Shown),
    ) {
        if !self.left_out.is_empty() && !self.stack.known.pop().unwrap_or(true) {
            return;
        }
        let lost = &mut self.lost;
        match (&mut self.stack.lane, &self.plan) {
            (Some(lane), Some(plan)) => {
                // Kept with the call, not beside it: what is hidden leaves nothing behind.
                if let Some(opened) = lane.innermost_mut() {
                    (opened.own, opened.ending) = (own, ending);
                    opened.entered = call.entered;
                }
                let tell = &mut |event| tell(event, lost, out);
                match ending {
                    Ending::Discarded => lane.discard(plan, time, tell),
                    Ending::Open => lane.cut(plan, time, tell),
                    _ => lane.exit(plan, time, tell),
                }
            }
            _ => {
                if let Some(depth) = self.stack.depth.checked_sub(1) {
                    self.stack.depth = depth;
                    if let Some(gap) = lost.take() {
                        out(gap.shown());
                    }
                    out(Shown::Leave {
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
    pub fn finish(&mut self, out: &mut impl FnMut(Shown)) {
        if let Some(lost) = self.lost.take() {
            let time = self.last;
            out(Lost { time, ..lost }.shown());
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

#[inline]
fn tell(event: Event<Opened>, lost: &mut Option<Lost>, out: &mut impl FnMut(Shown)) {
    match event {
        Event::Enter {
            call,
            time,
            depth,
            weight,
            effects,
        } => {
            if let Some(gap) = lost.take_if(|gap| gap.serial < call.serial) {
                out(gap.shown());
            }
            out(Shown::Enter {
                time,
                call: Call {
                    function: call.function,
                    depth,
                    entered: call.entered,
                },
                weight: weight * call.weight,
                backtrace: effects.contains(Effects::BACKTRACE),
            });
        }
        Event::Exit {
            call, time, depth, ..
        } => {
            if let Some(gap) = lost.take_if(|gap| gap.time <= time) {
                out(gap.shown());
            }
            out(Shown::Leave {
                time,
                call: Call {
                    function: call.function,
                    depth,
                    entered: call.entered,
                },
                ending: call.ending,
                own: call.own,
            });
        }
    }
}
