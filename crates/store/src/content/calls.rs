//! The rows of traced calls: each call, or sums by thread and call stack.

use super::identities::{Identities, KnownFunction};
use super::rows::signed;
use super::traced::TraceFunctions;
use crate::columns::{Rows, Value};
use crate::error::StoreError;
use crate::schema::Table;
use dioptra_calls::{CallEnding, OpenCalls, ShownStep, View};
use dioptra_tracedata::Stream;
use dioptra_tracelayout::FunctionKind;
use std::collections::{BTreeMap, HashMap};

/// The rows of a trace's calls, and their sums.
pub(super) struct WrittenCalls {
    pub rows: Rows,
    /// The number of calls whose beginnings were recorded.
    pub calls: u64,
    /// Nanoseconds from the first record to the last one.
    pub duration: u64,
    /// Whether each call has a row of its own.
    pub one_by_one: bool,
    /// By function id of the store: calls, total time and self time.
    pub sums: BTreeMap<String, [u64; 3]>,
}

/// All calls of one function on one path of a stream.
struct PathCalls {
    function: u32,
    parent: Option<usize>,
    /// Whether no call of the same function is around it.
    is_outermost: bool,
    calls: u64,
    open: u64,
    duration: u64,
    own: u64,
    shortest: u64,
    longest: u64,
    weighted_calls: f64,
    weighted_duration: f64,
    weighted_own: f64,
}

/// A single call.
struct OneCall {
    path: usize,
    entered: Option<u64>,
    duration: u64,
    own: u64,
    weight: f64,
    ending: CallEnding,
}

#[derive(Clone, Copy)]
struct Begun {
    path: usize,
    time: u64,
    is_entered: bool,
    weight: f64,
}

/// The calls of one stream.
#[derive(Default)]
struct StreamCalls {
    paths: Vec<PathCalls>,
    of_call: HashMap<(Option<usize>, u32), usize>,
    /// Empty if there are more than the limit.
    each: Vec<OneCall>,
    all: u64,
    last: u64,
}

impl StreamCalls {
    /// Sums the calls of a stream, and keeps up to `most` single calls.
    fn of(view: &View<'_>, place: usize, most: u64) -> StreamCalls {
        let mut stream = StreamCalls::default();
        let mut open: OpenCalls<Begun> = OpenCalls::default();
        let mut calls = match view.is_sampled() {
            true => view.scaled_calls(place),
            false => view.calls(place),
        };
        calls.each(|shown| {
            stream.last = stream.last.max(shown.time());
            match shown {
                ShownStep::Enter {
                    time, call, weight, ..
                } => {
                    let parent = open.last().map(|begun| begun.path);
                    let path = stream.path(view, parent, call.function);
                    open.push(Begun {
                        path,
                        time,
                        is_entered: call.entered.is_some(),
                        weight,
                    });
                }
                ShownStep::Leave {
                    time, own, ending, ..
                } => {
                    if let Some(begun) = open.pop() {
                        stream.leave(begun, time, own, ending, most);
                    }
                }
                ShownStep::Lost { .. } => {}
                ShownStep::Switch { stack, .. } => open.switch(stack),
            }
        });
        stream
    }

    fn path(&mut self, view: &View<'_>, parent: Option<usize>, function: u32) -> usize {
        if let Some(path) = self.of_call.get(&(parent, function)) {
            return *path;
        }
        let key = SameFunction::of(view, function);
        let mut around = parent;
        let mut is_outermost = true;
        while let Some(path) = around {
            is_outermost &= SameFunction::of(view, self.paths[path].function) != key;
            around = self.paths[path].parent;
        }
        let path = self.paths.len();
        self.paths.push(PathCalls {
            function,
            parent,
            is_outermost,
            calls: 0,
            open: 0,
            duration: 0,
            own: 0,
            shortest: u64::MAX,
            longest: 0,
            weighted_calls: 0.0,
            weighted_duration: 0.0,
            weighted_own: 0.0,
        });
        self.of_call.insert((parent, function), path);
        path
    }

