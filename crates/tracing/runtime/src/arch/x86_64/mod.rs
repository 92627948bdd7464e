//! x86-64.

mod entry;
#[cfg(feature = "preload")]
mod exports;
mod thunk;

#[cfg(feature = "preload")]
pub use exports::refer_to_panic_mark;

pub use entry::{
    EnterFrame, ExitFrame, ObserveFrame, add, block, block_offset, clock, enter_slow_address,
    exit_slow_address, jumps_to, linker_debug, observe_address, prepare, register_atfork,
    resumed_with, signal_set, syscall,
};
pub use thunk::{
    UNWINDER_WORDS, body, hook, is_there, is_thunk, is_within_swap, jumped_from, publish,
};
