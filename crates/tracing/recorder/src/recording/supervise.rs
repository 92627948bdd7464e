//! The main thread's work while the command runs: signals, and the end of all traced processes.

use super::outcome::TraceError;
use super::shared::{Shared, monotonic};
use super::spec::AfterStart;
use crate::collecting::collector::process_exists;
use dioptra_processes::command::{CommandStatus, HeldCommand};
use dioptra_processes::signals::Signals;
use dioptra_tracedata::JournalEntry;
use std::time::{Duration, Instant};

/// The longest time for which the main thread waits for a signal.
const TICK: Duration = Duration::from_millis(50);

/// Lets the command run, and waits until it and all traced processes have ended, or a signal asks for the end.
///
/// The trace is kept as soon as a process is traced. If no process was traced when the command ends, the caller decides
/// whether to keep it.
pub fn supervise(
    command: &mut HeldCommand,
    after_start: Option<AfterStart>,
    signals: &mut Signals,
    shared: &Shared,
) -> Result<Option<CommandStatus>, TraceError> {
    command.release()?;
    if let Some(after_start) = after_start {
        after_start();
    }
    let mut is_kept = false;
    let mut status = None;
    loop {
        if !is_kept && shared.state().connected > 0 {
            keep(shared);
            is_kept = true;
        }
        if status.is_none() {
            status = command.try_wait()?;
            if let Some(status) = status {
                shared.state().journal(&JournalEntry::End {
                    time: monotonic(),
                    pid: command.pid(),
                    status: i32::from(status.exit_code()),
                });
            }
        }
        if status.is_some() {
            // The ids are copied, so that nobody waits for the lock while /proc is read.
            let processes: Vec<u32> = shared.state().processes.iter().copied().collect();
            if !processes.into_iter().any(process_exists) {
                // A daemon's first child has ended, too. Processes that go on are known by the memory that they have
                // inherited.
                let is_used = shared.arena.is_used();
                let users = if is_used {
                    shared.arena.users()
                } else {
                    Vec::new()
                };
                if users.is_empty() {
                    return Ok(status);
                }
                shared.state().processes.extend(users);
            }
        }
        let mut ends = false;
        while let Some(received) = signals.take() {
            if received.ends_recording() {
                // The terminal sends its signals to the command, too.
                if !received.from_kernel {
                    command.signal(received.signal);
                }
                ends |= status.is_some();
            }
        }
        if ends {
            return Ok(status);
        }
        signals
            .wait(if status.is_some() { TICK / 10 } else { TICK })
            .map_err(|source| TraceError::System {
                what: "waiting for signals",
                source,
            })?;
    }
}

/// Waits until running processes and the children that they have started have ended, or a signal or the time asks for the
/// end.
pub fn watch(
    pids: &[u32],
    signals: &mut Signals,
    duration: Option<Duration>,
    shared: &Shared,
) -> Result<(), TraceError> {
    keep(shared);
    let end = duration.map(|duration| Instant::now() + duration);
    loop {
        let processes: Vec<u32> = shared.state().processes.iter().copied().collect();
        let mut all = pids.iter().copied().chain(processes);
        if !all.any(process_exists) && shared.arena.users().is_empty() {
            return Ok(());
        }
        let mut ends = end.is_some_and(|end| Instant::now() >= end);
        while let Some(received) = signals.take() {
            ends |= received.ends_recording();
        }
        if ends {
            return Ok(());
        }
        signals.wait(TICK).map_err(|source| TraceError::System {
            what: "waiting for signals",
            source,
        })?;
    }
}

/// Makes the trace permanent. Removes the trace that was `FOLDER.old` before the older one took its place.
pub fn keep(shared: &Shared) {
    let older = shared.state().writer.keep();
    if let Some(older) = older {
        // No thread waits for the state meanwhile. The next recording removes the rest if this one fails to.
        let _ = std::fs::remove_dir_all(older);
    }
}
