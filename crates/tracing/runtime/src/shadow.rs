//! A thread's memory: its cursor, its record and its shadow stack.
//!
//! One mapping for each thread: what it knows of open executions, a page with the cursor, both of which a forked
//! child finds zeroed, then the record, then a segment for its shadow stack ([`crate::segments`]). Generated code reads and writes
//! the fields whose offsets [`dioptra_tracelayout::message::thread`] names; unwinders find the entry of a thunk's frame by
//! the frame pointer, or by a walk over the entries of all records.

use crate::interrupted::Interrupted;
use crate::segments::{Segment, Span};
use core::sync::atomic::{AtomicPtr, AtomicU64};
use dioptra_tracelayout::arena::{Arena, LARGEST_PAGE};
use dioptra_tracelayout::message::thread as layout;
use dioptra_tracelayout::sampling::{self, Judged};

/// The size of the smallest pages that kernels have.
pub const PAGE: usize = 4096;

/// A thread's thread-local block.
#[repr(C)]
#[derive(Debug)]
pub struct Block {
    /// Its record; the dummy's before its first traced call.
    pub record: *mut Record,
    /// The stack pointer of the hook that is at work, or 0.
    pub busy: u64,
    /// What is hidden by its place.
    pub gate: Gate,
}

/// Which calls are hidden by their place on the stack; see [`layout::kind`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gate {
    /// Calls with a slot below are not recorded.
    pub hidden: u64,
    /// Calls with a slot below are not even looked at.
    pub muted: u64,
    /// How many recorded calls are around.
    pub level: u64,
    /// Where a hook that is not generated is called from below this place, nothing is recorded whatever is called, as long as
    /// the innermost call has not ended; 0: that is not so.
    pub quiet: u64,
    /// The address of that call's function.
    pub quieter: u64,
}

impl Gate {
    /// That of a stack without calls.
    pub fn at_start(arena: &Arena) -> Gate {
        Gate {
            hidden: arena.hidden,
            ..Gate::default()
        }
    }

    /// As an entry keeps it. Calls that keep it are not muted.
    pub fn saved(&self) -> u64 {
        self.hidden | self.level << 48
    }

    /// Goes back to what the outermost of these calls, which have ended, found.
    #[inline]
    pub fn leave(&mut self, left: &[Entry]) {
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

/// [`Block::busy`] while the thread does the tracer's own work, which is not traced.
pub const OWN_WORK: u64 = u64::MAX;

/// Where a thread writes. All zero in a forked child.
#[repr(C)]
#[derive(Debug)]
pub struct Cursor {
    /// Where the next record goes.
    pub next: u64,
    /// Here the hooks stop: a little before the chunk's end.
    pub end: u64,
    /// The tick of the last record.
    pub time: u64,
    /// Not 0: this page belongs to the process that wrote it.
    pub alive: u64,
    /// The number of the chunk plus one; 0: none.
    pub chunk: u64,
    /// Records that could not be written since the last chunk.
    pub lost: u64,
    /// Where the thread counts calls of sampled functions, or 0.
    pub area: u64,
}

/// A thread, as the tracer knows it.
#[repr(C)]
#[derive(Debug)]
pub struct Record {
    /// The shadow stack's innermost entry.
    pub top: *mut Entry,
    /// The last entry that another one may follow.
    pub limit: *mut Entry,
    /// The next record of the list.
    pub next: *mut Record,
    /// The shadow stack's floor: the entry below all others.
    pub floor: *mut Entry,
    /// Not 0: the thread has ended, and the record can be used again.
    pub ended: u64,
    /// Its stream.
    pub stream: u32,
    /// The number of its next chunk.
    pub sequence: u32,
    /// Its process.
    pub pid: u32,
    /// Its id.
    pub tid: u32,
    /// The stream that it continues, until its first chunk has said so.
    pub parent: u32,
    /// How often the thread's destructors have been run.
    pub destructors: u32,
    /// The size of the mapping.
    pub size: usize,
    /// Which of the thread's call stacks it is on.
    pub stack: u32,
    /// [`Cursor::area`], also in a forked child: its parent's.
    pub area: u64,
    /// Its block; null once it has ended. A thread that finds its own block's address here has the memory of one that ended
    /// unnoticed.
    pub block: AtomicPtr<Block>,
    /// What handlers do that interrupt a hook.
    pub interrupted: Interrupted,
    /// The segment that the shadow stack is in.
    pub segment: *mut Segment,
    /// The last parked entry above an entry that an interrupted hook is about to write; null: there is none. Meanwhile the
    /// limit keeps hooks from overwriting it.
    pub held: *mut Entry,
    /// The number of entries from which on the thread examines whether another segment would hold fewer.
    pub renew_at: usize,
    /// The memory of the thread's own segment.
    pub span: Span,
}

/// What a call's end gives back to its caller.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The frame pointer.
    pub frame: u64,
    /// Where the call returns to.
    pub return_address: u64,
}

/// An open call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The caller's frame pointer.
    pub frame: u64,
    /// Where it returns to. Behind the former: the two are a frame record.
    pub return_address: u64,
    /// Where that lay on the stack.
    pub slot: u64,
    /// The function, as thunks have it ([`layout::function_id`]).
    pub function: u32,
    /// Flags.
    pub flags: u32,
    /// With [`layout::ENTRY_SAVED`]: the gate before.
    pub spare: u64,
}

