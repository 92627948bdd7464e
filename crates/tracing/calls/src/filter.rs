//! One set of rules, applied to one stream.

use crate::{Call, CallEnding, ShownStep};
use dioptra_filters::{Effects, Event, Lane, Plan, Sampler, TraceSwitch};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The data of a call that goes through the lane.
#[derive(Clone, Copy, Debug)]
struct FilteredCall {
    serial: u64,
    function: u32,
    /// The time at which it began; `None` if that is not in the trace.
    entered: Option<u64>,
    /// The number of calls that it stands for by the filters before this one.
    weight: f64,
    /// The call's own time. It and `ending` are set once the call has ended.
    own: u64,
    ending: CallEnding,
    /// The place of the call's arguments, or 0.
    arguments: u64,
    /// The place of the call's return value, or 0; set once the call has ended.
    returned: u64,
}

/// The calls of one call stack.
#[derive(Debug)]
struct FilterStack {
    lane: Option<Lane<FilteredCall>>,
    /// For each open call, if any function is left out: whether the lane knows it.
    known: Vec<bool>,
    /// The number of open calls that are shown, if there is no lane.
    depth: u32,
}

/// A filter of one stream.
#[derive(Debug)]
pub(crate) struct Filter<'v> {
    plan: Option<&'v Plan>,
    left_out: &'v [bool],
    thread: u64,
    /// The number of executions for which a chosen one stands; see [`Lane::scaled`].
    scales: Option<Arc<[f64]>>,
    stack: FilterStack,
    number: u32,
    elsewhere: FxHashMap<u32, FilterStack>,
    /// Stacks without open calls, to be used again.
    idle: Vec<FilterStack>,
    serial: u64,
    lost: Option<HeldGap>,
    /// The time of the last step.
    last: u64,
}

/// A gap that was not given out yet.
#[derive(Clone, Copy, Debug)]
struct HeldGap {
    time: u64,
    serial: u64,
    records: u64,
    unknown: bool,
}

impl HeldGap {
    fn shown(self) -> ShownStep {
        ShownStep::Lost {
            time: self.time,
            records: if self.unknown { 0 } else { self.records },
        }
    }
}

impl<'v> Filter<'v> {
    pub fn new(
        plan: Option<&'v Plan>,
        left_out: &'v [bool],
        thread: u64,
        scales: Option<Arc<[f64]>>,
    ) -> Filter<'v> {
        let mut filter = Filter {
            plan,
            left_out,
            thread,
            scales,
            stack: FilterStack {
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

    fn new_stack(&self) -> FilterStack {
        FilterStack {
            lane: self
                .plan
                .map(|plan| Lane::new(plan, self.thread).scaled(self.scales.clone())),
            known: Vec::new(),
            depth: 0,
        }
    }

    /// Returns the counters of the sampled functions, by [`Sampling::slot`](dioptra_filters::Sampling::slot).
    pub fn samplers(&self) -> &[Sampler] {
        self.stack.lane.as_ref().map_or(&[], Lane::samplers)
    }

    /// Returns the number of calls that have begun.
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// Takes a step and gives the steps that pass the filter to `out`. Returns the effects of a beginning call on the
    /// process's switch.
    #[inline]
    pub fn take(
        &mut self,
        shown: ShownStep,
        switch: TraceSwitch,
        out: &mut impl FnMut(ShownStep),
    ) -> Effects {
        self.last = shown.time();
        match shown {
            ShownStep::Enter {
                time, call, weight, ..
            } => return self.enter(time, call, weight, switch, out),
            ShownStep::Leave {
                time,
                call,
                ending,
                own,
            } => self.leave(time, call, ending, own, out),
            ShownStep::Lost { time, records } => {
                let serial = self.serial;
                let lost = self.lost.get_or_insert(HeldGap {
                    time,
                    serial,
                    records: 0,
                    unknown: false,
                });
                lost.records = lost.records.saturating_add(records);
                lost.unknown |= records == 0;
            }
            ShownStep::Switch { time, stack } => {
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
                out(ShownStep::Switch { time, stack });
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
        switch: TraceSwitch,
        out: &mut impl FnMut(ShownStep),
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
        let opened = FilteredCall {
            serial: self.serial,
            function: call.function,
            entered: call.entered,
            weight,
            own: 0,
            ending: CallEnding::Returned,
            arguments: call.values,
            returned: 0,
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
                if switch == TraceSwitch::On {
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
        ending: CallEnding,
        own: u64,
        out: &mut impl FnMut(ShownStep),
    ) {
        if !self.left_out.is_empty() && !self.stack.known.pop().unwrap_or(true) {
            return;
        }
        let lost = &mut self.lost;
        match (&mut self.stack.lane, &self.plan) {
            (Some(lane), Some(plan)) => {
                // Kept with the call, not beside it, so that hidden calls leave nothing behind.
                if let Some(opened) = lane.innermost_mut() {
                    (opened.own, opened.ending) = (own, ending);
                    (opened.entered, opened.returned) = (call.entered, call.values);
                }
                let tell = &mut |event| tell(event, lost, out);
                match ending {
                    CallEnding::Discarded => lane.discard(plan, time, tell),
                    CallEnding::Open => lane.cut(plan, time, tell),
                    _ => lane.exit(plan, time, tell),
                }
            }
            _ => {
                if let Some(depth) = self.stack.depth.checked_sub(1) {
                    self.stack.depth = depth;
                    if let Some(gap) = lost.take() {
                        out(gap.shown());
                    }
                    out(ShownStep::Leave {
                        time,
                        call: Call { depth, ..call },
                        ending,
                        own,
                    });
                }
            }
        }
    }

    /// Ends the stream, whose calls have all ended.
    pub fn finish(&mut self, out: &mut impl FnMut(ShownStep)) {
        if let Some(lost) = self.lost.take() {
            let time = self.last;
            out(HeldGap { time, ..lost }.shown());
        }
    }
}

impl FilterStack {
    fn is_idle(&self) -> bool {
        self.known.is_empty()
            && self.depth == 0
            && self.lane.as_ref().is_none_or(|lane| lane.open_calls() == 0)
    }
}

#[inline]
fn tell(event: Event<FilteredCall>, lost: &mut Option<HeldGap>, out: &mut impl FnMut(ShownStep)) {
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
            out(ShownStep::Enter {
                time,
                call: Call {
                    function: call.function,
                    depth,
                    entered: call.entered,
                    values: call.arguments,
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
            out(ShownStep::Leave {
                time,
                call: Call {
                    function: call.function,
                    depth,
                    entered: call.entered,
                    values: call.returned,
                },
                ending: call.ending,
                own: call.own,
            });
        }
    }
}
