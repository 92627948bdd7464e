//! Functions of the C library that exchange stacks or cut them.

use crate::arch::{self, ObserveFrame};
use crate::chunks::RecordWriter;
use crate::interrupted::{self, BusyHook};
use crate::shadow::{self, ShadowEntry, ThreadBlock};
use crate::slow::{begin_work, drop_told};
use crate::switch::{self, Entering, Leaving};
use crate::{clones, confined, exec, linker, parked, session, sys, tell, thread};
use core::ptr;
use core::sync::atomic::Ordering;
use dioptra_tracelayout::message::{Observed, notified};
use dioptra_tracelayout::record::UnwindCause;

/// Handles the call of an observed function, which does its work when this function has returned.
pub extern "C" fn observe(frame: &mut ObserveFrame) {
    let Some(arena) = session::arena() else {
        return;
    };
    // SAFETY: the block of this thread.
    let block = unsafe { &mut *arch::block() };
    if frame.function & u64::from(notified::MARK) != 0 {
        tell::tell(block, arena, frame);
        return;
    }
    let guest = [Observed::Clone, Observed::Prctl, Observed::Syscall];
    if let Some(function) = guest.into_iter().find(|one| *one as u64 == frame.function) {
        clones::observe(block, arena, function, frame.all_arguments());
        confined::observe(block, arena, function, frame.all_arguments());
        return;
    }
    if block.busy == shadow::OWN_WORK {
        return;
    }
    if frame.function == Observed::Jump as u64 {
        let [buffer, _] = frame.arguments();
        let _signals = sys::BlockedSignals::new();
        // SAFETY: the function's own argument.
        let target = unsafe { arch::jumps_to(buffer) };
        jump(block, arena, target);
        return;
    }
    let exchanges = [Observed::SwapContext, Observed::SetContext]
        .iter()
        .any(|function| *function as u64 == frame.function);
    if block.busy != 0 {
        if frame.function == Observed::ModulesChange as u64 {
            linker::miss();
        } else if exchanges && !confined::is_quiet() {
            // A handler that has interrupted a hook exchanges stacks: other hooks will run before the interrupted one
            // goes on.
            arena.header().preempted.happens(sys::pid());
            confined::be_quiet(block, arena);
        }
        return;
    }
    if exchanges && confined::is_quiet() {
        return;
    }
    let sets = frame.function == Observed::SetContext as u64;
    if sets && arch::is_within_swap(frame.return_address) {
        // The exchange was seen already.
        return;
    }
    if frame.function == Observed::ModulesChange as u64 {
        if !arena_stopped(&arena) {
            exec::reconnect();
        }
        return;
    }
    let _signals = sys::BlockedSignals::new();
    let slot = frame.slot();
    let [first, second] = frame.arguments();
    let (leaving, context) = if frame.function == Observed::SwapContext as u64 {
        let (key, context) = (slot + 8, first);
        (Some(Leaving { key, context }), second)
    } else {
        (None, first)
    };
    block.busy = slot;
    if let Some(record) = thread::record(block, arena) {
        // SAFETY: the function's own argument. If it is no context, the program's own function crashes as well.
        let entering = unsafe {
            let key = arch::resumed_with(context);
            let stack = own_stack(context, key);
            Entering {
                key,
                context,
                stack,
            }
        };
        // SAFETY: this thread's record; busy keeps hooks away.
        let mut writer = unsafe { RecordWriter::new(record, arena) };
        switch::switch(&mut writer, leaving, entering);
    }
    block.busy = 0;
}

/// Leaves the calls below `target`, at which a jump cuts the stack. A jump to another stack is noticed later, when
/// calls do not fit.
fn jump(block: &mut ThreadBlock, arena: session::MappedArena, target: u64) {
    let other = interrupted::other(block, target);
    if !shadow::is_dummy(block.record)
        && let Some(record) = thread::record(block, arena)
    {
        // SAFETY: this thread's record; signals are blocked.
        let mut writer = unsafe { begin_work(block, record, arena, target, other) };
        let outside = writer.outside();
        let cut = sys::Cut::at(target);
        // SAFETY: this thread's record, and entries of its shadow stack.
        unsafe {
            let outside = (*record).floor.add(outside);
            let mut left = 0;
            parked::each_unparked(record, |entry| {
                let entry: *mut ShadowEntry = entry;
                let is_left = entry > outside && cut.leaves((*entry).slot);
                if is_left {
                    left = (*record).top.offset_from(entry).unsigned_abs() + 1;
                }
                is_left
            });
            drop_told(&mut writer, left, UnwindCause::Jump);
        }
        interrupted::end_if_done(writer.record());
    }
    if other != BusyHook::Interrupted {
        block.busy = 0;
    }
}

fn arena_stopped(arena: &session::MappedArena) -> bool {
    arena.header().stop.load(Ordering::Relaxed) != 0
}

/// Returns the first address of the stack for which a context was made (`makecontext`), if the stack pointer lies in
/// it.
///
/// # Safety
/// `context` is the address of a context.
unsafe fn own_stack(context: u64, target: u64) -> Option<u64> {
    let context = ptr::with_exposed_provenance::<libc::ucontext_t>(context as usize);
    // SAFETY: the caller's promise.
    let stack = unsafe { (*context).uc_stack };
    let start = stack.ss_sp.addr() as u64;
    (start != 0 && target.wrapping_sub(start) <= stack.ss_size as u64).then_some(start)
}
