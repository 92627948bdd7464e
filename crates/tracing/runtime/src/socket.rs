//! A connection to the recorder. Every wait has a bound, and no signal disturbs the connection.
//!
//! All signals are blocked while the process talks to its recorder, which usually answers at once. If it does not, signals are
//! delivered while the process waits: Ctrl-C must work. Calls of their handlers are not recorded, but counted.

use crate::libc_calls::receive;
use crate::sys::{self, BlockedSignals, Errno};
use crate::{arch, session};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use core::{mem, ptr, slice};

/// The number of nanoseconds in a millisecond.
const MILLISECOND: u64 = 1_000_000;
/// The longest single wait, in nanoseconds. A wait during which the process itself was stopped counts as this long.
const SLICE: u64 = 100 * MILLISECOND;
/// The time that a connection waits for a recorder that is stopped, in nanoseconds.
const STOPPED: u64 = 2_000 * MILLISECOND;
/// The time that a connection waits in all, in nanoseconds. The recorder analyses large programs for some seconds.
const PATIENCE: u64 = 300_000 * MILLISECOND;
/// The time after which a connection is tried again when the recorder's queue was full, in nanoseconds.
const QUEUE: u64 = 10 * MILLISECOND;

/// True while a thread waits for the recorder with its signals delivered.
static WAITS: AtomicBool = AtomicBool::new(false);
/// The id of a recorder that did not answer because it was stopped; 0 if there is none.
static GIVEN_UP: AtomicU32 = AtomicU32::new(0);

/// Counts a call that a signal handler makes while its thread waits for the recorder.
pub fn count_missed() {
    if WAITS.load(Ordering::Relaxed)
        && let Some(arena) = session::arena()
    {
        let missed = &arena.header().handler_calls;
        missed.fetch_add(1, Ordering::Relaxed);
    }
}

/// A connection; closed when dropped.
#[derive(Debug)]
pub struct Socket<'a> {
    fd: i32,
    signals: &'a BlockedSignals,
    /// The id of the process that has connected: a handler may fork it.
    pid: u32,
    /// The recorder's id; 0 if unknown.
    recorder: u32,
    /// The time for which the connection has waited, in nanoseconds. The next two fields are points in this time.
    waited: u64,
    /// The time at which the connection next examines the recorder's state.
    look_at: u64,
    /// The time at which the recorder was last seen not to be stopped.
    stopped_since: u64,
}

impl Drop for Socket<'_> {
    fn drop(&mut self) {
        close(self.fd);
    }
}

/// Closes a descriptor.
pub fn close(fd: i32) {
    // SAFETY: a descriptor of the runtime.
    unsafe { arch::syscall(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]) };
}

/// Returns the number that a system call has returned, or the error.
fn result(returned: isize) -> Result<usize, Errno> {
    usize::try_from(returned).map_err(|_| Errno(returned.unsigned_abs() as i32))
}

/// An abstract address, as `connect` expects it (`sockaddr_un`).
#[repr(C)]
struct Address {
    family: u16,
    /// The first byte is 0.
    name: [u8; 108],
}

