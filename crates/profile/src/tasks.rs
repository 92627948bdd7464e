//! Processes and threads in time order: both numbers are reused, so each is told apart by number and start.

use crate::hash::FxBuildHasher;
use hashbrown::HashMap;

/// The index of a [`Process`] in [`Tasks`].
pub type ProcessId = u32;
/// The index of a [`Thread`] in [`Tasks`].
pub type ThreadId = u32;

/// A process, from its start to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number; `u32::MAX` where the kernel no longer knew it.
    pub pid: u32,
    /// Nanoseconds of the recording's clock at its fork; `None` where it was there before the recording.
    pub start: Option<u64>,
    /// Nanoseconds of the recording's clock at its end, if that was recorded.
    pub end: Option<u64>,
    /// The last name of its main thread.
    pub comm: Option<String>,
}

/// A thread, from its start to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Its number.
    pub tid: u32,
    /// Its process.
    pub process: ProcessId,
    /// Nanoseconds of the recording's clock at its creation; `None` where it was there before the recording.
    pub start: Option<u64>,
    /// Nanoseconds of the recording's clock at its end, if that was recorded.
    pub end: Option<u64>,
    /// Its last name.
    pub comm: Option<String>,
}

/// All processes and threads that a recording tells of.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    processes: Vec<Process>,
    threads: Vec<Thread>,
    /// Which process and thread have a number now, while reading.
    by_pid: HashMap<u32, ProcessId, FxBuildHasher>,
    by_tid: HashMap<u32, ThreadId, FxBuildHasher>,
    /// The thread that was asked for last: samples come in runs.
    last: Option<(u32, u32, ThreadId)>,
}

impl Tasks {
    /// All processes in the order of their ids.
    pub fn processes(&self) -> &[Process] {
        &self.processes
    }

    /// All threads in the order of their ids.
    pub fn threads(&self) -> &[Thread] {
        &self.threads
    }

    /// A process's name for tables: its main thread's last name, as perf `:PID` where none was recorded.
    pub fn process_name(&self, id: ProcessId) -> String {
        match self.processes.get(id as usize) {
            Some(process) => name(process.comm.as_deref(), process.pid),
            None => crate::modules::UNKNOWN.to_owned(),
        }
    }

    /// A thread's name for tables, as [`Tasks::process_name`].
    pub fn thread_name(&self, id: ThreadId) -> String {
        match self.threads.get(id as usize) {
            Some(thread) => name(thread.comm.as_deref(), thread.tid),
            None => crate::modules::UNKNOWN.to_owned(),
        }
    }

    /// The process that has this number now; a new one where none has it.
    pub(crate) fn process(&mut self, pid: u32) -> ProcessId {
        match self.by_pid.get(&pid) {
            Some(id) => *id,
            None => self.start_process(pid, None),
        }
    }

    /// The thread that has these numbers now; a new one where none has them.
    #[inline]
    pub(crate) fn thread(&mut self, pid: u32, tid: u32) -> ThreadId {
        if let Some((last_pid, last_tid, id)) = self.last
            && (last_pid, last_tid) == (pid, tid)
        {
            return id;
        }
        let id = self.find_thread(pid, tid);
        self.last = Some((pid, tid, id));
        id
    }

    fn find_thread(&mut self, pid: u32, tid: u32) -> ThreadId {
        if let Some(id) = self.by_tid.get(&tid) {
            let process = self.threads[*id as usize].process;
            if self.processes[process as usize].pid == pid
                && self.by_pid.get(&pid) == Some(&process)
            {
                return *id;
            }
        }
        // Its creation was not recorded, or its number belongs to another process now.
        let process = self.process(pid);
        self.start_thread(process, tid, None)
    }