    fn leave(&mut self, begun: Begun, time: u64, own: u64, ending: CallEnding, most: u64) {
        let duration = time.saturating_sub(begun.time);
        let path = &mut self.paths[begun.path];
        path.duration = path.duration.saturating_add(duration);
        path.own = path.own.saturating_add(own);
        path.weighted_duration += duration as f64 * begun.weight;
        path.weighted_own += own as f64 * begun.weight;
        path.open += u64::from(ending == CallEnding::Open);
        if begun.is_entered {
            path.calls += 1;
            path.weighted_calls += begun.weight;
            path.shortest = path.shortest.min(duration);
            path.longest = path.longest.max(duration);
        }
        self.all += 1;
        if self.all > most {
            self.each = Vec::new();
            return;
        }
        self.each.push(OneCall {
            path: begun.path,
            entered: begun.is_entered.then_some(begun.time),
            duration,
            own,
            weight: begun.weight,
            ending,
        });
    }
}

/// The identity of a function by which recursion is found: a library call is one function, whichever module calls it,
/// unless calls are sampled.
#[derive(PartialEq, Eq)]
enum SameFunction<'t> {
    Id(u32),
    Library(&'t [u8]),
}

impl<'t> SameFunction<'t> {
    fn of(view: &View<'t>, function: u32) -> SameFunction<'t> {
        let entry = view.trace().function(function);
        let name = match entry.kind {
            FunctionKind::LibraryCall if !view.is_sampled() => {
                view.trace().library_call_name(&entry)
            }
            _ => None,
        };
        name.map_or(SameFunction::Id(function), SameFunction::Library)
    }
}

/// Writes the rows of a view: a row for each call if there are at most `most`, else one for each thread and path.
///
/// # Errors
/// A value is too large for a signed number.
pub(super) fn write(
    view: &View<'_>,
    functions: &mut TraceFunctions<'_>,
    identities: &mut Identities,
    most: u64,
) -> Result<WrittenCalls, StoreError> {
    let mut left = most;
    let mut one_by_one = true;
    let mut streams = Vec::new();
    for place in 0..view.streams().len() {
        let stream = StreamCalls::of(view, place, if one_by_one { left } else { 0 });
        match left.checked_sub(stream.all) {
            Some(rest) => left = rest,
            None => one_by_one = false,
        }
        streams.push(stream);
        if !one_by_one {
            streams
                .iter_mut()
                .for_each(|stream| stream.each = Vec::new());
        }
    }
    let mut written = WrittenCalls {
        rows: Rows::new(Table::Calls),
        calls: 0,
        duration: 0,
        one_by_one,
        sums: BTreeMap::new(),
    };
    for (place, stream) in streams.iter().enumerate() {
        let last = stream.last.saturating_sub(view.first());
        written.duration = written.duration.max(last);
        let thread = Thread::of(view, view.streams()[place]);
        let known: Vec<KnownFunction> = stream
            .paths
            .iter()
            .map(|path| functions.get(path.function, identities))
            .collect();
        let mut stacks = Vec::with_capacity(known.len());
        for path in 0..known.len() {
            let mut functions = Vec::new();
            let mut at = Some(path);
            while let Some(path) = at {
                functions.push(&known[path]);
                at = stream.paths[path].parent;
            }
            stacks.push(identities.stack(&functions));
        }
        for (path, function) in stream.paths.iter().zip(&known) {
            let sums = written.sums.entry(function.id.clone()).or_default();
            let total = if path.is_outermost { path.duration } else { 0 };
            for (sum, value) in sums.iter_mut().zip([path.calls, total, path.own]) {
                *sum = sum.saturating_add(value);
            }
            written.calls = written.calls.saturating_add(path.calls);
        }
        let mut rows = PathRows {
            thread: &thread,
            paths: &stream.paths,
            known: &known,
            stacks: &stacks,
            rows: &mut written.rows,
        };
        match one_by_one {
            true => rows.each(&stream.each, view.first())?,
            false => rows.sums()?,
        }
    }
    Ok(written)
}

/// The thread of a stream.
struct Thread {
    pid: i64,
    tid: i64,
    process: String,
    comm: String,
}

impl Thread {
    fn of(view: &View<'_>, stream: &Stream) -> Thread {
        let trace = view.trace();
        let comm = trace.thread_name(stream).to_owned();
        let main = trace.streams().iter().find(|other| {
            other.pid == stream.pid && other.tid == stream.pid && other.chunk_count() > 0
        });
        let process = main.map_or("", |main| trace.thread_name(main));
        Thread {
            pid: i64::from(stream.pid),
            tid: i64::from(stream.tid),
            process: match process {
                "" => comm.clone(),
                name => name.to_owned(),
            },
            comm,
        }
    }
}

/// The paths of a stream on their way into rows.
struct PathRows<'a> {
    thread: &'a Thread,
    paths: &'a [PathCalls],
    known: &'a [KnownFunction],
    stacks: &'a [String],
    rows: &'a mut Rows,
}

