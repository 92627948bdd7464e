//! The shown calls of one stream: those that pass all sets of rules, one after the other.

use crate::complete::Complete;
use crate::filter::Filter;
use crate::{ShownStep, ViewLosses};
use dioptra_filters::{Sampler, TraceSwitch};
use std::collections::VecDeque;

/// A time at which tracing was switched on or off, and the call that did it: the stream's index and the number of its
/// call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SwitchAt {
    pub time: u64,
    pub place: usize,
    pub serial: u64,
    pub switch: TraceSwitch,
}

/// A filter, and the switch that holds for it.
pub(crate) struct Stage<'v> {
    filter: Filter<'v>,
    place: usize,
    switch: TraceSwitch,
    /// The later changes of the switch.
    switches: &'v [SwitchAt],
    out: VecDeque<ShownStep>,
}

impl<'v> Stage<'v> {
    pub fn new(
        filter: Filter<'v>,
        place: usize,
        initial: TraceSwitch,
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

    fn take(&mut self, shown: ShownStep) {
        self.look(&shown);
        let out = &mut self.out;
        let mut out = |shown| out.push_back(shown);
        self.filter.take(shown, self.switch, &mut out);
    }

    fn finish(&mut self) {
        let out = &mut self.out;
        self.filter.finish(&mut |shown| out.push_back(shown));
    }

    /// Follows the switch up to the next call of this stream, if that call begins.
    #[inline]
    fn look(&mut self, shown: &ShownStep) {
        if let ShownStep::Enter { time, .. } = *shown
            && !self.switches.is_empty()
        {
            self.follow(time);
        }
    }

    fn follow(&mut self, time: u64) {
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
pub struct ShownCalls<'v> {
    steps: Complete<'v>,
    /// The stages, through which shown calls pass one after the other.
    stages: Vec<Stage<'v>>,
    ended: bool,
}

impl<'v> ShownCalls<'v> {
    pub(crate) fn new(steps: Complete<'v>, stages: Vec<Stage<'v>>) -> ShownCalls<'v> {
        ShownCalls {
            steps,
            stages,
            ended: false,
        }
    }

    /// Returns the counters of the sampled functions so far, of one set of rules after the other.
    pub(crate) fn samplers(&self) -> impl Iterator<Item = &[Sampler]> {
        self.stages.iter().map(|stage| stage.filter.samplers())
    }

    /// Returns the losses so far.
    pub fn losses(&self) -> ViewLosses {
        self.steps.losses()
    }

    /// Takes all remaining calls; faster than as an iterator.
    #[inline]
    pub fn each(&mut self, mut take: impl FnMut(ShownStep)) {
        match self.stages.as_mut_slice() {
            [] => {}
            [stage] => return each_filtered(&mut self.steps, stage, take),
            _ => return self.for_each(take),
        }
        loop {
            self.steps.run(|shown| {
                take(shown);
                true
            });
            match self.steps.next() {
                Some(shown) => take(shown),
                None => return,
            }
        }
    }

    fn next_filtered(&mut self) -> Option<ShownStep> {
        loop {
            let last = self.stages.last_mut()?;
            if let Some(shown) = last.out.pop_front() {
                return Some(shown);
            }
            if self.ended {
                return None;
            }
            // Most of the calls that are left out are ordinary.
            let first = self.stages.first_mut()?;
            self.steps.run(|shown| {
                first.take(shown);
                first.out.is_empty()
            });
            let next = match first.out.is_empty() {
                true => self.steps.next().map(|shown| first.take(shown)),
                false => Some(()),
            };
            match next {
                Some(()) => {
                    for next in 1..self.stages.len() {
                        self.pass_on(next);
                    }
                }
                None => {
                    for stage in 0..self.stages.len() {
                        self.pass_on(stage);
                        self.stages[stage].finish();
                    }
                    self.ended = true;
                }
            }
        }
    }

    /// Passes the calls that a stage shows on to the next one.
    fn pass_on(&mut self, stage: usize) {
        let (before, rest) = self.stages.split_at_mut(stage);
        if let (Some(before), Some(stage)) = (before.last_mut(), rest.first_mut()) {
            while let Some(shown) = before.out.pop_front() {
                stage.take(shown);
            }
        }
    }
}

/// Passes calls through a single filter, without a queue between.
#[inline]
fn each_filtered(steps: &mut Complete<'_>, stage: &mut Stage<'_>, mut take: impl FnMut(ShownStep)) {
    // Calls that the iterator has already produced come first.
    stage.out.drain(..).for_each(&mut take);
    loop {
        steps.run(|shown| {
            stage.look(&shown);
            stage.filter.take(shown, stage.switch, &mut take);
            true
        });
        let Some(shown) = steps.next() else { break };
        stage.look(&shown);
        stage.filter.take(shown, stage.switch, &mut take);
    }
    stage.filter.finish(&mut take);
}

impl Iterator for ShownCalls<'_> {
    type Item = ShownStep;

    #[inline]
    fn next(&mut self) -> Option<ShownStep> {
        if self.stages.is_empty() {
            self.steps.next()
        } else {
            self.next_filtered()
        }
    }
}
