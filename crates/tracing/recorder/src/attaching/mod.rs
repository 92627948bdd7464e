//! Attaching to a process that already runs, and detaching from it.
//!
//! A process that was started by the recorder has the runtime preloaded. Into a running one the recorder brings it: it
//! stops one thread ([`borrowed`]) at a moment when the thread holds no lock of the C library ([`safe_point`]), lets it
//! load the runtime and call the runtime's [`ATTACH`](dioptra_tracelayout::message::ATTACH) ([`inject`]), and gives it
//! back its registers. From then on all is as for a preloaded process: the runtime connects, and the recorder's service
//! makes plans for the modules that are there.
//!
//! [`running`] keeps account of the processes. At the end, [`detach`] writes the original instructions back. If no call is open that
//! returns through the tracer's code, a borrowed thread unloads the runtime; else runtime, pools and shared memory stay in
//! the process.
//!
//! Rejected: a new thread of the tracer's own, made with a bare `clone`, would need no safe moment; but `dlopen` uses
//! the C library's thread-local variables, which such a thread lacks.

#[cfg(target_arch = "x86_64")]
pub mod borrowed;
pub mod detach;
#[cfg(target_arch = "x86_64")]
pub mod inject;
#[cfg(target_arch = "x86_64")]
pub mod libraries;
pub mod running;
#[cfg(target_arch = "x86_64")]
pub mod safe_point;

use std::fmt;
use std::io;
use std::path::Path;
use thiserror::Error;

/// The reason why the recorder can't attach to a process.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AttachError {
    /// Attaching is not supported on this processor.
    #[error("attaching to running processes works on x86-64 only")]
    Unsupported,
    /// There is no such process.
    #[error("there is no such process")]
    Gone,
    /// The process is the recorder itself.
    #[error("it is this program itself")]
    Ourselves,
    /// The system does not permit it.
    #[error("it can't be stopped: {source}; {remedy}", remedy = remedy())]
    Refused {
        /// The system's error.
        source: io::Error,
    },
    /// Another program traces the process by ptrace.
    #[error("{0} has it under its control already")]
    Debugged(String),
    /// A recorder of dioptra traces the process already.
    #[error("dioptra traces it already")]
    Traced,
    /// The process has no C library that the recorder knows.
    #[error("it is not linked dynamically to glibc")]
    NoLibrary,
    /// The process is stopped by a signal.
    #[error("it is stopped by a signal; let it go on with `kill -CONT`")]
    Stopped,
    /// The process runs under a system call filter.
    #[error(
        "it runs under a system call filter (seccomp) that perhaps does not allow what the tracer does"
    )]
    Confined,
    /// No thread came to a place where it could load the runtime.
    #[error(
        "none of its {threads} threads came to a place in {seconds} s where it surely holds no lock of the C library: {why}; try again"
    )]
    NoSafePoint {
        /// The number of threads.
        threads: usize,
        /// The time for which the recorder tried, in seconds.
        seconds: u64,
        /// The reason for the last thread that was examined.
        why: Unsafe,
    },
    /// The thread did not come back from a call in time.
    #[error("the thread that was to load the tracer's runtime did not come back from {0}")]
    Lost(&'static str),
    /// The dynamic linker did not load the runtime.
    #[error("the tracer's runtime could not be loaded into it: {0}")]
    NotLoaded(String),
    /// The runtime could not begin.
    #[error("{0}")]
    NotConnected(&'static str),
    /// A step failed.
    #[error("{what}: {source}")]
    System {
        /// The step.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

/// Returns the reason that systems have most often for forbidding ptrace, with its remedy.
fn remedy() -> &'static str {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    match scope.trim() {
        "1" | "2" => {
            "run dioptra as root, or set kernel.yama.ptrace_scope to 0 (sysctl) to attach to other processes of yours"
        }
        "3" => {
            "kernel.yama.ptrace_scope is 3: this system lets nobody attach until it is started anew"
        }
        _ => "it must be a process of yours, or dioptra must run as root",
    }
}

impl AttachError {
    /// Returns a function that makes an error of a system call's.
    fn at(what: &'static str) -> impl Fn(io::Error) -> AttachError {
        move |source| match source.raw_os_error() {
            Some(libc::ESRCH) => AttachError::Gone,
            _ => AttachError::System { what, source },
        }
    }
}

/// The reason why a thread can't load a library at this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unsafe {
    /// The thread does not stop, because the kernel works for it.
    Unstopped,
    /// The stack can't be read to its end.
    Unknown,
    /// The thread is in the dynamic linker.
    Linker,
    /// The thread is in a function for memory.
    Memory,
    /// The thread is in another function of the C library.
    Library(String),
}

impl fmt::Display for Unsafe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unsafe::Unstopped => f.write_str("the last one did not stop"),
            Unsafe::Unknown => f.write_str("the call stack of the last one can't be unwound"),
            Unsafe::Linker => f.write_str("the last one was in the dynamic linker"),
            Unsafe::Memory => f.write_str("the last one was in a function for memory"),
            Unsafe::Library(name) if name.is_empty() => {
                f.write_str("the last one was inside of the C library")
            }
            Unsafe::Library(name) => write!(f, "the last one was in the C library's {name}"),
        }
    }
}

/// The recorder that a process is to connect to.
#[derive(Clone, Copy, Debug)]
pub struct Recorder<'a> {
    /// The name of the recorder's socket.
    pub socket: &'a str,
    /// The path of the runtime's file.
    pub runtime: &'a Path,
}

/// A process that is connected.
#[derive(Clone, Copy, Debug)]
pub struct Attached {
    /// Whether programs that the process executes can load the runtime, too.
    pub follows_programs: bool,
    /// The runtime in the process.
    pub runtime: LoadedRuntime,
}

/// The runtime in a process.
#[derive(Clone, Copy, Debug)]
pub struct LoadedRuntime {
    /// The dynamic linker's handle.
    pub handle: u64,
    /// The load bias.
    pub bias: u64,
    /// The two pages that borrowed threads use.
    pub pages: u64,
}

/// Refuses: the code that borrows a thread is written for x86-64.
#[cfg(not(target_arch = "x86_64"))]
pub mod inject {
    use super::{AttachError, Attached, LoadedRuntime, Recorder};

    /// Refuses to attach.
    ///
    /// # Errors
    /// Always [`AttachError::Unsupported`].
    pub fn inject(_: u32, _: Recorder<'_>) -> Result<Attached, AttachError> {
        Err(AttachError::Unsupported)
    }

    /// Does nothing, because no process was attached to.
    ///
    /// # Errors
    /// Always [`AttachError::Unsupported`].
    pub fn unload(_: u32, _: LoadedRuntime, _: i64) -> Result<bool, AttachError> {
        Err(AttachError::Unsupported)
    }
}
