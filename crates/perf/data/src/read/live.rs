//! A pipe's records while its recording goes on.
//!
//! The bytes of a pipe come in pieces. [`LiveRecords`] holds the records of two rounds at most, as reading a file does,
//! and passes on the ones whose turn has come.

use super::FileRecord;
use super::stream::{Found, Queue, RecordOffset, Waiting, find};
use super::unpack::is_compressed;
use crate::error::OpenError;
use crate::events::EventTable;
use crate::kind::file_type;
use crate::recording::PerfData;
use crate::summary::ReadSummary;
use crate::walk::{Stop, step};
use dioptra_perfrecords::record::{RawRecord, RecordType};
use std::io::{ErrorKind, Read};
use std::ops::ControlFlow;

/// The number of bytes that are read at once: as many as a pipe holds.
const CHUNK: usize = 64 << 10;

/// The number of bytes that may wait for the end of their round. A recorder that ends no rounds loses the order of time
/// beyond that, but no record.
const MOST_HELD: usize = 64 << 20;

/// The largest head of a recording, in bytes: the descriptions of its events and of tracepoints.
const MOST_HEAD: usize = 256 << 20;

/// The name of the pipe in errors.
const NAME: &str = "the pipe";

/// The records of a recording that is still being written to a pipe, in the order of time across CPUs.
///
/// ```no_run
/// # use dioptra_perfdata::LiveRecords;
/// let mut pipe = std::io::stdin().lock();
/// let (recording, mut records) = LiveRecords::open(&mut pipe)?;
/// while records.read_from(&mut pipe, &recording, |record| println!("{:?}", record.time))? {
///     // Here the recording can be looked at, as far as it has come.
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct LiveRecords {
    /// The bytes from the oldest record that waits.
    held: Vec<u8>,
    /// The place into which bytes are read.
    chunk: Box<[u8]>,
    /// The number of bytes of the stream before the held ones.
    before: u64,
    /// The first held byte that was not looked at.
    at: usize,
    queue: Queue,
    summary: ReadSummary,
    ended: bool,
}

impl LiveRecords {
    /// Reads the head of a recording from a pipe, up to the first record of its data. Returns the recording, which has
    /// events and features but no records, and the records that follow.
    ///
    /// # Errors
    /// [`OpenError`] if the pipe cannot be read, or holds no recording.
    pub fn open(pipe: &mut impl Read) -> Result<(PerfData, LiveRecords), OpenError> {
        let mut bytes = Vec::new();
        let mut chunk = vec![0; CHUNK].into_boxed_slice();
        let mut at = None;
        let end = loop {
            if let Some(end) = end_of_head(&bytes, &mut at)? {
                break end;
            }
            if bytes.len() > MOST_HEAD {
                return Err(OpenError::Header {
                    name: NAME.to_owned(),
                    offset: bytes.len() as u64,
                    what: "the descriptions of events have no end",
                });
            }
            match read_chunk(pipe, &mut chunk, &mut bytes) {
                Ok(0) if bytes.is_empty() => {
                    return Err(OpenError::Empty {
                        name: NAME.to_owned(),
                    });
                }
                // The recording ends with its head.
                Ok(0) => break bytes.len(),
                Ok(_) => {}
                Err(reason) => {
                    return Err(OpenError::Io {
                        name: NAME.to_owned(),
                        reason,
                    });
                }
            }
        };
        let held = bytes.split_off(end);
        let recording = PerfData::from_bytes(bytes)?;
        let mut summary = ReadSummary::default();
        summary.samples.resize(recording.events().len(), 0);
        let records = LiveRecords {
            held,
            chunk,
            before: end as u64,
            at: 0,
            queue: Queue::new(),
            summary,
            ended: false,
        };
        Ok((recording, records))
    }

