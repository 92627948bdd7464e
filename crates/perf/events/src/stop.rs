//! Ending a session from elsewhere.

use crate::owner::Owner;
use crate::sys;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A handle that ends a session's run. Clones end the same session.
#[derive(Clone, Debug)]
pub struct StopHandle(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    requested: AtomicBool,
    wake: OwnedFd,
    /// The process whose session it ends: forked children share `wake` with it, but not `requested`.
    owner: Owner,
}

impl StopHandle {
    pub(crate) fn new() -> io::Result<StopHandle> {
        Ok(StopHandle(Arc::new(Shared {
            requested: AtomicBool::new(false),
            wake: sys::eventfd()?,
            owner: Owner::this_process(),
        })))
    }

    /// Asks the session to end its run, without waiting for it. Legal before the run, which then ends at once; any
    /// number of calls count as one. Safe to call in a signal handler. Does nothing in a process forked from the one
    /// that made the session.
    pub fn stop(&self) {
        if !self.0.owner.is_this_process() {
            return;
        }
        self.0.requested.store(true, Ordering::Release);
        sys::eventfd_signal(self.fd());
    }

    /// Returns true if a stop was asked for and not yet obeyed.
    pub fn is_requested(&self) -> bool {
        self.0.requested.load(Ordering::Acquire)
    }

    /// Takes back a wakeup that no stop asked for, so that waiting does not end at once for ever.
    pub(crate) fn forget_wakeup(&self) {
        sys::eventfd_clear(self.fd());
    }

    /// Takes the request back, and returns true if there was one. The handle can be used again afterwards.
    pub(crate) fn take(&self) -> bool {
        let requested = self.0.requested.swap(false, Ordering::AcqRel);
        if requested {
            sys::eventfd_clear(self.fd());
        }
        requested
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.wake.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether a wait on the handle would end at once.
    fn is_ready(handle: &StopHandle) -> bool {
        let mut fds = [libc::pollfd {
            fd: std::os::fd::AsRawFd::as_raw_fd(&handle.fd()),
            events: libc::POLLIN,
            revents: 0,
        }];
        sys::poll(&mut fds, std::time::Duration::ZERO).expect("poll") > 0
    }

    #[test]
    fn a_forked_childs_stop_wakes_nobody() {
        let handle = StopHandle::new().expect("an eventfd");
        // SAFETY: the child makes system calls only.
        let child = unsafe { libc::fork() };
        if child == 0 {
            handle.stop();
            // SAFETY: ends the child without destructors.
            unsafe { libc::_exit(0) };
        }
        // SAFETY: our own child; no status is asked for.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
        assert!(!is_ready(&handle));
        handle.stop();
        assert!(is_ready(&handle) && handle.take());
    }

    #[test]
    fn many_stops_are_one_and_leave_no_trace() {
        let handle = StopHandle::new().expect("an eventfd");
        assert!(!handle.take());
        handle.stop();
        handle.clone().stop();
        assert!(handle.is_requested());
        assert!(handle.take());
        assert!(!handle.take());
        assert!(!is_ready(&handle), "the wakeup was taken back");
    }
}
