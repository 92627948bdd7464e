//! Processes and threads in time order. The kernel reuses both numbers, so each task is identified by number and start.

use crate::counts::sample_keys::SampleKey;
use crate::hash::FxBuildHasher;
use crate::processes::images::{self, Awaits, Image, ImageId, Program};
use crate::processes::modules::{ModuleId, Modules};
use hashbrown::HashMap;

/// The index of a [`Process`] in [`Tasks`].
pub type ProcessId = u32;
/// The index of a [`Thread`] in [`Tasks`].
pub type ThreadId = u32;

/// A process, from its start to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number; `u32::MAX` where the kernel no longer knew the number.
    pub pid: u32,
    /// Nanoseconds of the recording's clock at its fork; `None` where it ran before the recording.
    pub start: Option<u64>,
    /// Nanoseconds of the recording's clock at its end, if that was recorded.
    pub end: Option<u64>,
    /// The last name of its main thread.
    pub comm: Option<String>,
    /// Device and inode of each of its namespaces in the kernel's order, where they were recorded.
    pub namespaces: Vec<(u64, u64)>,
}

/// A thread, from its start to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Its number.
    pub tid: u32,
    /// Its process.
    pub process: ProcessId,
    /// Nanoseconds of the recording's clock at its creation; `None` where it ran before the recording.
    pub start: Option<u64>,
    /// Nanoseconds of the recording's clock at its end, if that was recorded.
    pub end: Option<u64>,
    /// Its last name.
    pub comm: Option<String>,
}

/// All processes and threads of a recording.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    processes: Vec<Process>,
    threads: Vec<Thread>,
    images: Vec<Image>,
    programs: Vec<Program>,
    /// Names of threads, each name once.
    comms: Vec<String>,
    comm_ids: HashMap<String, u32, FxBuildHasher>,
    /// By thread: its current name, as an index of `comms`.
    comm_now: Vec<Option<u32>>,
    /// By process: its current image.
    image_now: Vec<ImageId>,
    /// Whether this recording marks names that change because of an exec.
    execs_are_marked: bool,
    /// The process and the thread that currently have each number, while reading.
    by_pid: HashMap<u32, ProcessId, FxBuildHasher>,
    by_tid: HashMap<u32, ThreadId, FxBuildHasher>,
    /// The thread that was looked up last. Samples of one thread often follow each other.
    last: Option<(u32, u32, ThreadId)>,
}

impl Tasks {
    /// Makes an empty set of tasks. `execs_are_marked` says whether the recording marks names that change because of an
    /// exec.
    pub(crate) fn new(execs_are_marked: bool) -> Self {
        Tasks {
            execs_are_marked,
            ..Tasks::default()
        }
    }

    /// Returns all processes in the order of their ids.
    pub fn processes(&self) -> &[Process] {
        &self.processes
    }

    /// Returns all threads in the order of their ids.
    pub fn threads(&self) -> &[Thread] {
        &self.threads
    }

    /// Returns all images of all processes, in the order of their ids.
    pub fn images(&self) -> &[Image] {
        &self.images
    }

    /// Returns all programs in the order of their ids.
    pub fn programs(&self) -> &[Program] {
        &self.programs
    }

    /// Returns all names that threads had, each once; see [`crate::SampleKey::comm`].
    pub fn comms(&self) -> &[String] {
        &self.comms
    }

    /// Returns the name that a sample key's thread had when it was sampled, in the form of [`Tasks::thread_name`].
    pub fn comm_of(&self, sample_key: SampleKey) -> String {
        match (sample_key.comm, sample_key.thread) {
            (Some(comm), _) => self.comms[comm as usize].clone(),
            (None, Some(thread)) => match self.threads.get(thread as usize) {
                Some(thread) => name(None, thread.tid),
                None => crate::processes::modules::UNKNOWN.to_owned(),
            },
            (None, None) => crate::processes::modules::UNKNOWN.to_owned(),
        }
    }

