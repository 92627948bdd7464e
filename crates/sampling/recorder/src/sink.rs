//! Where a session's records go: into the file, and past those who take note of some.

use crate::error::SinkError;
use crate::extension::RecordExtension;
use crate::modules::{ModuleBuildId, Modules};
use dioptra_perfdata::{WriteError, Writer};
use dioptra_perfevents::record::{RawRecord, RecordType};
use dioptra_perfevents::{ByteOrder, Cursor, RecordListener};
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Writes every record as it is. The first error stops all writing and is kept.
pub(crate) struct Sink<'a> {
    pub writer: Writer<File>,
    modules: Modules,
    error: Option<WriteError>,
    /// Samples written.
    pub samples: u64,
    /// Records lost, as far as LOST records tell.
    pub lost: u64,
    /// Bytes of records written, before compression.
    pub bytes: u64,
    /// The bytes, for those who watch whether the recorder gets on.
    progress: Arc<AtomicU64>,
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
            _ => self.modules.see(record),
        }
        self.bytes += bytes.len() as u64;
        self.progress.store(self.bytes, Ordering::Relaxed);
        if let Err(error) = self.writer.write(bytes) {
            self.error = Some(error);
        }
    }

    /// Writes a record of our own making.
    pub fn write_made(&mut self, bytes: &[u8]) -> Result<(), SinkError> {
        if let Ok((record, [])) = RawRecord::split(bytes, ByteOrder::NATIVE) {
            self.write(bytes, &record);
        }
        self.take_error()
            .map_or(Ok(()), |error| Err(SinkError::Write(error)))
    }

    /// The error that stopped writing, if one did.
    pub fn take_error(&mut self) -> Option<WriteError> {
        self.error.take()
    }

    /// Build ids of what was mapped.
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

/// How many records a LOST record tells of.
fn lost_count(record: &RawRecord<'_>) -> u64 {
    let mut at = Cursor::new(record.body, ByteOrder::NATIVE);
    at.u64().and_then(|_id| at.u64()).unwrap_or(0)
}
