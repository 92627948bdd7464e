//! x86-64.

mod entry;

pub use entry::{
    EnterFrame, ExitFrame, ObserveFrame, block, block_offset, clock, cyg_enter_address,
    cyg_exit_address, enter_slow_address, exit_slow_address, observe_address, prepare,
    resumed_with, syscall,
};
