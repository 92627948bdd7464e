//! Hooks for programs compiled with `-finstrument-functions`, whose functions report their own beginnings and ends.
//!
//! Return addresses stay where they are. The calls are on the shadow stack all the same, so that the runtime notices
//! calls that a jump leaves, and other traced calls nest right. Functions that the compiler has inlined call hooks,
//! too: several calls may share a frame.
//!
//! Functions that an exception leaves do not report their ends if clang has compiled them (gcc's do), and the next
//! call may lie deeper on the stack than they did. So an entry keeps the slot of the call's return address, the
//! function, and the address from which its hook was called. A call is over when its slot holds something else, or
//! when another call has the slot. One case is noticed late: the next call is of a function with a frame larger than
//! the searched part of the stack.
//!
//! These hooks hide, count and take back the same calls as generated hooks. Calls that are left out are not on the
//! shadow stack, unless they share a frame with a recorded one: functions report their ends, and it must be clear
//! which one does. In that case the innermost call of the frame hides the calls below it, if anything is hidden.

mod call;
mod exit;
mod plain;
mod table;

use crate::arch;
use crate::chunks::{now, stopped};
use crate::interrupted::{self, BusyHook};
use crate::sampling::{self, CountChoice};
use crate::session::{self, MappedArena};
use crate::shadow::{self, OWN_WORK, ShadowEntry, StackGate, ThreadBlock};
use crate::slow::{begin_work, change_gate, drop_entries};
use crate::values::Values;
use crate::{confined, judged, parked, socket, sys, thread};
use call::HookCall;
use core::ptr;
use core::sync::atomic::{Ordering, compiler_fence};
use dioptra_tracelayout::message::InstrumentedFunction;
use dioptra_tracelayout::message::thread::{
    ENTRY_CHOSEN, ENTRY_JUDGED, ENTRY_MUTE, ENTRY_POSITION, ENTRY_SAVED, ENTRY_SILENT, NO_SLOT,
    OUTSIDE, kind,
};
use dioptra_tracelayout::record::{ENTRY_ESCAPE, MAX_DELTA, TIME_ESCAPE, UnwindCause};
pub use exit::exit;
pub use table::learn;
use table::{TableCell, find_place};

/// The treatment of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CallTreatment {
    /// The call is recorded. The bits of [`kind`] say how it affects the calls below it.
    Recorded(u64),
    /// Neither the call nor the calls below it are recorded.
    Muted,
    /// The call is not recorded.
    Hidden,
}

/// Returns the address below which calls of a kind are hidden; 0 if nothing hides them.
#[inline]
fn hidden_below(gate: &StackGate, kind: u64) -> u64 {
    match kind & (kind::MUTE | kind::FILTER) {
        _ if kind & kind::GATED == 0 => 0,
        0 => gate.hidden,
        _ => gate.muted,
    }
}

/// Returns the flags of a call's entry.
#[inline]
fn flags(fate: CallTreatment, slot: u32) -> u32 {
    let CallTreatment::Recorded(kind) = fate else {
        return match fate {
            CallTreatment::Muted => ENTRY_MUTE | ENTRY_SAVED,
            _ => ENTRY_SILENT,
        };
    };
    let mut flags = 0;
    if kind & (kind::FILTER | kind::LEVELS) != 0 {
        flags |= ENTRY_SAVED;
    }
    if kind & (kind::CHOSEN | kind::JUDGED) != 0 {
        flags |= ENTRY_CHOSEN | slot << 8;
    }
    if kind & kind::JUDGED != 0 {
        flags |= ENTRY_JUDGED;
    }
    flags
}

