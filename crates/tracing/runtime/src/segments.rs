//! The memory of shadow stacks: spans that are mapped once and never unmapped, cut into segments.
//!
//! A thread pushes entries into one segment at a time. While a traced function runs, its frame pointer leads to the
//! call's entry (on processors where hooks set it so). So an entry stays where it is until its call has returned. A
//! segment whose calls may still return is left alone, and the thread goes on in another one. A segment whose calls
//! have all returned is used again.
//!
//! ```text
//! span of a thread:   | open executions | cursor page | record | segment                                      |
//! span of segments:   | span | segment | segment | segment | …                                               |
//! segment:            | header | floor | entry | entry | … | room for two more                                 |
//! ```
//!
//! All of this is lock-free: a thread takes a segment by exchanging its state. A lock is impossible: a forked child,
//! or a thread that loses its CPU, would leave it held while others wait.

use crate::shadow::{PAGE, ShadowEntry, StackGate, ThreadRecord};
use crate::sys;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use dioptra_tracelayout::message::thread::{ENTRY_SIZE, SPAN_END, SPAN_NEXT, SPAN_START};

/// A stretch of memory that holds segments of one size.
#[repr(C)]
#[derive(Debug)]
pub struct SegmentSpan {
    next: *mut SegmentSpan,
    /// The first segment's address.
    start: u64,
    /// The first address behind the last segment.
    end: u64,
    /// The size of each segment in bytes.
    stride: u64,
}

impl SegmentSpan {
    /// A span without memory.
    pub const NONE: SegmentSpan = SegmentSpan {
        next: ptr::null_mut(),
        start: 0,
        end: 0,
        stride: 1,
    };

    /// Returns the next span of the list.
    pub fn next(&self) -> *mut SegmentSpan {
        self.next
    }

    /// Returns the memory of a span of its own, and its size in bytes; `None` for the span of a thread's record.
    pub fn own_memory(&self) -> Option<(*mut u8, usize)> {
        let here: *const SegmentSpan = self;
        let is_own = here.addr() + PAGE == self.start as usize && here.addr().is_multiple_of(PAGE);
        let size = self.end as usize - here.addr();
        is_own.then_some((here.cast_mut().cast(), size))
    }
}

/// A part of a shadow stack: this header, the floor, and the entries.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct StackSegment {
    state: AtomicU32,
    /// The number of entries that may be pushed above the floor; 0 before the segment is first used.
    capacity: u32,
    /// The record of the thread that uses the segment while the segment is active.
    pub owner: AtomicPtr<ThreadRecord>,
    /// The innermost entry, unless the segment is active: then the thread's record has it.
    pub top: *mut ShadowEntry,
    /// The stack pointer with which the call stack of a parked segment will be resumed; 0 if unknown.
    pub key: u64,
    /// The address at which the memory of the call stack begins, if the program has said so; else 0.
    pub stack_start: u64,
    /// The address of the context in which the call stack of a parked segment is saved; 0 if there is none.
    pub context: u64,
    /// Whether another call stack has begun in the same memory while this one was suspended.
    pub is_shared: bool,
    /// The number of the call stack.
    pub stack: u32,
    /// The gate of the call stack, while the segment is parked.
    pub gate: StackGate,
}

/// The state of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum SegmentState {
    /// No thread uses the segment, and no call returns through its entries.
    Free = 0,
    /// A thread pushes its entries there.
    Active = 1,
    /// The call stack whose entries the segment holds is suspended and may be resumed.
    Parked = 2,
    /// The thread that used the segment has gone on in another one; some calls of this segment may still return.
    Retired = 3,
}

/// The bits of a segment's state. The bits above count the exchanges.
const STATE: u32 = 3;
/// The offset of a segment's floor in bytes.
pub const HEADER: usize = 128;
/// The number of entries behind the capacity: a barrier, and an entry that an interrupted hook is about to write.
const SPARE: usize = 2;
/// The capacity of segments of coroutines, and of segments that replace one with little use.
pub const SMALL: usize = 4096;
/// The largest number of segments that a search for a used segment looks at.
const SEARCHED: usize = 8;
/// The largest number of segments in a span.
const MOST: usize = 4096;

