//! Sums by function and by thread.

use crate::durations::Durations;
use crate::estimate::ClusterEstimator;
use crate::frames::OpenCalls;
use crate::{CallEnding, ShownStep, ThreadCpus, View, ViewLosses, workers};
use dioptra_tracedata::Trace;
use dioptra_tracelayout::EventPlace;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

/// The shortest or longest of some durations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extreme {
    /// The duration in nanoseconds.
    pub duration: u64,
    /// The time at which that call began, `CLOCK_MONOTONIC` in nanoseconds.
    pub began: u64,
}

/// Durations of calls, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// The number of calls.
    pub count: u64,
    /// The sum of the durations. Calls within calls of the same function are in it, too.
    pub sum: u64,
    /// The sum of the squares of the durations.
    pub squares: u128,
    /// The shortest duration; meaningless if there is none.
    pub shortest: Extreme,
    /// The longest duration; meaningless if there is none.
    pub longest: Extreme,
}

impl Times {
    const NONE: Times = Times {
        count: 0,
        sum: 0,
        squares: 0,
        shortest: Extreme {
            duration: u64::MAX,
            began: 0,
        },
        longest: Extreme {
            duration: 0,
            began: 0,
        },
    };

    #[inline]
    fn add(&mut self, duration: u64, began: u64) {
        let squares = self
            .squares
            .saturating_add(u128::from(duration) * u128::from(duration));
        if self.count == 0 || duration < self.shortest.duration {
            self.shortest = Extreme { duration, began };
        }
        if self.count == 0 || duration > self.longest.duration {
            self.longest = Extreme { duration, began };
        }
        self.count += 1;
        self.sum = self.sum.saturating_add(duration);
        self.squares = squares;
    }

    fn merge(&mut self, other: &Times) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            *self = *other;
            return;
        }
        // Among equal durations the earliest call wins, whichever worker counted it.
        let (a, b) = (self.shortest, other.shortest);
        if (b.duration, b.began) < (a.duration, a.began) {
            self.shortest = b;
        }
        let (a, b) = (self.longest, other.longest);
        if b.duration > a.duration || b.duration == a.duration && b.began < a.began {
            self.longest = b;
        }
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        self.squares = self.squares.saturating_add(other.squares);
    }

    /// Returns the mean; `None` without calls.
    pub fn mean(&self) -> Option<u64> {
        self.sum.checked_div(self.count)
    }

    /// Returns the standard deviation in nanoseconds; `None` without calls.
    pub fn standard_deviation(&self) -> Option<f64> {
        if self.count == 0 {
            return None;
        }
        let (count, sum) = (u128::from(self.count), u128::from(self.sum));
        // n Σx² − (Σx)², exact where it fits.
        let spread = match count.checked_mul(self.squares) {
            Some(squares) => squares.saturating_sub(sum.saturating_mul(sum)) as f64,
            None => count as f64 * self.squares as f64 - sum as f64 * sum as f64,
        };
        Some(spread.max(0.0).sqrt() / count as f64)
    }
}

/// An estimated number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScaledEstimate {
    /// The estimate.
    pub value: f64,
    /// The standard error; `None` if too few executions were shown.
    pub standard_error: Option<f64>,
}

/// Estimates for all executions from the shown ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampled {
    /// The number of calls.
    pub calls: ScaledEstimate,
    /// Their total time in nanoseconds.
    pub total: ScaledEstimate,
    /// Their self time in nanoseconds.
    pub self_time: ScaledEstimate,
}

/// The times of one function.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionTimes {
    /// The function's id; for a library call that several modules make, the smallest one.
    pub function: u32,
    /// The number of calls that were shown.
    pub calls: u64,
    /// The number of calls that were still open at their stream's end; their durations reach up to it.
    pub open: u64,
    /// The time within the function in nanoseconds; calls within calls of itself are counted once.
    pub total: u64,
    /// The time within the function and not within recorded calls below it, shown or not, in nanoseconds.
    pub self_time: u64,
    /// The durations of the calls.
    pub totals: Times,
    /// The self times of the calls.
    pub selves: Times,
    /// The estimates, if calls stand for others.
    pub sampled: Option<Sampled>,
    /// The CPUs on which the calls, and the calls below them, ran; empty if not known or not asked for.
    pub cpus: BTreeSet<u32>,
    /// The durations of single calls; `None` if not asked for.
    pub distribution: Option<Box<Distribution>>,
}

/// The durations of a function's calls, one by one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Distribution {
    /// The durations.
    pub totals: Durations,
    /// The self times.
    pub selves: Durations,
}

