//! Hooks for programs compiled with `-finstrument-functions`: their functions say themselves when they begin and end.
//!
//! Return addresses stay where they are. The calls are on the shadow stack all the same, so that what is left by a jump is
//! noticed, and other traced calls nest right. Functions that the compiler has inlined call hooks, too: several calls may
//! share a frame.
//!
//! Functions that an exception leaves do not say so (those of clang; gcc's do), and what comes next is perhaps deeper on the
//! stack than they were. What is kept of each call is where its return address lies, what it is, and where its hook was
//! called: a call is over when something else lies there, or when another one has its place. (Not seen at once: what follows is a
//! function with a frame larger than what is searched.)

use crate::arch;
use crate::chunks::{now, stopped};
use crate::interrupted::{self, Other};
use crate::session;
use crate::shadow::{self, Block, Entry, OWN_WORK};
use crate::slow::{begin_work, drop_entries};
use crate::{sys, thread};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, compiler_fence};
use dioptra_tracelayout::message::FunctionId;
use dioptra_tracelayout::message::thread::{ENTRY_NO_RETURN, ENTRY_SAVED, NO_SLOT, operand};
use dioptra_tracelayout::record::{MAX_DELTA, UnwindCause};

/// Function ids by address; a hash table that is only ever replaced by a larger one.
#[repr(C)]
struct Table {
    mask: u64,
}

#[repr(C)]
struct Place {
    address: AtomicU64,
    id: AtomicU32,
    filter: AtomicU32,
}

static TABLE: AtomicPtr<Table> = AtomicPtr::new(ptr::null_mut());

/// Learns the ids of functions.
pub fn learn(functions: &[FunctionId]) {
    let old = TABLE.load(Ordering::Acquire);
    let known = match old.is_null() {
        true => 0,
        // SAFETY: a table is never unmapped, and as large as its mask says.
        false => unsafe { (*old).mask + 1 },
    };
    let wanted = (known + functions.len() as u64).next_power_of_two() * 2;
    let size = size_of::<Table>() + wanted as usize * size_of::<Place>();
    let Ok(memory) = sys::map_private(size) else {
        return;
    };
    let table: *mut Table = memory.cast();
    // SAFETY: new memory, zeroes.
    unsafe { (*table).mask = wanted - 1 };
    for at in 0..known {
        // SAFETY: as above.
        let place = unsafe { place(old, at) };
        put(
            table,
            place.address.load(Ordering::Relaxed),
            place.id.load(Ordering::Relaxed),
            place.filter.load(Ordering::Relaxed),
        );
    }
    for function in functions {
        put(table, function.address, function.id, function.filter);
    }
    TABLE.store(table, Ordering::Release);
}

/// # Safety
/// The table is one.
unsafe fn place<'a>(table: *mut Table, hash: u64) -> &'a Place {
    // SAFETY: the mask keeps it inside; tables are never unmapped.
    unsafe {
        &*table
            .add(1)
            .cast::<Place>()
            .add((hash & (*table).mask) as usize)
    }
}

