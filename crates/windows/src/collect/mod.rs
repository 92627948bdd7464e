//! Collecting windows: the stretches between two samples over which a group of counters was read.
//!
//! A sample of a group holds the counts of all its events, so two of them bound a window: how much each event was counted
//! in it, and where the thread was at its start and end. Bursts of windows are those that the recorder armed
//! ([`WindowsSection`](crate::section::WindowsSection)). In any other recording whose samples read groups
//! (`-e '{a,b}:S'`) all windows follow on each other, and those of a slice of time stand for a burst.
//!
//! [`WindowCollector`] sees the samples while a profile is loaded. Which windows belong to a function, and what they are
//! worth, is decided in [`estimate`](crate::estimate).

mod collector;
mod counter;
mod groups;

pub use collector::WindowCollector;
pub use groups::{PlannedGroup, WindowPlan, WindowSource};

use crate::estimate::{WindowBurst, WindowFlags};
use dioptra_profile::ThreadId;
use std::ops::Range;

/// All windows of a recording.
#[derive(Clone, Debug, Default)]
pub struct CollectedWindows {
    plan: WindowPlan,
    bursts: Vec<WindowBurst>,
    /// For each burst, the index of its first window and of its first count.
    starts: Vec<(usize, usize)>,
    windows: Vec<CollectedWindow>,
    counts: Vec<u64>,
    facts: WindowFacts,
}

/// A window without its counts.
#[derive(Clone, Copy, Debug)]
struct CollectedWindow {
    index: u16,
    flags: WindowFlags,
    hidden: bool,
    start: u32,
    end: u32,
    thread: ThreadId,
}

/// A window.
#[derive(Clone, Copy, Debug)]
pub struct Window<'a> {
    /// Its number in the burst; window 0 begins with the burst's first sample.
    pub index: u16,
    /// The facts that may make it unusable.
    pub flags: WindowFlags,
    /// The call stack at its start, or the frame where stacks were not loaded.
    pub start: u32,
    /// The call stack or frame at its end.
    pub end: u32,
    /// The thread at its end.
    pub thread: ThreadId,
    /// Whether [`CollectedWindows::retain`] left it out. Its neighbours still need it.
    pub hidden: bool,
    /// The counts of the group's events, the leader first.
    pub counts: &'a [u64],
}

/// The samples of windows, and those that bound none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WindowFacts {
    /// Samples of the groups.
    pub samples: u64,
    /// Samples that belong to no burst.
    pub stray: u64,
    /// Samples without usable counts.
    pub malformed: u64,
    /// Windows that were left out because the sample at their start or end did not pass the filter.
    pub filtered: u64,
    /// Stretches between samples that are too long or too short for the schedule's windows.
    pub other_lengths: u64,
}

impl CollectedWindows {
    /// Returns how the windows were made, and of which events.
    pub fn plan(&self) -> &WindowPlan {
        &self.plan
    }

    /// Returns the numbers of samples, and of those that bound no window.
    pub fn facts(&self) -> &WindowFacts {
        &self.facts
    }

    /// Returns the number of windows.
    pub fn len(&self) -> usize {
        self.windows.len()
    }

    /// Whether there is no window.
    pub fn is_empty(&self) -> bool {
        self.windows.is_empty()
    }

    /// Returns all bursts that have windows: those of a thread or CPU in the order of time.
    pub fn bursts(&self) -> &[WindowBurst] {
        &self.bursts
    }

    /// Returns the windows of a burst, given as an index of [`CollectedWindows::bursts`].
    ///
    /// # Panics
    /// If there is no such burst.
    pub fn windows(&self, burst: usize) -> impl ExactSizeIterator<Item = Window<'_>> {
        let (first_window, first_count) = self.starts[burst];
        let windows = self.range(first_window, self.starts.get(burst + 1));
        let group = usize::from(self.bursts[burst].group);
        let width = self.plan.groups[group].events.len();
        windows.enumerate().map(move |(place, index)| {
            let kept = &self.windows[index];
            let at = first_count + place * width;
            Window {
                index: kept.index,
                flags: kept.flags,
                start: kept.start,
                end: kept.end,
                thread: kept.thread,
                hidden: kept.hidden,
                counts: &self.counts[at..at + width],
            }
        })
    }

    fn range(&self, from: usize, next: Option<&(usize, usize)>) -> Range<usize> {
        from..next.map_or(self.windows.len(), |(first_window, _)| *first_window)
    }

    /// Hides the windows whose call stack or frame at their end does not pass `keep`.
    pub fn retain(&mut self, keep: impl Fn(u32) -> bool) {
        for window in &mut self.windows {
            window.hidden |= !keep(window.end);
        }
    }
}
