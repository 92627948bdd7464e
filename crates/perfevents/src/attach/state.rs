//! What is open: rings, events, and which record ids they write.

use super::plan::{Plan, Planned, Shape};
use crate::errors::{AttachError, EventError, OpenError, Refusal};
use crate::event::{Count, Event, OpenRequest, Place};
use crate::limits;
use crate::record::{RawRecord, Record, RecordLayout, RecordType, Task};
use crate::ring::Ring;
use crate::signals::SignalSource;
use crate::spec::{Fallbacks, SessionSpec};
use crate::sys;
use rustc_hash::{FxHashMap, FxHashSet};
use std::os::fd::{AsFd, OwnedFd};

/// A CPU's ring and the dummy event that owns it.
#[derive(Debug)]
pub(crate) struct CpuRing {
    pub(crate) cpu: u32,
    pub(crate) owner: Event,
    pub(crate) ring: Ring,
    /// Records read while attaching, for the first round.
    pub(crate) spill: Vec<u8>,
    /// The owner's thread ended: nothing more to poll.
    pub(crate) hung_up: bool,
    /// The thread that it belongs to, where rings are per thread.
    pub(crate) thread: Option<u32>,
}

/// The events of one thread, or of one CPU, in the plan's order for each CPU.
#[derive(Debug, Default)]
pub(crate) struct Placed {
    /// Index in the plan, and the open event.
    pub(crate) events: Vec<(usize, Event)>,
}

/// A thread that could not be attached to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailedThread {
    /// Its tid.
    pub tid: u32,
    /// Why.
    pub reason: String,
}

/// What attaching did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AttachSummary {
    /// The strategy's name.
    pub strategy: &'static str,
    /// Threads whose events were opened.
    pub threads: usize,
    /// Threads found to have inherited them.
    pub inherited: usize,
    /// Threads that were refused.
    pub failed: Vec<FailedThread>,
    /// CPUs with a ring.
    pub cpus: Vec<u32>,
    /// Data pages of the smallest ring.
    pub ring_pages: usize,
    /// Open events, ring owners included.
    pub descriptors: usize,
    /// How often the list of threads was read.
    pub iterations: u32,
    /// Fallbacks taken and options left out, a sentence each.
    pub notes: Vec<String>,
}

/// Everything a session has open. Dropping it closes all.
#[derive(Debug)]
pub struct Attachment {
    pub(crate) plan: Plan,
    pub(crate) layout: RecordLayout,
    pub(crate) rings: Vec<CpuRing>,
    pub(crate) threads: FxHashMap<u32, Placed>,
    pub(crate) cpus: FxHashMap<u32, Placed>,
    pub(crate) cgroup: Option<OwnedFd>,
    /// Event index of each record id.
    pub(crate) ids: FxHashMap<u64, usize>,
    /// Every id in the order of opening, with its event.
    pub(crate) id_log: Vec<(usize, u64)>,
    /// The thread for which each id of `id_log` was opened; 0 for a CPU.
    pub(crate) id_owners: Vec<u32>,
    /// Where records come from that no ring holds.
    pub(crate) signals: Option<SignalSource>,
    pub(crate) shape: Shape,
    /// Ids of closed duplicates: their records are doubles.
    pub(crate) duplicate_ids: FxHashSet<u64>,
    /// Samples lost and events counted by what is closed already, for each event.
    pub(crate) closed: Vec<Count>,
    pub(crate) summary: AttachSummary,
    /// The thread that attaches and reads.
    pub(crate) reader: u32,
    pub(crate) ring_pages: usize,
    budget: Budget,
}

/// How many descriptors may be used.
#[derive(Clone, Copy, Debug)]
struct Budget {
    ratio: f64,
    may_raise: bool,
    raised: bool,
}

/// Largest ring that is tried, in pages: far beyond use, and no overflow.
const MOST_PAGES: usize = 1 << 20;

impl Attachment {
    pub(crate) fn new(
        spec: &SessionSpec,
        plan: Plan,
        layout: RecordLayout,
        shape: Shape,
    ) -> Attachment {
        let unit = sys::page_size();
        // An unprivileged user's allowance is 516 KiB a CPU by default, for all sessions together.
        let default = if limits::may_lock_freely() {
            (2 << 20) / unit
        } else {
            (512 << 10) / unit
        };
        let pages = spec.ring_pages.unwrap_or(default).clamp(1, MOST_PAGES);
        let count = plan.events.len();
        Attachment {
            summary: AttachSummary {
                notes: plan.notes.clone(),
                ..AttachSummary::default()
            },
            plan,
            layout,
            rings: Vec::new(),
            threads: FxHashMap::default(),
            cpus: FxHashMap::default(),
            cgroup: None,
            ids: FxHashMap::default(),
            id_log: Vec::new(),
            id_owners: Vec::new(),
            signals: None,
            shape,
            duplicate_ids: FxHashSet::default(),
            closed: vec![Count::default(); count],
            reader: sys::thread_id(),
            ring_pages: pages.next_power_of_two(),
            budget: Budget {
                ratio: spec.fd_ratio.clamp(1e-6, 1.0),
                may_raise: spec.fallbacks.contains(Fallbacks::RAISE_DESCRIPTORS),
                raised: false,
            },
        }
    }

