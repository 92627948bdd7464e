//! Writes patches into a process, so that none of its threads executes half of one.
//!
//! The process's runtime writes them. Other threads are [stopped](super::stopping) meanwhile if they may run the code.
//! They do not run the code of a module that the dynamic linker has just mapped ([`Reason::Modules`]): it says so
//! before anything of the module is executed, and holds its lock.
//!
//! Where threads can't be stopped (a debugger has them, or the system forbids it), only patches are written that a
//! thread sees as a whole or not at all: one instruction in the place of one, within 8 bytes that the runtime stores at
//! once.

use super::maps::MappedModule;
use super::stopping::{CannotStop, StoppedThreads, has_others};
use super::wire::{bytes_of_slice, memory_file, receive, send};
use crate::analysis::prepare::open;
use crate::processor::Native;
use crate::recording::notes::TraceNote;
use crate::recording::shared::Shared;
use dioptra_trace_patch::Arch;
use dioptra_tracelayout::message::{
    Applied, Hello, PATCH_SIZE, Patch, Reason, SetupStep, StepKind, StepRequest,
};
use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::thread;

/// The reason why functions could not be patched while other threads ran.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PatchObstacle {
    /// Threads were in the middle of the functions' first instructions, and stayed there.
    InTheMiddle,
    /// Other threads run that may execute the functions, and can't be stopped.
    ThreadsRun {
        /// The reason why they can't be stopped.
        because: String,
    },
    /// The thread that was to stop the other threads broke off.
    NotStopped,
    /// Somebody has changed the functions' code since the file was loaded.
    Changed,
}

impl fmt::Display for PatchObstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PatchObstacle::InTheMiddle => f.write_str(
                "threads were in the middle of their first instructions, and stayed there",
            ),
            PatchObstacle::ThreadsRun { because } => {
                write!(f, "other threads run that may execute them, and {because}")
            }
            PatchObstacle::Changed => {
                f.write_str("their code is not as the file has it; somebody else has changed it")
            }
            PatchObstacle::NotStopped => f.write_str("stopping the other threads failed"),
        }
    }
}

/// Lets a process that has said hello write patches of one of its modules, and returns how that went.
///
/// # Errors
/// If the process breaks off.
pub fn patch(
    stream: &UnixStream,
    pid: u32,
    hello: &Hello,
    patches: &[Patch],
    module: &MappedModule,
    shared: &Shared,
) -> io::Result<StepRequest> {
    let is_new = hello.reason == Reason::Modules as u32;
    if is_new || !has_others(pid, hello.tid) {
        return write(stream, patches);
    }
    if Native::SEES_AT_ONCE && written_at_once(pid, patches, module).len() == patches.len() {
        return write(stream, patches);
    }
    // Stopped threads belong to the thread that has stopped them.
    let done = thread::scope(|scope| {
        let done = scope.spawn(|| patch_stopped(stream, (pid, hello.tid), patches));
        done.join()
    });
    let (why, left) = match done {
        Ok(Ok((next, left))) => {
            note(shared, pid, module, left, PatchObstacle::InTheMiddle);
            return next;
        }
        Ok(Err(why)) => {
            let because = why.to_string();
            let at_once = written_at_once(pid, patches, module);
            (PatchObstacle::ThreadsRun { because }, at_once)
        }
        Err(_) => (PatchObstacle::NotStopped, Vec::new()),
    };
    note(shared, pid, module, patches.len() - left.len(), why);
    write(stream, &left)
}

/// Notes how many functions of a module are left alone.
pub fn note(
    shared: &Shared,
    pid: u32,
    module: &MappedModule,
    functions: usize,
    obstacle: PatchObstacle,
) {
    if functions > 0 {
        shared.state().note(TraceNote::FunctionsUnpatched {
            pid,
            module: module.path.clone(),
            functions,
            obstacle,
        });
    }
}

/// Writes patches while all other threads are stopped. Returns how that went, and how many patches were left out.
fn patch_stopped(
    stream: &UnixStream,
    (pid, spared): (u32, u32),
    patches: &[Patch],
) -> Result<(io::Result<StepRequest>, usize), CannotStop> {
    let mut stopped = StoppedThreads::stop(pid, spared)?;
    let ranges: Vec<Range<u64>> = patches
        .iter()
        .map(|patch| patch.address..patch.address + u64::from(patch.length))
        .collect();
    let held: BTreeSet<usize> = stopped.leave(&ranges)?;
    let free = patches
        .iter()
        .enumerate()
        .filter(|(at, _)| !held.contains(at));
    let free: Vec<Patch> = free.map(|(_, patch)| *patch).collect();
    Ok((write(stream, &free), held.len()))
}

/// Returns the patches that can be written while threads run.
fn written_at_once(pid: u32, patches: &[Patch], module: &MappedModule) -> Vec<Patch> {
    let file = open(pid, module).and_then(|(path, _)| File::open(path).ok());
    let is_at_once = |patch: &&Patch| {
        let size = usize::from(patch.length).min(PATCH_SIZE);
        let word = patch.address % 8 + size as u64 <= 8;
        let is_code = patch.protection & libc::PROT_EXEC as u8 != 0;
        let mut original = vec![0; size];
        let offset = module.offset(patch.address);
        let read = offset.zip(file.as_ref());
        let is_read = read.is_some_and(|(at, file)| file.read_exact_at(&mut original, at).is_ok());
        word && (!is_code || is_read && Native::is_one_instruction(&original))
    };
    patches.iter().filter(is_at_once).copied().collect()
}

/// Lets the process write patches.
fn write(stream: &UnixStream, patches: &[Patch]) -> io::Result<StepRequest> {
    if patches.is_empty() {
        return Ok(StepRequest {
            applied: Applied::Done as u32,
            error: 0,
        });
    }
    let list = memory_file(bytes_of_slice(patches))?;
    let step = SetupStep {
        kind: StepKind::Module as u32,
        patches: patches.len() as u32,
        pool_address: 0,
        pool_size: 0,
    };
    let descriptor = list.as_raw_fd();
    send(stream, &step, &[descriptor, descriptor])?;
    receive(stream)
}
