//! The calls of a thread as bars: calls that are narrower than a pixel are merged with their neighbours.

use super::interned::Interned;
use crate::api::CallBars;
use crate::failure::Failure;
use crate::jobs::Ticket;
use dioptra_calls::{Call, CallEnding, OpenCalls, ShownCalls, ShownStep, TimeRange, ViewLosses};

/// The call goes on behind the picture.
pub(crate) const GOES_ON: u8 = 1;
/// The beginning of the call is not known.
pub(crate) const BEGAN_BEFORE: u8 = 2;
/// The thread left the call for another call stack, and came back or will.
pub(crate) const IN_PIECES: u8 = 4;

/// The steps between two looks at whether somebody still waits.
const LOOKS: u32 = 1 << 16;

/// A bar of one level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bar {
    start: u64,
    end: u64,
    function: u32,
    /// The duration of the longest call.
    longest: u64,
    count: u32,
    state: u8,
}

/// A call that is open while the thread's steps are read.
#[derive(Clone, Copy, Debug)]
struct OpenBar {
    function: u32,
    /// When its present piece began.
    start: u64,
    state: u8,
}

/// A maker of bars, fed with the steps of one thread.
pub(crate) struct BarMaker {
    span: TimeRange,
    /// Nanoseconds; at least 1.
    pixel: f64,
    /// The number of levels that are drawn.
    depth: u32,
    /// The bars that may still take in calls, by level.
    pending: Vec<Option<Bar>>,
    /// The bars that are done, each with its level.
    done: Vec<(u32, Bar)>,
    /// The number of bars at most.
    most: usize,
    left_out: u64,
    pub calls: u64,
    pub levels: u32,
    open: OpenCalls<OpenBar>,
}

impl BarMaker {
    /// Makes bars of the time `span`, in which a pixel covers `pixel` nanoseconds.
    pub(crate) fn new(span: TimeRange, pixel: f64, depth: u32, most: usize) -> BarMaker {
        BarMaker {
            span,
            pixel: pixel.max(1.0),
            depth,
            pending: Vec::new(),
            done: Vec::new(),
            most,
            left_out: 0,
            calls: 0,
            levels: 0,
            open: OpenCalls::default(),
        }
    }

    /// Takes all calls of a stream, and returns its losses.
    ///
    /// # Errors
    /// [`Failure::Gone`] once nobody waits any more.
    pub(crate) fn take(
        &mut self,
        mut calls: ShownCalls<'_>,
        ticket: &Ticket,
    ) -> Result<ViewLosses, Failure> {
        let mut steps = 0_u32;
        self.open = OpenCalls::default();
        for shown in calls.by_ref() {
            steps = steps.wrapping_add(1);
            if steps.is_multiple_of(LOOKS) {
                ticket.check()?;
            }
            self.step(shown);
        }
        Ok(calls.losses())
    }

    fn step(&mut self, shown: ShownStep) {
        match shown {
            ShownStep::Enter { time, call, .. } => {
                let state = if call.entered.is_none() {
                    BEGAN_BEFORE
                } else {
                    0
                };
                self.open.push(OpenBar {
                    function: call.function,
                    start: time,
                    state,
                });
            }
            ShownStep::Leave {
                time, call, ending, ..
            } => self.leave(time, call, ending),
            ShownStep::Switch { time, stack } => {
                // What is open elsewhere does not run meanwhile.
                let left = std::mem::take(&mut self.open);
                self.open = self.switched(left, time, stack);
            }
            ShownStep::Lost { .. } => {}
        }
    }

    fn switched(
        &mut self,
        mut open: OpenCalls<OpenBar>,
        time: u64,
        stack: u32,
    ) -> OpenCalls<OpenBar> {
        for (depth, bar) in (0..).zip(open.current_mut()) {
            bar.state |= IN_PIECES;
            self.add(depth, *bar, bar.start, time);
        }
        open.switch(stack);
        for bar in open.current_mut() {
            bar.start = time;
        }
        open
    }

    fn leave(&mut self, time: u64, call: Call, ending: CallEnding) {
        let Some(mut bar) = self.open.pop() else {
            return;
        };
        let depth = self.open.current().len();
        let depth = u32::try_from(depth).unwrap_or(u32::MAX);
        // A reading that began in the middle learns of a call's beginning at its end.
        if bar.state & IN_PIECES == 0
            && let Some(entered) = call.entered
        {
            bar.start = entered;
        }
        match ending {
            CallEnding::Open => bar.state |= GOES_ON,
            _ => self.calls += u64::from(self.span.start.is_none_or(|from| time >= from)),
        }
        self.add(depth, bar, bar.start, time);
    }

