//! Registers of a stopped thread.

/// The general registers of a stopped thread: those from `x0` to `x30`, the stack pointer, the program counter and the
/// flags. Nothing is known of the first argument of a system call that the stop has ended with EINTR, since its register
/// holds the result. So no call is restarted.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct Registers([u64; 34]);

impl crate::arch::Registers for Registers {
    fn program_counter(&self) -> u64 {
        self.0[32]
    }

    fn stack_pointer(&self) -> u64 {
        self.0[31]
    }
}
