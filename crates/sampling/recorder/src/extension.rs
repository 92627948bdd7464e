//! The seam for crates that record more than samples: events of their own beside the session's.

use dioptra_perfdata::{Feature, GroupDescription, WriteError};
use dioptra_perfevents::record::RawRecord;
use dioptra_perfevents::{
    AttachNote, AttachedEvent, EventGroup, EventSummary, SampleType, SessionSpec,
};
use std::error::Error;
use std::io;
use std::path::Path;

/// An error or a diagnostic of an extension.
pub type ExtensionError = Box<dyn Error + Send + Sync>;

/// An extension of a recording, which opens events of its own beside the session, and adds their records and a
/// feature section to the file.
///
/// The recorder calls [`attach`](Self::attach) once the session's events are open, [`start`](Self::start) when they are
/// enabled, [`round`](Self::round) whenever it reads rings, [`stop`](Self::stop) at the end, then `round` once more,
/// [`section`](Self::section), and [`complete`](Self::complete) when the file is complete.
pub trait RecordExtension {
    /// Returns events that the session counts over the whole target and run, without samples. The file does not
    /// describe them; [`section`](Self::section) gets their counts.
    fn counted_groups(&self) -> Vec<EventGroup>;

    /// Opens the extension's events.
    ///
    /// # Errors
    /// The recording fails with this error.
    fn attach(&mut self, to: &ExtensionTarget<'_>) -> Result<(), ExtensionError>;

    /// Returns the events as the file describes them, with the ids known so far.
    fn events(&self) -> &[AttachedEvent];

    /// Returns the descriptions of the events' groups. Indices count the file's events; the session's events come
    /// first.
    fn group_descriptions(&self) -> Vec<GroupDescription>;

    /// Enables the events.
    ///
    /// # Errors
    /// The recording fails with this error.
    fn start(&mut self) -> Result<(), ExtensionError>;

    /// Disables the events. Their last records come with the next round.
    ///
    /// # Errors
    /// The recording is completed, and fails with this error.
    fn stop(&mut self) -> Result<(), ExtensionError>;

    /// Looks at a record of the session, read from the ring of a CPU.
    fn see(&mut self, cpu: u32, record: &RawRecord<'_>);

    /// Writes the records since the last round.
    ///
    /// # Errors
    /// The first error of `write`.
    fn round(
        &mut self,
        write: &mut dyn FnMut(&[u8]) -> Result<(), WriteError>,
    ) -> Result<(), WriteError>;

    /// Returns the diagnostics that it has not returned before.
    fn new_diagnostics(&mut self) -> Vec<ExtensionError>;

    /// Returns the extension's feature section.
    ///
    /// # Errors
    /// The section cannot be made. The recording fails; records written before can be read.
    fn section(&mut self, end: &RecordingEnd<'_>) -> io::Result<(Feature, Vec<u8>)>;

    /// Returns the number of records for which its rings had no room.
    fn lost(&self) -> u64;

    /// Removes files that are needed only if the recorder is killed. The recording's file is complete by now.
    fn complete(&mut self);
}

/// The recording for which an extension opens its events.
pub struct ExtensionTarget<'a> {
    /// The session, as it was asked for.
    pub session: &'a SessionSpec,
    /// Whether threads and processes that the target starts are recorded.
    pub inherit: bool,
    /// Fields of samples besides ids, address, time and counts: [`SampleType::CALLCHAIN`], [`SampleType::REGS_USER`].
    pub samples: SampleType,
    /// The recording's file; `None` for a pipe, which names all ids at its start.
    pub file: Option<&'a Path>,
    /// The file's events so far.
    pub events: &'a [AttachedEvent],
    /// The diagnostics of the session's events.
    pub diagnostics: &'a [AttachNote],
}

/// The facts that are known at a recording's end.
pub struct RecordingEnd<'a> {
    /// The events of [`RecordExtension::counted_groups`].
    pub counted: Vec<CountedEvent<'a>>,
    /// Whether the target is tasks, not CPUs.
    pub of_threads: bool,
    /// The times at which the events were enabled and disabled, in nanoseconds of their clock.
    pub span: (u64, u64),
}

/// An event that was counted over the whole run.
pub struct CountedEvent<'a> {
    /// The event.
    pub event: &'a AttachedEvent,
    /// Its count and times.
    pub total: &'a EventSummary,
}
