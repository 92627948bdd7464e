//! The memory of shadow stacks: spans that are mapped once and never unmapped, cut into segments.
//!
//! A thread pushes entries into one segment at a time. While a traced function runs, its frame pointer leads to the call's
//! entry (on processors where hooks do that), so an entry stays where it is until its call has returned: a segment whose calls may still return is left
//! alone, and the thread goes on in another one. A segment whose calls have all returned is used again.
//!
//! ```text
//! span of a thread:   | what it knows of executions | cursor page | record | segment                          |
//! span of segments:   | span | segment | segment | segment | …                                               |
//! segment:            | header | floor | entry | entry | … | room for two more                                 |
//! ```
//!
//! Everything here is lock-free: a thread takes a segment by exchanging its state. So neither a forked child nor a
//! thread that loses its CPU can leave anything behind that others wait for.

use crate::shadow::{Entry, Gate, PAGE, Record};
use crate::sys;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use dioptra_tracelayout::message::thread::{ENTRY_SIZE, SPAN_END, SPAN_NEXT, SPAN_START};

/// A part of memory that holds segments of one size.
#[repr(C)]
#[derive(Debug)]
pub struct Span {
    next: *mut Span,
    /// The first segment's address.
    start: u64,
    /// The first address behind the last segment.
    end: u64,
    /// The size of each segment in bytes.
    stride: u64,
}

impl Span {
    /// The span of no memory.
    pub const NONE: Span = Span {
        next: ptr::null_mut(),
        start: 0,
        end: 0,
        stride: 1,
    };
}

/// A part of a shadow stack: this header, the floor, and the entries.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Segment {
    state: AtomicU32,
    /// The number of entries that may be pushed above the floor; 0 before the segment is first used.
    capacity: u32,
    /// The record of the thread that uses the segment, while that is active.
    pub owner: AtomicPtr<Record>,
    /// The innermost entry, unless the segment is active: then the record has it.
    pub top: *mut Entry,
    /// The stack pointer with which the call stack of a parked segment will be resumed; 0 if that is unknown.
    pub key: u64,
    /// Where the memory of the call stack begins, if the program has said so; else 0.
    pub stack_start: u64,
    /// The context in which the call stack of a parked segment is saved; 0 if there is none.
    pub context: u64,
    /// Whether another call stack has begun in the same memory while this one was suspended.
    pub is_shared: bool,
    /// The number of the call stack.
    pub stack: u32,
    /// The gate of a parked segment.
    pub gate: Gate,
}

/// The states of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// No thread uses the segment, and no call returns through its entries.
    Free = 0,
    /// A thread pushes its entries there.
    Active = 1,
    /// The call stack whose entries it holds is suspended, and may be resumed.
    Parked = 2,
    /// The thread that used it has gone on in another segment; some of its calls may still return.
    Retired = 3,
}

/// The bits of a segment's state; those above count how often it was exchanged.
const STATE: u32 = 3;
/// The distance from a segment's address to its floor, in bytes.
pub const HEADER: usize = 128;
/// The number of entries behind the capacity: a barrier, and an entry that an interrupted hook is about to write.
const SPARE: usize = 2;
/// The capacity of segments of coroutines, and of those that take the place of a segment with little use.
pub const SMALL: usize = 4096;
/// The most segments that a search for a used one looks at.
const SEARCHED: usize = 8;
/// The most segments in a span.
const MOST: usize = 4096;

const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<Segment>() <= HEADER);
    assert!(size_of::<Span>() <= PAGE);
    assert!(offset_of!(Span, next) as i64 == SPAN_NEXT);
    assert!(offset_of!(Span, start) as i64 == SPAN_START);
    assert!(offset_of!(Span, end) as i64 == SPAN_END);
};

/// The list of all spans. It only ever grows.
pub static SPANS: AtomicPtr<Span> = AtomicPtr::new(ptr::null_mut());

/// The number of spans of small segments: the next one is larger.
static SMALL_SPANS: AtomicU32 = AtomicU32::new(0);
/// Where the next search begins: it goes on where the last one ended.
static CURSOR: AtomicUsize = AtomicUsize::new(0);

/// Returns the size in bytes of a segment with room for so many entries.
pub const fn size(capacity: usize) -> usize {
    HEADER + (1 + capacity + SPARE) * ENTRY_SIZE as usize
}