const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<StackSegment>() <= HEADER);
    assert!(size_of::<SegmentSpan>() <= PAGE);
    assert!(offset_of!(SegmentSpan, next) as i64 == SPAN_NEXT);
    assert!(offset_of!(SegmentSpan, start) as i64 == SPAN_START);
    assert!(offset_of!(SegmentSpan, end) as i64 == SPAN_END);
};

/// The list of all spans. It only grows until the runtime is unloaded.
pub static SPANS: AtomicPtr<SegmentSpan> = AtomicPtr::new(ptr::null_mut());

/// The number of spans of small segments. Each new span is larger than the one before.
static SMALL_SPANS: AtomicU32 = AtomicU32::new(0);
/// The number of the segment with which the next search begins: the one after the end of the last search.
static CURSOR: AtomicUsize = AtomicUsize::new(0);

/// Returns the size in bytes of a segment with room for `capacity` entries.
pub const fn size(capacity: usize) -> usize {
    HEADER + (1 + capacity + SPARE) * ENTRY_SIZE as usize
}

impl StackSegment {
    /// Returns the state.
    pub fn state(&self) -> SegmentState {
        SegmentState::of(self.state.load(Ordering::Acquire))
    }

    /// Changes the state for all threads to see. The segment is the caller's.
    pub fn set_state(&self, state: SegmentState) {
        let word = self.state.load(Ordering::Relaxed);
        self.state
            .store(word & !STATE | state as u32, Ordering::Release);
    }

    /// Changes the state from `from` to `to`. Returns false if the segment was in another state.
    pub fn exchange(&self, from: SegmentState, to: SegmentState) -> bool {
        let word = self.state.load(Ordering::Relaxed);
        SegmentState::of(word) == from && self.exchange_from(word, to)
    }

    /// Changes the state if nobody has exchanged it since its word was `from`, so that the caller's view of the
    /// segment still holds. Returns false otherwise.
    fn exchange_from(&self, from: u32, to: SegmentState) -> bool {
        let next = (from & !STATE).wrapping_add(STATE + 1) | to as u32;
        self.state
            .compare_exchange(from, next, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }
}

impl SegmentState {
    fn of(word: u32) -> SegmentState {
        match word & STATE {
            0 => SegmentState::Free,
            1 => SegmentState::Active,
            2 => SegmentState::Parked,
            _ => SegmentState::Retired,
        }
    }
}

/// Returns the floor of a segment.
pub fn floor(segment: *mut StackSegment) -> *mut ShadowEntry {
    segment.wrapping_byte_add(HEADER).cast()
}

/// Returns the address of the last entry that a segment's capacity permits.
///
/// # Safety
/// `segment` is a segment.
pub unsafe fn limit(segment: *mut StackSegment) -> *mut ShadowEntry {
    // SAFETY: the caller's promise; the capacity never changes.
    floor(segment).wrapping_add(unsafe { (*segment).capacity } as usize)
}

/// Returns the segment and the entry at an address; `None` if no entry can lie there.
pub fn find(address: u64) -> Option<(*mut StackSegment, *mut ShadowEntry)> {
    let mut span = SPANS.load(Ordering::Acquire);
    while !span.is_null() {
        // SAFETY: spans are never unmapped, and do not change once they are in the list.
        let (start, end, stride, next) =
            unsafe { ((*span).start, (*span).end, (*span).stride, (*span).next) };
        if (start..end).contains(&address) {
            let number = (address - start).checked_div(stride)?;
            let segment = (start + number * stride) as usize;
            let segment = ptr::with_exposed_provenance_mut::<StackSegment>(segment);
            let distance = address.checked_sub(floor(segment).addr() as u64)?;
            let is_entry = distance > 0 && distance.is_multiple_of(ENTRY_SIZE as u64);
            let entry = ptr::with_exposed_provenance_mut(address as usize);
            return is_entry.then_some((segment, entry));
        }
        span = next;
    }
    None
}

/// Calls `look` with up to `most` segments until it returns true. Starts with segment number `from` and goes on with
/// the first segment after the last one. Returns the number of the segment that follows.
fn visit(
    from: usize,
    most: usize,
    mut look: impl FnMut(*mut StackSegment, usize) -> bool,
) -> usize {
    let mut total = 0;
    spans(|span| {
        total += span.segments();
        false
    });
    if total == 0 {
        return 0;
    }
    let mut number = from as u64 % total;
    for _ in 0..(most as u64).min(total) {
        let is_done = at(number).is_some_and(|(segment, capacity)| look(segment, capacity));
        number = (number + 1) % total;
        if is_done {
            break;
        }
    }
    number as usize
}

/// Calls `look` with every segment until it returns true.
pub fn all(mut look: impl FnMut(*mut StackSegment) -> bool) {
    spans(|span| (0..span.segments()).any(|number| look(span.segment(number))));
}

/// Calls `look` with every span, the newest first, until it returns true.
fn spans(mut look: impl FnMut(&SegmentSpan) -> bool) {
    let mut span = SPANS.load(Ordering::Acquire);
    while !span.is_null() {
        // SAFETY: spans are never unmapped, and do not change once they are in the list.
        unsafe {
            if look(&*span) {
                return;
            }
            span = (*span).next;
        }
    }
}

/// Returns the segment with a number, and its capacity.
fn at(number: u64) -> Option<(*mut StackSegment, usize)> {
    let mut left = number;
    let mut found = None;
    spans(|span| {
        let here = span.segments();
        if left < here {
            found = Some((span.segment(left), span.capacity()));
            return true;
        }
        left -= here;
        false
    });
    found
}

impl SegmentSpan {
    /// Returns the number of segments in the span.
    fn segments(&self) -> u64 {
        (self.end - self.start)
            .checked_div(self.stride)
            .unwrap_or(0)
    }