impl Entry {
    /// A floor.
    pub const BOTTOM: Entry = Entry {
        frame: 0,
        return_address: 0,
        slot: layout::NO_SLOT,
        function: 0,
        flags: 0,
        spare: 0,
    };

    /// What its end gives back.
    pub fn caller(&self) -> Caller {
        Caller {
            frame: self.frame,
            return_address: self.return_address,
        }
    }

    /// Whether its beginning has been recorded, and its end has not.
    pub fn is_open(&self) -> bool {
        let others = layout::ENTRY_UNWOUND | layout::ENTRY_MUTE | layout::ENTRY_SILENT;
        self.flags & others == 0
    }

    /// The function's id.
    pub fn id(&self) -> u32 {
        layout::function_id(self.function)
    }
}

/// How much of the mapping lies in front of the cursor: what is known of open executions.
pub const FRONT: usize = sampling::FRONT;

/// From a thread's mapping to its record: forked children find the pages between them zeroed, with nothing else on them.
pub const TO_RECORD: usize = (FRONT + PAGE).next_multiple_of(LARGEST_PAGE);

/// The number of bytes that a record takes.
pub const RECORD_SIZE: usize = 320;

const _: () = {
    use core::mem::offset_of;
    assert!(PAGE as i64 == -layout::CURSOR_NEXT);
    assert!(offset_of!(Block, record) as i64 == layout::BLOCK_RECORD);
    assert!(offset_of!(Block, busy) as i64 == layout::BLOCK_BUSY);
    assert!(offset_of!(Block, gate.hidden) as i64 == layout::BLOCK_HIDDEN);
    assert!(offset_of!(Block, gate.muted) as i64 == layout::BLOCK_MUTED);
    assert!(offset_of!(Block, gate.level) as i64 == layout::BLOCK_LEVEL);
    assert!(size_of::<Block>() <= 64);
    assert!(offset_of!(Cursor, next) as i64 == layout::CURSOR_NEXT + PAGE as i64);
    assert!(offset_of!(Cursor, end) as i64 == layout::CURSOR_END + PAGE as i64);
    assert!(offset_of!(Cursor, time) as i64 == layout::CURSOR_TIME + PAGE as i64);
    assert!(offset_of!(Cursor, area) as i64 == layout::CURSOR_AREA + PAGE as i64);
    assert!(offset_of!(Record, top) as i64 == layout::RECORD_TOP);
    assert!(offset_of!(Record, limit) as i64 == layout::RECORD_LIMIT);
    assert!(offset_of!(Record, next) as i64 == layout::RECORD_NEXT);
    assert!(offset_of!(Entry, frame) as i64 == layout::ENTRY_FRAME);
    assert!(offset_of!(Entry, return_address) as i64 == layout::ENTRY_RETURN);
    assert!(layout::ENTRY_RETURN == layout::ENTRY_FRAME + 8);
    assert!(offset_of!(Entry, slot) as i64 == layout::ENTRY_SLOT);
    assert!(offset_of!(Entry, function) as i64 == layout::ENTRY_FUNCTION);
    assert!(offset_of!(Entry, flags) as i64 == layout::ENTRY_FLAGS);
    assert!(offset_of!(Entry, spare) as i64 == layout::ENTRY_SPARE);
    assert!(size_of::<Entry>() as i64 == layout::ENTRY_SIZE);
    assert!(offset_of!(Record, floor) as i64 == layout::RECORD_FLOOR);
    assert!(
        size_of::<Record>() <= RECORD_SIZE && RECORD_SIZE.is_multiple_of(align_of::<Segment>())
    );
    assert!(FRONT.is_multiple_of(PAGE));
};

