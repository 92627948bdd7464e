//! Windows by `PERF_EVENT_IOC_REFRESH`: groups that are disabled but for short bursts.
//!
//! Refreshing is refused for events that threads inherit, so each thread has groups and a small ring of its own, opened
//! when its fork record is read; or each CPU has. A lane for each CPU arms them.

use super::lane::Lane;
use super::notes::WindowNote;
use super::plan::{groups_of, is_passing, places, plan_of, resolve, ring_pages};
use super::slot::{self, LENGTHS, Slot, SlotOutput};
use super::source::{
    SourceKind, ThreadNews, WindowError, WindowGroup, WindowListener, WindowSource, WindowStats,
    WindowsSpec,
};
use super::trigger::{self, Trigger};
use crate::ByteOrder;
use crate::attach::open_cgroup;
use crate::attach::plan::Plan;
use crate::errors::{AttachError, Refusal};
use crate::event::EventTarget;
use crate::limits;
use crate::record::RawRecord;
use crate::session::AttachedEvent;
use crate::spec::Target;
use crate::sys;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Descriptors that are left to others.
const SPARE_DESCRIPTORS: u64 = 64;

/// The time for which threads keep their events while others wait for some.
const TURN: Duration = Duration::from_secs(1);

/// The share of threads that make room for others at a time: one in so many.
const TURN_SHARE: usize = 4;

/// Threads that wait for events at most; more are not remembered.
const MOST_WAITING: usize = 1 << 16;

/// See the module.
#[derive(Debug)]
pub(super) struct RefreshSource {
    spec: WindowsSpec,
    plan: Plan,
    cgroup: Option<File>,
    pages: usize,
    most_threads: usize,
    lanes: Vec<Lane>,
    /// The lane of each thread that has events.
    lane_of: FxHashMap<u32, usize>,
    /// The threads that have events, the longest attached first.
    order: VecDeque<u32>,
    /// Threads without events, and whether they had some before.
    waiting: VecDeque<(u32, bool)>,
    turned_at: Instant,
    events: Vec<AttachedEvent>,
    groups: Vec<WindowGroup>,
    stats: WindowStats,
    lengths: Vec<(u64, u64)>,
    notes: Vec<WindowNote>,
    running: bool,
    promptness_told: bool,
}

impl RefreshSource {
    pub fn attach(spec: &WindowsSpec) -> Result<RefreshSource, WindowError> {
        let (session, mut plan) = plan_of(spec);
        let cgroup = match &spec.target {
            Target::Cgroup { path, .. } => Some(open_cgroup(path)?),
            _ => None,
        };
        let places = places(&session)?;
        resolve(&mut plan, &places, cgroup.as_ref())?;
        slot::prepare(&mut plan);
        let events = plan.events.iter().map(|planned| AttachedEvent {
            spec: planned.spec,
            name: planned.name.clone(),
            attr: planned.attr.clone(),
            ids: Vec::new(),
        });
        let mut source = RefreshSource {
            pages: ring_pages(&plan, spec.schedule.batch),
            most_threads: spec.most_threads.max(1),
            events: events.collect(),
            groups: groups_of(&plan),
            notes: plan.notes.iter().cloned().map(WindowNote::Attach).collect(),
            spec: spec.clone(),
            plan,
            cgroup,
            lanes: Vec::new(),
            lane_of: FxHashMap::default(),
            order: VecDeque::new(),
            waiting: VecDeque::new(),
            turned_at: Instant::now(),
            stats: WindowStats::default(),
            lengths: Vec::new(),
            running: false,
            promptness_told: false,
        };
        source.budget(places.len());
        let mut refused = None;
        for place in places {
            match source.add(place) {
                Ok(()) => {}
                Err(WindowError::Attach(error)) if is_passing(&error) => {}
                // Others may be ours: that one thread is not says nothing of them.
                Err(error) => refused = Some(error),
            }
        }
        match refused {
            Some(error) if source.stats.watched == 0 => Err(error),
            Some(error) => {
                source.note(WindowNote::ThreadsRefused {
                    because: error.to_string(),
                });
                Ok(source)
            }
            None => Ok(source),
        }
    }

