//! The running processes of a recording: attached to at its beginning, and detached from at its end.

use super::detach::{Restored, restore};
use super::inject::{inject, unload};
use super::{AttachError, LoadedRuntime, Recorder};
use crate::recording::notes::TraceNote;
use crate::recording::outcome::TraceError;
use crate::recording::shared::Shared;
use crate::serving::loaded::LoadedModules;
use dioptra_processes::procfs;
use std::collections::BTreeSet;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The time that processes have to end their conversations with the recorder before it detaches.
const PATIENCE: Duration = Duration::from_secs(2);

/// Running processes to attach to. While this value lives, no other recorder attaches to them.
#[derive(Debug)]
pub struct RunningProcesses {
    /// Their ids.
    pub pids: Vec<u32>,
    /// The runtime in those that are attached to.
    attached: Mutex<Vec<(u32, LoadedRuntime)>>,
    _claims: Vec<UnixListener>,
}

impl RunningProcesses {
    /// Claims the processes for this recorder.
    ///
    /// # Errors
    /// [`TraceError::Attach`] if a process is not there, or another recorder has it.
    pub fn claim(pids: &[u32]) -> Result<RunningProcesses, TraceError> {
        let failed = |pid| move |source| TraceError::Attach { pid, source };
        let mut claims = Vec::new();
        let mut once = Vec::new();
        for pid in pids {
            if once.contains(pid) {
                continue;
            }
            once.push(*pid);
            claims.push(claim(*pid).map_err(failed(*pid))?);
        }
        Ok(RunningProcesses {
            pids: once,
            attached: Mutex::default(),
            _claims: claims,
        })
    }

    /// Lets the processes connect, one after the other. After a failure the ones before are to be detached.
    ///
    /// # Errors
    /// [`TraceError::Attach`]
    pub fn attach(&self, socket: &str, shared: &Shared) -> Result<(), TraceError> {
        for pid in &self.pids {
            let recorder = Recorder {
                socket,
                runtime: &shared.runtime,
            };
            // The kernel lets a stopped thread go on when the thread ends that has stopped it, whatever fails.
            let attached = thread::scope(|scope| scope.spawn(|| inject(*pid, recorder)).join());
            let attached = attached.unwrap_or(Err(AttachError::Lost("the tracer")));
            let attached = attached.map_err(|source| TraceError::Attach { pid: *pid, source })?;
            self.lock().push((*pid, attached.runtime));
            if !attached.follows_programs {
                shared.state().note(TraceNote::ProgramsLost { pid: *pid });
            }
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(u32, LoadedRuntime)>> {
        self.attached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the processes and their children their own code back, and ends their records.
    pub fn detach(&self, shared: &Shared) {
        self.restore(shared, true);
        shared.arena.header().stop.store(1, Ordering::SeqCst);
        // A process that has just loaded a library may still receive patches for it.
        let end = Instant::now() + PATIENCE;
        while shared.served.load(Ordering::SeqCst) > 0 && Instant::now() < end {
            thread::sleep(Duration::from_millis(1));
        }
        self.restore(shared, false);
    }

    /// Unloads the runtime from the processes, where no call is open that returns through it. The records must have been
    /// read before.
    pub fn unload(&self, shared: &Shared) {
        for (pid, runtime) in self.lock().drain(..) {
            // Where this fails the runtime stays, and does nothing any more.
            let loaded = shared
                .state()
                .planned
                .get(&pid)
                .map(LoadedModules::thread_block);
            let block = loaded.unwrap_or_default();
            let _ = thread::scope(|scope| scope.spawn(|| unload(pid, runtime, block)).join());
        }
    }

    fn restore(&self, shared: &Shared, is_first: bool) {
        let mut all: BTreeSet<u32> = self.pids.iter().copied().collect();
        all.extend(shared.arena.users());
        let known: Vec<LoadedModules> = {
            let state = shared.state();
            all.extend(state.processes.iter().copied());
            state.planned.values().cloned().collect()
        };
        for pid in all {
            // A child that has not connected has its ancestor's patches, at the same addresses.
            let own = shared.state().planned.get(&pid).cloned();
            let modules = own.map_or_else(|| known.clone(), |own| vec![own]);
            let restored = thread::scope(|scope| {
                let restoring = scope.spawn(|| {
                    modules
                        .iter()
                        .try_fold(Restored::default(), |sum, modules| {
                            restore(pid, modules).map(|one| sum.and(one))
                        })
                });
                restoring.join()
            });
            let Ok(restored) = restored else { continue };
            match restored {
                Ok(Restored { changed, .. }) if changed > 0 && is_first => {
                    let patches = changed;
                    shared
                        .state()
                        .note(TraceNote::OverwrittenCode { pid, patches });
                }
                Ok(Restored { kept, .. }) if kept > 0 && !is_first => {
                    shared.state().note(TraceNote::Undetached {
                        pid,
                        because: format!(
                            "a thread stays in the tracer's code, perhaps in a signal handler that has interrupted it; {kept} jumps stay"
                        ),
                    });
                }
                Ok(_) => {}
                Err(_) if procfs::started(pid).is_none() => {}
                Err(error) => shared.state().note(TraceNote::Undetached {
                    pid,
                    because: error.to_string(),
                }),
            }
        }
    }
}

/// Claims a process: an abstract socket's name belongs to one program at a time, and is free again when that ends,
/// however it ends.
fn claim(pid: u32) -> Result<UnixListener, AttachError> {
    let started = procfs::started(pid).ok_or(AttachError::Gone)?;
    let name = format!("dioptra-attached-{pid}-{started}");
    let address = SocketAddr::from_abstract_name(name.as_bytes())
        .map_err(AttachError::at("making a socket"))?;
    UnixListener::bind_addr(&address).map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => AttachError::Traced,
        _ => AttachError::at("making a socket")(error),
    })
}
