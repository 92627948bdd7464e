//! The slow path: the part of a call's entry and exit that generated hooks leave to Rust.

use crate::arch::{self, EnterFrame, ExitFrame};
use crate::chunks::{RecordWriter, now, stopped};
use crate::interrupted::{self, BusyHook};
use crate::parked::{self, FoundCall};
use crate::sampling::{self, CountChoice};
use crate::session::{self, MappedArena};
use crate::shadow::{self, Caller, ShadowEntry, StackGate, ThreadBlock, ThreadRecord};
use crate::values::{self, Values};
use crate::{confined, judged, socket, switch, sys, thread};
use core::ops::Range;
use core::sync::atomic::{Ordering, compiler_fence};
use core::{ptr, slice};
use dioptra_tracelayout::Encoder;
use dioptra_tracelayout::message::thread::{self as layout, kind};
use dioptra_tracelayout::record::UnwindCause;

/// Goes on for the hook of an entry. Returns the frame pointer with which the function runs if the call is on the
/// shadow stack. Returns 0 if the call goes on elsewhere: in the function's body, as if there had been no hook, or
/// in another thunk. Then that address replaces the function id in `frame`. The call's vector registers are saved at
/// `vectors`.
pub extern "C" fn enter(frame: &mut EnterFrame, vectors: *const u8) -> u64 {
    // SAFETY: the block of this thread.
    let block = unsafe { &mut *arch::block() };
    let slot = frame.slot();
    if block.busy == shadow::OWN_WORK {
        socket::count_missed();
        return bypass(frame);
    }
    let _signals = sys::BlockedSignals::new();
    let other = interrupted::other(block, slot);
    let way = if other == BusyHook::Interrupted {
        enter_in_handler(block, (frame, vectors), slot)
    } else {
        let way = enter_here(block, (frame, vectors), slot, other);
        block.busy = 0;
        way
    };
    match way {
        EntryPath::On => {
            // SAFETY: this thread's record, whose innermost entry is the call's.
            let entry = unsafe { (*block.record).top };
            (entry.addr() as u64).wrapping_add_signed(layout::ENTRY_FRAME)
        }
        EntryPath::Body => bypass(frame),
        EntryPath::Thunk(distance) => {
            frame.function = frame.thunk.wrapping_add_signed(distance);
            0
        }
    }
}

/// Handles a call of a signal handler that has interrupted a hook.
fn enter_in_handler(
    block: &mut ThreadBlock,
    frame: (&EnterFrame, *const u8),
    slot: u64,
) -> EntryPath {
    let Some(arena) = session::arena().filter(|_| !stopped()) else {
        return EntryPath::Body;
    };
    let header = arena.header();
    header.handler_calls.fetch_add(1, Ordering::Relaxed);
    let Some(record) = thread::record(block, arena) else {
        return EntryPath::Body;
    };
    // SAFETY: this thread's record, while signals are blocked; no reference to it lives on.
    unsafe {
        if !interrupted::begin(block, &mut *record) {
            return EntryPath::Body;
        }
        let before = (*record).interrupted.kept();
        let way = enter_here(block, frame, slot, BusyHook::Interrupted);
        if (*record).interrupted.kept() == before {
            // The call is hidden.
            header.handler_calls_done.fetch_add(1, Ordering::Relaxed);
        }
        if way != EntryPath::On {
            interrupted::end_if_done(&mut *record);
        }
        way
    }
}

fn bypass(frame: &mut EnterFrame) -> u64 {
    // SAFETY: the hook has passed the address to which it returns in the thunk.
    frame.function = unsafe { arch::body(frame.thunk) };
    0
}

/// The place at which a call goes on after its hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EntryPath {
    /// The code that follows the hook: the call is on the shadow stack.
    On,
    /// The function's body, as if there had been no hook.
    Body,
    /// Another thunk, at this offset from the address to which the hook returns.
    Thunk(i64),
}

