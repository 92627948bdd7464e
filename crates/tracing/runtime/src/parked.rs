//! Calls that were left and may still return.
//!
//! A program may exchange stacks by itself: fibers of its own assembler code, copied stacks, jumps between stacks.
//! The runtime notices such an exchange only because the stack does not fit the shadow stack any more. It then
//! records the calls in question as left. But the program may come back to them, and only their entries hold the
//! return addresses. So their entries stay where they are, *parked*, below a *barrier* above which the thread goes
//! on:
//!
//! ```text
//! floor | open | open | parked | hole | parked | barrier | open     <- top
//!                  ^-------------------------------'  spare word: the next entry that is not parked
//! ```
//!
//! [`find`] finds the call that returns by its frame pointer, which leads to the call's entry. The entry then becomes
//! a *hole*. Holes right below the innermost barrier are given up at once. Other holes are given up when the thread
//! goes on in another segment ([`renew_if_wasteful`]): open calls are copied there (*aliases*), and parked entries
//! stay behind.
//!
//! A program may also leave calls for good without the runtime's knowledge (exceptions of languages of its own).
//! Their entries look like those of calls that may return. The sweep ([`renew`]) separates the two: when a call is
//! gone, its slot on the stack holds something else, or the return address of a later call. Stacks that were copied
//! away look the same. So such entries are given up only beyond a number, and never in a process in which one of them
//! has returned after all.

mod renew;

use crate::segments::{self, SegmentState, StackSegment, claim};
use crate::shadow::{Caller, ShadowEntry, ThreadRecord};
use core::ptr;
use core::sync::atomic::Ordering;
use dioptra_tracelayout::message::thread::{
    BARRIER_SLOT, ENTRY_NO_RETURN, ENTRY_SILENT, ENTRY_TAIL, ENTRY_UNWOUND,
};
use renew::returned;
pub use renew::{can_look, is_dead, make_room, renew_if_wasteful};

/// The flags of a parked entry.
const PARKED: u32 = ENTRY_UNWOUND | ENTRY_SILENT;
/// The flags that distinguish parked entries from others: a parked entry has exactly [`PARKED`] of these.
const KINDS: u32 = PARKED | ENTRY_NO_RETURN;
/// A flag of a parked entry: a jump that the runtime saw has left the call.
const JUMPED: u32 = 1 << 8;
/// A flag of a parked entry: its slot on the stack holds something else.
const GONE: u32 = 1 << 9;
/// A flag of a parked entry: the call is open, and an alias stands for it. The spare word is the alias's address.
const ALIASED: u32 = 1 << 10;

/// The outcome of a search for the call that returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundCall {
    /// The entry is open on this thread's shadow stack.
    Open(*mut ShadowEntry),
    /// The entry is open in a suspended segment, with which this thread must go on first.
    Suspended(*mut StackSegment, *mut ShadowEntry),
    /// The call's end has been recorded before. This is the caller to which it returns.
    Left(Caller),
}

fn is_barrier(entry: &ShadowEntry) -> bool {
    entry.slot == BARRIER_SLOT
}

fn is_hole(entry: &ShadowEntry) -> bool {
    entry.slot == 0
}

fn is_parked(entry: &ShadowEntry) -> bool {
    entry.flags & KINDS == PARKED && !is_hole(entry) && !is_barrier(entry)
}

/// Returns true if a walk over open calls skips an entry: it is parked, a hole, or a barrier.
pub fn is_passed_over(entry: &ShadowEntry) -> bool {
    is_parked(entry) || is_hole(entry) || is_barrier(entry)
}

/// Returns true if an entry stands for a call that may still return.
pub fn may_return(entry: &ShadowEntry) -> bool {
    !is_hole(entry) && !is_barrier(entry)
}

/// Makes an entry of this thread's shadow stack a hole. Its spare word keeps the slot, for [`remnant`].
fn empty(entry: &mut ShadowEntry) {
    if !is_hole(entry) {
        entry.spare = entry.slot;
    }
    entry.slot = 0;
    entry.flags = ENTRY_UNWOUND | ENTRY_NO_RETURN;
}

fn barrier(outer: *mut ShadowEntry) -> ShadowEntry {
    ShadowEntry {
        slot: BARRIER_SLOT,
        flags: ENTRY_UNWOUND | ENTRY_NO_RETURN | ENTRY_SILENT,
        spare: outer.expose_provenance() as u64,
        ..ShadowEntry::BOTTOM
    }
}

/// Returns the next outer entry of an entry. Skips a barrier and the parked entries below it.
///
/// # Safety
/// The entry is one of a shadow stack, above the floor.
unsafe fn outer(entry: *mut ShadowEntry) -> *mut ShadowEntry {
    let below = entry.wrapping_sub(1);
    // SAFETY: the caller's promise: at least the floor is below.
    unsafe { unless_barrier(below) }
}

