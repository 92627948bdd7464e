//! The first message on the recorder's socket: it tells whether a traced program has connected.
//!
//! The socket's name can't be guessed, but `/proc/net/unix` lists it for everybody, and an abstract socket has no
//! permissions. Whoever connects is asked for a [`Hello`], for a bounded time.

use super::wire::peer;
use crate::recording::notes::TraceNote;
use dioptra_processes::procfs;
use dioptra_tracelayout::VERSION;
use dioptra_tracelayout::message::{Hello, Reason};
use rustix::process::geteuid;
use std::fmt;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The time in which a process of our user has to say hello, not counting the time in which a debugger or a signal has
/// stopped it. The runtime says hello at once.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time for a process of another user, which is refused in any case: only the reason depends on its message.
const PATIENCE_WITH_OTHERS: Duration = Duration::from_secs(1);
/// The time between two looks at a silent process.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// A process that has connected, as the recorder sees it.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its id.
    pub pid: u32,
    /// Its effective user.
    pub user: u32,
    /// Its name, empty if it is gone.
    name: String,
}

/// The reason why a process that has connected is not traced.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerRefusal {
    /// The process runs as another user, of this number.
    OtherUser(u32),
    /// Another version of the runtime was loaded into the process.
    OtherVersion,
    /// The process runs in a pid namespace of its own.
    OtherNamespace,
    /// The recorder may not open more files.
    NoDescriptors,
    /// The recorder cannot start a thread.
    NoThread {
        /// The error.
        because: String,
    },
}

impl PeerRefusal {
    /// Returns whether the recorder is at fault, and not the process.
    pub(crate) fn is_the_recorders(&self) -> bool {
        matches!(
            self,
            PeerRefusal::NoDescriptors | PeerRefusal::NoThread { .. }
        )
    }
}

impl fmt::Display for PeerRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerRefusal::OtherUser(user) => write!(f, "it runs as another user ({user})"),
            PeerRefusal::OtherVersion => {
                f.write_str("another version of dioptra was loaded into it")
            }
            PeerRefusal::OtherNamespace => f.write_str("it runs in a pid namespace of its own"),
            PeerRefusal::NoDescriptors => {
                f.write_str("the recorder may not open more files (`ulimit -n`)")
            }
            PeerRefusal::NoThread { because } => {
                write!(f, "the recorder can't start a thread: {because}")
            }
        }
    }
}

/// The fault in the first message of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GreetingFault {
    /// The message did not come in time.
    Late {
        /// Whether a part of it came.
        begun: bool,
    },
    /// The connection was closed before the message came.
    Closed {
        /// Whether a part of it came.
        begun: bool,
    },
    /// The message is none of a traced program.
    Foreign,
}

impl fmt::Display for GreetingFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("connected to the recorder's socket and ")?;
        let said = |begun: &bool| if *begun { "too little" } else { "nothing" };
        match self {
            GreetingFault::Late { begun } => write!(f, "said {}", said(begun)),
            GreetingFault::Closed { begun } => write!(f, "closed it, having said {}", said(begun)),
            GreetingFault::Foreign => f.write_str("said what no traced program says"),
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.pid, self.name.as_str()) {
            // In a pid namespace beside ours.
            (0, _) => f.write_str("a process that can't be seen from here"),
            (pid, "") => write!(f, "process {pid}"),
            (pid, name) => write!(f, "process {pid} ({name})"),
        }
    }
}

impl Peer {
    /// Returns the process at the other end of a connection.
    ///
    /// # Errors
    /// The system call's error.
    pub fn of(stream: &UnixStream) -> io::Result<Peer> {
        let (pid, user) = peer(stream)?;
        let name = procfs::comm(pid, pid).unwrap_or_default();
        Ok(Peer {
            pid,
            user,
            name: String::from_utf8_lossy(&name).into_owned(),
        })
    }

    fn is_ours(&self) -> bool {
        let us = geteuid();
        self.user == us.as_raw() || us.is_root()
    }

