//! The stream of windows: bursts, their windows, and the counts of each, in a few flat lists.

use bitflags::bitflags;

/// Events that are read together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CountedGroup {
    /// The events, as places in the list of recorded events. The first is the leader: the one whose overflow ends a
    /// window, cycles or a clock or an event that is counted; its count is the window's length.
    pub events: Vec<u32>,
    /// The last window of a burst is longer than the others for a reason of the kernel's: it is not used.
    pub drop_last: bool,
}

impl CountedGroup {
    /// A group whose last windows are as good as the others.
    pub fn new(events: Vec<u32>) -> Self {
        Self {
            events,
            drop_last: false,
        }
    }
}

/// Several windows back to back, of one thread or CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WindowBurst {
    /// The caller's number of the thread.
    pub thread: u32,
    /// The CPU it ran on at the start.
    pub cpu: u32,
    /// The time of its start in nanoseconds of the recording's clock.
    pub time: u64,
    /// The leader's period in this burst.
    pub period: u64,
    /// The group that was read, as a place in the list given to [`Windows::new`].
    pub group: u16,
}

/// Where a window starts or ends. Numbers are the caller's; equal numbers are equal places.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WindowEnd {
    /// The function, `None` where it is not known.
    pub function: Option<u32>,
    /// The path of callers, `None` where there is no call chain.
    pub path: Option<u32>,
}

bitflags! {
    /// Reasons why a window is unusable.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct WindowFlags: u16 {
        /// The kernel throttled the leader at its start or in it.
        const THROTTLED = 1;
        /// Records were lost in it.
        const LOST = 1 << 1;
        /// The thread left the CPU in it.
        const SWITCHED = 1 << 2;
        /// The thread changed CPUs in it.
        const MIGRATED = 1 << 3;
        /// The burst's first reading came late: the thread was not running when it was armed.
        const LATE = 1 << 4;
        /// The group was not counting for all of it (time running < time enabled).
        const PARTLY_COUNTED = 1 << 5;
        /// The window is the last of its burst, and longer than the others for that reason. The flag is for groups in which only
        /// some last windows are longer; for others there is [`drop_last`](CountedGroup::drop_last).
        const INFLATED = 1 << 6;
        /// A counter ran backward or the reading makes no sense.
        const BROKEN = 1 << 7;
    }
}

/// As places are kept: [`NOWHERE`] for what is not known.
#[derive(Debug, Clone, Copy)]
struct PackedEnd {
    function: u32,
    path: u32,
}

const NOWHERE: u32 = u32::MAX;

impl From<WindowEnd> for PackedEnd {
    fn from(place: WindowEnd) -> Self {
        Self {
            function: place.function.unwrap_or(NOWHERE),
            path: place.path.unwrap_or(NOWHERE),
        }
    }
}

impl From<PackedEnd> for WindowEnd {
    fn from(place: PackedEnd) -> Self {
        let known = |id: u32| (id != NOWHERE).then_some(id);
        Self {
            function: known(place.function),
            path: known(place.path),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Packed {
    index: u16,
    flags: WindowFlags,
    start: PackedEnd,
    end: PackedEnd,
}

#[derive(Debug, Clone, Copy)]
struct Span {
    burst: WindowBurst,
    first_window: usize,
    first_count: usize,
}

/// All windows of a recording: 20 bytes and the counts for each.
#[derive(Debug, Default)]
pub struct Windows {
    groups: Vec<CountedGroup>,
    spans: Vec<Span>,
    windows: Vec<Packed>,
    counts: Vec<u64>,
    /// Events to whose counts borders add nothing.
    borderless: Vec<u32>,
    /// Events that go on in the interrupts that end windows.
    clocks: Vec<u32>,
}

/// A burst and its windows, in the order of their indices.
#[derive(Debug, Clone, Copy)]
pub struct BurstView<'w> {
    /// Its place in the order of [`Windows::push_burst`].
    pub number: u32,
    /// The burst.
    pub burst: &'w WindowBurst,
    /// Its group.
    pub group: &'w CountedGroup,
    windows: &'w [Packed],
    counts: &'w [u64],
    first_window: usize,
}

/// One window.
#[derive(Debug, Clone, Copy)]
pub struct WindowView<'w> {
    /// Its place in the order of [`Windows::push_window`].
    pub number: usize,
    /// Its burst's place in the order of [`Windows::push_burst`].
    pub burst_number: u32,
    /// Its burst.
    pub burst: &'w WindowBurst,
    /// Its place in the burst, 0 for the one after the start marker. A window that is missing leaves a gap.
    pub index: u16,
    /// Whether it is the last that its burst has.
    pub last: bool,
    /// The reasons why it is unusable.
    pub flags: WindowFlags,
    /// Where the thread was at its start.
    pub start: WindowEnd,
    /// Where the thread was at its end. Rows are made from this one.
    pub end: WindowEnd,
    /// The counts of the group's events, the leader first.
    pub counts: &'w [u64],
}

impl Windows {
    /// An empty stream of bursts of these groups. A group without events holds nothing that could be analyzed.
    pub fn new(groups: Vec<CountedGroup>) -> Self {
        Self {
            groups,
            ..Self::default()
        }
    }