/// Returns the entry itself, or the entry to which a barrier leads.
///
/// # Safety
/// The entry is one of a shadow stack, or the floor.
unsafe fn unless_barrier(entry: *mut ShadowEntry) -> *mut ShadowEntry {
    // SAFETY: the caller's promise.
    let entry_now = unsafe { &*entry };
    match is_barrier(entry_now) {
        true => ptr::with_exposed_provenance_mut(entry_now.spare as usize),
        false => entry,
    }
}

/// Returns the innermost entry that is not parked; the floor if there is none.
///
/// # Safety
/// The record is this thread's, or the dummy.
pub unsafe fn innermost(record: *const ThreadRecord) -> *mut ShadowEntry {
    // SAFETY: the caller's promise.
    unsafe { unless_barrier((*record).top) }
}

/// Calls `visit` with the entries that are not parked, the innermost first, until it returns false. Skips the parked
/// entries below a barrier in one step.
///
/// # Safety
/// The record is this thread's, or the dummy.
pub unsafe fn each_unparked(
    record: *const ThreadRecord,
    mut visit: impl FnMut(&mut ShadowEntry) -> bool,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut entry = innermost(record);
        while entry > (*record).floor {
            if !is_passed_over(&*entry) && !visit(&mut *entry) {
                return;
            }
            entry = outer(entry);
        }
    }
}

/// Returns true if an entry lies between a record's floor and its top.
///
/// # Safety
/// The record is this thread's, or the dummy.
unsafe fn is_within(record: *const ThreadRecord, entry: *const ShadowEntry) -> bool {
    // SAFETY: the caller's promise.
    unsafe { entry > (*record).floor.cast_const() && entry <= (*record).top.cast_const() }
}

/// Returns the parked entry for which `alias` stands; `None` if the entry is no alias.
///
/// # Safety
/// `alias` is an entry of a shadow stack.
unsafe fn original(alias: *mut ShadowEntry) -> Option<*mut ShadowEntry> {
    // SAFETY: the caller's promise; the original is an entry, too.
    unsafe {
        if (*alias).flags & ENTRY_NO_RETURN != 0 {
            return None;
        }
        let (_, entry) = segments::find((*alias).frame)?;
        let is_original = is_parked(&*entry)
            && (*entry).flags & ALIASED != 0
            && (*entry).spare == alias.addr() as u64;
        is_original.then_some(entry)
    }
}

/// Returns the caller of an open call. It may be called once for a call: if the entry is an alias, its original
/// becomes a hole.
///
/// # Safety
/// The entry is an open one of this thread's shadow stack.
pub unsafe fn caller(entry: *mut ShadowEntry) -> Caller {
    // SAFETY: the caller's promise.
    unsafe {
        match original(entry) {
            Some(original) => {
                // The claim makes the entry a hole. Its segment may belong to another thread from then on.
                let caller = (*original).caller();
                claim(original, (*original).slot);
                caller
            }
            None => (*entry).caller(),
        }
    }
}

/// Parks an entry, or makes it a hole if its call can't return. Returns true if the entry must stay where it is.
///
/// # Safety
/// The entry is one of this thread's shadow stack, or of a thread that does not exist in this process.
unsafe fn park(entry: *mut ShadowEntry, told: bool) -> bool {
    let jumped = if told { JUMPED } else { 0 };
    // SAFETY: the caller's promise.
    unsafe {
        if is_hole(&*entry) || is_barrier(&*entry) {
            return false;
        }
        if is_parked(&*entry) {
            return true;
        }
        let original = original(entry);
        // The frames of an exception are gone for good. Functions that report their own end return without the
        // runtime.
        let is_dead = (*entry).flags & (ENTRY_UNWOUND | ENTRY_NO_RETURN) != 0;
        if let Some(original) = original {
            match is_dead {
                true => drop(claim(original, (*original).slot)),
                false => {
                    (*original).spare = (*original).slot;
                    (*original).flags = (*original).flags & !ALIASED | jumped;
                }
            }
        }
        if is_dead || original.is_some() {
            empty(&mut *entry);
            return false;
        }
        // A thread that claims the entry writes nothing but its slot, so the word for [`remnant`] is written now.
        (*entry).spare = (*entry).slot;
        (*entry).flags = PARKED | (*entry).flags & ENTRY_TAIL | jumped;
        true
    }
}

