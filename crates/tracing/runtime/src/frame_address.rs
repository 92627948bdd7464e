//! A stand-in for the unwinder's `_Unwind_GetCFA`, for personality routines that find their frames by addresses
//! instead of tables, such as LuaJIT's.
//!
//! A thunk's frame and its caller's begin at the same address, but unwinders distinguish frames by their beginnings.
//! So a thunk's table states an address that is higher by one, and [`frame_address`] subtracts the one again.

use crate::libc_calls;
use core::sync::atomic::{AtomicUsize, Ordering};

/// The unwinder's function; 0 before it is known.
static FUNCTION: AtomicUsize = AtomicUsize::new(0);
/// The unwinder's first address. The unwinder calls the function, too, and must get the address that the table states.
static START: AtomicUsize = AtomicUsize::new(0);
/// The first address behind the unwinder.
static END: AtomicUsize = AtomicUsize::new(0);

/// Looks for the unwinder, if one is loaded.
pub fn find_unwinder() {
    let function = libc_calls::next_symbol(c"_Unwind_GetCFA");
    if let Some((start, end)) = libc_calls::module_of(function) {
        START.store(start, Ordering::Relaxed);
        END.store(end, Ordering::Relaxed);
        FUNCTION.store(function, Ordering::Release);
    }
}

/// Returns the address of the frame of an unwinder's context, to a caller that goes on at `caller`.
///
/// # Safety
/// `context` is an unwinder's context.
pub unsafe extern "C" fn frame_address(context: *mut libc::c_void, caller: usize) -> usize {
    type Get = unsafe extern "C" fn(*mut libc::c_void) -> usize;
    if FUNCTION.load(Ordering::Acquire) == 0 {
        find_unwinder();
    }
    let function = FUNCTION.load(Ordering::Acquire);
    if function == 0 {
        return 0;
    }
    // SAFETY: the unwinder's function has this type; the context is the caller's promise.
    let address = unsafe {
        let get: Get = core::mem::transmute(core::ptr::with_exposed_provenance::<()>(function));
        get(context)
    };
    let is_unwinder =
        START.load(Ordering::Relaxed) <= caller && caller < END.load(Ordering::Relaxed);
    // Stack pointers are even.
    if is_unwinder { address } else { address & !1 }
}
