//! x86-64.

mod entry;

pub use entry::{
    EnterFrame, ExitFrame, ObserveFrame, block, block_offset, clock, enter_slow_address,
    exit_slow_address, jumps_to, observe_address, prepare, register_atfork, resumed_with, syscall,
};