    /// Sees to it that there are descriptors, or that fewer threads are watched.
    fn budget(&mut self, places: usize) {
        let each = self.plan.events.len() + usize::from(trigger::is_for(&self.plan));
        let each = each.max(1) as u64;
        let open = limits::open_descriptors() + SPARE_DESCRIPTORS;
        let wanted = places.max(self.most_threads) as u64;
        let allowed = limits::raise_descriptors(open + wanted * each);
        let room = allowed.saturating_sub(open) / each;
        let room = usize::try_from(room).unwrap_or(usize::MAX).max(1);
        self.most_threads = self.most_threads.min(room);
    }

    /// Opens the events of a place, or remembers a thread for which there is no room.
    fn add(&mut self, place: EventTarget) -> Result<(), WindowError> {
        if let EventTarget::Thread(tid, _) = place {
            if self.lane_of.contains_key(&tid) {
                return Ok(());
            }
            if self.order.len() >= self.most_threads {
                self.wait_for_room(tid, false);
                return Ok(());
            }
        }
        let opened = self.open(place);
        let (slot, ids) = match (opened, place) {
            (Err(error), EventTarget::Thread(tid, _))
                if is_about_room(&error) && !self.order.is_empty() =>
            {
                self.most_threads = self.order.len();
                self.wait_for_room(tid, false);
                self.note(WindowNote::ThreadsTakeTurns {
                    threads: self.most_threads,
                    because: error.to_string(),
                });
                return Ok(());
            }
            (opened, _) => opened?,
        };
        for (event, id) in self.events.iter_mut().zip(ids) {
            event.ids.push(id);
        }
        let cpu = match place {
            EventTarget::Cpu(cpu) | EventTarget::Thread(_, Some(cpu)) => cpu,
            EventTarget::Thread(_, None) => {
                self.watched_cpu(slot.whereabouts().map(|(_, cpu)| cpu))
            }
        };
        let lane = self.lane(cpu)?;
        self.lanes[lane].add(slot);
        if let EventTarget::Thread(tid, _) = place {
            self.lane_of.insert(tid, lane);
            self.order.push_back(tid);
        }
        self.stats.watched += 1;
        Ok(())
    }

    /// Opens the events of a place, with the clock that tells when to arm them where they need one.
    fn open(&mut self, place: EventTarget) -> Result<(Slot, Vec<u64>), AttachError> {
        let cgroup = self.cgroup.as_ref().map(AsFd::as_fd);
        let batch = self.spec.schedule.batch;
        let (mut slot, ids) = Slot::open(&self.plan, place, cgroup, self.pages, batch)?;
        if trigger::is_for(&self.plan) {
            match Trigger::open(place, cgroup) {
                Ok(trigger) => slot.trigger = Some(trigger),
                // Others have their room: it waits for its turn.
                Err(error) if is_about_room(&error) && !self.order.is_empty() => return Err(error),
                Err(error) => self.note_no_trigger(&error),
            }
        }
        Ok((slot, ids))
    }

    /// Notes once that a thread or a CPU has no trigger.
    fn note_no_trigger(&mut self, error: &AttachError) {
        let is_it = |note: &WindowNote| matches!(note, WindowNote::NoTrigger { .. });
        if !self.notes.iter().any(is_it) {
            self.note(WindowNote::NoTrigger {
                because: error.to_string(),
            });
        }
    }

    fn wait_for_room(&mut self, tid: u32, had: bool) {
        if self.waiting.len() < MOST_WAITING {
            self.waiting.push_back((tid, had));
        } else if !had {
            self.stats.unwatched += 1;
        }
    }

    /// The CPU whose lane arms a thread's events that is on `found`. Only lanes of CPUs that are watched arm any, and none
    /// arms those of threads that run elsewhere: so bursts begin on these CPUs only.
    fn watched_cpu(&self, found: Option<u32>) -> u32 {
        match (&self.spec.cpus, found) {
            (None, found) => found.unwrap_or(0),
            (Some(cpus), Some(found)) if cpus.contains(found) => found,
            (Some(cpus), _) => cpus.iter().next().unwrap_or(0),
        }
    }

