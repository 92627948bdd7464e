//! The short path through the compiler-made hooks: calls of functions that are recorded unconditionally, inside calls
//! that have not ended. All other calls, and all that are in doubt, take the long path, which begins anew.
//!
//! This path passes nothing on in memory and calls no function, which makes it short.

use super::call::{BELOW, HookCall, SEARCHED};
use super::table::TableCell;
use crate::chunks;
use crate::session;
use crate::shadow::{self, ThreadBlock};
use core::ops::RangeInclusive;
use core::ptr;
use core::sync::atomic::{Ordering, compiler_fence};
use dioptra_tracelayout::message::thread::{
    ENTRY_CHOSEN, ENTRY_JUDGED, ENTRY_MUTE, ENTRY_NO_RETURN, ENTRY_SAVED, ENTRY_SILENT,
    ENTRY_UNWOUND, operand,
};
use dioptra_tracelayout::record::MAX_DELTA;

/// The ids that fit the short form of records. Functions whose calls are not recorded have the id 0.
const IDS: RangeInclusive<u32> = 1..=0xffff;

/// Returns the slot of a call whose return address lies in the part of the stack that hooks search.
#[inline(always)]
fn slot(caller: u64, stack: u64) -> Option<u64> {
    let mut place = stack + 8;
    while place < stack + SEARCHED * 8 {
        // SAFETY: from the stack pointer up to the return address, which was found there, the memory is the
        // function's frame.
        let word = unsafe { ptr::with_exposed_provenance::<u64>(place as usize).read_volatile() };
        if word == caller {
            return Some(place - BELOW);
        }
        place += 8;
    }
    None
}

/// Records the beginning of a call. Returns false, having done nothing, if the call must take the long path.
#[inline(always)]
pub fn begin(
    block: &mut ThreadBlock,
    place: &TableCell,
    caller: u64,
    stack: u64,
    site: u64,
) -> bool {
    let id = place.id();
    if block.busy != 0 || site == caller || !IDS.contains(&id) {
        return false;
    }
    let (Some(slot), Some(arena)) = (slot(caller, stack), session::arena()) else {
        return false;
    };
    let stamps = chunks::Stamps::of(&arena);
    block.busy = stack;
    compiler_fence(Ordering::SeqCst);
    // SAFETY: a record, of this thread or the dummy, which has no room; each in its place behind its cursor.
    let is_done = unsafe {
        let record = block.record;
        let cursor = shadow::cursor(record);
        let top = (*record).top;
        let fits = top < (*record).limit && (*cursor).next < (*cursor).end;
        if fits
            && (*top).slot > slot
            && HookCall::is_open(&*top, stack)
            && let Some(stamps) = stamps
        {
            let time = stamps.now();
            let delta = time.wrapping_sub((*cursor).time);
            if delta <= MAX_DELTA {
                let entry = top.add(1);
                entry.write(HookCall::at(site, stack, slot, caller).entry(id, 0, 0));
                (*record).top = entry;
                (*cursor).time = time;
                // Read again: a handler may have forked, and this may be the child.
                let next = (&raw const (*cursor).next).read_volatile();
                let to = ptr::with_exposed_provenance_mut::<u32>(next as usize);
                to.write_unaligned((delta as u32) << 1 | id << 16);
                (*cursor).next += 4;
                true
            } else {
                false
            }
        } else {
            false
        }
    };
    compiler_fence(Ordering::SeqCst);
    block.busy = 0;
    is_done
}

/// Records the end of a call. Returns false, having done nothing, if the call must take the long path.
#[inline(always)]
pub fn end(block: &mut ThreadBlock, place: &TableCell, caller: u64, stack: u64, site: u64) -> bool {
    let id = place.id();
    if block.busy != 0 || site == caller || !IDS.contains(&id) {
        return false;
    }
    let (Some(slot), Some(arena)) = (slot(caller, stack), session::arena()) else {
        return false;
    };
    let stamps = chunks::Stamps::of(&arena);
    block.busy = stack;
    compiler_fence(Ordering::SeqCst);
    // SAFETY: as for beginnings; the top is never below the bottom, which no id fits.
    let is_done = unsafe {
        const OTHERS: u32 = ENTRY_UNWOUND
            | ENTRY_JUDGED
            | ENTRY_MUTE
            | ENTRY_SILENT
            | ENTRY_SAVED
            | ENTRY_CHOSEN
            | ENTRY_NO_RETURN;
        let record = block.record;
        let cursor = shadow::cursor(record);
        let top = (*record).top;
        let is_same = (*top).function == operand(id)
            && (*top).slot == slot
            && (*top).flags & OTHERS == ENTRY_NO_RETURN;
        if is_same
            && (*cursor).next < (*cursor).end
            && let Some(stamps) = stamps
        {
            let time = stamps.now();
            let delta = time.wrapping_sub((*cursor).time);
            if delta <= MAX_DELTA {
                (*record).top = top.sub(1);
                (*cursor).time = time;
                let next = (&raw const (*cursor).next).read_volatile();
                let to = ptr::with_exposed_provenance_mut::<u16>(next as usize);
                to.write_unaligned((delta as u16) << 1 | 1);
                (*cursor).next += 2;
                true
            } else {
                false
            }
        } else {
            false
        }
    };
    compiler_fence(Ordering::SeqCst);
    block.busy = 0;
    is_done
}
