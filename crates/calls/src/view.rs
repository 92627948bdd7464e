//! What is to be seen of a trace.

use crate::filtered::Complete;
use crate::filtered::{Filter, SwitchAt};
use crate::{Calls, FunctionNames, Merge, Shown, Timed, Walk, WalkLosses};
use dioptra_filters::{
    CompileError, Compiler, Function, FunctionKind as RuleKind, Plan, PlanError, PlanOptions,
    Rules, Sampling, Switch,
};
use dioptra_tracedata::{Stream, Trace};
use dioptra_tracelayout::FunctionKind;
use std::fmt;

/// From when to when, `CLOCK_MONOTONIC` in nanoseconds, both included; none is without end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeRange {
    /// The first nanosecond.
    pub start: Option<u64>,
    /// The last one.
    pub stop: Option<u64>,
}

impl TimeRange {
    /// Whether a moment lies in it.
    #[inline]
    pub fn contains(&self, time: u64) -> bool {
        self.start.is_none_or(|start| time >= start) && self.stop.is_none_or(|stop| time <= stop)
    }
}

/// What is asked for of a trace.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Filters, triggers, sampling and limits.
    pub rules: Rules,
    /// Whether the rules are about source files; only then debug information is read.
    pub with_sources: bool,
    /// Leave out library calls, as if they had not been recorded.
    pub no_libcall: bool,
    /// Only these threads; all if empty.
    pub tids: Vec<u32>,
    /// Nothing behind its end. Its start is left to who shows the calls: what is open then began before.
    pub range: TimeRange,
    /// Nothing is shown before a trigger switches tracing on.
    pub off: bool,
    /// Chooses the random executions.
    pub seed: u64,
}

/// Why a trace can't be seen that way.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ViewError {
    /// The rules can't be followed.
    Rules(CompileError),
    /// The rules' plan is not sound, which is a defect of this program.
    Plan(PlanError),
}

impl fmt::Display for ViewError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ViewError::Rules(error) => error.fmt(f),
            ViewError::Plan(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ViewError {}

/// What is missing of the calls that are shown, or only known in part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ViewLosses {
    /// What could not be made sense of.
    pub walk: WalkLosses,
    /// Calls whose ends are among missing records: their durations reach up to the gap's end.
    pub missing_ends: u64,
    /// Calls that were open when their stream's records began or after a gap: their durations begin there.
    pub missing_beginnings: u64,
}

impl std::ops::AddAssign for ViewLosses {
    fn add_assign(&mut self, other: ViewLosses) {
        self.walk += other.walk;
        self.missing_ends += other.missing_ends;
        self.missing_beginnings += other.missing_beginnings;
    }
}

/// A trace, seen through a [`Selection`].
#[derive(Debug)]
pub struct View<'t> {
    trace: &'t Trace,
    streams: Vec<&'t Stream>,
    range: TimeRange,
    first: Option<u64>,
    /// The plan of the rules, if there are any.
    words: Option<Vec<u64>>,
    /// Functions that are left out, by id.
    left_out: Vec<bool>,
    initial: Switch,
    switches: Vec<SwitchAt>,
    warnings: Vec<String>,
}

impl<'t> View<'t> {
    /// The first moment of a trace's records; none if there are none.
    pub fn first_time(trace: &Trace) -> Option<u64> {
        let streams = trace.streams().iter();
        streams
            .filter_map(|stream| Walk::new(trace, stream).next())
            .map(|step| step.time())
            .min()
    }

    /// The trace whose functions `names` names.
    ///
    /// Rules are matched with all functions that are known of the trace's modules, called or not.
    ///
    /// # Errors
    /// [`ViewError`] for rules that can't be followed here.
    pub fn new(names: &FunctionNames<'t>, selection: Selection) -> Result<View<'t>, ViewError> {
        let trace = names.trace();
        let mut warnings = Vec::new();
        for tid in &selection.tids {
            if !trace.streams().iter().any(|stream| stream.tid == *tid) {
                warnings.push(format!("--tid {tid}: no such thread is in the trace"));
            }
        }
        let is_chosen = |stream: &&Stream| {
            stream.chunk_count() > 0
                && (selection.tids.is_empty() || selection.tids.contains(&stream.tid))
        };
        let left_out = match selection.no_libcall {
            true => (0..trace.function_count())
                .map(|id| trace.function(id as u32).kind == FunctionKind::LibraryCall)
                .collect(),
            false => Vec::new(),
        };
        warnings.extend(selection.rules.notes());
        let words = match selection.rules.is_empty() {
            true => None,
            false => Some(compile(names, &selection, &mut warnings)?),
        };
        let mut view = View {
            trace,
            streams: trace.streams().iter().filter(is_chosen).collect(),
            range: selection.range,
            first: Self::first_time(trace),
            words,
            left_out,
            initial: if selection.off {
                Switch::Off
            } else {
                Switch::On
            },
            switches: Vec::new(),
            warnings,
        };
        let switching = match view.plan() {
            Some(plan) => plan.map_err(ViewError::Plan)?.has_switches(),
            None => false,
        };
        if selection.off && !switching {
            let text = "--trace=off: nothing switches tracing on, so nothing is shown; add -T FUNCTION@trace_on";
            view.warnings.push(text.to_owned());
        }
        if switching {
            view.switches = view.find_switches();
        }
        Ok(view)
    }

    /// When calls switch tracing on or off: one pass over all threads in time order.
    fn find_switches(&self) -> Vec<SwitchAt> {
        let mut switches = Vec::new();
        let mut filters: Vec<Filter<'_>> = (0..self.streams.len())
            .filter_map(|place| self.filter(place))
            .collect();
        let mut now = self.initial;
        let walks = (0..self.streams.len())
            .map(|place| self.steps(place))
            .collect();
        let mut ignored = std::collections::VecDeque::new();
        for (place, step) in Merge::of(walks) {
            let Some(filter) = filters.get_mut(place) else {
                break;
            };
            let effects = filter.take(step, now, &mut ignored);
            ignored.clear();
            let after = now.after(effects);
            if after != now {
                now = after;
                switches.push(SwitchAt {
                    time: step.time(),
                    place,
                    serial: filter.serial(),
                    switch: now,
                });
            }
        }
        switches
    }

    fn plan(&self) -> Option<Result<Plan<'_>, PlanError>> {
        self.words.as_deref().map(Plan::from_words)
    }

