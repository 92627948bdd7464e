//! One descriptor for all of a session's rings, for event loops.

use crate::attach::Attachment;
use crate::stop::StopHandle;
use crate::sys;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

/// A descriptor that becomes readable when a session has something to read or is to stop. Made for `AsyncFd` of tokio
/// and async-io, `mio` and `epoll`. Clones share the descriptor.
///
/// The descriptor is an epoll instance that holds the rings. The session keeps it up to date while it is read.
#[derive(Clone, Debug)]
pub struct Wakeups {
    epoll: Arc<OwnedFd>,
    /// The rings in it.
    rings: Vec<RawFd>,
    /// The attachment's generation of rings.
    generation: u64,
}

impl Wakeups {
    pub(crate) fn new(attachment: &Attachment, stop: &StopHandle) -> io::Result<Wakeups> {
        let epoll = sys::epoll()?;
        sys::epoll_add(epoll.as_fd(), stop.fd())?;
        let mut wakeups = Wakeups {
            epoll: Arc::new(epoll),
            rings: Vec::new(),
            generation: u64::MAX,
        };
        wakeups.follow(attachment)?;
        Ok(wakeups)
    }

    /// Takes in rings that came, and drops those that went or hung up: a ring that hung up is readable for ever.
    pub(crate) fn follow(&mut self, attachment: &Attachment) -> io::Result<()> {
        if self.generation == attachment.rings_generation {
            return Ok(());
        }
        for ring in self.rings.drain(..) {
            // A closed ring has left by itself.
            let _ = sys::epoll_remove(self.epoll.as_fd(), ring);
        }
        for ring in attachment.rings.iter().filter(|ring| !ring.hung_up) {
            sys::epoll_add(self.epoll.as_fd(), ring.owner.as_fd())?;
            self.rings.push(ring.owner.as_raw_fd());
        }
        self.generation = attachment.rings_generation;
        Ok(())
    }
}

impl AsFd for Wakeups {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl AsRawFd for Wakeups {
    fn as_raw_fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }
}
