//! Stacks that a program exchanges with `swapcontext` and `setcontext`: each has a segment of its own.
//!
//! The runtime sees calls of these functions. So it exchanges the shadow stack along with the call stack, and records
//! the exchange. It writes the address of a suspended stack's segment into the program's context: glibc's signal sets
//! have 1024 bits, of which the kernel knows 64, and nobody reads or writes the others. So no table must be locked or
//! searched.
//!
//! A thread may also come back to a suspended stack without the runtime's knowledge, as when a coroutine's function
//! returns to `uc_link`. The runtime notices that when a call of the stack returns ([`adopt`]).
//!
//! A program that makes a new stack in the memory of a suspended one has ended that one, as a rule. But some programs
//! let all coroutines run in the same memory, and copy their stacks away and back. The context decides: as long as it
//! names the segment ([`is_named`]), the program may go on with the old stack.

use crate::arch;
use crate::chunks::{RecordWriter, now};
use crate::judged;
use crate::parked;
use crate::segments::{self, SegmentState, StackSegment};
use crate::session;
use crate::shadow::StackGate;
use crate::sys;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// The first of the runtime's two words in a context's signal set; the second is the segment's address.
const MARK: u64 = u64::from_le_bytes(*b"dioptra\x01");
const MARK_AT: usize = 12;
const SEGMENT_AT: usize = 13;

/// The number of the next stack in this process.
static NEXT_STACK: AtomicU32 = AtomicU32::new(1);

/// The number of stacks whose last segment is remembered by the address at which their memory begins.
const REMEMBERED: usize = 1 << 16;
/// The last segment of each stack whose memory the program has named. A program that begins a new stack in the same
/// memory has ended the old one. [`segments::take`] finds segments that were forgotten here.
static LAST: [AtomicPtr<StackSegment>; REMEMBERED] =
    [const { AtomicPtr::new(ptr::null_mut()) }; REMEMBERED];

/// Returns true if this process has exchanged stacks.
pub fn is_used() -> bool {
    NEXT_STACK.load(Ordering::Relaxed) > 1
}

/// A call stack that a thread leaves.
#[derive(Clone, Copy, Debug)]
pub struct Leaving {
    /// The stack pointer with which the call stack will be resumed.
    pub key: u64,
    /// The address of the context (`ucontext_t`) in which the call stack is saved.
    pub context: u64,
}

/// A call stack with which a thread goes on.
#[derive(Clone, Copy, Debug)]
pub struct Entering {
    /// The stack pointer.
    pub key: u64,
    /// The address of the context.
    pub context: u64,
    /// The address at which the stack's memory begins, if the context was made for a stack of its own.
    pub stack: Option<u64>,
}

/// Exchanges the thread's call stack. The thread leaves a stack, which is saved in a context unless `leaving` is
/// `None`, and enters another.
pub fn switch(writer: &mut RecordWriter, leaving: Option<Leaving>, entering: Entering) {
    let found = suspended(entering);
    // SAFETY: this thread's segment.
    let here = unsafe { (*writer.record().segment).stack_start };
    let is_here = leaving.is_none() && entering.stack == Some(here);
    if found.is_none() && (entering.stack.is_none() || is_here) {
        // A jump within this stack, as by longjmp. The calls that it leaves are noticed later.
        return;
    }
    let (segment, is_new) = match found {
        Some(segment) => (segment, false),
        None => match begin(entering) {
            Some(taken) => taken,
            None => {
                // Calls of both stacks are in one segment from now on, as if the runtime had not seen the exchange.
                let missed = &writer.arena().header().missed_no_memory;
                missed.fetch_add(1, Ordering::Relaxed);
                return;
            }
        },
    };
    leave(writer, leaving);
    enter(writer, segment, is_new);
}

/// Goes on with the suspended stack of a call that returns now. Returns false if another thread has taken that stack.
///
/// # Safety
/// `segment` is a segment.
pub unsafe fn adopt(writer: &mut RecordWriter, segment: *mut StackSegment) -> bool {
    // SAFETY: the caller's promise.
    if unsafe { !(*segment).exchange(SegmentState::Parked, SegmentState::Active) } {
        return false;
    }
    leave(writer, None);
    enter(writer, segment, false);
    true
}

/// Takes the suspended segment that a context names.
fn suspended(entering: Entering) -> Option<*mut StackSegment> {
    // SAFETY: a context: the program is about to use it.
    let words = unsafe { arch::signal_set(entering.context) };
    let [mark, address] = [MARK_AT, SEGMENT_AT].map(|at| words.get(at).copied().unwrap_or(0));
    if mark != MARK {
        return None;
    }
    let floor = address.checked_add(segments::HEADER as u64)?;
    // Whatever the word is, `find` returns a segment only where there is one.
    let (segment, _) =
        segments::find(floor + dioptra_tracelayout::message::thread::ENTRY_SIZE as u64)?;
    if segment.addr() as u64 != address {
        return None;
    }
    // SAFETY: a segment; its key is written only while it is not parked.
    unsafe {
        let is_it = (*segment).state() == SegmentState::Parked && (*segment).key == entering.key;
        (is_it && (*segment).exchange(SegmentState::Parked, SegmentState::Active))
            .then_some(segment)
    }
}

