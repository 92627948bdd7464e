//! The shared object that is preloaded into a traced program.
//!
//! When it is loaded it connects to its recorder ([`connect`]), maps the arena in which records go, and does what the
//! recorder says: load a pool of thunks for a module, write patches. It makes no plan of its own and knows nothing of
//! ELF files, symbols and disassembly.
//!
//! A call of a traced function then runs through a thunk of the pool and two hooks, whose code the recorder has generated
//! (`dioptra_trace_recorder`): they write records, and keep the return address on a *shadow stack*. What they can't do
//! by themselves comes here ([`slow`]): a thread's first call, a full chunk, a forked child, stacks that were cut by
//! `longjmp` or exceptions or exchanged by coroutines.
//!
//! Calls of sampled functions are counted by generated code, in memory that the recorder reads ([`sampling`]); only the
//! first one of a thread, and the ends of gaps that are drawn at random, come here.
//!
//! Everything here may run inside any function of the program, `malloc` and signal handlers included: no allocation, no
//! locks, no panics, no thread-local variables but its own, and of the C library only what is named in [`libc_calls`].
//!
//! It is built as a shared object by the build script of `dioptra-trace-recorder`, with the feature `preload`; without that it
//! is an ordinary crate that is only checked.

#![no_std]
#![cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]

#[cfg(test)]
extern crate std;

pub mod arch;
pub mod chunks;
pub mod clones;
pub mod confined;
pub mod connect;
pub mod cyg;
pub mod debuggers;
pub mod exec;
pub mod frame_address;
pub mod guarded;
pub mod interrupted;
pub mod judged;
pub mod libc_calls;
pub mod linker;
mod loadable;
pub mod observe;
pub mod parked;
pub mod sampling;
pub mod segments;
pub mod session;
pub mod shadow;
pub mod slow;
pub mod socket;
pub mod switch;
pub mod sys;
pub mod tell;
#[cfg(test)]
mod testing;
pub mod thread;
pub mod unwind;

#[cfg(feature = "preload")]
mod preload;
