//! The processes and threads that have samples, by their numbers.

use crate::source::Source;
use crate::timed_samples::TimedSample;
use dioptra_profile::{SampleKeyId, Thread, UNKNOWN};
use std::collections::{BTreeMap, BTreeSet};

/// The numbers of a process and its thread; 0 where they are not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TaskNumbers {
    pub pid: u32,
    pub tid: u32,
}

/// The names of the processes and threads that have samples. A number that was used again has its last name.
pub(crate) struct TaskNames<'a> {
    /// By pid.
    pub processes: BTreeMap<u32, &'a str>,
    pub threads: BTreeMap<TaskNumbers, &'a str>,
    /// The number of other names that the threads had when they were sampled.
    pub earlier: u64,
}

impl<'a> Source<'a> {
    fn thread(&self, sample_key: SampleKeyId) -> Option<&'a Thread> {
        let thread = self.profile.sample_keys().get(sample_key).thread?;
        Some(&self.profile.tasks().threads()[thread as usize])
    }

    /// Returns the numbers of a sample key's process and thread.
    pub(crate) fn numbers(&self, sample_key: SampleKeyId) -> TaskNumbers {
        let processes = self.profile.tasks().processes();
        match self.thread(sample_key) {
            Some(thread) => TaskNumbers {
                pid: processes[thread.process as usize].pid,
                tid: thread.tid,
            },
            None => TaskNumbers { pid: 0, tid: 0 },
        }
    }

    /// Returns the names of the processes and threads of some samples.
    pub(crate) fn task_names(&self, samples: &[TimedSample]) -> TaskNames<'a> {
        let tasks = self.profile.tasks();
        let mut used = BTreeSet::new();
        used.extend(samples.iter().map(|timed| timed.sample.sample_key));
        let mut names = TaskNames {
            processes: BTreeMap::new(),
            threads: BTreeMap::new(),
            earlier: 0,
        };
        for key in &used {
            let numbers = self.numbers(*key);
            let thread = self.thread(*key);
            let comm = thread.and_then(|thread| thread.comm.as_deref());
            let comm = comm.unwrap_or(UNKNOWN);
            let process = thread.map(|thread| &tasks.processes()[thread.process as usize]);
            let process = process.and_then(|process| process.comm.as_deref());
            names.processes.insert(numbers.pid, process.unwrap_or(comm));
            names.threads.insert(numbers, comm);
        }
        let mut earlier = BTreeSet::new();
        for key in &used {
            let Some(comm) = self.profile.sample_keys().get(*key).comm else {
                continue;
            };
            let numbers = self.numbers(*key);
            let comm = tasks.comms()[comm as usize].as_str();
            if names.threads.get(&numbers) != Some(&comm) {
                earlier.insert((numbers, comm));
            }
        }
        names.earlier = crate::lost::number(earlier.len());
        names
    }
}
