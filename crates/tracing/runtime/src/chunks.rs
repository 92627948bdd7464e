//! The thread's chunk: taking, closing and writing records from Rust.

use crate::session::{self, MappedArena};
use crate::shadow::{self, ChunkCursor, ShadowEntry, ThreadRecord};
use crate::sys;
use crate::{arch, confined, interrupted, judged, parked, switch};
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering, compiler_fence, fence};
use dioptra_tracelayout::arena::{Arena, DROP, MONOTONIC, TSC};
use dioptra_tracelayout::chunk::{self, ChunkHeader, MAX_OPEN};
use dioptra_tracelayout::message::thread::{ENTRY_CHOSEN, ENTRY_POSITION, MARGIN};
use dioptra_tracelayout::record::MAX_RECORD;
use dioptra_tracelayout::{Encoder, VERSION};

/// The time in milliseconds for which a thread waits for a chunk before it looks whether the recorder is alive.
const PATIENCE_MS: u64 = 100;
/// The number of lost records after which threads that do not wait look whether the recorder is alive.
const LOOK_EVERY: u64 = 4096;

/// Returns the time of the records' clock, shifted.
#[inline]
pub fn now(arena: &MappedArena) -> u64 {
    match Stamps::of(arena) {
        Some(stamps) => stamps.now(),
        None => sys::monotonic(),
    }
}

/// The clock of records' times, where a reading takes a few instructions.
#[derive(Clone, Copy, Debug)]
pub struct Stamps {
    shift: u32,
}

impl Stamps {
    /// Returns the clock of a recording; `None` if only the kernel knows the time.
    #[inline(always)]
    pub fn of(arena: &MappedArena) -> Option<Stamps> {
        let header = arena.header();
        let shift = header.shift;
        (header.clock != MONOTONIC).then_some(Stamps { shift })
    }

    /// Returns the same time as [`now`].
    #[inline(always)]
    pub fn now(self) -> u64 {
        arch::clock() >> self.shift
    }
}

/// A thread's cursor and record, while no signal can interrupt and no hook can write.
#[derive(Debug)]
pub struct RecordWriter {
    record: *mut ThreadRecord,
    cursor: *mut ChunkCursor,
    arena: MappedArena,
}

impl RecordWriter {
    /// Returns the writer of a thread's record, after the records of handlers in an interrupted hook are written.
    ///
    /// # Safety
    /// The record is the calling thread's and no dummy, and hooks are kept away (busy).
    pub unsafe fn new(record: *mut ThreadRecord, arena: MappedArena) -> RecordWriter {
        // SAFETY: the caller's promise.
        let mut writer = unsafe { RecordWriter::behind(record, arena) };
        if writer.record().interrupted.is_waiting() {
            interrupted::copy(&mut writer);
        } else if writer.cursor().end == 0 {
            writer.reopen();
        }
        writer
    }

    /// Returns the writer of a thread's record while the records of handlers still wait.
    ///
    /// # Safety
    /// The record is the calling thread's and no dummy, and hooks are kept away (busy).
    pub unsafe fn behind(record: *mut ThreadRecord, arena: MappedArena) -> RecordWriter {
        // SAFETY: no dummy is mapped with its cursor in front.
        let cursor = unsafe { shadow::cursor(record) };
        RecordWriter {
            record,
            cursor,
            arena,
        }
    }

    /// Returns the cursor.
    pub fn cursor(&mut self) -> &mut ChunkCursor {
        // SAFETY: `new`'s promise: the thread's own, and nobody else's now.
        unsafe { &mut *self.cursor }
    }

    /// Returns the record.
    pub fn record(&mut self) -> &mut ThreadRecord {
        // SAFETY: the promise of `new`.
        unsafe { &mut *self.record }
    }