fn enter_here(
    block: &mut ThreadBlock,
    (frame, vectors): (&EnterFrame, *const u8),
    slot: u64,
    other: BusyHook,
) -> EntryPath {
    let Some(arena) = session::arena() else {
        return EntryPath::Body;
    };
    if stopped() {
        return EntryPath::Body;
    }
    let Some(record) = thread::record(block, arena) else {
        arena
            .header()
            .missed_no_memory
            .fetch_add(1, Ordering::Relaxed);
        return EntryPath::Body;
    };
    // SAFETY: this thread's record; signals are blocked.
    let mut writer = unsafe { begin_work(block, record, arena, slot, other) };
    let tail = drop_stale(&mut writer, slot, frame.return_address);
    // SAFETY: this thread's record.
    unsafe { parked::renew_if_wasteful(record) };
    let kind = hook_kind(frame);
    if is_hidden(&block.gate, kind, slot, tail) {
        return EntryPath::Body;
    }
    let record = writer.record();
    // SAFETY: this thread's record.
    if record.top >= record.limit && unsafe { !parked::make_room(record) } {
        arena
            .header()
            .missed_no_memory
            .fetch_add(1, Ordering::Relaxed);
        return EntryPath::Body;
    }
    if kind & kind::COUNTED != 0 {
        let tree = kind & kind::FILTER != 0;
        // The thunk's hook does the rest, because it reads the clock last.
        return match sampling::count(&mut writer, &arena, sampling_slot(frame), tree) {
            CountChoice::Chosen => EntryPath::Thunk(layout::COUNTED_TO_CHOSEN),
            CountChoice::Skipped if tree => EntryPath::Thunk(layout::COUNTED_TO_MUTED),
            CountChoice::Skipped => EntryPath::Body,
        };
    }
    let mut flags = flags(kind, arena.header().levels);
    let mut judged = None;
    if kind & kind::CHOSEN != 0 {
        let number = sampling_slot(frame);
        sampling::begin(writer.record(), number);
        flags |= layout::ENTRY_CHOSEN | number << 8;
    } else if kind & kind::JUDGED != 0 {
        let number = sampling_slot(frame);
        judged = judged::place(&mut writer, &arena, number);
        if judged.is_some() {
            let chosen = layout::ENTRY_CHOSEN | layout::ENTRY_JUDGED;
            flags = flags & !layout::ENTRY_POSITION | chosen | number << 8;
        }
    }
    if tail {
        flags |= layout::ENTRY_TAIL;
    }
    let function = frame.function as u32;
    let entry = ShadowEntry {
        frame: frame.frame_pointer(),
        return_address: frame.return_address,
        slot,
        function,
        flags,
        spare: block.gate.saved(),
    };
    let id = entry.id();
    change_gate(&mut block.gate, kind, slot, arena.header().levels);
    if kind & kind::MUTE == 0 {
        let values = match kind & kind::ARGUMENTS {
            // SAFETY: the numbers follow the thunk of every hook with such a duty.
            1.. if writer.takes_values() => unsafe { values::arguments(frame, vectors) },
            _ => Values::NONE,
        };
        // A chunk's header lists the calls that were open before, so the chunk is taken before the call is pushed.
        if !writer.has_room_for(values.size()) {
            writer.next_chunk();
        }
        let time = now(&arena);
        match judged {
            Some(judged) => judged::begin(&mut writer, judged, slot, (time, id), &values),
            None => {
                writer.write(1, |to| {
                    to.entry(time, id)?;
                    values.write(to, Encoder::arguments)
                });
            }
        }
    }
    let record = writer.record();
    // SAFETY: below the limit there is room for another entry.
    unsafe {
        record.top = record.top.add(1);
        record.top.write(entry);
    }
    EntryPath::On
}

/// Returns the duties of the hook that gave up: the word in front of the hook, which the thunk has called.
fn hook_kind(frame: &EnterFrame) -> u64 {
    // SAFETY: the hook has passed the address to which it returns, and the word is in front of the hook.
    unsafe {
        let hook = arch::hook(frame.thunk);
        ptr::with_exposed_provenance::<u64>((hook - 8) as usize).read_unaligned()
    }
}