    fn add(&mut self, depth: u32, bar: OpenBar, start: u64, end: u64) {
        if self.span.start.is_some_and(|from| end < from) {
            return;
        }
        self.levels = self.levels.max(depth.saturating_add(1));
        if depth >= self.depth {
            return;
        }
        let level = depth as usize;
        if self.pending.len() <= level {
            self.pending.resize(level + 1, None);
        }
        let longest = end.saturating_sub(start);
        let next = Bar {
            start,
            end,
            function: bar.function,
            longest,
            count: 1,
            state: bar.state,
        };
        let is_narrow = (longest as f64) < self.pixel;
        match &mut self.pending[level] {
            // Both begin in the same pixel, and neither fills it.
            Some(known)
                if is_narrow
                    && column(self.span, self.pixel, known.start)
                        == column(self.span, self.pixel, start)
                    && ((known.end.saturating_sub(known.start)) as f64) < self.pixel =>
            {
                known.end = known.end.max(end);
                known.count = known.count.saturating_add(1);
                known.state |= bar.state;
                if longest > known.longest {
                    known.longest = longest;
                    known.function = bar.function;
                }
            }
            place => {
                if let Some(done) = place.replace(next) {
                    self.finish(depth, done);
                }
            }
        }
    }

    fn finish(&mut self, depth: u32, bar: Bar) {
        match self.done.len() < self.most {
            true => self.done.push((depth, bar)),
            false => self.left_out += 1,
        }
    }

    /// Returns the bars, with times since `first`, and the number of those that were left out.
    pub(crate) fn bars(mut self, first: u64, interned: &mut Interned<'_, '_>) -> (CallBars, u64) {
        for (depth, pending) in (0..).zip(std::mem::take(&mut self.pending)) {
            if let Some(bar) = pending {
                self.finish(depth, bar);
            }
        }
        let mut bars = CallBars::default();
        for (depth, bar) in std::mem::take(&mut self.done) {
            bars.depth.push(depth);
            bars.start.push(bar.start.saturating_sub(first));
            bars.end.push(bar.end.saturating_sub(first));
            bars.function.push(interned.function(bar.function));
            bars.count.push(bar.count);
            bars.state.push(bar.state);
        }
        (bars, self.left_out)
    }
}

/// The pixel in which a time lies.
fn column(span: TimeRange, pixel: f64, time: u64) -> u64 {
    let since = time.saturating_sub(span.start.unwrap_or(0));
    (since as f64 / pixel) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bars(pixel: f64, calls: &[(u64, u64, u32)]) -> Vec<(u64, u64, u32, u32)> {
        let span = TimeRange {
            start: Some(100),
            stop: Some(200),
        };
        let mut maker = BarMaker::new(span, pixel, 4, 100);
        for (start, end, function) in calls {
            let bar = OpenBar {
                function: *function,
                start: *start,
                state: 0,
            };
            maker.add(0, bar, *start, *end);
        }
        let pending: Vec<Bar> = maker.pending.iter().flatten().copied().collect();
        let done = maker.done.iter().map(|(_, bar)| *bar);
        let all = done.chain(pending);
        all.map(|bar| (bar.start, bar.end, bar.function, bar.count))
            .collect()
    }

    #[test]
    fn narrow_calls_of_one_pixel_are_one_bar() {
        let calls = [(100, 101, 1), (102, 105, 2), (106, 107, 1), (111, 112, 1)];
        assert_eq!(bars(10.0, &calls), [(100, 107, 2, 3), (111, 112, 1, 1)]);
        // Wider than a pixel, they stay apart.
        assert_eq!(bars(1.0, &calls).len(), 4);
    }

    #[test]
    fn wide_calls_stay_alone_and_earlier_ones_are_left_out() {
        let calls = [
            (10, 20, 1),
            (90, 120, 1),
            (121, 122, 2),
            (123, 150, 3),
            (151, 152, 2),
        ];
        let expected = [
            (90, 120, 1, 1),
            (121, 122, 2, 1),
            (123, 150, 3, 1),
            (151, 152, 2, 1),
        ];
        assert_eq!(bars(10.0, &calls), expected);
    }

    #[test]
    fn pictures_are_bounded() {
        let span = TimeRange {
            start: Some(0),
            stop: None,
        };
        let mut maker = BarMaker::new(span, 1.0, 2, 10);
        for time in 0..100 {
            let bar = OpenBar {
                function: 1,
                start: time * 10,
                state: 0,
            };
            maker.add(0, bar, time * 10, time * 10 + 5);
            maker.add(7, bar, time * 10, time * 10 + 5);
        }
        assert_eq!((maker.done.len(), maker.left_out), (10, 89));
        assert_eq!(maker.levels, 8);
    }
}