    /// Adds a sentence to the summary's notes, once.
    pub(crate) fn note(&mut self, note: String) {
        if !self.summary.notes.contains(&note) {
            self.summary.notes.push(note);
        }
    }

    /// Makes a CPU's ring. An owner of CPU-wide sessions carries the side band and is one of its events.
    pub(crate) fn add_ring(&mut self, cpu: u32, spec: &SessionSpec) -> Result<(), AttachError> {
        let place = match self.shape {
            Shape::PerCpu => Place::Cpu(cpu),
            _ => Place::Thread(0, Some(cpu)),
        };
        self.add_ring_at(place, cpu, None, spec)?;
        self.summary.cpus.push(cpu);
        Ok(())
    }

    /// Makes a ring owned by an event at `place`.
    fn add_ring_at(
        &mut self,
        place: Place,
        cpu: u32,
        thread: Option<u32>,
        spec: &SessionSpec,
    ) -> Result<(), AttachError> {
        // Where even the owner is refused, the user's own event is what to speak of.
        let first = self.plan.events.iter().find(|event| event.spec.is_some());
        let name = first
            .map_or("dummy", |event| event.name.as_str())
            .to_owned();
        let mut pages = self.ring_pages;
        let (owner, ring) = loop {
            let mut attr = self.plan.owner.clone();
            let bytes = u32::try_from(pages * sys::page_size()).unwrap_or(u32::MAX);
            attr.wakeup = spec.watermark.unwrap_or(bytes / 4).clamp(1, bytes / 2);
            let owner = self.open_with_retry(&OpenRequest {
                name: &name,
                attr: &attr,
                place,
                group: None,
                cgroup: None,
            })?;
            let error = match Ring::new(owner.as_fd(), pages) {
                Ok(ring) => break (owner, ring),
                Err(error) => error,
            };
            let too_large = matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOMEM));
            if !too_large || !spec.fallbacks.contains(Fallbacks::SMALLER_RINGS) || pages == 1 {
                return Err(AttachError::Ring {
                    cpu,
                    pages,
                    mlock_kb: limits::mlock_kb().unwrap_or(0),
                    source: error,
                });
            }
            pages /= 2;
        };
        if let Some(index) = self.plan.owner_event {
            self.learn_id(index, owner.id()?, thread.unwrap_or(0));
        }
        self.rings.push(CpuRing {
            cpu,
            owner,
            ring,
            spill: Vec::new(),
            hung_up: false,
            thread,
        });
        if pages < self.ring_pages {
            self.note(format!(
                "no more memory may be locked (kernel.perf_event_mlock_kb, `ulimit -l`): ring buffers of {pages} pages"
            ));
            self.ring_pages = pages;
        }
        self.summary.ring_pages = pages;
        Ok(())
    }

    /// Makes a ring for thread `tid` and opens every event for it, on whichever CPU it runs.
    ///
    /// # Errors
    /// As [`Attachment::add_thread`].
    pub(crate) fn add_thread_with_ring(
        &mut self,
        tid: u32,
        listed: bool,
        spec: &SessionSpec,
    ) -> Result<(), AttachError> {
        let place = Place::Thread(tid, None);
        self.add_ring_at(place, u32::MAX, Some(tid), spec)?;
        let slot = self.rings.len() - 1;
        let mut placed = Placed::default();
        let mut ids = Vec::new();
        let wanted = |planned: &Planned| planned.is_for(tid, listed);
        if let Err(error) = self.open_all(Some(slot), place, wanted, &mut placed, &mut ids) {
            self.rings.truncate(slot);
            return Err(error);
        }
        self.take_in(tid, placed, ids);
        Ok(())
    }

    /// Opens every event that is for thread `tid` without a ring.
    ///
    /// # Errors
    /// As [`Attachment::add_thread`].
    pub(crate) fn add_thread_without_ring(
        &mut self,
        tid: u32,
        listed: bool,
    ) -> Result<(), AttachError> {
        let mut placed = Placed::default();
        let mut ids = Vec::new();
        for index in 0..self.plan.events.len() {
            // The signal tells which event it is from, and for which thread that was opened.
            self.plan.events[index].attr.sig_data = crate::signals::word(tid, index);
        }
        let wanted = |planned: &Planned| planned.is_for(tid, listed) && planned.attr.samples();
        self.open_all(
            None,
            Place::Thread(tid, None),
            wanted,
            &mut placed,
            &mut ids,
        )?;
        self.take_in(tid, placed, ids);
        Ok(())
    }

    /// Makes the event at `index` the timer's.
    pub(crate) fn take_timer_id(&mut self, index: usize) {
        self.learn_id(index, crate::signals::id_of(index), 0);
    }

    fn take_in(&mut self, tid: u32, placed: Placed, ids: Vec<(usize, u64)>) {
        for (index, id) in ids {
            // Samples by signals carry an id of ours, the same for all threads.
            let signalled = crate::signals::id_of(index);
            let id = if self.shape == Shape::Signals {
                signalled
            } else {
                id
            };
            if !(self.shape == Shape::Signals && self.ids.contains_key(&id)) {
                self.learn_id(index, id, tid);
            }
        }
        self.threads.insert(tid, placed);
    }

    /// Opens every event that is for thread `tid` on every CPU that has a ring. Nothing stays open on an error.
    ///
    /// # Errors
    /// [`OpenError::is_gone`] where the thread has ended, other refusals, and failures to redirect.
    pub(crate) fn add_thread(&mut self, tid: u32, listed: bool) -> Result<(), AttachError> {
        let mut placed = Placed::default();
        let mut ids = Vec::new();
        for slot in 0..self.rings.len() {
            let place = Place::Thread(tid, Some(self.rings[slot].cpu));
            let wanted = |planned: &Planned| planned.is_for(tid, listed);
            self.open_all(Some(slot), place, wanted, &mut placed, &mut ids)?;
        }
        self.take_in(tid, placed, ids);
        Ok(())
    }

    /// Opens every event for all threads of the CPU of ring `slot`.
    ///
    /// # Errors
    /// Refusals, and failures to redirect.
    pub(crate) fn add_cpu(&mut self, slot: usize) -> Result<(), AttachError> {
        let mut placed = Placed::default();
        let mut ids = Vec::new();
        let cpu = self.rings[slot].cpu;
        let place = Place::Cpu(cpu);
        self.open_all(Some(slot), place, |_| true, &mut placed, &mut ids)?;
        for (index, id) in ids {
            self.learn_id(index, id, 0);
        }
        self.cpus.insert(cpu, placed);
        Ok(())
    }

    fn open_all(
        &mut self,
        slot: Option<usize>,
        place: Place,
        wanted: impl Fn(&Planned) -> bool,
        placed: &mut Placed,
        ids: &mut Vec<(usize, u64)>,
    ) -> Result<(), AttachError> {
        let mut leader = placed.events.len();
        for index in 0..self.plan.events.len() {
            if Some(index) == self.plan.owner_event || !wanted(&self.plan.events[index]) {
                continue;
            }
            if self.plan.events[index].leads.is_some() {
                leader = placed.events.len();
            }
            let event = self.open_planned(
                index,
                place,
                placed.events.get(leader).map(|(_, event)| event),
            )?;
            if let Some(slot) = slot {
                event.set_output(Some(&self.rings[slot].owner))?;
            }
            if let Some(filter) = &self.plan.events[index].filter {
                event.filter(filter)?;
            }
            ids.push((index, event.id()?));
            placed.events.push((index, event));
        }
        Ok(())
    }

    fn open_planned(
        &mut self,
        index: usize,
        place: Place,
        group: Option<&Event>,
    ) -> Result<Event, OpenError> {
        let planned = &self.plan.events[index];
        let (name, attr) = (planned.name.clone(), planned.attr.clone());
        let cgroup = self.cgroup.take();
        let result = self.open_with_retry(&OpenRequest {
            name: &name,
            attr: &attr,
            place,
            group: group.map(AsFd::as_fd),
            cgroup: cgroup.as_ref().map(AsFd::as_fd),
        });
        self.cgroup = cgroup;
        result
    }

    /// Opens an event and, where descriptors run out, raises their limit once and tries again.
    fn open_with_retry(&mut self, request: &OpenRequest<'_>) -> Result<Event, OpenError> {
        match Event::request(*request) {
            Err(OpenError {
                refusal: Refusal::ProcessDescriptors { limit },
                ..
            }) if self.budget.may_raise && !self.budget.raised => {
                self.budget.raised = true;
                let now = limits::raise_descriptors(limit.saturating_mul(16));
                if now > limit {
                    self.note(format!(
                        "the limit of open descriptors was raised from {limit} to {now}"
                    ));
                }
                Event::request(*request)
            }
            result => result,
        }
    }

    /// Makes sure that `more` events may be opened, raising the limit where that is allowed.
    ///
    /// # Errors
    /// [`AttachError::Descriptors`].
    pub(crate) fn reserve(&mut self, more: u64, threads: usize) -> Result<(), AttachError> {
        let open = limits::open_descriptors();
        let needed = open + more;
        let Some((limit, _)) = limits::descriptors() else {
            return Ok(());
        };
        let ratio = self.budget.ratio;
        let share = |limit: u64| (limit as f64 * ratio) as u64;
        if needed <= share(limit) {
            return Ok(());
        }
        let mut now = limit;
        if self.budget.may_raise {
            let wanted = (needed as f64 / ratio).ceil() as u64 + 64;
            now = limits::raise_descriptors(wanted);
            if now > limit {
                self.note(format!(
                    "the limit of open descriptors was raised from {limit} to {now}"
                ));
            }
        }
        if needed <= share(now) {
            return Ok(());
        }
        Err(AttachError::Descriptors {
            needed,
            allowed: share(now),
            limit: now,
            threads,
            cpus: self.rings.len(),
        })
    }

    fn learn_id(&mut self, index: usize, id: u64, owner: u32) {
        self.ids.insert(id, index);
        self.id_log.push((index, id));
        self.id_owners.push(owner);
    }

    /// Closes a thread's events, keeping what they counted. Their ids stay known: records may still be waiting.
    pub(crate) fn close_thread(&mut self, tid: u32) {
        if let Some(placed) = self.threads.remove(&tid) {
            self.settle(placed);
        }
        if let Some(slot) = self.rings.iter().position(|ring| ring.thread == Some(tid)) {
            let ring = self.rings.remove(slot);
            if let Some(index) = self.plan.owner_event {
                add_count(&mut self.closed[index], &ring.owner);
            }
        }
    }

    /// Closes the events of a thread that turned out to be covered already; their records are doubles.
    pub(crate) fn close_duplicate(&mut self, tid: u32) {
        if let Some(placed) = self.threads.remove(&tid) {
            for (_, event) in &placed.events {
                if let Ok(id) = event.id() {
                    self.duplicate_ids.insert(id);
                }
            }
        }
    }

    /// Adds what events counted to the totals of closed ones, and closes them.
    pub(crate) fn settle(&mut self, placed: Placed) {
        for (index, event) in &placed.events {
            add_count(&mut self.closed[*index], event);
        }
    }

    /// Reads every ring into its spill, so that none overflows before the session runs. The fork records found.
    pub(crate) fn drain_into_spill(&mut self) -> Vec<Task> {
        let mut forks = Vec::new();
        let layout = &self.layout;
        for ring in &mut self.rings {
            let spill = &mut ring.spill;
            ring.ring.drain(|bytes, record| {
                spill.extend_from_slice(bytes);
                if let Some(task) = fork_of(layout, record) {
                    forks.push(task);
                }
            });
        }
        forks
    }

    /// Calls `each` with every leader, which stands for its group.
    pub(crate) fn leaders(
        &self,
        mut each: impl FnMut(&Planned, &Event) -> Result<(), EventError>,
    ) -> Result<(), EventError> {
        for placed in self.threads.values().chain(self.cpus.values()) {
            for (index, event) in &placed.events {
                let planned = &self.plan.events[*index];
                if planned.leads.is_some() {
                    each(planned, event)?;
                }
            }
        }
        Ok(())
    }

    /// Enables the leaders that wait for it.
    pub(crate) fn enable_late(&self) -> Result<(), EventError> {
        self.leaders(|planned, event| {
            if planned.starts_late() {
                event.enable()
            } else {
                Ok(())
            }
        })
    }

    /// Fills the counts of the summary.
    pub(crate) fn sum_up(&mut self) {
        let events = |placed: &Placed| placed.events.len();
        let open: usize = self
            .threads
            .values()
            .chain(self.cpus.values())
            .map(events)
            .sum();
        self.summary.descriptors = open + self.rings.len();
        self.summary.threads = self.threads.len();
    }
}

/// The thread that a record says was created.
fn fork_of(layout: &RecordLayout, record: &RawRecord<'_>) -> Option<Task> {
    if record.kind != RecordType::FORK {
        return None;
    }
    match layout.parse(record) {
        Ok(Record::Fork(task, _)) => Some(task),
        _ => None,
    }
}

/// Adds an event's count and losses to `total`. An event that can't be read any more adds nothing.
pub(crate) fn add_count(total: &mut Count, event: &Event) {
    // A member's count is in its own read as well; a leader's group read starts with the leader.
    if let Ok(count) = event.read() {
        let sum = |total: Option<u64>, more: Option<u64>| match (total, more) {
            (None, None) => None,
            (total, more) => Some(total.unwrap_or(0) + more.unwrap_or(0)),
        };
        total.value += count.value;
        total.time_enabled = sum(total.time_enabled, count.time_enabled);
        total.time_running = sum(total.time_running, count.time_running);
        total.lost = sum(total.lost, count.lost);
    }
}