impl Segment {
    /// Returns the state.
    pub fn state(&self) -> State {
        State::of(self.state.load(Ordering::Acquire))
    }

    /// Changes the state for all to see. It is the caller's segment.
    pub fn set_state(&self, state: State) {
        let word = self.state.load(Ordering::Relaxed);
        self.state
            .store(word & !STATE | state as u32, Ordering::Release);
    }

    /// Changes the state if it is `from`, and returns whether it was.
    pub fn exchange(&self, from: State, to: State) -> bool {
        let word = self.state.load(Ordering::Relaxed);
        State::of(word) == from && self.exchange_from(word, to)
    }

    /// The same, if nobody has exchanged it since it had the word `from`: what was seen of it then is still so.
    fn exchange_from(&self, from: u32, to: State) -> bool {
        let next = (from & !STATE).wrapping_add(STATE + 1) | to as u32;
        self.state
            .compare_exchange(from, next, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }
}

impl State {
    fn of(word: u32) -> State {
        match word & STATE {
            0 => State::Free,
            1 => State::Active,
            2 => State::Parked,
            _ => State::Retired,
        }
    }
}

/// Returns the floor of a segment.
pub fn floor(segment: *mut Segment) -> *mut Entry {
    segment.wrapping_byte_add(HEADER).cast()
}

/// Returns the place of the last entry that a segment's capacity permits.
///
/// # Safety
/// `segment` is a segment.
pub unsafe fn limit(segment: *mut Segment) -> *mut Entry {
    // SAFETY: the caller's promise; the capacity never changes.
    floor(segment).wrapping_add(unsafe { (*segment).capacity } as usize)
}

/// Returns the segment and the entry at an address; `None` if no entry can be there.
pub fn find(address: u64) -> Option<(*mut Segment, *mut Entry)> {
    let mut span = SPANS.load(Ordering::Acquire);
    while !span.is_null() {
        // SAFETY: spans are never unmapped, and do not change once they are in the list.
        let (start, end, stride, next) =
            unsafe { ((*span).start, (*span).end, (*span).stride, (*span).next) };
        if (start..end).contains(&address) {
            let number = (address - start).checked_div(stride)?;
            let segment = (start + number * stride) as usize;
            let segment = ptr::with_exposed_provenance_mut::<Segment>(segment);
            let distance = address.checked_sub(floor(segment).addr() as u64)?;
            let is_entry = distance > 0 && distance.is_multiple_of(ENTRY_SIZE as u64);
            let entry = ptr::with_exposed_provenance_mut(address as usize);
            return is_entry.then_some((segment, entry));
        }
        span = next;
    }
    None
}

/// Calls `look` with up to `most` segments until it returns true. Starts with the segment number `from`, and goes on
/// with the first segment after the last one. Returns the number
/// of the segment that follows.
fn visit(from: usize, most: usize, mut look: impl FnMut(*mut Segment, usize) -> bool) -> usize {
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
pub fn all(mut look: impl FnMut(*mut Segment) -> bool) {
    spans(|span| (0..span.segments()).any(|number| look(span.segment(number))));
}

/// Calls `look` with every span, the newest first, until it returns true.
fn spans(mut look: impl FnMut(&Span) -> bool) {
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
fn at(number: u64) -> Option<(*mut Segment, usize)> {
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

impl Span {
    /// Returns the number of segments in the span.
    fn segments(&self) -> u64 {
        (self.end - self.start)
            .checked_div(self.stride)
            .unwrap_or(0)
    }

    /// Returns the segment with a number below [`Span::segments`].
    fn segment(&self, number: u64) -> *mut Segment {
        ptr::with_exposed_provenance_mut((self.start + number * self.stride) as usize)
    }

    /// Returns the number of entries that may be pushed in each segment.
    fn capacity(&self) -> usize {
        (self.stride as usize).saturating_sub(HEADER) / ENTRY_SIZE as usize - 1 - SPARE
    }

    /// Writes a span to `place`, and adds it to the list.
    ///
    /// # Safety
    /// `place` is never unmapped, and nobody knows it yet. From `start` to `end` lies zeroed memory that is never
    /// unmapped.
    unsafe fn publish(place: *mut Span, start: u64, end: u64, stride: u64) {
        let mut next = SPANS.load(Ordering::Relaxed);
        loop {
            // SAFETY: the caller's promise.
            unsafe {
                place.write(Span {
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

impl Segment {
    /// Makes the segment active and empty.
    ///
    /// # Safety
    /// The segment has room for `capacity` entries, and nobody else uses it.
    unsafe fn begin(segment: *mut Segment, capacity: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            (*segment).capacity = capacity as u32;
            (*segment).top = floor(segment);
            (*segment).key = 0;
            (*segment).stack_start = 0;
            (*segment).context = 0;
            (*segment).is_shared = false;
            (*segment).stack = 0;
            floor(segment).write(Entry::BOTTOM);
            (*segment).set_state(State::Active);
        }
    }
}

/// Makes new, zeroed memory a thread's own segment.
///
/// # Safety
/// The memory has [`size`] bytes for the capacity and is never unmapped; so is the span's place, of which nobody knows yet.
pub unsafe fn add(span: *mut Span, segment: *mut Segment, capacity: usize) {
    let start = segment.expose_provenance() as u64;
    let stride = size(capacity) as u64;
    // SAFETY: the caller's promise.
    unsafe {
        Segment::begin(segment, capacity);
        Span::publish(span, start, start + stride, stride);
    }
}

/// Takes a segment with room for so many entries, and makes it active and empty. Looks at a few segments for one that
/// is free, or that is parked or retired and for which `is_dead` returns true, and maps a new one if there is none.
/// `None` if there is no memory.
pub fn take(
    capacity: usize,
    mut is_dead: impl FnMut(*mut Segment) -> bool,
) -> Option<*mut Segment> {
    let mut taken = None;
    let next = visit(CURSOR.load(Ordering::Relaxed), SEARCHED, |segment, room| {
        // SAFETY: segments stay mapped.
        let word = unsafe { (*segment).state.load(Ordering::Acquire) };
        let is_unused = match State::of(word) {
            State::Free => true,
            State::Active => false,
            State::Parked | State::Retired => is_dead(segment),
        };
        // SAFETY: as above.
        let is_taken = room >= capacity
            && is_unused
            && unsafe { (*segment).exchange_from(word, State::Active) };
        if is_taken {
            taken = Some((segment, room));
        }
        is_taken
    });
    CURSOR.store(next, Ordering::Relaxed);
    let (segment, room) = taken.or_else(|| create(capacity))?;
    // SAFETY: ours since its state was exchanged.
    unsafe { Segment::begin(segment, room) };
    Some(segment)
}

/// Maps a span, and returns its first segment and the capacity. The span's other segments are zeroed, and therefore
/// free.
fn create(capacity: usize) -> Option<(*mut Segment, usize)> {
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
    let segment: *mut Segment = start.cast();
    // SAFETY: new memory of that size, of which nobody knows.
    unsafe {
        (*segment).set_state(State::Active);
        let end = from + (number * stride) as u64;
        Span::publish(memory.cast(), from, end, stride as u64);
    }
    let capacity = (stride - HEADER) / ENTRY_SIZE as usize - 1 - SPARE;
    Some((segment, capacity))
}

/// Takes the entry of a call that returns now, in any thread, and makes it a hole. Returns whether it was still there.
///
/// # Safety
/// `entry` is an entry of a segment.
pub unsafe fn claim(entry: *mut Entry, slot: u64) -> bool {
    // SAFETY: the caller's promise: mapped, aligned; other threads use the word in this way, too.
    let word = unsafe { AtomicU64::from_ptr(&raw mut (*entry).slot) };
    slot != 0
        && word
            .compare_exchange(slot, 0, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Between the look at a segment and its exchange others may have used it: its calls are theirs.
    #[test]
    fn a_segment_that_was_used_meanwhile_is_not_taken() {
        let capacity = 2 * SMALL;
        let segment = take(capacity, |_| false).unwrap();
        // SAFETY: a segment, which is this test's.
        unsafe { (*segment).set_state(State::Retired) };
        let mut looked = false;
        CURSOR.store(0, Ordering::Relaxed);
        let other = take(capacity, |found| {
            if found == segment {
                looked = true;
                // SAFETY: as above.
                unsafe {
                    assert!((*found).exchange(State::Retired, State::Active));
                    (*found).set_state(State::Retired);
                }
            }
            found == segment
        });
        assert!(looked);
        assert_ne!(other, Some(segment));
    }
}
