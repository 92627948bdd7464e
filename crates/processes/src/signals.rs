//! Signals as things to read, so that one loop waits for them and for the rings.
//!
//! While a [`Signals`] lives, its signals are blocked in the thread that made it (and in threads started later): make
//! it before any thread. They are read from a descriptor that can be polled.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::time::Duration;

/// Signals that end or steer a recording.
const WATCHED: [i32; 5] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGCHLD,
];

/// A signal that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Its number.
    pub signal: i32,
    /// Whether the kernel sent it, as for a Ctrl-C: then the terminal's whole foreground process group got it. One
    /// sent by a process may have been meant for us alone.
    pub from_kernel: bool,
}

impl Received {
    /// Whether it asks for the end of the recording.
    pub fn ends_recording(self) -> bool {
        self.signal != libc::SIGCHLD
    }
}

/// The descriptor that signals are read from, and what was in force before.
#[derive(Debug)]
pub struct Signals {
    file: File,
    before: libc::sigset_t,
    set: libc::sigset_t,
}

impl Signals {
    /// Blocks SIGINT, SIGTERM, SIGHUP, SIGQUIT and SIGCHLD in this thread and makes them readable. SIGXFSZ is ignored from
    /// now on.
    ///
    /// SIGHUP stays ignored if it was when we were started, as by `nohup`. SIGINT does not: shells without job control
    /// start background jobs so, whose recording `kill -INT` must end nevertheless.
    ///
    /// # Errors
    /// The system calls' errors.
    pub fn new() -> io::Result<Signals> {
        // SAFETY: both sets are initialised by the calls before they are read; the descriptor is new and ours.
        unsafe {
            // A file that would exceed the limit is an error to tell, and no reason to die.
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            let mut set = std::mem::zeroed();
            let mut before = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for signal in WATCHED {
                if signal == libc::SIGCHLD {
                    // Ignored children could not be waited for.
                    libc::signal(signal, libc::SIG_DFL);
                } else if signal == libc::SIGHUP && is_ignored(signal) {
                    continue;
                }
                libc::sigaddset(&mut set, signal);
            }
            let blocked = libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before);
            if blocked != 0 {
                return Err(io::Error::from_raw_os_error(blocked));
            }
            match libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
                -1 => {
                    let error = io::Error::last_os_error();
                    libc::pthread_sigmask(libc::SIG_SETMASK, &before, ptr::null_mut());
                    Err(error)
                }
                fd => Ok(Signals {
                    file: OwnedFd::from_raw_fd(fd).into(),
                    before,
                    set,
                }),
            }
        }
    }

    /// The signal mask from before, which a command should get.
    pub fn mask_before(&self) -> &libc::sigset_t {
        &self.before
    }

    /// The signals that are blocked and read here.
    pub fn set(&self) -> libc::sigset_t {
        self.set
    }

    /// Waits for a signal, up to `timeout`.
    ///
    /// # Errors
    /// The errors of `poll`, but not that a signal of another kind interrupted it.
    pub fn wait(&self, timeout: Duration) -> io::Result<()> {
        let mut fd = libc::pollfd {
            fd: self.file.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let millis = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: one structure, which outlives the call.
        if unsafe { libc::poll(&mut fd, 1, millis) } < 0 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Takes the next signal that has arrived, or `None`. Does not block.
    ///
    /// Several SIGCHLD may have become one.
    pub fn take(&mut self) -> Option<Received> {
        let mut bytes = [0; size_of::<libc::signalfd_siginfo>()];
        loop {
            match self.file.read(&mut bytes) {
                Ok(length) if length == bytes.len() => {
                    // SAFETY: the kernel filled all bytes of the structure, which holds integers only.
                    let info = unsafe {
                        ptr::read_unaligned(bytes.as_ptr().cast::<libc::signalfd_siginfo>())
                    };
                    return Some(Received {
                        signal: info.ssi_signo.cast_signed(),
                        from_kernel: info.ssi_code > 0,
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                _ => return None,
            }
        }
    }
}

impl Signals {
    /// Restores the signal mask from before. Returns a signal that asked for an end and was not read.
    pub fn finish(mut self) -> Option<Received> {
        let unread = std::iter::from_fn(|| self.take());
        unread.filter(|received| received.ends_recording()).last()
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // A signal that came but was not read has been overtaken by the recording's end; unblocked, it would kill us.
        while self.take().is_some() {}
        // SAFETY: the set was filled by the call that blocked the signals.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, ptr::null_mut()) };
    }
}

fn is_ignored(signal: i32) -> bool {
    // SAFETY: a null action only asks; the answer is written to a live local.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, ptr::null(), &mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends to this thread only: other tests' threads have the signal unblocked.
    fn raise(signal: i32) {
        // SAFETY: the thread id is our own.
        let sent = unsafe { libc::pthread_kill(libc::pthread_self(), signal) };
        assert_eq!(sent, 0);
    }

    #[test]
    fn a_signal_is_read_instead_of_taking_effect() {
        let mut signals = Signals::new().unwrap();
        assert_eq!(signals.take(), None);
        raise(libc::SIGTERM);
        let received = signals.take().unwrap();
        assert_eq!(
            (received.signal, received.from_kernel),
            (libc::SIGTERM, false)
        );
        assert!(received.ends_recording());
        assert_eq!(signals.take(), None);
    }

    #[test]
    fn an_unread_signal_is_returned_at_the_end() {
        let signals = Signals::new().unwrap();
        raise(libc::SIGCHLD);
        raise(libc::SIGTERM);
        let unread = signals.finish().unwrap();
        assert_eq!(unread.signal, libc::SIGTERM);
        assert_eq!(Signals::new().unwrap().finish(), None);
    }

    #[test]
    fn an_unread_signal_does_no_harm_afterwards() {
        let signals = Signals::new().unwrap();
        raise(libc::SIGHUP);
        drop(signals);
    }
}
