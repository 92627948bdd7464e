//! One counter's samples, and the windows between them.

use super::groups::PlannedGroup;
use super::{Kept, WindowMarks};
use crate::processes::tasks::ThreadId;

/// What a sample tells.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub time: u64,
    pub cpu: u32,
    pub thread: ThreadId,
    /// `None` for samples that did not pass the filter.
    pub place: Option<u32>,
    pub enabled: Option<u64>,
    pub running: Option<u64>,
    /// Samples that the events lost so far.
    pub lost: u64,
    /// Whether a value is missing.
    pub incomplete: bool,
}

/// The burst that is being read.
#[derive(Clone, Debug, Default)]
pub(super) struct Open {
    /// Which of the armed bursts it is.
    pub number: usize,
    pub time: u64,
    pub cpu: u32,
    /// How many windows were seen, those left out among them.
    pub seen: u16,
    pub windows: Vec<Kept>,
    /// When each of them ended.
    pub ends: Vec<u64>,
    pub counts: Vec<u64>,
}

/// A counter: of a group, of a thread or CPU.
#[derive(Clone, Debug, Default)]
pub(super) struct Counter {
    pub group: u16,
    last: Option<Reading>,
    values: Vec<u64>,
    /// What happened since the last sample.
    pub pending: WindowMarks,
    pub open: Option<Open>,
}

/// A thread that was off its CPU for longer than this, in nanoseconds, has been switched.
const SHORTEST_SWITCH: u64 = 5_000;

/// What lies between two samples.
pub(super) enum Stretch {
    /// The first sample.
    None,
    /// Something at an end did not pass.
    Filtered,
    /// A window, whose counts are the values passed.
    Window(WindowMarks),
}

impl Counter {
    /// A counter of a group that has not sampled yet.
    pub fn new(group: u16) -> Counter {
        Counter {
            group,
            ..Counter::default()
        }
    }

    /// The time of the last sample.
    pub fn last(&self) -> Option<&Reading> {
        self.last.as_ref()
    }

    /// Takes a sample; `values` become what was counted since the one before.
    pub fn take(&mut self, group: &PlannedGroup, now: Reading, values: &mut [u64]) -> Stretch {
        let before = self.last.replace(now);
        let pending = std::mem::take(&mut self.pending);
        let Some(before) = before else {
            self.values = values.to_vec();
            return Stretch::None;
        };
        let mut marks = pending;
        for (value, old) in values.iter_mut().zip(&mut self.values) {
            let new = std::mem::replace(old, *value);
            match value.checked_sub(new) {
                Some(grown) => *value = grown,
                None => {
                    *value = 0;
                    marks |= WindowMarks::BROKEN;
                }
            }
        }
        if before.place.is_none() || now.place.is_none() {
            return Stretch::Filtered;
        }
        if now.incomplete || before.incomplete || values.first() == Some(&0) {
            marks |= WindowMarks::BROKEN;
        }
        if now.lost > before.lost {
            marks |= WindowMarks::LOST;
        }
        let grown = |now: Option<u64>, before: Option<u64>| now?.checked_sub(before?);
        let enabled = grown(now.enabled, before.enabled);
        let running = grown(now.running, before.running);
        if let (Some(enabled), Some(running)) = (enabled, running)
            && running < enabled
        {
            marks |= WindowMarks::PARTLY_COUNTED;
        }
        // A thread's counters are enabled only while it is on a CPU.
        let passed = now.time.saturating_sub(before.time);
        let slept = enabled.is_some_and(|enabled| passed > enabled.saturating_add(SHORTEST_SWITCH));
        if before.thread != now.thread || (slept && !group.counts_switches) {
            marks |= WindowMarks::SWITCHED;
        }
        if before.cpu != now.cpu && !group.counts_migrations {
            marks |= WindowMarks::MIGRATED;
        }
        Stretch::Window(marks)
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
        marks: WindowMarks,
        counts: &[u64],
    ) {
        self.windows.push(Kept {
            index: self.seen,
            marks,
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