/// The numbers of a row.
struct Numbers {
    elapsed: Option<i64>,
    calls: u64,
    duration: u64,
    own: u64,
    extremes: Option<(u64, u64)>,
    weighted: [f64; 3],
    open: u64,
    ending: Option<&'static str>,
}

impl PathRows<'_> {
    fn each(&mut self, calls: &[OneCall], first: u64) -> Result<(), StoreError> {
        for call in calls {
            let elapsed = call.entered.map(|entered| entered.saturating_sub(first));
            let is_entered = call.entered.is_some();
            self.push(
                call.path,
                &Numbers {
                    elapsed: elapsed.map(|at| signed("elapsed_ns", at)).transpose()?,
                    calls: u64::from(is_entered),
                    duration: call.duration,
                    own: call.own,
                    extremes: is_entered.then_some((call.duration, call.duration)),
                    weighted: [
                        if is_entered { call.weight } else { 0.0 },
                        call.duration as f64 * call.weight,
                        call.own as f64 * call.weight,
                    ],
                    open: u64::from(call.ending == CallEnding::Open),
                    ending: ending_word(call.ending),
                },
            )?;
        }
        Ok(())
    }

    fn sums(&mut self) -> Result<(), StoreError> {
        for (number, path) in self.paths.iter().enumerate() {
            if path.calls == 0 && path.duration == 0 {
                continue;
            }
            self.push(
                number,
                &Numbers {
                    elapsed: None,
                    calls: path.calls,
                    duration: path.duration,
                    own: path.own,
                    extremes: (path.calls > 0).then_some((path.shortest, path.longest)),
                    weighted: [
                        path.weighted_calls,
                        path.weighted_duration,
                        path.weighted_own,
                    ],
                    open: path.open,
                    ending: None,
                },
            )?;
        }
        Ok(())
    }

    fn push(&mut self, path: usize, numbers: &Numbers) -> Result<(), StoreError> {
        let known = &self.paths[path];
        let parent = known.parent.map(|parent| &self.known[parent]);
        let [calls, total, own] = numbers.weighted;
        let (total, plain_total) = match known.is_outermost {
            true => (total, numbers.duration),
            false => (0.0, 0),
        };
        let extreme = |value: Option<u64>| value.map(|value| signed("duration_ns", value));
        self.rows.push(&[
            Value::OptionalInteger(numbers.elapsed),
            Value::Integer(self.thread.pid),
            Value::Integer(self.thread.tid),
            Value::Text(&self.thread.process),
            Value::Text(&self.thread.comm),
            Value::Text(&self.stacks[path]),
            Value::OptionalText(parent.map(|parent| &*parent.id)),
            Value::OptionalText(parent.map(|parent| &*parent.name)),
            Value::Integer(signed("calls", numbers.calls)?),
            Value::Integer(signed("duration_ns", numbers.duration)?),
            Value::Integer(signed("total_ns", plain_total)?),
            Value::Integer(signed("self_ns", numbers.own)?),
            Value::OptionalInteger(extreme(numbers.extremes.map(|both| both.0)).transpose()?),
            Value::OptionalInteger(extreme(numbers.extremes.map(|both| both.1)).transpose()?),
            Value::Double(calls),
            Value::Double(total),
            Value::Double(own),
            Value::Integer(signed("open_calls", numbers.open)?),
            Value::OptionalText(numbers.ending),
        ]);
        Ok(())
    }
}

/// Returns the word for a call's end; `None` for a return.
fn ending_word(ending: CallEnding) -> Option<&'static str> {
    match ending {
        CallEnding::Returned | CallEnding::Discarded => None,
        CallEnding::Unwound(_) => Some("unwound"),
        CallEnding::Open => Some("open"),
        _ => Some("missing"),
    }
}
