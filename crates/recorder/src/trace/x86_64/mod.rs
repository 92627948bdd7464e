//! Code for x86-64: hooks, thunks, displaced prologues, and the files they come in.

pub mod cfi;
pub mod displace;
pub mod hot;
pub mod pool;
pub mod scan;
pub mod thunk;
