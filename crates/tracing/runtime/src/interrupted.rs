//! Signal handlers that interrupt a hook.
//!
//! An interrupted hook may have written half a record, or half an entry of the shadow stack, and goes on when the
//! handler returns. The handler's calls must touch neither. So their records go to a buffer of their own, and their
//! entries lie above the entry that the hook may be about to write. Meanwhile all hooks leave their work to the slow
//! path: [`ThreadBlock::busy`] is not 0, and the chunk seems to be full. The first hook that runs once the interrupted hook
//! has finished copies the records into the chunk, right behind the interrupted ones.
//!
//! In a child that a handler forks, the interrupted hook's chunk is its parent's. The hook goes on writing to memory
//! that nobody reads, and the child's first chunk waits beside it.
//!
//! A handler that does not return but jumps leaves the hook as it is. The records of that hook are compared with the
//! shadow stack, and completed.

use crate::chunks::RecordWriter;
use crate::judged;
use crate::parked;
use crate::shadow::{self, ChunkCursor, ShadowEntry, ThreadBlock, ThreadRecord};
use crate::sys;
use core::cell::UnsafeCell;
use core::ptr;
use core::slice;
use core::sync::atomic::Ordering;
use dioptra_tracelayout::chunk::{self, ChunkHeader};
use dioptra_tracelayout::message::thread::{ENTRY_NO_RETURN, ENTRY_UNWOUND, MARGIN};
use dioptra_tracelayout::record::{MAX_RECORD, Record as Recorded};
use dioptra_tracelayout::{Decoder, Encoder};

/// The size in bytes of the buffer for records of handlers. Any chunk has room for as many.
const SIZE: usize = 2048;

/// The state of a thread while a hook is interrupted, and until its handlers' calls are in the chunk.
#[repr(C)]
#[derive(Debug)]
pub struct Interrupted {
    /// The innermost entry when the hook was interrupted; null if no handler has called anything in an interrupted
    /// hook.
    top: *mut ShadowEntry,
    /// The former content of the entry above it, which the hook may have begun to write.
    behind: ShadowEntry,
    /// The buffer of records.
    buffer: *mut u8,
    used: usize,
    /// The tick of the last record in the buffer.
    time: u64,
    /// In a forked child, until the hook that was interrupted there has finished: the address at which records then
    /// go into the chunk (0: there is no chunk), and the tick of the last record.
    beside: Option<(u64, u64)>,
}

/// Memory into which a hook writes in a forked child: two records, at most.
struct Nowhere(UnsafeCell<[u64; 8]>);

// SAFETY: nobody reads it.
unsafe impl Sync for Nowhere {}

static NOWHERE: Nowhere = Nowhere(UnsafeCell::new([0; 8]));

impl Interrupted {
    /// The state of a thread whose hooks are not interrupted.
    pub const NOT: Interrupted = Interrupted {
        top: ptr::null_mut(),
        behind: ShadowEntry::BOTTOM,
        buffer: ptr::null_mut(),
        used: 0,
        time: 0,
        beside: None,
    };

    /// Returns true if the shadow stack holds calls of a handler that interrupted a hook.
    pub fn is_active(&self) -> bool {
        !self.top.is_null()
    }

    /// Returns true if records wait for the chunk.
    pub fn is_waiting(&self) -> bool {
        (self.used > 0 || self.beside.is_some()) && !self.is_active()
    }

    /// Returns the number of bytes of records that wait.
    pub fn kept(&self) -> usize {
        self.used
    }

    /// Returns the number of entries that there were when the hook was interrupted, with the one that it may be about
    /// to write; 0 if no hook is interrupted.
    pub fn outside(&self, bottom: *const ShadowEntry) -> usize {
        match self.is_active() {
            true => (self.top.addr() - bottom.addr()) / size_of::<ShadowEntry>() + 1,
            false => 0,
        }
    }

    /// Drops the records in a forked child: they are its parent's.
    pub fn forget(&mut self) {
        self.used = 0;
        self.time = 0;
        self.beside = None;
    }

    /// Resets the state for a thread that begins to use it.
    pub fn clear(&mut self) {
        self.top = ptr::null_mut();
        self.forget();
    }
}

