//! A recording from start to end.
//!
//! Events are opened first, so that nothing that happens afterwards is missed; then what exists already is described;
//! then the command is let go, or the events are enabled. One loop waits for signals and for the rings until the
//! recording's end, drains the rings once more, and completes the file.

use crate::command::{CommandError, CommandStatus, HeldCommand};
use crate::existing::Synthesizer;
use crate::features;
use crate::machine::Machine;
use crate::modules::Modules;
use crate::outcome::{Ending, EventOutcome, Outcome, Progress};
use crate::output_file::{self, Undo};
use crate::signals::{Received, Signals};
use crate::sink::Sink;
use crate::spec::{RecordSpec, RecordTarget};
use dioptra_perfdata::{EventToWrite, WriteError, WriteOptions, Writer};
use dioptra_perfevents::record::RecordLayout;
use dioptra_perfevents::{
    AttachError, AttachSummary, AttrFlags, ByteOrder, EventError, Inherit, RunError, Running,
    Session, SessionSpec, SideBand, Start, Target,
};
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use thiserror::Error;

/// How long the loop waits at most before it reports progress.
const TICK: Duration = Duration::from_millis(100);

/// How long the command may take to end before the observer is told that it is waited for.
const PATIENCE: Duration = Duration::from_millis(500);

/// Why a recording failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The command did not start, or can't be waited for.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The target is a command, but there is none.
    #[error("there is no command to record; give one, or another target")]
    NoCommand,
    /// The events could not be opened.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The events could not be started.
    #[error(transparent)]
    Event(#[from] EventError),
    /// Reading the rings failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Signals can't be received.
    #[error("receiving signals: {0}")]
    Signals(io::Error),
    /// `/proc` can't be read.
    #[error("describing what runs already: {0}; is /proc mounted?")]
    Existing(io::Error),
    /// The file can't be created.
    #[error("creating {}: {source}; give another file with -o", .path.display())]
    Create {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file can't be written.
    #[error("writing {}: {source}; what was written before can be read", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: WriteError,
    },
}

impl RecordError {
    /// The exit status for it: 126 and 127 if the command could not be executed, else 125.
    pub fn exit_code(&self) -> u8 {
        match self {
            RecordError::Command(error) => error.exit_code(),
            _ => 125,
        }
    }
}

/// Is told what happens while a recording runs.
pub trait Observer {
    /// Something was done in another way than asked for, or left out.
    fn note(&mut self, note: &str);
    /// The events are open. Told after the notes.
    fn attached(&mut self, summary: &AttachSummary) {
        let _ = summary;
    }
    /// Called about ten times a second.
    fn progress(&mut self, progress: Progress);
    /// The recording has ended, well or (`failure`) not, but the command still runs and is waited for.
    fn waiting(&mut self, failure: Option<&RecordError>);
}

/// Records as `spec` says. Returns when the recording is complete and its command, if there is one, has ended.
///
/// SIGINT, SIGTERM, SIGHUP and SIGQUIT end the recording; one that a process sent to us is passed on to the command,
/// one from the terminal has reached it already. While the command is waited for, another one kills it. These signals
/// are blocked in the calling thread meanwhile.
///
/// # Errors
/// [`RecordError`]. A command that runs by then is waited for before the error is returned.
pub fn record(spec: &RecordSpec, observer: &mut dyn Observer) -> Result<Outcome, RecordError> {
    let mut signals = Signals::new().map_err(RecordError::Signals)?;
    let mut command = match &spec.command {
        Some(words) => Some(HeldCommand::hold(words, signals.mask_before())?),
        None => None,
    };
    let recorded = Recording::start(spec, command.as_ref(), observer)
        .and_then(|recording| recording.run(command.as_mut(), &mut signals, observer));
    let status = match &mut command {
        Some(command) if command.is_released() => {
            let failure = recorded.as_ref().err();
            Some(wait_for(command, &mut signals, failure, observer)?)
        }
        _ => None,
    };
    let mut outcome = recorded?;
    outcome.command = status;
    Ok(outcome)
}

/// Waits for the command's end. A signal that asks for an end, the second by now, kills it.
fn wait_for(
    command: &mut HeldCommand,
    signals: &mut Signals,
    failure: Option<&RecordError>,
    observer: &mut dyn Observer,
) -> Result<CommandStatus, RecordError> {
    let silent_until = Instant::now() + PATIENCE;
    let mut told = false;
    loop {
        if let Some(status) = command.try_wait()? {
            return Ok(status);
        }
        if !told && Instant::now() >= silent_until {
            told = true;
            observer.waiting(failure);
        }
        signals.wait(TICK).map_err(RecordError::Signals)?;
        while let Some(received) = signals.take() {
            if received.ends_recording() {
                command.signal(libc::SIGKILL);
            }
        }
    }
}