    pub(crate) fn steps(&self, place: usize) -> Complete<'_> {
        Complete::new(Walk::new(self.trace, self.streams[place]))
    }

    /// What filters the stream at `place`; none if all of it is shown.
    pub(crate) fn filter(&self, place: usize) -> Option<Filter<'_>> {
        if self.words.is_none() && self.left_out.is_empty() && self.initial == Switch::On {
            return None;
        }
        let plan = match &self.words {
            Some(words) => Plan::from_words(words).ok(),
            None => None,
        };
        let thread = u64::from(self.streams[place].stream);
        Some(Filter::new(plan, &self.left_out, thread))
    }

    /// The trace.
    pub fn trace(&self) -> &'t Trace {
        self.trace
    }

    /// The chosen streams; a stream's place in this list stands for it.
    pub fn streams(&self) -> &[&'t Stream] {
        &self.streams
    }

    /// The time that is shown.
    pub fn range(&self) -> TimeRange {
        self.range
    }

    /// The first moment of the trace, chosen or not; 0 without records.
    pub fn first(&self) -> u64 {
        self.first.unwrap_or(0)
    }

    /// What the user should hear before anything else: rules that match nothing, with the nearest names.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The shown calls of the stream at `place` in [`View::streams`].
    pub fn calls(&self, place: usize) -> Calls<'_> {
        let filter = self.filter(place);
        Calls::new(
            self.steps(place),
            filter,
            self.range.stop,
            place,
            self.initial,
            &self.switches,
        )
    }

    /// The shown calls of all streams in time order, each with its stream's place.
    pub fn merged(&self) -> Merge<Calls<'_>> {
        Merge::of(
            (0..self.streams.len())
                .map(|place| self.calls(place))
                .collect(),
        )
    }

    /// How a function's executions are chosen by the rules; none if all are shown.
    pub fn sampling(&self, function: u32) -> Option<Sampling> {
        let plan = self.plan()?.ok()?;
        plan.sampling(plan.action_of(function))
    }

    /// Whether any function is sampled by the rules.
    pub fn is_sampled(&self) -> bool {
        matches!(self.plan(), Some(Ok(plan)) if plan.sampler_count() > 0)
    }

    /// The colours that triggers ask for, by function: indexes into [`dioptra_filters::COLORS`].
    pub fn colors(&self) -> Vec<Option<usize>> {
        let Some(Ok(plan)) = self.plan() else {
            return Vec::new();
        };
        (0..self.trace.function_count())
            .map(|function| plan.color(plan.action_of(function as u32)))
            .collect()
    }
}

impl<'t> Merge<Calls<'t>> {
    /// What is missing so far.
    pub fn losses(&self) -> ViewLosses {
        let mut losses = ViewLosses::default();
        for calls in self.walks() {
            losses += calls.losses();
        }
        losses
    }
}

fn compile(
    names: &FunctionNames<'_>,
    selection: &Selection,
    warnings: &mut Vec<String>,
) -> Result<Vec<u64>, ViewError> {
    let trace = names.trace();
    let options = PlanOptions {
        seed: selection.seed,
        replay: true,
        ..PlanOptions::default()
    };
    let mut compiler = Compiler::new(selection.rules.clone(), options).map_err(ViewError::Rules)?;
    let ids: Vec<u32> = (0..trace.function_count() as u32).collect();
    let sources = match selection.with_sources {
        true => names.sources(&ids),
        false => Vec::new(),
    };
    let mut known = Vec::with_capacity(ids.len());
    for id in ids {
        let entry = trace.function(id);
        let (name, linkage) = match entry.kind {
            // Numbers have to stay the ids.
            FunctionKind::None => ("".into(), None),
            _ => names.linkage(id),
        };
        compiler.add(&Function {
            name: &name,
            linkage: linkage.as_deref(),
            module: names.module_path(&entry),
            kind: match entry.kind {
                FunctionKind::LibraryCall => RuleKind::LibraryCall,
                _ => RuleKind::Code,
            },
            size: names.size(id),
            source: sources
                .get(id as usize)
                .and_then(|source| Some(source.as_ref()?.0.as_str())),
        });
        if entry.kind != FunctionKind::None {
            known.push(name);
        }
    }
    let told = compiler.warnings(known.iter().map(|name| &**name));
    warnings.extend(told.iter().map(ToString::to_string));
    Ok(compiler.plan())
}

impl Timed for Shown {
    fn time(&self) -> u64 {
        Shown::time(self)
    }
}
