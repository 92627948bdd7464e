//! The open things of a session: rings, events, and the record ids that the events write.

use super::plan::{Arrangement, Plan, Planned};
use crate::errors::EventError;
use crate::event::{Count, Event};
use crate::limits;
use crate::notes::AttachNote;
use crate::record::{RawRecord, Record, RecordLayout, RecordType, Task};
use crate::ring::Ring;
use crate::signals::SignalSource;
use crate::spec::{Fallbacks, SessionSpec, Start};
use crate::sys;
use rustc_hash::{FxHashMap, FxHashSet};
use std::os::fd::OwnedFd;
use std::time::Instant;

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
    /// The thread's tid.
    pub tid: u32,
    /// The refusal, in words.
    pub reason: String,
}

/// The report of attaching a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AttachSummary {
    /// The strategy's name.
    pub strategy: &'static str,
    /// The number of threads whose events were opened.
    pub threads: usize,
    /// The number of threads that inherited their events.
    pub inherited: usize,
    /// Threads that were refused.
    pub failed: Vec<FailedThread>,
    /// CPUs with a ring.
    pub cpus: Vec<u32>,
    /// Data pages of the smallest ring.
    pub ring_pages: usize,
    /// The number of open events, ring owners included.
    pub descriptors: usize,
    /// The number of times that the list of threads was read.
    pub iterations: u32,
    /// Fallbacks that were taken and options that were left out.
    pub notes: Vec<AttachNote>,
}

/// Everything that a session has open. Dropping it closes all.
#[derive(Debug)]
pub struct Attachment {
    pub(crate) plan: Plan,
    pub(crate) layout: RecordLayout,
    pub(crate) rings: Vec<CpuRing>,
    /// Grows whenever a ring comes, goes or hangs up.
    pub(crate) rings_generation: u64,
    pub(crate) threads: FxHashMap<u32, Placed>,
    pub(crate) cpus: FxHashMap<u32, Placed>,
    pub(crate) cgroup: Option<OwnedFd>,
    /// Event index of each record id.
    pub(crate) ids: FxHashMap<u64, usize>,
    /// Every id in the order of opening, with its event.
    pub(crate) id_log: Vec<(usize, u64)>,
    /// The thread for which each id of `id_log` was opened; 0 for a CPU.
    pub(crate) id_owners: Vec<u32>,
    /// The source of records that no ring holds.
    pub(crate) signals: Option<SignalSource>,
    pub(crate) shape: Arrangement,
    /// Ids of closed duplicates: their records are doubles.
    pub(crate) duplicate_ids: FxHashSet<u64>,
    /// Samples lost and events counted by what is closed already, for each event.
    pub(crate) closed: Vec<Count>,
    pub(crate) summary: AttachSummary,
    /// Whether events that are opened now have to be enabled.
    pub(crate) running: bool,
    /// The time at which the events were last disabled.
    pub(crate) disabled_at: Option<Instant>,
    /// The thread that attaches and reads.
    pub(crate) reader: u32,
    pub(crate) ring_pages: usize,
    pub(super) budget: Budget,
}

/// The rules for the number of open descriptors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    pub(super) ratio: f64,
    pub(super) may_raise: bool,
    pub(super) raised: bool,
}

/// Largest ring that is tried, in pages: far beyond use, and no overflow.
const MOST_PAGES: usize = 1 << 20;

impl Attachment {
    pub(crate) fn new(
        spec: &SessionSpec,
        plan: Plan,
        layout: RecordLayout,
        shape: Arrangement,
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
            rings_generation: 0,
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
            running: spec.start != Start::Manual,
            disabled_at: None,
            reader: sys::thread_id(),
            ring_pages: pages.next_power_of_two(),
            budget: Budget {
                ratio: spec.fd_ratio.clamp(1e-6, 1.0),
                may_raise: spec.fallbacks.contains(Fallbacks::RAISE_DESCRIPTORS),
                raised: false,
            },
        }
    }

    /// Adds a note to the summary, once.
    pub(crate) fn note(&mut self, note: AttachNote) {
        if !self.summary.notes.contains(&note) {
            self.summary.notes.push(note);
        }
    }

    pub(super) fn learn_id(&mut self, index: usize, id: u64, owner: u32) {
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
            self.rings_generation += 1;
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

    /// Disables all events but the carriers, those in threads that inherited them included.
    pub(crate) fn disable(&mut self) -> Result<(), EventError> {
        self.running = false;
        let result = self.leaders(|planned, event| {
            if planned.spec.is_some() {
                event.disable()
            } else {
                Ok(())
            }
        });
        self.disabled_at.get_or_insert_with(Instant::now);
        result
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

/// Returns the thread that a fork record reports.
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
