//! A stream in which every call begins and ends, whatever is missing in the records.

use crate::recorded::Weights;
use crate::scheduled::Scheduled;
use crate::{Call, Ending, Frames, Shown, Step, TimeRange, ViewLosses};
use std::collections::VecDeque;

/// An open call.
#[derive(Clone, Copy, Debug)]
struct Begun {
    function: u32,
    /// Whether its beginning is known: `start`, else where it is seen first.
    entered: bool,
    start: u64,
    /// Time within calls below it.
    below: u64,
    /// For how many each call below it stands.
    weight: f64,
    /// A chosen execution of a function that was sampled with what it called.
    root: bool,
}

impl Begun {
    #[inline]
    fn new(time: u64, call: Call) -> Begun {
        Begun {
            function: call.function,
            entered: call.entered.is_some(),
            start: time,
            below: 0,
            weight: 1.0,
            root: false,
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

    /// What is missing so far.
    pub fn losses(&self) -> ViewLosses {
        ViewLosses {
            walk: self.walk.losses(),
            missing_ends: self.missing_ends,
            missing_beginnings: self.beginnings,
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
                    weight: below,
                    root,
                    ..Begun::new(time, call)
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
            weights.end(begun.function);
        }
        own_time(begun, time, self.range, &mut self.open)
    }

    /// Gives what comes next as long as it is ordinary and `take` wants more, the quick way; what is not ordinary is left to
    /// [`Complete::next`].
    #[inline]
    pub fn run(&mut self, mut take: impl FnMut(Shown) -> bool) {
        let is_ready = self.behind.is_none() && self.end.is_none() && self.weights.is_none();
        if !is_ready || self.walk.depth() != self.open.current().len() {
            return;
        }
        let (open, range) = (&mut self.open, self.range);
        let stop = range.stop.unwrap_or(u64::MAX);
        self.walk.run(stop, |step| match step {
            Step::Enter { time, call } => {
                open.push(Begun::new(time, call));
                take(Shown::Enter {
                    time,
                    call,
                    weight: 1.0,
                    backtrace: false,
                })
            }
            Step::Leave { time, call, ending } => {
                if let Some(begun) = open.pop() {
                    let own = own_time(begun, time, range, open);
                    take(Shown::Leave {
                        time,
                        call,
                        ending,
                        own,
                    })
                } else {
                    true
                }
            }
            Step::Lost { .. } | Step::Switch { .. } => true,
        });
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
                    call: Call {
                        function: begun.function,
                        depth: self.open.current().len() as u32,
                        entered: begun.entered.then_some(begun.start),
                    },
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

/// The own time of a call that ends, which those around it learn of.
#[inline]
fn own_time(begun: Begun, time: u64, range: TimeRange, open: &mut Frames<Begun>) -> u64 {
    let start = begun.start.max(range.start.unwrap_or(0));
    let duration = time.saturating_sub(start);
    if let Some(around) = open.last_mut() {
        around.below = around.below.saturating_add(duration);
    }
    duration.saturating_sub(begun.below)
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