/// The condition of the hook that the block names as being at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BusyHook {
    /// No hook is at work.
    None,
    /// The hook was interrupted and goes on later.
    Interrupted,
    /// The hook was left with a jump.
    Left,
}

/// Returns the condition of the hook that the block names, for a hook whose stack pointer is `place`.
pub fn other(block: &ThreadBlock, place: u64) -> BusyHook {
    if block.busy == 0 {
        BusyHook::None
    } else if block.busy != shadow::OWN_WORK && sys::Cut::at(place).leaves(block.busy) {
        BusyHook::Left
    } else {
        BusyHook::Interrupted
    }
}

/// Makes room on the shadow stack and for records when a handler in an interrupted hook calls something. Returns
/// false if there is none.
pub fn begin(block: &ThreadBlock, record: &mut ThreadRecord) -> bool {
    let top = match record.interrupted.is_active() {
        true => record.interrupted.top,
        false => record.top,
    };
    if record.interrupted.buffer.is_null() {
        let Ok(memory) = sys::map_private(SIZE) else {
            return false;
        };
        record.interrupted.buffer = memory;
    }
    // SAFETY: both are in the shadow stack, whose entries reach to the limit.
    let open = unsafe { record.top.offset_from(top) }.unsigned_abs();
    // The end of each open call must be recorded, too.
    let has_room = record.interrupted.used + (open + 2) * MAX_RECORD <= SIZE
        && record.top.wrapping_add(2) < record.limit;
    if !has_room || record.interrupted.is_active() {
        return has_room;
    }
    // SAFETY: below the limit; a cursor lies in front of each record.
    unsafe {
        let behind = top.add(1);
        record.interrupted.behind = behind.read();
        record.interrupted.top = top;
        // An entry that is no call and belongs to nobody: calls further down do not leave it, and unwinders do not
        // find it.
        behind.write(ShadowEntry {
            slot: block.busy,
            flags: ENTRY_UNWOUND | ENTRY_NO_RETURN,
            function: 0,
            spare: 0,
            // The hook's frame pointer may lead here already.
            ..record.interrupted.behind
        });
        record.top = behind;
        (*shadow::cursor(record)).end = 0;
    }
    true
}

/// Gives the shadow stack back to the interrupted hook, if the handler's calls have all ended.
pub fn end_if_done(record: &mut ThreadRecord) {
    let next = record.interrupted.top.wrapping_add(1);
    // SAFETY: this thread's record.
    if record.interrupted.is_active() && unsafe { parked::innermost(record) } <= next {
        end(record);
    }
}

fn end(record: &mut ThreadRecord) {
    let top = record.interrupted.top;
    // SAFETY: the entry that `begin` has replaced; this thread's record.
    unsafe {
        parked::hold(record, top.add(1));
        top.add(1).write(record.interrupted.behind);
    }
    record.top = top;
    record.interrupted.top = ptr::null_mut();
}

/// Lets a hook that has found a chunk write to memory that nobody reads, and the next hook find no chunk.
pub fn write_nowhere(cursor: &mut ChunkCursor) {
    // In the middle, because records that are taken back lie before.
    cursor.next = NOWHERE.0.get().addr() as u64 + 16;
    cursor.end = 0;
}

/// Goes on in the child of a handler that has interrupted a hook and forked. The child's first chunk begins here if
/// handlers' calls are open, so that their ends are kept.
pub fn go_on_in_child(writer: &mut RecordWriter) {
    let mut beside = None;
    if writer.record().interrupted.is_active() {
        writer.next_chunk();
        let cursor = writer.cursor();
        beside = Some((cursor.next, cursor.time));
    }
    writer.record().interrupted.beside = beside;
    write_nowhere(writer.cursor());
}