    /// The lane of a CPU, started when there is none yet.
    fn lane(&mut self, cpu: u32) -> Result<usize, WindowError> {
        if let Some(index) = self.lanes.iter().position(|lane| lane.cpu == cpu) {
            return Ok(index);
        }
        let lane = Lane::start(cpu, self.spec.schedule).map_err(WindowError::Thread)?;
        lane.set_running(self.running);
        self.lanes.push(lane);
        Ok(self.lanes.len() - 1)
    }

    fn note(&mut self, note: WindowNote) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Closes the events of threads that have ended.
    fn forget_ended(&mut self, listener: &mut dyn WindowListener) {
        for index in 0..self.lanes.len() {
            let mut made = SlotOutput::default();
            let mut ended = Vec::new();
            {
                let mut shared = self.lanes[index].lock();
                let poll = |slot: &Slot| libc::pollfd {
                    fd: slot.fd(),
                    events: 0,
                    revents: 0,
                };
                let mut fds: Vec<libc::pollfd> = shared.slots.iter().map(poll).collect();
                if sys::poll(&mut fds, Duration::ZERO).is_err() {
                    continue;
                }
                for fd in fds.iter().filter(|fd| fd.revents & libc::POLLHUP != 0) {
                    if let Some(mut slot) = shared.remove(|slot| slot.fd() == fd.fd) {
                        slot.drain(&mut made);
                        slot.cut(&mut made);
                        ended.push(slot);
                    }
                }
            }
            for slot in ended {
                if let EventTarget::Thread(tid, _) = slot.place {
                    self.lane_of.remove(&tid);
                    self.order.retain(|other| *other != tid);
                }
            }
            self.take_in(made, listener);
        }
    }

    /// Lets threads that wait have their turn.
    fn take_turns(&mut self, listener: &mut dyn WindowListener) {
        if !self.waiting.is_empty()
            && self.order.len() >= self.most_threads
            && self.turned_at.elapsed() >= TURN
        {
            self.turned_at = Instant::now();
            let share = self
                .most_threads
                .div_ceil(TURN_SHARE)
                .min(self.waiting.len());
            for _ in 0..share {
                let Some(tid) = self.order.pop_front() else {
                    break;
                };
                if let Some(lane) = self.lane_of.remove(&tid) {
                    let of_thread = |slot: &Slot| slot.place == EventTarget::Thread(tid, None);
                    let slot = self.lanes[lane].lock().remove(of_thread);
                    let mut made = SlotOutput::default();
                    if let Some(mut slot) = slot {
                        slot.drain(&mut made);
                        slot.cut(&mut made);
                    }
                    self.take_in(made, listener);
                }
                self.wait_for_room(tid, true);
            }
        }
        while self.order.len() < self.most_threads {
            let Some((tid, had)) = self.waiting.pop_front() else {
                break;
            };
            let watched = self.stats.watched;
            match self.add(EventTarget::Thread(tid, None)) {
                // Counted once, however often it has its turn.
                Ok(()) if had => self.stats.watched = watched,
                Ok(()) => {}
                Err(_) if had => {}
                Err(_) => self.stats.unwatched += 1,
            }
        }
    }

    /// Hands on what slots made.
    fn take_in(&mut self, mut made: SlotOutput, listener: &mut dyn WindowListener) {
        let mut rest = made.bytes.as_slice();
        while let Ok((record, after)) = RawRecord::split(rest, ByteOrder::NATIVE) {
            listener.record(&rest[..rest.len() - after.len()], &record);
            rest = after;
        }
        for burst in &made.bursts {
            listener.burst(burst);
        }
        self.stats.add(&made.stats);
        if self.lengths.len() < LENGTHS {
            self.lengths.append(&mut made.lengths);
        }
    }
}

impl WindowSource for RefreshSource {
    fn kind(&self) -> SourceKind {
        SourceKind::Refresh
    }

    fn events(&self) -> &[AttachedEvent] {
        &self.events
    }

    fn groups(&self) -> &[WindowGroup] {
        &self.groups
    }

    fn start(&mut self) -> Result<(), WindowError> {
        self.running = true;
        self.lanes.iter().for_each(|lane| lane.set_running(true));
        Ok(())
    }

