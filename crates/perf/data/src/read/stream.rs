//! One file's records: taken round by round, put in order, passed on.

use super::queue::{
    AHEAD_BYTES, Emitter, Found, Packed, Queue, RecordOffset, prefetch, take_unpacked,
};
use super::unpack::{Unpacker, is_compressed};
use super::{FileRecord, Input};
use crate::events::EventTable;
use crate::kind::file_type;
use crate::source::Source;
use crate::summary::ReadSummary;
use crate::walk::{Next, Step, Stop, Walk, is_ordinary, step};
use dioptra_perfrecords::ByteOrder;
use dioptra_perfrecords::record::RawRecord;
use std::ops::ControlFlow;

/// Bytes of a mapped file that are passed before their memory is given back.
const RELEASE: usize = 16 << 20;
/// Bytes of a mapped file whose memory is kept behind what was passed on, for who still looks at it.
pub(crate) const KEPT: usize = 12 << 20;

/// One file while it is read.
pub(super) struct Stream<'d> {
    name: Option<&'d str>,
    source: &'d Source,
    bytes: &'d [u8],
    /// The number of bytes of the recording before `bytes`: of a pipe whose beginning was read before.
    base: u64,
    order: ByteOrder,
    walk: Walk<'d>,
    at: usize,
    /// The file up to here was given back.
    released: usize,
    ended: bool,
    /// Whether whole records were unpacked and not read before the stream was resumed.
    has_unread: bool,
    queue: Queue,
    unpacker: Unpacker,
}

/// The beginning of the messages that perf writes to standard error.
const MESSAGE: &[u8] = b"[ perf record: ";

impl<'d> Stream<'d> {
    pub fn new(input: &Input<'d>, order: ByteOrder) -> Self {
        Stream {
            name: input.name,
            source: input.source,
            bytes: input.bytes,
            base: 0,
            order,
            walk: Walk::new(input.bytes, input.start, order),
            at: input.start,
            released: 0,
            ended: false,
            has_unread: false,
            queue: Queue::new(),
            unpacker: Unpacker::new(input.bytes.len(), input.level),
        }
    }

