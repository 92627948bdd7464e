//! Renewal of shadow stacks that fill up with calls that were left.
//!
//! [`renew_if_wasteful`] moves a thread to another segment when most of its entries are holes, and [`make_room`] when
//! there is no room for another call. Before memory grows, [`sweep`] looks for parked entries whose calls do not
//! return any more.

use super::{
    ALIASED, GONE, JUMPED, PARKED, empty, is_barrier, is_hole, is_parked, is_passed_over, original,
    reopen, trim,
};
use crate::arch;
use crate::confined;
use crate::segments::{self, SegmentState, StackSegment, claim};
use crate::shadow::{ShadowEntry, ThreadRecord};
use crate::switch;
use crate::sys;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use dioptra_tracelayout::message::thread::{
    ENTRY_NO_RETURN, ENTRY_SILENT, ENTRY_TAIL, ENTRY_UNWOUND,
};

/// The number of entries from which on [`renew`] is considered.
pub const RENEW_AT: usize = 2048;
/// The largest capacity of a segment, in entries.
const LARGEST: usize = 1 << 20;
/// The largest number of live entries of a retired segment that are examined one by one.
const EXAMINED: usize = 8;
/// The number of entries in a sample. The sample decides whether a sweep looks at all entries.
const SAMPLED: usize = 32;
/// The number of parked entries of a sample that must be gone for a sweep to be worth its cost.
const WORTH: usize = 8;
/// The largest numbers of gone entries that a process keeps: of those that a jump has left, and of the others.
pub const KEPT: [u32; 2] = [1 << 16, 1 << 22];
/// The number of gone entries that are kept now, in the order of [`KEPT`].
static KEPT_NOW: [AtomicU32; 2] = [AtomicU32::new(0), AtomicU32::new(0)];

/// True once a call has returned whose entry was taken for gone: this process copies stacks.
static COPIES: AtomicBool = AtomicBool::new(false);

/// Forgets what the process has seen, so that a test begins as a new process does.
#[cfg(test)]
pub fn reset() {
    for kept in &KEPT_NOW {
        kept.store(0, Ordering::Relaxed);
    }
    COPIES.store(false, Ordering::Relaxed);
}

