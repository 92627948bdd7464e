//! The beginning and the end of a thread, and of a forked child.

use crate::chunks::RecordWriter;
use crate::segments;
use crate::session::{self, MappedArena};
use crate::shadow::{
    self, FRONT, PAGE, RECORD_SIZE, StackGate, THREADS, TO_RECORD, ThreadBlock, ThreadRecord,
};
use crate::slow::record_left;
use crate::{arch, confined, interrupted, libc_calls, parked, sampling, sys};

use core::sync::atomic::Ordering;
use dioptra_tracelayout::record::UnwindCause;

/// The numbers of open calls that a shadow stack may hold: the first for which there is memory. No 8 MiB stack has as
/// many calls as the largest.
const DEPTHS: [usize; 3] = [1 << 20, 1 << 15, 1 << 10];
/// The largest number of times that the C library runs the destructors of a thread's values
/// (`PTHREAD_DESTRUCTOR_ITERATIONS`).
const DESTRUCTOR_ROUNDS: u32 = 4;

/// Returns this thread's record, which is made now if this is the thread's first traced call. Returns `None` if there
/// is no memory for it.
pub fn record(block: &mut ThreadBlock, arena: MappedArena) -> Option<*mut ThreadRecord> {
    if !shadow::is_dummy(block.record) {
        // SAFETY: no dummy, so mapped with a cursor in front.
        let alive = unsafe { (*shadow::cursor(block.record)).alive != 0 };
        if !alive {
            forked(block, arena);
        }
        return Some(block.record);
    }
    let record = match reuse(block, arena) {
        Some(record) => {
            if !arena.choices().is_empty() {
                let judged = record.cast::<u8>().wrapping_sub(PAGE + FRONT);
                // SAFETY: the memory lies in front of the cursor and was used by a thread that has ended.
                unsafe { sys::wipe(judged, FRONT) };
            }
            record
        }
        None => create()?,
    };
    // SAFETY: ours alone from now on.
    unsafe {
        (*record).stream = arena.header().next_stream.fetch_add(1, Ordering::Relaxed);
        (*record).sequence = 0;
        (*record).parent = 0;
        (*record).stack = 0;
        (*record).destructors = 0;
        (*record).pid = sys::pid();
        (*record).tid = sys::tid();
        (*record).block.store(block, Ordering::Relaxed);
        (*record).interrupted.clear();
        leave_all(record);
        let cursor = &mut *shadow::cursor(record);
        (cursor.next, cursor.end, cursor.chunk, cursor.lost) = (0, 0, 0, 0);
        cursor.area = 0;
        (*record).area = 0;
        cursor.alive = 1;
    }
    block.record = record;
    block.gate = StackGate::at_start(arena.header());
    libc_calls::watch_end(record);
    Some(record)
}

/// Takes a record whose thread has ended: it has said so, or its block is this thread's now because it called
/// `SYS_exit`.
///
/// Records of a parent's threads are left to [`forked`]. A record that is made meanwhile lies before them in the
/// list, so that unwinders find it first.
fn reuse(block: *mut ThreadBlock, arena: MappedArena) -> Option<*mut ThreadRecord> {
    let mut record = THREADS.load(Ordering::Acquire);
    while !record.is_null() {
        // SAFETY: records are never unmapped. `ended` is the owner's until it is not 0, then it belongs to the thread
        // that exchanges it for 0.
        unsafe {
            if shadow::alive(record).load(Ordering::Acquire) == 0 {
                record = (*record).next;
                continue;
            }
            if core::ptr::eq((*record).block.load(Ordering::Relaxed), block) {
                (*record).interrupted.clear();
                let mut writer = RecordWriter::behind(record, arena);
                sampling::end(&mut writer);
                writer.close();
                return Some(record);
            }
            let ended = core::sync::atomic::AtomicU64::from_ptr(&raw mut (*record).ended);
            if ended.load(Ordering::Relaxed) != 0
                && ended
                    .compare_exchange(1, 0, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                return Some(record);
            }
            record = (*record).next;
        }
    }
    None
}

fn create() -> Option<*mut ThreadRecord> {
    let (memory, size, depth) = DEPTHS.iter().find_map(|&depth| {
        let size = TO_RECORD + RECORD_SIZE + segments::size(depth);
        Some((sys::map_private(size).ok()?, size, depth))
    })?;
    // A child of a kernel older than 4.14 would go on in its parent's chunk.
    if !sys::wipe_on_fork(memory, TO_RECORD) {
        // SAFETY: no other thread knows of the memory yet.
        unsafe { sys::unmap(memory, size) };
        return None;
    }
    let record = memory.wrapping_add(TO_RECORD).cast::<ThreadRecord>();
    let segment = shadow::own_segment(record);
    // SAFETY: new memory, large enough for the record and its segment.
    unsafe {
        segments::add(&raw mut (*record).span, segment, depth);
        (*segment).owner.store(record, Ordering::Relaxed);
        (*record).segment = segment;
        (*record).floor = segments::floor(segment);
        (*record).top = segments::floor(segment);
        (*record).limit = segments::limit(segment);
        (*record).size = size;
        // Before another thread takes the record for a parent's thread's.
        (*shadow::cursor(record)).alive = 1;
        let mut head = THREADS.load(Ordering::Relaxed);
        loop {
            (*record).next = head;
            match THREADS.compare_exchange_weak(head, record, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => break,
                Err(other) => head = other,
            }
        }
    }
    Some(record)
}

