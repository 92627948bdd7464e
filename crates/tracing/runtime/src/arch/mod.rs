//! The parts that depend on the processor: the routines that lead from generated code into this crate, the structure
//! of thunks, the thread's block, and system calls. The modules of all processors have the same names.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "aarch64")]
pub use aarch64::*;

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub use x86_64::*;