/// Records that a parked call with these flags has returned.
pub fn returned(flags: u32) {
    if flags & GONE != 0 {
        COPIES.store(true, Ordering::Relaxed);
        class(flags).fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns the number of kept entries of the same class as these flags.
fn class(flags: u32) -> &'static AtomicU32 {
    match flags & JUMPED {
        0 => &KEPT_NOW[1],
        _ => &KEPT_NOW[0],
    }
}

/// Returns the largest number of kept entries of the class of these flags.
fn most(flags: u32) -> u32 {
    match flags & JUMPED {
        0 => KEPT[1],
        _ => KEPT[0],
    }
}

/// Marks a parked entry whose slot on the stack holds something else as gone. Gives the entry up if enough of its
/// class are kept.
///
/// # Safety
/// The entry is parked.
unsafe fn gone(entry: *mut ShadowEntry) {
    // SAFETY: the caller's promise.
    unsafe {
        let flags = (*entry).flags;
        if flags & GONE != 0 {
            return;
        }
        if !COPIES.load(Ordering::Relaxed) && class(flags).load(Ordering::Relaxed) >= most(flags) {
            claim(entry, (*entry).slot);
            return;
        }
        // The entry may be another thread's, which may use it for something else meanwhile.
        let word = AtomicU32::from_ptr(&raw mut (*entry).flags);
        let (kept, unordered) = (flags | GONE, Ordering::Relaxed);
        if word
            .compare_exchange(flags, kept, unordered, unordered)
            .is_ok()
        {
            class(flags).fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Returns true if the kernel reads memory for the runtime that may not be mapped. Without that no entry is taken for
/// gone.
pub fn can_look() -> bool {
    let word = 0_u64;
    !confined::is_quiet()
        && sys::peek(sys::pid(), (&raw const word).expose_provenance() as u64).is_some()
}

/// A set of stack slots, in memory of its own.
struct SlotSet {
    words: *mut u64,
    count: usize,
}

impl SlotSet {
    /// Returns an empty set with room for `room` slots; `None` if there is no memory.
    fn new(room: usize) -> Option<SlotSet> {
        let count = (room * 2).next_power_of_two().max(512);
        let words = sys::map_private(count * size_of::<u64>()).ok()?.cast();
        Some(SlotSet { words, count })
    }

    /// Returns the word of a slot in the table, or the free word in which the slot would be stored.
    fn place(&self, slot: u64) -> *mut u64 {
        let hash = (slot >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let mut at = hash as usize & (self.count - 1);
        loop {
            let place = self.words.wrapping_add(at);
            // SAFETY: below the count; at most half of the words are used.
            let word = unsafe { *place };
            if word == 0 || word == slot {
                return place;
            }
            at = (at + 1) & (self.count - 1);
        }
    }

    /// Adds a slot. Returns false if it was there before.
    fn insert(&mut self, slot: u64) -> bool {
        let place = self.place(slot);
        // SAFETY: a word of the table.
        unsafe { core::mem::replace(&mut *place, slot) == 0 }
    }

    fn contains(&self, slot: u64) -> bool {
        // SAFETY: a word of the table.
        unsafe { *self.place(slot) == slot }
    }
}

impl Drop for SlotSet {
    fn drop(&mut self) {
        // SAFETY: mapped with that size, and no other thread knows of it.
        unsafe { sys::unmap(self.words.cast(), self.count * size_of::<u64>()) };
    }
}

/// Returns true if enough parked entries of a sample are gone to justify a sweep. A look at each entry takes system
/// calls.
///
/// # Safety
/// The record is this thread's.
unsafe fn is_worth_a_look(record: *mut ThreadRecord) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        let used = (*record).top.offset_from((*record).floor).unsigned_abs();
        let step = (used / SAMPLED).max(1);
        let gone = (1..=used).step_by(step).filter(|&at| {
            let entry = *(*record).floor.add(at);
            is_parked(&entry) && !arch::is_there(entry.slot)
        });
        gone.count() >= WORTH
    }
}

/// Finds the parked entries that are gone. Returns the slots of all entries; `None` if there is no memory for them.
///
/// # Safety
/// The record is this thread's.
unsafe fn sweep(record: *mut ThreadRecord) -> Option<SlotSet> {
    // SAFETY: the caller's promise.
    unsafe {
        let used = (*record).top.offset_from((*record).floor).unsigned_abs();
        let mut slots = SlotSet::new(used)?;
        let is_looked_at = can_look() && is_worth_a_look(record);
        let mut entry = (*record).top;
        // A function that ended in a jump to another one has the slot of the other's entry, which lies above its own.
        let mut shared = 0;
        while entry > (*record).floor {
            let now = *entry;
            if !is_hole(&now) && now.flags & ENTRY_NO_RETURN == 0 {
                let is_newest = slots.insert(now.slot) || now.slot == shared;
                let is_kept = !is_parked(&now)
                    || now.flags & ALIASED != 0
                    || is_newest && (!is_looked_at || arch::is_there(now.slot));
                if !is_kept {
                    gone(entry);
                }
                shared = match is_kept && now.flags & ENTRY_TAIL != 0 {
                    true => now.slot,
                    false => 0,
                };
            }
            entry = entry.sub(1);
        }
        trim(record);
        Some(slots)
    }
}

/// Returns true if no call of a parked or retired segment returns any more. Examines few entries, and returns false
/// if they do not settle it.
///
/// # Safety
/// `segment` is a segment.
pub unsafe fn is_dead(segment: *mut StackSegment) -> bool {
    // SAFETY: the caller's promise.
    unsafe { is_dead_beside(segment, None) }
}

/// Does the work of [`is_dead`]. A call is gone if its slot is among `newer`, the slots of later calls.
///
/// # Safety
/// `segment` is a segment.
unsafe fn is_dead_beside(segment: *mut StackSegment, newer: Option<&SlotSet>) -> bool {
    // SAFETY: the caller's promise; entries that are not parked are changed only by their own thread.
    unsafe {
        if !can_look() {
            return false;
        }
        let state = (*segment).state();
        if state == SegmentState::Parked && (*segment).key != 0 {
            // Nobody can go on with the coroutine: its context holds something else, and its stack is not there any
            // more or another coroutine has its memory. A stack that can't be read may be out of reach only for a
            // while.
            return !switch::is_named(segment)
                && ((*segment).is_shared || sys::peek(sys::pid(), (*segment).key).is_none());
        }
        let mut live = 0;
        let mut entry = (*segment).top;
        while entry > segments::floor(segment) {
            let now = *entry;
            let returns = !is_hole(&now) && now.flags & ENTRY_NO_RETURN == 0;
            if returns {
                live += 1;
                if live > EXAMINED {
                    return false;
                }
                let is_over = newer.is_some_and(|slots| slots.contains(now.slot));
                if now.flags & ALIASED == 0 && (is_over || !arch::is_there(now.slot)) {
                    if is_parked(&now) {
                        gone(entry);
                    } else {
                        // The thread of the entry does not know that its call was left.
                        claim(entry, now.slot);
                    }
                    live -= usize::from(is_hole(&*entry));
                }
            }
            entry = entry.sub(1);
        }
        live == 0
    }
}

/// Goes on in another segment if this one is mostly holes. Entries have other addresses afterwards.
///
/// # Safety
/// The record is this thread's and no dummy.
pub unsafe fn renew_if_wasteful(record: *mut ThreadRecord) {
    // SAFETY: the caller's promise.
    unsafe {
        let used =
            |record: *mut ThreadRecord| (*record).top.offset_from((*record).floor).unsigned_abs();
        let before = used(record);
        if before < (*record).renew_at || (*record).interrupted.is_active() {
            return;
        }
        let mut newer = None;
        if 2 * holes(record) < before {
            newer = sweep(record);
        }
        let wasted = holes(record);
        let now = used(record);
        if now >= RENEW_AT && 2 * wasted >= now {
            renew(record, segments::SMALL, newer.as_ref());
        }
        (*record).renew_at = (2 * used(record)).max(RENEW_AT);
    }
}

/// Returns the number of holes and barriers.
///
/// # Safety
/// The record is this thread's.
unsafe fn holes(record: *mut ThreadRecord) -> usize {
    // SAFETY: the caller's promise.
    unsafe {
        let count = (*record).top.offset_from((*record).floor).unsigned_abs();
        let entries = core::slice::from_raw_parts((*record).floor.add(1), count);
        let is_unused = |entry: &&ShadowEntry| is_hole(entry) || is_barrier(entry);
        entries.iter().filter(is_unused).count()
    }
}

/// Makes room for more calls. Returns false if there is none.
///
/// # Safety
/// The record is this thread's and no dummy.
pub unsafe fn make_room(record: *mut ThreadRecord) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        if (*record).interrupted.is_active() {
            return false;
        }
        reopen(record);
        if (*record).top < (*record).limit {
            return true;
        }
        let capacity = (*record).limit.offset_from((*record).floor).unsigned_abs();
        let newer = sweep(record);
        let wanted = match 2 * holes(record) >= capacity {
            true => capacity,
            false => (capacity * 4).min(LARGEST),
        };
        renew(record, wanted, newer.as_ref()) && (*record).top < (*record).limit
    }
}

/// Goes on in another segment, to which the open calls are copied. Returns false if there is no other segment.
///
/// # Safety
/// The record is this thread's and no dummy, and no hook is interrupted.
unsafe fn renew(record: *mut ThreadRecord, capacity: usize, newer: Option<&SlotSet>) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        let floor = (*record).floor;
        let count = (*record).top.offset_from(floor).unsigned_abs();
        let entries = core::slice::from_raw_parts(floor.add(1), count);
        let stays = is_passed_over;
        // Unwinders find the entries that an exception is about to leave by their addresses, below the top.
        let is_unwinding = |entry: &ShadowEntry| {
            !stays(entry) && entry.flags & (ENTRY_UNWOUND | ENTRY_SILENT) == ENTRY_UNWOUND
        };
        if entries.iter().any(is_unwinding) {
            return false;
        }
        let open = entries.iter().filter(|entry| !stays(entry)).count();
        let capacity = capacity.max(4 * open).min(LARGEST.max(2 * open));
        let taken = segments::take(capacity, |segment| is_dead_beside(segment, newer));
        let Some(segment) = taken else {
            return false;
        };
        let mut to = segments::floor(segment);
        for at in 1..=count {
            let entry = floor.add(at);
            if stays(&*entry) {
                continue;
            }
            to = to.add(1);
            let first = match original(entry) {
                Some(original) => Some(original),
                None if (*entry).flags & ENTRY_NO_RETURN != 0 => None,
                None => Some(entry),
            };
            let slot = (*entry).slot;
            to.write(*entry);
            if let Some(first) = first {
                (*to).frame = first.expose_provenance() as u64;
                (*first).spare = to.expose_provenance() as u64;
                if first == entry {
                    (*entry).flags = PARKED | ALIASED | (*entry).flags & ENTRY_TAIL;
                }
                fence(Ordering::SeqCst);
                if (*first).slot != slot {
                    // The call has returned in another thread meanwhile.
                    claim(to, slot);
                }
            }
            if first != Some(entry) {
                empty(&mut *entry);
            }
        }
        let old = (*record).segment;
        (*segment).owner.store(record, Ordering::Relaxed);
        (*segment).stack = (*old).stack;
        (*segment).stack_start = (*old).stack_start;
        (*old).top = (*record).top;
        (*record).segment = segment;
        (*record).floor = segments::floor(segment);
        (*record).top = to;
        (*record).limit = segments::limit(segment);
        (*old).set_state(SegmentState::Retired);
        true
    }
}
