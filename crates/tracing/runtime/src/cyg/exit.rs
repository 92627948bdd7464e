//! Ends of functions that report them.

use super::call::HookCall;
use super::table::{TableCell, find_place};
use super::{begin_record, is_quiet, plain};
use crate::arch;
use crate::chunks::{now, stopped};
use crate::interrupted::{self, BusyHook};
use crate::sampling;
use crate::session;
use crate::shadow::{self, OWN_WORK, ShadowEntry, ThreadBlock};
use crate::slow::{begin_work, drop_entries};
use crate::values::Values;
use crate::{confined, judged, parked, sys, thread};
use core::sync::atomic::{Ordering, compiler_fence};
use core::{ptr, slice};
use dioptra_tracelayout::message::InstrumentedFunction;
use dioptra_tracelayout::message::thread::{
    ENTRY_CHOSEN, ENTRY_JUDGED, ENTRY_MUTE, ENTRY_NO_RETURN, ENTRY_POSITION, ENTRY_SAVED,
    ENTRY_SILENT, ENTRY_UNWOUND, OUTSIDE, kind, operand,
};
use dioptra_tracelayout::record::UnwindCause;

/// Handles the end of a function. `frame` is the frame pointer, if the function has one.
pub extern "C" fn exit(function: u64, caller: u64, stack: u64, site: u64, frame: u64) {
    // SAFETY: the block of this thread.
    let block = unsafe { &mut *arch::block() };
    // Outside of filters no call is open.
    let is_left_out =
        block.gate.hidden == OUTSIDE || block.gate.quieter != function && is_quiet(block, stack);
    if is_left_out {
        return;
    }
    let Some(place) = find_place(function) else {
        return;
    };
    match place.kind() {
        0 => end_plain(block, place, caller, stack, site, frame),
        _ => end(block, place, caller, stack, site, frame),
    }
}

#[inline(never)]
fn end_plain(
    block: &mut ThreadBlock,
    place: &TableCell,
    caller: u64,
    stack: u64,
    site: u64,
    frame: u64,
) {
    if !plain::end(block, place, caller, stack, site) {
        end(block, place, caller, stack, site, frame);
    }
}

#[inline(never)]
fn end(block: &mut ThreadBlock, place: &TableCell, caller: u64, stack: u64, site: u64, frame: u64) {
    let Some(known) = place.load() else {
        return;
    };
    if shadow::is_dummy(block.record) {
        return;
    }
    let call = HookCall::new(known.address, caller, stack, site, frame);
    if block.busy != 0 {
        exit_meanwhile(block, &known, &call);
        return;
    }
    block.busy = stack;
    compiler_fence(Ordering::SeqCst);
    // When nothing is recorded any more, the open calls do not matter: nothing returns through their entries.
    if !exit_fast(block, &known, &call) && !stopped() {
        exit_slow(block, &known, &call, BusyHook::None);
    }
    compiler_fence(Ordering::SeqCst);
    block.busy = 0;
}

/// Handles an end while another hook is at work, or after another hook was left.
#[cold]
fn exit_meanwhile(block: &mut ThreadBlock, function: &InstrumentedFunction, call: &HookCall) {
    if confined::is_quiet() {
        // A hook that was interrupted on another stack must find everything as it was.
        return;
    }
    let _signals = sys::BlockedSignals::new();
    if block.busy == OWN_WORK {
        return;
    }
    if interrupted::other(block, call.stack) == BusyHook::Left {
        exit_slow(block, function, call, BusyHook::Left);
        block.busy = 0;
        return;
    }
    let record = block.record;
    // SAFETY: this thread's record, while signals are blocked; no reference to it lives on.
    unsafe {
        // Otherwise the call's beginning was not recorded.
        if (*record).interrupted.is_active() {
            exit_slow(block, function, call, BusyHook::Interrupted);
            interrupted::end_if_done(&mut *record);
        }
    }
}

/// Returns true if calls of a function may have been left out, so that a call that ends may have no entry.
#[inline]
fn leaves_out(function: &InstrumentedFunction) -> bool {
    u64::from(function.kind) & (kind::GATED | kind::COUNTED) != 0
}

