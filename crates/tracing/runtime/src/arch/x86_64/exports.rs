//! Functions that compiler-instrumented code calls by name.

use crate::cyg;
use crate::frame_address::frame_address;
use core::arch::{asm, naked_asm};

/// Called by functions compiled with `-finstrument-functions`.
#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn __cyg_profile_func_enter() {
    naked_asm!("mov rdx, rsp", "mov rcx, [rsp]", "jmp {}", sym cyg::enter)
}

/// Called by the same functions at their ends.
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

/// Replaces the unwinder's function of this name, for personality routines.
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

/// Refers to a symbol that nobody defines. The panic handler calls this, and the build fails if the linker keeps the
/// reference, which means that something can panic.
#[inline(always)]
pub fn refer_to_panic_mark() {
    // SAFETY: loads what the dynamic linker has stored for a weak symbol: 0.
    unsafe {
        asm!(
            ".weak dioptra_can_panic",
            "mov {}, qword ptr [rip + dioptra_can_panic@GOTPCREL]",
            out(reg) _,
            options(nostack),
        );
    }
}
