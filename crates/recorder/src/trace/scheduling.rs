//! Context switches of the traced threads, as the kernel tells them.

use super::shared::Shared;
use dioptra_perfevents::names::software;
use dioptra_perfevents::record::{SampleId, Switch};
use dioptra_perfevents::{
    AttachError, EventSpec, Inherit, RecordListener, Session, SessionSpec, SideBand, StopHandle,
    Target,
};
use dioptra_tracelayout::{ContextSwitch, SwitchKind};
use std::collections::HashMap;
use std::sync::mpsc;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// So many switches of a thread are written at once.
const BLOCK: usize = 256;
/// How often all are written, so that a recorder that is killed has lost little.
const WRITE_EVERY: Duration = Duration::from_secs(1);

/// Pages of each CPU's ring. The kernel zeroes them at the start; a switch takes 48 bytes.
const RING_PAGES: usize = 128;

/// A thread that records context switches.
pub struct Recording<'scope> {
    stop: Option<StopHandle>,
    thread: ScopedJoinHandle<'scope, Result<u64, String>>,
}

/// Begins to record the switches of a command that is held before its exec, and of what it starts. Returns when that
/// works, or is known not to: what is refused is noted in the trace, which goes on without.
///
/// `last` is the stretch of time before the end of which switches are kept; all if there is none.
pub fn start<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    shared: &'env Shared,
    pid: u32,
    last: Option<Duration>,
) -> Recording<'scope> {
    let (attached, is_attached) = mpsc::channel();
    let thread = scope.spawn(move || {
        let mut session = attach(pid).map_err(|error| error.to_string())?;
        // Nobody waits any more: then nobody stops it either.
        attached
            .send(session.stop_handle())
            .map_err(|error| error.to_string())?;
        let mut switches = Switches::new(shared, last);
        let result = session.run(&mut switches);
        switches.finish();
        result.map_err(|error| error.to_string())?;
        Ok(session.summary().lost)
    });
    Recording {
        // An error comes with the thread's end.
        stop: is_attached.recv().ok(),
        thread,
    }
}

impl Recording<'_> {
    /// Ends it; how many switches were lost.
    pub fn end(self, shared: &Shared) -> u64 {
        if let Some(stop) = &self.stop {
            stop.stop();
        }
        let error = match self.thread.join() {
            Ok(Ok(lost)) => return lost,
            Ok(Err(error)) => error,
            Err(_) => "the thread that records them broke off".to_owned(),
        };
        shared.state().note(format!(
            "when threads had no CPU is not recorded (--no-sched does without): {error}"
        ));
        0
    }
}

fn attach(pid: u32) -> Result<Session, AttachError> {
    let mut side_band = SideBand::NONE;
    side_band.switch = true;
    // It counts nothing, and only carries the records.
    let dummy = EventSpec::software(software::DUMMY).user_only();
    let spec = SessionSpec::new()
        .event(dummy)
        .target(Target::Command(pid))
        .inherit(Inherit::ThreadsAndChildren)
        // The trace itself needs some.
        .fd_ratio(0.5)
        .ring_pages(Some(RING_PAGES))
        .side_band(side_band);
    let mut session = Session::new(spec)?;
    session.attach()?;
    Ok(session)
}

/// A switch and its thread.
type Told = (ContextSwitch, (u32, u32));

/// Puts the switches of all CPUs in order, and writes them thread by thread.
struct Switches<'s> {
    shared: &'s Shared,
    /// What may still be followed by older ones.
    waiting: Vec<Told>,
    /// The time of the newest one of the rounds before, and of this one: the kernel wrote all older ones before this
    /// round began.
    known: u64,
    newest: u64,
    threads: HashMap<(u32, u32), Vec<ContextSwitch>>,
    /// Keep only what is not older than this, until the end.
    last: Option<u64>,
    written: Instant,
}

impl<'s> Switches<'s> {
    fn new(shared: &'s Shared, last: Option<Duration>) -> Switches<'s> {
        Switches {
            shared,
            waiting: Vec::new(),
            known: 0,
            newest: 0,
            threads: HashMap::new(),
            last: last.map(|last| u64::try_from(last.as_nanos()).unwrap_or(u64::MAX)),
            written: Instant::now(),
        }
    }

    /// Hands those that are not newer than `until` to their threads.
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
        // Threads come and go.
        self.threads.clear();
        self.written = Instant::now();
    }

    /// Forgets what is too old.
    fn prune(&mut self, last: u64) {
        let oldest = self.newest.saturating_sub(last);
        self.threads.retain(|_, switches| {
            let old = switches.partition_point(|switch| switch.time < oldest);
            switches.drain(..old);
            !switches.is_empty()
        });
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

impl RecordListener for Switches<'_> {
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
