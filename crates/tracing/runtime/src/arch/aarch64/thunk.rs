//! What the runtime reads of thunks.
//!
//! A thunk is eight instructions (`dioptra_recorder::trace`): the hook of the entry returns to the third, the call of the
//! body; the body to the fourth, the call of the hook of the exit; the seventh jumps to the body.

use core::arch::asm;
use core::ptr;

/// How many words of an unwinder's context may hold the frame's address: it has as many registers as DWARF has numbers for
/// (libgcc: 98), and then it.
pub const UNWINDER_WORDS: usize = 104;

/// From where the hook of an entry returns to, to the jump to the body.
const TO_JUMP: u64 = 16;

/// Where a call goes on as if there had been no thunk.
///
/// # Safety
/// A hook of an entry returns to `thunk`.
pub unsafe fn body(thunk: u64) -> u64 {
    // A direct branch: code that guards its targets wants no other at the body.
    thunk + TO_JUMP
}

/// The hook that returns to `thunk`.
///
/// # Safety
/// It is one of a thunk's.
pub unsafe fn hook(thunk: u64) -> u64 {
    let place = ptr::with_exposed_provenance::<u32>((thunk - 4) as usize);
    // SAFETY: the caller's promise: the call of the hook.
    let call = unsafe { place.read() };
    // 26 bits of instructions.
    let distance = i64::from((call << 6).cast_signed()) >> 4;
    (thunk - 4).wrapping_add_signed(distance)
}

/// Whether an address is where a thunk's body returns to; `peek` reads at a distance from it.
pub fn is_thunk(peek: impl Fn(u64) -> Option<u64>) -> bool {
    // Behind the call of the hook of the exit: `mov x30, x17`, `ret`.
    peek(4).is_some_and(|word| word == 0xd65f_03c0_aa11_03fe)
}

/// Whether a call that seems to be gone may come back: return addresses have no known place on the stack, so nothing tells
/// that it can't.
pub fn is_there(_slot: u64) -> bool {
    true
}

/// Whether an address is within the C library's `swapcontext` that calls `setcontext`.
pub fn is_within_swap(address: u64) -> bool {
    unsafe extern "C" {
        fn swapcontext();
    }
    /// No more bytes of instructions than these.
    const SIZE: u64 = 512;
    address.wrapping_sub(swapcontext as *const () as u64) < SIZE
}

/// Lets all see code that was written: instructions and data have caches of their own.
pub fn publish(address: u64, size: u64) {
    let sizes: u64;
    // SAFETY: caches are brought up to date; nothing else changes.
    unsafe {
        asm!("mrs {}, ctr_el0", out(reg) sizes, options(nomem, nostack, preserves_flags));
        let data = 4_u64 << (sizes >> 16 & 15);
        let instructions = 4_u64 << (sizes & 15);
        let mut at = address & !(data - 1);
        while at < address + size {
            asm!("dc cvau, {}", in(reg) at, options(nostack, preserves_flags));
            at += data;
        }
        asm!("dsb ish", options(nostack, preserves_flags));
        let mut at = address & !(instructions - 1);
        while at < address + size {
            asm!("ic ivau, {}", in(reg) at, options(nostack, preserves_flags));
            at += instructions;
        }
        asm!("dsb ish", "isb", options(nostack, preserves_flags));
    }
}

/// Where the return address lies of a function that ended in a jump to a hook of a compiler's making, whose stack pointer
/// is `stack`, if it still lies on the stack.
pub fn jumped_from(_stack: u64) -> Option<u64> {
    None
}
