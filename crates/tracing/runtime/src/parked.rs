//! Calls that were left and may still return.
//!
//! Where a program exchanges stacks by itself (fibers of its own assembler code, copied stacks, jumps between stacks),
//! nobody tells the runtime. It notices that a stack does not fit the shadow stack any more, and records the calls in question
//! as left. But the program may come back to them, and only their entries hold the return addresses. So their entries
//! stay where they
//! they are, *parked*, below a *barrier* above which the thread goes on:
//!
//! ```text
//! floor | open | open | parked | hole | parked | barrier | open     <- top
//!                  ^------------------------------ spare
//! ```
//!
//! [`find`] finds the call that returns by its frame pointer, which leads to the call's entry. The entry becomes a
//! *hole*. Holes right below the innermost barrier are given up at once. The others are given up when the thread goes
//! on in another segment ([`renew_if_wasteful`]): open calls are copied there (*aliases*), and parked entries stay
//! behind.
//!
//! A program may also leave calls for good without telling anybody (exceptions of languages of its own). Their entries look
//! like those of calls that may return. The sweep ([`renew`]) tells them apart: the place of a call's return address on
//! the stack holds something else by then, or the return address of a later call. Stacks that were copied away look the
//! same. So such entries are given up only beyond a number, and never in a process in which one of them has returned
//! after all.

mod renew;

use crate::segments::{self, Segment, State, claim};
use crate::shadow::{Caller, Entry, Record};
use core::ptr;
use core::sync::atomic::Ordering;
use dioptra_tracelayout::message::thread::{
    BARRIER_SLOT, ENTRY_NO_RETURN, ENTRY_SILENT, ENTRY_TAIL, ENTRY_UNWOUND,
};
use renew::returned;
pub use renew::{can_look, is_dead, make_room, renew_if_wasteful};

/// The flags of a parked entry.
const PARKED: u32 = ENTRY_UNWOUND | ENTRY_SILENT;
/// The flags by which a parked entry is told from others: it has exactly [`PARKED`] of these.
const KINDS: u32 = PARKED | ENTRY_NO_RETURN;
/// A flag of a parked entry: a jump that the runtime was told of has left it.
const JUMPED: u32 = 1 << 8;
/// A flag of a parked entry: its place on the stack holds something else.
const GONE: u32 = 1 << 9;
/// A flag of a parked entry: the call is open, and its alias, to which the spare word leads, stands for it.
const ALIASED: u32 = 1 << 10;

/// The place at which [`find`] finds the call that returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The entry is open on this thread's shadow stack.
    Open(*mut Entry),
    /// The entry is open in a suspended segment, with which this thread has to go on first.
    Suspended(*mut Segment, *mut Entry),
    /// The call's end has been recorded before; this is its caller.
    Left(Caller),
}

fn is_barrier(entry: &Entry) -> bool {
    entry.slot == BARRIER_SLOT
}

fn is_hole(entry: &Entry) -> bool {
    entry.slot == 0
}

fn is_parked(entry: &Entry) -> bool {
    entry.flags & KINDS == PARKED && !is_hole(entry) && !is_barrier(entry)
}

/// Whether a walk over open calls passes an entry over: it is parked, a hole, or a barrier.
pub fn is_passed_over(entry: &Entry) -> bool {
    is_parked(entry) || is_hole(entry) || is_barrier(entry)
}

/// Makes an entry a hole. Its spare word keeps the slot, for [`remnant`].
fn empty(entry: &mut Entry) {
    if !is_hole(entry) {
        entry.spare = entry.slot;
    }
    entry.slot = 0;
    entry.flags = ENTRY_UNWOUND | ENTRY_NO_RETURN;
}

fn barrier(outer: *mut Entry) -> Entry {
    Entry {
        slot: BARRIER_SLOT,
        flags: ENTRY_UNWOUND | ENTRY_NO_RETURN | ENTRY_SILENT,
        spare: outer.expose_provenance() as u64,
        ..Entry::BOTTOM
    }
}

/// Returns the next outer entry of an entry. Skips a barrier and the entries for which that stands.
///
/// # Safety
/// The entry is one of a shadow stack, above the floor.
unsafe fn outer(entry: *mut Entry) -> *mut Entry {
    let below = entry.wrapping_sub(1);
    // SAFETY: the caller's promise: at least the floor is below.
    unsafe { unless_barrier(below) }
}

