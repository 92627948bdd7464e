//! What functions of compilers' making call.

use crate::cyg;
use crate::frame_address::frame_address;
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

/// Called by personality routines.
#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn _Unwind_GetCFA() {
    naked_asm!("mov x1, x30", "b {}", sym frame_address)
}

/// Called by functions compiled with `-pg`: their entries are patched, this does nothing.
#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn _mcount() {
    naked_asm!("ret")
}
