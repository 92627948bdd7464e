//! A pipe's records while its recording goes on.
//!
//! The bytes of a pipe come in pieces. [`LiveRecords`] holds the records of two rounds at most, as reading a file does,
//! and passes on the ones whose turn has come.

use super::FileRecord;
use super::queue::{Emitter, Found, Packed, Queue, RecordOffset};
use super::unpack::{Unpacker, is_compressed};
use crate::error::OpenError;
use crate::events::EventTable;
use crate::features::Features;
use crate::header::{Header, MAGIC_SIZE, PIPE_HEADER_SIZE, check_magic};
use crate::kind::file_type;
use crate::pipe::{PipeHeader, scan};
use crate::recording::PerfData;
use crate::summary::ReadSummary;
use crate::walk::{Stop, is_ordinary, step};
use dioptra_perfrecords::record::{RawRecord, RecordType};
use std::fmt;
use std::io::{ErrorKind, Read};
use std::ops::ControlFlow;

/// The number of bytes that are read at once: as many as a pipe holds.
const CHUNK: usize = 64 << 10;

/// The number of bytes that may wait for the end of their round. A live reader of a recorder that ends no rounds loses the
/// order of time beyond that, but no record.
pub(super) const MOST_HELD: usize = 64 << 20;

/// The largest head of a recording, in bytes: the descriptions of its events and of tracepoints.
const MOST_HEAD: usize = 256 << 20;

/// The name of the pipe in errors.
pub(super) const NAME: &str = "standard input";

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
pub struct LiveRecords {
    /// The bytes from the oldest record that waits.
    pub(super) held: Vec<u8>,
    /// The place into which bytes are read.
    chunk: Box<[u8]>,
    /// The number of bytes of the stream before the held ones.
    pub(super) before: u64,
    /// The first held byte that was not looked at.
    pub(super) at: usize,
    pub(super) queue: Queue,
    pub(super) unpacker: Unpacker,
    pub(super) summary: ReadSummary,
    /// The descriptions of the recording so far.
    pub(super) header: PipeHeader,
    pub(super) ended: bool,
}

impl fmt::Debug for LiveRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveRecords")
            .field("held", &self.held.len())
            .field("before", &self.before)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

/// A recording from a stream, as far as it had to be read to know its events.
#[derive(Debug)]
pub enum Streamed {
    /// A recording in the form of a pipe: its head, and the records that follow.
    Pipe(Box<PerfData>, Box<LiveRecords>),
    /// A recording in the form of a file, which was read to its end.
    Whole(Box<PerfData>),
}

impl Streamed {
    /// Reads the start of a recording from a stream.
    ///
    /// # Errors
    /// [`OpenError`] if the stream cannot be read, or holds no recording.
    pub fn open(stream: &mut impl Read) -> Result<Streamed, OpenError> {
        let mut first = Vec::new();
        let mut start = stream.by_ref().take(MAGIC_SIZE);
        let read = start.read_to_end(&mut first);
        read.map_err(|reason| OpenError::Io {
            name: NAME.to_owned(),
            reason,
        })?;
        let is_pipe = first.len() == PIPE_HEADER_SIZE
            && matches!(Header::read(&first, NAME), Ok(Header::Pipe { .. }));
        let mut whole = (&*first).chain(stream);
        if is_pipe {
            let (recording, records) = LiveRecords::open(&mut whole)?;
            return Ok(Streamed::Pipe(Box::new(recording), Box::new(records)));
        }
        let recording = PerfData::from_reader(whole)?;
        Ok(Streamed::Whole(Box::new(recording)))
    }
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
        let mut head = Head::default();
        loop {
            if head.is_whole(&bytes)? {
                break;
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
                // The recording ends with its head, or within it.
                Ok(0) => break,
                Ok(_) => {}
                Err(reason) => {
                    return Err(OpenError::Io {
                        name: NAME.to_owned(),
                        reason,
                    });
                }
            }
        }
        let end = head.end.unwrap_or(head.seen).min(bytes.len());
        let start = PIPE_HEADER_SIZE.min(end);
        // Shows what is wrong with a header that is cut off.
        Header::read(&bytes, NAME)?;
        let order = check_magic(&bytes, NAME)?;
        let header = scan(&bytes, start..end, order);
        // Names of events may stand behind the first mappings.
        let described = scan(&bytes, start..head.seen.max(end), order);
        let held = bytes.split_off(end);
        let recording = PerfData::of_head(bytes, start, order, described);
        // Counts the records of the head. Damage of descriptions is added at the end.
        let mut summary = recording.read(|_| ControlFlow::Continue(()));
        (summary.damaged, summary.damages) = (Vec::new(), 0);
        let level = header
            .features
            .compressed
            .map(|compressed| compressed.level);
        let records = LiveRecords {
            held,
            chunk,
            before: end as u64,
            at: 0,
            queue: Queue::new(),
            unpacker: Unpacker::new(0, level),
            summary,
            header,
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
        let read = self.read_more(pipe)?;
        self.take(recording, &mut visit, None);
        if read == 0 {
            self.end(recording, &mut visit);
        }
        Ok(read != 0)
    }