#[inline]
fn exit_fast(block: &mut ThreadBlock, function: &InstrumentedFunction, call: &HookCall) -> bool {
    let Some(arena) = session::arena() else {
        return true;
    };
    // SAFETY: as for entries; the top is never below the bottom, which no id fits.
    unsafe {
        let record = block.record;
        let cursor = shadow::cursor(record);
        let top = (*record).top;
        // Not a copy: the entry was written a moment ago in other pieces, and a wide load would wait for them.
        let entry = &*top;
        let is_same = entry.function == operand(function.id) && entry.flags & ENTRY_NO_RETURN != 0;
        if !is_same || entry.slot != call.slot {
            // No call further down is open: this one was left out.
            let may_be = is_same && (call.is_of(entry) || call.may_be_of(entry));
            return leaves_out(function) && entry.slot > call.slot && !may_be;
        }
        if entry.flags & (ENTRY_UNWOUND | ENTRY_JUDGED) != 0 {
            return false;
        }
        let is_recorded = entry.flags & (ENTRY_MUTE | ENTRY_SILENT) == 0;
        if is_recorded && (*cursor).next >= (*cursor).end {
            return false;
        }
        if entry.flags & ENTRY_SAVED != 0 {
            block.gate.leave(slice::from_ref(entry));
        }
        if entry.flags & ENTRY_CHOSEN != 0 {
            sampling::leave(record, slice::from_ref(entry));
        }
        let mut time = 0;
        if is_recorded {
            time = now(&arena);
        }
        (*record).top = top.sub(1);
        if !is_recorded {
            return true;
        }
        if u64::from(function.kind) & kind::TIMED != 0 {
            // Tests whether the entry's record is the last one.
            let next = (&raw const (*cursor).next).read_volatile();
            let at_least = arena.header().at_least.load(Ordering::Relaxed);
            let is_last = (entry.flags ^ (next as u32) << 8) & ENTRY_POSITION == 0;
            if is_last && time.wrapping_sub((*cursor).time) < at_least {
                let to = ptr::with_exposed_provenance_mut::<u32>(next as usize - 4);
                let delta = to.read_unaligned() as u16 >> 1;
                (*cursor).time -= u64::from(delta);
                to.write_unaligned(0);
                (*cursor).next -= 4;
                return true;
            }
        }
        let delta = begin_record(cursor, time);
        let next = (&raw const (*cursor).next).read_volatile();
        let to = ptr::with_exposed_provenance_mut::<u16>(next as usize);
        to.write_unaligned(delta << 1 | 1);
        (*cursor).next += 2;
    }
    true
}

#[cold]
fn exit_slow(
    block: &mut ThreadBlock,
    function: &InstrumentedFunction,
    call: &HookCall,
    other: BusyHook,
) {
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
    // Calls that began before tracing, or that bypassed the hook, have no entry.
    let is_it =
        |entry: &ShadowEntry| entry.flags & ENTRY_NO_RETURN != 0 && entry.id() == function.id;
    let is_here = |entry: &ShadowEntry| is_it(entry) && call.is_of(entry);
    let may_be =
        |entry: &ShadowEntry| is_it(entry) && (!leaves_out(function) || call.may_be_of(entry));
    let at = entries.iter().rposition(is_here);
    let at = at.or_else(|| entries.iter().rposition(may_be));
    let Some(at) = at.filter(|at| *at >= outside) else {
        if leaves_out(function) {
            // The calls below it have ended with it.
            let cut = sys::Cut::at(call.slot);
            let within = entries.get(outside..).unwrap_or_default().iter().rev();
            let within = within.take_while(|entry| cut.leaves(entry.slot)).count();
            drop_entries(&mut writer, within, UnwindCause::Jump);
        }
        return;
    };
    let Some(entry) = entries.get(at).copied() else {
        return;
    };
    let is_open = entry.is_open();
    let above = entries.len() - at - 1;
    drop_entries(&mut writer, above, UnwindCause::Jump);
    block.gate.leave(&[entry]);
    if is_open && !stopped() && !judged::end(&mut writer, &arena, &entry, &Values::NONE) {
        if !writer.has_room() {
            writer.next_chunk();
        }
        let time = now(&arena);
        writer.write(1, |to| to.exit(time));
    }
    // SAFETY: this thread's record, and the entry that was found.
    unsafe {
        sampling::leave(writer.record(), &[entry]);
        let record = writer.record();
        parked::remove(record, record.floor.add(1 + at));
        parked::renew_if_wasteful(record);
    }
}
