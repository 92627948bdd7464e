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
        if !self.stages.is_empty() {
            self.for_each(take);
            return;
        }
        loop {
            self.steps.run(&mut take);
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