/// Returns the entry of the table for a stack. The hash fits stacks that are as far apart as they are large.
fn remembered(stack: u64) -> Option<&'static AtomicPtr<StackSegment>> {
    let hash = (stack >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    LAST.get(hash as usize % REMEMBERED)
}

/// Returns true if the context in which a segment's stack was saved still names the segment. Then the program may go
/// on with that stack.
///
/// # Safety
/// `segment` is a segment.
pub unsafe fn is_named(segment: *mut StackSegment) -> bool {
    // SAFETY: the caller's promise. The context may be gone, so the kernel reads it.
    unsafe {
        if (*segment).context == 0 {
            return false;
        }
        if !parked::can_look() {
            return true;
        }
        let words = arch::signal_set((*segment).context)
            .as_ptr()
            .wrapping_add(MARK_AT);
        let mut read = [0; 2];
        let read = sys::read_memory(sys::pid(), words.expose_provenance() as u64, &mut read);
        read == [MARK, segment.addr() as u64]
    }
}

/// Takes a segment for a stack in memory of its own. Also returns true if the stack is new.
fn begin(entering: Entering) -> Option<(*mut StackSegment, bool)> {
    let stack = entering.stack.unwrap_or(0);
    let last = remembered(stack)?;
    let before = last.load(Ordering::Acquire);
    // SAFETY: segments stay mapped, and a segment that was exchanged for this thread is nobody else's.
    unsafe {
        if !before.is_null()
            && (*before).stack_start == stack
            && (*before).exchange(SegmentState::Parked, SegmentState::Active)
        {
            let key = (*before).key;
            if key != 0 && key == entering.key {
                // The program goes on with the stack, and has written a whole signal set into its context.
                return Some((before, false));
            }
            // Calls of another stack, to which the thread came back unnoticed, do not end with this one. A function
            // that ended in a jump to `swapcontext` had its return address where the stack began.
            let is_there = key == 0 || (stack..=entering.key.wrapping_add(8)).contains(&key);
            if is_there && ((*before).context == entering.context || !is_named(before)) {
                // The old stack's calls were in the memory that the new stack gets.
                (*before).top = segments::floor(before);
                (*before).is_shared = false;
                return Some((before, true));
            }
            (*before).is_shared |= is_there;
            (*before).set_state(SegmentState::Parked);
        }
        let segment = segments::take(segments::SMALL, |segment| parked::is_dead(segment))?;
        (*segment).stack_start = stack;
        last.store(segment, Ordering::Release);
        Some((segment, true))
    }
}

/// Suspends the stack that the thread is on.
fn leave(writer: &mut RecordWriter, leaving: Option<Leaving>) {
    judged::keep_open(writer);
    let record = writer.record();
    let segment = record.segment;
    // SAFETY: this thread's segment, and its block; the context is the one that the program is about to write.
    unsafe {
        parked::reopen(record);
        (*segment).top = record.top;
        (*segment).stack = record.stack;
        (*segment).gate = (*arch::block()).gate;
        (*segment).key = leaving.map_or(0, |leaving| leaving.key);
        (*segment).context = leaving.map_or(0, |leaving| leaving.context);
        (*segment).owner.store(ptr::null_mut(), Ordering::Relaxed);
        if let Some(leaving) = leaving {
            let words = arch::signal_set(leaving.context);
            for (at, word) in [(MARK_AT, MARK), (SEGMENT_AT, segment.addr() as u64)] {
                if let Some(place) = words.get_mut(at) {
                    *place = word;
                }
            }
        }
        (*segment).set_state(SegmentState::Parked);
    }
}

/// Goes on with an active segment that is nobody else's.
fn enter(writer: &mut RecordWriter, segment: *mut StackSegment, is_new: bool) {
    let arena = writer.arena();
    let record = writer.record();
    // SAFETY: the segment is this thread's from now on; the block is its own.
    unsafe {
        let gate = &mut (*arch::block()).gate;
        if is_new {
            (*segment).stack = NEXT_STACK.fetch_add(1, Ordering::Relaxed);
            *gate = StackGate::at_start(arena.header());
        } else {
            *gate = (*segment).gate;
        }
        (*segment).owner.store(record, Ordering::Release);
        record.segment = segment;
        record.floor = segments::floor(segment);
        record.top = (*segment).top;
        record.limit = segments::limit(segment);
        record.stack = (*segment).stack;
    }
    let stack = record.stack;
    if session::arena().is_some() {
        let time = now(&arena);
        writer.write(1, |to| to.stack(time, stack));
    }
}
