//! What functions of compilers' making call.

use crate::cyg;
use crate::frame_address::frame_address;
use core::arch::naked_asm;

/// Called by functions compiled with `-finstrument-functions`.
#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn __cyg_profile_func_enter() {
    naked_asm!("mov rdx, rsp", "mov rcx, [rsp]", "jmp {}", sym cyg::enter)
}

/// The same, at their ends.
#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn __cyg_profile_func_exit() {
    naked_asm!(
        "mov rdx, rsp",
        "mov rcx, [rsp]",
        "mov r8, rbp",
        "jmp {}",
        sym cyg::exit
    )
}

/// Called by functions compiled with `-pg -mfentry` that are not patched.
#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn __fentry__() {
    naked_asm!("ret")
}

/// Called by personality routines.
#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn _Unwind_GetCFA() {
    naked_asm!("mov rsi, [rsp]", "jmp {}", sym frame_address)
}

/// Called by functions compiled with `-pg` that are not patched.
#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn mcount() {
    naked_asm!("ret")
}
