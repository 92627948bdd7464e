//! The files of calls: one for each thread, and one for each further call stack of a thread.

use super::super::loss::{Losses, UftraceLossKind};
use super::super::record::{DEPTHS, DataRecord, RECORD_SIZE, RecordKind};
use super::UftraceExportError;
use super::addresses::Addresses;
use dioptra_calls::{Call, CallEnding};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The size in bytes at which records are written out.
const BUFFER: usize = 1 << 17;

/// An open call.
#[derive(Clone, Copy, Debug)]
struct OpenCall {
    address: u64,
    is_deep: bool,
    /// The entry of a call that executes another program, as it must be if the call ends, and its offset in the file.
    execution: Option<(u64, DataRecord)>,
}

/// The file of one task: a thread, or a further call stack of one.
#[derive(Debug)]
pub(super) struct TaskFile {
    path: PathBuf,
    buffer: Vec<u8>,
    /// The number of bytes that are in the file.
    written: u64,
    open: Vec<OpenCall>,
    last: u64,
    /// The number of missing records that is still to be written.
    lost: Option<u64>,
}

/// The things that all files of calls have in common.
pub(super) struct CallSink<'a> {
    pub addresses: &'a Addresses,
    /// True for functions that were called, by id.
    pub called: Vec<bool>,
    pub losses: Losses,
    /// The number of calls that were written.
    pub calls: u64,
}

impl TaskFile {
    /// Returns the file of the task `tid` in `folder`.
    pub fn new(folder: &Path, tid: u32) -> TaskFile {
        TaskFile {
            path: folder.join(format!("{tid}.dat")),
            buffer: Vec::new(),
            written: 0,
            open: Vec::new(),
            last: 0,
            lost: None,
        }
    }

    /// Begins the calls of another program that the thread executes. Calls that are open stay without an end.
    pub fn begin_image(&mut self) {
        self.open.clear();
    }

    /// Writes that a call begins. A call that a forked process inherits has no record of its beginning.
    pub fn enter(
        &mut self,
        sink: &mut CallSink<'_>,
        time: u64,
        call: Call,
        is_inherited: bool,
    ) -> Result<(), UftraceExportError> {
        self.end_gap()?;
        let address = sink.addresses.of(call.function);
        let depth = self.open.len();
        let is_deep = depth >= DEPTHS;
        let failed = sink.addresses.of_failed(call.function);
        let failed = failed.filter(|_| !is_inherited && !is_deep);
        self.open.push(OpenCall {
            address,
            is_deep,
            execution: failed.map(|address| {
                let record = DataRecord {
                    time: time.max(self.last),
                    kind: RecordKind::Entry,
                    has_payload: false,
                    depth: depth as u16,
                    address,
                };
                (self.written + self.buffer.len() as u64, record)
            }),
        });
        if let Some(called) = sink.called.get_mut(call.function as usize) {
            *called = true;
        }
        if is_deep {
            sink.losses.add(UftraceLossKind::DeepCalls);
            return Ok(());
        }
        if address == 0 {
            sink.losses.add(UftraceLossKind::WithoutAddress);
        }
        if is_inherited {
            return Ok(());
        }
        if call.entered.is_none() {
            sink.losses.add(UftraceLossKind::MissingBeginnings);
        }
        sink.calls += 1;
        self.put(sink, RecordKind::Entry, time, depth, address)
    }

    /// Writes that the innermost call ends.
    pub fn leave(
        &mut self,
        sink: &mut CallSink<'_>,
        time: u64,
        ending: CallEnding,
    ) -> Result<(), UftraceExportError> {
        let Some(open) = self.open.pop() else {
            return Ok(());
        };
        match ending {
            // uftrace ends it where the records end, too.
            CallEnding::Open => return Ok(()),
            CallEnding::Unwound(_) => {
                sink.losses.add(UftraceLossKind::Endings);
                self.end_gap()?;
            }
            CallEnding::Missing => sink.losses.add(UftraceLossKind::MissingEnds),
            _ => self.end_gap()?,
        }
        if open.is_deep {
            return Ok(());
        }
        let mut address = open.address;
        if let Some((offset, entry)) = open.execution {
            sink.losses.add(UftraceLossKind::FailedExecutions);
            self.rewrite(offset, entry)?;
            address = entry.address;
        }
        self.put(sink, RecordKind::Exit, time, self.open.len(), address)
    }

    /// Writes a record in place of the one at an offset of the file.
    fn rewrite(&mut self, offset: u64, record: DataRecord) -> Result<(), UftraceExportError> {
        let bytes = record.to_bytes();
        match offset.checked_sub(self.written) {
            Some(place) => {
                let place = place as usize;
                if let Some(there) = self.buffer.get_mut(place..place + RECORD_SIZE) {
                    there.copy_from_slice(&bytes);
                }
                Ok(())
            }
            None => {
                let file = File::options().write(true).open(&self.path);
                let written = file.and_then(|file| file.write_all_at(&bytes, offset));
                written.map_err(|source| UftraceExportError::write(&self.path, source))
            }
        }
    }

    /// Notes that records are missing. The calls whose ends are among them end first.
    pub fn lose(&mut self, records: u64) -> Result<(), UftraceExportError> {
        self.end_gap()?;
        self.lost = Some(records);
        Ok(())
    }

    fn end_gap(&mut self) -> Result<(), UftraceExportError> {
        let Some(records) = self.lost.take() else {
            return Ok(());
        };
        let record = DataRecord {
            time: 0,
            kind: RecordKind::Lost,
            has_payload: false,
            depth: 0,
            address: records,
        };
        self.append(record)
    }

    fn put(
        &mut self,
        sink: &mut CallSink<'_>,
        kind: RecordKind,
        time: u64,
        depth: usize,
        address: u64,
    ) -> Result<(), UftraceExportError> {
        if time < self.last {
            sink.losses.add(UftraceLossKind::EarlyRecords);
        }
        self.last = self.last.max(time);
        self.append(DataRecord {
            time: self.last,
            kind,
            has_payload: false,
            depth: depth as u16,
            address,
        })
    }

    fn append(&mut self, record: DataRecord) -> Result<(), UftraceExportError> {
        self.buffer.extend(record.to_bytes());
        match self.buffer.len() >= BUFFER {
            true => self.flush(),
            false => Ok(()),
        }
    }

    /// Writes what is left at the end of the thread.
    pub fn finish(&mut self) -> Result<(), UftraceExportError> {
        self.end_gap()?;
        self.flush()
    }

    // The file is open only while it is written to: a program may have any number of call stacks.
    fn flush(&mut self) -> Result<(), UftraceExportError> {
        let mut file = File::options();
        let file = file.append(true).create(true).open(&self.path);
        let written = file.and_then(|mut file| file.write_all(&self.buffer));
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        written.map_err(|source| UftraceExportError::write(&self.path, source))
    }
}
