//! Registers of a stopped thread.

use libc::user_regs_struct;

/// The general registers of a stopped thread, as the kernel hands them over.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Registers(user_regs_struct);

impl Registers {
    /// Where the thread goes on.
    pub fn program_counter(&self) -> u64 {
        self.0.pc
    }

    /// The stack pointer.
    pub fn stack_pointer(&self) -> u64 {
        self.0.sp
    }

    /// The address of the C library's description of the thread, which is no general register here: the stack alone is
    /// looked at.
    pub fn thread_pointer(&self) -> u64 {
        self.0.sp
    }
}

/// The registers with which a system call begins again that the stop has ended with EINTR: nothing is known of its first
/// argument any more, whose register holds the result.
pub fn restart(_registers: Registers) -> Option<Registers> {
    None
}