/// A recording whose events are open and whose file has been begun.
struct Recording<'a> {
    spec: &'a RecordSpec,
    machine: Machine,
    session: Session,
    sink: Sink,
    /// Ids that the writer knows.
    ids_known: usize,
    /// Notes of the session that the observer knows.
    notes_told: usize,
    /// Whether samples may be taken by now.
    enabled: bool,
    clocks: features::Clocks,
    /// Removes the file if the command can't be executed.
    undo: Option<Undo>,
}

impl<'a> Recording<'a> {
    /// Opens the events and begins the file. What exists already is described in it.
    fn start(
        spec: &'a RecordSpec,
        command: Option<&HeldCommand>,
        observer: &mut dyn Observer,
    ) -> Result<Recording<'a>, RecordError> {
        let session_spec = session_spec(spec, command)?;
        let starts = session_spec.start;
        let mut session = Session::new(session_spec)?;
        let attached = session.attach()?;
        for note in &attached.notes {
            observer.note(note);
        }
        for thread in &attached.failed {
            observer.note(&format!(
                "thread {} is not recorded: {}",
                thread.tid, thread.reason
            ));
        }
        observer.attached(&attached);
        let (file, undo) =
            output_file::create(&spec.output).map_err(|source| RecordError::Create {
                path: spec.output.clone(),
                source,
            })?;
        let events: Vec<EventToWrite> = session
            .events()
            .iter()
            .map(|event| EventToWrite {
                attr: event.attr.clone(),
                name: event.name.clone(),
                ids: event.ids.clone(),
            })
            .collect();
        let options = WriteOptions {
            compression: spec.compression,
        };
        let writer =
            Writer::create(file, &events, options).map_err(|source| write_error(spec, source))?;
        let first = events
            .first()
            .map(|event| event.attr.clone())
            .unwrap_or_default();
        let modules = Modules::new(RecordLayout::new(&first, ByteOrder::NATIVE));
        let mut recording = Recording {
            spec,
            machine: Machine::running(),
            ids_known: session.new_ids_since(0).len(),
            session,
            sink: Sink::new(writer, modules),
            notes_told: attached.notes.len(),
            enabled: starts == Start::AtAttach,
            clocks: features::Clocks::now(),
            undo: Some(undo),
        };
        recording.describe_existing(observer)?;
        Ok(recording)
    }

    fn describe_existing(&mut self, observer: &mut dyn Observer) -> Result<(), RecordError> {
        let path = &self.spec.output;
        let Some(event) = self.session.events().first() else {
            return Ok(());
        };
        let counts_kernel = self.session.events().iter().any(|event| {
            event.attr.samples() && !event.attr.flags.contains(AttrFlags::EXCLUDE_KERNEL)
        });
        let sink = &mut self.sink;
        let mut synthesizer = Synthesizer::new(
            &event.attr,
            event.ids.first().copied().unwrap_or(0),
            |bytes| sink.write_made(bytes),
        );
        let described = (|| {
            let known = synthesizer.kernel(&self.machine.os_release)?;
            match &self.spec.target {
                // It has nothing yet that its exec leaves.
                RecordTarget::Command => {}
                RecordTarget::Processes(tids) | RecordTarget::Threads(tids) => {
                    synthesizer.tasks(tids)?
                }
                RecordTarget::Machine(_) | RecordTarget::Cgroup { .. } => synthesizer.machine()?,
            }
            Ok(known)
        })();
        let known = described.map_err(|error| match error {
            SinkError::Write(source) => RecordError::Write {
                path: path.clone(),
                source,
            },
            SinkError::Existing(error) => RecordError::Existing(error),
        })?;
        if counts_kernel && !known {
            observer.note(
                "the kernel hides its addresses, so that its functions will have no names: run as root, or \
                 `sysctl kernel.kptr_restrict=0`",
            );
        }
        Ok(())
    }

    /// Records until the end, and completes the file.
    fn run(
        mut self,
        mut command: Option<&mut HeldCommand>,
        signals: &mut Signals,
        observer: &mut dyn Observer,
    ) -> Result<Outcome, RecordError> {
        let delayed = !self.spec.delay.is_zero();
        if !delayed && !self.enabled && self.spec.target != RecordTarget::Command {
            self.session.enable()?;
            self.enabled = true;
        }
        if let Some(command) = command.as_deref_mut() {
            if let Err(error) = command.release() {
                if let Some(undo) = self.undo.take() {
                    undo.undo();
                }
                return Err(error.into());
            }
            // Its exec has enabled the events.
            self.enabled |= !delayed && self.spec.target == RecordTarget::Command;
        }
        let begin = Instant::now();
        let ending = self.follow(begin, command, signals, observer);
        // An error while reading loses nothing of what was read.
        let (ending, failure) = match ending {
            Ok(ending) => (ending, None),
            Err(error) => (Ending::TargetsEnded, Some(error)),
        };
        let finished = self.session.finish(&mut self.sink);
        let sampled_for = begin.elapsed().saturating_sub(self.spec.delay);
        self.tell_new_notes(observer);
        let outcome = self.complete(ending, sampled_for, observer);
        match failure {
            Some(error) => Err(error),
            None => {
                finished?;
                outcome
            }
        }
    }

    /// The loop: until the command or all targets end, a signal comes, or the time is over.
    fn follow(
        &mut self,
        begin: Instant,
        mut command: Option<&mut HeldCommand>,
        signals: &mut Signals,
        observer: &mut dyn Observer,
    ) -> Result<Ending, RecordError> {
        let enable_at = begin + self.spec.delay;
        let end_at = self.spec.duration.map(|duration| enable_at + duration);
        let mut next_tick = begin + TICK;
        loop {
            let now = Instant::now();
            if !self.enabled && now >= enable_at {
                self.session.enable()?;
                self.enabled = true;
            }
            if now >= next_tick {
                next_tick = now + TICK;
                observer.progress(Progress {
                    samples: self.sink.samples,
                    lost: self.sink.lost,
                    bytes: self.sink.bytes,
                    elapsed: begin.elapsed(),
                });
                self.tell_new_notes(observer);
            }
            if end_at.is_some_and(|end| now >= end) {
                if let Some(command) = command {
                    command.signal(libc::SIGTERM);
                }
                return Ok(Ending::Duration);
            }
            let mut until = next_tick;
            if !self.enabled {
                until = until.min(enable_at);
            }
            if let Some(end) = end_at {
                until = until.min(end);
            }
            let timeout = until.saturating_duration_since(now);
            let progress =
                self.session
                    .read_once_with(timeout, &[signals.as_fd()], &mut self.sink)?;
            self.take_in_new_ids()?;
            if let Some(source) = self.sink.take_error() {
                return Err(write_error(self.spec, source));
            }
            while let Some(received) = signals.take() {
                if received.ends_recording() {
                    pass_on(received, command.as_deref_mut());
                    return Ok(Ending::Signal(received.signal));
                }
            }
            if let Some(command) = command.as_deref_mut()
                && command.try_wait()?.is_some()
            {
                return Ok(Ending::CommandEnded);
            }
            match progress.state {
                // Whether the command has ended is known from itself: it may outlive its events' last thread by a moment.
                Running::TargetsEnded if self.spec.target != RecordTarget::Command => {
                    return Ok(Ending::TargetsEnded);
                }
                _ => {}
            }
        }
    }

    fn tell_new_notes(&mut self, observer: &mut dyn Observer) {
        let Some(summary) = self.session.attach_summary() else {
            return;
        };
        for note in summary.notes.iter().skip(self.notes_told) {
            observer.note(note);
        }
        self.notes_told = summary.notes.len();
    }

    /// Ids of events that were opened while recording, as for a CPU that came back.
    fn take_in_new_ids(&mut self) -> Result<(), RecordError> {
        let new = self.session.new_ids_since(self.ids_known);
        for (index, id) in new {
            self.sink
                .writer
                .add_ids(*index, &[*id])
                .map_err(|source| write_error(self.spec, source))?;
        }
        self.ids_known += new.len();
        Ok(())
    }

    /// Writes what is known only at the end.
    fn complete(
        mut self,
        ending: Ending,
        duration: Duration,
        observer: &mut dyn Observer,
    ) -> Result<Outcome, RecordError> {
        let spec = self.spec;
        self.take_in_new_ids()?;
        let summary = self.session.summary().clone();
        let attached = self.session.events();
        let untold = summary.lost_untold();
        if untold > 0
            && let Some(event) = attached.first()
        {
            let sink = &mut self.sink;
            let id = event.ids.first().copied().unwrap_or(0);
            let mut synthesizer =
                Synthesizer::new(&event.attr, id, |bytes: &[u8]| sink.write_made(bytes));
            match synthesizer.lost(untold, features::monotonic_time()) {
                Err(SinkError::Write(source)) => return Err(write_error(spec, source)),
                Err(SinkError::Existing(error)) => return Err(RecordError::Existing(error)),
                Ok(()) => {}
            }
        }
        if let Some(source) = self.sink.take_error() {
            return Err(write_error(spec, source));
        }
        let tracing_data = match features::tracing_data(attached) {
            Some(Err(error)) => {
                observer.note(&format!(
                    "tracepoints are not described in the file, so that perf cannot read it: {error}"
                ));
                None
            }
            Some(Ok(bytes)) => Some(bytes),
            None => None,
        };
        let to_write = features::to_write(
            &self.machine,
            spec,
            attached,
            self.sink.build_ids(),
            &self.clocks,
            tracing_data,
        );
        let lost = self.sink.lost;
        let size = self
            .sink
            .writer
            .finish(&to_write)
            .map_err(|source| write_error(spec, source))?;
        let events = attached
            .iter()
            .zip(&summary.events)
            .filter(|(event, _)| event.spec.is_some());
        Ok(Outcome {
            path: spec.output.clone(),
            size,
            events: events
                .map(|(event, total)| EventOutcome {
                    name: event.name.clone(),
                    samples: total.samples,
                    lost: total.lost,
                    throttled: total.throttled,
                })
                .collect(),
            unknown_samples: summary.unknown_samples,
            lost,
            duration,
            ending,
            command: None,
        })
    }
}

