//! The shared object that is preloaded into a traced program.
//!
//! When it is loaded, it connects to its recorder ([`connect`]), maps the arena that receives the records, and
//! carries out the recorder's steps: load a pool of thunks for a module, write patches. It makes no plan of its own
//! and knows nothing of ELF files, symbols and disassembly.
//!
//! ```text
//! probe site ─▶ thunk in a pool ─▶ hook of the entry ─▶ body of the function ─▶ hook of the exit ─▶ caller
//!                                  record, push entry                           record, pop entry
//!                                         └──── slow::enter                            └──── slow::exit
//! ```
//!
//! The recorder has generated the code of the hooks. They write records, and keep the return address on a *shadow
//! stack*. Calls that they can't handle come here ([`slow`]): a thread's first call, a full chunk, a forked child,
//! stacks that were cut by `longjmp` or exceptions or exchanged by coroutines.
//!
//! Generated code counts calls of sampled functions in memory that the recorder reads ([`sampling`]). Only a thread's
//! first such call, and the ends of gaps that are drawn at random, come here.
//!
//! Everything here may run inside any function of the program, `malloc` and signal handlers included. So the crate
//! has no allocation, no locks, no panics, no thread-local variables but its own, and calls only those functions of
//! the C library that [`libc_calls`] names.
//!
//! The build script of `dioptra-trace-recorder` builds the shared object with the feature `preload`. Without that the
//! crate is an ordinary one that is only checked.

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
pub mod unload;
pub mod unwind;
pub mod values;

#[cfg(feature = "preload")]
mod preload;
