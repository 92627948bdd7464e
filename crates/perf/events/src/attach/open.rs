//! Opening events and their rings, one target at a time.

use super::plan::{Arrangement, Planned};
use super::state::{Attachment, CpuRing, Placed};
use crate::errors::{AttachError, OpenError, Refusal};
use crate::event::{Event, EventTarget, OpenRequest};
use crate::limits;
use crate::notes::AttachNote;
use crate::ring::Ring;
use crate::spec::{Fallbacks, SessionSpec};
use crate::sys;
use std::os::fd::AsFd;

impl Attachment {
    /// Makes a CPU's ring. An owner of CPU-wide sessions carries the side band and is one of its events.
    pub(crate) fn add_ring(&mut self, cpu: u32, spec: &SessionSpec) -> Result<(), AttachError> {
        let target = match self.shape {
            Arrangement::PerCpu => EventTarget::Cpu(cpu),
            _ => EventTarget::Thread(0, Some(cpu)),
        };
        self.add_ring_at(target, cpu, None, spec)?;
        self.summary.cpus.push(cpu);
        Ok(())
    }

    /// Makes a ring owned by an event at `target`.
    fn add_ring_at(
        &mut self,
        target: EventTarget,
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
            let owner = self.open_with_retry(&OpenRequest::with_attr(&name, attr, target))?;
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
        self.rings_generation += 1;
        self.rings.push(CpuRing {
            cpu,
            owner,
            ring,
            spill: Vec::new(),
            hung_up: false,
            thread,
        });
        if pages < self.ring_pages {
            self.note(AttachNote::SmallerRings {
                asked: spec.ring_pages.unwrap_or(self.ring_pages),
                pages,
            });
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
        let target = EventTarget::Thread(tid, None);
        self.add_ring_at(target, u32::MAX, Some(tid), spec)?;
        let slot = self.rings.len() - 1;
        let mut placed = Placed::default();
        let mut ids = Vec::new();
        let wanted = |planned: &Planned| planned.is_for(tid, listed);
        if let Err(error) = self.open_all(Some(slot), target, wanted, &mut placed, &mut ids) {
            self.rings.truncate(slot);
            self.rings_generation += 1;
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
            // The signal carries its event's index and the thread for which the event was opened.
            self.plan.events[index].attr.sig_data = crate::signals::word(tid, index);
        }
        let wanted = |planned: &Planned| planned.is_for(tid, listed) && planned.attr.samples();
        self.open_all(
            None,
            EventTarget::Thread(tid, None),
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
            let id = if self.shape == Arrangement::Signals {
                signalled
            } else {
                id
            };
            if !(self.shape == Arrangement::Signals && self.ids.contains_key(&id)) {
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
            let target = EventTarget::Thread(tid, Some(self.rings[slot].cpu));
            let wanted = |planned: &Planned| planned.is_for(tid, listed);
            self.open_all(Some(slot), target, wanted, &mut placed, &mut ids)?;
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
        let target = EventTarget::Cpu(cpu);
        self.open_all(Some(slot), target, |_| true, &mut placed, &mut ids)?;
        for (index, id) in ids {
            self.learn_id(index, id, 0);
        }
        self.cpus.insert(cpu, placed);
        Ok(())
    }

    fn open_all(
        &mut self,
        slot: Option<usize>,
        target: EventTarget,
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
                target,
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
        target: EventTarget,
        group: Option<&Event>,
    ) -> Result<Event, OpenError> {
        let planned = &self.plan.events[index];
        let (name, attr) = (planned.name.clone(), planned.attr.clone());
        let tail = planned.tail.clone();
        let cgroup = self.cgroup.take();
        let request = OpenRequest::with_attr(&name, attr, target)
            .group(group)
            .cgroup(cgroup.as_ref().map(AsFd::as_fd))
            .tail(&tail);
        let result = self.open_with_retry(&request);
        self.cgroup = cgroup;
        result
    }

    /// Opens an event and, where descriptors run out, raises their limit once and tries again.
    fn open_with_retry(&mut self, request: &OpenRequest<'_>) -> Result<Event, OpenError> {
        match request.open() {
            Err(OpenError {
                refusal: Refusal::ProcessDescriptors { limit },
                ..
            }) if self.budget.may_raise && !self.budget.raised => {
                self.budget.raised = true;
                let now = limits::raise_descriptors(limit.saturating_mul(16));
                if now > limit {
                    self.note(AttachNote::DescriptorLimit {
                        from: limit,
                        to: now,
                    });
                }
                request.open()
            }
            result => result,
        }
    }

    /// Makes sure that `more` events may be opened for so many threads and CPUs, raising the limit where that is allowed.
    ///
    /// # Errors
    /// [`AttachError::Descriptors`].
    pub(crate) fn reserve(
        &mut self,
        more: u64,
        (threads, cpus): (usize, usize),
    ) -> Result<(), AttachError> {
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
                self.note(AttachNote::DescriptorLimit {
                    from: limit,
                    to: now,
                });
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
            cpus,
        })
    }
}
