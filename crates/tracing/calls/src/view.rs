//! The view of a trace: the part of it that is shown.

mod rules;
mod sampled;
mod tasks;
mod warning;

use crate::choices::Choices;
use crate::complete::Complete;
use crate::filter::Filter;
use crate::filtered::{Stage, SwitchAt};
use crate::recorded::{RecordedFunctions, RecordedWeights};
use crate::scheduled::Scheduled;
use crate::{
    CallPaths, FunctionNames, Merge, Scheduling, ShownCalls, ShownStep, StreamWalk, ThreadCpus,
    Timed, WalkLosses,
};
use dioptra_filters::{CompileError, Plan, Rules, TraceSwitch};
use dioptra_tracedata::{Stream, Trace};
pub use rules::PendingError;
use rules::{compile, left_out, pending_rules};
use sampled::ChoiceKind;
use std::sync::{Arc, OnceLock};
use tasks::task_name;
use thiserror::Error;
pub use warning::ViewWarning;

/// A range of time, `CLOCK_MONOTONIC` in nanoseconds, both ends included. `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeRange {
    /// The first nanosecond.
    pub start: Option<u64>,
    /// The last one.
    pub stop: Option<u64>,
}

impl TimeRange {
    /// Returns true if a moment lies in the range.
    #[inline]
    pub fn contains(&self, time: u64) -> bool {
        self.start.is_none_or(|start| time >= start) && self.stop.is_none_or(|stop| time <= stop)
    }
}

/// The selection of a trace's parts and calls.
#[derive(Clone, Debug, Default)]
pub struct ViewSelection {
    /// Filters, triggers, sampling and limits.
    pub rules: Rules,
    /// True if the rules are about source files. Debug information is read only then.
    pub with_sources: bool,
    /// True to leave out library calls, as if they had not been recorded.
    pub no_libcall: bool,
    /// The events that are shown as calls, where they are recorded.
    pub scheduling: Scheduling,
    /// The ids of the threads that are shown; empty for all.
    pub tids: Vec<u32>,
    /// The time that is shown. Nothing behind its end is. Callers handle its start themselves, because calls that are
    /// open there began before.
    pub range: TimeRange,
    /// True if nothing is shown before a trigger switches tracing on.
    pub off: bool,
    /// The seed of the random choices.
    pub seed: u64,
}

/// The reason why a trace can't be viewed with a selection.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ViewError {
    /// The rules can't be followed.
    #[error(transparent)]
    Rules(#[from] CompileError),
}

/// The losses of a view: missing calls, and calls that are known only in part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ViewLosses {
    /// The losses of the walks.
    pub walk: WalkLosses,
    /// The number of calls whose ends are among missing records: their durations reach up to the gap's end.
    pub missing_ends: u64,
    /// The number of calls that were open when their stream's records began or after a gap: their durations begin
    /// there.
    pub missing_beginnings: u64,
}

impl std::ops::AddAssign for ViewLosses {
    fn add_assign(&mut self, other: ViewLosses) {
        self.walk += other.walk;
        self.missing_ends += other.missing_ends;
        self.missing_beginnings += other.missing_beginnings;
    }
}

/// One set of rules.
#[derive(Debug)]
struct Filtering {
    /// The plan of the rules; none if only functions are left out.
    plan: Option<Plan>,
    /// Functions that are left out, by id.
    left_out: Vec<bool>,
    initial: TraceSwitch,
    switches: Vec<SwitchAt>,
}

/// A trace, seen through a [`ViewSelection`].
#[derive(Debug)]
pub struct View<'t> {
    trace: &'t Trace,
    streams: Vec<&'t Stream>,
    range: TimeRange,
    scheduling: Scheduling,
    first: Option<u64>,
    /// The ids of the chosen threads; empty for all.
    tids: Vec<u32>,
    recorded: RecordedFunctions,
    recorded_choices: Choices,
    /// The way in which executions are chosen, by function; empty if none is sampled.
    sampled: Vec<Option<ChoiceKind>>,
    /// The choices of the rules, by filtering; see [`View::read_choices`].
    choices: OnceLock<Vec<Choices>>,
    /// The sets of rules, one after the other: the recording's rules that were left to readers, and the selection's.
    filterings: Vec<Filtering>,
    warnings: Vec<ViewWarning>,
    /// The thread names by the stream's index.
    task_names: Vec<&'t str>,
}

impl<'t> View<'t> {
    /// Returns the first moment of a trace's records; `None` if there are none.
    pub fn first_time(trace: &Trace) -> Option<u64> {
        let streams = trace.streams().iter();
        streams
            .filter_map(|stream| StreamWalk::new(trace, stream).next())
            .map(|step| step.time())
            .min()
    }

