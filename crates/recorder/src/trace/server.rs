//! Answers traced processes.

use super::loaded::LoadedPool;
use super::patching;
use super::process::{self, PlannedModule, Plans};
use super::shared::Shared;
use super::wire::{bytes_of_slice, memory_file, peer, receive, send};
use dioptra_tracelayout::VERSION;
use dioptra_tracelayout::message::{
    Applied, FunctionId, Hello, Next, Reason, Step, StepKind, Welcome,
};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A socket, and the name that processes find it by.
#[derive(Debug)]
pub struct Listener {
    listener: UnixListener,
    /// The name.
    pub name: String,
}

impl Listener {
    /// A new one, with a name that cannot be guessed. The number behind its last `-` is our network namespace's: programs
    /// in others cannot reach the socket.
    ///
    /// # Errors
    /// Of the system calls.
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

    /// Answers, each process in a thread of its own, until the end is announced by [`Listener::end`].
    pub fn serve(&self, shared: &Arc<Shared>) {
        while let Ok((stream, _)) = self.listener.accept() {
            if shared.arena.header().stop.load(Ordering::Relaxed) != 0 {
                return;
            }
            let shared = Arc::clone(shared);
            std::thread::spawn(move || {
                if let Err(error) = answer(&stream, &shared) {
                    shared.state().note_loss(format!(
                        "a process that was to be traced broke off: {error}"
                    ));
                }
            });
        }
    }

    /// Lets [`Listener::serve`] return, after `stop` was set in the arena.
    pub fn end(&self) {
        if let Ok(address) = SocketAddr::from_abstract_name(self.name.as_bytes()) {
            let _ = UnixStream::connect_addr(&address);
        }
    }
}

fn answer(stream: &UnixStream, shared: &Shared) -> io::Result<()> {
    // It may take its time: a debugger perhaps stops it.
    let (pid, user) = peer(stream)?;
    let hello: Hello = receive(stream)?;
    // SAFETY: the call has no arguments and can't fail.
    let us = unsafe { libc::geteuid() };
    let is_ours = user == us || us == 0;
    // In another pid namespace the ids in chunks would be others' here.
    let same_ids = hello.pid == pid;
    let refused = hello.version != u32::from(VERSION) || !is_ours || !same_ids;
    let is_start = hello.reason == Reason::Start as u32;
    if refused && is_start {
        let why = if same_ids {
            "it belongs to another user, or to another version of dioptra"
        } else {
            "it runs in a pid namespace of its own"
        };
        shared
            .state()
            .note(format!("process {pid} is not traced: {why}"));
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
    // It has mapped the arena now: what is free from here on stays so, as far as it is up to the runtime.
    let _: Next = receive(stream)?;
    let plans = process::plans(pid, &hello, shared)?;
    let keys: Vec<_> = plans.modules.iter().map(PlannedModule::key).collect();
    let result = carry_out_all(stream, pid, &hello, plans, shared);
    if result.is_err()
        && let Some(loaded) = shared.state().planned.get_mut(&pid)
    {
        // It may connect again.
        loaded.retract(&keys);
    }
    result?;
    let done = Step {
        kind: StepKind::Done as u32,
        patches: 0,
        pool_address: 0,
        pool_size: 0,
    };
    send(stream, &done, &[])
}

/// Lets the process do all that is planned.
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

/// Lets the process do what is planned for a module.
fn carry_out(
    stream: &UnixStream,
    pid: u32,
    hello: &Hello,
    mut planned: PlannedModule,
    shared: &Shared,
) -> io::Result<()> {
    /// How often a place near the module is looked for: other threads may take it before the process does.
    const TRIES: u32 = 4;
    let mut loaded = planned.plan.loaded;
    let mut is_done = true;
    for attempt in 1.. {
        if planned.plan.patches.is_empty() {
            break;
        }
        // The pool first, by itself: loading it takes locks that other threads may hold, who can't be stopped before.
        let pool = memory_file(&planned.plan.pool)?;
        let step = Step {
            kind: StepKind::Module as u32,
            patches: 0,
            pool_address: planned.plan.pool_address,
            pool_size: planned.plan.pool_size,
        };
        let descriptor = pool.as_raw_fd();
        send(stream, &step, &[descriptor, descriptor])?;
        let mut next: Next = receive(stream)?;
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

/// Lets the process learn functions.
fn learn(stream: &UnixStream, functions: &[FunctionId]) -> io::Result<Next> {
    let list = memory_file(bytes_of_slice(functions))?;
    let step = Step {
        kind: StepKind::Functions as u32,
        patches: functions.len() as u32,
        pool_address: 0,
        pool_size: 0,
    };
    let descriptor = list.as_raw_fd();
    send(stream, &step, &[descriptor, descriptor])?;
    receive(stream)
}

/// Returns whether a step went well, and says so if not.
fn applied(next: &Next, pid: u32, path: &Path, shared: &Shared) -> bool {
    if next.applied == Applied::Done as u32 {
        return true;
    }
    let why = match next.applied {
        n if n == Applied::NoPool as u32 => "the tracer's code could not be loaded",
        n if n == Applied::Misplaced as u32 => {
            "the tracer's code was not loaded where it has to be"
        }
        n if n == Applied::NoMemory as u32 => {
            "there is no memory for what the tracer has to know of its functions"
        }
        _ if is_forbidden(next.error) => {
            "its code could not be made writable, which SELinux or systemd's MemoryDenyWriteExecute= forbids"
        }
        _ => "its code could not be made writable",
    };
    let error = match next.error {
        0 => String::new(),
        errno => format!(" ({})", io::Error::from_raw_os_error(errno.cast_signed())),
    };
    shared.state().note_loss(format!(
        "process {pid}: {} is not traced: {why}{error}",
        path.display()
    ));
    false
}

/// Whether an error of `mprotect` says that a policy forbids code to be written to.
fn is_forbidden(errno: u32) -> bool {
    [libc::EACCES, libc::EPERM].contains(&errno.cast_signed())
}
