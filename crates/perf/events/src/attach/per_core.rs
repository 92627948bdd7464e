//! The usual strategy: each event on each thread and each core, one ring per core.

use super::coverage::{Coverage, Verdict};
use super::state::{Attachment, FailedThread};
use super::{Arrangement, Attach, AttachmentStrategy};
use crate::cpus::CpuSet;
use crate::errors::{AttachError, OpenError, Refusal};
use crate::event::EventTarget;
use crate::notes::{AttachNote, CpuChange};
use crate::procfs;
use crate::spec::{SessionSpec, Start, Target, ThreadChoice};
use crate::sys;
use rustc_hash::FxHashSet;
use std::os::fd::AsFd;

/// Opens each event for each thread on each core, inherited by threads that are created later, and sends the records
/// of a core to the one ring of that core. The kernel maps rings of inherited events only per core.
///
/// The rings belong to dummy events on the thread that attaches, so that they outlive every watched thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct PerCoreAttachmentStrategy;

/// Threads attached between two looks at the rings.
const THREADS_PER_DRAIN: usize = 8;

impl AttachmentStrategy for PerCoreAttachmentStrategy {
    fn name(&self) -> &'static str {
        "per core"
    }
}

impl Attach for PerCoreAttachmentStrategy {
    fn shape(&self) -> Arrangement {
        Arrangement::PerCore
    }

    fn attach(&self, spec: &SessionSpec, attachment: &mut Attachment) -> Result<(), AttachError> {
        let online = CpuSet::online();
        let cpus = match &spec.cpus {
            Some(wanted) => wanted.intersection(&online),
            None => online.clone(),
        };
        if cpus.is_empty() {
            return Err(AttachError::NoCpus {
                wanted: spec.cpus.clone().unwrap_or_default().to_string(),
                online: online.to_string(),
            });
        }
        // One reservation for all threads, so that an error names the whole need.
        let threads = list(spec, attachment.reader)?.len();
        let each = 1 + threads as u64 * attachment.plan.events.len() as u64;
        attachment.reserve(cpus.len() as u64 * each, (threads, cpus.len()))?;
        for cpu in cpus.iter() {
            match attachment.add_ring(cpu, spec) {
                // The CPU went offline since the list was read.
                Err(AttachError::Open(OpenError {
                    refusal: Refusal::CpuOffline,
                    ..
                })) => attachment.note(AttachNote::Cpu {
                    cpu,
                    change: CpuChange::OfflineAtAttach,
                }),
                other => other?,
            }
        }
        resolve(spec, attachment)?;
        attach_threads(spec, attachment)
    }
}