/// Changes the gate for the calls below a call.
#[inline]
fn change(gate: &mut StackGate, fate: CallTreatment, call: &HookCall, arena: &MappedArena) {
    let header = arena.header();
    let hides_all = match fate {
        CallTreatment::Recorded(kind) if kind & (kind::FILTER | kind::LEVELS) != 0 => {
            change_gate(gate, kind, call.slot, header.levels);
            // A filter lets calls in at any level.
            gate.hidden == call.slot && header.hidden == 0 && header.mutes == 0
        }
        CallTreatment::Muted => {
            change_gate(gate, kind::MUTE, call.slot, 0);
            true
        }
        _ => false,
    };
    if hides_all && call.is_known {
        gate.quiet = call.stack;
        gate.quieter = call.function;
    }
}

/// Returns true if a hook's call is known at once to be hidden together with the calls below it. The function that
/// hides it may have moved its stack pointer: its own hooks must not be taken for other functions'.
#[inline]
fn is_quiet(block: &ThreadBlock, stack: u64) -> bool {
    // SAFETY: the record of this thread, whose shadow stack has such a call.
    stack < block.gate.quiet && unsafe { HookCall::is_below(&*(*block.record).top, stack) }
}

/// Handles the beginning of a function. `stack` is the hook's slot, `site` the address to which the hook returns.
pub extern "C" fn enter(function: u64, caller: u64, stack: u64, site: u64) {
    // SAFETY: the block of this thread.
    let block = unsafe { &mut *arch::block() };
    if is_quiet(block, stack) {
        return;
    }
    // Unknown functions were loaded later, or their calls are not recorded.
    let Some(place) = find_place(function) else {
        return;
    };
    match place.kind() {
        0 => begin_plain(block, place, caller, stack, site),
        kind if hidden_below(&block.gate, kind) == OUTSIDE => {}
        _ => begin(block, place, caller, stack, site),
    }
}

#[inline(never)]
fn begin_plain(block: &mut ThreadBlock, place: &TableCell, caller: u64, stack: u64, site: u64) {
    if !plain::begin(block, place, caller, stack, site) {
        begin(block, place, caller, stack, site);
    }
}

#[inline(never)]
fn begin(block: &mut ThreadBlock, place: &TableCell, caller: u64, stack: u64, site: u64) {
    let Some(known) = place.load() else {
        return;
    };
    let call = HookCall::new(known.address, caller, stack, site, 0);
    if block.busy != 0 {
        enter_meanwhile(block, &known, &call);
        return;
    }
    block.busy = stack;
    compiler_fence(Ordering::SeqCst);
    if !enter_fast(block, &known, &call) {
        enter_slow(block, &known, &call, BusyHook::None);
    }
    compiler_fence(Ordering::SeqCst);
    block.busy = 0;
}

/// Handles a beginning while another hook is at work, or after another hook was left.
#[cold]
fn enter_meanwhile(block: &mut ThreadBlock, function: &InstrumentedFunction, call: &HookCall) {
    if confined::is_quiet() {
        return;
    }
    let _signals = sys::BlockedSignals::new();
    if block.busy == OWN_WORK {
        socket::count_missed();
        return;
    }
    let Some(arena) = session::arena().filter(|_| !stopped()) else {
        return;
    };
    if interrupted::other(block, call.stack) == BusyHook::Left {
        enter_slow(block, function, call, BusyHook::Left);
        block.busy = 0;
        return;
    }
    let header = arena.header();
    header.handler_calls.fetch_add(1, Ordering::Relaxed);
    let Some(record) = thread::record(block, arena) else {
        return;
    };
    // SAFETY: this thread's record, while signals are blocked; no reference to it lives on.
    unsafe {
        if !interrupted::begin(block, &mut *record) {
            return;
        }
        let before = (*record).interrupted.kept();
        enter_slow(block, function, call, BusyHook::Interrupted);
        if (*record).interrupted.kept() == before {
            // The call is hidden.
            header.handler_calls_done.fetch_add(1, Ordering::Relaxed);
        }
        interrupted::end_if_done(&mut *record);
    }
}

