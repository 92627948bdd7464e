//! Code for x86-64: hooks, thunks, displaced prologues, and the files they come in.

pub mod cfi;
pub mod count;
pub mod described;
pub mod displace;
pub mod flow;
pub mod frame_pointer;
pub mod framed;
pub mod hot;
pub mod imports;
pub mod instructions;
pub mod judge;
pub mod leaves;
pub mod library;
pub mod loads;
pub mod marks;
pub mod pool;
pub mod registers;
pub mod scan;
pub mod stubs;
pub mod thunk;
pub mod work;

/// Whether hooks record values of calls.
pub const RECORDS_VALUES: bool = true;

/// An address behind all addresses of programs.
pub const HIGHEST: u64 = 1 << 47;

/// The reach of a branch in bytes, with room to spare.
pub const REACH: u64 = 0x7000_0000;

/// Reads the time stamp counter.
pub fn ticks() -> u64 {
    // SAFETY: the instruction exists on all x86-64 processors.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Returns `None`: the counter ticks often enough for short calls.
pub fn frequency() -> Option<u64> {
    None
}
