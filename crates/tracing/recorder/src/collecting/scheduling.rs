//! Context switches of the traced threads, and their beginnings, ends and names, as the kernel reports them.

use crate::recording::notes::TraceNote;
use crate::recording::shared::Shared;
use dioptra_perfevents::names::software;
use dioptra_perfevents::record::{Comm, SampleId, Switch, Task};
use dioptra_perfevents::{
    AttachError, AttachedSession, EventSpec, Inherit, RecordListener, RunError, Session,
    SessionSpec, SideBand, StopHandle, Target,
};
use dioptra_tracedata::{JournalEntry, TaskChange};
use dioptra_tracelayout::{ContextSwitch, SwitchKind};
use std::collections::{HashMap, VecDeque};
use std::sync::mpsc;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};
use thiserror::Error;

/// The number of switches of a thread that are written at once.
const BLOCK: usize = 256;
/// The time between two writes of all switches. A recorder that is killed has lost little.
const WRITE_EVERY: Duration = Duration::from_secs(1);

/// Pages of each CPU's ring. The kernel zeroes them at the start; a switch takes 48 bytes.
const RING_PAGES: usize = 128;

/// The reason why no events of the scheduler are recorded.
#[derive(Debug, Error)]
enum SchedulingError {
    /// The events could not be opened.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// Reading the events failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Nobody waits for the events any more.
    #[error("nobody waits for them any more")]
    Unwanted,
    /// The thread that reads the events panicked.
    #[error("the thread that records them broke off")]
    BrokeOff,
}

/// A thread that records context switches.
pub struct Recording<'scope> {
    stop: Option<StopHandle>,
    thread: ScopedJoinHandle<'scope, Result<u64, SchedulingError>>,
    /// The kinds of events that are missing if the thread fails.
    wanted: SchedulingEvents,
}

/// The kinds of events to record.
#[derive(Clone, Copy)]
pub struct SchedulingEvents {
    /// Whether context switches are recorded.
    pub switches: bool,
    /// Whether beginnings, ends and names of threads are recorded.
    pub tasks: bool,
    /// The stretch of time before the end to which the recording is limited; `None` for no limit.
    pub last: Option<Duration>,
}

/// Begins to record events of a command that is held before its exec, or of running processes, and of all that they
/// start. Returns when recording
/// works or has failed. A failure is noted in the trace, which goes on without these events.
pub fn start<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    shared: &'env Shared,
    target: Target,
    wanted: SchedulingEvents,
) -> Recording<'scope> {
    let (attached, is_attached) = mpsc::channel();
    let thread = scope.spawn(move || {
        let mut session = attach(target, wanted)?;
        // Sending fails if nobody waits any more. Then nobody could stop the session either.
        attached
            .send(session.stop_handle())
            .map_err(|_| SchedulingError::Unwanted)?;
        let mut switches = Switches::new(shared, wanted);
        let result = session.run(&mut switches);
        switches.finish();
        result?;
        Ok(session.summary().lost)
    });
    Recording {
        // Without a handle, the thread's result is the error.
        stop: is_attached.recv().ok(),
        thread,
        wanted,
    }
}

impl Recording<'_> {
    /// Ends the recording, and returns the number of switches that were lost.
    pub fn end(self, shared: &Shared) -> u64 {
        if let Some(stop) = &self.stop {
            stop.stop();
        }
        let error = match self.thread.join() {
            Ok(Ok(lost)) => return lost,
            Ok(Err(error)) => error,
            Err(_) => SchedulingError::BrokeOff,
        };
        shared.state().note(TraceNote::Unscheduled {
            switches: self.wanted.switches,
            tasks: self.wanted.tasks,
            because: error.to_string(),
        });
        0
    }
}

fn attach(target: Target, wanted: SchedulingEvents) -> Result<AttachedSession, AttachError> {
    // These records report executed programs, which are compared with the programs that connect.
    let mut side_band = SideBand::COMM;
    side_band.set(SideBand::SWITCH, wanted.switches);
    side_band.set(SideBand::TASK, wanted.tasks);
    // The event counts nothing, and only carries the records.
    let dummy = EventSpec::software(software::DUMMY).user_only();
    let spec = SessionSpec::new()
        .event(dummy)
        .target(target)
        .inherit(Inherit::ThreadsAndChildren)
        // The trace itself needs some of the file descriptors.
        .fd_ratio(0.5)
        .ring_pages(Some(RING_PAGES))
        .side_band(side_band);
    Session::new(spec)?.attach()
}

/// A switch, and the process id and thread id of its thread.
type Told = (ContextSwitch, (u32, u32));

