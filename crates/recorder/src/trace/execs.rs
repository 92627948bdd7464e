//! Programs that traced processes execute, and that are not traced.
//!
//! The process that executes a program tells so ([`dioptra_tracelayout::execs`]). If the program does not connect before it ends,
//! or before the recording does, the runtime was not loaded into it.

use super::shared::Shared;
use super::untraced;
use crate::trace::collect::process_exists;
use dioptra_tracelayout::execs::{self, EXECUTES};
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A place that was taken, but is not full for so long, belongs to a process that was killed in between.
const PATIENCE: Duration = Duration::from_secs(1);
/// So many programs are named.
const MOST: usize = 20;

/// What is known of executed programs.
#[derive(Debug, Default)]
pub struct Execs {
    /// How many notices were read.
    tail: u64,
    /// Since when the next notice is expected.
    late_since: Option<Instant>,
    /// When each process has last connected to begin.
    connected: HashMap<u32, u64>,
    /// Executed programs that have not connected yet.
    pending: Vec<Executed>,
    /// How many processes of each program ran untraced, and why.
    untraced: BTreeMap<(PathBuf, String), u64>,
    /// Why programs are not traced, by file.
    reasons: HashMap<(u64, u64, i64, i64), String>,
}

#[derive(Debug)]
struct Executed {
    pid: u32,
    time: u64,
    program: PathBuf,
    why: String,
}

impl Execs {
    /// A process has connected to begin, or was refused: what is to be said of it is said.
    pub fn connected(&mut self, pid: u32, time: u64) {
        self.connected.insert(pid, time);
        self.pending
            .retain(|executed| executed.pid != pid || executed.time > time);
    }

    fn is_connected(&self, pid: u32, time: u64) -> bool {
        let connected = self.connected.get(&pid);
        connected.is_some_and(|connected| *connected >= time)
    }

    fn executes(&mut self, pid: u32, time: u64, path: Vec<u8>) {
        if self.is_connected(pid, time) {
            return;
        }
        let program = PathBuf::from(OsString::from_vec(path));
        // Asked now: the file may be gone later.
        let why = self.reason(pid, &program);
        self.pending.push(Executed {
            pid,
            time,
            program,
            why,
        });
    }

    fn failed(&mut self, pid: u32) {
        let last = self.pending.iter().rposition(|e| e.pid == pid);
        last.map(|at| self.pending.remove(at));
    }

    fn reason(&mut self, pid: u32, program: &Path) -> String {
        // It may have another root than we.
        let below = format!("/proc/{pid}/root{}", program.display());
        let paths = [PathBuf::from(below), program.to_owned()];
        let found = paths
            .into_iter()
            .find_map(|path| Some((fs::metadata(&path).ok()?, path)));
        let Some((file, path)) = found else {
            return untraced::UNKNOWN.to_owned();
        };
        let key = (file.dev(), file.ino(), file.mtime(), file.mtime_nsec());
        let reason = || untraced::why(path.as_os_str()).to_owned();
        self.reasons.entry(key).or_insert_with(reason).clone()
    }

    /// Decides about programs of which nothing will come any more.
    fn decide(&mut self, is_over: impl Fn(u32) -> bool) {
        let (over, pending) = std::mem::take(&mut self.pending)
            .into_iter()
            .partition(|executed| is_over(executed.pid));
        self.pending = pending;
        let over: Vec<Executed> = over;
        for Executed { program, why, .. } in over {
            *self.untraced.entry((program, why)).or_default() += 1;
        }
    }

    /// What is to be said at the end of the recording.
    pub fn notes(&mut self, unseen: u64) -> Vec<String> {
        self.decide(|_| true);
        let mut notes = Vec::new();
        for ((program, why), count) in self.untraced.iter().take(MOST) {
            let processes = if *count == 1 { "process" } else { "processes" };
            let program = match program.as_os_str().is_empty() {
                true => "a program with a long path".to_owned(),
                false => program.display().to_string(),
            };
            notes.push(format!(
                "{count} {processes} of {program} ran untraced: {why}"
            ));
        }
        let more = self.untraced.values().skip(MOST).sum::<u64>();
        if more > 0 {
            notes.push(format!("{more} processes of other programs ran untraced"));
        }
        if unseen > 0 {
            notes.push(format!(
                "{unseen} programs were executed while too many others were: whether they were traced is not known"
            ));
        }
        notes
    }
}

/// Reads what processes tell.
pub fn look(shared: &Shared) {
    let arena = &shared.arena;
    let notices = arena.notices();
    let mut state = shared.state();
    let execs = &mut state.execs;
    while execs.tail != arena.header().executed.load(Ordering::Acquire) {
        let Some(notice) = execs::next(execs.tail, notices) else {
            let since = *execs.late_since.get_or_insert_with(Instant::now);
            if since.elapsed() < PATIENCE {
                break;
            }
            execs.late_since = None;
            execs::free(execs.tail, notices);
            execs.tail += 1;
            continue;
        };
        execs.late_since = None;
        let what = notice.what.load(Ordering::Relaxed);
        let (pid, kind) = (what as u32, (what >> 32) as u32);
        let time = notice.time.load(Ordering::Relaxed);
        let length = usize::try_from(notice.length.load(Ordering::Relaxed)).unwrap_or(0);
        let path = notice.path.get(..length).unwrap_or_default().to_vec();
        execs::free(execs.tail, notices);
        execs.tail += 1;
        match kind {
            EXECUTES => execs.executes(pid, time, path),
            _ => execs.failed(pid),
        }
    }
    if !execs.pending.is_empty() {
        execs.decide(|pid| !process_exists(pid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_never_connect_are_counted() {
        let mut execs = Execs::default();
        let program = |execs: &mut Execs, pid, time| {
            execs.executes(pid, time, b"/no/such/program".to_vec());
        };
        // Traced, whichever is known first.
        program(&mut execs, 1, 10);
        execs.connected(1, 11);
        execs.connected(2, 11);
        program(&mut execs, 2, 10);
        // Not executed.
        program(&mut execs, 3, 10);
        execs.failed(3);
        // Not traced.
        program(&mut execs, 4, 10);
        program(&mut execs, 5, 10);
        execs.decide(|pid| pid == 4);
        assert_eq!(execs.pending.len(), 1);
        // A process that was traced executes something that is not.
        program(&mut execs, 1, 20);
        let notes = execs.notes(0);
        assert_eq!(notes.len(), 1, "{notes:?}");
        let start = "3 processes of /no/such/program ran untraced: ";
        assert!(notes[0].starts_with(start), "{notes:?}");
        assert_eq!(execs.notes(7).len(), 2);
    }
}
