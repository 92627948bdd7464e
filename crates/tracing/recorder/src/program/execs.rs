//! Programs that traced processes execute, and that are not traced.
//!
//! A process that executes a program tells so ([`dioptra_tracelayout::execs`]). If the program does not connect before
//! it ends, or before the recording does, the runtime was not loaded into it. Untraced processes tell nothing of the
//! programs that they execute; where perf events are permitted, the kernel does ([`crate::collecting::scheduling`]).

use super::untraced::{self, UntracedReason};
use crate::collecting::collector::process_exists;
use crate::recording::notes::TraceNote;
use crate::recording::shared::Shared;
use dioptra_tracelayout::execs::{self, EXECUTES};
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The time after which a queue entry that was taken but not filled is known to belong to a process that was killed in
/// between.
const PATIENCE: Duration = Duration::from_secs(1);
/// The largest number of programs that are named in notes.
const MOST: usize = 20;

/// The executed programs, as far as processes or the kernel have reported them.
#[derive(Debug, Default)]
pub struct Execs {
    /// The number of notices that were read.
    tail: u64,
    /// The time since which the next notice is expected.
    late_since: Option<Instant>,
    /// The times at which each process has connected to begin.
    connected: HashMap<u32, Vec<u64>>,
    /// The times at which each process has reported that it executes something.
    told: HashMap<u32, Vec<u64>>,
    /// The executions that the kernel has reported.
    seen: Vec<Seen>,
    /// Executed programs that have not connected yet.
    pending: Vec<Executed>,
    /// The number of processes that ran untraced, by their program and the reason.
    untraced: BTreeMap<(PathBuf, UntracedReason), u64>,
    /// The reasons why programs are not traced, by file.
    reasons: HashMap<(u64, u64, i64, i64), UntracedReason>,
}

/// An execution that the kernel has reported.
#[derive(Debug)]
struct Seen {
    pid: u32,
    time: u64,
    program: PathBuf,
    why: UntracedReason,
}

#[derive(Debug)]
struct Executed {
    pid: u32,
    time: u64,
    program: PathBuf,
    why: UntracedReason,
}

impl Execs {
    /// Notes that a process has connected to begin, or was refused. Neither needs a note at the end.
    pub fn connected(&mut self, pid: u32, time: u64) {
        self.connected.entry(pid).or_default().push(time);
        self.pending
            .retain(|executed| executed.pid != pid || executed.time > time);
    }

    fn is_connected(&self, pid: u32, time: u64) -> bool {
        let mut connected = self.connected.get(&pid).into_iter().flatten();
        connected.any(|connected| *connected >= time)
    }

    /// Notes that a process has executed something, as the kernel tells. `name` is the process's name.
    pub fn seen(&mut self, pid: u32, time: u64, name: &str) {
        let program = fs::read_link(format!("/proc/{pid}/exe"));
        let (program, why) = match program {
            Ok(program) => {
                let why = self.reason(pid, &program);
                (program, why)
            }
            Err(_) => {
                let program = format!("{name} (whose path is not known)");
                (PathBuf::from(program), UntracedReason::Unknown)
            }
        };
        self.seen.push(Seen {
            pid,
            time,
            program,
            why,
        });
    }

    /// Counts executions that only the kernel has reported, and that did not connect. `but` is a process whose first
    /// execution is reported elsewhere.
    fn count_seen(&mut self, but: Option<u32>) {
        let mut seen = std::mem::take(&mut self.seen);
        seen.sort_by_key(|seen| (seen.pid, seen.time));
        for (
            at,
            Seen {
                pid,
                time,
                program,
                why,
            },
        ) in seen.iter().enumerate()
        {
            let same = |seen: &&Seen| seen.pid == *pid;
            let before = at.checked_sub(1).and_then(|at| seen.get(at)).filter(same);
            let next = seen
                .get(at + 1)
                .filter(same)
                .map_or(u64::MAX, |next| next.time);
            let before = before.map_or(0, |before| before.time);
            let within = |times: &HashMap<u32, Vec<u64>>, from: u64, until: u64| {
                let mut times = times.get(pid).into_iter().flatten();
                times.any(|time| (from..until).contains(time))
            };
            let is_traced = within(&self.connected, *time, next);
            let is_told = within(&self.told, before, *time);
            let is_first = before == 0 && but == Some(*pid);
            if !is_traced && !is_told && !is_first {
                let key = (program.clone(), *why);
                *self.untraced.entry(key).or_default() += 1;
            }
        }
    }

