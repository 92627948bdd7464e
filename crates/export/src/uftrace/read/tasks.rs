//! `task.txt`: programs, threads, forked processes and loaded libraries.

use super::super::loss::{Losses, UftraceLossKind};
use super::{UftraceImportError, read_text};
use std::collections::BTreeMap;
use std::path::Path;

/// The largest number of forks from a program's execution to a process that runs the program.
const MOST_FORKS: usize = 1000;

/// A program that a process executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Session {
    pub time: u64,
    pub pid: u32,
    pub id: String,
    pub executable: String,
    /// Libraries that it loaded later: time, first address, path.
    pub libraries: Vec<(u64, u64, String)>,
}

/// The beginning of a forked process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fork {
    pub time: u64,
    pub parent: u32,
}

/// The tasks of a recording.
#[derive(Debug, Default)]
pub(super) struct TaskTable {
    sessions: Vec<Session>,
    /// The places of each process's programs among all, in the order of time.
    by_process: BTreeMap<u32, Vec<usize>>,
    /// The processes of threads.
    threads: BTreeMap<u32, u32>,
    forks: BTreeMap<u32, Fork>,
}

impl TaskTable {
    pub fn read(folder: &Path, losses: &mut Losses) -> Result<TaskTable, UftraceImportError> {
        let text = read_text(&folder.join("task.txt"))?;
        let mut table = TaskTable::default();
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            if table.line(line).is_none() {
                losses.add(UftraceLossKind::Lines);
            }
        }
        table.sessions.sort_by_key(|session| session.time);
        for (place, session) in table.sessions.iter().enumerate() {
            table.by_process.entry(session.pid).or_default().push(place);
        }
        Ok(table)
    }

    fn line(&mut self, line: &str) -> Option<()> {
        let (kind, rest) = line.split_once(' ')?;
        let time = timestamp(field(rest, "timestamp")?)?;
        let number = |name| field(rest, name)?.parse::<u32>().ok();
        match kind {
            "SESS" => {
                let id = field(rest, "sid")?;
                let is_sane = id.len() <= 64 && id.bytes().all(|c| c.is_ascii_alphanumeric());
                self.sessions.push(Session {
                    time,
                    pid: number("pid")?,
                    id: is_sane.then(|| id.to_owned())?,
                    executable: quoted(rest, "exename")?,
                    libraries: Vec::new(),
                });
            }
            "TASK" => _ = self.threads.insert(number("tid")?, number("pid")?),
            "FORK" => {
                let parent = number("ppid")?;
                let pid = number("pid")?;
                // A process has one beginning; that of a later one with the same id is left out.
                self.forks.entry(pid).or_insert(Fork { time, parent });
            }
            "DLOP" => {
                let base = u64::from_str_radix(field(rest, "base")?.trim_start_matches("0x"), 16);
                let library = (time, base.ok()?, quoted(rest, "libname")?);
                let id = field(rest, "sid")?;
                let mut sessions = self.sessions.iter_mut();
                let session = sessions.find(|session| session.id == id)?;
                session.libraries.push(library);
            }
            _ => return None,
        }
        Some(())
    }

    /// Returns the programs in the order of time.
    pub fn sessions(&self) -> &[Session] {
        &self.sessions
    }

    /// Returns the beginning of a forked process.
    pub fn fork(&self, pid: u32) -> Option<Fork> {
        self.forks
            .get(&pid)
            .copied()
            .filter(|fork| fork.parent != pid)
    }

    /// Returns the process of a thread; a thread that is not listed is taken for a process.
    pub fn process(&self, tid: u32) -> u32 {
        self.threads.get(&tid).copied().unwrap_or(tid)
    }

    /// Returns the program that a process executes at a time, as an index of [`TaskTable::sessions`]. A forked process
    /// executes its parent's until it has one of its own. Before the first one it is that.
    pub fn session_at(&self, pid: u32, time: u64) -> Option<usize> {
        let (mut pid, mut time) = (pid, time);
        for _ in 0..MOST_FORKS {
            let own = self.by_process.get(&pid).map_or(&[][..], Vec::as_slice);
            let later = own.partition_point(|place| self.sessions[*place].time <= time);
            if let Some(last) = later.checked_sub(1) {
                return Some(own[last]);
            }
            match self.fork(pid) {
                Some(fork) => (pid, time) = (fork.parent, fork.time.min(time)),
                None => {
                    let first = (!self.sessions.is_empty()).then_some(0);
                    return own.first().copied().or(first);
                }
            }
        }
        None
    }

    /// Returns the times at which a process executes other programs.
    pub fn executions(&self, pid: u32) -> Vec<u64> {
        let own = self.by_process.get(&pid).into_iter().flatten();
        own.map(|place| self.sessions[*place].time).collect()
    }
}

/// Returns the value of `NAME=VALUE` in a line.
fn field<'l>(line: &'l str, name: &str) -> Option<&'l str> {
    line.split_whitespace()
        .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

/// Returns the value of `NAME="VALUE"` in a line.
fn quoted(line: &str, name: &str) -> Option<String> {
    let (_, rest) = line.split_once(&format!("{name}=\""))?;
    let (value, _) = rest.rsplit_once('"')?;
    Some(value.to_owned())
}

/// Returns the nanoseconds of `SECONDS.NANOSECONDS`.
fn timestamp(text: &str) -> Option<u64> {
    let (seconds, rest) = text.split_once('.')?;
    let seconds: u64 = seconds.parse().ok()?;
    let rest: u64 = (rest.len() == 9).then(|| rest.parse().ok())??;
    seconds.checked_mul(1_000_000_000)?.checked_add(rest)
}