/// Handles a beginning without blocking signals. Returns false, having done nothing, if more must be done.
#[inline]
fn enter_fast(block: &mut ThreadBlock, function: &InstrumentedFunction, call: &HookCall) -> bool {
    let Some(arena) = session::arena() else {
        return true;
    };
    let kind = u64::from(function.kind);
    let below = hidden_below(&block.gate, kind);
    // SAFETY: a record, of this thread or the dummy, which has no room; each in its place behind its cursor.
    unsafe {
        let record = block.record;
        let cursor = shadow::cursor(record);
        let top = (*record).top;
        // Without an entry around it, `top` is the floor, whose outer entry is not examined.
        let outer = top.wrapping_sub(1);
        let outer = if (*top).slot == NO_SLOT {
            NO_SLOT
        } else {
            (*outer).slot
        };
        if top >= (*record).limit || !call.is_in(&*top, outer) {
            return false;
        }
        let has_room = (*cursor).next < (*cursor).end;
        let fate = match kind {
            // The innermost call hides the calls below it.
            _ if below != 0 => CallTreatment::Hidden,
            _ if kind & kind::MUTE != 0 => CallTreatment::Muted,
            _ if kind & kind::JUDGED != 0 => return false,
            _ if kind & kind::COUNTED != 0 => match count(block, function, &arena, has_room) {
                Some(fate) => fate,
                None => return false,
            },
            _ => CallTreatment::Recorded(kind),
        };
        let is_recorded = matches!(fate, CallTreatment::Recorded(_));
        if fate == CallTreatment::Hidden && (*top).slot != call.slot {
            return true;
        }
        if is_recorded && !has_room {
            return false;
        }
        let mut time = 0;
        if is_recorded {
            time = now(&arena);
        }
        let entry = top.add(1);
        entry.write(call.entry(function.id, flags(fate, function.slot), block.gate.saved()));
        (*record).top = entry;
        change(&mut block.gate, fate, call, &arena);
        let CallTreatment::Recorded(kind) = fate else {
            return true;
        };
        if kind & kind::CHOSEN != 0 {
            sampling::begin(&mut *record, function.slot);
        }
        let delta = begin_record(cursor, time);
        // Read again: a handler may have forked, and this may be the child.
        let next = (&raw const (*cursor).next).read_volatile();
        let to = ptr::with_exposed_provenance_mut::<u8>(next as usize);
        if function.id <= 0xffff {
            let word = u32::from(delta) << 1 | function.id << 16;
            to.cast::<u32>().write_unaligned(word);
            (*cursor).next += 4;
            if kind & kind::TIMED != 0 {
                (*entry).flags |= ((next + 4) as u32) << 8;
            }
        } else {
            // Not worth the trouble for large ids: the call is never taken back.
            to.add(4).cast::<u16>().write_unaligned(delta);
            to.add(6).cast::<u32>().write_unaligned(function.id);
            compiler_fence(Ordering::SeqCst);
            to.cast::<u32>().write_unaligned(ENTRY_ESCAPE);
            (*cursor).next += 10;
        }
    }
    true
}

/// Returns the delta of the record that follows, and writes a time escape first if the delta is too large.
///
/// # Safety
/// The cursor is this thread's, and has room.
#[inline]
unsafe fn begin_record(cursor: *mut shadow::ChunkCursor, time: u64) -> u16 {
    // SAFETY: the caller's promise; behind the address at which hooks stop there is a margin.
    unsafe {
        let delta = time.wrapping_sub((*cursor).time);
        (*cursor).time = time;
        if delta <= MAX_DELTA {
            return delta as u16;
        }
        let next = (&raw const (*cursor).next).read_volatile();
        let to = ptr::with_exposed_provenance_mut::<u8>(next as usize);
        to.add(4).cast::<u64>().write_unaligned(time);
        compiler_fence(Ordering::SeqCst);
        to.cast::<u32>().write_unaligned(TIME_ESCAPE);
        (*cursor).next += 12;
    }
    0
}

