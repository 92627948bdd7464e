//! A recording from start to end.
//!
//! Events are opened first, so that nothing that happens afterwards is missed. Then all that exists already is
//! described. Then the command is let go, or the events are enabled. One loop waits for signals and for the rings
//! until the recording's end, drains the rings once more, and completes the file.

mod complete;
mod follow;

use crate::RecordNote;
use crate::error::{RecordError, SinkError};
use crate::existing::Synthesizer;
use crate::extension::{ExtensionTarget, RecordExtension};
use crate::features;
use crate::file_events::recorded;
use crate::machine::Machine;
use crate::modules::Modules;
use crate::outcome::{Ending, Outcome, Progress};
use crate::output_file::{self, Created};
use crate::session::session_spec;
use crate::sink::Sink;
use crate::spec::{RecordSpec, RecordTarget};
use crate::watchdog::Watchdog;
use dioptra_perfdata::{EventToWrite, WriteError, WriteOptions, Writer};
use dioptra_perfevents::record::RecordLayout;
use dioptra_perfevents::{
    AttachSummary, AttachedEvent, AttachedSession, AttrFlags, ByteOrder, Session, Start,
};
use dioptra_processes::command::{CommandStatus, HeldCommand};
use dioptra_processes::signals::Signals;
use std::borrow::Cow;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

/// The longest time that the loop waits before it reports progress.
const TICK: Duration = Duration::from_millis(100);

/// The time that the command may take to end before the observer learns that it is waited for.
const PATIENCE: Duration = Duration::from_millis(500);

/// An observer of a recording while it runs.
pub trait Observer {
    /// Receives a note: a step was done in another way than asked for, or left out.
    fn note(&mut self, note: &RecordNote);
    /// Receives the summary of the open events, after the notes.
    fn attached(&mut self, summary: &AttachSummary) {
        let _ = summary;
    }
    /// Learns that the events are open, and count from now on unless the recording has a delay.
    fn begun(&mut self) {}
    /// Returns whether the file shall get its name, after [`Observer::begun`]. Otherwise the recording ends as
    /// [`RecordError::Unwanted`], and an older file of that name stays.
    fn wants_file(&mut self) -> bool {
        true
    }
    /// Receives the progress, about ten times a second.
    fn progress(&mut self, progress: Progress);
    /// Learns that the recording has ended, well or (`failure`) not, but that the command still runs and is waited
    /// for.
    fn waiting(&mut self, failure: Option<&RecordError>);
    /// Learns that the events were disabled, because the time is over or the file is large enough. Their last records are
    /// still to be read and the file is to be completed, which takes a while: another recording may begin now.
    fn disabled(&mut self) {}
}

/// Records as `spec` says. Returns when the recording is complete and its command, if there is one, has ended.
///
/// SIGINT, SIGTERM, SIGHUP and SIGQUIT end the recording. A signal that a process sent to us is passed on to the
/// command; a signal from the terminal has reached it already. While the command is waited for, another signal kills
/// it. These signals are blocked in the calling thread meanwhile. A recorder that is stuck, such as on a pipe that
/// nobody reads, is killed by the signal within a second.
///
/// # Errors
/// [`RecordError`]. A command that already runs is waited for before the error is returned.
pub fn record(spec: &RecordSpec, observer: &mut dyn Observer) -> Result<Outcome, RecordError> {
    record_with(spec, None, observer)
}

/// Records as [`record`] does, with the events of an extension beside those of `spec`.
///
/// # Errors
/// The errors of [`record`], and of the extension.
pub fn record_with<'a>(
    spec: &'a RecordSpec,
    extension: Option<&'a mut dyn RecordExtension>,
    observer: &mut dyn Observer,
) -> Result<Outcome, RecordError> {
    let mut signals = Signals::new().map_err(RecordError::Signals)?;
    let watchdog =
        Watchdog::start(signals.set(), spec.on_slow_end).map_err(RecordError::Signals)?;
    let mut command = match &spec.command {
        Some(words) => Some(HeldCommand::hold(
            words,
            signals.mask_before(),
            spec.streams(),
        )?),
        None => None,
    };
    watchdog.command(command.as_ref().map(HeldCommand::pid));
    let progress = Arc::clone(&watchdog.progress);
    let spec = Cow::Borrowed(spec);
    let recorded = Recording::start(spec, extension, command.as_ref(), progress, observer)
        .and_then(|recording| recording.run(command.as_mut(), &mut signals, observer));
    let status = match &mut command {
        Some(command) if command.is_released() => {
            let failure = recorded.as_ref().err();
            Some(wait_for(command, &mut signals, failure, observer)?)
        }
        _ => None,
    };
    watchdog.command(None);
    let mut outcome = recorded?;
    outcome.command = status;
    outcome.late_signal = signals.finish().map(|received| received.signal);
    Ok(outcome)
}

