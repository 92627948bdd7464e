//! The personality routine of thunks' frames: exceptions go through, and their calls' ends are recorded.

use crate::arch;
use crate::chunks::Writer;
use crate::session;
use crate::shadow::{self, Entry};
use crate::slow::record_unwound;
use crate::sys;
use dioptra_tracelayout::message::thread::ENTRY_UNWOUND;
use dioptra_tracelayout::record::UnwindCause;

/// `_UA_CLEANUP_PHASE` of the unwinding ABI: frames are left now.
const CLEANUP: i32 = 2;
/// `_URC_CONTINUE_UNWIND`.
const CONTINUE: i32 = 8;

/// How many words of the unwinder's context are looked at.
const CONTEXT_WORDS: usize = 24;

/// Told by the unwinder that it passes a thunk's frame.
///
/// # Safety
/// Called by the unwinder, with its context.
pub unsafe extern "C" fn personality(
    _version: i32,
    actions: i32,
    _class: u64,
    _exception: *mut libc::c_void,
    context: *mut libc::c_void,
) -> i32 {
    if actions & CLEANUP == 0 {
        return CONTINUE;
    }
    let Some(arena) = session::arena() else {
        return CONTINUE;
    };
    let _signals = sys::BlockedSignals::new();
    // SAFETY: the block of this thread, and its record if it has one; busy keeps hooks away.
    unsafe {
        let block = &mut *arch::block();
        if shadow::is_dummy(block.record) || (*shadow::cursor(block.record)).alive == 0 {
            return CONTINUE;
        }
        let mut writer = Writer::new(block.record, arena);
        let busy = block.busy;
        block.busy = 1;
        let entries = writer.entries();
        // The frame's address, which no function of the unwinder's tells if it is linked statically: a number in the
        // context that only thunks' frames have, one more than the stack pointer above the slot.
        let context =
            core::slice::from_raw_parts(context.cast::<u64>().cast_const(), CONTEXT_WORDS);
        let is_here = |slot: u64| context.contains(&slot.wrapping_add(9));
        let slot = match entries.iter().rev().find(|entry| is_here(entry.slot)) {
            Some(entry) => entry.slot,
            None => entries
                .iter()
                .rev()
                .find(|entry| entry.flags & ENTRY_UNWOUND == 0)
                .map_or(0, |entry| entry.slot),
        };
        let here = |entry: &&Entry| entry.slot <= slot;
        let left = entries
            .iter()
            .rev()
            .take_while(here)
            .filter(|entry| entry.is_open())
            .count();
        record_unwound(&mut writer, left, UnwindCause::Exception);
        let entries = writer.entries();
        let all_left = entries
            .iter()
            .rposition(|entry| entry.slot > slot)
            .map_or(0, |at| at + 1);
        block
            .gate
            .leave(entries.get(all_left..).unwrap_or_default());
        for entry in writer
            .entries()
            .iter_mut()
            .rev()
            .take_while(|entry| entry.slot <= slot)
        {
            entry.flags |= ENTRY_UNWOUND;
        }
        block.busy = busy;
    }
    CONTINUE
}