/// Returns the duties of a hook of an exit that gave up; see [`hook_kind`].
fn exit_kind(frame: &ExitFrame) -> u64 {
    // SAFETY: the hook has passed the address to which it returns, and the word is in front of the hook.
    unsafe {
        let hook = arch::hook(frame.thunk);
        ptr::with_exposed_provenance::<u64>((hook - 8) as usize).read_unaligned()
    }
}

/// Returns the number of the slot in which a sampled function's calls are counted. It follows the thunk.
fn sampling_slot(frame: &EnterFrame) -> u32 {
    let place = frame.thunk.wrapping_add_signed(layout::THUNK_SLOT);
    // SAFETY: the number follows the thunk of every hook with such a duty.
    unsafe { ptr::with_exposed_provenance::<u32>(place as usize).read_unaligned() }
}

/// Returns true if a call at `slot` is hidden by its position on the stack.
pub fn is_hidden(gate: &StackGate, kind: u64, slot: u64, tail: bool) -> bool {
    let below = match kind & (kind::MUTE | kind::FILTER) {
        0 => gate.hidden,
        _ => gate.muted,
    };
    if kind & kind::GATED == 0 {
        return false;
    }
    // A tail call has its caller's slot. An alternate stack of handlers may lie above the stack of the call that
    // hides them, if that is a coroutine's stack.
    slot < below
        || tail && slot == below
        || below != 0 && slot > below && !sys::Cut::at(slot).leaves(below)
}

/// Returns the flags of an entry made by a hook with these duties.
pub fn flags(kind: u64, levels: u32) -> u32 {
    let mut flags = match kind & kind::CHOSEN {
        0 => layout::ENTRY_POSITION,
        _ => 0,
    };
    if kind & (kind::MUTE | kind::FILTER) != 0 || levels > 0 {
        flags |= layout::ENTRY_SAVED;
    }
    if kind & kind::MUTE != 0 {
        flags |= layout::ENTRY_MUTE;
    }
    flags
}

/// Changes the gate for the calls below a call at `slot`.
pub fn change_gate(gate: &mut StackGate, kind: u64, slot: u64, levels: u32) {
    if kind & kind::MUTE != 0 {
        gate.hidden = slot;
        gate.muted = slot;
        return;
    }
    if kind & kind::FILTER != 0 {
        gate.hidden = 0;
        gate.level = 0;
    }
    if levels > 0 {
        gate.level += 1;
        if gate.level >= u64::from(levels) {
            gate.hidden = slot;
        }
    }
}

/// Begins the work of a hook whose stack pointer is `place`.
///
/// # Safety
/// The record is this thread's and no dummy, and signals are blocked.
pub unsafe fn begin_work(
    block: &mut ThreadBlock,
    record: *mut ThreadRecord,
    arena: MappedArena,
    place: u64,
    other: BusyHook,
) -> RecordWriter {
    // SAFETY: the caller's promise.
    unsafe {
        match other {
            BusyHook::None => {
                block.busy = place;
                RecordWriter::new(record, arena)
            }
            BusyHook::Interrupted => RecordWriter::behind(record, arena),
            BusyHook::Left => {
                let mut writer = RecordWriter::behind(record, arena);
                interrupted::leave(block, &mut writer);
                block.busy = place;
                writer
            }
        }
    }
}

/// Leaves calls that can't be open any more if a call is entered at `slot`. Returns true if the entered call is a
/// tail call.
pub fn drop_stale(writer: &mut RecordWriter, slot: u64, return_address: u64) -> bool {
    let entries = writer.entries();
    let mut keep = entries.len();
    let mut tail = false;
    if entries.last().is_none_or(|entry| entry.slot > slot) {
        return false;
    }
    let cut = sys::Cut::at(slot);
    while let Some(entry) = keep.checked_sub(1).and_then(|at| entries.get(at)) {
        if entry.slot == slot && is_thunk(return_address) {
            tail = true;
            break;
        }
        if entry.slot != slot && !cut.leaves(entry.slot) {
            break;
        }
        keep -= 1;
    }
    let dropped = entries.len() - keep;
    drop_entries(writer, dropped, UnwindCause::Jump);
    tail
}