    /// Returns the segment with a number below [`SegmentSpan::segments`].
    fn segment(&self, number: u64) -> *mut StackSegment {
        ptr::with_exposed_provenance_mut((self.start + number * self.stride) as usize)
    }

    /// Returns the number of entries that may be pushed in each segment.
    fn capacity(&self) -> usize {
        (self.stride as usize).saturating_sub(HEADER) / ENTRY_SIZE as usize - 1 - SPARE
    }

    /// Writes a span to `place` and adds it to the list.
    ///
    /// # Safety
    /// The memory at `place` is never unmapped, and no other thread knows it yet. From `start` to `end` lies zeroed
    /// memory that is never unmapped.
    unsafe fn publish(place: *mut SegmentSpan, start: u64, end: u64, stride: u64) {
        let mut next = SPANS.load(Ordering::Relaxed);
        loop {
            // SAFETY: the caller's promise.
            unsafe {
                place.write(SegmentSpan {
                    next,
                    start,
                    end,
                    stride,
                });
            }
            match SPANS.compare_exchange_weak(next, place, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => next = other,
            }
        }
    }
}

impl StackSegment {
    /// Makes the segment active and empty.
    ///
    /// # Safety
    /// The segment has room for `capacity` entries, and nobody else uses it.
    unsafe fn begin(segment: *mut StackSegment, capacity: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            (*segment).capacity = capacity as u32;
            (*segment).top = floor(segment);
            (*segment).key = 0;
            (*segment).stack_start = 0;
            (*segment).context = 0;
            (*segment).is_shared = false;
            (*segment).stack = 0;
            floor(segment).write(ShadowEntry::BOTTOM);
            (*segment).set_state(SegmentState::Active);
        }
    }
}

/// Makes new, zeroed memory a thread's own segment.
///
/// # Safety
/// The memory has [`size`] bytes for the capacity and is never unmapped. So is the memory of `span`, which no other
/// thread knows yet.
pub unsafe fn add(span: *mut SegmentSpan, segment: *mut StackSegment, capacity: usize) {
    let start = segment.expose_provenance() as u64;
    let stride = size(capacity) as u64;
    // SAFETY: the caller's promise.
    unsafe {
        StackSegment::begin(segment, capacity);
        SegmentSpan::publish(span, start, start + stride, stride);
    }
}

