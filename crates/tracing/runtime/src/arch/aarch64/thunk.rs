//! The structure of thunks, as far as the runtime reads it.
//!
//! A thunk has eight words, which the trace recorder generates:
//!
//! ```text
//! 1  mov x17, x30                       the return address
//! 2  call of the hook of the entry
//! 3  call of the body                   <- the hook of the entry returns to it
//! 4  call of the hook of the exit       <- the body returns to it
//! 5  mov x30, x17
//! 6  ret
//! 7  jump to the body                   <- for calls that are not traced
//! 8  operand: the function id
//! ```

use core::arch::asm;
use core::ptr;

/// The number of words of an unwinder's context that may hold the frame's address: as many registers as DWARF has
/// numbers for (libgcc: 98), and then the address.
pub const UNWINDER_WORDS: usize = 104;

/// The offset of the jump to the body from the address to which the hook of the entry returns.
const TO_JUMP: u64 = 16;

/// Returns the address at which a call goes on as if there had been no thunk.
///
/// # Safety
/// A hook of an entry returns to `thunk`.
pub unsafe fn body(thunk: u64) -> u64 {
    // A direct branch, because code that guards its targets accepts no other at the body.
    thunk + TO_JUMP
}

/// Returns the address of the hook that returns to `thunk`.
///
/// # Safety
/// A hook returns to `thunk`.
pub unsafe fn hook(thunk: u64) -> u64 {
    let place = ptr::with_exposed_provenance::<u32>((thunk - 4) as usize);
    // SAFETY: the caller's promise: the call of the hook.
    let call = unsafe { place.read() };
    // 26 bits, which count instructions.
    let distance = i64::from((call << 6).cast_signed()) >> 4;
    (thunk - 4).wrapping_add_signed(distance)
}

/// Returns true if an address is the one to which a thunk's body returns; `peek` reads at an offset from it.
pub fn is_thunk(peek: impl Fn(u64) -> Option<u64>) -> bool {
    // Behind the call of the hook of the exit: `mov x30, x17`, `ret`.
    peek(4).is_some_and(|word| word == 0xd65f_03c0_aa11_03fe)
}

/// Returns true if a call that seems to be gone may come back. Return addresses have no known position on the stack
/// here, so every call may.
pub fn is_there(_slot: u64) -> bool {
    true
}

/// Returns true if an address lies in the C library's `swapcontext`, which calls `setcontext`.
pub fn is_within_swap(address: u64) -> bool {
    unsafe extern "C" {
        fn swapcontext();
    }
    /// An upper bound of the size of `swapcontext` in bytes.
    const SIZE: u64 = 512;
    address.wrapping_sub(swapcontext as *const () as u64) < SIZE
}

/// Makes written code visible to all threads: instructions and data have separate caches.
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

/// Returns the address of the return address of a function that ended in a jump to a compiler-made hook, if it still
/// lies on the stack; `stack` is the stack pointer.
pub fn jumped_from(_stack: u64) -> Option<u64> {
    None
}
