//! A thread's memory: its cursor, its record and its shadow stack.
//!
//! Each thread has one mapping. A forked child finds its first two parts zeroed.
//!
//! ```text
//! | open executions | cursor, 1 page | record | segment: header, floor, entry, entry, … |
//!   FRONT bytes                        TO_RECORD  RECORD_SIZE bytes further
//! ```
//!
//! [`crate::segments`] describes the segment, which holds the shadow stack. An *entry* of the shadow stack stands for
//! one open call; the *slot* of an entry is the address at which the call's return address lay on the stack.
//!
//! Generated code reads and writes the fields whose offsets [`dioptra_tracelayout::message::thread`] names. Unwinders
//! find the entry of a thunk's frame by the frame pointer, or by a walk over the entries of all records.

use crate::interrupted::Interrupted;
use crate::segments::{SegmentSpan, StackSegment};
use core::sync::atomic::{AtomicPtr, AtomicU64};
use dioptra_tracelayout::arena::{Arena, LARGEST_PAGE};
use dioptra_tracelayout::message::thread as layout;
use dioptra_tracelayout::sampling::{self, Judged};

/// The size of the smallest pages that kernels have.
pub const PAGE: usize = 4096;

/// The thread-local block of a thread.
#[repr(C)]
#[derive(Debug)]
pub struct ThreadBlock {
    /// The thread's record; the dummy's before the thread's first traced call.
    pub record: *mut ThreadRecord,
    /// The stack pointer of the hook that is at work, or 0.
    pub busy: u64,
    /// The limits on the stack below which calls are hidden.
    pub gate: StackGate,
}

/// The limits on the stack below which calls are hidden; see [`layout::kind`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackGate {
    /// Calls with a slot below this address are not recorded.
    pub hidden: u64,
    /// Calls with a slot below this address pass without any work.
    pub muted: u64,
    /// The number of recorded calls around the current position.
    pub level: u64,
    /// Not 0: a hook that is not generated records nothing if it is called from below this address, whatever function
    /// calls it, until the innermost call has ended.
    pub quiet: u64,
    /// The address of the function of that innermost call.
    pub quieter: u64,
}

impl StackGate {
    /// Returns the gate of a call stack without calls.
    pub fn at_start(arena: &Arena) -> StackGate {
        StackGate {
            hidden: arena.hidden,
            ..StackGate::default()
        }
    }

    /// Returns the gate in the form in which an entry keeps it. Calls that keep it are not muted.
    pub fn saved(&self) -> u64 {
        self.hidden | self.level << 48
    }

    /// Restores the gate that the outermost of `left`, calls that have ended, found at its beginning.
    #[inline]
    pub fn leave(&mut self, left: &[ShadowEntry]) {
        if left
            .iter()
            .any(|entry| entry.flags & layout::ENTRY_MUTE != 0)
        {
            self.muted = 0;
            self.quiet = 0;
        }
        let outermost = left
            .iter()
            .find(|entry| entry.flags & layout::ENTRY_SAVED != 0);
        if let Some(entry) = outermost {
            self.hidden = entry.spare & layout::OUTSIDE;
            self.level = entry.spare >> 48;
            self.quiet = 0;
        }
    }
}

/// The value of [`ThreadBlock::busy`] while the thread does the tracer's own work, which is not traced.
pub const OWN_WORK: u64 = u64::MAX;

/// The position at which a thread writes its records. All zero in a forked child.
#[repr(C)]
#[derive(Debug)]
pub struct ChunkCursor {
    /// The address at which the next record is written.
    pub next: u64,
    /// The address at which hooks stop, a little before the chunk's end.
    pub end: u64,
    /// The tick of the last record.
    pub time: u64,
    /// Not 0 if this page belongs to the process that wrote it.
    pub alive: u64,
    /// The number of the chunk plus one; 0 if there is no chunk.
    pub chunk: u64,
    /// The number of records that could not be written since the last chunk.
    pub lost: u64,
    /// The address of the area in which the thread counts calls of sampled functions, or 0.
    pub area: u64,
}