/// Begins the records of a child that the C library has forked. A handler may return into a hook whose cursor is
/// wiped, and call nothing before that.
pub extern "C" fn in_child() {
    let Some(arena) = session::arena() else {
        return;
    };
    let _signals = sys::BlockedSignals::new();
    sys::forget_others();
    // SAFETY: the block of this thread, which is the only one.
    let block = unsafe { &mut *arch::block() };
    if shadow::is_dummy(block.record) {
        return;
    }
    // SAFETY: this thread's record.
    sampling::leave_parents(unsafe { &mut *block.record }, &arena);
    if matches!(block.busy, 0 | shadow::OWN_WORK) {
        // Hooks of exits begin before they set `busy`. SAFETY: this thread's record.
        interrupted::write_nowhere(unsafe { &mut *shadow::cursor(block.record) });
    } else {
        record(block, arena);
    }
}

/// Begins a stream of the thread that has forked, in the child. Its open calls stay open.
///
/// The child may have other threads by now, whose records are not touched: only records that came from the parent are
/// wiped.
fn forked(block: &ThreadBlock, arena: MappedArena) {
    let record = block.record;
    // SAFETY: the record is this thread's; the threads of the other wiped records do not exist here.
    unsafe {
        let mut other = THREADS.load(Ordering::Acquire);
        while !other.is_null() {
            let alive = shadow::alive(other);
            if other != record && alive.load(Ordering::Acquire) == 0 {
                // This thread may go on next with a call stack that the other thread was on.
                (*other).interrupted.clear();
                leave_all(other);
                (*other)
                    .block
                    .store(core::ptr::null_mut(), Ordering::Relaxed);
                (*other).ended = 1;
                alive.store(1, Ordering::Release);
            }
            other = (*other).next;
        }
        (*record).parent = (*record).stream;
        (*record).stream = arena.header().next_stream.fetch_add(1, Ordering::Relaxed);
        (*record).sequence = 0;
        (*record).pid = sys::pid();
        (*record).tid = sys::tid();
        (*record).interrupted.forget();
        (*shadow::cursor(record)).alive = 1;
        if !matches!(block.busy, 0 | shadow::OWN_WORK) {
            let mut writer = RecordWriter::behind(record, arena);
            sampling::prepare(&mut writer, &arena);
            interrupted::go_on_in_child(&mut writer);
        }
    }
}

/// Handles the destruction of the thread's values. The C library calls it again and again; the last call closes the
/// thread's stream.
pub extern "C" fn ending(record: *mut libc::c_void) {
    if confined::is_quiet() {
        // Open calls return through the record, and no other thread will use it.
        return;
    }
    let record: *mut ThreadRecord = record.cast();
    let Some(arena) = session::arena() else {
        return;
    };
    let _signals = sys::BlockedSignals::new();
    // SAFETY: the value was set by this thread, whose record and block they are.
    unsafe {
        let block = &mut *arch::block();
        if block.record != record {
            return;
        }
        (*record).destructors += 1;
        if (*record).destructors < DESTRUCTOR_ROUNDS {
            // Other destructors may still call traced functions.
            libc_calls::watch_end(record);
            return;
        }
        let busy = block.busy;
        if !matches!(busy, 0 | shadow::OWN_WORK) {
            // A handler has ended the thread.
            let mut writer = RecordWriter::behind(record, arena);
            interrupted::leave(block, &mut writer);
        }
        block.busy = 1;
        end(record, arena);
        // Calls that are still open (of the C library, if that is traced) will return through their entries, perhaps
        // in other threads.
        leave_all(record);
        block.record = shadow::dummy();
        block.gate = StackGate::default();
        (*record)
            .block
            .store(core::ptr::null_mut(), Ordering::Relaxed);
        core::sync::atomic::AtomicU64::from_ptr(&raw mut (*record).ended)
            .store(1, Ordering::Release);
        block.busy = if busy == shadow::OWN_WORK { busy } else { 0 };
    }
}

/// Leaves all calls that are still on a thread's shadow stack. The thread does not go on with them.
///
/// # Safety
/// The record is this thread's and hooks are kept away, or that of a thread that does not exist in this process.
unsafe fn leave_all(record: *mut ThreadRecord) {
    // SAFETY: the caller's promise.
    unsafe {
        parked::reopen(record);
        if (*record).top > (*record).floor {
            parked::leave(record, (*record).floor.add(1), true);
        }
    }
}

/// Closes the stream of a thread.
///
/// # Safety
/// The record is this thread's, and hooks are kept away.
unsafe fn end(record: *mut ThreadRecord, arena: MappedArena) {
    // SAFETY: the caller's promise.
    let mut writer = unsafe { RecordWriter::new(record, arena) };
    let has_records = writer.cursor().chunk != 0 || writer.cursor().lost != 0;
    if has_records {
        let count = writer.entries().len();
        record_left(&mut writer, 0..count, UnwindCause::ThreadEnd);
    }
    sampling::end(&mut writer);
    if !has_records {
        return;
    }
    writer.tell_lost();
    writer.close();
}

/// Closes the stream of the thread that ends the process, because no destructor runs for it.
pub extern "C" fn process_ending() {
    let Some(arena) = session::arena() else {
        return;
    };
    // SAFETY: the block of this thread, and its record or the dummy, each behind its cursor.
    let (block, lost) = unsafe {
        let block = &mut *arch::block();
        let lost = (*shadow::cursor(block.record)).lost;
        (block, lost)
    };
    if lost > 0 && block.busy == 0 {
        let _signals = sys::BlockedSignals::new();
        block.busy = shadow::OWN_WORK;
        // SAFETY: no dummy has lost anything, and hooks are kept away. Later calls go on in the chunk.
        unsafe { RecordWriter::new(block.record, arena).tell_lost() };
        block.busy = 0;
    }
}
