//! The calls of a view as slices of time: each begins and ends on its thread, in the order of time.

use dioptra_calls::{Call, CallEnding, OpenCalls, ShownStep, View, ViewLosses, ahead};
use dioptra_tracedata::ValueDescription;
use dioptra_tracelayout::EventPlace;
use std::io;

/// A moment of a thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    /// The index of the stream in the view.
    pub place: usize,
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub time: u64,
    /// The number of the call stack, which coroutines change.
    pub stack: u32,
}

/// An event of a thread that takes no time.
#[derive(Clone, Copy, Debug)]
pub(super) struct TaskMoment<'t> {
    pub event: EventPlace,
    /// The thread's new name, if it got one.
    pub name: &'t str,
}

/// A writer of slices.
pub(super) trait SliceWriter {
    /// Takes the beginning of a call; `began_before` is true if the call began before, at an unknown time or outside
    /// of the view's time. `call` has the arguments, where they are known.
    fn begin(
        &mut self,
        at: Moment,
        function: u32,
        began_before: bool,
        call: Option<&Call>,
    ) -> io::Result<()>;
    /// Takes the end of a call that has begun, with its return value.
    fn end(&mut self, at: Moment, call: &Call, ending: CallEnding) -> io::Result<()>;
    /// Takes the last known time of a call that has begun and has no end.
    fn open(&mut self, _at: Moment, _function: u32) -> io::Result<()> {
        Ok(())
    }
    /// Takes an event of a thread.
    fn moment(&mut self, at: Moment, event: TaskMoment<'_>) -> io::Result<()>;
    /// Takes a gap of records; `records` is 0 if their number is not known.
    fn lost(&mut self, at: Moment, records: u64) -> io::Result<()>;
}

/// The numbers of slices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Slices {
    /// Calls whose beginning was recorded.
    pub calls: u64,
    /// Calls that began before their records, or before the view's time.
    pub began_before: u64,
    /// Calls without an end.
    pub open: u64,
    pub losses: ViewLosses,
}

/// A call that has begun.
struct Begun {
    function: u32,
    /// Whether this is an event that takes no time and has no end.
    is_moment: bool,
    /// Whether the beginning is written, or needs no writing.
    is_written: bool,
}

/// Passes the slices of a view to a writer.
pub(super) fn each(view: &View<'_>, writer: &mut impl SliceWriter) -> io::Result<Slices> {
    let trace = view.trace();
    let range = view.range();
    let first_event = trace.event_id(EventPlace::Schedule).unwrap_or(u32::MAX);
    let mut slices = Slices::default();
    let mut open: Vec<OpenCalls<Begun>> = Vec::new();
    open.resize_with(view.streams().len(), OpenCalls::default);
    let mut stacks = vec![0; view.streams().len()];
    let (written, merged) = ahead(view.merged(), |merged| -> io::Result<()> {
        for (place, shown) in merged {
            let (time, open) = (shown.time(), &mut open[place]);
            let at = |time| Moment {
                place,
                time,
                stack: stacks[place],
            };
            let in_range = range.contains(time);
            if let Some(start) = range.start.filter(|_| in_range) {
                // Calls that began before the range are written as beginning at its start.
                for begun in open.current_mut().iter_mut().filter(|b| !b.is_written) {
                    begun.is_written = true;
                    slices.began_before += 1;
                    writer.begin(at(start), begun.function, true, None)?;
                }
            }
            match shown {
                ShownStep::Lost { records, .. } if in_range => writer.lost(at(time), records)?,
                ShownStep::Lost { .. } => {}
                ShownStep::Switch { stack, .. } => {
                    open.switch(stack);
                    stacks[place] = stack;
                }
                ShownStep::Enter { call, .. } => {
                    let function = call.function;
                    let event = match function >= first_event {
                        true => task_moment(view, function),
                        false => None,
                    };
                    open.push(Begun {
                        function,
                        is_moment: event.is_some(),
                        is_written: in_range || event.is_some(),
                    });
                    match event {
                        _ if !in_range => {}
                        Some(event) => writer.moment(at(time), event)?,
                        None => {
                            let began_before = call.entered.is_none();
                            match began_before {
                                true => slices.began_before += 1,
                                false => slices.calls += 1,
                            }
                            writer.begin(at(time), function, began_before, Some(&call))?;
                        }
                    }
                }
                ShownStep::Leave { call, ending, .. } => {
                    let begun = open.pop();
                    let is_begun = begun.is_some_and(|b| b.is_written && !b.is_moment);
                    // The end of a range cuts calls off; at the end of the trace their end is unknown.
                    let is_open = ending == CallEnding::Open && range.stop.is_none();
                    if in_range && is_begun && !is_open {
                        writer.end(at(time), &call, ending)?;
                    } else if is_begun {
                        slices.open += 1;
                        // The time of a call ends with the view's.
                        let last = range.stop.map_or(time, |stop| time.min(stop));
                        writer.open(at(last), call.function)?;
                    }
                }
            }
        }
        Ok(())
    });
    written?;
    slices.losses = merged.losses();
    Ok(slices)
}

/// Returns the event that takes no time for which a function's id stands.
fn task_moment<'t>(view: &View<'t>, function: u32) -> Option<TaskMoment<'t>> {
    let trace = view.trace();
    let entry = trace.function(function);
    let event = entry.as_event()?;
    let is_period = matches!(
        event,
        EventPlace::Schedule | EventPlace::SchedulePreempted | EventPlace::ScheduleTracer
    );
    (!is_period).then(|| TaskMoment {
        event,
        name: trace.task_name(&entry).unwrap_or_default(),
    })
}

/// Returns the name of an argument: the parameter's, if that is known.
pub(super) fn argument_name(described: &ValueDescription) -> &str {
    match described.name.as_str() {
        "" => &described.argument,
        name => name,
    }
}

/// Returns words for the end of a call that did not return.
pub(super) fn ending_words(ending: CallEnding) -> Option<(&'static str, String)> {
    match ending {
        CallEnding::Returned => None,
        CallEnding::Open => Some(("end", "later".to_owned())),
        CallEnding::Unwound(cause) => Some(("unwound", format!("{cause:?}"))),
        _ => Some(("end", "missing".to_owned())),
    }
}