/// Leaves the innermost calls, which do not fit the stack any more, and records it. They may still return.
pub fn drop_entries(writer: &mut RecordWriter, count: usize, cause: UnwindCause) {
    drop_left(writer, count, cause, false);
}

/// Leaves the innermost calls because of a jump that the runtime saw.
pub fn drop_told(writer: &mut RecordWriter, count: usize, cause: UnwindCause) {
    drop_left(writer, count, cause, true);
}

fn drop_left(writer: &mut RecordWriter, count: usize, cause: UnwindCause, told: bool) {
    let entries = writer.entries();
    let from = entries.len().saturating_sub(count);
    let Some(left) = entries.get_mut(from..).filter(|left| !left.is_empty()) else {
        return;
    };
    let outermost: *mut ShadowEntry = left.as_mut_ptr();
    let record: *mut ThreadRecord = writer.record();
    // SAFETY: this thread's record and block, and its innermost entries.
    unsafe {
        let gate = &mut (*arch::block()).gate;
        parked::each_unparked(record, |entry| {
            let is_left = ptr::from_mut(entry) >= outermost;
            if is_left {
                gate.leave(slice::from_ref(entry));
            }
            is_left
        });
        record_left(writer, from..from + count, cause);
        parked::each_unparked(record, |entry| {
            let is_left = ptr::from_mut(entry) >= outermost;
            if is_left {
                sampling::leave(record, slice::from_ref(entry));
            }
            is_left
        });
        parked::leave(record, outermost, told);
    }
}

/// Records that the innermost open calls in the range `left` have ended without returning. Judges those that are
/// judged at their ends.
pub fn record_left(writer: &mut RecordWriter, left: Range<usize>, cause: UnwindCause) {
    let (mut open, mut judged) = (0, 0);
    let record: *mut ThreadRecord = writer.record();
    // SAFETY: this thread's record, and entries of its shadow stack.
    unsafe {
        let from = (*record).floor.add(left.start);
        let to = (*record).floor.add(left.end);
        parked::each_unparked(record, |entry| {
            let place: *mut ShadowEntry = entry;
            if entry.is_open() && from < place && place <= to {
                open += 1;
                judged += usize::from(entry.flags & layout::ENTRY_JUDGED != 0);
            }
            place > from
        });
    }
    let Some(arena) = session::arena() else {
        return;
    };
    if open > 0 && !writer.has_room() {
        writer.next_chunk();
    }
    let time = now(&arena);
    if judged > 0 {
        open = judged::leave(writer, &arena, left, judged, (time, cause));
    }
    record_unwound(writer, open, time, cause);
}

/// Records that the innermost open calls have ended without returning.
pub fn record_unwound(writer: &mut RecordWriter, open: usize, time: u64, cause: UnwindCause) {
    if open > 0 {
        writer.write(1, |to| to.unwound(time, cause, open as u32));
    }
}

/// Returns true if an address is the one to which a thunk's body returns.
pub fn is_thunk(address: u64) -> bool {
    // Words on stacks may be any number, so the kernel reads the memory.
    arch::is_thunk(|at| sys::peek(sys::pid(), address.wrapping_add(at)))
}

