//! A session: events attached to a target, and their records read until it ends.

use crate::Attr;
use crate::ByteOrder;
use crate::attach::plan::Plan;
use crate::attach::{self, AttachSummary, Attachment, AttachmentStrategy, Shape};
use crate::delivery::Delivery;
use crate::errors::{AttachError, RunError};
use crate::features::Features;
use crate::listener::RecordListener;
use crate::owner::Owner;
use crate::reader::{FdPollReader, Reader};
use crate::record::RecordLayout;
use crate::spec::{EventSpec, SessionSpec, Start};
use crate::stop::StopHandle;
use crate::summary::{EventSummary, Summary};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::{Duration, Instant};

/// One of a session's events, as it was opened.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct AttachedEvent {
    /// Which of the session's events, counted over all groups; `None` for the dummy event that a session adds to be
    /// told of mappings, names and threads.
    pub spec: Option<usize>,
    /// Its name: as typed, or that of the fallback in its place.
    pub name: String,
    /// The attr as the kernel took it.
    pub attr: Attr,
    /// The ids that its records carry, one for each thread and CPU. More come when CPUs come online.
    pub ids: Vec<u64>,
}

impl AttachedEvent {
    /// The event as it would be if it were opened as it is.
    pub fn new(spec: &EventSpec) -> AttachedEvent {
        AttachedEvent {
            spec: None,
            name: spec.name.clone(),
            attr: spec.attr.clone(),
            ids: Vec::new(),
        }
    }
}

/// What one [`Session::read_once`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Records delivered.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Whether it is over.
    pub state: Running,
}

/// Whether a session goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Running {
    /// There may be more.
    Yes,
    /// [`StopHandle::stop`] was called.
    Stopped,
    /// Every watched thread, and every thread that inherited its events, has ended.
    TargetsEnded,
}

/// Events attached to a target, and the reader of their records.
///
/// A session reads on the thread that attached it. Dropping it closes everything.
///
/// A session belongs to the process that made it. A forked child has a copy whose events are the parent's and whose
/// rings are not mapped: every method that would control or read them fails there, and dropping the copy closes the
/// child's descriptors only.
#[derive(Debug)]
pub struct Session {
    spec: SessionSpec,
    strategy: Option<Box<dyn AttachmentStrategy>>,
    attachment: Option<Attachment>,
    reader: FdPollReader,
    delivery: Delivery,
    stop: StopHandle,
    summary: Summary,
    /// Disabled by the end of a run.
    at_rest: bool,
    deadline: Option<Instant>,
    owner: Owner,
}

impl Session {
    /// A session that is not attached yet. Nothing is opened but a wakeup descriptor.
    ///
    /// # Errors
    /// [`AttachError::NoEvents`] without events, [`AttachError::Wakeup`].
    pub fn new(spec: SessionSpec) -> Result<Session, AttachError> {
        if spec.groups.iter().all(|group| group.events.is_empty()) {
            return Err(AttachError::NoEvents);
        }
        let stop = StopHandle::new().map_err(AttachError::Wakeup)?;
        Ok(Session {
            reader: FdPollReader::new(),
            delivery: Delivery::default(),
            stop,
            strategy: None,
            attachment: None,
            summary: Summary::default(),
            at_rest: false,
            deadline: None,
            owner: Owner::this_process(),
            spec,
        })
    }

    /// Attaches in another way than the target suggests.
    #[must_use]
    pub fn with_strategy(mut self, strategy: impl AttachmentStrategy + 'static) -> Session {
        self.strategy = Some(Box::new(strategy));
        self
    }

