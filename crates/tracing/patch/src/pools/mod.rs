//! Pools: the memory near a module that holds its hooks and thunks.
//!
//! [`thunks`] says which thunks are wanted, and [`hooks`] says what kinds of hooks there are. The processor's module
//! generates their code, and [`pool`] puts it together. [`pool_file`] makes an ELF file of the code, with [`unwinding`]
//! tables and sections, so that debuggers and unwinders see through thunks as through any function.

pub mod hooks;
pub mod pool;
pub mod pool_file;
pub mod thunks;
pub mod unwinding;