    /// Returns the entries of the shadow stack, the outermost first.
    pub fn entries(&mut self) -> &mut [ShadowEntry] {
        let (bottom, top) = (self.record().floor, self.record().top);
        // SAFETY: the entries behind the bottom up to the top are initialised; both are in one mapping.
        unsafe {
            let count = top.offset_from(bottom).max(0) as usize;
            core::slice::from_raw_parts_mut(bottom.add(1), count)
        }
    }

    /// Calls `visit` with the calls whose beginning is recorded and whose end is not, the innermost first.
    pub fn each_open(&mut self, mut visit: impl FnMut(&mut ShadowEntry)) {
        let record = self.record();
        // SAFETY: this thread's record.
        unsafe {
            parked::each_unparked(record, |entry| {
                if entry.is_open() {
                    visit(entry);
                }
                true
            });
        }
    }

    /// Writes records with `write`, and takes a new chunk if there is no room. If there is no chunk, the `records`
    /// records are lost and counted; then returns false.
    pub fn write(
        &mut self,
        records: u64,
        mut write: impl FnMut(&mut Encoder<'_>) -> Option<()>,
    ) -> bool {
        if self.record().interrupted.is_active() {
            return interrupted::keep(self.record(), &mut write).is_some();
        }
        if self.has_room() && self.encode(&mut write) {
            return true;
        }
        if self.next_chunk() && self.encode(&mut write) {
            return true;
        }
        self.cursor().lost += records;
        // The next chunk states the number of records missing before it; but there may be no next chunk.
        self.arena
            .header()
            .lost
            .fetch_add(records, Ordering::Relaxed);
        false
    }

    /// Returns the arena.
    pub fn arena(&self) -> MappedArena {
        self.arena
    }

    /// Returns the address of the chunk and the number of its bytes in use. The thread has a chunk.
    pub fn chunk(&mut self) -> (*mut u8, usize) {
        let cursor = self.cursor();
        let (next, index) = (cursor.next, cursor.chunk.saturating_sub(1));
        let memory = self.arena.chunk(index as usize);
        (memory, next as usize - memory.addr())
    }

    /// Lets hooks write into the chunk again, after they were kept from it.
    pub fn reopen(&mut self) {
        // Hooks know one clock only.
        if self.arena.header().clock == TSC {
            self.cursor().end = self.end();
        }
    }

    /// Returns the last address at which a record of the chunk may begin; 0 if there is no chunk.
    fn end(&mut self) -> u64 {
        let Some(index) = self.cursor().chunk.checked_sub(1) else {
            return 0;
        };
        let size = self.arena.header().chunk_size as usize;
        (self.arena.chunk(index as usize).addr() + size - MARGIN) as u64
    }

    /// Returns the number of bytes that the chunk has left.
    pub fn room(&mut self) -> usize {
        self.end().saturating_sub(self.cursor().next) as usize
    }

    /// Returns the number of entries that are not those of handlers that have interrupted a hook.
    pub fn outside(&mut self) -> usize {
        let bottom = self.record().floor;
        self.record().interrupted.outside(bottom)
    }

    /// Returns true if there is a chunk with room for a hook's record.
    pub fn has_room(&mut self) -> bool {
        if self.record().interrupted.is_active() {
            // The records go to the handlers' buffer.
            return true;
        }
        self.room() > 0
    }

    /// Returns true if there is a chunk with room for an ordinary record, and for `values` bytes of a call's values
    /// beside it: both records must lie in the same chunk.
    pub fn has_room_for(&mut self, values: usize) -> bool {
        match values {
            0 => self.has_room(),
            _ => self.has_room() && self.room() >= values + MAX_RECORD,
        }
    }

    /// Returns whether values of calls are recorded now. The buffer for calls of handlers that have interrupted a hook
    /// is too small for them.
    pub fn takes_values(&mut self) -> bool {
        !self.record().interrupted.is_active()
    }

    /// Returns the approximate number of bytes of the stream's records. Chunks that were left early count as full.
    pub fn written(&mut self) -> u64 {
        let size = u64::from(self.arena.header().chunk_size);
        let chunks = u64::from(self.record().sequence) * size;
        let cursor = self.cursor();
        match cursor.chunk {
            0 => chunks,
            _ => chunks - (cursor.end - cursor.next).min(size),
        }
    }

    /// Takes back all records from the address `place` on; `time` is the tick of the record before.
    ///
    /// Unwritten bytes are zero at any moment: a record without its first word does not exist.
    pub fn take_back(&mut self, place: u64, time: u64) {
        let cursor = self.cursor();
        let length = cursor.next.saturating_sub(place) as usize;
        let start = ptr::with_exposed_provenance_mut::<u8>(place as usize);
        if length >= 2 {
            // SAFETY: the records from there on are in this thread's chunk.
            unsafe {
                start.cast::<u16>().write_unaligned(0);
                if let Some(rest @ 2..) = length.checked_sub(2) {
                    start.add(2).cast::<u16>().write_unaligned(0);
                    compiler_fence(Ordering::SeqCst);
                    start.add(4).write_bytes(0, rest - 2);
                }
            }
        }
        cursor.next = place;
        cursor.time = time;
    }

    fn encode(&mut self, write: &mut impl FnMut(&mut Encoder<'_>) -> Option<()>) -> bool {
        let size = self.room() + MARGIN;
        let cursor = self.cursor();
        let start = cursor.next;
        // SAFETY: from `next` up to the margin behind `end` is the rest of this thread's chunk.
        let buffer = unsafe {
            core::slice::from_raw_parts_mut(
                ptr::with_exposed_provenance_mut::<u8>(start as usize),
                size,
            )
        };
        let mut encoder = Encoder::new(buffer, 0, cursor.time);
        let done = write(&mut encoder).is_some();
        let (used, time) = (encoder.used(), encoder.time());
        cursor.next = start + used as u64;
        cursor.time = time;
        done
    }

    /// Closes the chunk, if there is one, and takes another. Returns false if there is none.
    pub fn next_chunk(&mut self) -> bool {
        self.close();
        match take(&self.arena) {
            Some((index, waited)) => {
                self.begin(index, waited);
                true
            }
            None => false,
        }
    }

    /// Takes a chunk that states the number of lost records, if records were lost since the last chunk. There is
    /// always memory for it, and there may be no later chunk.
    pub fn tell_lost(&mut self) {
        if self.cursor().lost == 0 || stopped() {
            return;
        }
        self.close();
        if let Some(index) = Arena::take_any(self.arena.states()) {
            self.begin(index, 0);
        }
    }

    /// Begins a chunk, for which the thread has waited `waited` ticks.
    fn begin(&mut self, index: usize, waited: u64) {
        let size = self.arena.header().chunk_size as usize;
        let memory = self.arena.chunk(index);
        let time = now(&self.arena);
        let shift = self.arena.header().shift as u8;
        // Records in closed chunks can't be taken back, and the same address may come again.
        judged::keep_open(self);
        let mut depth = 0;
        self.each_open(|entry| {
            depth += 1;
            if entry.flags & ENTRY_CHOSEN == 0 {
                entry.flags |= ENTRY_POSITION;
            }
        });
        let open = depth.min(MAX_OPEN).min(size / 16);
        let mut left = open;
        self.each_open(|entry| {
            if let Some(at) = left.checked_sub(1) {
                left = at;
                // SAFETY: at most a quarter of the chunk is listed.
                unsafe {
                    memory
                        .add(chunk::HEADER_SIZE + at * 4)
                        .cast::<u32>()
                        .write(entry.id().to_le());
                }
            }
        });
        let lost = core::mem::take(&mut self.cursor().lost);
        let record = self.record();
        let header = ChunkHeader {
            magic: 0,
            size: 0,
            stream: record.stream,
            sequence: record.sequence,
            pid: record.pid,
            tid: record.tid,
            base: time,
            lost: u32::try_from(lost).unwrap_or(u32::MAX),
            waited: u32::try_from(waited).unwrap_or(u32::MAX),
            depth: depth as u32,
            open: open as u32,
            parent: record.parent,
            version: VERSION,
            shift,
            reserved: 0,
            last: 0,
        };
        record.sequence += 1;
        record.parent = 0;
        // SAFETY: the chunk's first bytes, aligned to a page. The magic number comes last: with it the chunk is whole.
        unsafe {
            memory.cast::<ChunkHeader>().write(header);
            AtomicU32::from_ptr(memory.cast()).store(chunk::MAGIC, Ordering::Release);
        }
        let start = memory.expose_provenance() as u64;
        let cursor = self.cursor();
        cursor.time = time;
        cursor.next = start + chunk::records_offset(open) as u64;
        cursor.chunk = index as u64 + 1;
        cursor.alive = 1;
        self.reopen();
        let stack = self.record().stack;
        // Where stacks are exchanged, a chunk on the first stack says so as well. Otherwise a switch that happens to
        // be the chunk's first record would be taken for the chunk's own stack.
        if stack != 0 || switch::is_used() {
            self.encode(&mut |to: &mut Encoder<'_>| to.stack(time, stack));
        }
    }

    /// Hands the chunk, if there is one, to the recorder.
    pub fn close(&mut self) {
        let arena = self.arena;
        if self.record().interrupted.is_active() {
            // The interrupted hook will go on writing to the chunk.
            return;
        }
        let cursor = self.cursor();
        let Some(index) = cursor.chunk.checked_sub(1) else {
            return;
        };
        let memory = arena.chunk(index as usize);
        let used = cursor.next - memory.addr() as u64;
        // SAFETY: the header of this thread's own chunk.
        unsafe {
            let header = memory.cast::<ChunkHeader>();
            (*header).last = cursor.time;
            (*header).size = (used as u32).next_multiple_of(8);
        }
        cursor.chunk = 0;
        cursor.next = 0;
        cursor.end = 0;
        fence(Ordering::Release);
        if let Some(state) = arena.states().get(index as usize) {
            arena.header().hand_over(state);
            sys::futex_wake(&arena.header().filled);
        }
    }
}

/// Returns a free chunk and the ticks for which the thread waited for it. Waits only if the recording wants that.
fn take(arena: &MappedArena) -> Option<(usize, u64)> {
    let header = arena.header();
    let mut start = None;
    let waited = |start: Option<u64>| {
        let Some(start) = start else {
            return 0;
        };
        let waited = now(arena).saturating_sub(start);
        header.waits.fetch_add(1, Ordering::Relaxed);
        header.waited.fetch_add(waited, Ordering::Relaxed);
        waited
    };
    loop {
        if stopped() {
            waited(start);
            return None;
        }
        let freed = header.freed.load(Ordering::Acquire);
        if let Some(index) = header.take(arena.states()) {
            return Some((index, waited(start)));
        }
        if header.on_full == DROP {
            let lost = header.lost.load(Ordering::Relaxed);
            if lost.is_multiple_of(LOOK_EVERY) && !sys::process_exists(header.recorder) {
                header.stop.store(1, Ordering::Relaxed);
            }
            return None;
        }
        start = start.or_else(|| Some(now(arena)));
        header.waiting.fetch_add(1, Ordering::Relaxed);
        sys::futex_wait(&header.freed, freed, PATIENCE_MS);
        header.waiting.fetch_sub(1, Ordering::Relaxed);
        if !sys::process_exists(header.recorder) {
            // Nobody will ever make room, in this process or in any other.
            header.stop.store(1, Ordering::Relaxed);
        }
    }
}

/// Returns true if nothing is recorded any more.
pub fn stopped() -> bool {
    confined::is_quiet()
        || session::arena().is_none_or(|arena| arena.header().stop.load(Ordering::Relaxed) != 0)
}
