//! Events as calls: the times in which a thread had no CPU, its beginning, its end and its names.
//!
//! Context switches come from the kernel, calls from the traced program, each with readings of one clock, of which
//! one is converted. So the ends of a period without a CPU may seem to lie a moment behind a call that follows it.

use crate::{Call, CallEnding, StreamWalk, WalkLosses, WalkStep};
use dioptra_tracedata::{Stream, TaskEvent, ThreadSwitches, Trace};
use dioptra_tracelayout::{ContextSwitch, EventPlace, SwitchKind};
use std::collections::VecDeque;

/// The largest overlap of calls with a period without a CPU, in nanoseconds: the error of the clocks.
const TOLERANCE: u64 = 20_000;

/// The events that are shown. Periods without a CPU are no function's own time, shown or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheduling {
    /// True to show periods without a CPU in which the thread waited.
    pub waits: bool,
    /// True to show periods without a CPU in which the thread could have gone on.
    pub preemptions: bool,
    /// True to show the thread's beginning, end and names, as calls without duration. Sums count them as calls.
    pub tasks: bool,
    /// True to show events outside of all recorded calls, too.
    pub everywhere: bool,
}

impl Default for Scheduling {
    /// Returns the selection of all periods within recorded calls.
    fn default() -> Scheduling {
        Scheduling {
            waits: true,
            preemptions: true,
            tasks: false,
            everywhere: false,
        }
    }
}

/// The CPUs of a thread over time.
#[derive(Clone, Debug)]
pub struct ThreadCpus<'t> {
    switches: ThreadSwitches<'t>,
    now: Option<u32>,
    next: Option<ContextSwitch>,
}

impl<'t> ThreadCpus<'t> {
    pub(crate) fn new(mut switches: ThreadSwitches<'t>) -> ThreadCpus<'t> {
        let next = switches.next();
        ThreadCpus {
            // The CPU that the thread leaves first is the one that it had before.
            now: next
                .filter(|next| next.kind != SwitchKind::In)
                .map(|next| next.cpu),
            switches,
            next,
        }
    }

    /// Returns the CPU at a time; the last one if the thread has none then; `None` before the first one that is
    /// known. The times of successive calls must not decrease.
    #[inline]
    pub fn at(&mut self, time: u64) -> Option<u32> {
        self.go_on(time, |_| {});
        self.now
    }

    /// Goes on to a time, and calls `gets` with each other CPU that the thread gets until then. Returns the CPU at
    /// the time, as [`ThreadCpus::at`] does.
    #[inline]
    pub fn go_on(&mut self, time: u64, mut gets: impl FnMut(u32)) -> Option<u32> {
        while let Some(next) = self.next.filter(|next| next.time <= time) {
            if self.now != Some(next.cpu) {
                self.now = Some(next.cpu);
                gets(next.cpu);
            }
            self.next = self.switches.next();
        }
        self.now
    }
}

/// A stretch of time in which a thread had no CPU, or the moment of another event of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Period {
    /// The time of its beginning by the kernel.
    told: u64,
    /// The time of its beginning in the view.
    start: u64,
    end: u64,
    /// True if it was found to overlap calls by more than the error of the clocks.
    overlaps: bool,
    /// The function id that stands for it.
    event: u32,
    is_moment: bool,
}

/// The periods of one thread, and its other events.
struct Periods<'t> {
    switches: ThreadSwitches<'t>,
    /// The function id that stands for periods in which the thread waited; the next one is for preemptions.
    waits: u32,
    preemptions: u32,
    tracers: u32,
    /// The waits of the thread for the tracer, from the next period on, in order.
    tracer_waits: VecDeque<(u64, u64)>,
    moments: &'t [TaskEvent],
    /// The next period, if another event came first.
    held: Option<Period>,
}

impl Iterator for Periods<'_> {
    type Item = Period;

    fn next(&mut self) -> Option<Period> {
        let period = self.held.take().or_else(|| self.period());
        let Some((moment, rest)) = self.moments.split_first() else {
            return period;
        };
        let TaskEvent { time, function } = *moment;
        if period.is_some_and(|period| period.start < time) {
            return period;
        }
        self.moments = rest;
        self.held = period;
        Some(Period {
            told: time,
            start: time,
            end: time,
            overlaps: false,
            event: function,
            is_moment: true,
        })
    }
}