    fn stop(&mut self) -> Result<(), WindowError> {
        self.running = false;
        self.lanes.iter().for_each(|lane| lane.set_running(false));
        for lane in &self.lanes {
            let mut shared = lane.lock();
            let shared = &mut *shared;
            for slot in &mut shared.slots {
                slot.drain(&mut shared.made);
                slot.cut(&mut shared.made);
            }
        }
        let never = self.waiting.iter().filter(|(_, had)| !had).count();
        self.stats.unwatched += never as u64;
        self.waiting.clear();
        Ok(())
    }

    fn see(&mut self, seen: ThreadNews) {
        match seen {
            ThreadNews::Created { tid } if self.spec.inherit && !self.spec.target.is_cpu_wide() => {
                // The thread may have ended already, as many have.
                if self.add(EventTarget::Thread(tid, None)).is_err() {
                    self.stats.unwatched += 1;
                }
            }
            ThreadNews::Created { .. } => {}
            ThreadNews::Ran { tid, cpu } => {
                let Some(&at) = self.lane_of.get(&tid) else {
                    return;
                };
                let watched = self.spec.cpus.as_ref();
                if self.lanes[at].cpu == cpu || watched.is_some_and(|cpus| !cpus.contains(cpu)) {
                    return;
                }
                let Ok(to) = self.lane(cpu) else { return };
                let of_thread = |slot: &Slot| slot.place == EventTarget::Thread(tid, None);
                let slot = self.lanes[at].lock().remove(of_thread);
                if let Some(slot) = slot {
                    self.lanes[to].add(slot);
                    self.lane_of.insert(tid, to);
                }
            }
        }
    }

    fn round(&mut self, listener: &mut dyn WindowListener) -> Result<(), WindowError> {
        for index in 0..self.lanes.len() {
            let (made, elsewhere, prompt) = {
                let mut shared = self.lanes[index].lock();
                shared.drain();
                let elsewhere = std::mem::take(&mut shared.elsewhere);
                (std::mem::take(&mut shared.made), elsewhere, shared.prompt)
            };
            for (tid, cpu) in elsewhere {
                self.see(ThreadNews::Ran { tid, cpu });
            }
            if prompt == Some(false) && !self.promptness_told {
                self.promptness_told = true;
                self.note(WindowNote::NoRealTimePriority);
            }
            self.take_in(made, listener);
        }
        if self.running {
            self.forget_ended(listener);
            self.take_turns(listener);
        }
        Ok(())
    }

    fn stats(&self) -> WindowStats {
        let mut stats = self.stats.clone();
        stats.set_medians(&self.lengths);
        stats
    }

    fn notes(&self) -> &[WindowNote] {
        &self.notes
    }
}

/// Whether descriptors or locked memory ran out.
fn is_about_room(error: &AttachError) -> bool {
    match error {
        AttachError::Ring { .. } => true,
        AttachError::Open(error) => matches!(
            error.refusal,
            Refusal::ProcessDescriptors { .. } | Refusal::SystemDescriptors | Refusal::Memory
        ),
        _ => false,
    }
}

impl WindowStats {
    /// Adds what slots counted.
    fn add(&mut self, more: &WindowStats) {
        self.armed += more.armed;
        self.complete += more.complete;
        self.late += more.late;
        self.cut += more.cut;
        self.throttled += more.throttled;
        self.windows += more.windows;
        self.busy += more.busy;
        self.held_back += more.held_back;
        self.refused += more.refused;
        self.lost += more.lost;
        self.samples += more.samples;
    }

    /// Sets the medians of the leader's counts and of nanoseconds.
    pub(super) fn set_medians(&mut self, lengths: &[(u64, u64)]) {
        let median = |pick: fn(&(u64, u64)) -> u64| {
            let mut values: Vec<u64> = lengths.iter().map(pick).collect();
            let middle = values.len() / 2;
            (!values.is_empty()).then(|| *values.select_nth_unstable(middle).1)
        };
        self.median_count = median(|length| length.0);
        self.median_time = median(|length| length.1);
    }
}