/// Returns the target's threads that exist now, without the reader.
pub(crate) fn list(spec: &SessionSpec, reader: u32) -> Result<Vec<u32>, AttachError> {
    match &spec.target {
        Target::SelfProcess => {
            let mut tids = procfs::threads(std::process::id())?;
            if !spec.watch_reader {
                tids.retain(|tid| *tid != reader);
            }
            Ok(tids)
        }
        Target::Processes(pids) => {
            let mut tids = Vec::new();
            for pid in pids {
                // One of several may have ended; if none is left, attaching fails at the end.
                match procfs::threads(*pid) {
                    Ok(more) => tids.extend(more),
                    Err(AttachError::NoTarget { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(tids)
        }
        Target::Threads(tids) => Ok(tids.clone()),
        Target::Command(pid) => Ok(vec![*pid]),
        Target::Cpus(_) | Target::Cgroup { .. } => Ok(Vec::new()),
    }
}

/// Returns the threads that single events name themselves.
pub(super) fn named_by_events(attachment: &Attachment) -> Vec<u32> {
    let only = |thread: ThreadChoice| match thread {
        ThreadChoice::Only(tid) => Some(tid),
        ThreadChoice::All => None,
    };
    let events = &attachment.plan.events;
    let mut tids: Vec<u32> = events
        .iter()
        .filter_map(|event| only(event.thread))
        .collect();
    tids.sort_unstable();
    tids.dedup();
    tids
}

/// Finds attrs that open, on the first thread that lives.
pub(super) fn resolve(spec: &SessionSpec, attachment: &mut Attachment) -> Result<(), AttachError> {
    let cpu = attachment.rings.first().map(|ring| ring.cpu);
    // The reader stands in where the process has no other thread: later threads inherit nothing from it, but an event
    // that can't be opened at all is reported now.
    let mut candidates = list(spec, attachment.reader)?;
    candidates.extend(named_by_events(attachment));
    if spec.target == Target::SelfProcess {
        candidates.push(attachment.reader);
    }
    let cgroup = attachment.cgroup.take();
    for tid in &candidates {
        let place = EventTarget::Thread(*tid, cpu);
        match attachment
            .plan
            .resolve(place, cgroup.as_ref().map(AsFd::as_fd), spec.fallbacks)
        {
            Err(error) if error.is_gone() => {}
            other => {
                for note in attachment.plan.notes.clone() {
                    attachment.note(note);
                }
                return other.map_err(AttachError::Open);
            }
        }
    }
    Err(match (&spec.target, candidates.first()) {
        (Target::Processes(ids) | Target::Threads(ids), _) if ids.len() == 1 => {
            AttachError::NoTarget { id: ids[0] }
        }
        (Target::Command(pid), _) => AttachError::NoTarget { id: *pid },
        _ => AttachError::AllEnded,
    })
}

/// Attaches to all threads, those that appear meanwhile included.
fn attach_threads(spec: &SessionSpec, attachment: &mut Attachment) -> Result<(), AttachError> {
    let mut coverage = Coverage::default();
    let mut gone = FxHashSet::default();
    let named = named_by_events(attachment);
    for pass in 0..spec.attach_iterations.max(1) {
        let last_try = pass + 1 >= spec.attach_iterations;
        learn(attachment, &mut coverage, last_try);
        let listed: FxHashSet<u32> = list(spec, attachment.reader)?.into_iter().collect();
        let mut new: Vec<(u32, bool)> = listed.iter().map(|tid| (*tid, true)).collect();
        new.extend(
            named
                .iter()
                .filter(|tid| !listed.contains(tid))
                .map(|tid| (*tid, false)),
        );
        new.retain(|(tid, _)| !coverage.has(*tid) && !gone.contains(tid));
        new.sort_unstable();
        attachment.summary.iterations = pass + 1;
        if new.is_empty() {
            break;
        }
        let events = attachment.plan.events.len() as u64;
        let needed = new.len() as u64 * attachment.rings.len() as u64 * events;
        attachment.reserve(needed, (new.len(), attachment.rings.len()))?;
        for (count, (tid, listed)) in new.into_iter().enumerate() {
            if count % THREADS_PER_DRAIN == THREADS_PER_DRAIN - 1 {
                learn(attachment, &mut coverage, last_try);
            }
            // An earlier thread's fork record may have covered it meanwhile.
            if coverage.has(tid) {
                continue;
            }
            // The kernel's own clock can't be read from here: a fork record's word is taken then.
            let now = || spec.clock.map_or(0, sys::clock_now);
            let from = now();
            match attachment.add_thread(tid, listed) {
                Ok(()) => {
                    if spec.start == Start::AtAttach {
                        attachment.enable_groups_of(tid)?;
                    }
                    coverage.opened(tid, from, now());
                }
                Err(AttachError::Open(error)) if error.is_gone() => {
                    gone.insert(tid);
                }
                Err(AttachError::Open(error)) if is_about_the_thread(&error) => {
                    attachment.summary.failed.push(FailedThread {
                        tid,
                        reason: error.to_string(),
                    });
                    gone.insert(tid);
                }
                Err(error) => return Err(error),
            }
        }
        // Where nothing is inherited, a second look finds the threads created meanwhile and nothing else.
        if matches!(spec.target, Target::Threads(_) | Target::Command(_)) && named.is_empty() {
            break;
        }
    }
    if attachment.threads.is_empty() {
        attachment.note(AttachNote::NothingWatched);
    }
    learn(attachment, &mut coverage, true);
    attachment.summary.inherited = coverage.inherited();
    if attachment.threads.is_empty() && spec.target != Target::SelfProcess {
        return Err(AttachError::AllEnded);
    }
    Ok(())
}

/// Returns true if a refusal is about this thread only: another user's, or one that changed its identity.
pub(super) fn is_about_the_thread(error: &OpenError) -> bool {
    matches!(error.refusal, Refusal::Permission { .. })
}

/// Reads the rings into their spills and learns from the fork records which threads are covered.
fn learn(attachment: &mut Attachment, coverage: &mut Coverage, last_try: bool) {
    for fork in attachment.drain_into_spill() {
        match coverage.learn(&fork, last_try) {
            Verdict::Fine => {}
            Verdict::Duplicate(tid) => attachment.close_duplicate(tid),
            Verdict::Again(tid) => {
                attachment.close_thread(tid);
                coverage.closed(tid);
            }
        }
    }
}

impl Attachment {
    /// Enables the groups of a thread, which were opened disabled until complete.
    pub(super) fn enable_groups_of(&self, tid: u32) -> Result<(), AttachError> {
        let Some(placed) = self.threads.get(&tid) else {
            return Ok(());
        };
        for (index, event) in &placed.events {
            let planned = &self.plan.events[*index];
            if planned.leads.is_some() && planned.starts_late() {
                event.enable()?;
            }
        }
        Ok(())
    }
}
