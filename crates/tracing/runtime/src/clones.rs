//! Tasks that share their creator's thread-local memory: `clone` with `CLONE_VM` and without `CLONE_SETTLS`.
//!
//! A task and its creator run at once, and the hooks of both would write to one record. So neither is recorded any
//! more, from just before the task is made.

use crate::confined;
use crate::session::MappedArena;
use crate::shadow::{self, ThreadBlock};
use crate::sys;
use dioptra_tracelayout::message::Observed;

/// Returns true if a `clone` with these flags makes a task that runs beside its creator with the same thread-local
/// memory.
fn shares_block(flags: u64) -> bool {
    let is_set = |flag: i32| flags & flag as u64 != 0;
    // The creator of a `vfork` waits for the child, so the two do not run at once.
    is_set(libc::CLONE_VM) && !is_set(libc::CLONE_SETTLS) && !is_set(libc::CLONE_VFORK)
}

/// Examines a call of a function that may make a task, before the function does its work.
pub fn observe(
    block: &mut ThreadBlock,
    arena: MappedArena,
    function: Observed,
    arguments: [u64; 4],
) {
    let flags = match function {
        // `clone(function, stack, flags, …)`.
        Observed::Clone => arguments[2],
        Observed::Syscall if arguments[0] as i64 == libc::SYS_clone => arguments[1],
        _ => return,
    };
    if !shares_block(flags) || block.busy == shadow::OWN_WORK || confined::is_quiet() {
        return;
    }
    arena.header().sharing.happens(sys::pid());
    if block.busy == 0 {
        // For good, because the runtime does not learn when the other task ends.
        block.busy = shadow::OWN_WORK;
    } else {
        // A handler has interrupted a hook. That hook will reset `busy` when it has finished.
        confined::be_quiet(block, arena);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tasks_that_run_beside_their_creators_share_their_memory() {
        let shares = |flags: i32| shares_block(flags as u64);
        assert!(shares(libc::CLONE_VM | libc::SIGCHLD));
        assert!(shares(
            libc::CLONE_VM | libc::CLONE_FS | libc::CLONE_UNTRACED
        ));
        assert!(!shares(libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD));
        assert!(!shares(
            libc::CLONE_VM | libc::CLONE_THREAD | libc::CLONE_SETTLS
        ));
        assert!(!shares(libc::CLONE_NEWNS | libc::SIGCHLD));
    }
}
