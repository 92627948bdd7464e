//! What depends on the processor: the ways from generated code into this crate, the thread's block, system calls.

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub use x86_64::*;