    /// Returns the view of the trace to which `names` belongs.
    ///
    /// Rules are matched with all functions that are known of the trace's modules, called or not. Rules of the
    /// recording that its records do not follow ([`dioptra_tracedata::TraceInfo::pending`]) are applied first.
    ///
    /// # Errors
    /// [`ViewError`] for rules that can't be followed here.
    pub fn new(names: &FunctionNames<'t>, selection: ViewSelection) -> Result<View<'t>, ViewError> {
        let trace = names.trace();
        let mut warnings = Vec::new();
        for tid in &selection.tids {
            if !trace.streams().iter().any(|stream| stream.tid == *tid) {
                warnings.push(ViewWarning::NoThread(*tid));
            }
        }
        let is_chosen = |stream: &&Stream| {
            stream.chunk_count() > 0
                && (selection.tids.is_empty() || selection.tids.contains(&stream.tid))
        };
        let mut view = View {
            trace,
            streams: trace.streams().iter().filter(is_chosen).collect(),
            range: selection.range,
            scheduling: selection.scheduling,
            first: Self::first_time(trace),
            tids: selection.tids.clone(),
            recorded: RecordedFunctions::of(trace),
            recorded_choices: Choices::default(),
            sampled: Vec::new(),
            choices: OnceLock::new(),
            filterings: Vec::new(),
            warnings,
            task_names: Vec::new(),
        };
        let streams = view.streams.iter();
        view.task_names = streams.map(|stream| task_name(trace, stream)).collect();
        view.recorded_choices = view.find_recorded_choices();
        view.add_pending(names, selection.seed);
        view.add_selected(names, &selection)?;
        view.sampled = view.find_sampled();
        Ok(view)
    }

    /// Adds the rules of the recording that were left to readers.
    fn add_pending(&mut self, names: &FunctionNames<'t>, seed: u64) {
        let Some(pending) = &self.trace.info().pending else {
            return;
        };
        let added = pending_rules(pending).and_then(|rules| {
            let with_sources = pending.rules.iter().any(|rule| rule.option == "-L");
            // The recorder has reported rules that match nothing.
            let mut told = Vec::new();
            let recorded = Some(&self.recorded);
            let plan = compile(names, &rules, recorded, with_sources, seed, &mut told)?;
            let filtering = Filtering {
                plan: Some(plan),
                left_out: Vec::new(),
                initial: initial(pending.off),
                switches: Vec::new(),
            };
            Ok::<_, PendingError>(self.add(filtering))
        });
        if let Err(error) = added {
            self.warnings.push(ViewWarning::PendingRules(error));
        }
    }

    /// Adds the rules of the selection.
    fn add_selected(
        &mut self,
        names: &FunctionNames<'t>,
        selection: &ViewSelection,
    ) -> Result<(), ViewError> {
        let useless = selection.rules.notes();
        self.warnings
            .extend(useless.into_iter().map(ViewWarning::Rule));
        let trace = self.trace;
        let left_out = left_out(trace, selection);
        if selection.rules.is_empty() && left_out.is_empty() && !selection.off {
            return Ok(());
        }
        let mut filtering = Filtering {
            plan: None,
            left_out,
            initial: initial(selection.off),
            switches: Vec::new(),
        };
        if !selection.rules.is_empty() {
            let (rules, sources) = (&selection.rules, selection.with_sources);
            // Functions that the recording sampled may be sampled again now.
            let seed = selection.seed;
            let plan = compile(names, rules, None, sources, seed, &mut self.warnings)?;
            filtering.plan = Some(plan);
        }
        let switching = self.add(filtering);
        if selection.off && !switching {
            self.warnings.push(ViewWarning::NeverOn);
        }
        Ok(())
    }

    /// Adds a set of rules behind the others. Returns true if calls switch tracing in it.
    fn add(&mut self, mut filtering: Filtering) -> bool {
        let switching = filtering.plan.as_ref().is_some_and(Plan::has_switches);
        if switching {
            filtering.switches = self.find_switches(&filtering);
        }
        self.filterings.push(filtering);
        switching
    }

    /// Finds the times at which calls switch tracing on or off, in one pass over all threads in time order.
    fn find_switches(&self, filtering: &Filtering) -> Vec<SwitchAt> {
        let mut switches = Vec::new();
        let places = 0..self.streams.len();
        let mut filters: Vec<Filter<'_>> = places
            .map(|place| self.filter(filtering, place, None))
            .collect();
        let mut now = filtering.initial;
        for (place, shown) in self.merged() {
            let filter = &mut filters[place];
            let effects = filter.take(shown, now, &mut |_| {});
            let after = now.after(effects);
            if after != now {
                now = after;
                switches.push(SwitchAt {
                    time: shown.time(),
                    place,
                    serial: filter.serial(),
                    switch: now,
                });
            }
        }
        switches
    }

    fn filter<'v>(
        &self,
        filtering: &'v Filtering,
        place: usize,
        scales: Option<Arc<[f64]>>,
    ) -> Filter<'v> {
        let thread = u64::from(self.streams[place].stream);
        Filter::new(filtering.plan.as_ref(), &filtering.left_out, thread, scales)
    }

    fn plans(&self) -> impl Iterator<Item = &Plan> {
        self.filterings
            .iter()
            .filter_map(|filtering| filtering.plan.as_ref())
    }

    /// Returns the trace.
    pub fn trace(&self) -> &'t Trace {
        self.trace
    }

    /// Returns the chosen streams. Other functions name a stream by its index in this list.
    pub fn streams(&self) -> &[&'t Stream] {
        &self.streams
    }

    /// Returns the time that is shown.
    pub fn range(&self) -> TimeRange {
        self.range
    }

    /// Returns the first moment of the trace, chosen or not; 0 without records.
    pub fn first(&self) -> u64 {
        self.first.unwrap_or(0)
    }

    /// Returns warnings for the user: rules that match nothing, with the nearest names, and others.
    pub fn warnings(&self) -> &[ViewWarning] {
        &self.warnings
    }

    /// Returns the shown calls of the stream with index `place` in [`View::streams`].
    pub fn calls(&self, place: usize) -> ShownCalls<'_> {
        self.calls_with(place, |_, _| None)
    }

    /// Returns the shown calls; `scales` returns the number of executions for which a chosen one stands, by the
    /// number of the set of rules.
    fn calls_with(
        &self,
        place: usize,
        scales: impl Fn(usize, &Plan) -> Option<Arc<[f64]>>,
    ) -> ShownCalls<'_> {
        let filterings = self.filterings.iter().enumerate();
        let stages = filterings.map(|(number, filtering)| {
            let scales = filtering
                .plan
                .as_ref()
                .and_then(|plan| scales(number, plan));
            let filter = self.filter(filtering, place, scales);
            Stage::new(filter, place, filtering.initial, &filtering.switches)
        });
        let (stream, scheduling) = (self.streams[place], self.scheduling);
        let walk = match self.range.start {
            Some(start) if !self.is_sampled() && self.plans().all(|p| p.is_without_memory()) => {
                // Calls before the range are not shown and decide nothing.
                let range = (start, self.range.stop.unwrap_or(u64::MAX));
                let timed = self.plans().any(|plan| plan.is_timed());
                Scheduled::within(self.trace, stream, scheduling, range, timed)
            }
            _ => Scheduled::new(self.trace, stream, scheduling),
        };
        let weights = (!self.recorded.is_empty())
            .then(|| RecordedWeights::new(&self.recorded, &self.recorded_choices, place));
        ShownCalls::new(Complete::new(walk, self.range, weights), stages.collect())
    }

    /// Returns a finder of the calls of a stream, shown or not, that lead to others.
    pub fn paths(&self, place: usize) -> CallPaths<'t> {
        CallPaths::new(StreamWalk::new(self.trace, self.streams[place]))
    }

    /// Returns the CPUs of a stream's thread over time; nothing is known if scheduling was not recorded.
    pub fn cpus(&self, place: usize) -> ThreadCpus<'_> {
        ThreadCpus::new(self.trace.switches(self.streams[place]))
    }

    /// Returns the shown calls of all streams in time order, each with its stream's index.
    pub fn merged(&self) -> Merge<ShownCalls<'_>> {
        Merge::of(
            (0..self.streams.len())
                .map(|place| self.calls(place))
                .collect(),
        )
    }

    /// Returns the colours of triggers by function: indexes into [`dioptra_filters::COLORS`].
    pub fn colors(&self) -> Vec<Option<usize>> {
        let mut colors = vec![None; self.trace.function_count()];
        for plan in self.plans() {
            for (function, color) in colors.iter_mut().enumerate() {
                *color = plan.color(plan.action_of(function as u32)).or(*color);
            }
        }
        colors
    }
}

impl<'t> Merge<ShownCalls<'t>> {
    /// Returns the losses so far.
    pub fn losses(&self) -> ViewLosses {
        let mut losses = ViewLosses::default();
        for calls in self.walks() {
            losses += calls.losses();
        }
        losses
    }
}

/// Returns whether tracing is on at the beginning.
fn initial(off: bool) -> TraceSwitch {
    if off {
        TraceSwitch::Off
    } else {
        TraceSwitch::On
    }
}

impl Timed for ShownStep {
    fn time(&self) -> u64 {
        ShownStep::time(self)
    }
}
