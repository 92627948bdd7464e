//! A session: events to attach to a target, and then their records, read until the session ends.

use crate::Attr;
use crate::ByteOrder;
use crate::attach::plan::Plan;
use crate::attach::{self, Arrangement, AttachSummary, Attachment, AttachmentStrategy};
use crate::delivery::Delivery;
use crate::errors::{AttachError, RunError};
use crate::features::Features;
use crate::listener::RecordListener;
use crate::notes::AttachNote;
use crate::owner::Owner;
use crate::reader::FdPollReader;
use crate::record::RecordLayout;
use crate::spec::{EventSpec, SessionSpec, Start};
use crate::stop::StopHandle;
use crate::summary::{EventSummary, Summary};
use crate::wakeups::Wakeups;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// One of a session's events, as it was opened.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct AttachedEvent {
    /// The index among the session's events, counted over all groups; `None` for the dummy event that a session adds
    /// for the records of mappings, names and threads.
    pub spec: Option<usize>,
    /// Its name: as typed, or that of the fallback in its place.
    pub name: String,
    /// The attr as the kernel took it.
    pub attr: Attr,
    /// The ids that its records carry, one for each thread and CPU. More come when CPUs come online.
    pub ids: Vec<u64>,
}

impl AttachedEvent {
    /// Returns the event as a session would have opened it without any change.
    pub fn new(spec: &EventSpec) -> AttachedEvent {
        AttachedEvent {
            spec: None,
            name: spec.name.clone(),
            attr: spec.attr.clone(),
            ids: Vec::new(),
        }
    }
}

/// The result of one [`AttachedSession::read_once`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// The number of records delivered.
    pub records: u64,
    /// The bytes of these records.
    pub bytes: u64,
    /// Whether the session goes on.
    pub state: Running,
}

/// Whether a session goes on, and if not, why.
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

/// Events that are to be attached to a target, and how.
///
/// [`Session::attach`] opens the events and returns the session that can be read. [`Session::spawn`] does so on a thread
/// of its own. There is nothing to read or enable before that:
///
/// ```compile_fail
/// # use dioptra_perfevents::{EventSpec, Session, SessionSpec};
/// let mut session = Session::new(SessionSpec::new().event(EventSpec::cpu_clock())).unwrap();
/// session.enable();
/// ```
#[derive(Debug)]
pub struct Session {
    spec: SessionSpec,
    strategy: Option<Box<dyn AttachmentStrategy>>,
    stop: StopHandle,
    deadline: Option<Instant>,
    owner: Owner,
}

/// Events attached to a target, and the reader of their records. Dropping it closes everything.
///
/// The thread that attached it is its reader: rings belong to events of that thread and hang up when the thread ends.
/// So the session stays on that thread:
///
/// ```compile_fail
/// fn send(session: dioptra_perfevents::AttachedSession) {
///     std::thread::spawn(move || drop(session));
/// }
/// ```
///
/// An attached session belongs to the process that made it. A forked child has a copy whose events are the parent's and
/// whose rings are not mapped: every method that would control or read them fails there, and dropping the copy closes
/// the child's descriptors only.
#[derive(Debug)]
pub struct AttachedSession {
    session: Session,
    attachment: Attachment,
    reader: FdPollReader,
    delivery: Delivery,
    summary: Summary,
    wakeups: Option<Wakeups>,
    /// Disabled by the end of a run.
    at_rest: bool,
    /// Keeps the session on its thread.
    not_send: PhantomData<*const ()>,
}