/// Returns the entry itself, or the entry to which it leads if it is a barrier.
///
/// # Safety
/// The entry is one of a shadow stack, or the floor.
unsafe fn unless_barrier(entry: *mut Entry) -> *mut Entry {
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
pub unsafe fn innermost(record: *const Record) -> *mut Entry {
    // SAFETY: the caller's promise.
    unsafe { unless_barrier((*record).top) }
}

/// Calls `visit` with the entries that are not parked, the innermost first, until it returns false. Skips the parked
/// entries below a barrier in one step.
///
/// # Safety
/// The record is this thread's, or the dummy.
pub unsafe fn each_unparked(record: *const Record, mut visit: impl FnMut(&mut Entry) -> bool) {
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

/// Whether an entry is between a record's floor and its top.
///
/// # Safety
/// The record is this thread's, or the dummy.
unsafe fn is_within(record: *const Record, entry: *const Entry) -> bool {
    // SAFETY: the caller's promise.
    unsafe { entry > (*record).floor.cast_const() && entry <= (*record).top.cast_const() }
}

/// Returns the parked entry for which `alias` stands; `None` if it is no alias.
///
/// # Safety
/// `alias` is an entry of a shadow stack.
unsafe fn original(alias: *mut Entry) -> Option<*mut Entry> {
    // SAFETY: the caller's promise; what is found is an entry, too.
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

/// Returns the caller of an open call. May be asked once: if the entry is an alias, its original becomes a hole.
///
/// # Safety
/// The entry is an open one of this thread's shadow stack.
pub unsafe fn caller(entry: *mut Entry) -> Caller {
    // SAFETY: the caller's promise.
    unsafe {
        match original(entry) {
            Some(original) => {
                let (slot, caller) = ((*original).slot, (*original).caller());
                if claim(original, slot) {
                    empty_claimed(&mut *original, slot);
                }
                caller
            }
            None => (*entry).caller(),
        }
    }
}

/// Parks an entry, or makes it a hole if its call can't return. Returns whether it has to stay where it is.
///
/// # Safety
/// The entry is one of this thread's shadow stack, or of a thread that does not exist in this process.
unsafe fn park(entry: *mut Entry, told: bool) -> bool {
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
        // An exception's frames are gone for good; functions that say themselves when they end return without us.
        let is_dead = (*entry).flags & (ENTRY_UNWOUND | ENTRY_NO_RETURN) != 0;
        if let Some(original) = original {
            match is_dead {
                true => drop(claim(original, (*original).slot)),
                false => (*original).flags = (*original).flags & !ALIASED | jumped,
            }
        }
        if is_dead || original.is_some() {
            empty(&mut *entry);
            return false;
        }
        (*entry).flags = PARKED | (*entry).flags & ENTRY_TAIL | jumped;
        true
    }
}

/// Leaves the calls of the entries from `from` up to the top. `told`: a jump that the runtime knows of leaves them.
///
/// # Safety
/// The record is this thread's, or of a thread that does not exist in this process; the entry is above its floor.
pub unsafe fn leave(record: *mut Record, from: *mut Entry, told: bool) {
    // SAFETY: the caller's promise.
    unsafe {
        if !(*record).interrupted.is_active() {
            reopen(record);
        }
        let mut stays = false;
        let mut entry = innermost(record);
        if entry != (*record).top && (*record).top >= from {
            // A new barrier takes the place of this one, so that barriers need no more room than one entry.
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
pub unsafe fn remove(record: *mut Record, entry: *mut Entry) {
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
unsafe fn trim(record: *mut Record) {
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

/// Keeps hooks from overwriting entries that signal handlers have parked above `next`, the entry that the hook that
/// they interrupted is about to write. Returns whether there are such entries. If so, the top is the innermost entry
/// now.
///
/// # Safety
/// The record is this thread's; `next` is the entry that the hook is about to write.
pub unsafe fn hold(record: *mut Record, next: *mut Entry) -> bool {
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

/// Goes on above the held entries, once the interrupted hook has done its work.
///
/// # Safety
/// The record is this thread's, and no hook is interrupted.
pub unsafe fn reopen(record: *mut Record) {
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
/// its entry; `frame` is the frame
/// pointer otherwise.
///
/// # Safety
/// The record is this thread's, or the dummy.
pub unsafe fn find(
    record: *mut Record,
    token: Option<u64>,
    frame: u64,
    slot: u64,
) -> Option<Found> {
    let named = token.and_then(segments::find);
    // SAFETY: the caller's promise; what is found is an entry.
    unsafe {
        if let Some((segment, entry)) = named
            && (*entry).slot == slot
            && let Some(found) = look(record, segment, entry)
        {
            return Some(found);
        }
        // The frame pointer has changed, or leads to no entry. Looks first at calls whose callers had the same frame
        // pointer.
        let is_it = |entry: &Entry, of_frame: bool| {
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

/// Notes in a hole, which was an entry with `slot` until it was claimed, what [`remnant`] needs.
fn empty_claimed(entry: &mut Entry, slot: u64) {
    entry.spare = slot;
    entry.flags = ENTRY_UNWOUND | ENTRY_NO_RETURN;
}

/// Returns the caller of a call that has returned before, as long as nothing has taken the place of its entry: a program that
/// resumes a copied stack more than once returns from its calls as often.
///
/// # Safety
/// `entry` is an entry of a segment.
unsafe fn remnant(entry: *mut Entry, slot: u64) -> Option<Found> {
    // SAFETY: the caller's promise.
    let now = unsafe { *entry };
    let is_it = now.slot == slot || is_hole(&now) && now.spare == slot;
    is_it.then_some(Found::Left(now.caller()))
}

/// Returns the innermost entry of a segment for which `is_it` returns true.
///
/// # Safety
/// `segment` is a segment.
unsafe fn each(segment: *mut Segment, is_it: impl Fn(*mut Entry) -> bool) -> Option<*mut Entry> {
    // SAFETY: the caller's promise; entries up to the top are initialised. Another thread's may change meanwhile.
    unsafe {
        let mut entry = match (*segment).state() {
            State::Free => return None,
            State::Active => {
                let owner = (*segment).owner.load(Ordering::Acquire);
                let owner = owner.as_ref()?;
                if owner.segment != segment {
                    return None;
                }
                owner.top.max(owner.held)
            }
            State::Parked | State::Retired => (*segment).top,
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

/// Finds the call that returns by its entry; `None` if the entry is not the call's any more.
///
/// # Safety
/// The record is this thread's, or the dummy; the entry is of the segment.
unsafe fn look(record: *mut Record, segment: *mut Segment, entry: *mut Entry) -> Option<Found> {
    // SAFETY: the caller's promise.
    unsafe {
        let (slot, caller) = ((*entry).slot, (*entry).caller());
        if is_parked(&*entry) {
            let alias: *mut Entry = match (*entry).flags & ALIASED {
                0 => ptr::null_mut(),
                _ => ptr::with_exposed_provenance_mut((*entry).spare as usize),
            };
            if !alias.is_null() && is_within(record, alias) && (*alias).slot == slot {
                return Some(Found::Open(alias));
            }
            if !claim(entry, slot) {
                return None;
            }
            returned((*entry).flags);
            // Read again: its thread may have copied it meanwhile.
            if (*entry).flags & ALIASED != 0 {
                let alias = ptr::with_exposed_provenance_mut((*entry).spare as usize);
                claim(alias, slot);
            }
            empty_claimed(&mut *entry, slot);
            if is_within(record, entry) {
                trim(record);
            }
            return Some(Found::Left(caller));
        }
        if is_hole(&*entry) || is_barrier(&*entry) {
            return None;
        }
        if is_within(record, entry) {
            return Some(Found::Open(entry));
        }
        match (*segment).state() {
            State::Parked if entry <= (*segment).top => Some(Found::Suspended(segment, entry)),
            // Another thread has begun the call, and does not know yet that it has lost it.
            State::Active => {
                let owner = (*segment).owner.load(Ordering::Acquire).as_ref()?;
                let is_there = owner.segment == segment && entry <= owner.top;
                (is_there && claim(entry, slot)).then_some(Found::Left(caller))
            }
            _ => None,
        }
    }
}

/// Takes a call's entry from wherever it is. Nothing else is changed: hooks may be at work there.
///
/// # Safety
/// `entry` is an entry of a segment.
pub unsafe fn snatch(entry: *mut Entry) -> Option<Caller> {
    // SAFETY: the caller's promise.
    unsafe {
        let slot = (*entry).slot;
        let caller = caller(entry);
        claim(entry, slot).then_some(caller)
    }
}

#[cfg(test)]
mod tests;
