//! Ending a session from elsewhere.

use crate::sys;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Ends a session's run. Clones end the same session.
#[derive(Clone, Debug)]
pub struct StopHandle(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    requested: AtomicBool,
    wake: OwnedFd,
}

impl StopHandle {
    pub(crate) fn new() -> io::Result<StopHandle> {
        Ok(StopHandle(Arc::new(Shared {
            requested: AtomicBool::new(false),
            wake: sys::eventfd()?,
        })))
    }

    /// Asks the session to end its run, without waiting for it. Legal before the run, which then ends at once; any
    /// number of calls count as one. Safe to call in a signal handler.
    pub fn stop(&self) {
        self.0.requested.store(true, Ordering::Release);
        sys::eventfd_signal(self.fd());
    }

    /// Whether a stop was asked for and not yet obeyed.
    pub fn is_requested(&self) -> bool {
        self.0.requested.load(Ordering::Acquire)
    }

    /// Obeys: whether a stop was asked for. The handle can be used again afterwards.
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

    #[test]
    fn many_stops_are_one_and_leave_no_trace() {
        let handle = StopHandle::new().expect("an eventfd");
        assert!(!handle.take());
        handle.stop();
        handle.clone().stop();
        assert!(handle.is_requested());
        assert!(handle.take());
        assert!(!handle.take());
        let mut fds = [libc::pollfd {
            fd: std::os::fd::AsRawFd::as_raw_fd(&handle.fd()),
            events: libc::POLLIN,
            revents: 0,
        }];
        let ready = sys::poll(&mut fds, std::time::Duration::ZERO).expect("poll");
        assert_eq!(ready, 0, "the wakeup was taken back");
    }
}