/// Leaves the calls of the entries from `from` up to the top. `told` is true if a jump that the runtime saw leaves
/// them.
///
/// # Safety
/// The record is this thread's, or of a thread that does not exist in this process; the entry is above its floor.
pub unsafe fn leave(record: *mut ThreadRecord, from: *mut ShadowEntry, told: bool) {
    // SAFETY: the caller's promise.
    unsafe {
        if !(*record).interrupted.is_active() {
            reopen(record);
        }
        let mut stays = false;
        let mut entry = innermost(record);
        if entry != (*record).top && (*record).top >= from {
            // A new barrier replaces this one, so that barriers need no more room than one entry.
            (*record).top = (*record).top.sub(1);
            stays = true;
        }
        while entry >= from {
            stays |= park(entry, told);
            let below = outer(entry);
            // A group has parked entries, or it would have been given up.
            stays |= below != entry.sub(1);
            entry = below;
        }
        if !stays {
            (*record).top = from.sub(1);
            return;
        }
        let barrier = barrier(outer(from));
        (*record).top = (*record).top.add(1);
        (*record).top.write(barrier);
        trim(record);
    }
}

/// Removes the entry of an open call that has ended. No entry above it is open.
///
/// # Safety
/// The record is this thread's, and the entry is on its shadow stack.
pub unsafe fn remove(record: *mut ThreadRecord, entry: *mut ShadowEntry) {
    // SAFETY: the caller's promise.
    unsafe {
        if entry == (*record).top {
            (*record).top = entry.sub(1);
            return trim(record);
        }
        empty(&mut *entry);
        if is_barrier(&*(*record).top) {
            (*(*record).top).spare = outer(entry).expose_provenance() as u64;
        }
        trim(record);
    }
}

/// Gives up holes below the top's barrier, and the barrier if nothing is parked there any more.
///
/// # Safety
/// The record is this thread's, or of a thread that does not exist in this process.
unsafe fn trim(record: *mut ThreadRecord) {
    // SAFETY: the caller's promise.
    unsafe {
        while is_barrier(&*(*record).top) {
            let top = (*record).top;
            let outer = unless_barrier(top);
            let below = top.sub(1);
            if below == outer {
                (*record).top = outer;
            } else if is_hole(&*below) || is_barrier(&*below) {
                below.write(*top);
                (*record).top = below;
            } else {
                return;
            }
        }
    }
}

/// Keeps hooks from overwriting entries that signal handlers have parked above `next`, the entry that the interrupted
/// hook is about to write. Returns true if there are such entries; then the top is the innermost of them.
///
/// # Safety
/// The record is this thread's; `next` is the entry that the hook is about to write.
pub unsafe fn hold(record: *mut ThreadRecord, next: *mut ShadowEntry) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        let top = (*record).top;
        if top <= next || unless_barrier(top) != next {
            return false;
        }
        (*record).held = top.sub(1);
        (*record).top = next.sub(1);
        (*record).limit = next.sub(1);
        true
    }
}

/// Goes on above the held entries once the interrupted hook has finished.
///
/// # Safety
/// The record is this thread's, and no hook is interrupted.
pub unsafe fn reopen(record: *mut ThreadRecord) {
    // SAFETY: the caller's promise.
    unsafe {
        let held = (*record).held;
        if held.is_null() {
            return;
        }
        let outer = innermost(record);
        let mut entry = (*record).top.add(1);
        while entry <= held {
            if !is_parked(&*entry) {
                empty(&mut *entry);
            }
            entry = entry.add(1);
        }
        (*record).held = ptr::null_mut();
        (*record).limit = segments::limit((*record).segment);
        (*record).top = held.add(1);
        held.add(1).write(barrier(outer));
        trim(record);
    }
}

/// Finds the call that returns. `token` is the address to which its frame pointer leads, on processors where that is
/// the call's entry; `frame` is the frame pointer otherwise.
///
/// # Safety
/// The record is this thread's, or the dummy.
pub unsafe fn find(
    record: *mut ThreadRecord,
    token: Option<u64>,
    frame: u64,
    slot: u64,
) -> Option<FoundCall> {
    let named = token.and_then(segments::find);
    // SAFETY: the caller's promise; the search finds only entries.
    unsafe {
        if let Some((segment, entry)) = named
            && (*entry).slot == slot
            && let Some(found) = look(record, segment, entry)
        {
            return Some(found);
        }
        // The frame pointer has changed, or leads to no entry. The search looks first at calls whose callers had the
        // same frame pointer.
        let is_it = |entry: &ShadowEntry, of_frame: bool| {
            entry.slot == slot
                && entry.flags & ENTRY_NO_RETURN == 0
                && (entry.frame == frame || !of_frame)
        };
        for (of_frame, parked) in [(true, false), (true, true), (false, false), (false, true)] {
            let mut entry = (*record).top;
            while entry > (*record).floor {
                if is_it(&*entry, of_frame) && is_parked(&*entry) == parked {
                    return look(record, (*record).segment, entry);
                }
                entry = entry.sub(1);
            }
        }
        for of_frame in [true, false] {
            let mut found = None;
            segments::all(|segment| {
                found = each(segment, |entry| is_it(&*entry, of_frame))
                    .and_then(|entry| look(record, segment, entry));
                found.is_some()
            });
            if found.is_some() {
                return found;
            }
        }
        // The slot differs: the stack was moved to another place.
        let (segment, entry) = named?;
        look(record, segment, entry).or_else(|| remnant(entry, slot))
    }
}