/// Takes a segment with room for `capacity` entries, and makes it active and empty. Looks at a few segments for one
/// that is free, or that is parked or retired and for which `is_dead` returns true. Maps a new segment if there is
/// none. Returns `None` if there is no memory.
pub fn take(
    capacity: usize,
    mut is_dead: impl FnMut(*mut StackSegment) -> bool,
) -> Option<*mut StackSegment> {
    let mut taken = None;
    let next = visit(CURSOR.load(Ordering::Relaxed), SEARCHED, |segment, room| {
        // SAFETY: segments stay mapped.
        let word = unsafe { (*segment).state.load(Ordering::Acquire) };
        let is_unused = match SegmentState::of(word) {
            SegmentState::Free => true,
            SegmentState::Active => false,
            SegmentState::Parked | SegmentState::Retired => is_dead(segment),
        };
        // SAFETY: as above.
        let is_taken = room >= capacity
            && is_unused
            && unsafe { (*segment).exchange_from(word, SegmentState::Active) };
        if is_taken {
            taken = Some((segment, room));
        }
        is_taken
    });
    CURSOR.store(next, Ordering::Relaxed);
    let (segment, room) = taken.or_else(|| create(capacity))?;
    // SAFETY: the segment is this thread's since its state was exchanged.
    unsafe { StackSegment::begin(segment, room) };
    Some(segment)
}

/// Maps a span, and returns its first segment and the capacity. The span's other segments are zeroed, and therefore
/// free.
fn create(capacity: usize) -> Option<(*mut StackSegment, usize)> {
    let stride = size(capacity.max(SMALL)).next_multiple_of(PAGE);
    let wanted = if capacity <= SMALL {
        // Spans become larger, so that their list stays short.
        MOST.min(64 << SMALL_SPANS.fetch_add(1, Ordering::Relaxed).min(6))
    } else {
        1
    };
    // Fewer where memory is limited.
    let (memory, number) = [wanted, 64, 1].into_iter().find_map(|number| {
        let number = number.min(wanted);
        let memory = sys::map_private(PAGE + number * stride).ok()?;
        Some((memory, number))
    })?;
    let start = memory.wrapping_add(PAGE);
    let from = start.expose_provenance() as u64;
    let segment: *mut StackSegment = start.cast();
    // SAFETY: new memory of that size, which no other thread knows.
    unsafe {
        (*segment).set_state(SegmentState::Active);
        let end = from + (number * stride) as u64;
        SegmentSpan::publish(memory.cast(), from, end, stride as u64);
    }
    let capacity = (stride - HEADER) / ENTRY_SIZE as usize - 1 - SPARE;
    Some((segment, capacity))
}

/// Takes the entry of a call that returns now, in any thread, and makes it a hole. Returns false if the entry was not
/// the call's any more.
///
/// # Safety
/// `entry` is an entry of a segment.
pub unsafe fn claim(entry: *mut ShadowEntry, slot: u64) -> bool {
    // SAFETY: the caller's promise: mapped and aligned. Other threads use the word in this way, too.
    let word = unsafe { AtomicU64::from_ptr(&raw mut (*entry).slot) };
    slot != 0
        && word
            .compare_exchange(slot, 0, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Between the look at a segment and its exchange another thread may have used it. Its calls belong to that
    /// thread.
    #[test]
    fn a_segment_that_was_used_meanwhile_is_not_taken() {
        let capacity = 2 * SMALL;
        let segment = take(capacity, |_| false).unwrap();
        // SAFETY: a segment, which is this test's.
        unsafe { (*segment).set_state(SegmentState::Retired) };
        let mut looked = false;
        CURSOR.store(0, Ordering::Relaxed);
        let other = take(capacity, |found| {
            if found == segment {
                looked = true;
                // SAFETY: as above.
                unsafe {
                    assert!((*found).exchange(SegmentState::Retired, SegmentState::Active));
                    (*found).set_state(SegmentState::Retired);
                }
            }
            found == segment
        });
        assert!(looked);
        assert_ne!(other, Some(segment));
    }
}