/// A recording of what runs already, whose events are open and whose file describes what exists, and which has not begun to
/// take samples.
///
/// To follow another recording without a gap, it is prepared while the other one still runs.
pub struct Prepared {
    recording: Recording<'static>,
    progress: Arc<AtomicU64>,
}

impl Prepared {
    /// Opens the events of `spec`, which must name no command.
    ///
    /// # Errors
    /// [`RecordError`]; no file is left then.
    pub fn new(mut spec: RecordSpec, observer: &mut dyn Observer) -> Result<Self, RecordError> {
        if spec.command.is_some() || spec.target == RecordTarget::Command {
            return Err(RecordError::NoCommand);
        }
        spec.waits_to_begin = true;
        let progress = Arc::new(AtomicU64::new(0));
        let spec = Cow::Owned(spec);
        let recording = Recording::start(spec, None, None, Arc::clone(&progress), observer)?;
        Ok(Prepared {
            recording,
            progress,
        })
    }

    /// Lets samples be taken from now on. [`Prepared::run`] reads them.
    ///
    /// # Errors
    /// The events cannot be enabled.
    pub fn begin(&mut self) -> Result<(), RecordError> {
        match self.recording.enabled_at {
            Some(_) => Ok(()),
            None => self.recording.enable(),
        }
    }

    /// Records as [`record`] does. Samples are taken from now on, unless they are already.
    ///
    /// # Errors
    /// As [`record`].
    pub fn run(mut self, observer: &mut dyn Observer) -> Result<Outcome, RecordError> {
        let mut signals = Signals::new().map_err(RecordError::Signals)?;
        let spec = &self.recording.spec;
        let _watchdog = Watchdog::watch(signals.set(), spec.on_slow_end, self.progress.clone())
            .map_err(RecordError::Signals)?;
        self.begin()?;
        let mut outcome = self.recording.run(None, &mut signals, observer)?;
        outcome.late_signal = signals.finish().map(|received| received.signal);
        Ok(outcome)
    }
}

/// Waits for the command's end. A signal that asks for an end, the second one by now, kills the command.
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
    spec: Cow<'a, RecordSpec>,
    machine: Machine,
    session: AttachedSession,
    sink: Sink<'a>,
    /// The number of ids that the writer knows.
    ids_known: usize,
    /// The number of the session's notes that the observer knows.
    notes_told: usize,
    /// The moment since which samples may be taken.
    enabled_at: Option<Instant>,
    clocks: features::Clocks,
    /// Whether the observer knows of ids that a pipe can't name.
    late_ids_told: bool,
    /// The file until the command is executed: it is removed if that fails.
    created: Option<Created>,
    extension_started: bool,
    /// Whether the command has rights that we lack, so that the kernel has ended its events.
    command_is_kept: bool,
    /// The times at which the events began and ended, in nanoseconds of their clock.
    span: (u64, u64),
}

