//! Registers of a stopped thread.

use libc::user_regs_struct;

/// The general registers of a stopped thread, as the kernel hands them over.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Registers(user_regs_struct);

impl Registers {
    /// Returns the address at which the thread goes on.
    pub fn program_counter(&self) -> u64 {
        self.0.pc
    }

    /// Returns the stack pointer.
    pub fn stack_pointer(&self) -> u64 {
        self.0.sp
    }

    /// Returns the stack pointer: the address of the C library's description of the thread is in no general register
    /// here, so the stack alone is looked at.
    pub fn thread_pointer(&self) -> u64 {
        self.0.sp
    }
}

/// Returns `None`: nothing is known of the first argument of a system call that the stop has ended with EINTR, since
/// its register holds the result.
pub fn restart(_registers: Registers) -> Option<Registers> {
    None
}
