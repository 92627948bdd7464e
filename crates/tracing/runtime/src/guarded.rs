//! Shadow stacks of the processor (x86: SHSTK, 64-bit Arm: GCS). The processor keeps return addresses a second time,
//! in memory that only calls and returns reach, and ends a program that returns elsewhere.
//!
//! Hooks exchange return addresses. Their fast paths keep both stacks alike, but their paths through the runtime do
//! not, and none has been tried on a processor with such stacks. So programs for which such a stack is switched on
//! are not traced.

use crate::arch;

/// The system call that asks for the state of the thread's shadow stack, and its argument:
/// `arch_prctl(ARCH_SHSTK_STATUS)`.
#[cfg(target_arch = "x86_64")]
const QUESTION: (i64, usize) = (libc::SYS_arch_prctl, 0x5005);
/// The system call that asks for the state of the thread's shadow stack, and its argument:
/// `prctl(PR_GET_SHADOW_STACK_STATUS)`.
#[cfg(target_arch = "aarch64")]
const QUESTION: (i64, usize) = (libc::SYS_prctl, 74);

/// The bit of the answer that says that the stack is switched on (`ARCH_SHSTK_SHSTK`, `PR_SHADOW_STACK_ENABLE`).
const IS_ON: u64 = 1;

/// Returns true if this thread's return addresses are guarded.
pub fn is_guarded() -> bool {
    let mut status = 0_u64;
    let (call, question) = QUESTION;
    let place = (&raw mut status).expose_provenance();
    // SAFETY: the kernel writes the answer, which outlives the call; older kernels refuse the question.
    let result = unsafe { arch::syscall(call, [question, place, 0, 0, 0, 0]) };
    says_guarded(result, status)
}

/// Returns true if the kernel's answer says that the shadow stack is switched on.
fn says_guarded(result: isize, status: u64) -> bool {
    result == 0 && status & IS_ON != 0
}

/// Refuses programs whose return addresses are guarded.
///
/// # Errors
/// The reason, for the user.
pub fn check() -> Result<(), &'static str> {
    match is_guarded() {
        true => Err(
            "the processor guards its return addresses (a shadow stack), which the tracer exchanges; switch that off, on x86-64 with GLIBC_TUNABLES=glibc.cpu.x86_shstk=off",
        ),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_stack_that_is_switched_on_guards() {
        assert!(says_guarded(0, 1) && says_guarded(0, 3));
        // Switched off, or switched on without the instructions that write to it; a kernel or a processor that knows
        // no such stacks.
        assert!(!says_guarded(0, 0) && !says_guarded(0, 2));
        for refusal in [libc::EINVAL, libc::ENOTSUP, libc::ENOSYS] {
            assert!(!says_guarded(-(refusal as isize), 1));
        }
    }
}
