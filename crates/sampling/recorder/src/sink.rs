//! The sink of a session's records: the file, the list of modules, and an extension.

use crate::error::SinkError;
use crate::extension::RecordExtension;
use crate::features;
use crate::modules::{ModuleBuildId, Modules};
use dioptra_perfdata::{WriteError, Writer, build_id_records};
use dioptra_perfevents::record::{RawRecord, RecordType};
use dioptra_perfevents::{ByteOrder, Cursor, RecordListener};
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A writer of every record as it is. The first error stops all writing and is kept.
pub(crate) struct Sink<'a> {
    pub writer: Writer<File>,
    modules: Modules,
    error: Option<WriteError>,
    /// The number of samples written.
    pub samples: u64,
    /// The number of records lost, as far as LOST records report it.
    pub lost: u64,
    /// The size of the records written in bytes, before compression.
    pub bytes: u64,
    /// The same number of bytes, from which the watchdog sees that the recorder gets on.
    progress: Arc<AtomicU64>,
    /// Whether a module's build id is written before its first mapping: into a pipe, whose reader may be on another
    /// machine and names modules while they come.
    pub names_modules_early: bool,
    /// The extension, whose records go into the same file.
    pub extension: Option<&'a mut dyn RecordExtension>,
}

impl<'a> Sink<'a> {
    pub fn new(
        writer: Writer<File>,
        modules: Modules,
        extension: Option<&'a mut dyn RecordExtension>,
        progress: Arc<AtomicU64>,
    ) -> Sink<'a> {
        Sink {
            writer,
            modules,
            names_modules_early: false,
            extension,
            error: None,
            samples: 0,
            lost: 0,
            bytes: 0,
            progress,
        }
    }

    /// Writes one record.
    #[inline]
    pub fn write(&mut self, bytes: &[u8], record: &RawRecord<'_>) {
        if self.error.is_some() {
            return;
        }
        match record.kind {
            RecordType::SAMPLE => self.samples += 1,
            RecordType::LOST => self.lost += lost_count(record),
            _ => {
                self.modules.see(record);
                if self.names_modules_early {
                    self.name_module();
                }
            }
        }
        if self.error.is_some() {
            return;
        }
        self.bytes += bytes.len() as u64;
        self.progress.store(self.bytes, Ordering::Relaxed);
        if let Err(error) = self.writer.write(bytes) {
            self.error = Some(error);
        }
    }

    /// Writes the build id of the module that was seen last, if that was the first time.
    fn name_module(&mut self) {
        let Some(module) = self.modules.new_build_id() else {
            return;
        };
        let records = build_id_records(&[features::build_id(module)]);
        let written = records.and_then(|bytes| self.writer.write(&bytes));
        match written {
            // The path is too long for such a record: readers take the module for one without a build id.
            Ok(()) | Err(WriteError::TooLong { .. }) => {}
            Err(error) => self.error = Some(error),
        }
    }

    /// Writes a record that we made up.
    pub fn write_made(&mut self, bytes: &[u8]) -> Result<(), SinkError> {
        if let Ok((record, [])) = RawRecord::split(bytes, ByteOrder::NATIVE) {
            self.write(bytes, &record);
        }
        self.take_error()
            .map_or(Ok(()), |error| Err(SinkError::Write(error)))
    }

    /// Takes the error that stopped writing, if there was one.
    pub fn take_error(&mut self) -> Option<WriteError> {
        self.error.take()
    }

    /// Returns the build ids of all mapped modules.
    pub fn build_ids(&self) -> Vec<ModuleBuildId> {
        self.modules.build_ids()
    }
}

impl RecordListener for Sink<'_> {
    fn raw(&mut self, cpu: u32, bytes: &[u8], record: &RawRecord<'_>) {
        self.write(bytes, record);
        if let Some(extension) = &mut self.extension {
            extension.see(cpu, record);
        }
    }

    fn round(&mut self) {
        if self.error.is_some() {
            return;
        }
        let (writer, written) = (&mut self.writer, &mut self.bytes);
        let extended = match &mut self.extension {
            Some(extension) => extension.round(&mut |bytes| {
                *written += bytes.len() as u64;
                writer.write(bytes)
            }),
            None => Ok(()),
        };
        let finished = extended.and_then(|()| self.writer.finished_round());
        self.error = finished.err();
    }

    fn wants_parsed(&self) -> bool {
        false
    }
}

/// Returns the number of records that a LOST record reports.
fn lost_count(record: &RawRecord<'_>) -> u64 {
    let mut at = Cursor::new(record.body, ByteOrder::NATIVE);
    at.u64().and_then(|_id| at.u64()).unwrap_or(0)
}