    /// A new process that takes over its number. Its main thread is not made.
    pub(crate) fn start_process(&mut self, pid: u32, start: Option<u64>) -> ProcessId {
        let id = next_id(self.processes.len());
        self.processes.push(Process {
            pid,
            start,
            end: None,
            comm: (pid == 0).then(|| "swapper".to_owned()),
        });
        self.by_pid.insert(pid, id);
        self.last = None;
        id
    }

    /// A new thread that takes over its number.
    pub(crate) fn start_thread(
        &mut self,
        process: ProcessId,
        tid: u32,
        start: Option<u64>,
    ) -> ThreadId {
        let id = next_id(self.threads.len());
        // A thread begins with the name of the process's main thread, whether that started it or not.
        let comm = self
            .processes
            .get(process as usize)
            .and_then(|process| process.comm.clone());
        self.threads.push(Thread {
            tid,
            process,
            start,
            end: None,
            comm,
        });
        self.by_tid.insert(tid, id);
        self.last = None;
        id
    }

    /// Gives a process the name that it inherits at its fork.
    pub(crate) fn inherit_name(&mut self, child: ProcessId, parent: ThreadId) {
        let comm = self
            .threads
            .get(parent as usize)
            .and_then(|thread| thread.comm.clone());
        if let Some(process) = self.processes.get_mut(child as usize) {
            process.comm = comm;
        }
    }

    /// A thread's new name, also its process's if it is the main thread.
    pub(crate) fn rename(&mut self, id: ThreadId, name: &[u8]) {
        let name = String::from_utf8_lossy(name);
        let Some(thread) = self.threads.get_mut(id as usize) else {
            return;
        };
        if let Some(process) = self.processes.get_mut(thread.process as usize)
            && process.pid == thread.tid
        {
            process.comm = Some(name.clone().into_owned());
        }
        thread.comm = Some(name.into_owned());
    }

    /// A thread's end, and with the main thread's its process's. Both keep their numbers: the kernel may sample them
    /// until they are switched out for the last time.
    pub(crate) fn end(&mut self, pid: u32, tid: u32, time: u64) {
        let id = self.thread(pid, tid);
        let Some(thread) = self.threads.get_mut(id as usize) else {
            return;
        };
        thread.end = Some(time);
        if let Some(process) = self.processes.get_mut(thread.process as usize)
            && process.pid == thread.tid
        {
            process.end = Some(time);
        }
    }

    /// Drops what only reading needs.
    pub(crate) fn freeze(&mut self) {
        self.by_pid = HashMap::default();
        self.by_tid = HashMap::default();
        self.last = None;
    }
}

/// Every task costs a record of 40 bytes and more, so 32 bits overflow past 160 GiB of them; then the last share.
fn next_id(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

fn name(comm: Option<&str>, number: u32) -> String {
    match comm {
        Some(comm) => comm.to_owned(),
        None => format!(":{}", number.cast_signed()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_reused() {
        let mut tasks = Tasks::default();
        let first = tasks.start_process(10, Some(1));
        let one = tasks.start_thread(first, 10, Some(1));
        tasks.rename(one, b"one");
        tasks.end(10, 10, 5);
        assert_eq!(tasks.thread(10, 10), one, "still sampled while it exits");
        let second = tasks.start_process(10, Some(7));
        let two = tasks.start_thread(second, 10, Some(7));
        tasks.rename(two, b"two");
        assert_eq!(tasks.thread(10, 10), two);
        assert_eq!(tasks.process_name(first), "one");
        assert_eq!(tasks.process_name(second), "two");
        assert_eq!(tasks.processes()[0].end, Some(5));
    }

    #[test]
    fn a_thread_number_that_moved_to_another_process_is_another_thread() {
        let mut tasks = Tasks::default();
        let old = tasks.thread(10, 11);
        let new = tasks.thread(20, 11);
        assert_ne!(old, new);
        assert_eq!(tasks.thread(20, 11), new);
        assert_eq!(tasks.thread_name(new), ":11");
        assert_eq!(tasks.process_name(9), "[unknown]");
    }
}
