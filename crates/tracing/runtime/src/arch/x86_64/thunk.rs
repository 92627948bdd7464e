//! What the runtime reads of thunks and of frames that their hooks have built.

use super::entry::{EnterFrame, ExitFrame, ObserveFrame};
use crate::{confined, slow, sys};
use core::ptr;

/// How many words of an unwinder's context may hold the frame's address: the registers, and it.
pub const UNWINDER_WORDS: usize = 24;

/// From where a hook returns into its thunk to the operand of the thunk's call of the body: `lea` of 5 bytes, and the
/// call's first.
pub const BODY_OPERAND: u64 = 6;

/// Where the branch leads whose operand is at an address.
///
/// # Safety
/// It is one.
unsafe fn target(operand: u64) -> u64 {
    let place = ptr::with_exposed_provenance::<i32>(operand as usize);
    // SAFETY: the caller's promise.
    let distance = unsafe { place.read_unaligned() };
    (operand + 4).wrapping_add_signed(i64::from(distance))
}

/// Where a call goes on as if there had been no thunk.
///
/// # Safety
/// A hook of an entry returns to `thunk`.
pub unsafe fn body(thunk: u64) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { target(thunk + BODY_OPERAND) }
}

/// The hook that returns to `thunk`.
///
/// # Safety
/// It is one of a thunk's.
pub unsafe fn hook(thunk: u64) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { target(thunk - 4) }
}

/// Whether an address is where a thunk's body returns to; `peek` reads at a distance from it.
pub fn is_thunk(peek: impl Fn(u64) -> Option<u64>) -> bool {
    // The bytes there: `lea rsp, [rsp - 8]`, `call`.
    peek(0).is_some_and(|word| word & 0xffff_ffff_ffff == 0xe8_f8_24_64_8d_48)
}

/// Whether a call's place on the stack still looks like one's.
pub fn is_there(slot: u64) -> bool {
    // A quiet process can't ask the kernel. It assumes so, since no return address may be lost.
    confined::is_quiet() || sys::peek(sys::pid(), slot).is_some_and(slow::is_thunk)
}

/// Whether an address is within the C library's `swapcontext` that calls `setcontext`: here it does not.
pub fn is_within_swap(_address: u64) -> bool {
    false
}

/// Lets all see code that was written. Caches do that by themselves.
pub fn publish(_address: u64, _size: u64) {}

/// Where the return address lies of a function that ended in a jump to a hook of a compiler's making, whose stack pointer
/// is `stack`, if it still lies on the stack.
pub fn jumped_from(stack: u64) -> Option<u64> {
    Some(stack)
}

impl EnterFrame {
    /// The call's slot.
    pub fn slot(&self) -> u64 {
        (&raw const self.return_address).addr() as u64
    }
}

impl ExitFrame {
    /// The call's slot.
    pub fn slot(&self) -> u64 {
        (&raw const self.return_address).addr() as u64
    }
}

impl ObserveFrame {
    /// The call's slot.
    pub fn slot(&self) -> u64 {
        (&raw const self.return_address).addr() as u64
    }
}
