//! One file's records: taken round by round, put in order, passed on.

use super::unpack::{Unpacker, is_compressed};
use super::{FileRecord, Input};
use crate::events::EventTable;
use crate::kind::{file_type, is_file_type, record_name};
use crate::source::Source;
use crate::summary::ReadSummary;
use crate::walk::{Next, Step, Stop, Walk, is_ordinary, step};
use dioptra_perfrecords::record::{RawRecord, RecordType};
use dioptra_perfrecords::{ByteOrder, Cursor};
use std::ops::ControlFlow;

/// A record that waits: its time, and where its bytes are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) time: u64,
    pub(super) place: RecordOffset,
}

const _: () = assert!(size_of::<Waiting>() == 16);

/// A record's bytes: an offset in the file or, with the highest bit set, in what was unpacked.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordOffset(u64);

const UNPACKED: u64 = 1 << 63;

impl RecordOffset {
    fn in_file(offset: usize) -> Self {
        RecordOffset(offset as u64)
    }

    /// The place of a record in a stream: the number of bytes before it.
    pub(super) fn in_stream(position: u64) -> Self {
        RecordOffset(position)
    }

    /// The number of bytes before it in its stream.
    pub(super) fn stream_position(self) -> u64 {
        self.0
    }

    pub(super) fn unpacked(position: u64) -> Self {
        RecordOffset(position | UNPACKED)
    }

    /// The position among the unpacked bytes.
    pub(super) fn unpacked_position(self) -> Option<u64> {
        (self.0 & UNPACKED != 0).then_some(self.0 & !UNPACKED)
    }
}

/// The number of records ahead of the current one whose memory is fetched.
const AHEAD: usize = 6;

/// The distance in bytes between the current record and the memory that is fetched.
const AHEAD_BYTES: usize = 1536;
/// Bytes of a mapped file that are passed before their memory is given back.
const RELEASE: usize = 16 << 20;
/// Bytes of a mapped file whose memory is kept behind what was passed on, for who still looks at it.
pub(crate) const KEPT: usize = 12 << 20;

/// Asks the CPU to fetch the start of a record of the file.
#[inline]
fn prefetch(bytes: &[u8], place: RecordOffset) {
    #[cfg(target_arch = "x86_64")]
    if let Some(first) = bytes.get(place.0 as usize..) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let first = first.as_ptr().cast::<i8>();
        // SAFETY: a prefetch changes nothing but the cache, and faults for no address.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(first);
            _mm_prefetch::<_MM_HINT_T0>(first.wrapping_add(64));
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (bytes, place);
}

/// The records that wait for their turn.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) waiting: Vec<Waiting>,
    /// The number of records at the front that are in order and may be passed on.
    pub(super) ready: usize,
    /// The number of records that were passed on.
    pub(super) passed: usize,
    /// Whether `waiting` is in order as a whole.
    sorted: bool,
    /// The youngest time seen.
    latest: u64,
    /// The youngest time at the end of the last round.
    last_round: u64,
    /// The youngest time that was passed on.
    pub(super) emitted: u64,
    /// Whether the order starts anew when all is passed on.
    restart: bool,
}

impl Queue {
    pub(super) fn new() -> Self {
        Queue {
            sorted: true,
            ..Queue::default()
        }
    }

    #[inline]
    fn push(&mut self, time: u64, place: RecordOffset) {
        self.sorted &= time >= self.latest;
        self.latest = self.latest.max(time);
        self.waiting.push(Waiting { time, place });
    }

    /// Forgets what was passed on.
    pub(super) fn discard(&mut self) {
        self.waiting.drain(..self.passed);
        self.ready = 0;
        self.passed = 0;
        if std::mem::take(&mut self.restart) {
            (self.latest, self.last_round, self.emitted) = (0, 0, 0);
        }
    }

    /// Makes everything ready, and starts anew behind it: damaged records may have had any time, against which all that
    /// follow would seem too late.
    fn break_off(&mut self) {
        self.release(u64::MAX);
        self.restart = true;
        if self.waiting.is_empty() {
            self.discard();
        }
    }

    /// Makes everything up to `time` ready.
    pub(super) fn release(&mut self, time: u64) {
        if !self.sorted {
            // A stable sort, fast where the input is a sequence of runs: one for each CPU.
            self.waiting.sort_by_key(|waiting| waiting.time);
            self.sorted = true;
        }
        self.ready = self.waiting.partition_point(|waiting| waiting.time <= time);
    }

