//! The records that wait for their turn, in the order of time.

use super::FileRecord;
use super::unpack::Unpacker;
use crate::events::EventTable;
use crate::kind::{is_file_type, record_name};
use crate::summary::ReadSummary;
use crate::walk::{Step, Stop, step};
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

/// A record's bytes: an offset in the file or pipe or, with the highest bit set, in what was unpacked.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordOffset(u64);

const UNPACKED: u64 = 1 << 63;

impl RecordOffset {
    /// The place of a record in its file or pipe: the number of bytes before it.
    pub(super) fn in_stream(position: u64) -> Self {
        RecordOffset(position)
    }

    /// The number of bytes before it in its file or pipe.
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
pub(super) const AHEAD_BYTES: usize = 1536;

/// Asks the CPU to fetch the start of a record.
#[inline]
pub(super) fn prefetch(bytes: &[u8], at: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(first) = bytes.get(at..) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let first = first.as_ptr().cast::<i8>();
        // SAFETY: a prefetch changes nothing but the cache, and faults for no address.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(first);
            _mm_prefetch::<_MM_HINT_T0>(first.wrapping_add(64));
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (bytes, at);
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
    pub(super) fn push(&mut self, time: u64, place: RecordOffset) {
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
    pub(super) fn break_off(&mut self) {
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

impl Queue {
    /// The time of the next record that is ready.
    pub(super) fn next_time(&self) -> Option<u64> {
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

/// A compressed record that was just read, and what its content goes into.
pub(super) struct Packed<'s, 'a> {
    pub(super) raw: &'s RawRecord<'a>,
    /// The number of bytes before it in its file or pipe.
    pub(super) offset: u64,
    pub(super) order: ByteOrder,
    pub(super) queue: &'s mut Queue,
    pub(super) unpacker: &'s mut Unpacker,
}

impl Packed<'_, '_> {
    /// Unpacks the record and takes the whole records in it; what is left waits for the next one. `tell` completes the
    /// text of a damage. Stops before a record of which `stops` says so, and returns true then.
    pub(super) fn take<F>(
        &mut self,
        table: &EventTable,
        summary: &mut ReadSummary,
        visit: &mut F,
        tell: impl Fn(String) -> String,
        stops: impl FnMut(&RawRecord<'_>) -> bool,
    ) -> ControlFlow<(), bool>
    where
        F: FnMut(FileRecord<'_>) -> ControlFlow<()>,
    {
        summary.records.add(self.raw.kind);
        if let Err(why) = self.unpacker.unpack(self.raw, self.offset, self.order) {
            summary.skipped += 1;
            if let Some(why) = why {
                let what = format!("{why}; compressed records from here on are skipped");
                summary.damage(self.offset, tell(what));
            }
            return ControlFlow::Continue(false);
        }
        let (queue, unpacker) = (&mut *self.queue, &mut *self.unpacker);
        let at = (self.offset, self.order);
        take_unpacked(queue, unpacker, at, table, summary, visit, tell, stops)
    }
}

/// Takes the whole records that were unpacked and not read, of the compressed record at `offset`. Stops before a record of
/// which `stops` says so, and returns true then.
#[expect(
    clippy::too_many_arguments,
    reason = "each is a part of a stream, and borrowed alone"
)]
pub(super) fn take_unpacked<F>(
    queue: &mut Queue,
    unpacker: &mut Unpacker,
    (offset, order): (u64, ByteOrder),
    table: &EventTable,
    summary: &mut ReadSummary,
    visit: &mut F,
    tell: impl Fn(String) -> String,
    mut stops: impl FnMut(&RawRecord<'_>) -> bool,
) -> ControlFlow<(), bool>
where
    F: FnMut(FileRecord<'_>) -> ControlFlow<()>,
{
    loop {
        let (bytes, position) = unpacker.unread();
        let found = match step(bytes, 0, order) {
            Ok(found) => found,
            Err(Stop::End | Stop::Cut { .. }) => break,
            Err(stop) => {
                if let Some(why) = stop.why() {
                    summary.damage(offset, tell(why));
                }
                unpacker.give_up();
                break;
            }
        };
        if stops(&found.raw) {
            return ControlFlow::Continue(true);
        }
        let next = found.next;
        let found = Found {
            offset,
            place: RecordOffset::unpacked(position),
            step: &found,
        };
        found.sort_in(queue, table, summary, visit)?;
        unpacker.advance(next);
    }
    // A recording without rounds, or made to fill memory: its order suffers, nothing else.
    if unpacker.is_full() {
        queue.release(u64::MAX);
    }
    ControlFlow::Continue(false)
}

impl Queue {
    /// The first unpacked byte that is still needed.
    pub(super) fn oldest_unpacked(&self) -> Option<u64> {
        let waiting = self.waiting.iter();
        waiting
            .filter_map(|waiting| waiting.place.unpacked_position())
            .min()
    }

    /// The first byte of the file or pipe that is still needed.
    pub(super) fn oldest_packed(&self) -> Option<u64> {
        let waiting = self.waiting.iter();
        let in_file = waiting.filter(|waiting| waiting.place.unpacked_position().is_none());
        in_file.map(|waiting| waiting.place.stream_position()).min()
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
    pub(super) bytes: &'s [u8],
    /// The number of bytes of the file or pipe before `bytes`.
    pub(super) base: u64,
    pub(super) order: ByteOrder,
    pub(super) queue: &'s mut Queue,
    pub(super) unpacker: &'s Unpacker,
    pub(super) table: &'s EventTable,
    pub(super) summary: &'s mut ReadSummary,
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
                prefetch(self.bytes, soon.place.0.wrapping_sub(self.base) as usize);
            }
            *passed += 1;
            if time < *emitted {
                self.summary.out_of_order += 1;
            }
            *emitted = (*emitted).max(time);
            let (bytes, offset) = match place.unpacked_position() {
                None => (self.bytes.get((place.0 - self.base) as usize..), place.0),
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
