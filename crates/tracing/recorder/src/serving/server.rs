//! The server that answers traced processes.

use super::greeting::{Peer, PeerRefusal};
use super::loaded::LoadedPool;
use super::patching::{self, PatchObstacle};
use super::process::{self, PlannedModule, Plans};
use super::wire::{bytes_of_slice, memory_file, receive, send};
use crate::attaching::detach;
use crate::recording::notes::TraceNote;
use crate::recording::shared::{Shared, monotonic};
use dioptra_tracelayout::VERSION;
use dioptra_tracelayout::message::{
    Applied, Hello, InstrumentedFunction, Reason, SetupStep, StepKind, StepRequest, Welcome,
};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A step that failed in a process when a module was to be traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailedStep {
    /// The tracer's code could not be loaded.
    LoadPool,
    /// The tracer's code was not loaded near the module.
    PlacePool,
    /// There is no memory for the facts about the functions.
    Remember,
    /// A policy forbids to make the module's code writable.
    WriteForbidden,
    /// The module's code could not be made writable.
    Write,
}

impl fmt::Display for FailedStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FailedStep::LoadPool => "the tracer's code could not be loaded",
            FailedStep::PlacePool => "the tracer's code was not loaded where it has to be",
            FailedStep::Remember => {
                "there is no memory for what the tracer has to know of its functions"
            }
            FailedStep::WriteForbidden => {
                "its code could not be made writable, which SELinux or systemd's MemoryDenyWriteExecute= forbids"
            }
            FailedStep::Write => "its code could not be made writable",
        })
    }
}

/// A socket, and the name by which processes find it.
#[derive(Debug)]
pub struct Listener {
    listener: UnixListener,
    /// The name.
    pub name: String,
}

impl Listener {
    /// Makes a socket with a name that cannot be guessed. The number behind its last `-` is our network namespace's:
    /// programs in other namespaces cannot reach the socket.
    ///
    /// # Errors
    /// The system calls' errors.
    pub fn new() -> io::Result<Listener> {
        let mut random = [0_u8; 16];
        File::open("/dev/urandom")?.read_exact(&mut random)?;
        let namespace = fs::metadata("/proc/self/ns/net").map_or(0, |file| file.ino());
        let name = format!("dioptra-{:032x}-{namespace}", u128::from_ne_bytes(random));
        let address = SocketAddr::from_abstract_name(name.as_bytes())?;
        Ok(Listener {
            listener: UnixListener::bind_addr(&address)?,
            name,
        })
    }