impl<'a> Socket<'a> {
    /// Connects to the abstract address `name`.
    ///
    /// # Errors
    /// The errors of the system calls; `ETIMEDOUT` if the recorder does not answer.
    pub fn connect(name: &[u8], signals: &'a BlockedSignals) -> Result<Socket<'a>, Errno> {
        let recorder = session::arena().map_or(0, |arena| arena.header().recorder);
        if recorder != 0 && GIVEN_UP.load(Ordering::Relaxed) == recorder {
            if is_stopped(recorder) {
                return Err(Errno(libc::ETIMEDOUT));
            }
            GIVEN_UP.store(0, Ordering::Relaxed);
        }
        let mut address = Address {
            family: libc::AF_UNIX as u16,
            name: [0; 108],
        };
        let Some(place) = address.name.get_mut(1..1 + name.len()) else {
            return Err(Errno(libc::ENAMETOOLONG));
        };
        for (to, from) in place.iter_mut().zip(name) {
            *to = *from;
        }
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let family = libc::AF_UNIX as usize;
        // SAFETY: numbers only.
        let fd = unsafe { arch::syscall(libc::SYS_socket, [family, kind as usize, 0, 0, 0, 0]) };
        let mut socket = Socket {
            fd: result(fd)? as i32,
            signals,
            pid: sys::pid(),
            recorder,
            waited: 0,
            look_at: SLICE,
            stopped_since: 0,
        };
        let place = (&raw const address).expose_provenance();
        let arguments = [socket.fd as usize, place, 3 + name.len(), 0, 0, 0];
        loop {
            // SAFETY: the address outlives the call.
            match result(unsafe { arch::syscall(libc::SYS_connect, arguments) }) {
                Ok(_) | Err(Errno(libc::EISCONN)) => break,
                Err(Errno(libc::EINTR)) => {}
                // The queue is full.
                Err(Errno(libc::EAGAIN)) => socket.pause(None, QUEUE)?,
                Err(error) => return Err(error),
            }
        }
        if recorder == 0 {
            socket.recorder = socket.peer().unwrap_or(0);
        }
        Ok(socket)
    }

    /// Returns the process at the other end.
    fn peer(&self) -> Option<u32> {
        let mut peer = [0_u32; 3];
        let mut size = size_of_val(&peer) as u32;
        let arguments = [
            self.fd as usize,
            libc::SOL_SOCKET as usize,
            libc::SO_PEERCRED as usize,
            (&raw mut peer).expose_provenance(),
            (&raw mut size).expose_provenance(),
            0,
        ];
        // SAFETY: the structure (a process, a user and a group) and its size outlive the call.
        let asked = unsafe { arch::syscall(libc::SYS_getsockopt, arguments) };
        let [process, ..] = peer;
        (asked == 0 && process != 0).then_some(process)
    }

    /// Sends a message.
    ///
    /// # Errors
    /// `sendto`'s; `ETIMEDOUT` if the recorder does not answer.
    pub fn send<T: Copy>(&mut self, message: &T) -> Result<(), Errno> {
        let mut sent = 0;
        while sent < size_of::<T>() {
            // MSG_NOSIGNAL, since the program may not expect SIGPIPE.
            let arguments = [
                self.fd as usize,
                ptr::from_ref(message).expose_provenance() + sent,
                size_of::<T>() - sent,
                libc::MSG_NOSIGNAL as usize,
                0,
                0,
            ];
            // SAFETY: messages are integers without padding.
            match result(unsafe { arch::syscall(libc::SYS_sendto, arguments) }) {
                Ok(0) => return Err(Errno(libc::EPIPE)),
                Ok(count) => sent += count,
                Err(Errno(libc::EINTR)) => {}
                Err(Errno(libc::EAGAIN)) => self.pause(Some(libc::POLLOUT), SLICE)?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Waits for a message, and returns it with the descriptors that came with its first byte.
    ///
    /// # Errors
    /// `recvmsg`'s; `ETIMEDOUT` if the recorder does not answer.
    pub fn receive<T: Copy>(&mut self) -> Result<(T, [i32; 2]), Errno> {
        let mut message = mem::MaybeUninit::<T>::zeroed();
        // SAFETY: zeroed memory of the message's size.
        let bytes = unsafe {
            slice::from_raw_parts_mut(message.as_mut_ptr().cast::<u8>(), mem::size_of::<T>())
        };
        let mut descriptors = [-1; 2];
        let mut used = 0;
        while let Some(rest) = bytes.get_mut(used..).filter(|rest| !rest.is_empty()) {
            let mut others = [-1; 2];
            let with = if used == 0 {
                &mut descriptors
            } else {
                &mut others
            };
            match receive(self.fd, rest, with) {
                Ok(count) => used += count,
                Err(Errno(libc::EINTR)) => {}
                Err(Errno(libc::EAGAIN)) => self.pause(Some(libc::POLLIN), SLICE)?,
                Err(error) => return Err(error),
            }
        }
        // SAFETY: messages are integers, for which all bytes are valid.
        Ok((unsafe { message.assume_init() }, descriptors))
    }

    /// Waits up to some nanoseconds until the socket is ready for the events, if there are any. The caller tries
    /// again in any case.
    fn pause(&mut self, events: Option<i16>, nanoseconds: u64) -> Result<(), Errno> {
        // While the recorder may still answer soon, signals stay blocked: handlers' calls are recorded afterwards.
        let delivers = self.waited >= SLICE;
        let mask = delivers.then(|| self.signals.before());
        let before = sys::monotonic();
        WAITS.store(delivers, Ordering::Relaxed);
        sys::poll(events.map(|events| (self.fd, events)), nanoseconds, mask);
        WAITS.store(false, Ordering::Relaxed);
        if delivers && sys::pid() != self.pid {
            // A handler has forked: the conversation belongs to the parent.
            return Err(Errno(libc::ECHILD));
        }
        self.waited += sys::monotonic().wrapping_sub(before).min(SLICE);
        if self.waited >= self.look_at {
            self.look_at = self.waited + SLICE;
            if !is_stopped(self.recorder) {
                self.stopped_since = self.waited;
            }
        }
        let is_stopped = self.waited - self.stopped_since >= STOPPED;
        if is_stopped {
            GIVEN_UP.store(self.recorder, Ordering::Relaxed);
        }
        match is_stopped || self.waited >= PATIENCE {
            true => Err(Errno(libc::ETIMEDOUT)),
            false => Ok(()),
        }
    }
}

/// Returns true if a process is stopped, by a signal or by a debugger; false if that can't be known.
fn is_stopped(pid: u32) -> bool {
    matches!(sys::state(pid), Some(b'T' | b't'))
}