    /// Goes on with a pipe whose first `base` bytes were read before: `queue` has the records that wait, and `unpacker`
    /// what was unpacked. `at` is the first byte of `source` that was not read as a record.
    pub fn resume(
        (source, base, at): (&'d Source, u64, usize),
        order: ByteOrder,
        queue: Queue,
        unpacker: Unpacker,
    ) -> Self {
        let start = Stream::start(base);
        Stream {
            name: None,
            source,
            bytes: source,
            base,
            order,
            walk: Walk::new(source, start, order),
            at,
            released: 0,
            ended: false,
            has_unread: unpacker.has_unread(),
            queue,
            unpacker,
        }
    }

    /// Returns the start of a walk over a pipe from its byte `base` on: whole words are counted from the pipe's start.
    pub fn start(base: u64) -> usize {
        base.wrapping_neg() as usize % 8
    }

    /// Returns the place of the byte `at` in the recording.
    #[inline]
    fn place(&self, at: usize) -> u64 {
        self.base + at as u64
    }

    /// The time of the next record that is ready.
    pub fn next_time(&self) -> Option<u64> {
        self.queue.next_time()
    }

    /// Reads on until records are ready; false when there will be none any more.
    ///
    /// Records without a time are passed on at once.
    pub fn fill<F>(
        &mut self,
        table: &EventTable,
        summary: &mut ReadSummary,
        visit: &mut F,
    ) -> ControlFlow<(), bool>
    where
        F: FnMut(FileRecord<'_>) -> ControlFlow<()>,
    {
        self.queue.discard();
        if !self.unpacker.is_unused() {
            let oldest = self.queue.oldest_unpacked();
            self.unpacker.discard_before(oldest);
        }
        if std::mem::take(&mut self.has_unread) {
            let (queue, unpacker) = (&mut self.queue, &mut self.unpacker);
            let at = (unpacker.last_origin(), self.order);
            take_unpacked(
                queue,
                unpacker,
                at,
                table,
                summary,
                visit,
                |why| why,
                |_| false,
            )?;
        }
        if self.at - self.released >= RELEASE + KEPT {
            self.release();
        }
        while !self.ended {
            match step(self.bytes, self.at, self.order) {
                Ok(found) if is_ordinary(&found.raw) => {
                    self.take(&found, table, summary, visit)?;
                }
                _ => self.take_doubtful(table, summary, visit)?,
            }
            if self.queue.ready > 0 {
                return ControlFlow::Continue(true);
            }
        }
        self.queue.release(u64::MAX);
        ControlFlow::Continue(self.queue.ready > 0)
    }

    /// Takes a record as few are, passes over bytes that are none, or ends.
    #[cold]
    fn take_doubtful<F>(
        &mut self,
        table: &EventTable,
        summary: &mut ReadSummary,
        visit: &mut F,
    ) -> ControlFlow<()>
    where
        F: FnMut(FileRecord<'_>) -> ControlFlow<()>,
    {
        let next = match self.source.has_faulted() {
            false => self.walk.next(self.at),
            // Zeroes follow.
            true => Next::Stop(Stop::End),
        };
        match next {
            Next::Gap { .. } if self.source.has_faulted() => self.ended = true,
            Next::Record(found) => self.take(&found, table, summary, visit)?,
            Next::Gap { .. } | Next::Stop(_) if self.is_at_message() => {
                summary.message_bytes += (self.bytes.len() - self.at) as u64;
                self.at = self.bytes.len();
                self.end(Stop::End, summary);
            }
            Next::Gap { to } => {
                let length = to - self.at;
                let goes_on = self.place(to);
                let why =
                    format!("{length} bytes are no records; reading goes on at offset {goes_on}");
                summary.damage(self.place(self.at), self.tell(why));
                summary.skipped_bytes += length as u64;
                self.at = to;
                self.queue.break_off();
            }
            Next::Stop(stop) => self.end(stop, summary),
        }
        ControlFlow::Continue(())
    }

    /// Takes one record of the file.
    #[inline]
    fn take<F>(
        &mut self,
        found: &Step<'_>,
        table: &EventTable,
        summary: &mut ReadSummary,
        visit: &mut F,
    ) -> ControlFlow<()>
    where
        F: FnMut(FileRecord<'_>) -> ControlFlow<()>,
    {
        let at = self.at;
        self.at = found.next;
        // The walk from header to header is too irregular for the CPU to foresee.
        prefetch(self.bytes, at + AHEAD_BYTES);
        let offset = self.place(at);
        if is_compressed(found.raw.kind) {
            return self.unpack(&found.raw, offset, table, summary, visit);
        }
        let found = Found {
            offset,
            step: found,
            place: RecordOffset::in_stream(offset),
        };
        found.sort_in(&mut self.queue, table, summary, visit)?;
        if found.step.raw.kind == file_type::FINISHED_ROUND {
            self.queue.finish_round();
        }
        ControlFlow::Continue(())
    }

    /// Unpacks the compressed record at `offset` and takes the whole records in it.
    fn unpack<F>(
        &mut self,
        raw: &RawRecord<'_>,
        offset: u64,
        table: &EventTable,
        summary: &mut ReadSummary,
        visit: &mut F,
    ) -> ControlFlow<()>
    where
        F: FnMut(FileRecord<'_>) -> ControlFlow<()>,
    {
        let name = self.name;
        let mut packed = Packed {
            raw,
            offset,
            order: self.order,
            queue: &mut self.queue,
            unpacker: &mut self.unpacker,
        };
        packed
            .take(table, summary, visit, |why| named(name, why), |_| false)
            .map_continue(|_| ())
    }

    /// Gives back the memory of what was passed on, so that a large file does not fill it while it is read.
    fn release(&mut self) {
        let oldest = self.queue.oldest_packed();
        let oldest = oldest.map(|oldest| (oldest - self.base) as usize);
        let until = oldest.unwrap_or(self.at).saturating_sub(KEPT);
        if until > self.released {
            self.source.release(self.released..until);
            self.released = until;
        }
    }

    /// Whether the rest is what perf says at its end, which a pipe holds if standard error was written to it too.
    fn is_at_message(&self) -> bool {
        let rest = &self.bytes[self.at..];
        rest.starts_with(MESSAGE)
            && rest
                .iter()
                .all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace())
    }

    fn end(&mut self, stop: Stop, summary: &mut ReadSummary) {
        self.ended = true;
        let at = self.place(self.at);
        if let Some(why) = stop.why() {
            summary.damage(at, self.tell(why));
            summary.stopped_at.get_or_insert(at);
        }
        if self.unpacker.has_unread() {
            summary.damage(
                at,
                self.tell("the compressed data ends within a record".into()),
            );
            summary.salvaged = true;
        }
    }

    /// Tells that the file was truncated meanwhile, if it was. What was read from there on was wrong.
    pub fn check_size(&self, summary: &mut ReadSummary) {
        if let Some(at) = self.source.truncated_at() {
            summary.damage(
                at,
                self.tell("the file was truncated while it was read".into()),
            );
            let stopped = summary.stopped_at.get_or_insert(at);
            *stopped = (*stopped).min(at);
        }
    }

    fn tell(&self, why: String) -> String {
        named(self.name, why)
    }

    /// Passes on what is ready.
    pub fn emitter<'s>(
        &'s mut self,
        table: &'s EventTable,
        summary: &'s mut ReadSummary,
    ) -> Emitter<'s> {
        Emitter {
            bytes: self.bytes,
            base: self.base,
            order: self.order,
            queue: &mut self.queue,
            unpacker: &self.unpacker,
            table,
            summary,
        }
    }
}

/// Returns the text of a damage with the name of the file that has it.
fn named(name: Option<&str>, why: String) -> String {
    match name {
        Some(name) => format!("{name}: {why}"),
        None => why,
    }
}
