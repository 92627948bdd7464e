//! A trace, written as a directory that uftrace reads.

mod about;
mod addresses;
mod calls;
mod events;
mod tasks;

use super::info::{
    EVENTS, MAX_STACK, PERF_EVENTS, PLT_HOOK, RELATIVE_SYMBOLS, TASK_SESSION, info_file,
};
use super::loss::{Losses, UftraceLoss, UftraceLossKind};
use super::perf_events::{ThreadChange, ThreadEvent};
use super::record::DEPTHS;
use addresses::Addresses;
use calls::{CallSink, TaskFile};
use dioptra_calls::{
    Call, Demangle, FunctionNames, Scheduling, ShownStep, ThreadCpus, View, ViewError, ViewLosses,
    ViewSelection,
};
use dioptra_symbols::SymbolOptions;
use dioptra_tables::Facts;
use dioptra_trace_report::call_facts;
use dioptra_tracedata::{Stream, Trace};
use dioptra_tracelayout::EventPlace;
use events::CpuEvents;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use tasks::{Task, TaskList};
use thiserror::Error;

/// The reason why a trace could not be written for uftrace.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum UftraceExportError {
    /// A file can't be written.
    #[error("{}: cannot be written", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The trace can't be viewed.
    #[error(transparent)]
    View(#[from] ViewError),
}

impl UftraceExportError {
    fn write(path: &Path, source: io::Error) -> UftraceExportError {
        let path = path.to_owned();
        UftraceExportError::Write { path, source }
    }
}

/// A directory that was written for uftrace.
#[derive(Debug)]
pub struct UftraceExported {
    /// The number of calls that were written, without those that a forked process inherited.
    pub calls: u64,
    /// The number of threads, and of other tasks, that have calls.
    pub tasks: u64,
    /// The diagnostics of the trace itself.
    pub facts: Facts,
    /// The things that the format has no place for.
    pub lost: Vec<UftraceLoss>,
}

/// Returns the address of each function, by id, as an exported directory has them: in the memory of the first process
/// that had the module mapped. It is 0 for ids without an address.
pub fn function_addresses(trace: &Trace) -> Vec<u64> {
    Addresses::new(trace, &mut Losses::default()).into_all()
}

/// Writes a trace into the empty directory `folder`, in uftrace's format, version 4. Names come from the places that
/// `symbols` states.
///
/// The calls are those that readers of the trace show: rules of the recording that were left to readers are applied.
///
/// # Errors
/// A file can't be written, or rules of the trace can't be followed.
pub fn write_uftrace(
    trace: &Trace,
    symbols: SymbolOptions,
    folder: &Path,
) -> Result<UftraceExported, UftraceExportError> {
    let names = FunctionNames::new(trace, symbols, Demangle::No);
    let scheduling = Scheduling {
        waits: true,
        preemptions: true,
        tasks: true,
        everywhere: true,
    };
    let selection = ViewSelection {
        scheduling,
        seed: trace.info().seed.unwrap_or(0),
        ..ViewSelection::default()
    };
    let view = View::new(&names, selection)?;
    let mut losses = Losses::default();
    let addresses = Addresses::new(trace, &mut losses);
    let mut writer = Writer {
        view: &view,
        folder,
        sink: CallSink {
            addresses: &addresses,
            called: vec![false; trace.function_count()],
            losses,
            calls: 0,
        },
        events: CpuEvents::default(),
        tasks: Vec::new(),
        next_tid: trace
            .streams()
            .iter()
            .map(|stream| stream.tid)
            .max()
            .unwrap_or(0),
        lost: ViewLosses::default(),
    };
    writer.threads()?;
    let Writer {
        sink,
        events,
        tasks,
        lost,
        ..
    } = writer;
    let (mut losses, calls) = (sink.losses, sink.calls);
    for (file, text) in addresses.symbols(&names, &sink.called, &mut losses) {
        write(folder, &file, text.as_bytes())?;
    }
    let list = TaskList::new(trace, &tasks, &mut losses);
    let map = addresses.map();
    for session in &list.sessions {
        write(folder, &format!("sid-{session}.map"), map.as_bytes())?;
    }
    write(folder, "task.txt", list.text.as_bytes())?;
    let mut features = PLT_HOOK | TASK_SESSION | RELATIVE_SYMBOLS | MAX_STACK;
    if events.cpu_count() > 0 {
        features |= EVENTS | PERF_EVENTS;
    }
    let about = about::about(trace, &addresses, &list.tids, events.cpu_count());
    events.write(folder)?;
    write(folder, "info", &info_file(features, DEPTHS as u16, &about))?;
    // Options of the recording, of which there are none.
    write(folder, "default.opts", b"")?;
    count_the_rest(trace, &mut losses);
    Ok(UftraceExported {
        calls,
        tasks: tasks.len() as u64,
        facts: call_facts(trace, &names, &lost),
        lost: losses.list(),
    })
}

fn write(folder: &Path, name: &str, bytes: &[u8]) -> Result<(), UftraceExportError> {
    let path = folder.join(name);
    fs::write(&path, bytes).map_err(|source| UftraceExportError::write(&path, source))
}

/// Counts the parts of a trace that do not belong to single calls.
fn count_the_rest(trace: &Trace, losses: &mut Losses) {
    let sampled = trace.sampled().iter();
    let sampled: usize = sampled.map(|sampled| sampled.functions.len()).sum();
    losses.add_many(UftraceLossKind::SampledFunctions, sampled as u64);
    losses.add_many(UftraceLossKind::Notes, trace.notes().len() as u64);
    let refused = trace.modules().flat_map(|module| &module.refused);
    let refused = refused.map(|refused| u64::from(refused.count)).sum();
    losses.add_many(UftraceLossKind::RefusedFunctions, refused);
}

