//! Code that depends on the processor. Each processor's module has the same names:
//!
//! - `scan` finds the functions of a file and the places where their calls can be traced. `hooks` finds the functions
//!   of the C library that the runtime has to know of. `stubs` finds the stubs of the procedure linkage table.
//! - `pool` makes the file with hooks, thunks and unwind tables, which is not larger than `upper_bound`. `Prologue`
//!   holds the instructions of a function that move there.
//! - `patch` returns the bytes for a probe site, which overwrite at least `JUMP` bytes. `ImportSite` is a call through
//!   a pointer.
//! - `RECORDS_VALUES` says whether hooks record values of calls.
//! - `leaves` finds functions that call nothing.
//! - `is_one_instruction` says whether overwritten bytes are one instruction, `is_nothing` whether instructions do
//!   nothing, and `is_whole` whether either is true. `ROOM` names the compiler options that leave room for a patch.
//!   `SEES_AT_ONCE` says whether an instruction may be overwritten while threads run.
//! - `Registers` holds the registers of a stopped thread. `restart` returns those with which an interrupted system call
//!   begins again.
//! - `REACH` is the reach of a branch, and `HIGHEST` lies behind all addresses. `ticks` reads the clock of records.
//!   `frequency` returns the clock's rate if it may be too low for short calls.

#[cfg(any(test, target_arch = "aarch64"))]
pub mod aarch64;
#[cfg(target_arch = "x86_64")]
pub mod x86_64;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("tracing functions is known for x86-64 and 64-bit Arm only");

#[cfg(target_arch = "aarch64")]
pub use aarch64::{
    HIGHEST, JUMP, REACH, RECORDS_VALUES, displace::Prologue, frequency, imports::ImportSite,
    instructions::ROOM, instructions::SEES_AT_ONCE, instructions::is_nothing,
    instructions::is_one_instruction, instructions::is_whole, leaves, library::hooks,
    pool::PoolError, pool::pool, pool::upper_bound, registers::Registers, registers::restart,
    scan::scan, stubs::stubs, thunk::patch, ticks,
};
#[cfg(target_arch = "x86_64")]
pub use x86_64::{
    HIGHEST, REACH, RECORDS_VALUES, displace::JUMP, displace::Prologue, frequency,
    imports::ImportSite, instructions::ROOM, instructions::SEES_AT_ONCE, instructions::is_nothing,
    instructions::is_one_instruction, instructions::is_whole, leaves::leaves, library::hooks,
    pool::PoolError, pool::pool, pool::upper_bound, registers::Registers, registers::restart,
    scan::scan, stubs::stubs, thunk::patch, ticks,
};
