//! Registers of a stopped thread.

/// The general registers of a stopped thread, in the order of the kernel's `user_regs_struct`.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct Registers([u64; 27]);

const RAX: usize = 10;
/// The number of the system call that the thread was in.
const SYSTEM_CALL: usize = 15;
const RIP: usize = 16;
const RSP: usize = 19;
const FS_BASE: usize = 21;

/// The error number of a system call that a signal has interrupted.
const EINTR: i64 = 4;

/// The kernel's own error number for system calls that begin again unless a signal handler is called. Programs never
/// see it.
const RESTART_WITHOUT_HANDLER: i64 = 514;

/// System calls that end with EINTR when a thread is stopped (`signal(7)`, "Interruption of system calls by stop
/// signals"), and have done nothing then.
const RESTARTED: [u64; 17] = [
    // `epoll_wait`, `epoll_pwait` and `epoll_pwait2`.
    232, 281, 441, // `rt_sigtimedwait`, `semop` and `semtimedop`.
    128, 65, 220, // `io_getevents`, `io_pgetevents` and `io_uring_enter`.
    208, 333, 426,
    // Calls on sockets with a time limit: `accept`, `accept4`, `connect`, `recvfrom`, `recvmsg`, `sendto`, `sendmsg` and
    // `read`.
    43, 288, 42, 45, 47, 44, 46, 0,
];

impl crate::arch::Registers for Registers {
    fn program_counter(&self) -> u64 {
        self.0[RIP]
    }

    fn stack_pointer(&self) -> u64 {
        self.0[RSP]
    }

    fn thread_pointer(&self) -> u64 {
        self.0[FS_BASE]
    }

    /// The kernel decides when the thread goes on: if a signal handler is called then, the call ends with EINTR after
    /// all.
    fn restart(mut self) -> Option<Registers> {
        let is_interrupted = self.0[RAX].cast_signed() == -EINTR;
        if !is_interrupted || !RESTARTED.contains(&self.0[SYSTEM_CALL]) {
            return None;
        }
        self.0[RAX] = (-RESTART_WITHOUT_HANDLER).cast_unsigned();
        Some(self)
    }
}
