//! Texts of a trace's events.

use dioptra_tables::escape;
use dioptra_tracedata::Trace;
use dioptra_tracelayout::EventPlace;
use std::borrow::Cow;

/// A scheduling or lifetime event of a thread.
#[derive(Clone, Copy)]
pub struct Event<'t> {
    pub place: EventPlace,
    /// The thread's new name, if it got one.
    pub name: &'t str,
}

impl<'t> Event<'t> {
    /// Returns the event that a function id stands for.
    pub fn of(trace: &'t Trace, function: u32) -> Option<Event<'t>> {
        let entry = trace.function(function);
        Some(Event {
            place: entry.as_event()?,
            name: trace.task_name(&entry).unwrap_or_default(),
        })
    }

    /// Returns whether the event also has an end, such as `linux:sched-in`.
    pub fn is_period(self) -> bool {
        matches!(
            self.place,
            EventPlace::Schedule | EventPlace::SchedulePreempted | EventPlace::ScheduleTracer
        )
    }

    /// Returns the text of the event's beginning.
    pub fn begin(self) -> Cow<'static, str> {
        match self.place {
            EventPlace::Schedule => "linux:sched-out".into(),
            EventPlace::SchedulePreempted => "linux:sched-out (pre-empted)".into(),
            EventPlace::ScheduleTracer => "linux:sched-out (tracer)".into(),
            _ => self.whole(),
        }
    }

    /// Returns the text of the event as a whole.
    pub fn whole(self) -> Cow<'static, str> {
        match self.place {
            EventPlace::TaskName => {
                format!("{} (comm=\"{}\")", self.place.name(), escape(self.name)).into()
            }
            place => place.name().into(),
        }
    }
}