/// What threads point to before their first traced call: a cursor without room, so that hooks give up.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Dummy {
    cursor: Cursor,
    fill: [u8; PAGE - size_of::<Cursor>()],
    record: Record,
    bottom: Entry,
}

// SAFETY: nobody writes it, except that hooks read it.
unsafe impl Sync for Dummy {}

/// The only one.
pub static DUMMY: Dummy = Dummy {
    cursor: Cursor {
        next: 0,
        end: 0,
        time: 0,
        alive: 1,
        chunk: 0,
        lost: 0,
        area: 0,
    },
    fill: [0; PAGE - size_of::<Cursor>()],
    record: Record {
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
        span: Span::NONE,
    },
    bottom: Entry::BOTTOM,
};

/// Where the record is in the dummy.
pub const DUMMY_RECORD_OFFSET: usize = core::mem::offset_of!(Dummy, record);

const _: () = assert!(DUMMY_RECORD_OFFSET == PAGE);

/// The list of all records. Only ever grows.
pub static THREADS: AtomicPtr<Record> = AtomicPtr::new(core::ptr::null_mut());

/// Whether a record is the dummy.
pub fn is_dummy(record: *const Record) -> bool {
    core::ptr::eq(record, &raw const DUMMY.record)
}

/// The cursor of a record.
///
/// # Safety
/// The record is in its place, a page after its cursor.
pub unsafe fn cursor(record: *mut Record) -> *mut Cursor {
    // SAFETY: the caller's promise.
    unsafe { record.byte_sub(PAGE).cast() }
}

/// [`Cursor::alive`] of any thread's record.
///
/// # Safety
/// The record is in its place, a page after its cursor.
pub unsafe fn alive<'a>(record: *mut Record) -> &'a AtomicU64 {
    // SAFETY: the caller's promise; records are never unmapped.
    unsafe { AtomicU64::from_ptr(&raw mut (*cursor(record)).alive) }
}

/// What a thread knows of a function that is judged, by its number, in front of its cursor; not the dummy.
pub fn judged(record: *mut Record, number: u32) -> *mut Judged {
    record
        .wrapping_byte_offset(sampling::judged(number) as isize)
        .cast()
}

/// How many chosen executions of a filter are open, by the slot, in front of that; not the dummy.
pub fn open(record: *mut Record, slot: u32) -> *mut u32 {
    record
        .wrapping_byte_offset(sampling::open(slot) as isize)
        .cast()
}

/// Returns the place of a thread's own segment, behind its record.
pub fn own_segment(record: *mut Record) -> *mut Segment {
    record.wrapping_byte_add(RECORD_SIZE).cast()
}

/// What threads point to before their first traced call, and after their end.
pub fn dummy() -> *mut Record {
    (&raw const DUMMY.record).cast_mut()
}
