//! Frames and call stacks: interned locations, and the prefix tree of the stacks that samples had.
//!
//! A stack comes from the call chain of a sample ([`chain`]), from the CPU's own stack of calls ([`lbr`]), or from a
//! copy of the user stack ([`unwinding`]).

pub(crate) mod call_stacks;
pub(crate) mod chain;
pub(crate) mod frames;
pub(crate) mod kernel_entry;
pub(crate) mod lbr;
pub(crate) mod slots;
pub(crate) mod unwinding;
pub(crate) mod walks;