fn hash(address: u64) -> u64 {
    address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

fn put(table: *mut Table, address: u64, id: u32, filter: u32) {
    if address == 0 {
        return;
    }
    let mut at = hash(address);
    loop {
        // SAFETY: a table of ours; it is at most half full.
        let place = unsafe { place(table, at) };
        let there = place.address.load(Ordering::Relaxed);
        if there == 0 || there == address {
            place.id.store(id, Ordering::Relaxed);
            place.filter.store(filter, Ordering::Relaxed);
            place.address.store(address, Ordering::Relaxed);
            return;
        }
        at += 1;
    }
}

/// The id of the function at an address; 0 if its calls are not wanted, `None` if it is not known.
#[inline]
fn find(address: u64) -> Option<(u32, bool)> {
    let table = TABLE.load(Ordering::Acquire);
    if table.is_null() {
        return None;
    }
    let mut at = hash(address);
    loop {
        // SAFETY: a table; it is at most half full, so there is an end.
        let place = unsafe { place(table, at) };
        match place.address.load(Ordering::Relaxed) {
            0 => return None,
            there if there == address => {
                let is_filter = place.filter.load(Ordering::Relaxed) != 0;
                return Some((place.id.load(Ordering::Relaxed), is_filter));
            }
            _ => at += 1,
        }
    }
}

/// How far up the stack a return address is looked for, in words from the hook's slot: most functions have smaller frames.
const SEARCHED: u64 = 128;
/// How far from a function's beginning its hook may be called; further away it is a copy of it, inlined into another.
const BEGINNING: u64 = 4096;
/// How far above the stack pointer memory is read without a question: no other stack begins so near.
const NEAR: u64 = 4096;
/// From the place of a return address to the slot of its call: never that of a call through a thunk.
const BELOW: u64 = 2;

/// A hook's call, as it tells of itself.
#[derive(Clone, Copy)]
struct Call {
    /// The function's address.
    function: u64,
    /// Where the call will return to.
    caller: u64,
    /// The hook's slot: right below the function's frame.
    stack: u64,
    /// Where the hook was called.
    site: u64,
    /// Below the place of the return address; if that is not known, at the lower end of the frame.
    slot: u64,
    /// Whether it is known.
    is_known: bool,
}

impl Call {
    #[inline]
    fn new(function: u64, caller: u64, stack: u64, site: u64) -> Call {
        let word = |at: u64| {
            // SAFETY: from the stack pointer up to the return address, which was found there, it is the function's frame.
            unsafe { ptr::with_exposed_provenance::<u64>(at as usize).read_volatile() }
        };
        // A hook that a function ends in a jump to returns to the function's caller itself.
        let is_jump = site == caller;
        let place = if is_jump {
            arch::jumped_from(stack)
        } else {
            let mut places = (1..SEARCHED).map(|at| stack + at * 8);
            places.find(|&at| word(at) == caller)
        };
        Call {
            function,
            caller,
            stack,
            site,
            slot: match place {
                Some(place) => place - BELOW,
                // The frame is gone: no call's slot.
                None if is_jump => stack + 7,
                None => stack + 8,
            },
            is_known: place.is_some(),
        }
    }

    /// Whether an entry, the innermost one, can be around this call, as far as can be said at once. `outer` is the slot of
    /// the entry around it.
    #[inline]
    fn is_in(&self, entry: &Entry, outer: u64) -> bool {
        if entry.slot == self.slot {
            return self.shares_frame(entry);
        }
        entry.slot > self.slot && !self.has_ended(entry, outer)
    }

    /// Whether an entry with the same slot is that of a function that this one was inlined into, and has not ended.
    #[inline]
    fn shares_frame(&self, entry: &Entry) -> bool {
        if !self.is_known || entry.return_address == 0 {
            return true;
        }
        if entry.return_address != self.caller || entry.frame == self.site {
            return false;
        }
        // It was called from the same place. It is a function of its own if it begins near here, and the other's hook was not
        // called in between.
        let is_own = self.site.wrapping_sub(self.function) < BEGINNING
            && !(self.function <= entry.frame && entry.frame <= self.site);
        !is_own
    }

    /// Whether something else lies where the return address of an entry further up did.
    #[inline]
    fn has_ended(&self, entry: &Entry, outer: u64) -> bool {
        let is_near = entry.slot.wrapping_sub(self.stack) < NEAR;
        if entry.flags & ENTRY_NO_RETURN == 0 || entry.return_address == 0 || !is_near {
            return false;
        }
        let place = entry.slot + BELOW;
        let word = ptr::with_exposed_provenance::<u64>(place as usize);
        // SAFETY: near above the stack pointer, and it was a place on a stack.
        let is_there = unsafe { word.read_volatile() } == entry.return_address;
        !is_there && !lies_above(entry.return_address, place, outer)
    }

    /// How many of the entries have ended without saying so.
    fn stale(&self, entries: &[Entry]) -> usize {
        let cut = sys::Cut::at(self.slot);
        let mut stale = 0;
        for (count, entry) in entries.iter().rev().enumerate() {
            let is_left = entry.slot < self.slot && cut.leaves(entry.slot);
            let is_near = entry.slot.wrapping_sub(self.slot) < NEAR;
            let around = entries.len().checked_sub(count + 2);
            let outer = around.map_or(u64::MAX, |at| entries[at].slot);
            if is_left || is_near && !self.is_in(entry, outer) {
                stale = count + 1;
            } else if !is_near {
                break;
            }
        }
        stale
    }

    /// Its entry.
    fn entry(&self, id: u32, flags: u32, spare: u64) -> Entry {
        Entry {
            frame: self.site,
            return_address: if self.is_known { self.caller } else { 0 },
            slot: self.slot,
            function: operand(id),
            flags: ENTRY_NO_RETURN | flags,
            spare,
        }
    }
}

/// Whether a return address lies a little above a place on the stack, and below that of the call around. What lay at the
/// place may have been left there by an earlier call, in a part of the frame that had not been written yet.
#[cold]
fn lies_above(return_address: u64, place: u64, outer: u64) -> bool {
    let mut words = [0; SEARCHED as usize];
    let count = match outer > place {
        true => ((outer.saturating_add(BELOW) - place) / 8)
            .saturating_sub(1)
            .min(SEARCHED),
        // That call is on another stack.
        false => SEARCHED,
    };
    let words = words.get_mut(..count as usize).unwrap_or_default();
    let found = sys::read_memory(sys::pid(), place + 8, words);
    found.contains(&return_address)
}

/// A function begins. `stack` is the hook's slot, `site` where it returns to.
pub extern "C" fn enter(function: u64, caller: u64, stack: u64, site: u64) {
    // Functions that are not known were loaded later, or are not wanted.
    let Some((id, is_filter)) = find(function).filter(|(id, _)| *id != 0) else {
        return;
    };
    // SAFETY: the block of this thread.
    let block = unsafe { &mut *arch::block() };
    let call = Call::new(function, caller, stack, site);
    if block.busy != 0 {
        enter_meanwhile(block, id, &call, is_filter);
        return;
    }
    block.busy = stack;
    compiler_fence(Ordering::SeqCst);
    if is_filter || !enter_fast(block, id, &call) {
        enter_slow(block, id, &call, is_filter, Other::None);
    }
    compiler_fence(Ordering::SeqCst);
    block.busy = 0;
}

/// Another hook is at work, or was left.
#[cold]
fn enter_meanwhile(block: &mut Block, id: u32, call: &Call, is_filter: bool) {
    let _signals = sys::BlockedSignals::new();
    let Some(arena) = session::arena().filter(|_| !stopped() && block.busy != OWN_WORK) else {
        return;
    };
    if interrupted::other(block, call.stack) == Other::Left {
        enter_slow(block, id, call, is_filter, Other::Left);
        block.busy = 0;
        return;
    }
    // Until it is in the chunk.
    let missed = &arena.header().missed_in_handlers;
    missed.fetch_add(1, Ordering::Relaxed);
    if let Some(record) = thread::record(block, arena) {
        // SAFETY: this thread's record, while signals are blocked.
        if interrupted::begin(block, unsafe { &mut *record }) {
            enter_slow(block, id, call, is_filter, Other::Interrupted);
        }
    }
}

#[inline]
fn enter_fast(block: &mut Block, id: u32, call: &Call) -> bool {
    let Some(arena) = session::arena() else {
        return true;
    };
    // SAFETY: a record, of this thread or the dummy, which has no room; each in its place behind its cursor.
    unsafe {
        let record = block.record;
        let cursor = shadow::cursor(record);
        let top = (*record).top;
        // Without an entry around it this one is the bottom, of which nothing is asked.
        let outer = top.wrapping_sub(1);
        let outer = if (*top).slot == NO_SLOT {
            NO_SLOT
        } else {
            (*outer).slot
        };
        let has_room = (*cursor).next < (*cursor).end && top < (*record).limit;
        let has_room = has_room && call.is_in(&*top, outer);
        if !has_room || id > 0xffff {
            return false;
        }
        let time = now(&arena);
        let delta = time.wrapping_sub((*cursor).time);
        if delta > MAX_DELTA {
            return false;
        }
        top.add(1).write(call.entry(id, 0, 0));
        (*record).top = top.add(1);
        (*cursor).time = time;
        // Read again: a handler may have forked, and this be the child.
        let next = (&raw const (*cursor).next).read_volatile();
        let next = ptr::with_exposed_provenance_mut::<u32>(next as usize);
        next.write_unaligned((delta as u32) << 1 | id << 16);
        (*cursor).next += 4;
    }
    true
}

#[cold]
fn enter_slow(block: &mut Block, id: u32, call: &Call, is_filter: bool, other: Other) {
    let Some(arena) = session::arena().filter(|_| !stopped()) else {
        return;
    };
    let _signals = sys::BlockedSignals::new();
    let Some(record) = thread::record(block, arena) else {
        arena
            .header()
            .missed_no_memory
            .fetch_add(1, Ordering::Relaxed);
        return;
    };
    // SAFETY: this thread's record; signals are blocked.
    let mut writer = unsafe { begin_work(block, record, arena, call.stack, other) };
    let outside = writer.outside();
    let entries = writer.entries();
    let stale = call.stale(entries.get(outside..).unwrap_or_default());
    drop_entries(&mut writer, stale, UnwindCause::Jump);
    let record = writer.record();
    if record.top >= record.limit {
        arena
            .header()
            .missed_no_memory
            .fetch_add(1, Ordering::Relaxed);
        return;
    }
    if !writer.has_room() {
        writer.next_chunk();
    }
    let time = now(&arena);
    writer.write(1, |to| to.entry(time, id));
    let spare = block.gate.saved();
    let mut flags = 0;
    // Other rules are left to readers: these calls are all recorded, and are no reason to hide what they call.
    if is_filter && block.gate.muted <= call.slot {
        flags |= ENTRY_SAVED;
        block.gate.hidden = 0;
        block.gate.level = 0;
    }
    let record = writer.record();
    // SAFETY: below the limit there is room for another entry.
    unsafe {
        record.top = record.top.add(1);
        record.top.write(call.entry(id, flags, spare));
    }
}

/// A function ends.
pub extern "C" fn exit(function: u64, caller: u64, stack: u64, site: u64) {
    let Some((id, _)) = find(function).filter(|(id, _)| *id != 0) else {
        return;
    };
    // SAFETY: the block of this thread.
    let block = unsafe { &mut *arch::block() };
    if shadow::is_dummy(block.record) {
        return;
    }
    let call = Call::new(function, caller, stack, site);
    if block.busy != 0 {
        exit_meanwhile(block, id, &call);
        return;
    }
    block.busy = stack;
    compiler_fence(Ordering::SeqCst);
    // When nothing is recorded any more it does not matter which calls are open: nothing returns through their entries.
    if !exit_fast(block, id, &call) && !stopped() {
        exit_slow(block, id, &call, Other::None);
    }
    compiler_fence(Ordering::SeqCst);
    block.busy = 0;
}

/// Another hook is at work, or was left.
#[cold]
fn exit_meanwhile(block: &mut Block, id: u32, call: &Call) {
    let _signals = sys::BlockedSignals::new();
    if block.busy == OWN_WORK {
        return;
    }
    if interrupted::other(block, call.stack) == Other::Left {
        exit_slow(block, id, call, Other::Left);
        block.busy = 0;
        return;
    }
    let record = block.record;
    // SAFETY: this thread's record, while signals are blocked; no reference to it lives on.
    unsafe {
        // Else its beginning was not recorded.
        if (*record).interrupted.is_active() {
            exit_slow(block, id, call, Other::Interrupted);
            interrupted::end_if_done(&mut *record);
        }
    }
}

#[inline]
fn exit_fast(block: &mut Block, id: u32, call: &Call) -> bool {
    let Some(arena) = session::arena() else {
        return true;
    };
    // SAFETY: as for entries; the top is never below the bottom, which no id fits.
    unsafe {
        let record = block.record;
        let cursor = shadow::cursor(record);
        let top = (*record).top;
        if (*cursor).next >= (*cursor).end
            || (*top).function != operand(id)
            || (*top).flags != ENTRY_NO_RETURN
            || (*top).slot != call.slot
        {
            return false;
        }
        let time = now(&arena);
        let delta = time.wrapping_sub((*cursor).time);
        if delta > MAX_DELTA {
            return false;
        }
        (*record).top = top.sub(1);
        (*cursor).time = time;
        let next = (&raw const (*cursor).next).read_volatile();
        let next = ptr::with_exposed_provenance_mut::<u16>(next as usize);
        next.write_unaligned((delta as u16) << 1 | 1);
        (*cursor).next += 2;
    }
    true
}

#[cold]
fn exit_slow(block: &mut Block, id: u32, call: &Call, other: Other) {
    let Some(arena) = session::arena() else {
        return;
    };
    let _signals = sys::BlockedSignals::new();
    let Some(record) = thread::record(block, arena) else {
        return;
    };
    // SAFETY: this thread's record; signals are blocked.
    let mut writer = unsafe { begin_work(block, record, arena, call.stack, other) };
    let outside = writer.outside();
    let entries = writer.entries();
    // What was entered before tracing began, or bypassed, is not there.
    let is_it = |entry: &Entry| entry.flags & ENTRY_NO_RETURN != 0 && entry.id() == id;
    let is_here = |entry: &Entry| is_it(entry) && entry.slot == call.slot;
    let at = entries.iter().rposition(is_here);
    let at = at.or_else(|| entries.iter().rposition(is_it));
    let Some(at) = at.filter(|at| *at >= outside) else {
        return;
    };
    let Some(entry) = entries.get(at).copied() else {
        return;
    };
    let is_open = entry.is_open();
    let above = entries.len() - at - 1;
    drop_entries(&mut writer, above, UnwindCause::Jump);
    block.gate.leave(&[entry]);
    if is_open && !stopped() {
        if !writer.has_room() {
            writer.next_chunk();
        }
        let time = now(&arena);
        writer.write(1, |to| to.exit(time));
    }
    let record = writer.record();
    // SAFETY: the entry that was found.
    record.top = unsafe { record.top.sub(1) };
}
