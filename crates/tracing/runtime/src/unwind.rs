//! The personality routine of thunks' frames: exceptions pass, and the ends of their calls are recorded.

use crate::arch;
use crate::chunks::RecordWriter;
use crate::interrupted;
use crate::shadow::{self, ShadowEntry};
use crate::slow::record_left;
use crate::sys;
use crate::{sampling, session};
use dioptra_tracelayout::message::thread::ENTRY_UNWOUND;
use dioptra_tracelayout::record::UnwindCause;

/// `_UA_CLEANUP_PHASE` of the unwinding ABI: the unwinder leaves frames now.
const CLEANUP: i32 = 2;
/// `_URC_CONTINUE_UNWIND`.
const CONTINUE: i32 = 8;

/// Records the end of calls when the unwinder passes a thunk's frame.
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
        let mut writer = RecordWriter::behind(block.record, arena);
        let entries = writer.entries();
        // The frame's address. If the unwinder is linked statically, no function of its tables returns it. It is a
        // number in the context that only thunks' frames have, one more than the stack pointer above the slot.
        let context =
            core::slice::from_raw_parts(context.cast::<u64>().cast_const(), arch::UNWINDER_WORDS);
        let first = outermost_at(entries, context);
        let is_inside = writer.record().interrupted.is_active() && first >= writer.outside();
        if !matches!(block.busy, 0 | shadow::OWN_WORK) && !is_inside {
            // The exception leaves a hook that a handler has interrupted.
            interrupted::leave(block, &mut writer);
        }
        if writer.record().interrupted.is_waiting() {
            interrupted::copy(&mut writer);
        }
        let busy = block.busy;
        block.busy = if busy == 0 { 1 } else { busy };
        let entries = writer.entries();
        let first = first.min(entries.len());
        // All calls above this one in the list were made from here, wherever they lie: handlers have other stacks.
        // Calls that were left before need no second look.
        let count = entries
            .iter()
            .skip(first)
            .take_while(|entry| entry.flags & ENTRY_UNWOUND == 0)
            .count();
        record_left(&mut writer, first..first + count, UnwindCause::Exception);
        let entries = writer.entries();
        let left = entries.get_mut(first..first + count).unwrap_or_default();
        block.gate.leave(left);
        sampling::leave(block.record, left);
        for entry in left {
            entry.flags |= ENTRY_UNWOUND;
        }
        block.busy = busy;
    }
    CONTINUE
}

/// Returns the index of the outermost call that returns through the thunk whose frame an unwinder's context
/// describes; one behind the last, if there is none.
fn outermost_at(entries: &[ShadowEntry], context: &[u64]) -> usize {
    // Slots go down, except where a handler has a stack of its own.
    let found = context.iter().filter_map(|word| {
        let slot = word.wrapping_sub(9);
        let at = entries.partition_point(|entry| entry.slot > slot);
        entries.get(at).filter(|entry| entry.slot == slot)?;
        Some(at)
    });
    if let Some(at) = found.max() {
        return at;
    }
    let is_here = |slot: u64| context.contains(&slot.wrapping_add(9));
    let innermost = entries
        .iter()
        .rposition(|entry| is_here(entry.slot))
        .or_else(|| {
            let is_left = |entry: &ShadowEntry| entry.flags & ENTRY_UNWOUND != 0;
            entries.iter().rposition(|entry| !is_left(entry))
        })
        .unwrap_or(entries.len());
    // A function that ended in a jump to it has the same slot.
    let slot = entries.get(innermost).map_or(0, |entry| entry.slot);
    let same = entries[..innermost].iter().rev();
    innermost - same.take_while(|entry| entry.slot == slot).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(slots: &[u64]) -> std::vec::Vec<ShadowEntry> {
        let entry = |&slot: &u64| ShadowEntry {
            slot,
            ..ShadowEntry::BOTTOM
        };
        slots.iter().map(entry).collect()
    }

    #[test]
    fn a_frame_is_found_by_its_address() {
        let own = entries(&[900, 800, 800, 700]);
        for (address, at) in [(909, 0), (809, 1), (709, 3)] {
            assert_eq!(outermost_at(&own, &[1, 7, address, 55]), at);
        }
        // The last two are a handler's, on another stack.
        let handlers = entries(&[500, 400, 300, 2000, 1900]);
        for (address, at) in [(509, 0), (309, 2), (2009, 3), (1909, 4)] {
            assert_eq!(outermost_at(&handlers, &[address]), at);
        }
        assert_eq!(outermost_at(&own, &[1]), 3);
        assert_eq!(outermost_at(&[], &[1]), 0);
    }
}