/// The switches of all CPUs, which are put in order and written thread by thread.
struct Switches<'s> {
    shared: &'s Shared,
    /// Switches that older ones may still follow.
    waiting: Vec<Told>,
    /// The time of the newest event of the rounds before this one. The kernel wrote all older events before this round
    /// began.
    known: u64,
    /// The time of the newest event so far.
    newest: u64,
    threads: HashMap<(u32, u32), Vec<ContextSwitch>>,
    /// Whether beginnings, ends and names of threads are wanted. The kernel reports some of them in any case.
    with_changes: bool,
    /// The beginnings, ends and names of threads that are not written yet, with their times.
    changes: VecDeque<(u64, JournalEntry)>,
    /// The stretch of time in nanoseconds that is kept until the end; `None` keeps everything.
    last: Option<u64>,
    written: Instant,
}

impl<'s> Switches<'s> {
    fn new(shared: &'s Shared, wanted: SchedulingEvents) -> Switches<'s> {
        let last = wanted.last;
        Switches {
            shared,
            waiting: Vec::new(),
            known: 0,
            newest: 0,
            threads: HashMap::new(),
            with_changes: wanted.tasks,
            changes: VecDeque::new(),
            last: last.map(|last| u64::try_from(last.as_nanos()).unwrap_or(u64::MAX)),
            written: Instant::now(),
        }
    }

    /// Hands switches that are not newer than `until` to their threads.
    fn sort(&mut self, until: u64) {
        self.waiting.sort_by_key(|(switch, _)| switch.time);
        let ready = self
            .waiting
            .partition_point(|(switch, _)| switch.time <= until);
        for (switch, thread) in self.waiting.drain(..ready) {
            let switches = self.threads.entry(thread).or_default();
            switches.push(switch);
            if switches.len() >= BLOCK && self.last.is_none() {
                write(self.shared, thread, switches);
            }
        }
    }

    fn write_all(&mut self) {
        for (thread, switches) in &mut self.threads {
            write(self.shared, *thread, switches);
        }
        // Threads come and go, so empty entries are not kept.
        self.threads.clear();
        let mut state = self.shared.state();
        for (_, change) in self.changes.drain(..) {
            if let Err(error) = state.writer.journal(&change) {
                state.failure.get_or_insert(error);
            }
        }
        self.written = Instant::now();
    }

    /// Forgets events that are older than `last` nanoseconds before the newest one.
    fn prune(&mut self, last: u64) {
        let oldest = self.newest.saturating_sub(last);
        self.threads.retain(|_, switches| {
            let old = switches.partition_point(|switch| switch.time < oldest);
            switches.drain(..old);
            !switches.is_empty()
        });
        // Events of several CPUs are not quite in order, so one that is too old may stay.
        let kept = self.changes.iter().position(|(time, _)| *time >= oldest);
        self.changes.drain(..kept.unwrap_or(self.changes.len()));
        self.written = Instant::now();
    }

    fn finish(&mut self) {
        self.sort(u64::MAX);
        if let Some(last) = self.last {
            self.prune(last);
        }
        self.write_all();
    }
}

fn write(shared: &Shared, thread: (u32, u32), switches: &mut Vec<ContextSwitch>) {
    if switches.is_empty() {
        return;
    }
    let mut state = shared.state();
    if let Err(error) = state.writer.switches(thread, switches) {
        state.failure.get_or_insert(error);
    }
    switches.clear();
}

impl Switches<'_> {
    fn change(&mut self, time: u64, pid: u32, tid: u32, change: TaskChange) {
        if !self.with_changes {
            return;
        }
        self.newest = self.newest.max(time);
        let entry = JournalEntry::Task {
            time,
            pid,
            tid,
            change,
        };
        self.changes.push_back((time, entry));
    }
}

impl RecordListener for Switches<'_> {
    fn fork(&mut self, task: &Task, _: &SampleId) {
        self.change(task.time, task.pid, task.tid, TaskChange::New);
    }

    fn exit(&mut self, task: &Task, _: &SampleId) {
        self.change(task.time, task.pid, task.tid, TaskChange::Exit);
    }

    fn comm(&mut self, comm: &Comm<'_>, ids: &SampleId) {
        if let Some(time) = ids.time {
            let name = String::from_utf8_lossy(comm.name).into_owned();
            if comm.exec {
                self.shared.state().execs.seen(comm.pid, time, &name);
            }
            self.change(time, comm.pid, comm.tid, TaskChange::Name(name));
        }
    }

    fn switch(&mut self, switch: &Switch, ids: &SampleId) {
        let (Some(pid), Some(tid), Some(time)) = (ids.pid, ids.tid, ids.time) else {
            return;
        };
        let kind = match (switch.out, switch.preempted) {
            (false, _) => SwitchKind::In,
            (true, false) => SwitchKind::Wait,
            (true, true) => SwitchKind::Preempted,
        };
        let switch = ContextSwitch {
            time,
            cpu: ids.cpu.unwrap_or(0),
            kind,
        };
        self.newest = self.newest.max(time);
        self.waiting.push((switch, (pid, tid)));
    }

    fn round(&mut self) {
        let until = std::mem::replace(&mut self.known, self.newest);
        self.sort(until);
        if self.written.elapsed() >= WRITE_EVERY {
            match self.last {
                Some(last) => self.prune(last),
                None => self.write_all(),
            }
        }
    }
}