impl Periods<'_> {
    /// Returns true if the thread waits for the tracer most of the time from `start` to `end`. The next call must be
    /// for a later period.
    fn is_tracers(&mut self, start: u64, end: u64) -> bool {
        while self
            .tracer_waits
            .front()
            .is_some_and(|(_, until)| *until <= start)
        {
            self.tracer_waits.pop_front();
        }
        let Some((from, until)) = self.tracer_waits.front() else {
            return false;
        };
        let common = end.min(*until).saturating_sub(start.max(*from));
        common > (end - start) / 2
    }

    fn period(&mut self) -> Option<Period> {
        let mut left: Option<ContextSwitch> = None;
        loop {
            let switch = self.switches.next()?;
            let Some(before) = left.filter(|_| switch.kind == SwitchKind::In) else {
                // Without the other switch the period has no length: at the beginning, at the end, or because one is
                // lost.
                left = (switch.kind != SwitchKind::In).then_some(switch);
                continue;
            };
            let event = match before.kind {
                SwitchKind::Preempted => self.preemptions,
                _ if self.is_tracers(before.time, switch.time) => self.tracers,
                _ => self.waits,
            };
            return Some(Period {
                told: before.time,
                start: before.time,
                end: switch.time,
                overlaps: false,
                event,
                is_moment: false,
            });
        }
    }
}

/// A walk whose steps include events, as calls of functions that stand for them: see [`Trace::event_id`]. Events
/// before the first record are outside of all calls, even if calls are open then: these began in another thread.
pub(crate) struct Scheduled<'t> {
    walk: StreamWalk<'t>,
    periods: Option<Periods<'t>>,
    next: Option<Period>,
    everywhere: bool,
    /// The period that has begun, and its depth.
    inside: Option<(Period, u32)>,
    /// The walk's next step, if it was read already.
    held: Option<Option<WalkStep>>,
    /// The number of calls that are open after the walk's last given step.
    depth: u32,
    /// The time of the last step that was given.
    last: u64,
    overlaps: u64,
}