    /// Ends [`Session::run`] at that time, as if stopped.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Instant) -> Session {
        self.deadline = Some(deadline);
        self
    }

    /// Sets or removes the time at which sampling ends. From then on events are disabled, even in the middle of a
    /// round, however long the listener takes for the rest of it; [`Session::run`] returns. For callers of
    /// [`Session::read_once`], who call [`Session::finish`] then.
    pub fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
    }

    /// When the events were disabled: by [`Session::disable`], the deadline or the end. `None` while they run.
    pub fn disabled_at(&self) -> Option<Instant> {
        self.attachment
            .as_ref()
            .and_then(|attachment| attachment.disabled_at)
    }

    /// The settings.
    pub fn spec(&self) -> &SessionSpec {
        &self.spec
    }

    /// Opens every event. The calling thread becomes the reader: it is not watched, owns the rings, and must live as
    /// long as the session. Records that come while attaching are kept for the first read.
    ///
    /// # Errors
    /// [`AttachError`]; whatever was opened is closed again.
    pub fn attach(&mut self) -> Result<AttachSummary, AttachError> {
        if !self.owner.is_this_process() {
            return Err(AttachError::OtherProcess);
        }
        if self.attachment.is_some() {
            return Err(AttachError::Attached);
        }
        let mut attachment = match &self.strategy {
            Some(strategy) => self.attach_with(strategy.as_ref())?,
            None => self.attach_by_ladder()?,
        };
        attachment.sum_up();
        self.delivery = Delivery::new(&attachment);
        self.delivery.learn_ids(&attachment);
        self.reader.watch(&self.spec, &attachment);
        self.summary = Summary::default();
        self.at_rest = false;
        let summary = attachment.summary.clone();
        self.attachment = Some(attachment);
        Ok(summary)
    }

    /// Tries the strategy for the target, then those that need less.
    fn attach_by_ladder(&self) -> Result<Attachment, AttachError> {
        let first = attach::strategy_for(&self.spec);
        let error = match self.attach_with(first.as_ref()) {
            Err(error) => error,
            attached => return attached,
        };
        for strategy in attach::fallbacks_for(&self.spec, &error) {
            if let Ok(mut attachment) = self.attach_with(strategy.as_ref()) {
                attachment.note(format!("attached by {} instead: {error}", strategy.name()));
                return Ok(attachment);
            }
        }
        Err(error)
    }

    fn attach_with(&self, strategy: &dyn AttachmentStrategy) -> Result<Attachment, AttachError> {
        let shape = strategy.shape();
        let plan = Plan::new(&self.spec, &Features::get(), shape);
        let layout = layout_of(&plan);
        let mut attachment = Attachment::new(&self.spec, plan, layout, shape);
        attachment.summary.strategy = strategy.name();
        strategy.attach(&self.spec, &mut attachment)?;
        Ok(attachment)
    }

    /// Starts events that wait for it: those of [`Start::Manual`], or all after [`Session::disable`].
    ///
    /// # Errors
    /// [`RunError::NotAttached`], [`RunError::OtherProcess`], or the kernel's refusal.
    pub fn enable(&mut self) -> Result<(), RunError> {
        let attachment = attached(self.owner, &mut self.attachment)?;
        self.at_rest = false;
        attachment.running = true;
        attachment.disabled_at = None;
        Ok(attachment.leaders(|_, event| event.enable())?)
    }

    /// Stops all events, those in threads that inherited them included. The carrier of mappings and names goes on
    /// where the session has one of its own ([`Start::Manual`] and CPU-wide targets).
    ///
    /// # Errors
    /// [`RunError::NotAttached`], [`RunError::OtherProcess`], or the kernel's refusal.
    pub fn disable(&mut self) -> Result<(), RunError> {
        Ok(attached(self.owner, &mut self.attachment)?.disable()?)
    }

    /// Reads until [`StopHandle::stop`], the deadline, or the end of every target; then disables the events, reads
    /// what is left and sums up. It may be called again after that: events that run disabled are enabled again.
    ///
    /// # Errors
    /// [`RunError`].
    pub fn run(&mut self, listener: &mut dyn RecordListener) -> Result<(), RunError> {
        attached(self.owner, &mut self.attachment)?;
        if self.at_rest && self.spec.start != Start::Manual {
            self.enable()?;
        }
        listener.reader_start();
        let result = loop {
            let mut wait = self.spec.poll_timeout;
            if let Some(deadline) = self.deadline {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break Ok(());
                }
                wait = wait.min(left);
            }
            match self.read_once(wait, listener) {
                Ok(progress) if progress.state == Running::Yes => {}
                Ok(_) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        let finished = self.finish(listener);
        listener.reader_stop();
        result.and(finished)
    }

    /// Waits up to `timeout` for records and delivers all that are there: one round. For callers that wait for other
    /// things as well; they call [`Session::finish`] at the end.
    ///
    /// # Errors
    /// [`RunError`].
    pub fn read_once(
        &mut self,
        timeout: Duration,
        listener: &mut dyn RecordListener,
    ) -> Result<Progress, RunError> {
        self.read_once_with(timeout, &[], listener)
    }

    /// As [`Session::read_once`], returning early when one of `wake` becomes readable. Who reads those is the caller.
    ///
    /// # Errors
    /// [`RunError`].
    pub fn read_once_with(
        &mut self,
        timeout: Duration,
        wake: &[BorrowedFd<'_>],
        listener: &mut dyn RecordListener,
    ) -> Result<Progress, RunError> {
        let attachment = attached(self.owner, &mut self.attachment)?;
        if self.stop.take() {
            let drained = self.delivery.round(attachment, self.deadline, listener);
            return Ok(Progress {
                records: drained.records,
                bytes: drained.bytes,
                state: Running::Stopped,
            });
        }
        // Records kept from attaching are delivered without waiting.
        let timeout = if self.delivery.has_spill() {
            Duration::ZERO
        } else {
            timeout
        };
        let found = self
            .reader
            .wait(timeout, attachment, &self.stop, wake)
            .map_err(RunError::Poll)?;
        let drained = self.delivery.round(attachment, self.deadline, listener);
        if let Some(ended) = self
            .reader
            .ended_threads(attachment)
            .map_err(RunError::Poll)?
        {
            for tid in ended {
                let own = |ring: &attach::CpuRing| ring.thread == Some(tid);
                self.delivery.last_of(attachment, own, listener);
                attachment.close_thread(tid);
            }
            if attachment.shape == Shape::PerThread && !self.reader.all_ended() {
                if let Err(error) = attach::rescan(&self.spec, attachment) {
                    attachment.note(format!("new threads cannot be watched: {error}"));
                }
                self.delivery.learn_ids(attachment);
            }
        }
        self.reader
            .follow_cpus(&self.spec, attachment, &mut self.delivery, listener);
        let is_stopped = found.stopped && self.stop.take();
        if found.stopped && !is_stopped {
            self.stop.forget_wakeup();
        }
        let state = if is_stopped {
            Running::Stopped
        } else if self.reader.all_ended() {
            Running::TargetsEnded
        } else {
            Running::Yes
        };
        Ok(Progress {
            records: drained.records,
            bytes: drained.bytes,
            state,
        })
    }

    /// Disables the events, delivers what is left in the rings, and counts what was lost. The session stays attached.
    ///
    /// # Errors
    /// [`RunError`].
    pub fn finish(&mut self, listener: &mut dyn RecordListener) -> Result<(), RunError> {
        let attachment = attached(self.owner, &mut self.attachment)?;
        attachment.disable()?;
        self.at_rest = true;
        // Twice: the first round may have found a ring full, into which nothing but the second's could be written.
        self.delivery.round(attachment, None, listener);
        self.delivery.round(attachment, None, listener);
        self.summary = self.delivery.sum_up(attachment);
        Ok(())
    }

    /// A handle that ends [`Session::run`] from any thread or signal handler.
    pub fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// Closes everything; what was not read is lost. The summary stays.
    pub fn detach(&mut self) {
        if let Some(mut attachment) = self.attachment.take() {
            self.summary = self.delivery.sum_up(&mut attachment);
        }
        self.reader.forget();
    }

    /// What was sampled, lost and throttled until now; exact after [`Session::run`] or [`Session::finish`].
    pub fn summary(&mut self) -> &Summary {
        if let Some(attachment) = &mut self.attachment
            && !self.at_rest
        {
            self.summary = self.delivery.sum_up(attachment);
        }
        &self.summary
    }

    /// The events as they were opened, in the order of the session's groups, then (or before, with
    /// [`Start::Manual`]) the session's own dummy. Empty before attaching.
    pub fn events(&self) -> &[AttachedEvent] {
        self.delivery.events()
    }

    /// Every id opened since `known` ids were known, with the index of its event in [`Session::events`]: the first
    /// call passes 0, later ones what they have seen. More come when a CPU comes back online.
    pub fn new_ids_since(&self, known: usize) -> &[(usize, u64)] {
        let log = self
            .attachment
            .as_ref()
            .map(|attachment| attachment.id_log.as_slice());
        log.and_then(|log| log.get(known..)).unwrap_or_default()
    }

    /// Samples delivered until now, over all events.
    pub fn samples(&self) -> u64 {
        self.delivery.samples()
    }

    /// Records that LOST records told of until now; [`Session::summary`] counts the others as well.
    pub fn lost_told(&self) -> u64 {
        self.delivery.lost_told()
    }

    /// What attaching did; notes may be added while running.
    pub fn attach_summary(&self) -> Option<&AttachSummary> {
        self.attachment
            .as_ref()
            .map(|attachment| &attachment.summary)
    }

    /// Descriptors that become readable when there is something to read, for a caller's own poll. Call
    /// [`Session::read_once`] with a timeout of zero then, and at least every 100 ms: wakeups may be missed.
    pub fn poll_fds(&self) -> Vec<RawFd> {
        let rings = self
            .attachment
            .iter()
            .flat_map(|attachment| &attachment.rings);
        let owners = rings
            .filter(|ring| !ring.hung_up)
            .map(|ring| std::os::fd::AsFd::as_fd(&ring.owner).as_raw_fd());
        owners.chain([self.stop.fd().as_raw_fd()]).collect()
    }
}

/// Returns what a session has open, where the calling process owns it.
fn attached(
    owner: Owner,
    attachment: &mut Option<Attachment>,
) -> Result<&mut Attachment, RunError> {
    if !owner.is_this_process() {
        return Err(RunError::OtherProcess);
    }
    attachment.as_mut().ok_or(RunError::NotAttached)
}

/// The layout by which a record's event is found: all events have the same ids at the same places.
fn layout_of(plan: &Plan) -> RecordLayout {
    let attr = plan
        .events
        .first()
        .map(|event| event.attr.clone())
        .unwrap_or_default();
    RecordLayout::new(&attr, ByteOrder::NATIVE)
}

impl EventSummary {
    pub(crate) fn named(event: &AttachedEvent) -> EventSummary {
        EventSummary {
            name: event.name.clone(),
            ..EventSummary::default()
        }
    }
}
