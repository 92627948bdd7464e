//! What depends on the processor: the ways from generated code into this crate, what thunks look like, the thread's block,
//! system calls. Each processor's module has the same names.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "aarch64")]
pub use aarch64::*;

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub use x86_64::*;