/// Writes the files of calls and collects everything else that they tell.
struct Writer<'a> {
    view: &'a View<'a>,
    folder: &'a Path,
    sink: CallSink<'a>,
    events: CpuEvents,
    tasks: Vec<Task>,
    /// The highest id of a task so far.
    next_tid: u32,
    lost: ViewLosses,
}

impl Writer<'_> {
    /// Writes the calls of all threads. A thread whose process executes another program has one stream after another.
    fn threads(&mut self) -> Result<(), UftraceExportError> {
        let streams = self.view.streams();
        let mut threads: BTreeMap<u32, Vec<(u64, usize)>> = BTreeMap::new();
        for (place, stream) in streams.iter().enumerate() {
            let first = self.view.calls(place).next();
            let first = first.map_or(u64::MAX, |step| step.time());
            threads.entry(stream.tid).or_default().push((first, place));
        }
        for (tid, mut places) in threads {
            places.sort_unstable();
            let mut file = TaskFile::new(self.folder, tid);
            for (_, place) in places {
                file.begin_image();
                self.stream(place, &mut file)?;
            }
            file.finish()?;
        }
        Ok(())
    }

    fn stream(&mut self, place: usize, file: &mut TaskFile) -> Result<(), UftraceExportError> {
        let stream = self.view.streams()[place];
        let mut events = StreamEvents {
            stream,
            first: self.view.trace().event_id(EventPlace::Schedule),
            trace: self.view.trace(),
            cpus: self.view.cpus(place),
        };
        let mut stacks: BTreeMap<u32, TaskFile> = BTreeMap::new();
        let mut stack = 0;
        let mut is_inherited = stream.parent != 0;
        let mut is_told = false;
        let mut calls = self.view.calls(place);
        for step in calls.by_ref() {
            let file = match stack {
                0 => &mut *file,
                stack => match stacks.entry(stack) {
                    std::collections::btree_map::Entry::Occupied(file) => file.into_mut(),
                    std::collections::btree_map::Entry::Vacant(place) => {
                        self.next_tid = self.next_tid.saturating_add(1);
                        let tid = self.next_tid;
                        self.sink.losses.add(UftraceLossKind::CallStacks);
                        self.tell_task(stream, tid, step.time());
                        place.insert(TaskFile::new(self.folder, tid))
                    }
                },
            };
            match step {
                ShownStep::Enter { time, call, .. } => {
                    if events.take(time, call, true, &mut self.sink.losses, &mut self.events) {
                        continue;
                    }
                    is_inherited &= call.entered.is_none();
                    if !is_told && stack == 0 {
                        is_told = true;
                        self.tell_task(stream, stream.tid, time);
                    }
                    file.enter(&mut self.sink, time, call, is_inherited)?;
                }
                ShownStep::Leave {
                    time, call, ending, ..
                } => {
                    if !events.take(time, call, false, &mut self.sink.losses, &mut self.events) {
                        file.leave(&mut self.sink, time, ending)?;
                    }
                }
                ShownStep::Lost { records, .. } => {
                    is_inherited = false;
                    file.lose(records)?;
                }
                ShownStep::Switch { stack: next, .. } => stack = next,
            }
        }
        for file in stacks.values_mut() {
            file.finish()?;
        }
        self.lost += calls.losses();
        Ok(())
    }

    fn tell_task(&mut self, stream: &Stream, tid: u32, first: u64) {
        let mut streams = self.view.trace().streams().iter();
        let parent = streams.find(|other| stream.parent != 0 && other.stream == stream.parent);
        self.tasks.push(Task {
            pid: stream.pid,
            tid,
            first,
            parent: parent.map(|parent| parent.pid),
        });
    }
}

/// The events of one thread among its calls.
struct StreamEvents<'t> {
    stream: &'t Stream,
    /// The lowest function id that stands for an event.
    first: Option<u32>,
    trace: &'t Trace,
    cpus: ThreadCpus<'t>,
}

impl StreamEvents<'_> {
    /// Writes the beginning or end of an event. Returns false if the call is none.
    fn take(
        &mut self,
        time: u64,
        call: Call,
        is_begin: bool,
        losses: &mut Losses,
        events: &mut CpuEvents,
    ) -> bool {
        if self.first.is_none_or(|first| call.function < first) {
            return false;
        }
        let entry = self.trace.function(call.function);
        let Some(event) = entry.as_event() else {
            return false;
        };
        let change = match (event, is_begin) {
            (EventPlace::Schedule, true) => ThreadChange::Waits,
            (EventPlace::ScheduleTracer, true) => {
                losses.add(UftraceLossKind::TracerWaits);
                ThreadChange::Waits
            }
            (EventPlace::SchedulePreempted, true) => ThreadChange::Preempted,
            (
                EventPlace::Schedule | EventPlace::ScheduleTracer | EventPlace::SchedulePreempted,
                false,
            ) => ThreadChange::Runs,
            (EventPlace::TaskNew, true) => ThreadChange::New,
            (EventPlace::TaskExit, true) => ThreadChange::Ended,
            (EventPlace::TaskName, true) => {
                let name = self.trace.task_name(&entry).unwrap_or_default();
                ThreadChange::Named(name.to_owned())
            }
            (EventPlace::TaskNew | EventPlace::TaskExit | EventPlace::TaskName, false) => {
                return true;
            }
        };
        let event = ThreadEvent {
            time,
            pid: self.stream.pid,
            tid: self.stream.tid,
            change,
        };
        events.add(self.cpus.at(time), event);
        true
    }
}
