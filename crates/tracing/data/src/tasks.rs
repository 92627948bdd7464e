//! The beginnings, ends and names of threads.

use crate::TaskChange;
use crate::extents::StreamExtents;
use crate::reader::Stream;
use dioptra_tracelayout::{EventPlace, FunctionEntry};
use std::collections::{BTreeMap, HashMap};

/// An event of a thread: its beginning, its end, or a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskEvent {
    /// The time, `CLOCK_MONOTONIC` in nanoseconds.
    pub time: u64,
    /// The function id that stands for the event: see [`Trace::event_id`](crate::Trace::event_id) and
    /// [`Trace::task_name`](crate::Trace::task_name).
    pub function: u32,
}

/// The events of all threads.
#[derive(Debug, Default)]
pub(crate) struct TaskIndex {
    /// The changes in the order of the journal.
    told: Vec<(u64, (u32, u32), TaskChange)>,
    /// The events of each thread in the order of time.
    threads: HashMap<(u32, u32), Vec<TaskEvent>>,
    names: Vec<String>,
}

impl TaskIndex {
    pub fn tell(&mut self, time: u64, thread: (u32, u32), change: TaskChange) {
        self.told.push((time, thread, change));
    }

    pub fn is_empty(&self) -> bool {
        self.told.is_empty() && self.threads.is_empty()
    }

    pub fn name(&self, number: u32) -> Option<&str> {
        self.names.get(number as usize).map(String::as_str)
    }

    /// Adds an entry for each name to the functions, in which [`EventPlace::Schedule`] has the id `first`.
    pub fn number(&mut self, first: u32, functions: &mut Vec<FunctionEntry>) {
        let id = |event: EventPlace| first.saturating_add(event as u32);
        let mut numbers: BTreeMap<String, u32> = BTreeMap::new();
        for (time, thread, change) in std::mem::take(&mut self.told) {
            let function = match change {
                TaskChange::New => id(EventPlace::TaskNew),
                TaskChange::Exit => id(EventPlace::TaskExit),
                TaskChange::Name(name) => {
                    let next = numbers.len() as u32;
                    let number = *numbers.entry(name.clone()).or_insert(next);
                    if number == next {
                        self.names.push(name);
                        functions.push(FunctionEntry {
                            size: number,
                            ..FunctionEntry::event(EventPlace::TaskName)
                        });
                    }
                    id(EventPlace::TaskName).saturating_add(number)
                }
            };
            let events = self.threads.entry(thread).or_default();
            events.push(TaskEvent { time, function });
        }
        for events in self.threads.values_mut() {
            events.sort_by_key(|event| event.time);
        }
    }

    /// Returns the events of a stream's thread while it belonged to that stream.
    pub fn of(&self, stream: &Stream, extents: &StreamExtents) -> &[TaskEvent] {
        let events = self.threads.get(&(stream.pid, stream.tid));
        let events = events.map_or(&[][..], Vec::as_slice);
        let (from, until) = extents.of(stream);
        let place = |time| events.partition_point(|event| event.time < time);
        events.get(place(from)..place(until)).unwrap_or_default()
    }
}
