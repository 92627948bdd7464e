//! `task.txt`: the programs, threads and forked processes of a trace.

use super::super::loss::Losses;
use super::addresses::without_blanks;
use dioptra_tracedata::{ProcessCause, Trace};
use std::collections::{BTreeMap, BTreeSet};

/// A task that has a file of calls.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task {
    pub pid: u32,
    pub tid: u32,
    /// The time of its first record, in nanoseconds.
    pub first: u64,
    /// The process that forked this one in the middle of calls.
    pub parent: Option<u32>,
}

/// The text of `task.txt`, and the sessions that it names.
#[derive(Debug, Default)]
pub(super) struct TaskList {
    pub text: String,
    pub sessions: Vec<String>,
    /// The ids of all tasks.
    pub tids: BTreeSet<u32>,
}

impl TaskList {
    /// Returns the list for tasks that have calls.
    pub fn new(trace: &Trace, tasks: &[Task], losses: &mut Losses) -> TaskList {
        let mut firsts: BTreeMap<u32, u64> = BTreeMap::new();
        for task in tasks {
            let first = firsts.entry(task.pid).or_insert(task.first);
            *first = task.first.min(*first);
        }
        let mut list = TaskList::default();
        // The lines by time; programs come before their threads.
        let mut lines: Vec<(u64, u8, String)> = Vec::new();
        let mut known = BTreeSet::new();
        for task in tasks {
            if let Some(parent) = task.parent
                && known.insert(task.pid)
            {
                let first = firsts.get(&task.pid).copied().unwrap_or(task.first);
                lines.push((first, 1, list.fork(first, task.pid, parent)));
            }
        }
        for process in trace.processes() {
            let (pid, parent) = (process.pid, process.parent);
            let first = firsts.get(&pid).copied().unwrap_or(process.time);
            // The recorder may have learned of a process after its first call, but not of a later program.
            let is_first = known.insert(pid);
            let time = match is_first {
                true => process.time.min(first),
                false => process.time,
            };
            match process.cause {
                ProcessCause::Exec => {
                    let name = without_blanks(&process.executable, losses);
                    lines.push((time, 0, list.session(time, pid, &name)));
                    if list.tids.insert(pid) {
                        lines.push((time, 2, task_line(time, pid, pid)));
                    }
                }
                ProcessCause::Fork if is_first => {
                    lines.push((first, 1, list.fork(first, pid, parent)));
                }
                ProcessCause::Fork => {}
            }
        }
        for task in tasks {
            if known.insert(task.pid) {
                let line = list.session(task.first, task.pid, "unknown");
                lines.push((task.first, 0, line));
            }
            if list.tids.insert(task.tid) {
                lines.push((task.first, 2, task_line(task.first, task.tid, task.pid)));
            }
        }
        lines.sort_by_key(|(time, order, _)| (*time, *order));
        list.text = lines.into_iter().map(|(_, _, line)| line).collect();
        list
    }

    fn fork(&mut self, time: u64, pid: u32, parent: u32) -> String {
        self.tids.insert(pid);
        let stamp = timestamp(time);
        format!("FORK timestamp={stamp} pid={pid} ppid={parent}\n")
    }

    fn session(&mut self, time: u64, pid: u32, name: &str) -> String {
        let number = self.sessions.len() as u64;
        let session = format!("{:016x}", u64::from(pid) << 32 | number);
        let stamp = timestamp(time);
        let line = format!("SESS timestamp={stamp} pid={pid} sid={session} exename=\"{name}\"\n");
        self.sessions.push(session);
        line
    }
}

fn task_line(time: u64, tid: u32, pid: u32) -> String {
    format!("TASK timestamp={} tid={tid} pid={pid}\n", timestamp(time))
}

fn timestamp(time: u64) -> String {
    format!("{}.{:09}", time / 1_000_000_000, time % 1_000_000_000)
}