/// Returns the caller of a call that has returned before, as long as no other call has taken its entry. A program
/// that resumes a copied stack more than once returns from its calls as often.
///
/// # Safety
/// `entry` is an entry of a segment.
unsafe fn remnant(entry: *mut ShadowEntry, slot: u64) -> Option<FoundCall> {
    // SAFETY: the caller's promise.
    let now = unsafe { *entry };
    let is_it = now.slot == slot || is_hole(&now) && now.spare == slot;
    is_it.then_some(FoundCall::Left(now.caller()))
}

/// Returns the innermost entry of a segment for which `is_it` returns true.
///
/// # Safety
/// `segment` is a segment.
unsafe fn each(
    segment: *mut StackSegment,
    is_it: impl Fn(*mut ShadowEntry) -> bool,
) -> Option<*mut ShadowEntry> {
    // SAFETY: the caller's promise; entries up to the top are initialised. Another thread may change its own
    // meanwhile.
    unsafe {
        let mut entry = match (*segment).state() {
            SegmentState::Free => return None,
            SegmentState::Active => {
                let owner = (*segment).owner.load(Ordering::Acquire);
                let owner = owner.as_ref()?;
                if owner.segment != segment {
                    return None;
                }
                owner.top.max(owner.held)
            }
            SegmentState::Parked | SegmentState::Retired => (*segment).top,
        };
        while entry > segments::floor(segment) {
            if is_it(entry) {
                return Some(entry);
            }
            entry = entry.sub(1);
        }
    }
    None
}

/// Finds the call that returns by its entry. Returns `None` if the entry is not the call's any more.
///
/// # Safety
/// The record is this thread's, or the dummy; the entry is of the segment.
unsafe fn look(
    record: *mut ThreadRecord,
    segment: *mut StackSegment,
    entry: *mut ShadowEntry,
) -> Option<FoundCall> {
    // SAFETY: the caller's promise.
    unsafe {
        let (slot, caller) = ((*entry).slot, (*entry).caller());
        if is_parked(&*entry) {
            let alias: *mut ShadowEntry = match (*entry).flags & ALIASED {
                0 => ptr::null_mut(),
                _ => ptr::with_exposed_provenance_mut((*entry).spare as usize),
            };
            if !alias.is_null() && is_within(record, alias) && (*alias).slot == slot {
                return Some(FoundCall::Open(alias));
            }
            if !claim(entry, slot) {
                return None;
            }
            // Read again, because the entry's thread may have copied it meanwhile. That thread may also use the entry
            // for something else from now on: it is only read, and the spare word need not lead to an alias.
            let now = *entry;
            returned(now.flags);
            if now.flags & ALIASED != 0
                && let Some((_, alias)) = segments::find(now.spare)
            {
                claim(alias, slot);
            }
            if is_within(record, entry) {
                trim(record);
            }
            return Some(FoundCall::Left(caller));
        }
        if is_hole(&*entry) || is_barrier(&*entry) {
            return None;
        }
        if is_within(record, entry) {
            return Some(FoundCall::Open(entry));
        }
        match (*segment).state() {
            SegmentState::Parked if entry <= (*segment).top => {
                Some(FoundCall::Suspended(segment, entry))
            }
            // Another thread has begun the call and does not know yet that it has lost it.
            SegmentState::Active => {
                let owner = (*segment).owner.load(Ordering::Acquire).as_ref()?;
                let is_there = owner.segment == segment && entry <= owner.top;
                (is_there && claim(entry, slot)).then_some(FoundCall::Left(caller))
            }
            _ => None,
        }
    }
}

/// Takes a call's entry out of whatever segment holds it. Changes nothing else, because hooks may be at work there.
///
/// # Safety
/// `entry` is an entry of a segment.
pub unsafe fn snatch(entry: *mut ShadowEntry) -> Option<Caller> {
    // SAFETY: the caller's promise.
    unsafe {
        let slot = (*entry).slot;
        let caller = caller(entry);
        claim(entry, slot).then_some(caller)
    }
}

#[cfg(test)]
mod tests;
