//! Code for 64-bit Arm: hooks, thunks, displaced prologues, and the files they come in.
//!
//! The modules that only make code are also built for tests on other machines.

#![cfg_attr(not(target_arch = "aarch64"), allow(dead_code))]

pub mod cfi;
pub mod displace;
pub mod encode;
pub mod hot;
pub mod instructions;
pub mod thunk;

#[cfg(test)]
mod tests;

#[cfg(target_arch = "aarch64")]
mod described;
#[cfg(target_arch = "aarch64")]
mod flow;
#[cfg(target_arch = "aarch64")]
pub mod imports;
#[cfg(target_arch = "aarch64")]
pub mod library;
#[cfg(target_arch = "aarch64")]
pub mod pool;
#[cfg(target_arch = "aarch64")]
pub mod registers;
#[cfg(target_arch = "aarch64")]
pub mod scan;
#[cfg(target_arch = "aarch64")]
pub mod stubs;

/// The size of the branch that takes the place of a function's first instruction.
pub const JUMP: usize = 4;

/// Whether hooks record values of calls.
pub const RECORDS_VALUES: bool = false;

/// An address behind all addresses of programs that do not ask for higher ones.
pub const HIGHEST: u64 = 1 << 48;

/// The reach of a branch in bytes, with room to spare.
pub const REACH: u64 = 0x07f0_0000;

/// Reads the counter of the system's timer.
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

/// Returns no functions. Functions that call nothing are not looked for on this processor, where the runtime counts
/// sampled calls itself.
#[cfg(target_arch = "aarch64")]
pub fn leaves<'c>(
    _: &[u8],
    _: impl Iterator<Item = &'c crate::analysis::candidates::Candidate>,
) -> std::collections::HashSet<u64> {
    std::collections::HashSet::new()
}