    /// Returns the counts and losses of the records so far.
    pub fn summary(&self) -> &ReadSummary {
        &self.summary
    }

    /// Returns the description of the recording and its machine so far. Parts of it come at the recording's end.
    pub fn features(&self) -> &Features {
        &self.header.features
    }

    /// Appends some bytes of the pipe to the held ones. Returns their number, 0 at the pipe's end.
    pub(super) fn read_more(&mut self, pipe: &mut impl Read) -> std::io::Result<usize> {
        let read = read_chunk(pipe, &mut self.chunk, &mut self.held)?;
        self.unpacker.allow(self.before + self.held.len() as u64);
        Ok(read)
    }

    /// Looks at all whole records that are held.
    ///
    /// A reader with `stops` needs the order of a file. For that the rest of the pipe must be read first where there is
    /// damage, where too much is held, and at a record of which `stops` says so: true is returned there. A reader
    /// without `stops` is a live one, and does not wait.
    pub(super) fn take(
        &mut self,
        recording: &PerfData,
        visit: &mut impl FnMut(FileRecord<'_>),
        mut stops: Option<&mut dyn FnMut(&RawRecord<'_>) -> bool>,
    ) -> bool {
        let table = recording.table();
        let order = table.order();
        let is_live = stops.is_none();
        let mut visit = |record: FileRecord<'_>| -> ControlFlow<()> {
            visit(record);
            ControlFlow::Continue(())
        };
        let mut has_passed = false;
        while !self.ended {
            let place = self.before + self.at as u64;
            let found = match step(&self.held, self.at, order) {
                Ok(found) if is_ordinary(&found.raw) || is_live => found,
                // The rest of the record is still to come.
                Err(Stop::End) => break,
                Err(Stop::Cut { needed, .. }) if !is_live || needed < MOST_HELD as u64 => break,
                _ if !is_live => return true,
                Ok(_) => break,
                Err(stop) => {
                    self.summary.damage(place, stop.why().unwrap_or_default());
                    self.summary.stopped_at = Some(place);
                    self.ended = true;
                    break;
                }
            };
            if let Some(stops) = &mut stops
                && stops(&found.raw)
            {
                return true;
            }
            let next = found.next;
            self.header.see(&found.raw, found.trailing, place, order);
            if is_compressed(found.raw.kind) {
                let mut packed = Packed {
                    raw: &found.raw,
                    offset: place,
                    order,
                    queue: &mut self.queue,
                    unpacker: &mut self.unpacker,
                };
                let stops = |raw: &RawRecord<'_>| stops.as_mut().is_some_and(|stops| stops(raw));
                let taken = packed.take(table, &mut self.summary, &mut visit, |why| why, stops);
                if taken == ControlFlow::Continue(true) {
                    self.at = next;
                    return true;
                }
            } else {
                let is_round = found.raw.kind == file_type::FINISHED_ROUND;
                let found = Found {
                    offset: place,
                    place: RecordOffset::in_stream(place),
                    step: &found,
                };
                let _: ControlFlow<()> =
                    found.sort_in(&mut self.queue, table, &mut self.summary, &mut visit);
                if is_round {
                    self.queue.finish_round();
                }
            }
            self.at = next;
            if self.queue.ready > 0 {
                self.pass_on(table, &mut visit);
                has_passed = true;
            }
        }
        if self.held.len() > MOST_HELD {
            if !is_live {
                return true;
            }
            self.queue.release(u64::MAX);
            self.pass_on(table, &mut visit);
            has_passed = true;
        }
        if has_passed || self.queue.waiting.is_empty() {
            self.forget_passed();
        }
        false
    }

    /// Passes on everything that waits.
    pub(super) fn end(&mut self, recording: &PerfData, visit: &mut impl FnMut(FileRecord<'_>)) {
        self.queue.release(u64::MAX);
        self.pass_on(recording.table(), &mut |record| {
            visit(record);
            ControlFlow::Continue(())
        });
        let place = self.before + self.at as u64;
        if !self.ended && self.at < self.held.len() {
            self.summary.damage(place, "the pipe ends within a record");
            self.summary.salvaged = true;
        }
        if self.unpacker.has_unread() {
            let why = "the compressed data ends within a record";
            self.summary.damage(place, why);
            self.summary.salvaged = true;
        }
        self.ended = true;
    }

    /// Passes on the records that are ready.
    fn pass_on(
        &mut self,
        table: &EventTable,
        visit: &mut impl FnMut(FileRecord<'_>) -> ControlFlow<()>,
    ) {
        let mut emitter = Emitter {
            bytes: &self.held,
            base: self.before,
            order: table.order(),
            queue: &mut self.queue,
            unpacker: &self.unpacker,
            table,
            summary: &mut self.summary,
        };
        let _: ControlFlow<()> = emitter.emit_until(u64::MAX, visit);
        self.queue.discard();
        if !self.unpacker.is_unused() {
            self.unpacker.discard_before(self.queue.oldest_unpacked());
        }
    }

    /// Frees the bytes of records that were passed on.
    fn forget_passed(&mut self) {
        // Moving the rest costs as much as it has bytes.
        if self.at < CHUNK {
            return;
        }
        let keep = self.queue.oldest_packed().map_or(self.at, |oldest| {
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

/// The search for the end of a recording's head.
#[derive(Default)]
struct Head {
    /// The first record that does not describe the recording, once it has come.
    end: Option<usize>,
    /// The end of the records that were looked at.
    seen: usize,
}

impl Head {
    /// Looks at the records that have come. Returns whether all descriptions of events have: records of tasks and mappings
    /// may stand between them, but none of the data.
    fn is_whole(&mut self, bytes: &[u8]) -> Result<bool, OpenError> {
        if bytes.len() < PIPE_HEADER_SIZE {
            return Ok(false);
        }
        let Header::Pipe { order, size } = Header::read(bytes, NAME)? else {
            return Err(OpenError::NotAPipe {
                name: NAME.to_owned(),
            });
        };
        self.seen = self.seen.max(size as usize);
        loop {
            let found = match step(bytes, self.seen, order) {
                Ok(found) if is_ordinary(&found.raw) => found,
                Err(Stop::End | Stop::Cut { .. }) => {
                    // Enough is held to go on without.
                    let length = bytes.len() - self.end.unwrap_or(bytes.len());
                    return Ok(length > MOST_HELD / 2);
                }
                Ok(_) | Err(Stop::Size { .. }) => {
                    self.end.get_or_insert(self.seen);
                    return Ok(true);
                }
            };
            if !describes(found.raw.kind) {
                self.end.get_or_insert(self.seen);
            }
            if is_data(found.raw.kind) {
                return Ok(true);
            }
            self.seen = found.next;
        }
    }
}

/// Returns whether records of this type come behind all descriptions of events.
fn is_data(kind: RecordType) -> bool {
    kind == RecordType::SAMPLE
        || is_compressed(kind)
        || [
            file_type::FINISHED_INIT,
            file_type::FINISHED_ROUND,
            file_type::AUXTRACE,
        ]
        .contains(&kind)
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