    /// Reads the first message.
    ///
    /// # Errors
    /// The note for the user, if no traced program says so.
    pub fn hello(&self, stream: &UnixStream) -> Result<Hello, TraceNote> {
        let refused = |fault| TraceNote::PeerSilent {
            process: self.to_string(),
            fault,
        };
        let patience = if self.is_ours() {
            PATIENCE
        } else {
            PATIENCE_WITH_OTHERS
        };
        let mut bytes = [0; size_of::<Hello>()];
        match self.read(stream, &mut bytes, patience) {
            Ok(()) => {}
            Err((used, error)) => {
                let begun = used > 0;
                return Err(refused(match error.kind() {
                    io::ErrorKind::WouldBlock => GreetingFault::Late { begun },
                    _ => GreetingFault::Closed { begun },
                }));
            }
        }
        // SAFETY: the message is a structure of integers of this size, for which all bytes are valid.
        let hello: Hello = unsafe { std::mem::transmute(bytes) };
        let is_hello = [Reason::Start, Reason::Modules, Reason::Found]
            .iter()
            .any(|reason| *reason as u32 == hello.reason)
            && hello.pid != 0;
        if !is_hello {
            return Err(refused(GreetingFault::Foreign));
        }
        Ok(hello)
    }

    /// Returns why a process that has said hello is not traced all the same; `None` if it is.
    pub fn refusal(&self, hello: &Hello) -> Option<TraceNote> {
        let why = match () {
            () if !self.is_ours() => PeerRefusal::OtherUser(self.user),
            () if hello.version != u32::from(VERSION) => PeerRefusal::OtherVersion,
            // The ids in chunks would mean other processes here.
            () if hello.pid != self.pid => PeerRefusal::OtherNamespace,
            () => return None,
        };
        Some(TraceNote::PeerRefused {
            process: self.to_string(),
            why,
        })
    }

    /// Reads as many bytes as there is room for. The error comes with the number of bytes that could be read.
    fn read(
        &self,
        mut stream: &UnixStream,
        bytes: &mut [u8],
        patience: Duration,
    ) -> Result<(), (usize, io::Error)> {
        let mut used = 0;
        let set = |time| stream.set_read_timeout(time).map_err(|error| (0, error));
        set(Some(LOOK_EVERY))?;
        let mut since = Instant::now();
        while used < bytes.len() {
            match stream.read(&mut bytes[used..]) {
                Ok(0) => return Err((used, io::ErrorKind::UnexpectedEof.into())),
                Ok(n) => used += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.is_ours() && procfs::is_stopped(self.pid) {
                        since = Instant::now();
                    } else if since.elapsed() >= patience {
                        return Err((used, error));
                    }
                }
                Err(error) => return Err((used, error)),
            }
        }
        // The next message may take its time: a debugger perhaps stops the process.
        set(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn only_traced_programs_say_hello() {
        let said = |bytes: &[u8]| {
            let (mut theirs, ours) = UnixStream::pair().unwrap();
            theirs.write_all(bytes).unwrap();
            drop(theirs);
            let peer = Peer::of(&ours).unwrap();
            assert_eq!(peer.pid, std::process::id());
            (peer.hello(&ours), peer)
        };
        let nothing = said(b"").0.unwrap_err().to_string();
        assert!(nothing.ends_with("having said nothing: it was refused, and is not traced"));
        assert!(
            said(b"hi")
                .0
                .unwrap_err()
                .to_string()
                .contains("said too little")
        );
        let garbage = said(&[0xa5; 300]).0.unwrap_err().to_string();
        assert!(
            garbage.contains("said what no traced program says"),
            "{garbage}"
        );
        let mut words = [0_u32; size_of::<Hello>() / 4];
        words[..4].copy_from_slice(&[u32::from(VERSION), 1, std::process::id(), 7]);
        let bytes = |words: &[u32]| {
            words
                .iter()
                .flat_map(|word| word.to_ne_bytes())
                .collect::<Vec<u8>>()
        };
        let (hello, peer) = said(&bytes(&words));
        let hello = hello.unwrap();
        assert_eq!((hello.reason, hello.tid), (1, 7));
        assert_eq!(peer.refusal(&hello), None);
        let other = Hello { pid: 1, ..hello };
        let refusal = |other| peer.refusal(other).unwrap().to_string();
        assert!(refusal(&other).contains("pid namespace"));
        let other = Hello {
            version: 0,
            ..hello
        };
        assert!(refusal(&other).contains("another version"));
    }
}
