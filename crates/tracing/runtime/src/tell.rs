//! Calls of which only the beginning is seen: functions that return twice (`setjmp`, `vfork`, `getcontext`) or look
//! at their return address (`dlsym`). They go on with the caller's own return address, so no hook sees their end.
//! They are recorded as calls that end at once, and are never on the shadow stack.

use crate::arch::ObserveFrame;
use crate::chunks::{now, stopped};
use crate::interrupted::{self, BusyHook};
use crate::session::MappedArena;
use crate::shadow::{self, ThreadBlock};
use crate::slow::{begin_work, drop_stale, is_hidden};
use crate::{confined, socket, sys, thread};
use core::sync::atomic::Ordering;
use dioptra_tracelayout::message::notified;
use dioptra_tracelayout::message::thread::kind;

/// Records the call that `frame` is about, unless its position on the stack hides it.
pub fn tell(block: &mut ThreadBlock, arena: MappedArena, frame: &ObserveFrame) {
    if stopped() || confined::is_quiet() {
        return;
    }
    if block.busy == shadow::OWN_WORK {
        socket::count_missed();
        return;
    }
    let word = frame.function as u32;
    let slot = frame.slot();
    let _signals = sys::BlockedSignals::new();
    let other = interrupted::other(block, slot);
    if other == BusyHook::Interrupted {
        // A handler has interrupted a hook. The call is counted as missing.
        arena.header().handler_calls.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let Some(record) = thread::record(block, arena) else {
        let missed = &arena.header().missed_no_memory;
        missed.fetch_add(1, Ordering::Relaxed);
        return;
    };
    // SAFETY: this thread's record; signals are blocked.
    let mut writer = unsafe { begin_work(block, record, arena, slot, other) };
    let tail = drop_stale(&mut writer, slot, frame.return_address);
    let bit = |bit, kind| if word & bit != 0 { kind } else { 0 };
    let kind = bit(notified::GATED, kind::GATED) | bit(notified::FILTER, kind::FILTER);
    if !is_hidden(&block.gate, kind, slot, tail) {
        let id = word & notified::ID;
        let (start, end) = (now(&arena), now(&arena));
        // A chunk with room has it for both records.
        writer.write(2, |to| {
            to.entry(start, id)?;
            to.exit(end)
        });
    }
    block.busy = 0;
}
