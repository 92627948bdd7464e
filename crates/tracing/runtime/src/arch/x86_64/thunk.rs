//! The structure of thunks, and of frames that their hooks have built, as far as the runtime reads it.

use super::entry::{EnterFrame, ExitFrame, ObserveFrame};
use crate::{confined, slow, sys};
use core::ptr;

/// The number of words of an unwinder's context that may hold the frame's address: the registers, and the address.
pub const UNWINDER_WORDS: usize = 24;

/// The offset of the operand of the thunk's call of the body from the address to which a hook returns: a `lea` of 5
/// bytes, and the call's first byte.
pub const BODY_OPERAND: u64 = 6;

/// Returns the target of the branch whose operand lies at an address.
///
/// # Safety
/// `operand` is the address of a branch's operand.
unsafe fn target(operand: u64) -> u64 {
    let place = ptr::with_exposed_provenance::<i32>(operand as usize);
    // SAFETY: the caller's promise.
    let distance = unsafe { place.read_unaligned() };
    (operand + 4).wrapping_add_signed(i64::from(distance))
}

/// Returns the address at which a call goes on as if there had been no thunk.
///
/// # Safety
/// A hook of an entry returns to `thunk`.
pub unsafe fn body(thunk: u64) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { target(thunk + BODY_OPERAND) }
}

/// Returns the address of the hook that returns to `thunk`.
///
/// # Safety
/// A hook returns to `thunk`.
pub unsafe fn hook(thunk: u64) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { target(thunk - 4) }
}

/// Returns true if an address is the one to which a thunk's body returns; `peek` reads at an offset from it.
pub fn is_thunk(peek: impl Fn(u64) -> Option<u64>) -> bool {
    // The bytes there: `lea rsp, [rsp - 8]`, `call`.
    peek(0).is_some_and(|word| word & 0xffff_ffff_ffff == 0xe8_f8_24_64_8d_48)
}

/// Returns true if a call's slot on the stack still holds an address of a thunk.
pub fn is_there(slot: u64) -> bool {
    // A quiet process can't ask the kernel. It assumes that the call is there, because no return address may be lost.
    confined::is_quiet() || sys::peek(sys::pid(), slot).is_some_and(slow::is_thunk)
}

/// Returns true if an address lies in the C library's `swapcontext` and `setcontext` is called from there. On this
/// processor it is not.
pub fn is_within_swap(_address: u64) -> bool {
    false
}

/// Makes written code visible to all threads. The caches of this processor do that by themselves.
pub fn publish(_address: u64, _size: u64) {}

/// Returns the address of the return address of a function that ended in a jump to a compiler-made hook, if it still
/// lies on the stack; `stack` is the stack pointer.
pub fn jumped_from(stack: u64) -> Option<u64> {
    Some(stack)
}

impl EnterFrame {
    /// Returns the call's slot.
    pub fn slot(&self) -> u64 {
        (&raw const self.return_address).addr() as u64
    }
}

impl ExitFrame {
    /// Returns the call's slot.
    pub fn slot(&self) -> u64 {
        (&raw const self.return_address).addr() as u64
    }
}

impl ObserveFrame {
    /// Returns the call's slot.
    pub fn slot(&self) -> u64 {
        (&raw const self.return_address).addr() as u64
    }
}