impl Sampled {
    fn plus(self, other: Sampled) -> Sampled {
        let plus = |here: ScaledEstimate, there: ScaledEstimate| ScaledEstimate {
            value: here.value + there.value,
            standard_error: here
                .standard_error
                .zip(there.standard_error)
                .map(|(here, there)| here.hypot(there)),
        };
        Sampled {
            calls: plus(self.calls, other.calls),
            total: plus(self.total, other.total),
            self_time: plus(self.self_time, other.self_time),
        }
    }
}

impl FunctionTimes {
    /// Returns the sums as estimates without an error, for a function whose calls were all shown.
    fn exact(&self) -> Sampled {
        let exact = |value: u64| ScaledEstimate {
            value: value as f64,
            standard_error: Some(0.0),
        };
        Sampled {
            calls: exact(self.calls),
            total: exact(self.total),
            self_time: exact(self.self_time),
        }
    }

    pub(crate) fn new(function: u32) -> FunctionTimes {
        FunctionTimes {
            function,
            calls: 0,
            open: 0,
            total: 0,
            self_time: 0,
            totals: Times::NONE,
            selves: Times::NONE,
            sampled: None,
            cpus: BTreeSet::new(),
            distribution: None,
        }
    }

    /// Adds the times of another function, or of other threads. Sums of estimates are estimates.
    pub fn merge(&mut self, other: &FunctionTimes) {
        self.sampled = match (self.sampled, other.sampled) {
            (None, None) => None,
            (here, there) => {
                let here = here.unwrap_or_else(|| self.exact());
                Some(here.plus(there.unwrap_or_else(|| other.exact())))
            }
        };
        self.cpus.extend(&other.cpus);
        self.calls += other.calls;
        self.open += other.open;
        self.total = self.total.saturating_add(other.total);
        self.self_time = self.self_time.saturating_add(other.self_time);
        self.totals.merge(&other.totals);
        self.selves.merge(&other.selves);
        if let Some(other) = &other.distribution {
            let all = self.distribution.get_or_insert_default();
            all.totals.merge(&other.totals);
            all.selves.merge(&other.selves);
        }
    }
}

/// The times of one stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamTimes {
    /// The stream's index in [`View::streams`].
    pub place: usize,
    /// The time within shown calls in nanoseconds.
    pub total: u64,
    /// The part of `total` in which the thread had no CPU, if that is shown.
    pub scheduled: u64,
    /// The number of calls that were shown.
    pub calls: u64,
}

/// All sums of a view.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Statistics {
    /// The times of each function that was called, by id.
    pub functions: Vec<FunctionTimes>,
    /// The times of each stream, by index.
    pub streams: Vec<StreamTimes>,
    /// The losses.
    pub losses: ViewLosses,
}

/// The parts of statistics that cost time or memory, and are collected on request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatisticsOptions {
    /// The CPUs on which calls ran, as far as context switches were recorded.
    pub cpus: bool,
    /// The distribution of the durations of single calls.
    pub distributions: bool,
}

/// Sums the shown calls of a view, streams in parallel. Of calls that lie in the view's time in part, that part is
/// summed.
pub fn statistics(view: &View<'_>) -> Statistics {
    statistics_with(view, StatisticsOptions::default())
}

/// Sums the calls as [`statistics`] does, and collects what `options` ask for.
pub fn statistics_with(view: &View<'_>, options: StatisticsOptions) -> Statistics {
    let count = view.streams().len();
    let sampled = view.is_sampled();
    // Estimates are sums of fractions: their last digit must not depend on the speed of the workers.
    let most = if sampled { 1 } else { usize::MAX };
    let new = || Worker::new(view.trace(), sampled, options);
    let mut workers = workers::each(count, most, new, |worker, place| worker.sum(view, place));
    let mut first = workers.pop().unwrap_or_else(new);
    for worker in workers {
        first.merge(worker);
    }
    if let Some(clusters) = &first.clusters {
        for times in &mut first.times {
            times.sampled = clusters.estimate(times.function, Some(times.function));
        }
    }
    // Functions whose calls ended before the view's time are left out.
    let is_seen = |times: &FunctionTimes| times.calls > 0 || times.total > 0 || times.open > 0;
    first.times.retain(is_seen);
    first.times.sort_unstable_by_key(|times| times.function);
    first.streams.sort_unstable_by_key(|stream| stream.place);
    Statistics {
        functions: first.times,
        streams: first.streams,
        losses: first.losses,
    }
}

