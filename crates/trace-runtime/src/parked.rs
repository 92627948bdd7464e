//! Calls that were left and may still return.
//!
//! Where a program exchanges stacks by itself (fibers of its own assembler code, copied stacks, jumps between stacks),
//! nobody tells the runtime. It notices that a stack does not fit the shadow stack any more, and records the calls in question
//! as left. But the program may come back to them, and their return addresses are its property. So their entries stay where
//! they are, *parked*, below a *barrier* above which the thread goes on:
//!
//! ```text
//! floor | open | open | parked | hole | parked | barrier | open     <- top
//!                  ^------------------------------ spare
//! ```
//!
//! A call that returns is found by its frame pointer, which leads to its entry ([`find`]); its entry becomes a *hole*. Holes
//! below a barrier are given up at once, others when the thread goes on in another segment ([`renew_if_wasteful`]): then open calls
//! are copied there (*aliases*), and what is parked stays behind.
//!
//! A program may also leave calls for good without telling anybody (exceptions of languages of its own). Their entries look
//! like others' that may return. The sweep ([`renew`]) tells them apart: the place of a call's return address on the stack holds
//! something else by then, or a later call's. Copied stacks look the same, so such entries are given up only beyond a number,
//! and never in a process in which one of them has returned after all.

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

/// The flags of a parked entry, and those that are asked.
const PARKED: u32 = ENTRY_UNWOUND | ENTRY_SILENT;
const KINDS: u32 = PARKED | ENTRY_NO_RETURN;
/// A flag of a parked entry: a jump that the runtime was told of has left it.
const JUMPED: u32 = 1 << 8;
/// A flag of a parked entry: its place on the stack holds something else.
const GONE: u32 = 1 << 9;
/// A flag of a parked entry: the call is open, and its alias, to which the spare word leads, stands for it.
const ALIASED: u32 = 1 << 10;

/// A call that returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// It is open on this thread's shadow stack.
    Open(*mut Entry),
    /// It is open in a segment that is suspended, and which this thread has to go on with first.
    Suspended(*mut Segment, *mut Entry),
    /// Its end has been recorded before; this is what it returns to.
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

/// Whether a walk over entries passes one over: it is none of an open call.
pub fn is_passed_over(entry: &Entry) -> bool {
    is_parked(entry) || is_hole(entry) || is_barrier(entry)
}

fn hole() -> Entry {
    Entry {
        slot: 0,
        flags: ENTRY_UNWOUND | ENTRY_NO_RETURN,
        ..Entry::BOTTOM
    }
}

fn barrier(outer: *mut Entry) -> Entry {
    Entry {
        slot: BARRIER_SLOT,
        flags: ENTRY_UNWOUND | ENTRY_NO_RETURN | ENTRY_SILENT,
        spare: outer.expose_provenance() as u64,
        ..Entry::BOTTOM
    }
}

/// Returns the entry that is below an entry, parked ones and barriers left out.
///
/// # Safety
/// It is an entry of a shadow stack, above the floor.
unsafe fn outer(entry: *mut Entry) -> *mut Entry {
    let below = entry.wrapping_sub(1);
    // SAFETY: the caller's promise: at least the floor is below.
    unsafe { unless_barrier(below) }
}

/// # Safety
/// It is an entry of a shadow stack, or the floor.
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

/// Calls `visit` with the entries that are not parked, the innermost first, until it returns false. Groups of parked
/// entries cost nothing.
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

/// Returns the entry of which another one is the alias, if it is one.
///
/// # Safety
/// It is an entry of a shadow stack.
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

/// Returns what an open call returns to. Nobody asks again: the entry that it was first is a hole now.
///
/// # Safety
/// It is an open entry of this thread's shadow stack.
pub unsafe fn caller(entry: *mut Entry) -> Caller {
    // SAFETY: the caller's promise.
    unsafe {
        match original(entry) {
            Some(original) => {
                let caller = (*original).caller();
                claim(original, (*original).slot);
                caller
            }
            None => (*entry).caller(),
        }
    }
}

/// Parks an entry, or makes it a hole if its call can't return. Returns whether it has to stay where it is.
///
/// # Safety
/// It is an entry of this thread's shadow stack, or of a thread that does not exist in this process.
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
            entry.write(hole());
            return false;
        }
        (*entry).flags = PARKED | (*entry).flags & ENTRY_TAIL | jumped;
        true
    }
}

/// The calls of the entries from `from` up to the top are left. `told`: by a jump that the runtime knows of.
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

/// An open call has ended, and nothing above its entry is open.
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
        entry.write(hole());
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

/// Handlers that have interrupted a hook have ended, and have left parked entries above the entry that the hook is about
/// to write: keeps hooks from overwriting them. Returns whether there are any. The top is the innermost entry then.
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

/// Goes on above what is held, once the interrupted hook has done its work.
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
                entry.write(hole());
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

/// Finds the call that returns: `token` is where its frame pointer leads, on processors where that is its entry; `frame` is the frame
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
        // The frame pointer is not what it was, or not ours. Callers with the same frame first.
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
        // A stack that was moved to another place.
        let (segment, entry) = named?;
        look(record, segment, entry)
    }
}

/// Returns the innermost entry of a segment that `is_it`.
///
/// # Safety
/// It is a segment.
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

/// Returns what an entry says of the call that returns, if it is still there.
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

/// Takes a call's entry from a segment that another thread has taken over meanwhile.
///
/// # Safety
/// It is an entry.
pub unsafe fn snatch(entry: *mut Entry) -> Option<Caller> {
    // SAFETY: the caller's promise.
    unsafe {
        let (slot, caller) = ((*entry).slot, (*entry).caller());
        claim(entry, slot).then_some(caller)
    }
}

#[cfg(test)]
mod tests;
