//! The view of a trace: the part of it that is shown.

mod sampled;

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
use dioptra_filters::{
    CompileError, Compiler, FunctionDescription, FunctionOrigin, MatchStyle, Plan, PlanOptions,
    RuleOption, Rules, TraceSwitch,
};
use dioptra_tracedata::{PendingRules, Stream, TaskEvent, Trace};
use dioptra_tracelayout::{EventPlace, FunctionKind};
use sampled::ChoiceKind;
use std::fmt;
use std::sync::{Arc, OnceLock};

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
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ViewError {
    /// The rules can't be followed.
    Rules(CompileError),
}

impl fmt::Display for ViewError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ViewError::Rules(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ViewError {}

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
    warnings: Vec<String>,
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
                warnings.push(format!("the trace has no thread {tid}"));
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
            let plan = compile(names, &rules, recorded, with_sources, seed, &mut told)
                .map_err(|error| error.to_string())?;
            let filtering = Filtering {
                plan: Some(plan),
                left_out: Vec::new(),
                initial: initial(pending.off),
                switches: Vec::new(),
            };
            Ok::<_, String>(self.add(filtering))
        });
        if let Err(error) = added {
            self.warnings.push(format!(
                "the filters of the recording can't be applied, so more is shown than was asked for then: {error}"
            ));
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
            .extend(useless.iter().map(ToString::to_string));
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
            let text = "tracing is off at the start and no rule switches it on, so nothing is shown; add the action trace_on to a function";
            self.warnings.push(text.to_owned());
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

    /// Returns the name of the thread with index `place`. If it has none, or if its process executed another program
    /// since: the file name of the program to which it belonged.
    pub fn task_name(&self, place: usize) -> &'t str {
        self.task_names.get(place).copied().unwrap_or_default()
    }

    /// Returns the name that the thread with index `place` has at a time: the last one that the kernel reported until
    /// then. Before the first it is the name of the process's main thread, or the program's.
    pub fn task_name_at(&self, place: usize, time: u64) -> &'t str {
        let Some(stream) = self.streams.get(place) else {
            return "";
        };
        let trace = self.trace;
        let events = trace.task_events(stream);
        let name = |event: &TaskEvent| trace.task_name(&trace.function(event.function));
        let until = events.partition_point(|event| event.time <= time);
        let before = events.get(..until).unwrap_or_default();
        if let Some(name) = before.iter().rev().find_map(name) {
            return name;
        }
        match events.iter().find_map(name) {
            None => self.task_name(place),
            Some(_) => self.first_name(stream, time),
        }
    }

    /// Returns the name of a thread before the kernel has reported one.
    fn first_name(&self, stream: &Stream, time: u64) -> &'t str {
        let main = |other: &&&Stream| other.pid == stream.pid && other.tid == stream.pid;
        if stream.tid != stream.pid
            && let Some(main) = self.streams.iter().position(|other| main(&other))
        {
            return self.task_name_at(main, time);
        }
        let images = self.trace.processes().iter();
        let image = images.filter(|image| image.pid == stream.pid);
        let path = image.map(|image| image.executable.as_str()).next();
        let path = path.unwrap_or_default();
        path.rsplit('/').next().unwrap_or(path)
    }

    /// Returns the parent of process `pid`, as far as it is known.
    pub fn parent(&self, pid: u32) -> Option<u32> {
        let known = || {
            self.trace
                .processes()
                .iter()
                .find(|process| process.pid == pid)
        };
        let parent = match forked_from(self.trace, pid) {
            Some(around) => around.pid,
            None => known()?.parent,
        };
        Some(parent).filter(|parent| *parent != pid)
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
    pub fn warnings(&self) -> &[String] {
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

fn stream_of(trace: &Trace, number: u32) -> Option<&Stream> {
    let streams = trace.streams();
    let place = streams
        .binary_search_by_key(&number, |stream| stream.stream)
        .ok()?;
    streams.get(place)
}

fn task_name<'t>(trace: &'t Trace, stream: &'t Stream) -> &'t str {
    let images = |pid: u32| {
        trace
            .processes()
            .iter()
            .filter(move |process| process.pid == pid)
    };
    // The recorder asks for a thread's name when its first records are written, perhaps after an `exec`.
    let is_sure = stream.tid != stream.pid || images(stream.pid).nth(1).is_none();
    if is_sure && !stream.name.is_empty() {
        return &stream.name;
    }
    let began = StreamWalk::new(trace, stream)
        .next()
        .map_or(0, |step| step.time());
    // A forked child runs its parent's program until it executes another one.
    let mut pid = stream.pid;
    for _ in 0..trace.streams().len() {
        let forked = forked_from(trace, pid);
        let image = images(pid).rfind(|image| image.time <= began);
        let only = || images(pid).next().filter(|_| forked.is_none());
        if let Some(image) = image.or_else(only) {
            let path = &image.executable;
            return path.rsplit('/').next().unwrap_or(path);
        }
        match forked {
            Some(parent) => pid = parent.pid,
            None => break,
        }
    }
    trace.thread_name(stream)
}

/// Returns the stream that the forked process `pid` continues.
fn forked_from(trace: &Trace, pid: u32) -> Option<&Stream> {
    let is_forked = |stream: &&Stream| stream.pid == pid && stream.parent != 0;
    stream_of(trace, trace.streams().iter().find(is_forked)?.parent)
}

/// Returns, by id, the functions that a selection leaves out; empty if it leaves out none.
fn left_out(trace: &Trace, selection: &ViewSelection) -> Vec<bool> {
    let scheduling = selection.scheduling;
    let left_out = |id: usize| {
        let entry = trace.function(id as u32);
        match entry.as_event() {
            Some(EventPlace::Schedule | EventPlace::ScheduleTracer) => !scheduling.waits,
            Some(EventPlace::SchedulePreempted) => !scheduling.preemptions,
            // Events that are not selected do not appear at all.
            Some(_) => false,
            None => selection.no_libcall && entry.kind == FunctionKind::LibraryCall,
        }
    };
    let functions: Vec<bool> = (0..trace.function_count()).map(left_out).collect();
    match functions.contains(&true) {
        true => functions,
        false => Vec::new(),
    }
}

/// Parses the rules that a recording has left to readers.
fn pending_rules(pending: &PendingRules) -> Result<Rules, String> {
    const OPTIONS: [RuleOption; 9] = [
        RuleOption::Filter,
        RuleOption::Notrace,
        RuleOption::Trigger,
        RuleOption::Caller,
        RuleOption::Hide,
        RuleOption::Depth,
        RuleOption::Time,
        RuleOption::Size,
        RuleOption::Location,
    ];
    let style = MatchStyle::parse(&pending.style)
        .ok_or_else(|| format!("`{}` is no way to match names", pending.style))?;
    let mut rules = Rules::new(style);
    for rule in &pending.rules {
        let option = OPTIONS.into_iter().find(|o| o.letter() == rule.option);
        let option = option.ok_or_else(|| format!("`{}` is no option", rule.option))?;
        rules
            .add(option, &rule.text)
            .map_err(|error| error.to_string())?;
    }
    Ok(rules)
}

fn compile(
    names: &FunctionNames<'_>,
    rules: &Rules,
    recorded: Option<&RecordedFunctions>,
    with_sources: bool,
    seed: u64,
    warnings: &mut Vec<String>,
) -> Result<Plan, ViewError> {
    let trace = names.trace();
    let options = PlanOptions {
        seed,
        // Rules of a recording may adapt to its cost. Those that are left to readers are shown in full.
        replay: recorded.is_none(),
        ..PlanOptions::default()
    };
    let mut compiler = Compiler::new(rules.clone(), options).map_err(ViewError::Rules)?;
    let ids: Vec<u32> = (0..trace.function_count() as u32).collect();
    let sources = match with_sources {
        true => names.sources(&ids),
        false => Vec::new(),
    };
    let mut known = Vec::with_capacity(ids.len());
    for id in ids {
        let entry = trace.function(id);
        let (name, linkage) = match entry.kind {
            // The numbers must stay the ids.
            FunctionKind::None => ("".into(), None),
            _ => names.linkage(id),
        };
        compiler.add(&FunctionDescription {
            name: &name,
            linkage: linkage.as_deref(),
            module: names.module_path(&entry),
            kind: match entry.kind {
                FunctionKind::LibraryCall => FunctionOrigin::LibraryCall,
                _ => FunctionOrigin::Code,
            },
            size: names.size(id),
            source: sources
                .get(id as usize)
                .and_then(|source| Some(source.as_ref()?.0.as_str())),
            is_chosen: recorded.is_some_and(|recorded| recorded.get(id).is_some()),
        });
        if entry.kind != FunctionKind::None {
            known.push(name);
        }
    }
    let told = compiler.warnings(known.iter().map(|name| &**name));
    warnings.extend(told.iter().map(ToString::to_string));
    Ok(compiler.plan())
}

impl Timed for ShownStep {
    fn time(&self) -> u64 {
        ShownStep::time(self)
    }
}
