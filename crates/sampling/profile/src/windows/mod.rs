//! Windows: the stretches between two samples over which a group of counters was read.
//!
//! A sample of a group holds the values of all its counters, so two of them bound a window: what each counter counted
//! in it, and where the thread was at its start and end. Bursts of windows are those that the recorder armed
//! ([`dioptra_perfdata::Windows`]); in any other recording whose samples read groups (`-e '{a,b}:S'`) all windows
//! follow on each other, and those of a slice of time stand for a burst.
//!
//! Which windows belong to a place, and what they are worth, is for those who analyze them.

mod collect;
mod counter;
mod groups;
mod paths;

pub use groups::{PlannedGroup, WindowPlan, WindowSource};
pub use paths::FunctionPaths;

pub use dioptra_perfdata::{EventTotal, Windows as RecordedWindows};

pub(crate) use collect::{Collector, WindowSample};
pub(crate) use groups::of_windows;

use crate::processes::tasks::ThreadId;
use crate::profile::Profile;
use crate::stacks::frames::FrameId;
use std::ops::Range;

/// All windows of a recording; see [`crate::LoadPlan::windows`].
#[derive(Clone, Debug, Default)]
pub struct ProfileWindows {
    pub(crate) plan: WindowPlan,
    pub(crate) bursts: Vec<WindowBurst>,
    pub(crate) windows: Vec<Kept>,
    pub(crate) counts: Vec<u64>,
    pub(crate) facts: WindowFacts,
}

/// Several windows back to back, of one counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowBurst {
    /// Index of its group.
    pub group: u16,
    /// The thread of its first sample.
    pub thread: ThreadId,
    /// The CPU of its first sample, 0 where samples do not tell.
    pub cpu: u32,
    /// When it was armed or, where nobody armed it, its first sample: nanoseconds of the recording's clock.
    pub time: u64,
    /// The leader's period; of windows that nobody armed the mean of what the leader counted.
    pub period: u64,
    first_window: usize,
    first_count: usize,
}

/// What is known of a window besides its counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct WindowMarks(u16);

impl WindowMarks {
    /// The kernel throttled the events in it.
    pub const THROTTLED: WindowMarks = WindowMarks(1);
    /// Records were lost in it.
    pub const LOST: WindowMarks = WindowMarks(1 << 1);
    /// The thread left the CPU in it.
    pub const SWITCHED: WindowMarks = WindowMarks(1 << 2);
    /// The thread changed CPUs in it.
    pub const MIGRATED: WindowMarks = WindowMarks(1 << 3);
    /// Its burst began late: the thread slept when it was armed.
    pub const LATE: WindowMarks = WindowMarks(1 << 4);
    /// The counters did not run all the time.
    pub const PARTLY_COUNTED: WindowMarks = WindowMarks(1 << 5);
    /// A counter went backward, or is missing.
    pub const BROKEN: WindowMarks = WindowMarks(1 << 6);

    /// Whether all of `other` holds.
    pub fn contains(self, other: WindowMarks) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::ops::BitOrAssign for WindowMarks {
    fn bitor_assign(&mut self, other: WindowMarks) {
        self.0 |= other.0;
    }
}

/// A window as it is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    pub index: u16,
    pub marks: WindowMarks,
    pub hidden: bool,
    pub start: u32,
    pub end: u32,
    pub thread: ThreadId,
}

/// A window.
#[derive(Clone, Copy, Debug)]
pub struct Window<'a> {
    /// Its place in the burst; 0 begins with the burst's first sample.
    pub index: u16,
    /// What is known of it.
    pub marks: WindowMarks,
    /// Where the thread was when it began: a stack, or a frame where stacks were not loaded.
    pub start: u32,
    /// And when it ended.
    pub end: u32,
    /// The thread at its end.
    pub thread: ThreadId,
    /// Whether a filter of places ([`Profile::retain_samples`]) took it away: its neighbours still need it.
    pub hidden: bool,
    /// What each of the group's events counted, the leader first.
    pub counts: &'a [u64],
}

/// What happened to the samples of windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WindowFacts {
    /// Samples of the groups.
    pub samples: u64,
    /// Those that belong to no burst.
    pub stray: u64,
    /// Those without usable values.
    pub malformed: u64,
    /// Windows that were left out because a sample at an end of theirs did not pass the filter.
    pub filtered: u64,
    /// Stretches between samples that are no windows, since they are too long or too short for the schedule.
    pub other_lengths: u64,
}

impl ProfileWindows {
    /// How they were made, and of which events.
    pub fn plan(&self) -> &WindowPlan {
        &self.plan
    }

    /// What happened to the samples.
    pub fn facts(&self) -> &WindowFacts {
        &self.facts
    }

    /// How many windows there are.
    pub fn len(&self) -> usize {
        self.windows.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.windows.is_empty()
    }

    /// All bursts that have windows: those of a thread or CPU in the order of time.
    pub fn bursts(&self) -> &[WindowBurst] {
        &self.bursts
    }

    /// The windows of a burst, as an index of [`ProfileWindows::bursts`].
    ///
    /// # Panics
    /// On an index that is none.
    pub fn windows(&self, burst: usize) -> impl ExactSizeIterator<Item = Window<'_>> {
        let this = &self.bursts[burst];
        let next = self.bursts.get(burst + 1);
        let windows = self.range(this.first_window, next.map(|next| next.first_window));
        let width = self.plan.groups[usize::from(this.group)].events.len();
        let first_count = this.first_count;
        windows.enumerate().map(move |(place, index)| {
            let kept = &self.windows[index];
            let at = first_count + place * width;
            Window {
                index: kept.index,
                marks: kept.marks,
                start: kept.start,
                end: kept.end,
                thread: kept.thread,
                hidden: kept.hidden,
                counts: &self.counts[at..at + width],
            }
        })
    }

    fn range(&self, from: usize, to: Option<usize>) -> Range<usize> {
        from..to.unwrap_or(self.windows.len())
    }

    /// Hides windows whose end does not pass.
    pub(crate) fn retain(&mut self, keep: impl Fn(u32) -> bool) {
        for window in &mut self.windows {
            window.hidden |= !keep(window.end);
        }
    }
}

impl Profile {
    /// The windows of the recording; `None` unless they were asked for ([`crate::LoadPlan::windows`]) and its samples
    /// read groups of counters.
    pub fn windows(&self) -> Option<&ProfileWindows> {
        self.windows.as_deref()
    }

    /// The innermost frame of a window's place.
    pub fn frame_of_place(&self, place: u32) -> FrameId {
        self.leaf(place)
    }
}