    pub(super) fn finish_round(&mut self) {
        let until = std::mem::replace(&mut self.last_round, self.latest);
        self.release(until);
    }
}

/// One file while it is read.
pub(super) struct Stream<'d> {
    name: Option<&'d str>,
    source: &'d Source,
    bytes: &'d [u8],
    order: ByteOrder,
    walk: Walk<'d>,
    at: usize,
    /// The file up to here was given back.
    released: usize,
    ended: bool,
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
            order,
            walk: Walk::new(input.bytes, input.start, order),
            at: input.start,
            released: 0,
            ended: false,
            queue: Queue::new(),
            unpacker: Unpacker::new(input.bytes.len(), input.level),
        }
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
        self.unpacker.discard_before(self.oldest_unpacked());
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
                let why = format!("{length} bytes are no records; reading goes on at offset {to}");
                summary.damage(self.at as u64, self.tell(why));
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
        prefetch(self.bytes, RecordOffset::in_file(at + AHEAD_BYTES));
        if is_compressed(found.raw.kind) {
            return self.unpack(&found.raw, at, table, summary, visit);
        }
        let place = RecordOffset::in_file(at);
        let found = Found {
            offset: at as u64,
            step: found,
            place,
        };
        found.sort_in(&mut self.queue, table, summary, visit)?;
        if found.step.raw.kind == file_type::FINISHED_ROUND {
            self.queue.finish_round();
        }
        ControlFlow::Continue(())
    }

    /// Unpacks a compressed record and takes the whole records in it; what is left waits for the next one.
    fn unpack<F>(
        &mut self,
        raw: &RawRecord<'_>,
        at: usize,
        table: &EventTable,
        summary: &mut ReadSummary,
        visit: &mut F,
    ) -> ControlFlow<()>
    where
        F: FnMut(FileRecord<'_>) -> ControlFlow<()>,
    {
        summary.records.add(raw.kind);
        if let Err(why) = self.unpacker.unpack(raw, at as u64, self.order) {
            summary.skipped += 1;
            if let Some(why) = why {
                let what = format!("{why}; compressed records from here on are skipped");
                summary.damage(at as u64, self.tell(what));
            }
            return ControlFlow::Continue(());
        }
        loop {
            let (bytes, position) = self.unpacker.unread();
            let found = match step(bytes, 0, self.order) {
                Ok(found) => found,
                Err(Stop::End | Stop::Cut { .. }) => break,
                Err(stop) => {
                    if let Some(why) = stop.why() {
                        summary.damage(at as u64, self.tell(why));
                    }
                    self.unpacker.give_up();
                    break;
                }
            };
            let next = found.next;
            let found = Found {
                offset: at as u64,
                place: RecordOffset::unpacked(position),
                step: &found,
            };
            found.sort_in(&mut self.queue, table, summary, visit)?;
            self.unpacker.advance(next);
        }
        // A recording without rounds, or made to fill memory: its order suffers, nothing else.
        if self.unpacker.is_full() {
            self.queue.release(u64::MAX);
        }
        ControlFlow::Continue(())
    }

    /// Gives back the memory of what was passed on, so that a large file does not fill it while it is read.
    fn release(&mut self) {
        let waiting = self.queue.waiting.iter();
        let in_file = waiting.filter(|waiting| waiting.place.unpacked_position().is_none());
        let oldest = in_file.map(|waiting| waiting.place.0 as usize).min();
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
        let at = self.at as u64;
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
        match self.name {
            Some(name) => format!("{name}: {why}"),
            None => why,
        }
    }

    /// The first unpacked byte that is still needed.
    fn oldest_unpacked(&self) -> Option<u64> {
        if self.unpacker.is_unused() {
            return None;
        }
        let waiting = self.queue.waiting.iter();
        waiting
            .filter_map(|waiting| waiting.place.unpacked_position())
            .min()
    }

    /// Passes on what is ready.
    pub fn emitter<'s>(
        &'s mut self,
        table: &'s EventTable,
        summary: &'s mut ReadSummary,
    ) -> Emitter<'s> {
        Emitter {
            bytes: self.bytes,
            order: self.order,
            queue: &mut self.queue,
            unpacker: &self.unpacker,
            table,
            summary,
        }
    }
}

impl Queue {
    fn next_time(&self) -> Option<u64> {
        let ready = &self.waiting[..self.ready];
        ready.get(self.passed).map(|waiting| waiting.time)
    }
}

