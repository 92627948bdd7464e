//! What hooks do not do by themselves.

use crate::arch::{self, EnterFrame, ExitFrame};
use crate::chunks::{Writer, now, stopped};
use crate::interrupted::{self, Other};
use crate::parked::{self, Found};
use crate::sampling::{self, Counted};
use crate::session::{self, MappedArena};
use crate::shadow::{self, Block, Caller, Entry, Gate, Record};
use crate::{confined, judged, socket, switch, sys, thread};
use core::ops::Range;
use core::sync::atomic::{Ordering, compiler_fence};
use core::{ptr, slice};
use dioptra_tracelayout::message::thread::{self as layout, kind};
use dioptra_tracelayout::record::UnwindCause;

/// Goes on for the hook of an entry: the frame pointer with which it returns if the call is on the shadow stack; 0, it runs as
/// if there had been no hook, and the body's address is where the function id was.
pub extern "C" fn enter(frame: &mut EnterFrame) -> u64 {
    // SAFETY: the block of this thread.
    let block = unsafe { &mut *arch::block() };
    let slot = frame.slot();
    if block.busy == shadow::OWN_WORK {
        socket::count_missed();
        return bypass(frame);
    }
    let _signals = sys::BlockedSignals::new();
    let other = interrupted::other(block, slot);
    let way = if other == Other::Interrupted {
        enter_in_handler(block, frame, slot)
    } else {
        let way = enter_here(block, frame, slot, other);
        block.busy = 0;
        way
    };
    match way {
        Way::On => {
            // SAFETY: this thread's record: the call's entry is its innermost.
            let entry = unsafe { (*block.record).top };
            (entry.addr() as u64).wrapping_add_signed(layout::ENTRY_FRAME)
        }
        Way::Body => bypass(frame),
        Way::Thunk(distance) => {
            frame.function = frame.thunk.wrapping_add_signed(distance);
            0
        }
    }
}

/// A handler calls that has interrupted a hook.
fn enter_in_handler(block: &mut Block, frame: &EnterFrame, slot: u64) -> Way {
    let Some(arena) = session::arena().filter(|_| !stopped()) else {
        return Way::Body;
    };
    let header = arena.header();
    header.handler_calls.fetch_add(1, Ordering::Relaxed);
    let Some(record) = thread::record(block, arena) else {
        return Way::Body;
    };
    // SAFETY: this thread's record, while signals are blocked; no reference to it lives on.
    unsafe {
        if !interrupted::begin(block, &mut *record) {
            return Way::Body;
        }
        let before = (*record).interrupted.kept();
        let way = enter_here(block, frame, slot, Other::Interrupted);
        if (*record).interrupted.kept() == before {
            // It is hidden.
            header.handler_calls_done.fetch_add(1, Ordering::Relaxed);
        }
        if way != Way::On {
            interrupted::end_if_done(&mut *record);
        }
        way
    }
}

fn bypass(frame: &mut EnterFrame) -> u64 {
    // SAFETY: the hook has told where it returns to.
    frame.function = unsafe { arch::body(frame.thunk) };
    0
}

/// Where a call goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// With what follows the hook: it is on the shadow stack.
    On,
    /// With the function, as if there had been no hook.
    Body,
    /// With another thunk: so far from where the hook returns to.
    Thunk(i64),
}