    fn executes(&mut self, pid: u32, time: u64, path: Vec<u8>) {
        self.told.entry(pid).or_default().push(time);
        if self.is_connected(pid, time) {
            return;
        }
        // Drops the parts of a path that mean nothing: `/folder/./program`.
        let program: PathBuf = Path::new(OsStr::from_bytes(&path)).components().collect();
        // The reason is found now, because the file may be gone later.
        let why = self.reason(pid, &program);
        self.pending.push(Executed {
            pid,
            time,
            program,
            why,
        });
    }

    fn failed(&mut self, pid: u32) {
        self.told.get_mut(&pid).map(Vec::pop);
        let last = self.pending.iter().rposition(|e| e.pid == pid);
        last.map(|at| self.pending.remove(at));
    }

    fn reason(&mut self, pid: u32, program: &Path) -> UntracedReason {
        // The process may have another root than the recorder.
        let below = format!("/proc/{pid}/root{}", program.display());
        for path in [Path::new(&below), program] {
            let Ok(file) = fs::metadata(path) else {
                continue;
            };
            let key = (file.dev(), file.ino(), file.mtime(), file.mtime_nsec());
            if let Some(reason) = self.reasons.get(&key) {
                return *reason;
            }
            let reason = untraced::why(path.as_os_str());
            // The file below the process's root can't be read once the process has ended. Its own path may still lead to it.
            if reason != UntracedReason::Unknown || path.exists() {
                self.reasons.insert(key, reason);
                return reason;
            }
        }
        UntracedReason::Unknown
    }

    /// Counts the pending programs as untraced whose processes can't connect any more.
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

    /// Returns the notes for the end of the recording, but not one about the first program of the process `but`.
    /// `unseen` is the number of executions that could not be reported.
    pub fn notes(&mut self, unseen: u64, but: Option<u32>) -> Vec<TraceNote> {
        self.decide(|_| true);
        self.count_seen(but);
        let untraced = self.untraced.iter().take(MOST);
        let mut notes: Vec<TraceNote> = untraced
            .map(|((program, why), processes)| TraceNote::ProgramUntraced {
                processes: *processes,
                program: program.clone(),
                why: *why,
            })
            .collect();
        let processes = self.untraced.values().skip(MOST).sum::<u64>();
        if processes > 0 {
            notes.push(TraceNote::OtherProgramsUntraced { processes });
        }
        if unseen > 0 {
            notes.push(TraceNote::ExecutionsUnseen { programs: unseen });
        }
        notes
    }
}

/// Reads the notices of executed programs.
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
        execs.executes(4, 10, b"/no/such/./program".to_vec());
        program(&mut execs, 5, 10);
        execs.decide(|pid| pid == 4);
        assert_eq!(execs.pending.len(), 1);
        // A process that was traced executes something that is not.
        program(&mut execs, 1, 20);
        let notes = execs.notes(0, None);
        assert_eq!(notes.len(), 1, "{notes:?}");
        let start = "3 processes of /no/such/program ran untraced: ";
        assert!(notes[0].to_string().starts_with(start), "{notes:?}");
        assert_eq!(execs.notes(7, None).len(), 2);
    }

    #[test]
    fn what_the_kernel_tells_is_counted_once() {
        let mut execs = Execs::default();
        // No such process exists: their number is too large.
        let [a, b, c, d] = [1, 2, 3, 4].map(|number| (1 << 30) + number);
        // Traced.
        execs.connected(a, 30);
        execs.seen(a, 20, "a");
        // Reported by the process, which executes a traced program later.
        execs.executes(b, 10, b"/no/such/b".to_vec());
        execs.decide(|_| true);
        execs.seen(b, 40, "x");
        execs.seen(b, 11, "b");
        execs.connected(b, 41);
        // Reported by the kernel only.
        execs.seen(c, 20, "c");
        execs.seen(c, 30, "c");
        // Reported elsewhere.
        execs.seen(d, 20, "d");
        execs.seen(d, 30, "e");
        let notes = execs.notes(0, Some(d));
        assert_eq!(notes.len(), 3, "{notes:?}");
        assert!(
            notes[0]
                .to_string()
                .starts_with("1 process of /no/such/b ran")
        );
        assert!(
            notes[1]
                .to_string()
                .starts_with("2 processes of c (whose path is not known) ran")
        );
        assert!(
            notes[2]
                .to_string()
                .starts_with("1 process of e (whose path is not known) ran")
        );
    }
}
