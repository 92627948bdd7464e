//! Functions that compiler-instrumented code calls by name.

use crate::cyg;
use crate::frame_address::frame_address;
use core::arch::{asm, naked_asm};

/// Called by functions compiled with `-finstrument-functions`. The slots of calls that they make lie right below
/// their frames.
#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn __cyg_profile_func_enter() {
    naked_asm!("sub x2, sp, #8", "mov x3, x30", "b {}", sym cyg::enter)
}

/// Called by the same functions at their ends.
#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn __cyg_profile_func_exit() {
    naked_asm!(
        "sub x2, sp, #8",
        "mov x3, x30",
        "mov x4, x29",
        "b {}",
        sym cyg::exit
    )
}

/// Replaces the unwinder's function of this name, for personality routines.
#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn _Unwind_GetCFA() {
    naked_asm!("mov x1, x30", "b {}", sym frame_address)
}

/// Called by functions compiled with `-pg`. Their entries are patched, so this function does nothing.
#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn _mcount() {
    naked_asm!("ret")
}

/// Refers to a symbol that nobody defines. The panic handler calls this, and the build fails if the linker keeps the
/// reference, which means that something can panic.
#[inline(always)]
pub fn refer_to_panic_mark() {
    // SAFETY: loads what the dynamic linker has stored for a weak symbol: 0.
    unsafe {
        asm!(
            ".weak dioptra_can_panic",
            "adrp {0}, :got:dioptra_can_panic",
            "ldr {0}, [{0}, :got_lo12:dioptra_can_panic]",
            out(reg) _,
            options(nostack),
        );
    }
}