/// The tracer's record of a thread.
#[repr(C)]
#[derive(Debug)]
pub struct ThreadRecord {
    /// The shadow stack's innermost entry.
    pub top: *mut ShadowEntry,
    /// The last entry above which another one may be pushed.
    pub limit: *mut ShadowEntry,
    /// The next record of the list.
    pub next: *mut ThreadRecord,
    /// The shadow stack's floor: the entry below all others.
    pub floor: *mut ShadowEntry,
    /// Not 0 if the thread has ended, so that another thread can use the record.
    pub ended: u64,
    /// The number of the thread's stream.
    pub stream: u32,
    /// The number of the stream's next chunk.
    pub sequence: u32,
    /// The process id.
    pub pid: u32,
    /// The thread id.
    pub tid: u32,
    /// The stream that this one continues; 0 once the first chunk has said so.
    pub parent: u32,
    /// The number of times that the thread's destructors have been run.
    pub destructors: u32,
    /// The size of the mapping in bytes.
    pub size: usize,
    /// The number of the call stack that the thread is on.
    pub stack: u32,
    /// The thread's area, as in [`ChunkCursor::area`]. In a forked child it is still the parent's.
    pub area: u64,
    /// The thread's block; null once the thread has ended. A thread that finds the address of its own block here has
    /// the memory of a thread that ended unnoticed.
    pub block: AtomicPtr<ThreadBlock>,
    /// The state of signal handlers that interrupt a hook.
    pub interrupted: Interrupted,
    /// The segment that holds the shadow stack.
    pub segment: *mut StackSegment,
    /// The last parked entry above an entry that an interrupted hook is about to write, or null. While there is one,
    /// the limit keeps hooks from overwriting it.
    pub held: *mut ShadowEntry,
    /// The number of entries from which on the thread examines whether another segment would hold fewer.
    pub renew_at: usize,
    /// The memory of the thread's own segment.
    pub span: SegmentSpan,
}

/// The registers that the end of a call gives back to its caller.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The caller's frame pointer.
    pub frame: u64,
    /// The address to which the call returns.
    pub return_address: u64,
}

/// An entry of a shadow stack: an open call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ShadowEntry {
    /// The caller's frame pointer.
    pub frame: u64,
    /// The return address. It follows the frame pointer, so that the two are a frame record.
    pub return_address: u64,
    /// The slot: the address at which the return address lay on the stack.
    pub slot: u64,
    /// The function in the form of a thunk's operand ([`layout::function_id`]).
    pub function: u32,
    /// The flags, [`layout::ENTRY_TAIL`] and others.
    pub flags: u32,
    /// With [`layout::ENTRY_SAVED`]: the gate before the call.
    pub spare: u64,
}

impl ShadowEntry {
    /// The floor of a shadow stack.
    pub const BOTTOM: ShadowEntry = ShadowEntry {
        frame: 0,
        return_address: 0,
        slot: layout::NO_SLOT,
        function: 0,
        flags: 0,
        spare: 0,
    };

    /// Returns the registers that the call's end gives back.
    pub fn caller(&self) -> Caller {
        Caller {
            frame: self.frame,
            return_address: self.return_address,
        }
    }

    /// Returns true if the call's beginning has been recorded and its end has not.
    pub fn is_open(&self) -> bool {
        let others = layout::ENTRY_UNWOUND | layout::ENTRY_MUTE | layout::ENTRY_SILENT;
        self.flags & others == 0
    }

    /// Returns the function's id.
    pub fn id(&self) -> u32 {
        layout::function_id(self.function)
    }
}

/// The size in bytes of the part of the mapping in front of the cursor, which describes open executions.
pub const FRONT: usize = sampling::FRONT;

/// The offset of the record in a thread's mapping. Forked children find the pages before it zeroed, so nothing else
/// may lie on them.
pub const TO_RECORD: usize = (FRONT + PAGE).next_multiple_of(LARGEST_PAGE);

/// The size of a record in bytes, with padding.
pub const RECORD_SIZE: usize = 320;

const _: () = {
    use core::mem::offset_of;
    assert!(PAGE as i64 == -layout::CURSOR_NEXT);
    assert!(offset_of!(ThreadBlock, record) as i64 == layout::BLOCK_RECORD);
    assert!(offset_of!(ThreadBlock, busy) as i64 == layout::BLOCK_BUSY);
    assert!(offset_of!(ThreadBlock, gate.hidden) as i64 == layout::BLOCK_HIDDEN);
    assert!(offset_of!(ThreadBlock, gate.muted) as i64 == layout::BLOCK_MUTED);
    assert!(offset_of!(ThreadBlock, gate.level) as i64 == layout::BLOCK_LEVEL);
    assert!(size_of::<ThreadBlock>() <= 64);
    assert!(offset_of!(ChunkCursor, next) as i64 == layout::CURSOR_NEXT + PAGE as i64);
    assert!(offset_of!(ChunkCursor, end) as i64 == layout::CURSOR_END + PAGE as i64);
    assert!(offset_of!(ChunkCursor, time) as i64 == layout::CURSOR_TIME + PAGE as i64);
    assert!(offset_of!(ChunkCursor, area) as i64 == layout::CURSOR_AREA + PAGE as i64);
    assert!(offset_of!(ThreadRecord, top) as i64 == layout::RECORD_TOP);
    assert!(offset_of!(ThreadRecord, limit) as i64 == layout::RECORD_LIMIT);
    assert!(offset_of!(ThreadRecord, next) as i64 == layout::RECORD_NEXT);
    assert!(offset_of!(ShadowEntry, frame) as i64 == layout::ENTRY_FRAME);
    assert!(offset_of!(ShadowEntry, return_address) as i64 == layout::ENTRY_RETURN);
    assert!(layout::ENTRY_RETURN == layout::ENTRY_FRAME + 8);
    assert!(offset_of!(ShadowEntry, slot) as i64 == layout::ENTRY_SLOT);
    assert!(offset_of!(ShadowEntry, function) as i64 == layout::ENTRY_FUNCTION);
    assert!(offset_of!(ShadowEntry, flags) as i64 == layout::ENTRY_FLAGS);
    assert!(offset_of!(ShadowEntry, spare) as i64 == layout::ENTRY_SPARE);
    assert!(size_of::<ShadowEntry>() as i64 == layout::ENTRY_SIZE);
    assert!(offset_of!(ThreadRecord, floor) as i64 == layout::RECORD_FLOOR);
    assert!(
        size_of::<ThreadRecord>() <= RECORD_SIZE
            && RECORD_SIZE.is_multiple_of(align_of::<StackSegment>())
    );
    assert!(FRONT.is_multiple_of(PAGE));
};