impl<'t> Scheduled<'t> {
    /// Returns the steps of `stream` of `trace`, from its start.
    pub fn new(trace: &'t Trace, stream: &'t Stream, shown: Scheduling) -> Scheduled<'t> {
        Scheduled::through(StreamWalk::new(trace, stream), trace, stream, shown)
    }

    /// Returns the steps from `from` until `until`, and some before them; see [`StreamWalk::from_chunk`].
    pub fn within(
        trace: &'t Trace,
        stream: &'t Stream,
        shown: Scheduling,
        (from, until): (u64, u64),
        exactly: bool,
    ) -> Scheduled<'t> {
        let mut chunk = trace.chunk_before(stream, from);
        while chunk > 0 {
            let Some(header) = trace.chunk(stream, chunk).map(|chunk| chunk.header) else {
                break;
            };
            let begin = trace
                .clock()
                .cursor()
                .monotonic(header.base << header.shift);
            let whole = Scheduled::new(trace, stream, shown);
            let (mut periods, mut next) = (whole.periods, whole.next);
            let mut advance = || periods.as_mut().and_then(Iterator::next);
            while next.is_some_and(|next| next.end <= begin) {
                next = advance();
            }
            if let Some(period) = next.filter(|next| next.start < begin) {
                // A period that has begun is shown from its beginning.
                let before = trace.chunk_before(stream, period.start);
                chunk = before.min(chunk - 1);
                continue;
            }
            let Some(walk) = StreamWalk::from_chunk(trace, stream, chunk, until, exactly) else {
                break;
            };
            return Scheduled {
                walk,
                periods,
                next,
                ..whole
            };
        }
        Scheduled::new(trace, stream, shown)
    }

    fn through(
        walk: StreamWalk<'t>,
        trace: &'t Trace,
        stream: &'t Stream,
        shown: Scheduling,
    ) -> Scheduled<'t> {
        let waits = trace.event_id(EventPlace::Schedule);
        let preemptions = trace.event_id(EventPlace::SchedulePreempted);
        let tracers = trace.event_id(EventPlace::ScheduleTracer);
        let mut periods = waits.zip(preemptions).map(|(waits, preemptions)| Periods {
            switches: trace.switches(stream),
            waits,
            preemptions,
            tracers: tracers.unwrap_or(waits),
            tracer_waits: trace.tracer_waits(stream).into(),
            moments: match shown.tasks {
                true => trace.task_events(stream),
                false => &[],
            },
            held: None,
        });
        Scheduled {
            walk,
            next: periods.as_mut().and_then(Iterator::next),
            periods,
            everywhere: shown.everywhere,
            inside: None,
            held: None,
            depth: 0,
            last: 0,
            overlaps: 0,
        }
    }

    /// Returns the calls that are open now, the outermost first, without those of periods.
    pub fn open(&self) -> impl Iterator<Item = Call> {
        // The call that the held step has ended is still open for the caller.
        let ending = match self.held {
            Some(Some(WalkStep::Leave { call, .. })) => Some(call),
            _ => None,
        };
        self.walk.open().chain(ending)
    }

    /// Returns the losses so far.
    pub fn losses(&self) -> WalkLosses {
        WalkLosses {
            overlaps: self.overlaps,
            ..self.walk.losses()
        }
    }

    /// Returns the time of the last step.
    pub fn time(&self) -> u64 {
        self.walk.time().max(self.last)
    }

    /// Gives ordinary steps as [`StreamWalk::run`] does, up to the next period.
    #[inline]
    pub fn run(&mut self, limit: u64, take: impl FnMut(WalkStep) -> bool) {
        if self.held.is_some() || self.inside.is_some() {
            return;
        }
        let limit = self.next.map_or(limit, |next| limit.min(next.start));
        self.walk.run(limit, take);
        self.last = self.last.max(self.walk.time());
        self.depth = self.walk.open().len() as u32;
    }

    /// Returns the number of open calls of the walk.
    pub fn depth(&self) -> usize {
        self.walk.open().len()
    }

    fn step_on(&mut self, step: Option<WalkStep>) -> Option<WalkStep> {
        self.last = step.as_ref().map_or(self.last, WalkStep::time);
        match &step {
            Some(WalkStep::Enter { call, .. }) => self.depth = call.depth + 1,
            Some(WalkStep::Leave { call, .. }) => self.depth = call.depth,
            Some(WalkStep::Switch { .. }) => self.depth = self.walk.open().len() as u32,
            Some(WalkStep::Lost { .. }) | None => {}
        }
        step
    }

    /// Begins or ends a period, or gives the walk's `step` that comes before that.
    #[cold]
    fn near(&mut self, step: Option<WalkStep>) -> Option<WalkStep> {
        if let Some((period, depth)) = self.inside.take() {
            self.held = Some(step);
            self.last = period.end;
            return Some(WalkStep::Leave {
                time: period.end,
                call: call(period, depth),
                ending: CallEnding::Returned,
            });
        }
        let time = step.as_ref().map_or(u64::MAX, WalkStep::time);
        let depth = match &step {
            Some(WalkStep::Enter { call, .. }) => call.depth,
            Some(WalkStep::Leave { call, .. }) => call.depth + 1,
            Some(_) => self.depth,
            None => self.walk.open().len() as u32,
        };
        while let Some(mut period) = self.next.filter(|period| period.start < time) {
            let is_shown = depth > 0 && self.last > 0 || self.everywhere;
            if period.end > time {
                // The end that is nearer to the step is wrong.
                let (before, behind) = (time - period.told, period.end - time);
                if is_shown && before.min(behind) > TOLERANCE && !period.overlaps {
                    period.overlaps = true;
                    self.overlaps += 1;
                }
                if before <= behind {
                    period.start = time;
                    self.next = Some(period);
                    break;
                }
                period.end = time;
            }
            self.next = self.periods.as_mut().and_then(Iterator::next);
            if is_shown {
                period.start = period.start.max(self.last);
                period.end = period.end.max(period.start);
                self.last = period.start;
                self.inside = Some((period, depth));
                self.held = Some(step);
                return Some(WalkStep::Enter {
                    time: period.start,
                    call: call(period, depth),
                });
            }
        }
        self.step_on(step)
    }
}

fn call(period: Period, depth: u32) -> Call {
    Call {
        function: period.event,
        depth,
        entered: Some(period.start),
        values: 0,
    }
}

impl Iterator for Scheduled<'_> {
    type Item = WalkStep;

    #[inline]
    fn next(&mut self) -> Option<WalkStep> {
        let step = match self.held.take() {
            Some(step) => step,
            None => self.walk.next(),
        };
        if self.next.is_none() && self.inside.is_none() {
            return step;
        }
        let time = step.as_ref().map_or(u64::MAX, WalkStep::time);
        if self.inside.is_some() || self.next.is_some_and(|next| next.start < time) {
            return self.near(step);
        }
        self.step_on(step)
    }
}
