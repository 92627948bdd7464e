//! One counter's samples, and the windows between them.

use super::CollectedWindow;
use super::groups::PlannedGroup;
use crate::estimate::WindowFlags;
use dioptra_profile::ThreadId;

/// The state of a group's counters at a sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub time: u64,
    pub cpu: u32,
    pub thread: ThreadId,
    /// The call stack or frame; `None` for samples that did not pass the filter.
    pub stack: Option<u32>,
    pub enabled: Option<u64>,
    pub running: Option<u64>,
    /// Samples that the events lost so far.
    pub lost: u64,
    /// Whether a value is missing.
    pub incomplete: bool,
}

/// A burst whose windows are being collected.
#[derive(Clone, Debug, Default)]
pub(super) struct Open {
    /// Its index among the armed bursts.
    pub number: usize,
    pub time: u64,
    pub cpu: u32,
    /// The number of windows seen so far, including those that were left out.
    pub seen: u16,
    pub windows: Vec<CollectedWindow>,
    /// The time at which each window ended.
    pub ends: Vec<u64>,
    pub counts: Vec<u64>,
}

/// The counters of a group on one thread or CPU.
#[derive(Clone, Debug, Default)]
pub(super) struct Counter {
    pub group: u16,
    last: Option<Reading>,
    values: Vec<u64>,
    /// The flags of the window that has begun.
    pub pending: WindowFlags,
    pub open: Option<Open>,
}

/// A thread that was off its CPU for longer than this, in nanoseconds, has been switched.
const SHORTEST_SWITCH: u64 = 5_000;

/// The stretch between two samples.
pub(super) enum Stretch {
    /// The first sample.
    None,
    /// One of the two samples did not pass the filter.
    Filtered,
    /// A window. Its counts are in `values` of [`Counter::take`].
    Window(WindowFlags),
}

impl Counter {
    /// Returns the counters of a group without a reading.
    pub fn new(group: u16) -> Counter {
        Counter {
            group,
            ..Counter::default()
        }
    }

    /// Returns the last reading.
    pub fn last(&self) -> Option<&Reading> {
        self.last.as_ref()
    }

    /// Adds a reading. `values` become the counts since the one before.
    pub fn take(&mut self, group: &PlannedGroup, now: Reading, values: &mut [u64]) -> Stretch {
        let before = self.last.replace(now);
        let pending = std::mem::take(&mut self.pending);
        let Some(before) = before else {
            self.values = values.to_vec();
            return Stretch::None;
        };
        let mut flags = pending;
        for (value, old) in values.iter_mut().zip(&mut self.values) {
            let new = std::mem::replace(old, *value);
            match value.checked_sub(new) {
                Some(grown) => *value = grown,
                None => {
                    *value = 0;
                    flags |= WindowFlags::BROKEN;
                }
            }
        }
        if before.stack.is_none() || now.stack.is_none() {
            return Stretch::Filtered;
        }
        if now.incomplete || before.incomplete || values.first() == Some(&0) {
            flags |= WindowFlags::BROKEN;
        }
        if now.lost > before.lost {
            flags |= WindowFlags::LOST;
        }
        let grown = |now: Option<u64>, before: Option<u64>| now?.checked_sub(before?);
        let enabled = grown(now.enabled, before.enabled);
        let running = grown(now.running, before.running);
        if let (Some(enabled), Some(running)) = (enabled, running)
            && running < enabled
        {
            flags |= WindowFlags::PARTLY_COUNTED;
        }
        // A thread's counters are enabled only while it is on a CPU.
        let passed = now.time.saturating_sub(before.time);
        let slept = enabled.is_some_and(|enabled| passed > enabled.saturating_add(SHORTEST_SWITCH));
        if before.thread != now.thread || (slept && !group.counts_switches) {
            flags |= WindowFlags::SWITCHED;
        }
        if before.cpu != now.cpu && !group.counts_migrations {
            flags |= WindowFlags::MIGRATED;
        }
        Stretch::Window(flags)
    }
}

impl Open {
    /// Begins a burst with its first sample.
    pub fn begin(number: usize, time: u64, first: &Reading) -> Open {
        Open {
            number,
            time,
            cpu: first.cpu,
            ..Open::default()
        }
    }

    /// Adds a window.
    pub fn push(
        &mut self,
        (start, end): (u32, u32),
        now: &Reading,
        flags: WindowFlags,
        counts: &[u64],
    ) {
        self.windows.push(CollectedWindow {
            index: self.seen,
            flags,
            hidden: false,
            start,
            end,
            thread: now.thread,
        });
        self.ends.push(now.time);
        self.counts.extend_from_slice(counts);
        self.seen = self.seen.saturating_add(1);
    }
}