    /// Returns the current image of the thread's process.
    #[inline]
    pub(crate) fn image_now(&self, thread: ThreadId) -> ImageId {
        self.image_now[self.threads[thread as usize].process as usize]
    }

    /// Returns the thread's current name.
    #[inline]
    pub(crate) fn comm_now(&self, thread: ThreadId) -> Option<u32> {
        self.comm_now[thread as usize]
    }

    /// Returns a process's name for tables: its main thread's last name. Without a recorded name it is `:PID`, as in
    /// perf.
    pub fn process_name(&self, id: ProcessId) -> String {
        match self.processes.get(id as usize) {
            Some(process) => name(process.comm.as_deref(), process.pid),
            None => crate::processes::modules::UNKNOWN.to_owned(),
        }
    }

    /// Returns a thread's name for tables, in the form of [`Tasks::process_name`].
    pub fn thread_name(&self, id: ThreadId) -> String {
        match self.threads.get(id as usize) {
            Some(thread) => name(thread.comm.as_deref(), thread.tid),
            None => crate::processes::modules::UNKNOWN.to_owned(),
        }
    }

    /// Returns the process that currently has this number; makes a new one where none has it.
    pub(crate) fn process(&mut self, pid: u32) -> ProcessId {
        match self.by_pid.get(&pid) {
            Some(id) => *id,
            None => self.start_process(pid, None),
        }
    }

    /// Releases the number of a process that ended, when a later record uses the number. An ended process executes and
    /// maps nothing, so the record belongs to a new process whose start was not recorded.
    pub(crate) fn reuse(&mut self, (pid, tid): (u32, u32), time: Option<u64>) {
        if pid != tid {
            return;
        }
        let Some(process) = self.by_pid.get(&pid) else {
            return;
        };
        let end = self.processes[*process as usize].end;
        if end.zip(time).is_some_and(|(end, time)| end < time) {
            self.by_pid.remove(&pid);
            self.last = None;
        }
    }

    /// Returns whether a process currently has this number.
    pub(crate) fn knows(&self, pid: u32) -> bool {
        self.by_pid.contains_key(&pid)
    }

    /// Returns the thread that currently has these numbers; makes a new one where none has them.
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

    /// Starts a new process, which takes over its number. Its main thread is not made.
    pub(crate) fn start_process(&mut self, pid: u32, start: Option<u64>) -> ProcessId {
        let id = next_id(self.processes.len());
        self.processes.push(Process {
            pid,
            start,
            end: None,
            comm: (pid == 0).then(|| "swapper".to_owned()),
            namespaces: Vec::new(),
        });
        let image = self.start_image(Image::new(id, start));
        self.image_now.push(image);
        self.by_pid.insert(pid, id);
        self.last = None;
        id
    }

    fn start_image(&mut self, image: Image) -> ImageId {
        let id = next_id(self.images.len());
        self.images.push(image);
        id
    }

    /// Starts a new image of a thread's process. For a process that is new itself, only its image's start is set.
    pub(crate) fn exec(&mut self, thread: ThreadId, time: Option<u64>, is_new: bool) {
        let process = self.threads[thread as usize].process;
        if is_new {
            self.images[self.image_now[process as usize] as usize].start = time;
            return;
        }
        self.replace_image(process, Image::new(process, time), time);
    }

    fn replace_image(&mut self, process: ProcessId, new: Image, time: Option<u64>) {
        let old = &mut self.images[self.image_now[process as usize] as usize];
        old.end = time;
        let mut new = new;
        new.comm = self.processes[process as usize].comm.clone();
        self.image_now[process as usize] = self.start_image(new);
    }

    /// Notes that a process mapped a module.
    pub(crate) fn mapped(&mut self, process: ProcessId, module: ModuleId, modules: &Modules) {
        let image = self.image_now[process as usize];
        self.images[image as usize].mapped(module, modules);
    }

    /// Gives a forked process the image of its parent.
    pub(crate) fn inherit_image(&mut self, child: ProcessId, parent: ProcessId) {
        let from = self.image_now[parent as usize];
        let image = &mut self.images[self.image_now[child as usize] as usize];
        image.from = Some(from);
        image.awaits = Awaits::Nothing;
    }

