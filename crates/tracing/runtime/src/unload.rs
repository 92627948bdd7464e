//! The end of the runtime in a process from which its recorder has detached.
//!
//! The recorder has written the program's own instructions back, so that no new call comes here. It lets a thread call
//! [`release`], then looks whether a thread still executes code of the runtime or of a pool, or will return to it, and
//! lets the thread call [`unload`], which leaves only the runtime itself, for the recorder to close.

use crate::segments::{self, SegmentState, StackSegment};
use crate::shadow::{self, PAGE, THREADS, TO_RECORD, ThreadRecord};
use crate::{libc_calls, parked, session, sys};
use core::ptr;
use core::sync::atomic::Ordering;
use dioptra_tracelayout::message::PRESENCE_SIZE;

/// Lets go of what leads the C library here. Returns false if the runtime must stay: calls are open that will return
/// through it.
pub fn release() -> bool {
    // SAFETY: the block of this thread, which the recorder has interrupted.
    let is_busy = unsafe { (*crate::arch::block()).busy != 0 };
    let mut is_open = is_busy;
    segments::all(|segment| {
        // SAFETY: segments are mapped. Other threads only take entries away, because nothing calls hooks of entries.
        is_open |= unsafe { holds_calls(segment) };
        is_open
    });
    if is_open || libc_calls::pools().is_none() {
        return false;
    }
    libc_calls::delete_key();
    true
}

/// Returns whether a segment has entries of calls that may return.
///
/// # Safety
/// `segment` is a segment.
unsafe fn holds_calls(segment: *mut StackSegment) -> bool {
    // SAFETY: the caller's promise. The owner of an active segment is a record, and records stay mapped.
    unsafe {
        let top = match (*segment).state() {
            SegmentState::Free => return false,
            SegmentState::Active => {
                let owner = (*segment).owner.load(Ordering::Acquire);
                if owner.is_null() {
                    return false;
                }
                (*owner).top
            }
            SegmentState::Parked | SegmentState::Retired => (*segment).top,
        };
        let mut entry = segments::floor(segment);
        let limit = segments::limit(segment).wrapping_add(2);
        while entry < top && entry < limit {
            entry = entry.wrapping_add(1);
            if parked::may_return(&*entry) {
                return true;
            }
        }
        false
    }
}

/// Closes the pools, and unmaps all memory but the runtime's own.
///
/// # Safety
/// [`release`] has returned true. No thread executes code of the runtime or a pool but the calling one, and none will
/// return there.
pub unsafe fn unload() {
    for pool in libc_calls::pools().unwrap_or_default() {
        // SAFETY: the caller's promise.
        unsafe { libc_calls::close(pool) };
    }
    // SAFETY: the caller's promise: nobody uses the memory any more.
    unsafe {
        // Records hold the first segments. Their spans are read before they go.
        let mut span = segments::SPANS.swap(ptr::null_mut(), Ordering::AcqRel);
        while !span.is_null() {
            let (next, memory) = ((*span).next(), (*span).own_memory());
            if let Some((start, size)) = memory {
                sys::unmap(start, size);
            }
            span = next;
        }
        let mut record: *mut ThreadRecord = THREADS.swap(ptr::null_mut(), Ordering::AcqRel);
        while !record.is_null() {
            let (next, size) = ((*record).next, (*record).size);
            sys::unmap(record.cast::<u8>().wrapping_sub(TO_RECORD), size);
            record = next;
        }
        let block = &mut *crate::arch::block();
        block.record = shadow::dummy();
        let (arena, size, presence) = session::close();
        if !arena.is_null() {
            sys::unmap(arena, size);
        }
        if !presence.is_null() {
            sys::unmap(presence, PRESENCE_SIZE);
        }
    }
}

const _: () = assert!(PRESENCE_SIZE.is_multiple_of(PAGE));
