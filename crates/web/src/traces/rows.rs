//! The rows of a replay: calls in the order of time, as `dioptra trace replay` writes them.

use crate::api::ReplayKind;
use dioptra_calls::{CallEnding, Merge, OpenCalls, ShownCalls, ShownStep, View, ViewLosses};
use dioptra_tracelayout::EventPlace;

/// A row of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallRow {
    pub kind: ReplayKind,
    /// The stream's index in the view.
    pub place: usize,
    /// The number of shown calls around it.
    pub depth: u32,
    /// The function; none where records are missing.
    pub function: Option<u32>,
    /// The clock's nanoseconds.
    pub time: u64,
    /// When a call that ends began, if it is known.
    pub began: Option<u64>,
    /// When a call ended.
    pub ended: Option<u64>,
    /// How a call ended.
    pub ending: Option<CallEnding>,
    /// The number of missing records; 0 if not known.
    pub lost: u64,
}

/// A walk through the rows of a view.
pub(crate) struct CallRows<'v, 't> {
    view: &'v View<'t>,
    merged: Merge<ShownCalls<'v>>,
    /// The functions of each stream's open calls.
    threads: Vec<OpenCalls<u32>>,
    /// The first id that stands for an event instead of a function.
    first_event: u32,
    /// The time of the last step that the rows cover.
    last: u64,
}

impl<'v, 't> CallRows<'v, 't> {
    pub(crate) fn new(view: &'v View<'t>) -> Self {
        let first_event = view.trace().event_id(EventPlace::Schedule);
        CallRows {
            view,
            merged: view.merged(),
            threads: view
                .streams()
                .iter()
                .map(|_| OpenCalls::default())
                .collect(),
            first_event: first_event.unwrap_or(u32::MAX),
            last: 0,
        }
    }

    /// Returns the time of the last step that the rows so far cover: those behind it do not depend on what was before it.
    pub(crate) fn covered(&self) -> u64 {
        self.last
    }

    /// Returns the losses so far.
    pub(crate) fn losses(&self) -> ViewLosses {
        self.merged.losses()
    }

    /// Whether a function stands for an event that takes no time.
    fn is_moment(&self, function: u32) -> bool {
        let entry = || self.view.trace().function(function);
        function >= self.first_event
            && !matches!(
                entry().as_event(),
                None | Some(
                    EventPlace::Schedule
                        | EventPlace::SchedulePreempted
                        | EventPlace::ScheduleTracer
                )
            )
    }

    /// Returns the row of a step, if it has one.
    fn row(&mut self, place: usize, shown: ShownStep) -> Option<CallRow> {
        let range = self.view.range();
        let in_range = range.contains(shown.time());
        let row = |kind, depth, function, time| CallRow {
            kind,
            place,
            depth,
            function,
            time,
            began: None,
            ended: None,
            ending: None,
            lost: 0,
        };
        match shown {
            ShownStep::Enter { time, call, .. } => {
                if !in_range || call.entered.is_none() {
                    self.threads[place].push(call.function);
                    return None;
                }
                let mut row = row(ReplayKind::Enter, call.depth, Some(call.function), time);
                // A call that ends with the next step is one row.
                if let Some((
                    next,
                    ShownStep::Leave {
                        time: end, ending, ..
                    },
                )) = self.merged.peek()
                    && *next == place
                    && *ending != CallEnding::Open
                    && range.contains(*end)
                {
                    row.kind = ReplayKind::Call;
                    (row.began, row.ended, row.ending) = (Some(time), Some(*end), Some(*ending));
                    self.last = *end;
                    self.merged.next();
                } else {
                    self.threads[place].push(call.function);
                }
                if self.is_moment(call.function) {
                    row.kind = ReplayKind::Event;
                    (row.began, row.ended, row.ending) = (None, None, None);
                }
                Some(row)
            }
            ShownStep::Leave {
                time, call, ending, ..
            } => {
                self.threads[place].pop();
                if !in_range || ending == CallEnding::Open || self.is_moment(call.function) {
                    return None;
                }
                let mut row = row(ReplayKind::Leave, call.depth, Some(call.function), time);
                (row.began, row.ended, row.ending) = (call.entered, Some(time), Some(ending));
                Some(row)
            }
            ShownStep::Lost { time, records } => {
                let depth = self.threads[place].current().len();
                let depth = u32::try_from(depth).unwrap_or(u32::MAX);
                let lost = CallRow {
                    lost: records,
                    ..row(ReplayKind::Lost, depth, None, time)
                };
                in_range.then_some(lost)
            }
            ShownStep::Switch { stack, .. } => {
                self.threads[place].switch(stack);
                None
            }
        }
    }
}

impl Iterator for CallRows<'_, '_> {
    type Item = CallRow;

    fn next(&mut self) -> Option<CallRow> {
        loop {
            let (place, shown) = self.merged.next()?;
            self.last = shown.time();
            if let Some(row) = self.row(place, shown) {
                return Some(row);
            }
        }
    }
}
