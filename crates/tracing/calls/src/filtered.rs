//! The shown calls of one stream: what passes all sets of rules, one after the other.

use crate::complete::Complete;
use crate::filter::Filter;
use crate::{Shown, ViewLosses};
use dioptra_filters::{Sampler, Switch};
use std::collections::VecDeque;

/// When tracing was switched on or off, and by which call: the stream's place and the number of its call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SwitchAt {
    pub time: u64,
    pub place: usize,
    pub serial: u64,
    pub switch: Switch,
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
        self.look(&shown);
        let out = &mut self.out;
        let mut out = |shown| out.push_back(shown);
        self.filter.take(shown, self.switch, &mut out);
    }

    fn finish(&mut self) {
        let out = &mut self.out;
        self.filter.finish(&mut |shown| out.push_back(shown));
    }

    /// Follows the switch up to the next call of this stream, if that begins.
    #[inline]
    fn look(&mut self, shown: &Shown) {
        if let Shown::Enter { time, .. } = *shown
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

    /// The counters of the sampled functions so far, of one set of rules after the other.
    pub(crate) fn samplers(&self) -> impl Iterator<Item = &[Sampler]> {
        self.stages.iter().map(|stage| stage.filter.samplers())
    }

    /// What is missing so far.
    pub fn losses(&self) -> ViewLosses {
        self.steps.losses()
    }

    /// Takes everything that is still to come; faster than as an iterator.
    #[inline]
    pub fn each(&mut self, mut take: impl FnMut(Shown)) {
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

    fn next_filtered(&mut self) -> Option<Shown> {
        loop {
            let last = self.stages.last_mut()?;
            if let Some(shown) = last.out.pop_front() {
                return Some(shown);
            }
            if self.ended {
                return None;
            }
            // Most of what is left out is ordinary.
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

/// What passes a single filter, without a queue between.
#[inline]
fn each_filtered(steps: &mut Complete<'_>, stage: &mut Stage<'_>, mut take: impl FnMut(Shown)) {
    // What was asked for as from an iterator comes first.
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