/// Counts a call. Returns `None` if the slow path must count it.
///
/// # Safety
/// The block is this thread's.
#[inline]
unsafe fn count(
    block: &ThreadBlock,
    function: &InstrumentedFunction,
    arena: &MappedArena,
    has_room: bool,
) -> Option<CallTreatment> {
    let is_tree = u64::from(function.kind) & kind::FILTER != 0;
    let counted = {
        // SAFETY: the caller's promise.
        unsafe { sampling::count_fast(block.record, function, arena, is_tree, has_room)? }
    };
    Some(fate_of(counted, function))
}

/// Returns the treatment of a call that was counted.
#[inline]
fn fate_of(counted: CountChoice, function: &InstrumentedFunction) -> CallTreatment {
    let kind = u64::from(function.kind) & !kind::COUNTED;
    match (counted, kind & kind::FILTER != 0) {
        (CountChoice::Chosen, true) => CallTreatment::Recorded(kind | kind::CHOSEN),
        (CountChoice::Chosen, false) => CallTreatment::Recorded(kind),
        (CountChoice::Skipped, true) => CallTreatment::Muted,
        (CountChoice::Skipped, false) => CallTreatment::Hidden,
    }
}

#[cold]
fn enter_slow(
    block: &mut ThreadBlock,
    function: &InstrumentedFunction,
    call: &HookCall,
    other: BusyHook,
) {
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
    let entries = entries.get(outside..).unwrap_or_default();
    let stale = call.stale(entries);
    let around = entries.len().checked_sub(stale + 1);
    let around = around.and_then(|at| entries.get(at)).copied();
    drop_entries(&mut writer, stale, UnwindCause::Jump);
    let kind = u64::from(function.kind);
    let is_hidden = hidden_below(&block.gate, kind) != 0;
    let own = writer.record();
    // SAFETY: this thread's record.
    let is_full = own.top >= own.limit && unsafe { !parked::make_room(own) };
    let shares = around.is_some_and(|entry: ShadowEntry| entry.slot == call.slot);
    if is_full {
        if !is_hidden {
            arena
                .header()
                .missed_no_memory
                .fetch_add(1, Ordering::Relaxed);
        }
        return;
    }
    let mut judged = None;
    let fate = if is_hidden {
        CallTreatment::Hidden
    } else if kind & kind::MUTE != 0 {
        CallTreatment::Muted
    } else if kind & kind::COUNTED != 0 {
        let is_tree = kind & kind::FILTER != 0;
        let counted = sampling::count(&mut writer, &arena, function.slot, is_tree);
        fate_of(counted, function)
    } else if kind & kind::JUDGED != 0 {
        judged = judged::place(&mut writer, &arena, function.slot);
        // Calls within a judged execution belong to it.
        let within = if judged.is_none() { kind::JUDGED } else { 0 };
        CallTreatment::Recorded(kind & !within)
    } else {
        CallTreatment::Recorded(kind)
    };
    if fate == CallTreatment::Hidden && !shares {
        return;
    }
    let entry = call.entry(function.id, flags(fate, function.slot), block.gate.saved());
    change(&mut block.gate, fate, call, &arena);
    if let CallTreatment::Recorded(kind) = fate {
        if kind & kind::CHOSEN != 0 {
            sampling::begin(writer.record(), function.slot);
        }
        // A chunk's header lists the calls that were open before, so the chunk is taken before the call is pushed.
        if !writer.has_room() {
            writer.next_chunk();
        }
        let time = now(&arena);
        match judged {
            Some(judged) => judged::begin(
                &mut writer,
                judged,
                call.slot,
                (time, function.id),
                &Values::NONE,
            ),
            None => {
                writer.write(1, |to| to.entry(time, function.id));
            }
        }
    }
    let record = writer.record();
    // SAFETY: below the limit there is room for another entry.
    unsafe {
        record.top = record.top.add(1);
        record.top.write(entry);
        if entry.flags & (ENTRY_CHOSEN | ENTRY_MUTE | ENTRY_SILENT) == 0 {
            // The record may have been written elsewhere, so it is not taken back.
            (*record.top).flags |= ENTRY_POSITION;
        }
    }
}
