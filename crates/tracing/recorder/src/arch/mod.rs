//! What depends on the processor. Each processor's module has the same names:
//!
//! - `scan` finds the functions of a file and where their calls can be traced, `hooks` those functions of the C library that
//!   the runtime has to know of, `stubs` the stubs of the procedure linkage table;
//! - `pool` makes the file with hooks, thunks and unwind tables, not larger than `upper_bound`; `Prologue` is what of a
//!   function is moved there;
//! - `patch` is what is written at a site, in the place of `JUMP` bytes at least, and `ImportSite` a call through a pointer;
//! - `leaves` finds functions that call nothing;
//! - `is_whole` says whether what is overwritten is one instruction, `is_nothing` whether it does nothing, and `ROOM` which
//!   options of compilers see to it; `is_one_instruction` is the former in the strict sense, and
//!   `SEES_AT_ONCE` whether one may be overwritten while threads run;
//! - `Registers` are a stopped thread's, and `restart` says how a system call that was interrupted begins again;
//! - `REACH` is how far a branch reaches, `HIGHEST` lies behind all addresses, `ticks` reads the clock of records, whose
//!   `frequency` may be low.

#[cfg(any(test, target_arch = "aarch64"))]
pub mod aarch64;
#[cfg(target_arch = "x86_64")]
pub mod x86_64;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("tracing functions is known for x86-64 and 64-bit Arm only");

#[cfg(target_arch = "aarch64")]
pub use aarch64::{
    HIGHEST, JUMP, REACH, displace::Prologue, frequency, imports::ImportSite, instructions::ROOM,
    instructions::SEES_AT_ONCE, instructions::is_nothing, instructions::is_one_instruction,
    instructions::is_whole, leaves, library::hooks, pool::PoolError, pool::pool, pool::upper_bound,
    registers::Registers, registers::restart, scan::scan, stubs::stubs, thunk::patch, ticks,
};
#[cfg(target_arch = "x86_64")]
pub use x86_64::{
    HIGHEST, REACH, displace::JUMP, displace::Prologue, frequency, imports::ImportSite,
    instructions::ROOM, instructions::SEES_AT_ONCE, instructions::is_nothing,
    instructions::is_one_instruction, instructions::is_whole, leaves::leaves, library::hooks,
    pool::PoolError, pool::pool, pool::upper_bound, registers::Registers, registers::restart,
    scan::scan, stubs::stubs, thunk::patch, ticks,
};