impl<'a> Recording<'a> {
    /// Opens the events, begins the file, and describes in it all that exists already.
    fn start(
        shared_spec: Cow<'a, RecordSpec>,
        mut extension: Option<&'a mut dyn RecordExtension>,
        command: Option<&HeldCommand>,
        progress: Arc<AtomicU64>,
        observer: &mut dyn Observer,
    ) -> Result<Recording<'a>, RecordError> {
        let spec = &*shared_spec;
        let counted = extension
            .as_deref()
            .map_or_else(Vec::new, |extension| extension.counted_groups());
        let session_spec = session_spec(spec, command, &counted)?;
        let starts = session_spec.start;
        let session = Session::new(session_spec.clone())?;
        let before = Instant::now();
        let session = session.attach()?;
        let attached = session.attach_summary().clone();
        for note in &attached.notes {
            observer.note(&RecordNote::Attach(note.clone()));
        }
        for thread in &attached.failed {
            observer.note(&RecordNote::ThreadRefused(thread.clone()));
        }
        observer.attached(&attached);
        let mut recorded = recorded(spec, session.events());
        if let Some(extension) = &mut extension {
            let target = ExtensionTarget {
                session: &session_spec,
                inherit: spec.inherit,
                samples: spec.samples.of_group_reads(),
                file: (!spec.is_pipe()).then_some(spec.output.as_path()),
                events: &recorded,
                diagnostics: &attached.notes,
            };
            extension.attach(&target).map_err(RecordError::Extension)?;
            recorded.extend_from_slice(extension.events());
        }
        let events: Vec<EventToWrite> = recorded
            .iter()
            .map(|event| EventToWrite {
                attr: event.attr.clone(),
                name: event.name.clone(),
                ids: event.ids.clone(),
            })
            .collect();
        let (machine, clocks) = (Machine::running(), features::Clocks::now());
        let options = WriteOptions {
            compression: spec.compression,
        };
        let not_created = |source| RecordError::Create {
            path: spec.output.clone(),
            source,
        };
        let mut created = None;
        let writer = if spec.is_pipe() {
            let file = match &spec.pipe {
                Some(pipe) => pipe.try_clone(),
                None => output_file::stdout(),
            };
            let file = file.map_err(not_created)?;
            let tracing_data = told_tracing_data(&recorded, observer);
            let mut features =
                features::to_write(&machine, spec, &recorded, Vec::new(), &clocks, tracing_data);
            if let Some(extension) = &extension {
                let groups = extension.group_descriptions();
                features.group_descriptions.extend(groups);
            }
            Writer::create_pipe(file, &events, &features, options)
        } else {
            let (file, new) = output_file::create(&spec.output).map_err(not_created)?;
            created = Some(new);
            Writer::create(file, &events, options)
        };
        let writer = writer.map_err(|source| SinkError::Write(source).of(&spec.output))?;
        let first = events
            .first()
            .map(|event| event.attr.clone())
            .unwrap_or_default();
        let modules = Modules::new(RecordLayout::new(&first, ByteOrder::NATIVE));
        let mut sink = Sink::new(writer, modules, extension, progress);
        sink.names_modules_early = spec.to_stdout();
        let mut recording = Recording {
            spec: shared_spec,
            machine,
            ids_known: session.new_ids_since(0).len(),
            session,
            sink,
            notes_told: attached.notes.len(),
            enabled_at: (starts == Start::AtAttach).then_some(before),
            clocks,
            late_ids_told: false,
            created,
            extension_started: false,
            command_is_kept: false,
            span: (features::monotonic_time(), 0),
        };
        recording.describe_existing(observer)?;
        Ok(recording)
    }

    /// Writes records that we make up, with this `time` (see [`Synthesizer::at`]).
    fn write_made<T>(
        &mut self,
        time: u64,
        make: impl FnOnce(
            &mut Synthesizer<'_, &mut dyn FnMut(&[u8]) -> Result<(), SinkError>>,
        ) -> Result<T, SinkError>,
    ) -> Result<T, RecordError> {
        let first = self.session.events().first();
        let (attr, id) = first
            .map(|event| (event.attr.clone(), event.ids.first().copied()))
            .unwrap_or_default();
        let sink = &mut self.sink;
        let mut write = |bytes: &[u8]| sink.write_made(bytes);
        let write: &mut dyn FnMut(&[u8]) -> Result<(), SinkError> = &mut write;
        let mut synthesizer = Synthesizer::new(&attr, id.unwrap_or(0), write)
            .at(time)
            .data_mappings(self.spec.samples.copies_stacks());
        make(&mut synthesizer).map_err(|error| error.of(&self.spec.output))
    }

    fn describe_existing(&mut self, observer: &mut dyn Observer) -> Result<(), RecordError> {
        let release = self.machine.os_release.clone();
        let target = self.spec.target.clone();
        let known = self.write_made(0, |synthesizer| {
            let known = synthesizer.kernel(&release)?;
            match &target {
                // The exec that follows discards all mappings and the name that the command has now.
                RecordTarget::Command => {}
                RecordTarget::Processes(tids) | RecordTarget::Threads(tids) => {
                    synthesizer.tasks(tids)?
                }
                RecordTarget::Machine(_) | RecordTarget::Cgroup { .. } => synthesizer.machine()?,
            }
            Ok(known)
        })?;
        let counts_kernel = self.session.events().iter().any(|event| {
            event.attr.samples() && !event.attr.flags.contains(AttrFlags::EXCLUDE_KERNEL)
        });
        if counts_kernel && !known {
            observer.note(&RecordNote::KernelNamesHidden);
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
        if !delayed && self.enabled_at.is_none() && self.spec.target != RecordTarget::Command {
            self.enable()?;
        }
        let released_at = Instant::now();
        if let Some(command) = command.as_deref_mut() {
            if let Err(error) = command.release() {
                // The new file is removed, and an older one of its name stays.
                self.created = None;
                return Err(error.into());
            }
            if self.spec.target == RecordTarget::Command {
                self.command_is_kept = is_kept_from_users(command.pid());
            }
            // The command's exec has enabled the events.
            if !delayed && self.spec.target == RecordTarget::Command {
                self.enabled_at = Some(released_at);
                self.span.0 = features::monotonic_time();
            }
        }
        if self.enabled_at.is_some() {
            self.start_extension()?;
        }
        observer.begun();
        if !observer.wants_file() {
            return Err(RecordError::Unwanted);
        }
        if let Some(created) = self.created.take() {
            created.publish().map_err(|source| RecordError::Create {
                path: self.spec.output.clone(),
                source,
            })?;
        }
        let begin = Instant::now();
        let ending = self.follow(begin, command, signals, observer);
        // An error while reading loses no record that was read before.
        let (ending, failure) = match ending {
            Ok(ending) => (ending, None),
            Err(error) => (Ending::TargetsEnded, Some(error)),
        };
        let stopped = match &mut self.sink.extension {
            Some(extension) => extension.stop().map_err(RecordError::Extension),
            None => Ok(()),
        };
        let finished = self.session.finish(&mut self.sink);
        let disabled_at = self.session.disabled_at().unwrap_or_else(Instant::now);
        let passed = u64::try_from(disabled_at.elapsed().as_nanos()).unwrap_or(0);
        self.span.1 = features::monotonic_time().saturating_sub(passed);
        let sampled_for = self.enabled_at.map_or(Duration::ZERO, |enabled| {
            disabled_at.saturating_duration_since(enabled)
        });
        self.tell_new_notes(observer);
        let outcome = self.complete(ending, sampled_for, observer);
        match failure {
            Some(error) => Err(error),
            None => {
                finished?;
                stopped?;
                outcome
            }
        }
    }

    fn enable(&mut self) -> Result<(), RecordError> {
        // The time is taken before: enabling many threads takes a while, in which the first ones are sampled.
        self.enabled_at = Some(Instant::now());
        self.span.0 = features::monotonic_time();
        self.session.enable()?;
        self.start_extension()
    }

    fn start_extension(&mut self) -> Result<(), RecordError> {
        if self.extension_started {
            return Ok(());
        }
        self.extension_started = true;
        match &mut self.sink.extension {
            Some(extension) => extension.start().map_err(RecordError::Extension),
            None => Ok(()),
        }
    }

    fn write_error(&self, source: WriteError) -> RecordError {
        SinkError::Write(source).of(&self.spec.output)
    }
}

/// Returns whether a command that has just been executed has another user's rights, or may not be read. The kernel
/// ends the events of such a program at its exec, unless whoever opened them may watch all programs.
fn is_kept_from_users(pid: u32) -> bool {
    let folder = format!("/proc/{pid}");
    let own = rustix::process::geteuid().as_raw();
    let is_anothers = std::fs::metadata(&folder).is_ok_and(|found| found.uid() != own);
    let exe = std::fs::metadata(format!("{folder}/exe"));
    is_anothers || exe.is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
}

/// Returns descriptions of the tracepoints, and notes to the observer if they cannot be read.
fn told_tracing_data(events: &[AttachedEvent], observer: &mut dyn Observer) -> Option<Vec<u8>> {
    match features::tracing_data(events)? {
        Ok(bytes) => Some(bytes),
        Err(error) => {
            observer.note(&RecordNote::TracepointsUndescribed(error));
            None
        }
    }
}