impl Session {
    /// Returns a session that is not attached yet. Nothing is opened but a wakeup descriptor.
    ///
    /// # Errors
    /// [`AttachError::NoEvents`] without events, [`AttachError::Wakeup`].
    pub fn new(spec: SessionSpec) -> Result<Session, AttachError> {
        if spec.groups.iter().all(|group| group.events.is_empty()) {
            return Err(AttachError::NoEvents);
        }
        let stop = StopHandle::new().map_err(AttachError::Wakeup)?;
        Ok(Session {
            stop,
            strategy: None,
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

    /// Ends [`AttachedSession::run`] at that time, as if stopped.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Instant) -> Session {
        self.deadline = Some(deadline);
        self
    }

    /// Returns the settings.
    pub fn spec(&self) -> &SessionSpec {
        &self.spec
    }

    /// Returns a handle that ends [`AttachedSession::run`] from any thread or signal handler.
    pub fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// Opens every event. The calling thread becomes the reader: it owns the rings and is not watched unless
    /// [`SessionSpec::watch_reader`] says so. Records that come while attaching are kept for the first read.
    ///
    /// # Errors
    /// [`AttachError`]; whatever was opened is closed again.
    pub fn attach(self) -> Result<AttachedSession, AttachError> {
        if !self.owner.is_this_process() {
            return Err(AttachError::OtherProcess);
        }
        let mut attachment = match &self.strategy {
            Some(strategy) => self.attach_with(strategy.as_ref())?,
            None => self.attach_by_ladder()?,
        };
        attachment.sum_up();
        let mut delivery = Delivery::new(&attachment);
        delivery.learn_ids(&attachment);
        let mut reader = FdPollReader::new();
        reader.watch(&self.spec, &attachment);
        Ok(AttachedSession {
            session: self,
            attachment,
            reader,
            delivery,
            summary: Summary::default(),
            wakeups: None,
            at_rest: false,
            not_send: PhantomData,
        })
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
                attachment.note(AttachNote::Strategy {
                    strategy: strategy.name(),
                    because: error.to_string(),
                });
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
}

impl AttachedSession {
    /// Returns the settings.
    pub fn spec(&self) -> &SessionSpec {
        &self.session.spec
    }

    /// Returns the report of attaching. Notes may be added while the session runs.
    pub fn attach_summary(&self) -> &AttachSummary {
        &self.attachment.summary
    }

    /// Sets or removes the time at which sampling ends. From then on events are disabled, even in the middle of a
    /// round, however long the listener takes for the rest of it; [`AttachedSession::run`] returns. For callers of
    /// [`AttachedSession::read_once`], who call [`AttachedSession::finish`] then.
    pub fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.session.deadline = deadline;
    }

    /// Returns the time at which the events were disabled: by [`AttachedSession::disable`], the deadline or the end.
    /// `None` while they run.
    pub fn disabled_at(&self) -> Option<Instant> {
        self.attachment.disabled_at
    }

    /// Enables all events: those of [`Start::Manual`] for the first time, or all after [`AttachedSession::disable`].
    ///
    /// # Errors
    /// [`RunError::OtherProcess`], or the kernel's refusal.
    pub fn enable(&mut self) -> Result<(), RunError> {
        self.check_owner()?;
        self.at_rest = false;
        self.attachment.running = true;
        self.attachment.disabled_at = None;
        Ok(self.attachment.leaders(|_, event| event.enable())?)
    }

    /// Disables all events, those in threads that inherited them included. The carrier of mappings and names goes on
    /// where the session has one of its own ([`Start::Manual`] and CPU-wide targets).
    ///
    /// # Errors
    /// [`RunError::OtherProcess`], or the kernel's refusal.
    pub fn disable(&mut self) -> Result<(), RunError> {
        self.check_owner()?;
        Ok(self.attachment.disable()?)
    }

    /// Reads until [`StopHandle::stop`], the deadline, or the end of every target; then disables the events, reads
    /// what is left and sums up. May be called again after that: events that [`Start`] does not hold back are enabled
    /// again.
    ///
    /// # Errors
    /// [`RunError`].
    pub fn run(&mut self, listener: &mut dyn RecordListener) -> Result<(), RunError> {
        self.run_attended(listener, &[], &mut |_| {})
    }

    /// Runs as [`AttachedSession::run`] does, and calls `attend` after each round. A round ends early when one of
    /// `wake` becomes readable.
    pub(crate) fn run_attended(
        &mut self,
        listener: &mut dyn RecordListener,
        wake: &[BorrowedFd<'_>],
        attend: &mut dyn FnMut(&mut AttachedSession),
    ) -> Result<(), RunError> {
        self.check_owner()?;
        if self.at_rest && self.session.spec.start != Start::Manual {
            self.enable()?;
        }
        listener.reader_start();
        let result = loop {
            let mut wait = self.session.spec.poll_timeout;
            if let Some(deadline) = self.session.deadline {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break Ok(());
                }
                wait = wait.min(left);
            }
            match self.read_once_with(wait, wake, listener) {
                Ok(progress) if progress.state == Running::Yes => attend(self),
                Ok(_) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        let finished = self.finish(listener);
        listener.reader_stop();
        result.and(finished)
    }

    /// Waits up to `timeout` for records and delivers all that are there: one round. For callers that wait for other
    /// things as well; they call [`AttachedSession::finish`] at the end.
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

    /// Delivers all records that are there, without waiting. For event loops that wait by
    /// [`AttachedSession::wakeups`].
    ///
    /// # Errors
    /// [`RunError`].
    pub fn drain(&mut self, listener: &mut dyn RecordListener) -> Result<Progress, RunError> {
        self.read_once(Duration::ZERO, listener)
    }

    /// Reads once as [`AttachedSession::read_once`] does, returning early when one of `wake` becomes readable. Reading
    /// from those descriptors is left to the caller.
    ///
    /// # Errors
    /// [`RunError`].
    pub fn read_once_with(
        &mut self,
        timeout: Duration,
        wake: &[BorrowedFd<'_>],
        listener: &mut dyn RecordListener,
    ) -> Result<Progress, RunError> {
        self.check_owner()?;
        let Session {
            spec,
            stop,
            deadline,
            ..
        } = &self.session;
        let (attachment, delivery) = (&mut self.attachment, &mut self.delivery);
        if stop.take() {
            let drained = delivery.round(attachment, *deadline, listener);
            return Ok(Progress {
                records: drained.records,
                bytes: drained.bytes,
                state: Running::Stopped,
            });
        }
        // Records kept from attaching are delivered without waiting.
        let timeout = if delivery.has_spill() {
            Duration::ZERO
        } else {
            timeout
        };
        let is_woken_to_stop = self
            .reader
            .wait(timeout, attachment, stop, wake)
            .map_err(RunError::Poll)?;
        let drained = delivery.round(attachment, *deadline, listener);
        if let Some(ended) = self
            .reader
            .ended_threads(attachment)
            .map_err(RunError::Poll)?
        {
            for tid in ended {
                let own = |ring: &attach::CpuRing| ring.thread == Some(tid);
                delivery.last_of(attachment, own, listener);
                attachment.close_thread(tid);
            }
            if attachment.shape == Arrangement::PerThread && !self.reader.all_ended() {
                if let Err(error) = attach::rescan(spec, attachment) {
                    attachment.note(AttachNote::NewThreads {
                        because: error.to_string(),
                    });
                }
                delivery.learn_ids(attachment);
            }
        }
        self.reader
            .follow_cpus(spec, attachment, delivery, listener);
        if let Some(wakeups) = &mut self.wakeups {
            wakeups.follow(attachment).map_err(RunError::Poll)?;
        }
        let is_stopped = is_woken_to_stop && stop.take();
        if is_woken_to_stop && !is_stopped {
            stop.forget_wakeup();
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

    /// Disables the events, delivers what is left in the rings, and counts the losses. The session stays attached.
    ///
    /// # Errors
    /// [`RunError`].
    pub fn finish(&mut self, listener: &mut dyn RecordListener) -> Result<(), RunError> {
        self.check_owner()?;
        self.attachment.disable()?;
        self.at_rest = true;
        // Twice: the first round may have found a ring full, into which nothing but the second's could be written.
        self.delivery.round(&mut self.attachment, None, listener);
        self.delivery.round(&mut self.attachment, None, listener);
        self.summary = self.delivery.sum_up(&mut self.attachment);
        Ok(())
    }

    /// Returns a handle that ends [`AttachedSession::run`] from any thread or signal handler.
    pub fn stop_handle(&self) -> StopHandle {
        self.session.stop_handle()
    }

    /// Closes everything and returns the session, which can be attached again, with its totals. Unread records are
    /// lost.
    pub fn detach(mut self) -> (Session, Summary) {
        let summary = self.delivery.sum_up(&mut self.attachment);
        (self.session, summary)
    }

    /// Counts the samples, losses and events until now; exact after [`AttachedSession::run`] or
    /// [`AttachedSession::finish`].
    pub fn summary(&mut self) -> &Summary {
        if !self.at_rest {
            self.summary = self.delivery.sum_up(&mut self.attachment);
        }
        &self.summary
    }

    /// Returns the events as they were opened, in the order of the session's groups, then (or before, with
    /// [`Start::Manual`]) the session's own dummy.
    pub fn events(&self) -> &[AttachedEvent] {
        self.delivery.events()
    }

    /// Returns every id opened since `known` ids were known, with the index of its event in
    /// [`AttachedSession::events`]: the first call passes 0, later ones the number that they have seen. More come when
    /// a CPU comes back online.
    pub fn new_ids_since(&self, known: usize) -> &[(usize, u64)] {
        self.attachment.id_log.get(known..).unwrap_or_default()
    }

    /// Returns the number of samples delivered until now, over all events.
    pub fn samples(&self) -> u64 {
        self.delivery.samples()
    }

    /// Returns the number of lost records that LOST records have reported until now;
    /// [`AttachedSession::summary`] counts all lost records.
    pub fn lost_told(&self) -> u64 {
        self.delivery.lost_told()
    }

    /// Returns a descriptor that becomes readable when there may be something to read, for an event loop. Call
    /// [`AttachedSession::drain`] then, and at least every 100 ms: the kernel may leave wakeups out.
    ///
    /// # Errors
    /// [`RunError::Poll`] where the kernel refuses another descriptor.
    pub fn wakeups(&mut self) -> Result<Wakeups, RunError> {
        if let Some(wakeups) = &self.wakeups {
            return Ok(wakeups.clone());
        }
        let wakeups = Wakeups::new(&self.attachment, &self.session.stop).map_err(RunError::Poll)?;
        Ok(self.wakeups.insert(wakeups).clone())
    }

    /// Fails in a forked child.
    fn check_owner(&self) -> Result<(), RunError> {
        if self.session.owner.is_this_process() {
            Ok(())
        } else {
            Err(RunError::OtherProcess)
        }
    }
}

/// Returns the layout by which a record's event is found: all events have the same ids at the same places.
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