/// The record and cursor to which threads point before their first traced call. The cursor has no room, so that hooks
/// give up.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Dummy {
    cursor: ChunkCursor,
    fill: [u8; PAGE - size_of::<ChunkCursor>()],
    record: ThreadRecord,
    bottom: ShadowEntry,
}

// SAFETY: nobody writes to the dummy; hooks only read it.
unsafe impl Sync for Dummy {}

/// The only [`Dummy`].
pub static DUMMY: Dummy = Dummy {
    cursor: ChunkCursor {
        next: 0,
        end: 0,
        time: 0,
        alive: 1,
        chunk: 0,
        lost: 0,
        area: 0,
    },
    fill: [0; PAGE - size_of::<ChunkCursor>()],
    record: ThreadRecord {
        top: (&raw const DUMMY.bottom).cast_mut(),
        limit: (&raw const DUMMY.bottom).cast_mut(),
        next: core::ptr::null_mut(),
        floor: (&raw const DUMMY.bottom).cast_mut(),
        ended: 0,
        stream: 0,
        sequence: 0,
        pid: 0,
        tid: 0,
        parent: 0,
        destructors: 0,
        size: 0,
        stack: 0,
        area: 0,
        block: AtomicPtr::new(core::ptr::null_mut()),
        interrupted: Interrupted::NOT,
        segment: core::ptr::null_mut(),
        held: core::ptr::null_mut(),
        renew_at: 0,
        span: SegmentSpan::NONE,
    },
    bottom: ShadowEntry::BOTTOM,
};

/// The offset of the record in the dummy.
pub const DUMMY_RECORD_OFFSET: usize = core::mem::offset_of!(Dummy, record);

const _: () = assert!(DUMMY_RECORD_OFFSET == PAGE);

/// The list of all records. It only ever grows.
pub static THREADS: AtomicPtr<ThreadRecord> = AtomicPtr::new(core::ptr::null_mut());

/// Returns true if a record is the dummy's.
pub fn is_dummy(record: *const ThreadRecord) -> bool {
    core::ptr::eq(record, &raw const DUMMY.record)
}

/// Returns the cursor of a record.
///
/// # Safety
/// The record is in its place, a page after its cursor.
pub unsafe fn cursor(record: *mut ThreadRecord) -> *mut ChunkCursor {
    // SAFETY: the caller's promise.
    unsafe { record.byte_sub(PAGE).cast() }
}

/// Returns [`ChunkCursor::alive`] of any thread's record.
///
/// # Safety
/// The record is in its place, a page after its cursor.
pub unsafe fn alive<'a>(record: *mut ThreadRecord) -> &'a AtomicU64 {
    // SAFETY: the caller's promise; records are never unmapped.
    unsafe { AtomicU64::from_ptr(&raw mut (*cursor(record)).alive) }
}

/// Returns the state of a judged function by its number, which lies in front of the thread's cursor. `record` is not
/// the dummy's.
pub fn judged(record: *mut ThreadRecord, number: u32) -> *mut Judged {
    record
        .wrapping_byte_offset(sampling::judged(number) as isize)
        .cast()
}

/// Returns the number of open chosen executions of a filter by its sampling slot, in front of the states of judged
/// functions. `record` is not the dummy's.
pub fn open(record: *mut ThreadRecord, slot: u32) -> *mut u32 {
    record
        .wrapping_byte_offset(sampling::open(slot) as isize)
        .cast()
}

/// Returns the address of a thread's own segment, behind its record.
pub fn own_segment(record: *mut ThreadRecord) -> *mut StackSegment {
    record.wrapping_byte_add(RECORD_SIZE).cast()
}

/// Returns the record to which threads point before their first traced call and after their end.
pub fn dummy() -> *mut ThreadRecord {
    (&raw const DUMMY.record).cast_mut()
}
