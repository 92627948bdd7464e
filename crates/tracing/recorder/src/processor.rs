//! The processor of this machine.

use dioptra_trace_patch::{Arch, Code};
use dioptra_tracelayout::message::thread::THUNK_START;

#[cfg(target_arch = "aarch64")]
pub use dioptra_trace_patch::Aarch64 as Native;
#[cfg(target_arch = "x86_64")]
pub use dioptra_trace_patch::X86_64 as Native;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("tracing functions is known for x86-64 and 64-bit Arm only");

/// The first instructions of a function of this machine.
pub type Prologue = <Native as Code>::Prologue;
/// The registers of a stopped thread of this machine.
pub type Registers = <Native as Arch>::Registers;

const _: () = assert!(size_of::<Registers>() == size_of::<libc::user_regs_struct>());
// The runtime finds a thunk's parts from the address to which hooks return.
const _: () = assert!(THUNK_START == -Native::HOOK_RETURN);

/// Reads the clock of records: the time stamp counter.
#[cfg(target_arch = "x86_64")]
pub fn ticks() -> u64 {
    // SAFETY: the instruction exists on all x86-64 processors.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Returns `None`: the counter ticks often enough for short calls.
#[cfg(target_arch = "x86_64")]
pub fn frequency() -> Option<u64> {
    None
}

/// Reads the clock of records: the counter of the system's timer.
#[cfg(target_arch = "aarch64")]
pub fn ticks() -> u64 {
    let ticks: u64;
    // SAFETY: the kernel lets all programs read the counter.
    unsafe {
        std::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack, preserves_flags));
    }
    ticks
}

/// Returns the counter's rate in ticks per second, which may be too low for short calls.
#[cfg(target_arch = "aarch64")]
pub fn frequency() -> Option<u64> {
    let frequency: u64;
    // SAFETY: the kernel lets all programs read the rate.
    unsafe {
        std::arch::asm!("mrs {}, cntfrq_el0", out(reg) frequency, options(nomem, nostack, preserves_flags));
    }
    Some(frequency)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_calls_have_the_numbers_of_this_machine() {
        let numbers = [libc::SYS_clone, libc::SYS_prctl, libc::SYS_seccomp];
        assert!(
            Native::SYSTEM_CALLS
                .iter()
                .map(|&number| i64::from(number))
                .eq(numbers)
        );
    }
}