/// Keeps records for later.
pub fn keep(
    record: &mut ThreadRecord,
    write: &mut impl FnMut(&mut Encoder<'_>) -> Option<()>,
) -> Option<()> {
    let kept = &mut record.interrupted;
    // SAFETY: `begin` has mapped that many bytes.
    let buffer = unsafe { slice::from_raw_parts_mut(kept.buffer, SIZE) };
    let mut encoder = Encoder::new(buffer, kept.used, kept.time);
    let done = write(&mut encoder);
    (kept.used, kept.time) = (encoder.used(), encoder.time());
    done
}

/// Copies the kept records into the chunk. The interrupted hook has finished.
pub fn copy(writer: &mut RecordWriter) {
    let kept = &mut writer.record().interrupted;
    let used = core::mem::take(&mut kept.used);
    kept.time = 0;
    let beside = kept.beside.take();
    if let Some((next, time)) = beside {
        let cursor = writer.cursor();
        (cursor.next, cursor.time) = (next, time);
        if next == 0 {
            // The next chunk lists the open calls. The kept calls stay counted as missed.
            return;
        }
    }
    writer.reopen();
    // SAFETY: as above; the buffer is no chunk.
    let bytes = unsafe { slice::from_raw_parts(writer.record().interrupted.buffer, used) };
    // All records go into one chunk: the header of another one would list calls that only these records know.
    if writer.room() < used + 2 * MAX_RECORD && !writer.next_chunk() {
        return;
    }
    let mut entries = 0;
    for record in Decoder::new(bytes, 0).map_while(Result::ok) {
        // The interrupted hook may have read the clock later.
        let last = writer.cursor().time;
        match record {
            Recorded::Entry { time, function } => {
                entries += 1;
                writer.write(1, |to| to.entry(time.max(last), function));
            }
            Recorded::Exit { time } => {
                writer.write(1, |to| to.exit(time.max(last)));
            }
            Recorded::Unwound { time, cause, calls } => {
                writer.write(1, |to| to.unwound(time.max(last), cause, calls));
            }
            Recorded::Discarded { time } => {
                writer.write(1, |to| to.discarded(time.max(last)));
            }
            _ => {}
        }
    }
    let done = &writer.arena().header().handler_calls_done;
    done.fetch_add(entries, Ordering::Relaxed);
    if beside.is_some() {
        complete(writer);
    }
}

/// Ends the hook that the block names, which was left with a jump: completes the records that it was about to write,
/// and adds those of handlers' calls.
///
/// # Safety
/// The record is this thread's and no dummy.
pub unsafe fn leave(block: &mut ThreadBlock, writer: &mut RecordWriter) {
    block.busy = 0;
    if writer.record().interrupted.is_active() {
        let record = writer.record();
        // None of the handler's calls goes on.
        let top = record.interrupted.top;
        // SAFETY: both are in the shadow stack.
        let above = unsafe { record.top.offset_from(top.add(1)) }.unsigned_abs();
        crate::slow::drop_entries(
            writer,
            above,
            dioptra_tracelayout::record::UnwindCause::Jump,
        );
        end(writer.record());
    }
    if writer.record().interrupted.beside.is_none() {
        writer.reopen();
        if writer.cursor().chunk != 0 {
            complete(writer);
        }
    }
    if writer.record().interrupted.is_waiting() {
        copy(writer);
    }
}

/// Makes the records agree with the shadow stack: a hook that was left may have changed one and not the other.
fn complete(writer: &mut RecordWriter) {
    let size = writer.arena().header().chunk_size as usize;
    let (memory, used) = writer.chunk();
    // SAFETY: this thread's chunk, which has a header and `used` bytes in use; a record that was begun behind them is
    // shorter than the chunk's margin.
    let (header, bytes) = unsafe {
        let behind = memory.add(used);
        behind.write_bytes(0, MARGIN.min(size.saturating_sub(used)));
        let header = memory.cast::<ChunkHeader>().read();
        let start = chunk::records_offset(header.open as usize);
        let bytes = slice::from_raw_parts(memory.add(start), used.saturating_sub(start));
        (header, bytes)
    };
    let stack = writer.record().stack;
    let mut depth = i64::from(header.depth);
    let mut is_known = true;
    let mut decoder = Decoder::new(bytes, header.base);
    for record in decoder.by_ref().map_while(Result::ok) {
        match record {
            Recorded::Entry { .. } => depth += 1,
            Recorded::Exit { .. } | Recorded::Discarded { .. } => depth -= 1,
            Recorded::Unwound { calls, .. } => depth -= i64::from(calls),
            Recorded::Stack { stack: now, .. } if now != stack => is_known = false,
            _ => {}
        }
    }
    let (time, offset) = (decoder.time(), decoder.offset());
    let missing = bytes.len() - offset;
    let cursor = writer.cursor();
    cursor.time = time;
    cursor.next -= missing as u64;
    // The hook was taking records back. SAFETY: the chunk's last bytes in use; the bytes behind them are zero.
    unsafe { memory.add(used - missing).write_bytes(0, missing) };
    judged::keep_open(writer);
    let entries = writer.entries();
    let open = entries.iter().filter(|entry| entry.is_open());
    let innermost = open.clone().next_back().map(ShadowEntry::id);
    let difference = open.count() as i64 - depth;
    let now = crate::chunks::now(&writer.arena());
    match (is_known, difference, innermost) {
        (true, 0, _) => {}
        (true, 1, Some(id)) => {
            writer.write(1, |to| to.entry(now, id));
        }
        (true, -1, _) => {
            writer.write(1, |to| to.exit(now));
        }
        // The header of a new chunk lists the open calls.
        _ => {
            writer.next_chunk();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunks::now;
    use crate::testing::{Thread, call};

    /// The stack pointer of the interrupted hook.
    const HOOK: u64 = 0x10_0000;

    /// Returns a thread with an open call, in whose hook a handler begins to call, and the number of entries below that
    /// call: those that another test's thread has left in the record.
    fn interrupted() -> (Thread, usize) {
        let mut thread = Thread::new();
        let mut writer = thread.writer();
        let below = writer.entries().len();
        let time = now(&thread.arena);
        writer.write(1, |to| to.entry(time, 1));
        thread.push(call(1, HOOK + 16));
        // The hook has begun to write an entry behind the innermost one.
        thread.push(call(9, HOOK));
        thread.pop();
        thread.block.busy = HOOK;
        // SAFETY: this thread's record, to which there is no other reference.
        assert!(begin(thread.block, unsafe { &mut *thread.record }));
        (thread, below)
    }

    fn enter(thread: &mut Thread, function: u32) {
        let time = now(&thread.arena);
        let written = thread
            .writer_behind()
            .write(1, |to| to.entry(time, function));
        assert!(written);
        thread.push(call(function, HOOK - 64));
        let calls = &thread.arena.header().handler_calls;
        calls.fetch_add(1, Ordering::Relaxed);
    }

    fn leave_one(thread: &mut Thread) {
        let time = now(&thread.arena);
        assert!(thread.writer_behind().write(1, |to| to.exit(time)));
        thread.pop();
        end_if_done(thread.record());
    }

    #[test]
    fn a_hook_is_interrupted_or_was_left() {
        let thread = Thread::new();
        let at = |busy, place| {
            let block = ThreadBlock {
                busy,
                record: thread.record,
                gate: thread.block.gate,
            };
            other(&block, place)
        };
        assert_eq!(at(0, HOOK), BusyHook::None);
        assert_eq!(at(HOOK, HOOK - 64), BusyHook::Interrupted);
        assert_eq!(at(HOOK, HOOK + 64), BusyHook::Left);
        assert_eq!(at(shadow::OWN_WORK, HOOK + 64), BusyHook::Interrupted);
    }

    #[test]
    fn what_a_handler_calls_follows_what_the_hook_writes() {
        let (mut thread, below) = interrupted();
        enter(&mut thread, 2);
        enter(&mut thread, 3);
        assert!(thread.record().interrupted.is_active());
        assert_eq!(thread.log(), ["+1"], "the chunk is the hook's");
        assert_eq!(thread.writer_behind().outside(), below + 2);
        leave_one(&mut thread);
        assert!(thread.record().interrupted.is_active());
        leave_one(&mut thread);
        assert!(thread.record().interrupted.is_waiting());
        // SAFETY: the hook writes behind the innermost entry.
        let now_behind = unsafe { thread.record().top.add(1).read() };
        assert_eq!((now_behind.id(), now_behind.slot), (9, HOOK));
        assert_eq!(thread.writer_behind().entries().len(), below + 1);
        // The hook goes on: a call of function 4.
        let mut writer = thread.writer_behind();
        let cursor = writer.cursor();
        // SAFETY: the chunk has room.
        let rest = unsafe {
            slice::from_raw_parts_mut(ptr::with_exposed_provenance_mut(cursor.next as usize), 64)
        };
        let mut encoder = Encoder::new(rest, 0, cursor.time);
        encoder.entry(cursor.time, 4).unwrap();
        cursor.next += encoder.used() as u64;
        thread.push(call(4, HOOK));
        thread.block.busy = 0;
        thread.writer();
        assert_eq!(thread.log(), ["+1", "+4", "+2", "+3", "-", "-"]);
        assert!(!thread.record().interrupted.is_waiting());
    }

    #[test]
    fn calls_of_a_handler_that_jumps_are_left() {
        let (mut thread, below) = interrupted();
        enter(&mut thread, 2);
        enter(&mut thread, 3);
        let mut writer = thread.writer_behind();
        // SAFETY: this thread's record and block.
        unsafe { leave(thread.block, &mut writer) };
        assert_eq!(thread.block.busy, 0);
        assert!(!thread.record().interrupted.is_active());
        assert!(!thread.record().interrupted.is_waiting());
        assert_eq!(thread.writer().entries().len(), below + 1);
        assert_eq!(thread.log(), ["+1", "+2", "+3", "^2"]);
    }

    #[test]
    fn a_hook_that_was_left_is_completed() {
        // The hook has put a call on the shadow stack, and has not recorded it.
        let mut thread = Thread::new();
        let time = now(&thread.arena);
        thread.writer().write(1, |to| to.entry(time, 1));
        thread.push(call(1, HOOK + 16));
        thread.push(call(2, HOOK));
        thread.block.busy = HOOK;
        // SAFETY: this thread's record and block.
        unsafe { leave(thread.block, &mut thread.writer_behind()) };
        assert_eq!(thread.log(), ["+1", "+2"]);
        // The hook has taken a call off, and has not recorded that.
        thread.pop();
        thread.block.busy = HOOK;
        // SAFETY: as above.
        unsafe { leave(thread.block, &mut thread.writer_behind()) };
        assert_eq!(thread.log(), ["+1", "+2", "-"]);
        // The hook had finished.
        thread.block.busy = HOOK;
        // SAFETY: as above.
        unsafe { leave(thread.block, &mut thread.writer_behind()) };
        assert_eq!(thread.log(), ["+1", "+2", "-"]);
    }

    #[test]
    fn handlers_calls_are_refused_when_no_more_can_be_kept() {
        let (mut thread, _) = interrupted();
        let mut count = 0;
        // SAFETY: this thread's record, to which there is no other reference.
        while begin(thread.block, unsafe { &mut *thread.record }) {
            enter(&mut thread, 2);
            count += 1;
        }
        assert!(count > 20, "{count}");
        for _ in 0..count {
            // So late that each record takes its full size.
            std::thread::sleep(std::time::Duration::from_micros(50));
            leave_one(&mut thread);
        }
        assert!(thread.record().interrupted.kept() <= SIZE);
        thread.block.busy = 0;
        thread.writer();
        let log = thread.log();
        let entries = log.iter().filter(|word| *word == "+2").count();
        let exits = log.iter().filter(|word| *word == "-").count();
        assert_eq!((entries, exits), (count, count));
    }

    #[test]
    fn a_forked_child_writes_elsewhere() {
        let (mut thread, _) = interrupted();
        enter(&mut thread, 2);
        let before = thread.log();
        thread.record().interrupted.forget();
        go_on_in_child(&mut thread.writer_behind());
        // The interrupted hook writes to memory that nobody reads.
        let (next, end) = (
            thread.writer_behind().cursor().next,
            thread.writer_behind().cursor().end,
        );
        assert_eq!(end, 0);
        let nowhere = NOWHERE.0.get().addr() as u64;
        assert!((nowhere..nowhere + 64).contains(&next));
        assert_eq!(before, ["+1"]);
        leave_one(&mut thread);
        thread.block.busy = 0;
        thread.writer();
        assert_eq!(
            thread.log(),
            ["-"],
            "the chunk's header lists what was open"
        );
    }
}
