//! 64-bit Arm.

mod entry;
#[cfg(feature = "preload")]
mod exports;
mod thunk;

pub use entry::{
    EnterFrame, ExitFrame, ObserveFrame, add, block, block_offset, clock, enter_slow_address,
    exit_slow_address, jumps_to, observe_address, prepare, register_atfork, resumed_with,
    signal_set, syscall,
};
pub use thunk::{
    UNWINDER_WORDS, body, hook, is_there, is_thunk, is_within_swap, jumped_from, publish,
};