/// Goes on for the hook of an exit. The vector registers are saved at `vectors`.
pub extern "C" fn exit(frame: &mut ExitFrame, vectors: *const u8) -> u32 {
    // SAFETY: the block of this thread.
    let block = unsafe { &mut *arch::block() };
    let slot = frame.slot();
    let _signals = sys::BlockedSignals::new();
    if confined::is_quiet() {
        // Nothing is recorded any more. A hook that was interrupted on another stack may go on later, and must find
        // everything as it was. SAFETY: this thread's record, or the dummy.
        let found =
            unsafe { parked::find(block.record, frame.token(), frame.frame_pointer(), slot) };
        match found.and_then(taken) {
            Some(caller) => frame.give_back(caller),
            None => lost(),
        }
        return 0;
    }
    let other = interrupted::other(block, slot);
    let found = exit_here(block, (frame, vectors), other);
    if other == BusyHook::Interrupted {
        // SAFETY: this thread's record, while signals are blocked.
        interrupted::end_if_done(unsafe { &mut *block.record });
    } else {
        block.busy = 0;
    }
    if found.is_none() {
        lost();
    }
    0
}

/// Ends the program: its return address is not known, so it can't go on.
fn lost() -> ! {
    sys::complain(&[
        "dioptra: a traced function returned whose return address is not known; the program can't go on\n",
    ]);
    sys::abort()
}

/// Goes back to the caller, if it is known.
fn exit_here(
    block: &mut ThreadBlock,
    (frame, vectors): (&mut ExitFrame, *const u8),
    other: BusyHook,
) -> Option<()> {
    let slot = frame.slot();
    let (token, frame_pointer) = (frame.token(), frame.frame_pointer());
    let record = session::arena()
        .filter(|_| !shadow::is_dummy(block.record))
        .and_then(|arena| Some((thread::record(block, arena)?, arena)));
    let Some((record, arena)) = record else {
        // Another thread has begun the call. This thread has not called anything yet. SAFETY: the record is the
        // dummy.
        let found = unsafe { parked::find(block.record, token, frame_pointer, slot)? };
        frame.give_back(taken(found)?);
        return Some(());
    };
    // SAFETY: this thread's record; signals are blocked.
    let mut writer = unsafe { begin_work(block, record, arena, slot, other) };
    // SAFETY: as above.
    let entry = match unsafe { parked::find(record, token, frame_pointer, slot)? } {
        FoundCall::Open(entry) => entry,
        FoundCall::Suspended(segment, entry)
            if other != BusyHook::Interrupted
                // SAFETY: a segment that the search found.
                && unsafe { switch::adopt(&mut writer, segment) } =>
        {
            entry
        }
        found => {
            frame.give_back(taken(found)?);
            return Some(());
        }
    };
    // SAFETY: this thread's record, and an entry of its shadow stack.
    let now_open = unsafe {
        if parked::innermost(record) != entry {
            let above = (*record).top.offset_from(entry).unsigned_abs();
            drop_entries(&mut writer, above, UnwindCause::Jump);
        }
        *entry
    };
    block.gate.leave(&[now_open]);
    let values = match exit_kind(frame) & kind::RETURNED {
        // SAFETY: the numbers follow the thunk of every hook with such a duty.
        1.. if now_open.is_open() && writer.takes_values() => unsafe {
            values::returned(frame, vectors)
        },
        _ => Values::NONE,
    };
    if !now_open.is_open() {
        // The call was not recorded, or its end was recorded before.
    } else if stopped() {
        writer.close();
    } else if !judged::end(&mut writer, &arena, &now_open, &values) {
        if !writer.has_room_for(values.size()) {
            writer.next_chunk();
        }
        let time = now(&arena);
        writer.write(1, |to| {
            values.write(to, Encoder::returned)?;
            to.exit(time)
        });
    }
    // SAFETY: this thread's record, and its entry.
    unsafe {
        sampling::leave(writer.record(), &[now_open]);
        // Before the entry is given up: debuggers find the caller there until then.
        frame.give_back(parked::caller(entry));
        compiler_fence(Ordering::SeqCst);
        parked::remove(record, entry);
        parked::renew_if_wasteful(record);
    }
    Some(())
}

/// Returns the caller of a call whose end is not recorded here.
fn taken(found: FoundCall) -> Option<Caller> {
    match found {
        FoundCall::Left(caller) => Some(caller),
        // SAFETY: an entry that the search found.
        FoundCall::Open(entry) | FoundCall::Suspended(_, entry) => unsafe { parked::snatch(entry) },
    }
}
