//! The threads that are watched already: opened by us, or created by a watched thread and so inheriting its events.
//!
//! Reading `/proc/PID/task` twice and comparing is the wrong test: a thread found the second time has most often
//! inherited everything from its creator, and opening events on it again would double its every sample. Fork
//! records decide instead: each names the parent and the time.

use crate::record::Task;
use rustc_hash::FxHashMap;

/// Nanoseconds between a thread's inheriting (early in `clone`) and the time of its fork record (late in it), at
/// most: a parent that was attached less than this before the record may have been half attached when it mattered.
const CLONE_TIME: u64 = 200_000;

/// The reason for which a thread is covered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cover {
    /// The thread's events were opened, from one time until another, in nanoseconds.
    Opened { from: u64, until: u64 },
    /// The thread inherited the events of this root.
    Inherited { root: u32 },
}

/// The consequence of a fork record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing to do.
    Fine,
    /// The thread was opened although it had inherited: close its events again.
    Duplicate(u32),
    /// The parent was being attached while it created the thread: close the parent's events, which takes them from
    /// everything that inherited them, and attach again.
    Again(u32),
}

/// The threads that are covered.
#[derive(Debug, Default)]
pub(crate) struct Coverage {
    threads: FxHashMap<u32, Cover>,
}

impl Coverage {
    /// Returns true if `tid` is covered.
    pub(crate) fn has(&self, tid: u32) -> bool {
        self.threads.contains_key(&tid)
    }

    /// Returns the number of threads that inherited their events.
    pub(crate) fn inherited(&self) -> usize {
        let inherited = |cover: &&Cover| matches!(cover, Cover::Inherited { .. });
        self.threads.values().filter(inherited).count()
    }

    /// Takes in that the events of `tid` were opened between two times.
    pub(crate) fn opened(&mut self, tid: u32, from: u64, until: u64) {
        self.threads.insert(tid, Cover::Opened { from, until });
    }

    /// Takes in that the events of `tid` were closed: neither it nor its heirs are covered any more.
    pub(crate) fn closed(&mut self, tid: u32) {
        self.threads.remove(&tid);
        self.threads
            .retain(|_, cover| *cover != Cover::Inherited { root: tid });
    }

    /// Learns from a fork record. `last_try` takes a doubtful parent for attached rather than asking for another go.
    pub(crate) fn learn(&mut self, fork: &Task, last_try: bool) -> Verdict {
        let root = match self.threads.get(&fork.parent_tid) {
            None => return Verdict::Fine,
            // Inherited events are there from a thread's first instruction.
            Some(Cover::Inherited { root }) => *root,
            Some(Cover::Opened { from, .. }) if fork.time < *from => return Verdict::Fine,
            Some(Cover::Opened { until, .. }) => {
                if fork.time < until.saturating_add(CLONE_TIME) && !last_try {
                    return Verdict::Again(fork.parent_tid);
                }
                fork.parent_tid
            }
        };
        match self.threads.insert(fork.tid, Cover::Inherited { root }) {
            Some(Cover::Opened { .. }) => Verdict::Duplicate(fork.tid),
            _ => Verdict::Fine,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fork(parent_tid: u32, tid: u32, time: u64) -> Task {
        Task {
            pid: 1,
            parent_pid: 1,
            tid,
            parent_tid,
            time,
        }
    }

    const LATER: u64 = 10 * CLONE_TIME;

    #[test]
    fn a_child_of_an_attached_thread_is_covered() {
        let mut coverage = Coverage::default();
        coverage.opened(10, 100, 200);
        assert_eq!(coverage.learn(&fork(10, 11, LATER), false), Verdict::Fine);
        assert_eq!(
            coverage.learn(&fork(11, 12, LATER + 1), false),
            Verdict::Fine
        );
        assert!(coverage.has(11) && coverage.has(12));
        assert_eq!(coverage.inherited(), 2);
        coverage.closed(10);
        assert!(
            !coverage.has(11) && !coverage.has(12),
            "inherited events die with the opened ones"
        );
    }

    #[test]
    fn a_child_created_before_its_parent_was_attached_is_not_covered() {
        let mut coverage = Coverage::default();
        coverage.opened(10, LATER, LATER + 5);
        assert_eq!(
            coverage.learn(&fork(10, 11, LATER - 1), false),
            Verdict::Fine
        );
        assert!(!coverage.has(11));
        assert_eq!(coverage.learn(&fork(99, 12, LATER), false), Verdict::Fine);
        assert!(!coverage.has(12));
    }

    #[test]
    fn a_thread_opened_although_it_inherited_is_a_duplicate() {
        let mut coverage = Coverage::default();
        coverage.opened(10, 100, 200);
        coverage.opened(11, LATER + 10, LATER + 20);
        assert_eq!(
            coverage.learn(&fork(10, 11, LATER), false),
            Verdict::Duplicate(11)
        );
        assert!(coverage.has(11));
    }

    #[test]
    fn a_child_created_while_its_parent_was_being_attached_starts_over() {
        let mut coverage = Coverage::default();
        coverage.opened(10, 100, 200);
        assert_eq!(
            coverage.learn(&fork(10, 11, 150), false),
            Verdict::Again(10)
        );
        assert_eq!(coverage.learn(&fork(10, 11, 150), true), Verdict::Fine);
        assert!(coverage.has(11));
    }
}