    /// Tells that windows' borders add nothing to an event's counts: software counts it, when it happens.
    pub fn set_borderless(&mut self, event: u32) {
        self.borderless.push(event);
    }

    /// Tells that an event is a clock: it goes on in the interrupts that end windows, so that windows which it leads are
    /// in part theirs.
    pub fn set_clock(&mut self, event: u32) {
        self.clocks.push(event);
    }

    pub(super) fn is_clock(&self, event: u32) -> bool {
        self.clocks.contains(&event)
    }

    pub(super) fn is_borderless(&self, event: u32) -> bool {
        self.borderless.contains(&event)
    }

    /// Starts a burst: the windows pushed after it are its own.
    ///
    /// # Panics
    /// If the burst's group is none of those given to [`new`](Self::new).
    pub fn push_burst(&mut self, burst: WindowBurst) {
        assert!(
            usize::from(burst.group) < self.groups.len(),
            "a burst of group {} of {}",
            burst.group,
            self.groups.len()
        );
        self.spans.push(Span {
            burst,
            first_window: self.windows.len(),
            first_count: self.counts.len(),
        });
    }

    /// Adds a window to the last burst; give them in the order of `index`. `counts` has one for each event of the
    /// group: missing ones count as 0, and more are left out.
    ///
    /// # Panics
    /// If there is no burst.
    pub fn push_window(
        &mut self,
        index: u16,
        flags: WindowFlags,
        start: WindowEnd,
        end: WindowEnd,
        counts: &[u64],
    ) {
        let span = self.spans.last().expect("a burst before its windows");
        let width = self.groups[usize::from(span.burst.group)].events.len();
        self.windows.push(Packed {
            index,
            flags,
            start: start.into(),
            end: end.into(),
        });
        let given = counts.len().min(width);
        self.counts.extend_from_slice(&counts[..given]);
        self.counts.resize(self.counts.len() + width - given, 0);
    }

    /// The groups.
    pub fn groups(&self) -> &[CountedGroup] {
        &self.groups
    }

    /// Returns the number of windows.
    pub fn len(&self) -> usize {
        self.windows.len()
    }

    /// Whether there is no window.
    pub fn is_empty(&self) -> bool {
        self.windows.is_empty()
    }

    /// The bursts, in the order in which they were pushed.
    pub fn bursts(&self) -> impl ExactSizeIterator<Item = BurstView<'_>> {
        (0..self.spans.len()).map(|number| self.burst(number))
    }

    /// The period of the burst with a number.
    pub(super) fn period(&self, burst: u32) -> u64 {
        self.spans[burst as usize].burst.period
    }

    fn burst(&self, number: usize) -> BurstView<'_> {
        let span = &self.spans[number];
        let (windows_end, counts_end) = match self.spans.get(number + 1) {
            Some(next) => (next.first_window, next.first_count),
            None => (self.windows.len(), self.counts.len()),
        };
        BurstView {
            number: number as u32,
            burst: &span.burst,
            group: &self.groups[usize::from(span.burst.group)],
            windows: &self.windows[span.first_window..windows_end],
            counts: &self.counts[span.first_count..counts_end],
            first_window: span.first_window,
        }
    }
}

impl<'w> BurstView<'w> {
    /// Its windows.
    pub fn windows(self) -> impl ExactSizeIterator<Item = WindowView<'w>> {
        let width = self.group.events.len();
        self.windows
            .iter()
            .enumerate()
            .map(move |(i, packed)| WindowView {
                number: self.first_window + i,
                burst_number: self.number,
                burst: self.burst,
                index: packed.index,
                last: i + 1 == self.windows.len(),
                flags: packed.flags,
                start: packed.start.into(),
                end: packed.end.into(),
                counts: &self.counts[i * width..(i + 1) * width],
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_in_comes_out() {
        let mut windows = Windows::new(vec![
            CountedGroup::new(vec![0, 1]),
            CountedGroup::new(vec![0, 2, 3]),
        ]);
        let here = WindowEnd {
            function: Some(3),
            path: Some(9),
        };
        windows.push_burst(WindowBurst::default());
        windows.push_window(0, WindowFlags::empty(), WindowEnd::default(), here, &[300]);
        windows.push_burst(WindowBurst {
            group: 1,
            ..WindowBurst::default()
        });
        windows.push_burst(WindowBurst {
            group: 1,
            time: 5,
            ..WindowBurst::default()
        });
        windows.push_window(0, WindowFlags::LOST, here, here, &[1, 2, 3, 4]);
        windows.push_window(2, WindowFlags::empty(), here, here, &[5, 6, 7]);
        let seen: Vec<_> = windows
            .bursts()
            .flat_map(|burst| burst.windows())
            .map(|w| (w.number, w.burst_number, w.index, w.last, w.counts.to_vec()))
            .collect();
        assert_eq!(
            seen,
            [
                (0, 0, 0, true, vec![300, 0]),
                (1, 2, 0, false, vec![1, 2, 3]),
                (2, 2, 2, true, vec![5, 6, 7]),
            ]
        );
        let places: Vec<_> = windows
            .bursts()
            .flat_map(|burst| burst.windows())
            .map(|w| (w.start, w.end))
            .collect();
        assert_eq!(places[0], (WindowEnd::default(), here));
        assert_eq!(windows.bursts().len(), 3);
    }
}