    /// Waits for more bytes and passes the records on whose turn has come. At the end of the pipe it passes on all that
    /// wait, and returns false.
    ///
    /// # Errors
    /// If the pipe cannot be read.
    pub fn read_from(
        &mut self,
        pipe: &mut impl Read,
        recording: &PerfData,
        mut visit: impl FnMut(FileRecord<'_>),
    ) -> std::io::Result<bool> {
        let read = read_chunk(pipe, &mut self.chunk, &mut self.held)?;
        self.take(recording, &mut visit);
        if read == 0 {
            self.end(recording, &mut visit);
        }
        Ok(read != 0)
    }

    /// Returns the counts and losses of the records so far.
    pub fn summary(&self) -> &ReadSummary {
        &self.summary
    }

    /// Looks at all whole records that are held.
    fn take(&mut self, recording: &PerfData, visit: &mut impl FnMut(FileRecord<'_>)) {
        let table = recording.table();
        while !self.ended {
            let place = self.before + self.at as u64;
            let found = match step(&self.held, self.at, table.order()) {
                Ok(found) => found,
                // The rest of the record is still to come.
                Err(Stop::End | Stop::Cut { .. }) => break,
                Err(stop @ Stop::Size { .. }) => {
                    self.summary.damage(place, stop.why().unwrap_or_default());
                    self.summary.stopped_at = Some(place);
                    self.ended = true;
                    break;
                }
            };
            if is_compressed(found.raw.kind) {
                self.summary.records.add(found.raw.kind);
                self.summary.skipped += 1;
            } else {
                let found = Found {
                    offset: place,
                    place: RecordOffset::in_stream(place),
                    step: &found,
                };
                let _: ControlFlow<()> =
                    found.sort_in(&mut self.queue, table, &mut self.summary, &mut |record| {
                        visit(record);
                        ControlFlow::Continue(())
                    });
            }
            self.at = found.next;
            if found.raw.kind == file_type::FINISHED_ROUND {
                self.queue.finish_round();
                self.pass_on(table, visit);
            }
        }
        if self.held.len() > MOST_HELD {
            self.queue.release(u64::MAX);
            self.pass_on(table, visit);
        }
        self.forget_passed();
    }

    /// Passes on everything that waits.
    fn end(&mut self, recording: &PerfData, visit: &mut impl FnMut(FileRecord<'_>)) {
        self.queue.release(u64::MAX);
        self.pass_on(recording.table(), visit);
        if !self.ended && self.at < self.held.len() {
            let place = self.before + self.at as u64;
            self.summary.damage(place, "the pipe ends within a record");
            self.summary.salvaged = true;
        }
        self.ended = true;
    }

    /// Passes on the records that are ready.
    fn pass_on(&mut self, table: &EventTable, visit: &mut impl FnMut(FileRecord<'_>)) {
        for index in self.queue.passed..self.queue.ready {
            let Waiting { time, place } = self.queue.waiting[index];
            if time < self.queue.emitted {
                self.summary.out_of_order += 1;
            }
            self.queue.emitted = self.queue.emitted.max(time);
            let offset = place.stream_position();
            // Bytes are held until their record was passed on, and were read as a record before.
            let held = offset.checked_sub(self.before);
            let bytes = held.and_then(|held| self.held.get(usize::try_from(held).ok()?..));
            let record = bytes.map(|bytes| RawRecord::split(bytes, table.order()));
            let Some(Ok((raw, _))) = record else {
                continue;
            };
            visit(FileRecord {
                offset,
                raw,
                trailing: &[],
                event: find(&raw, table, &mut self.summary),
                time: Some(time),
            });
        }
        self.queue.passed = self.queue.ready;
        self.queue.discard();
    }

    /// Frees the bytes of records that were passed on.
    fn forget_passed(&mut self) {
        // Moving the rest costs as much as it has bytes.
        if self.at < CHUNK {
            return;
        }
        let waiting = self.queue.waiting.iter();
        let oldest = waiting.map(|waiting| waiting.place.stream_position()).min();
        let keep = oldest.map_or(self.at, |oldest| {
            usize::try_from(oldest - self.before).map_or(self.at, |oldest| oldest.min(self.at))
        });
        if keep * 2 >= self.held.len() {
            self.held.drain(..keep);
            self.before += keep as u64;
            self.at -= keep;
        }
    }
}

/// Appends some bytes of the pipe; none at its end.
fn read_chunk(
    pipe: &mut impl Read,
    chunk: &mut [u8],
    bytes: &mut Vec<u8>,
) -> std::io::Result<usize> {
    loop {
        match pipe.read(chunk) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Ok(read) => {
                bytes.extend_from_slice(&chunk[..read]);
                return Ok(read);
            }
            error => return error,
        }
    }
}

/// Returns the end of a recording's head: the first record that does not describe the recording. `None` if it has not come
/// yet. `at` is where the search goes on.
fn end_of_head(bytes: &[u8], at: &mut Option<usize>) -> Result<Option<usize>, OpenError> {
    use crate::header::{Header, PIPE_HEADER_SIZE};
    if bytes.len() < PIPE_HEADER_SIZE {
        return Ok(None);
    }
    let Header::Pipe { order, size } = Header::read(bytes, NAME)? else {
        return Err(OpenError::Header {
            name: NAME.to_owned(),
            offset: 8,
            what: "it is a file's header, not a pipe's",
        });
    };
    let at = at.get_or_insert(size as usize);
    loop {
        match step(bytes, *at, order) {
            Ok(found) if describes(found.raw.kind) => *at = found.next,
            Err(Stop::End | Stop::Cut { .. }) => return Ok(None),
            Ok(_) | Err(Stop::Size { .. }) => return Ok(Some(*at)),
        }
    }
}

/// Returns whether records of this type are about the recording as a whole.
fn describes(kind: RecordType) -> bool {
    matches!(
        kind,
        file_type::HEADER_ATTR
            | file_type::EVENT_TYPE
            | file_type::TRACING_DATA
            | file_type::BUILD_ID
            | file_type::EVENT_UPDATE
            | file_type::HEADER_FEATURE
            | file_type::ID_INDEX
            | file_type::THREAD_MAP
            | file_type::CPU_MAP
            | file_type::TIME_CONV
    )
}
