//! The loop of a recording, which takes in records until the recording's end.

use super::{Observer, Recording, TICK};
use crate::RecordNote;
use crate::error::RecordError;
use crate::features;
use crate::file_events::file_indices;
use crate::outcome::{Ending, Progress};
use crate::spec::RecordTarget;
use dioptra_perfdata::WriteError;
use dioptra_perfevents::Running;
use dioptra_processes::command::HeldCommand;
use dioptra_processes::signals::{Received, Signals};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// The longest time that the loop waits with an extension, which learns of new threads from the session's records.
const TICK_OF_EXTENSION: Duration = Duration::from_millis(20);

impl Recording<'_> {
    /// Takes in records until the command or all targets end, a signal comes, or the time is over.
    pub(super) fn follow(
        &mut self,
        begin: Instant,
        mut command: Option<&mut HeldCommand>,
        signals: &mut Signals,
        observer: &mut dyn Observer,
    ) -> Result<Ending, RecordError> {
        let enable_at = begin + self.spec.delay;
        let mut next_tick = begin + TICK;
        loop {
            let mut now = Instant::now();
            if self.enabled_at.is_none() && now >= enable_at {
                self.enable()?;
                now = Instant::now();
            }
            let end_at = self
                .enabled_at
                .zip(self.spec.duration)
                .and_then(|(enabled, duration)| enabled.checked_add(duration));
            self.session.set_deadline(end_at);
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
                // The events are disabled at once, since reading the rest may take a while.
                self.session.disable()?;
                observer.disabled();
                if let Some(command) = command {
                    command.signal(libc::SIGTERM);
                }
                return Ok(Ending::Duration);
            }
            let most = self.spec.most_bytes;
            if most.is_some_and(|most| self.sink.writer.size() >= most) {
                self.session.disable()?;
                observer.disabled();
                if let Some(command) = command {
                    command.signal(libc::SIGTERM);
                }
                return Ok(Ending::Size);
            }
            let mut until = next_tick;
            if self.sink.extension.is_some() {
                until = until.min(now + TICK_OF_EXTENSION);
            }
            if self.enabled_at.is_none() {
                until = until.min(enable_at);
            }
            if let Some(end) = end_at {
                until = until.min(end);
            }
            let timeout = until.saturating_duration_since(now);
            let progress =
                self.session
                    .read_once_with(timeout, &[signals.as_fd()], &mut self.sink)?;
            self.take_in_new_ids(observer)?;
            if let Some(source) = self.sink.take_error() {
                return Err(self.write_error(source));
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
                // The command's own end is waited for: it may outlive its events' last thread by a moment.
                Running::TargetsEnded if self.spec.target != RecordTarget::Command => {
                    return Ok(Ending::TargetsEnded);
                }
                _ => {}
            }
        }
    }

    pub(super) fn tell_new_notes(&mut self, observer: &mut dyn Observer) {
        if let Some(extension) = &mut self.sink.extension {
            for diagnostic in extension.new_diagnostics() {
                observer.note(&RecordNote::Extension(diagnostic));
            }
        }
        let notes = &self.session.attach_summary().notes;
        for note in notes.iter().skip(self.notes_told) {
            observer.note(&RecordNote::Attach(note.clone()));
        }
        self.notes_told = notes.len();
    }

    /// Takes in the ids of events that were opened while recording, on a CPU that came back. No event reported the
    /// tasks that were started there in between, so all tasks are described again.
    pub(super) fn take_in_new_ids(
        &mut self,
        observer: &mut dyn Observer,
    ) -> Result<(), RecordError> {
        let new = self.session.new_ids_since(self.ids_known);
        if new.is_empty() {
            return Ok(());
        }
        let of_file = file_indices(&self.spec, self.session.events());
        for (index, id) in new {
            let Some(index) = of_file.get(*index).copied().flatten() else {
                continue;
            };
            match self.sink.writer.add_ids(index, &[*id]) {
                // The samples are kept, since they are worth more than their event's name.
                Err(WriteError::LateIds { .. }) if !self.late_ids_told => {
                    self.late_ids_told = true;
                    observer.note(&RecordNote::LateIds);
                }
                Err(WriteError::LateIds { .. }) => {}
                other => other.map_err(|source| self.write_error(source))?,
            }
        }
        self.ids_known += new.len();
        match self.spec.target {
            RecordTarget::Machine(_) | RecordTarget::Cgroup { .. } => self
                .write_made(features::monotonic_time(), |synthesizer| {
                    synthesizer.machine()
                }),
            _ => Ok(()),
        }
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
