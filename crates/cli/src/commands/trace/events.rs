//! Events as the trace's texts show them.

use dioptra_tables::escape;
use dioptra_tracedata::Trace;
use dioptra_tracelayout::EventPlace;
use std::borrow::Cow;

/// What the kernel did with a thread.
#[derive(Clone, Copy)]
pub struct Event<'t> {
    pub place: EventPlace,
    /// The name that the thread got.
    pub name: &'t str,
}

impl<'t> Event<'t> {
    /// The event that a function id stands for.
    pub fn of(trace: &'t Trace, function: u32) -> Option<Event<'t>> {
        let entry = trace.function(function);
        Some(Event {
            place: entry.as_event()?,
            name: trace.task_name(&entry).unwrap_or_default(),
        })
    }

    /// Whether it has an end, too: `linux:sched-in`.
    pub fn is_period(self) -> bool {
        matches!(
            self.place,
            EventPlace::Schedule | EventPlace::SchedulePreempted | EventPlace::ScheduleTracer
        )
    }

    /// Its beginning.
    pub fn begin(self) -> Cow<'static, str> {
        match self.place {
            EventPlace::Schedule => "linux:sched-out".into(),
            EventPlace::SchedulePreempted => "linux:sched-out (pre-empted)".into(),
            EventPlace::ScheduleTracer => "linux:sched-out (tracer)".into(),
            _ => self.whole(),
        }
    }

    /// All of it.
    pub fn whole(self) -> Cow<'static, str> {
        match self.place {
            EventPlace::TaskName => {
                format!("{} (comm=\"{}\")", self.place.name(), escape(self.name)).into()
            }
            place => place.name().into(),
        }
    }
}