fn enter_here(block: &mut Block, frame: &EnterFrame, slot: u64, other: Other) -> Way {
    let Some(arena) = session::arena() else {
        return Way::Body;
    };
    if stopped() {
        return Way::Body;
    }
    let Some(record) = thread::record(block, arena) else {
        arena
            .header()
            .missed_no_memory
            .fetch_add(1, Ordering::Relaxed);
        return Way::Body;
    };
    // SAFETY: this thread's record; signals are blocked.
    let mut writer = unsafe { begin_work(block, record, arena, slot, other) };
    let tail = drop_stale(&mut writer, slot, frame.return_address);
    // SAFETY: this thread's record.
    unsafe { parked::renew_if_wasteful(record) };
    let kind = hook_kind(frame);
    if is_hidden(&block.gate, kind, slot, tail) {
        return Way::Body;
    }
    let record = writer.record();
    // SAFETY: this thread's record.
    if record.top >= record.limit && unsafe { !parked::make_room(record) } {
        arena
            .header()
            .missed_no_memory
            .fetch_add(1, Ordering::Relaxed);
        return Way::Body;
    }
    if kind & kind::COUNTED != 0 {
        let tree = kind & kind::FILTER != 0;
        // The thunk's hook does the rest: it reads the clock last.
        return match sampling::count(&mut writer, &arena, sampling_slot(frame), tree) {
            Counted::Chosen => Way::Thunk(layout::COUNTED_TO_CHOSEN),
            Counted::Skipped if tree => Way::Thunk(layout::COUNTED_TO_MUTED),
            Counted::Skipped => Way::Body,
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
    let entry = Entry {
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
        // A chunk's header lists the calls that were open before: the chunk is taken before the call is pushed.
        if !writer.has_room() {
            writer.next_chunk();
        }
        let time = now(&arena);
        match judged {
            Some(judged) => judged::begin(&mut writer, judged, slot, time, id),
            None => {
                writer.write(1, |to| to.entry(time, id));
            }
        }
    }
    let record = writer.record();
    // SAFETY: below the limit there is room for another entry.
    unsafe {
        record.top = record.top.add(1);
        record.top.write(entry);
    }
    Way::On
}

/// What the hook does that gave up: the word in front of it, which the thunk has called.
fn hook_kind(frame: &EnterFrame) -> u64 {
    // SAFETY: the hook has told where it returns to, and the word is in front of it.
    unsafe {
        let hook = arch::hook(frame.thunk);
        ptr::with_exposed_provenance::<u64>((hook - 8) as usize).read_unaligned()
    }
}

/// The number of the slot that a sampled function's calls are counted in: it follows the thunk.
fn sampling_slot(frame: &EnterFrame) -> u32 {
    let place = frame.thunk.wrapping_add_signed(layout::THUNK_SLOT);
    // SAFETY: what follows the thunk of a hook that has said so.
    unsafe { ptr::with_exposed_provenance::<u32>(place as usize).read_unaligned() }
}

/// Whether a call at `slot` is hidden by its place.
pub fn is_hidden(gate: &Gate, kind: u64, slot: u64, tail: bool) -> bool {
    let below = match kind & (kind::MUTE | kind::FILTER) {
        0 => gate.hidden,
        _ => gate.muted,
    };
    if kind & kind::GATED == 0 {
        return false;
    }
    // What is entered by a tail call has its caller's slot. An alternate stack of handlers may lie above the stack of what
    // hides them, if that is a coroutine's.
    slot < below
        || tail && slot == below
        || below != 0 && slot > below && !sys::Cut::at(slot).leaves(below)
}

/// The flags of an entry made by a hook of this kind.
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

/// What a call at `slot` does to what it calls.
pub fn change_gate(gate: &mut Gate, kind: u64, slot: u64, levels: u32) {
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

/// Begins the work of a hook at `place`.
///
/// # Safety
/// The record is this thread's and no dummy, and signals are blocked.
pub unsafe fn begin_work(
    block: &mut Block,
    record: *mut Record,
    arena: MappedArena,
    place: u64,
    other: Other,
) -> Writer {
    // SAFETY: the caller's promise.
    unsafe {
        match other {
            Other::None => {
                block.busy = place;
                Writer::new(record, arena)
            }
            Other::Interrupted => Writer::behind(record, arena),
            Other::Left => {
                let mut writer = Writer::behind(record, arena);
                interrupted::leave(block, &mut writer);
                block.busy = place;
                writer
            }
        }
    }
}

/// Drops calls that can't be open any more if a call is entered at `slot`; whether it is a tail call.
pub fn drop_stale(writer: &mut Writer, slot: u64, return_address: u64) -> bool {
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

/// Leaves the innermost calls, which do not fit the stack any more, and says so. They may still return.
pub fn drop_entries(writer: &mut Writer, count: usize, cause: UnwindCause) {
    drop_left(writer, count, cause, false);
}

/// Leaves the innermost calls, as the program has said.
pub fn drop_told(writer: &mut Writer, count: usize, cause: UnwindCause) {
    drop_left(writer, count, cause, true);
}

fn drop_left(writer: &mut Writer, count: usize, cause: UnwindCause, told: bool) {
    let entries = writer.entries();
    let from = entries.len().saturating_sub(count);
    let Some(left) = entries.get_mut(from..).filter(|left| !left.is_empty()) else {
        return;
    };
    let outermost: *mut Entry = left.as_mut_ptr();
    let record: *mut Record = writer.record();
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

/// Says that these calls, the innermost ones that are open, have ended without returning. Those that are judged at their
/// ends are.
pub fn record_left(writer: &mut Writer, left: Range<usize>, cause: UnwindCause) {
    let (mut open, mut judged) = (0, 0);
    let record: *mut Record = writer.record();
    // SAFETY: this thread's record, and entries of its shadow stack.
    unsafe {
        let from = (*record).floor.add(left.start);
        let to = (*record).floor.add(left.end);
        parked::each_unparked(record, |entry| {
            let place: *mut Entry = entry;
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

/// Says that the innermost open calls have ended without returning.
pub fn record_unwound(writer: &mut Writer, open: usize, time: u64, cause: UnwindCause) {
    if open > 0 {
        writer.write(1, |to| to.unwound(time, cause, open as u32));
    }
}

/// Whether an address is where a thunk's body returns to.
pub fn is_thunk(address: u64) -> bool {
    // What lies on stacks may be any number.
    arch::is_thunk(|at| sys::peek(sys::pid(), address.wrapping_add(at)))
}

/// Goes on for the hook of an exit.
pub extern "C" fn exit(frame: &mut ExitFrame) -> u32 {
    // SAFETY: the block of this thread.
    let block = unsafe { &mut *arch::block() };
    let slot = frame.slot();
    let _signals = sys::BlockedSignals::new();
    if confined::is_quiet() {
        // Nothing is recorded any more, and a hook that was interrupted on another stack may go on later: it has to find
        // everything as it was.
        // SAFETY: this thread's record, or the dummy.
        let found =
            unsafe { parked::find(block.record, frame.token(), frame.frame_pointer(), slot) };
        match found.and_then(taken) {
            Some(caller) => frame.give_back(caller),
            None => lost(),
        }
        return 0;
    }
    let other = interrupted::other(block, slot);
    let found = exit_here(block, frame, other);
    if other == Other::Interrupted {
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

/// Ends the program: nothing tells where it would go on.
fn lost() -> ! {
    sys::complain(&[
        "dioptra: a traced function returned whose return address is not known; the program can't go on\n",
    ]);
    sys::abort()
}

/// Goes back to the caller, if it is known.
fn exit_here(block: &mut Block, frame: &mut ExitFrame, other: Other) -> Option<()> {
    let slot = frame.slot();
    let (token, frame_pointer) = (frame.token(), frame.frame_pointer());
    let record = session::arena()
        .filter(|_| !shadow::is_dummy(block.record))
        .and_then(|arena| Some((thread::record(block, arena)?, arena)));
    let Some((record, arena)) = record else {
        // Another thread has begun the call: this one has not called anything yet.
        // SAFETY: the record is the dummy.
        let found = unsafe { parked::find(block.record, token, frame_pointer, slot)? };
        frame.give_back(taken(found)?);
        return Some(());
    };
    // SAFETY: this thread's record; signals are blocked.
    let mut writer = unsafe { begin_work(block, record, arena, slot, other) };
    // SAFETY: as above.
    let entry = match unsafe { parked::find(record, token, frame_pointer, slot)? } {
        Found::Open(entry) => entry,
        Found::Suspended(segment, entry)
            if other != Other::Interrupted
                // SAFETY: a segment that was found.
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
    if !now_open.is_open() {
        // Nothing was recorded, or the end was.
    } else if stopped() {
        writer.close();
    } else if !judged::end(&mut writer, &arena, &now_open) {
        if !writer.has_room() {
            writer.next_chunk();
        }
        let time = now(&arena);
        writer.write(1, |to| to.exit(time));
    }
    // SAFETY: this thread's record, and its entry.
    unsafe {
        sampling::leave(writer.record(), &[now_open]);
        // Before the entry is given up: debuggers find it there until then.
        frame.give_back(parked::caller(entry));
        compiler_fence(Ordering::SeqCst);
        parked::remove(record, entry);
        parked::renew_if_wasteful(record);
    }
    Some(())
}

/// Returns the caller of a call whose end is not recorded here.
fn taken(found: Found) -> Option<Caller> {
    match found {
        Found::Left(caller) => Some(caller),
        // SAFETY: an entry that was found.
        Found::Open(entry) | Found::Suspended(_, entry) => unsafe { parked::snatch(entry) },
    }
}