    /// Answers each process in a thread of its own, until [`Listener::end`] announces the end.
    pub fn serve(&self, shared: &Arc<Shared>) {
        // The spare descriptor is given up for a moment when there are no more: a process that waits for an answer must
        // get one.
        let mut spare = spare();
        loop {
            let accepted = self.listener.accept();
            if shared.arena.header().stop.load(Ordering::Relaxed) != 0 {
                return;
            }
            match accepted {
                Ok((stream, _)) => self::start(stream, shared),
                Err(error) if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
                    drop(spare.take());
                    if let Ok((stream, _)) = self.listener.accept() {
                        refuse(&stream, shared, PeerRefusal::NoDescriptors);
                    } else {
                        std::thread::sleep(PAUSE);
                    }
                    spare = self::spare();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The process has closed its end meanwhile, or memory is short, which may pass.
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }

    /// Lets [`Listener::serve`] return, after `stop` was set in the arena. Needs no descriptor.
    pub fn end(&self) {
        // SAFETY: a descriptor of ours; the call wakes who waits for connections.
        unsafe { libc::shutdown(self.listener.as_raw_fd(), libc::SHUT_RDWR) };
    }
}

/// The time to wait before asking again for a connection that could not be had.
const PAUSE: Duration = Duration::from_millis(5);

fn spare() -> Option<File> {
    File::open("/dev/null").ok()
}

/// Answers a process in a thread of its own.
fn start(stream: UnixStream, shared: &Arc<Shared>) {
    let stream = Arc::new(stream);
    let answering = {
        let (stream, shared) = (Arc::clone(&stream), Arc::clone(shared));
        std::thread::Builder::new().spawn(move || answer(&stream, &shared))
    };
    if let Err(error) = answering {
        let because = error.to_string();
        refuse(&stream, shared, PeerRefusal::NoThread { because });
    }
}

/// Notes why a process that connects is not traced; the process goes on when the connection is closed.
fn refuse(stream: &UnixStream, shared: &Shared, why: PeerRefusal) {
    let process = Peer::of(stream).map_or_else(|_| "a process".to_owned(), |peer| peer.to_string());
    shared.state().note(TraceNote::PeerRefused { process, why });
}

fn answer(stream: &UnixStream, shared: &Shared) {
    let note = |note| shared.state().note(note);
    let peer = match Peer::of(stream) {
        Ok(peer) => peer,
        Err(error) => {
            return note(TraceNote::PeerUnknown {
                because: error.to_string(),
            });
        }
    };
    match peer.hello(stream) {
        Ok(hello) => {
            if let Err(error) = serve_peer(stream, &peer, &hello, shared) {
                note(TraceNote::BrokeOff {
                    process: peer.to_string(),
                    because: error.to_string(),
                });
            }
        }
        Err(silent) => note(silent),
    }
}

/// Counts a process that is carrying out steps, as long as this lives.
struct Served<'a>(&'a Shared);

impl<'a> Served<'a> {
    fn new(shared: &'a Shared) -> Served<'a> {
        shared.served.fetch_add(1, Ordering::SeqCst);
        Served(shared)
    }
}

impl Drop for Served<'_> {
    fn drop(&mut self) {
        self.0.served.fetch_sub(1, Ordering::SeqCst);
    }
}

fn serve_peer(stream: &UnixStream, peer: &Peer, hello: &Hello, shared: &Shared) -> io::Result<()> {
    let _served = Served::new(shared);
    let pid = peer.pid;
    let refusal = peer.refusal(hello);
    let refused = refusal.is_some();
    let is_start = hello.reason == Reason::Start as u32;
    if is_start {
        shared.state().execs.connected(pid, monotonic());
    }
    if let Some(refusal) = refusal.filter(|_| is_start) {
        shared.state().note(refusal);
    }
    let welcome = Welcome {
        version: u32::from(VERSION),
        refused: u32::from(refused),
        arena_size: shared.arena.size() as u64,
        pid,
        reserved: 0,
    };
    if refused || !is_start {
        send(stream, &welcome, &[])?;
    } else {
        let files = [shared.arena.file(), shared.arena.presence()];
        send(stream, &welcome, &files.map(AsRawFd::as_raw_fd))?;
    }
    if refused {
        return Ok(());
    }
    // The process has mapped the arena now. Memory that is free from here on stays free, as far as the runtime decides.
    let _: StepRequest = receive(stream)?;
    let plans = process::plans(pid, hello, shared)?;
    let keys: Vec<_> = plans.modules.iter().map(PlannedModule::key).collect();
    let result = carry_out_all(stream, pid, hello, plans, shared);
    if result.is_err()
        && let Some(loaded) = shared.state().planned.get_mut(&pid)
    {
        // The process may connect again.
        loaded.retract(&keys);
    }
    result?;
    let done = SetupStep {
        kind: StepKind::Done as u32,
        patches: 0,
        pool_address: 0,
        pool_size: 0,
    };
    send(stream, &done, &[])
}

/// Lets the process carry out all plans.
fn carry_out_all(
    stream: &UnixStream,
    pid: u32,
    hello: &Hello,
    plans: Plans,
    shared: &Shared,
) -> io::Result<()> {
    if !plans.forgotten.is_empty() {
        learn(stream, &plans.forgotten)?;
    }
    for planned in plans.modules {
        carry_out(stream, pid, hello, planned, shared)?;
    }
    Ok(())
}

/// Lets the process carry out the plan for a module.
fn carry_out(
    stream: &UnixStream,
    pid: u32,
    hello: &Hello,
    mut planned: PlannedModule,
    shared: &Shared,
) -> io::Result<()> {
    /// The number of tries to load a pool near the module. Other threads may take the place before the process does.
    const TRIES: u32 = 4;
    let mut loaded = planned.plan.loaded;
    let mut is_done = true;
    for attempt in 1.. {
        if planned.plan.patches.is_empty() {
            break;
        }
        // The pool comes first, by itself: loading it takes locks that other threads may hold, so these are not stopped
        // before.
        let pool = memory_file(&planned.plan.pool)?;
        let step = SetupStep {
            kind: StepKind::Module as u32,
            patches: 0,
            pool_address: planned.plan.pool_address,
            pool_size: planned.plan.pool_size,
        };
        let descriptor = pool.as_raw_fd();
        send(stream, &step, &[descriptor, descriptor])?;
        let mut next: StepRequest = receive(stream)?;
        if next.applied == Applied::Misplaced as u32
            && attempt < TRIES
            && let Some(again) = planned.again(pid, hello, shared)?
        {
            planned.plan = again;
            continue;
        }
        if planned.plan.pool_size > 0 {
            loaded = Some(LoadedPool {
                address: planned.plan.pool_address,
                inode: pool.metadata()?.ino(),
            });
        }
        if next.applied == Applied::Done as u32 {
            if shared.attached {
                keep_originals(pid, hello, &mut planned, shared)?;
            }
            let (patches, module) = (&planned.plan.patches, &planned.module);
            next = patching::patch(stream, pid, hello, patches, module, shared)?;
        }
        is_done &= applied(&next, pid, &planned.module.path, shared);
        break;
    }
    if !planned.plan.functions.is_empty() {
        let next = learn(stream, &planned.plan.functions)?;
        is_done &= applied(&next, pid, &planned.module.path, shared);
    }
    if is_done {
        planned.note_done(pid, loaded, shared);
    }
    Ok(())
}

/// Keeps the bytes that a module's patches will overwrite, and leaves out the patches of code that somebody else has
/// changed.
fn keep_originals(
    pid: u32,
    hello: &Hello,
    planned: &mut PlannedModule,
    shared: &Shared,
) -> io::Result<()> {
    let patches = &mut planned.plan.patches;
    let originals = detach::originals(pid, &planned.module, patches)?;
    let functions = patches.len() - originals.len();
    *patches = originals.iter().map(|original| original.patch).collect();
    let obstacle = PatchObstacle::Changed;
    patching::note(shared, pid, &planned.module, functions, obstacle);
    let mut state = shared.state();
    let loaded = state.planned.entry(pid).or_default();
    loaded.keep_originals(&planned.module, originals, hello.addresses.thread_block);
    Ok(())
}

/// Lets the process's runtime learn functions.
fn learn(stream: &UnixStream, functions: &[InstrumentedFunction]) -> io::Result<StepRequest> {
    let list = memory_file(bytes_of_slice(functions))?;
    let step = SetupStep {
        kind: StepKind::Functions as u32,
        patches: functions.len() as u32,
        pool_address: 0,
        pool_size: 0,
    };
    let descriptor = list.as_raw_fd();
    send(stream, &step, &[descriptor, descriptor])?;
    receive(stream)
}

/// Returns whether a step went well, and notes the reason if not.
fn applied(next: &StepRequest, pid: u32, path: &Path, shared: &Shared) -> bool {
    if next.applied == Applied::Done as u32 {
        return true;
    }
    let step = match next.applied {
        n if n == Applied::NoPool as u32 => FailedStep::LoadPool,
        n if n == Applied::Misplaced as u32 => FailedStep::PlacePool,
        n if n == Applied::NoMemory as u32 => FailedStep::Remember,
        _ if is_forbidden(next.error) => FailedStep::WriteForbidden,
        _ => FailedStep::Write,
    };
    shared.state().note(TraceNote::ModuleStepFailed {
        pid,
        module: path.to_owned(),
        step,
        errno: next.error.cast_signed(),
    });
    false
}

/// Returns whether an error of `mprotect` says that a policy forbids code to be written to.
fn is_forbidden(errno: u32) -> bool {
    [libc::EACCES, libc::EPERM].contains(&errno.cast_signed())
}