/// A record that was just read.
pub(super) struct Found<'s, 'a> {
    pub(super) offset: u64,
    pub(super) place: RecordOffset,
    pub(super) step: &'s Step<'a>,
}

impl Found<'_, '_> {
    /// Counts the record and queues it by its time, or passes it on where it has none.
    #[inline(always)]
    pub(super) fn sort_in<F>(
        &self,
        queue: &mut Queue,
        table: &EventTable,
        summary: &mut ReadSummary,
        visit: &mut F,
    ) -> ControlFlow<()>
    where
        F: FnMut(FileRecord<'_>) -> ControlFlow<()>,
    {
        let raw = &self.step.raw;
        summary.records.add(raw.kind);
        if raw.kind != RecordType::SAMPLE {
            self.count(table, summary);
        }
        if !is_file_type(raw.kind) {
            // Records that the recorder made up have a time of zero: they come before all others.
            match table.time(raw) {
                Some(0 | u64::MAX) => {}
                Some(time) => {
                    queue.push(time, self.place);
                    return ControlFlow::Continue(());
                }
                None if raw.kind == RecordType::SAMPLE && table.has_sample_time() => {
                    summary.damage(self.offset, "a sample is too short for its time");
                }
                None => {}
            }
        }
        let event = match is_file_type(raw.kind) {
            true => None,
            false => find(raw, table, summary),
        };
        visit(FileRecord {
            offset: self.offset,
            raw: *raw,
            trailing: self.step.trailing,
            event,
            time: None,
        })
    }

    /// Counts a record that is no sample in the summary.
    fn count(&self, table: &EventTable, summary: &mut ReadSummary) {
        let raw = &self.step.raw;
        let mut at = Cursor::new(raw.body, table.order());
        match raw.kind {
            RecordType::LOST => {
                at.u64();
                summary.lost = summary.lost.saturating_add(at.u64().unwrap_or(0));
            }
            RecordType::LOST_SAMPLES => {
                summary.lost_samples = summary.lost_samples.saturating_add(at.u64().unwrap_or(0));
            }
            RecordType::THROTTLE => summary.throttled += 1,
            kind if record_name(kind).is_none() => summary.skipped += 1,
            _ => {}
        }
    }
}

/// The record's event, counted in the summary.
#[inline]
pub(super) fn find(
    raw: &RawRecord<'_>,
    table: &EventTable,
    summary: &mut ReadSummary,
) -> Option<usize> {
    let event = table.find(raw);
    if raw.kind == RecordType::SAMPLE {
        match event.and_then(|event| summary.samples.get_mut(event)) {
            Some(count) => *count += 1,
            None => summary.unknown_ids += 1,
        }
    }
    event
}

/// Passes on the records of a stream that are ready.
pub(super) struct Emitter<'s> {
    bytes: &'s [u8],
    order: ByteOrder,
    queue: &'s mut Queue,
    unpacker: &'s Unpacker,
    table: &'s EventTable,
    summary: &'s mut ReadSummary,
}

impl Emitter<'_> {
    /// Passes on the records that are ready, up to those of the time `limit`.
    #[inline]
    pub fn emit_until<F>(&mut self, limit: u64, visit: &mut F) -> ControlFlow<()>
    where
        F: FnMut(FileRecord<'_>) -> ControlFlow<()>,
    {
        let Queue {
            waiting,
            ready,
            passed,
            emitted,
            ..
        } = &mut *self.queue;
        let waiting = &waiting[..];
        let ready = &waiting[..*ready];
        while let Some(&Waiting { time, place }) = ready.get(*passed) {
            if time > limit {
                break;
            }
            // In the order of time the records of several rings alternate: what comes soon is fetched now.
            if let Some(soon) = waiting.get(*passed + AHEAD) {
                prefetch(self.bytes, soon.place);
            }
            *passed += 1;
            if time < *emitted {
                self.summary.out_of_order += 1;
            }
            *emitted = (*emitted).max(time);
            let (bytes, offset) = match place.unpacked_position() {
                None => (self.bytes.get(place.0 as usize..), place.0),
                Some(position) => self.unpacker.at(position),
            };
            // Every place was read before: this finds the same record again.
            let Some(Ok((raw, _))) = bytes.map(|bytes| RawRecord::split(bytes, self.order)) else {
                continue;
            };
            visit(FileRecord {
                offset,
                raw,
                trailing: &[],
                event: find(&raw, self.table, self.summary),
                time: Some(time),
            })?;
        }
        ControlFlow::Continue(())
    }
}
