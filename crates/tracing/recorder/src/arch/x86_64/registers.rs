//! Registers of a stopped thread.

use libc::user_regs_struct;

/// The general registers of a stopped thread, as the kernel hands them over.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Registers(user_regs_struct);

impl Registers {
    /// Returns the address at which the thread goes on.
    pub fn program_counter(&self) -> u64 {
        self.0.rip
    }

    /// Returns the stack pointer.
    pub fn stack_pointer(&self) -> u64 {
        self.0.rsp
    }

    /// Returns the address of the C library's description of the thread.
    pub fn thread_pointer(&self) -> u64 {
        self.0.fs_base
    }
}

/// The kernel's own error number for system calls that begin again unless a signal handler is called. Programs never
/// see it.
const RESTART_WITHOUT_HANDLER: i64 = 514;

/// System calls that end with EINTR when a thread is stopped (`signal(7)`, "Interruption of system calls by stop
/// signals"), and have done nothing then.
const RESTARTED: [i64; 17] = [
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_io_getevents,
    // `io_pgetevents`.
    333,
    libc::SYS_io_uring_enter,
    // Calls on sockets with a time limit.
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_read,
];

/// Returns the registers with which a system call begins again that the stop has ended with EINTR; `None` if the stop
/// has not done so.
///
/// The kernel decides when the thread goes on: if a signal handler is called then, the call ends with EINTR after all.
pub fn restart(mut registers: Registers) -> Option<Registers> {
    let number = registers.0.orig_rax.cast_signed();
    let result = registers.0.rax.cast_signed();
    let is_interrupted = result == -i64::from(libc::EINTR);
    if !is_interrupted || !RESTARTED.contains(&number) {
        return None;
    }
    registers.0.rax = (-RESTART_WITHOUT_HANDLER).cast_unsigned();
    Some(registers)
}