fn write_error(spec: &RecordSpec, source: WriteError) -> RecordError {
    RecordError::Write {
        path: spec.output.clone(),
        source,
    }
}

/// Passes a signal on to the command, unless the terminal has sent it to the whole process group.
fn pass_on(received: Received, command: Option<&mut HeldCommand>) {
    if let Some(command) = command
        && !received.from_kernel
    {
        command.signal(received.signal);
    }
}

/// What the session is asked for.
fn session_spec(
    spec: &RecordSpec,
    command: Option<&HeldCommand>,
) -> Result<SessionSpec, RecordError> {
    let target = match &spec.target {
        RecordTarget::Command => Target::Command(command.ok_or(RecordError::NoCommand)?.pid()),
        RecordTarget::Processes(pids) => Target::Processes(pids.clone()),
        RecordTarget::Threads(tids) => Target::Threads(tids.clone()),
        RecordTarget::Machine(cpus) => Target::Cpus(cpus.clone()),
        RecordTarget::Cgroup { path, cpus } => Target::Cgroup {
            path: path.clone(),
            cpus: cpus.clone(),
        },
    };
    let start = match &spec.target {
        _ if !spec.delay.is_zero() => Start::Manual,
        RecordTarget::Command => Start::OnExec,
        RecordTarget::Processes(_) | RecordTarget::Threads(_) => Start::AtAttach,
        // Or the description of all that runs would be a large part of the recording.
        RecordTarget::Machine(_) | RecordTarget::Cgroup { .. } => Start::Manual,
    };
    let mut groups = spec.groups.clone();
    for event in groups.iter_mut().flat_map(|group| &mut group.events) {
        spec.samples.apply(event);
    }
    let mut side_band = SideBand::default();
    side_band.ksymbol = true;
    side_band.bpf = true;
    Ok(SessionSpec::new()
        .groups(groups)
        .target(target)
        .start(start)
        .inherit(if spec.inherit {
            Inherit::ThreadsAndChildren
        } else {
            Inherit::No
        })
        .cpus(if target_has_cpus(&spec.target) {
            None
        } else {
            spec.cpus.clone()
        })
        .ring_pages(spec.ring_pages)
        .side_band(side_band))
}

fn target_has_cpus(target: &RecordTarget) -> bool {
    matches!(
        target,
        RecordTarget::Machine(_) | RecordTarget::Cgroup { .. }
    )
}

/// Why a made-up record was not written.
pub(crate) enum SinkError {
    /// The file.
    Write(WriteError),
    /// What it was to be made of could not be read.
    Existing(io::Error),
}

impl From<io::Error> for SinkError {
    fn from(error: io::Error) -> Self {
        SinkError::Existing(error)
    }
}
