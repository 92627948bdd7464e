//! What functions of compilers' making call.

use crate::cyg;
use core::arch::naked_asm;

/// Called by functions compiled with `-finstrument-functions`. What they call has its slot right below their frames.
#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn __cyg_profile_func_enter() {
    naked_asm!("sub x2, sp, #8", "mov x3, x30", "b {}", sym cyg::enter)
}

/// The same, at their ends.
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

/// Called by functions compiled with `-pg`: their entries are patched, this does nothing.
#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn _mcount() {
    naked_asm!("ret")
}
