//! A stream in which every call begins and ends, whatever is missing in the records.

use crate::recorded::RecordedWeights;
use crate::scheduled::Scheduled;
use crate::{Call, CallEnding, OpenCalls, ShownStep, TimeRange, ViewLosses, WalkStep};
use std::collections::VecDeque;

/// An open call.
#[derive(Clone, Copy, Debug)]
struct BegunCall {
    function: u32,
    /// True if the beginning is known: then it is `start`, else `start` is the time at which the call is first seen.
    entered: bool,
    start: u64,
    /// The time within calls below it, in nanoseconds.
    below: u64,
    /// The number of calls that each call below it stands for.
    weight: f64,
    /// True for a chosen execution of a function that was sampled together with the calls below it.
    root: bool,
}

impl BegunCall {
    #[inline]
    fn new(time: u64, call: Call) -> BegunCall {
        BegunCall {
            function: call.function,
            entered: call.entered.is_some(),
            start: time,
            below: 0,
            weight: 1.0,
            root: false,
        }
    }
}

/// A walk's steps, completed so that every call begins and ends. A call without an entry begins before the first
/// thing that happens in it, with `entered` none. A call that is open at the end ends with [`CallEnding::Open`].
pub(crate) struct Complete<'v> {
    walk: Scheduled<'v>,
    open: OpenCalls<BegunCall>,
    range: TimeRange,
    /// The beginnings still to be given; the step that follows them is `behind`.
    missing: VecDeque<Call>,
    behind: Option<WalkStep>,
    beginnings: u64,
    missing_ends: u64,
    /// The time at which open calls end, once all steps were given.
    end: Option<u64>,
    /// The weights of recorded calls; `None` if all calls were recorded.
    weights: Option<RecordedWeights<'v>>,
}

impl<'v> Complete<'v> {
    pub fn new(
        walk: Scheduled<'v>,
        range: TimeRange,
        weights: Option<RecordedWeights<'v>>,
    ) -> Complete<'v> {
        Complete {
            walk,
            open: OpenCalls::default(),
            range,
            missing: VecDeque::new(),
            behind: None,
            beginnings: 0,
            missing_ends: 0,
            end: None,
            weights,
        }
    }

    /// Returns the losses so far.
    pub fn losses(&self) -> ViewLosses {
        ViewLosses {
            walk: self.walk.losses(),
            missing_ends: self.missing_ends,
            missing_beginnings: self.beginnings,
        }
    }

    #[cold]
    fn queued(&mut self) -> Option<ShownStep> {
        let step = self.behind?;
        if let Some(call) = self.missing.pop_front() {
            self.beginnings += 1;
            return self.give(WalkStep::Enter {
                time: step.time(),
                call,
            });
        }
        self.behind = None;
        self.give(step)
    }

    /// Gives the calls up to `depth` that have not begun, then `step`.
    #[cold]
    fn begin(&mut self, depth: usize, step: WalkStep) -> Option<ShownStep> {
        let begun = self.open.current().len();
        self.missing
            .extend(self.walk.open().skip(begun).take(depth - begun));
        if let WalkStep::Leave { call, .. } = step
            && self.missing.len() < depth - begun
        {
            self.missing.push_back(Call {
                entered: None,
                values: 0,
                ..call
            });
        }
        self.behind = Some(step);
        self.queued()
    }

    #[inline]
    fn give(&mut self, step: WalkStep) -> Option<ShownStep> {
        Some(match step {
            WalkStep::Enter { time, call } => {
                let around = self.open.last().map_or(1.0, |around| around.weight);
                let (weight, below, root) = match &mut self.weights {
                    Some(weights) => weights.begin(call.function, around),
                    None => (1.0, 1.0, false),
                };
                self.open.push(BegunCall {
                    weight: below,
                    root,
                    ..BegunCall::new(time, call)
                });
                ShownStep::Enter {
                    time,
                    call,
                    weight,
                    backtrace: false,
                }
            }
            WalkStep::Leave { time, call, ending } => {
                self.missing_ends += u64::from(ending == CallEnding::Missing);
                let own = self.end(time);
                ShownStep::Leave {
                    time,
                    call,
                    ending,
                    own,
                }
            }
            WalkStep::Lost { time, records } => ShownStep::Lost { time, records },
            WalkStep::Switch { time, stack } => {
                self.open.switch(stack);
                ShownStep::Switch { time, stack }
            }
        })
    }

    /// Ends the innermost call. Returns its own time.
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

    /// Gives the next calls as long as they are ordinary and `take` wants more, by the fast path. All other steps are
    /// left to [`Complete::next`].
    #[inline]
    pub fn run(&mut self, mut take: impl FnMut(ShownStep) -> bool) {
        let is_ready = self.behind.is_none() && self.end.is_none() && self.weights.is_none();
        if !is_ready || self.walk.depth() != self.open.current().len() {
            return;
        }
        let (open, range) = (&mut self.open, self.range);
        let stop = range.stop.unwrap_or(u64::MAX);
        self.walk.run(stop, |step| match step {
            WalkStep::Enter { time, call } => {
                open.push(BegunCall::new(time, call));
                take(ShownStep::Enter {
                    time,
                    call,
                    weight: 1.0,
                    backtrace: false,
                })
            }
            WalkStep::Leave { time, call, ending } => {
                if let Some(begun) = open.pop() {
                    let own = own_time(begun, time, range, open);
                    take(ShownStep::Leave {
                        time,
                        call,
                        ending,
                        own,
                    })
                } else {
                    true
                }
            }
            WalkStep::Lost { .. } | WalkStep::Switch { .. } => true,
        });
    }

    /// Ends the open calls, stack by stack.
    #[cold]
    fn finish(&mut self) -> Option<ShownStep> {
        let time = self.end?;
        let stack = self.open.next_open()?;
        match self.open.last().copied() {
            Some(begun) => {
                let own = self.end(time);
                Some(ShownStep::Leave {
                    time,
                    call: Call {
                        function: begun.function,
                        depth: self.open.current().len() as u32,
                        entered: begun.entered.then_some(begun.start),
                        values: 0,
                    },
                    ending: CallEnding::Open,
                    own,
                })
            }
            None => {
                self.open.switch(stack);
                Some(ShownStep::Switch { time, stack })
            }
        }
    }
}

/// Returns the own time of a call that ends, and adds its duration to the call around it.
#[inline]
fn own_time(begun: BegunCall, time: u64, range: TimeRange, open: &mut OpenCalls<BegunCall>) -> u64 {
    let start = begun.start.max(range.start.unwrap_or(0));
    let duration = time.saturating_sub(start);
    if let Some(around) = open.last_mut() {
        around.below = around.below.saturating_add(duration);
    }
    duration.saturating_sub(begun.below)
}

impl Iterator for Complete<'_> {
    type Item = ShownStep;

    #[inline]
    fn next(&mut self) -> Option<ShownStep> {
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
            WalkStep::Enter { call, .. } => call.depth as usize,
            WalkStep::Leave { call, .. } => call.depth as usize + 1,
            _ => 0,
        };
        if needed > self.open.current().len() {
            return self.begin(needed, step);
        }
        self.give(step)
    }
}