/// An open call.
#[derive(Clone, Copy, Debug)]
struct OpenTimes {
    function: u32,
    slot: u32,
    outermost: bool,
    entered: bool,
    start: u64,
}

/// The CPU on which a stream's thread runs.
struct RunningThread<'v> {
    cpus: ThreadCpus<'v>,
    now: Option<u32>,
    /// The time before which nothing counts.
    from: u64,
    is_begun: bool,
}

impl<'v> RunningThread<'v> {
    fn new(view: &'v View<'_>, place: usize, from: u64) -> RunningThread<'v> {
        RunningThread {
            cpus: view.cpus(place),
            now: None,
            from,
            is_begun: false,
        }
    }
}

struct Worker<'t> {
    trace: &'t Trace,
    /// The slots of library calls, by name: it is one function, whichever module calls it. Samples of different
    /// modules are kept apart.
    libraries: Option<FxHashMap<&'t [u8], u32>>,
    /// The index of each function in `times`, plus one.
    slots: Vec<u32>,
    times: Vec<FunctionTimes>,
    /// The number of open calls in the current call stack, for each index in `times`.
    open: Vec<u32>,
    streams: Vec<StreamTimes>,
    losses: ViewLosses,
    clusters: Option<ClusterEstimator>,
    options: StatisticsOptions,
    /// The CPU that was added last, for each index in `times`.
    added: Vec<Option<u32>>,
    /// The first id of an event; all ids from it on are events'.
    first_event: u32,
}