    /// Sets the namespaces of a thread's process.
    pub(crate) fn set_namespaces(&mut self, thread: ThreadId, links: Vec<(u64, u64)>) {
        let process = self.threads[thread as usize].process;
        self.processes[process as usize].namespaces = links;
    }

    fn comm_id(&mut self, comm: Option<&str>) -> Option<u32> {
        let comm = comm?;
        if let Some(id) = self.comm_ids.get(comm) {
            return Some(*id);
        }
        let id = next_id(self.comms.len());
        self.comms.push(comm.to_owned());
        self.comm_ids.insert(comm.to_owned(), id);
        Some(id)
    }

    /// Starts a new thread, which takes over its number.
    pub(crate) fn start_thread(
        &mut self,
        process: ProcessId,
        tid: u32,
        start: Option<u64>,
    ) -> ThreadId {
        let id = next_id(self.threads.len());
        // A thread begins with the name of the process's main thread, whichever thread created it.
        let comm = self
            .processes
            .get(process as usize)
            .and_then(|process| process.comm.clone());
        let comm_id = self.comm_id(comm.as_deref());
        self.comm_now.push(comm_id);
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
            self.images[self.image_now[child as usize] as usize].comm = comm.clone();
            process.comm = comm;
        }
    }

    /// Renames a thread, and its process if it is the main thread.
    pub(crate) fn rename(&mut self, id: ThreadId, name: &[u8]) {
        let name = String::from_utf8_lossy(name);
        let comm_id = self.comm_id(Some(&name));
        let Some(thread) = self.threads.get_mut(id as usize) else {
            return;
        };
        if let Some(process) = self.processes.get_mut(thread.process as usize)
            && process.pid == thread.tid
        {
            self.images[self.image_now[thread.process as usize] as usize].comm =
                Some(name.clone().into_owned());
            process.comm = Some(name.clone().into_owned());
        }
        self.comm_now[id as usize] = comm_id;
        thread.comm = Some(name.into_owned());
    }

    /// Notes a main thread's new name in a recording that does not mark execs: there may have been an exec.
    pub(crate) fn perhaps_exec(&mut self, id: ThreadId, time: Option<u64>) {
        if self.execs_are_marked {
            return;
        }
        let thread = &self.threads[id as usize];
        let process = thread.process;
        if self.processes[process as usize].pid != thread.tid {
            return;
        }
        let now = self.image_now[process as usize];
        let old = &self.images[now as usize];
        if old.awaits == Awaits::AnyFile {
            // The process ran before the recording, and its mappings are still to come.
            return;
        }
        // A forked process that gets a name is most often about to execute another program.
        let forked = old.from.is_some() && old.executable.is_none();
        let awaits = if forked {
            Awaits::AnyFile
        } else {
            Awaits::FileOfItsName
        };
        let new = Image {
            from: Some(now),
            awaits,
            ..Image::new(process, time)
        };
        self.replace_image(process, new, time);
    }

    /// Ends a thread; the end of the main thread also ends its process. Both keep their numbers, because the kernel may
    /// sample them until they are switched out for the last time.
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
            self.images[self.image_now[thread.process as usize] as usize].end = Some(time);
        }
    }

    /// Finds the programs, and drops the data that only reading needs.
    pub(crate) fn freeze(&mut self, modules: &Modules) {
        let mut images = std::mem::take(&mut self.images);
        self.programs = images::programs(self, modules, &mut images);
        self.images = images;
        self.comm_ids = HashMap::default();
        self.comm_now = Vec::new();
        self.image_now = Vec::new();
        self.by_pid = HashMap::default();
        self.by_tid = HashMap::default();
        self.last = None;
    }
}

/// Returns the id of the next element of a list. Each task costs a record of at least 40 bytes, so 32 bits overflow
/// only past 160 GiB of records. Then the last tasks share an id.
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