impl<'t> Worker<'t> {
    fn new(trace: &'t Trace, sampled: bool, options: StatisticsOptions) -> Worker<'t> {
        Worker {
            trace,
            libraries: (!sampled).then(FxHashMap::default),
            slots: vec![0; trace.function_count()],
            first_event: trace.event_id(EventPlace::Schedule).unwrap_or(u32::MAX),
            times: Vec::new(),
            open: Vec::new(),
            streams: Vec::new(),
            losses: ViewLosses::default(),
            clusters: sampled.then(ClusterEstimator::default),
            options,
            added: Vec::new(),
        }
    }

    #[inline]
    fn slot(&mut self, function: u32) -> u32 {
        match self.slots.get(function as usize) {
            Some(slot) if *slot > 0 => *slot - 1,
            _ => self.new_slot(function),
        }
    }

    #[cold]
    fn new_slot(&mut self, function: u32) -> u32 {
        // A damaged record may name any id; those beyond the table are one function, 0.
        let function = if (function as usize) < self.slots.len() {
            function
        } else {
            0
        };
        if let Some(slot) = self.slots.get(function as usize)
            && *slot > 0
        {
            return *slot - 1;
        }
        let next = self.times.len() as u32;
        let entry = self.trace.function(function);
        let name = self.trace.library_call_name(&entry);
        let slot = match self.libraries.as_mut().zip(name) {
            Some((libraries, name)) => *libraries.entry(name).or_insert(next),
            None => next,
        };
        if let Some(place) = self.slots.get_mut(function as usize) {
            *place = slot + 1;
        }
        match self.times.get_mut(slot as usize) {
            // The smallest id of all modules, whichever was seen first.
            Some(times) => times.function = times.function.min(function),
            None => {
                self.times.push(FunctionTimes::new(function));
                self.open.push(0);
                self.added.push(None);
            }
        }
        slot
    }

    fn sum(&mut self, view: &View<'_>, place: usize) {
        let from = view.range().start.unwrap_or(0);
        let mut frames: OpenCalls<OpenTimes> = OpenCalls::default();
        let mut stream = StreamTimes {
            place,
            ..StreamTimes::default()
        };
        let mut running = self
            .options
            .cpus
            .then(|| RunningThread::new(view, place, from));
        let mut calls = match self.clusters {
            Some(_) => view.scaled_calls(place),
            None => view.calls(place),
        };
        calls.each(|shown| {
            if let Some(running) = &mut running {
                self.run(running, &frames, shown.time());
            }
            self.take(shown, from, view, &mut frames, &mut stream);
            if let Some(running) = &running
                && !matches!(shown, ShownStep::Leave { .. })
            {
                self.resume(running, &frames, shown);
            }
        });
        self.losses += calls.losses();
        self.streams.push(stream);
    }

    #[inline]
    fn take(
        &mut self,
        shown: ShownStep,
        from: u64,
        view: &View<'_>,
        frames: &mut OpenCalls<OpenTimes>,
        stream: &mut StreamTimes,
    ) {
        match shown {
            ShownStep::Enter {
                time, call, weight, ..
            } => {
                let slot = self.slot(call.function);
                let open = &mut self.open[slot as usize];
                *open += 1;
                frames.push(OpenTimes {
                    function: call.function,
                    slot,
                    outermost: *open == 1,
                    entered: call.entered.is_some(),
                    start: time.max(from),
                });
                if let Some(clusters) = &mut self.clusters {
                    clusters.enter(call.function, weight, view, stream.place);
                }
            }
            ShownStep::Leave {
                time,
                call,
                ending,
                own,
            } => {
                if call.function >= self.first_event && time >= from {
                    stream.scheduled = stream.scheduled.saturating_add(own);
                }
                let open = ending == CallEnding::Open;
                self.leave(frames, time, own, from, open, stream);
            }
            ShownStep::Lost { .. } => {}
            ShownStep::Switch { stack, .. } => self.switch(frames, stack),
        }
    }

    /// Goes on to a time: open calls run on the CPUs that their thread gets.
    fn run(&mut self, running: &mut RunningThread<'_>, frames: &OpenCalls<OpenTimes>, time: u64) {
        if time < running.from {
            return;
        }
        if !std::mem::replace(&mut running.is_begun, true) {
            running.now = running.cpus.at(running.from);
            self.add_cpu(running.now, frames.current());
        }
        let RunningThread { cpus, now, .. } = running;
        *now = cpus.go_on(time, |cpu| self.add_cpu(Some(cpu), frames.current()));
    }

    /// Adds the thread's CPU to the call that begins or goes on with this step.
    #[inline]
    fn resume(
        &mut self,
        running: &RunningThread<'_>,
        frames: &OpenCalls<OpenTimes>,
        shown: ShownStep,
    ) {
        if running.is_begun {
            let frames = frames.current();
            let first = match shown {
                ShownStep::Enter { .. } => frames.len().saturating_sub(1),
                _ => 0,
            };
            self.add_cpu(running.now, &frames[first..]);
        }
    }

    #[inline]
    fn add_cpu(&mut self, cpu: Option<u32>, frames: &[OpenTimes]) {
        let Some(cpu) = cpu else { return };
        for frame in frames {
            let slot = frame.slot as usize;
            if self.added[slot] != Some(cpu) {
                self.added[slot] = Some(cpu);
                let times = &mut self.times[slot];
                // In a period without a CPU nothing runs.
                if times.function < self.first_event {
                    times.cpus.insert(cpu);
                }
            }
        }
    }

    fn switch(&mut self, frames: &mut OpenCalls<OpenTimes>, stack: u32) {
        for frame in frames.current() {
            self.open[frame.slot as usize] -= 1;
        }
        frames.switch(stack);
        for frame in frames.current() {
            self.open[frame.slot as usize] += 1;
        }
        if let Some(clusters) = &mut self.clusters {
            clusters.switch(stack);
        }
    }

    #[inline]
    fn leave(
        &mut self,
        frames: &mut OpenCalls<OpenTimes>,
        time: u64,
        own: u64,
        from: u64,
        open: bool,
        stream: &mut StreamTimes,
    ) {
        let Some(frame) = frames.pop() else {
            return;
        };
        self.open[frame.slot as usize] -= 1;
        let is_seen = time >= from;
        let duration = time.saturating_sub(frame.start);
        if frames.last().is_none() {
            stream.total = stream.total.saturating_add(duration);
        }
        if let Some(clusters) = &mut self.clusters {
            let times = (duration, own);
            let group = std::iter::once((frame.function, frame.outermost));
            clusters.leave(times, group, frame.entered, is_seen);
        }
        if !is_seen {
            return;
        }
        let times = &mut self.times[frame.slot as usize];
        times.open += u64::from(open);
        if frame.outermost {
            times.total = times.total.saturating_add(duration);
        }
        times.self_time = times.self_time.saturating_add(own);
        // A call that began before the records do is a call of the stream in which it began, or lost.
        if frame.entered {
            times.calls += 1;
            stream.calls += 1;
            times.totals.add(duration, frame.start);
            times.selves.add(own, frame.start);
            if self.options.distributions {
                let distribution = times.distribution.get_or_insert_default();
                distribution.totals.add(duration);
                distribution.selves.add(own);
            }
        }
    }

    fn merge(&mut self, other: Worker<'_>) {
        for times in &other.times {
            let slot = self.slot(times.function);
            self.times[slot as usize].merge(times);
        }
        self.streams.extend(other.streams);
        self.losses += other.losses;
    }
}
