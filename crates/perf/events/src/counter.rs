//! Counting without a ring: one event, or a group of events that count at the same times.

use crate::errors::{EventError, OpenError};
use crate::event::{Count, Event, EventTarget, OpenRequest};
use crate::spec::EventSpec;
use crate::user_page::UserPage;
use crate::{AttrFlags, ReadFormat, event_type};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

/// An event that counts and takes no samples.
///
/// ```no_run
/// use dioptra_perfevents::{Counter, EventSpec};
///
/// let faults = Counter::start(&EventSpec::page_faults().user_only())?;
/// let touched = std::hint::black_box(vec![1_u8; 1 << 20]);
/// println!("{} page faults for {} bytes", faults.read()?.value, touched.len());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Cost
/// [`Counter::value`] takes some tens of nanoseconds where the kernel lets the process read the CPU's counter itself
/// (`rdpmc`, x86-64, hardware events of the calling thread). Everywhere else it is a `read(2)`, about 300 ns.
/// [`Counter::reads_in_user_space`] says which of the two happens.
#[derive(Debug)]
pub struct Counter {
    event: Event,
    page: Option<UserPage>,
}

impl Counter {
    /// Starts to count for the calling thread.
    ///
    /// # Errors
    /// [`OpenError`], which names the cause and the remedy.
    pub fn start(spec: &EventSpec) -> Result<Counter, OpenError> {
        Counter::start_for(spec, EventTarget::CALLER)
    }

    /// Starts to count for `target`.
    ///
    /// # Errors
    /// [`OpenError`], which names the cause and the remedy.
    pub fn start_for(spec: &EventSpec, target: EventTarget) -> Result<Counter, OpenError> {
        let mut request = OpenRequest::new(spec, target);
        count_only(&mut request);
        let event = request.open()?;
        // The kernel counts software events itself: there is no counter of the CPU to read.
        let is_readable = target == EventTarget::CALLER
            && !matches!(
                event.attr().kind,
                event_type::SOFTWARE | event_type::TRACEPOINT
            );
        let page = is_readable.then(|| UserPage::map(event.as_fd())).flatten();
        Ok(Counter { event, page })
    }

    /// Reads the count with its times.
    ///
    /// # Errors
    /// The kernel's refusal to read.
    pub fn read(&self) -> Result<Count, EventError> {
        let in_user_space = self.page.as_ref().and_then(UserPage::read);
        if let Some((value, (enabled, running))) =
            in_user_space.and_then(|read| Some((read.value, read.times?)))
        {
            return Ok(Count {
                value,
                time_enabled: Some(enabled),
                time_running: Some(running),
                ..Count::default()
            });
        }
        self.event.read()
    }

    /// Reads the count alone. This is the fastest read: it needs no clock of the CPU.
    ///
    /// # Errors
    /// The kernel's refusal to read.
    pub fn value(&self) -> Result<u64, EventError> {
        match self.page.as_ref().and_then(UserPage::read) {
            Some(read) => Ok(read.value),
            None => Ok(self.event.read()?.value),
        }
    }

    /// Returns true if [`Counter::value`], called now on this thread, makes no system call.
    pub fn reads_in_user_space(&self) -> bool {
        self.page.as_ref().and_then(UserPage::read).is_some()
    }

    /// Stops counting; the count stays.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn pause(&self) -> Result<(), EventError> {
        self.event.disable()
    }

    /// Goes on counting.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn resume(&self) -> Result<(), EventError> {
        self.event.enable()
    }

    /// Sets the count to zero; the times go on.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn reset(&self) -> Result<(), EventError> {
        self.event.reset()
    }

    /// Returns the open event.
    pub fn event(&self) -> &Event {
        &self.event
    }
}

impl AsFd for Counter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl AsRawFd for Counter {
    fn as_raw_fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }
}

/// Events that are on the CPU's counters at the same times, so that the ratios of their counts hold even where the
/// kernel shares the counters among many events.
///
/// ```no_run
/// use dioptra_perfevents::{EventSpec, Group};
///
/// let group = Group::start(&[EventSpec::task_clock().user_only(), EventSpec::page_faults().user_only()])?;
/// let touched = std::hint::black_box(vec![1_u8; 1 << 20]);
/// let [time, faults] = group.read()?[..] else { unreachable!("a count for each event") };
/// println!("{} bytes: {} faults in {} ns", touched.len(), faults.value, time.value);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Group {
    /// The events, leader first.
    events: Vec<Event>,
}

impl Group {
    /// Starts to count all events at once for the calling thread.
    ///
    /// # Errors
    /// [`OpenError`], which names the cause and the remedy: a group holds at most as many events as the PMU has
    /// counters. An empty list is refused as invalid.
    pub fn start(specs: &[EventSpec]) -> Result<Group, OpenError> {
        Group::start_for(specs, EventTarget::CALLER)
    }

    /// Starts to count all events at once for `target`.
    ///
    /// # Errors
    /// As [`Group::start`].
    pub fn start_for(specs: &[EventSpec], target: EventTarget) -> Result<Group, OpenError> {
        let mut events: Vec<Event> = Vec::with_capacity(specs.len());
        for spec in specs {
            let mut request = OpenRequest::new(spec, target).group(events.first());
            count_only(&mut request);
            request.attr.read_format |= ReadFormat::GROUP | ReadFormat::ID;
            // The leader holds the group back until it is complete.
            let is_leader = events.is_empty();
            request.attr.flags.set(AttrFlags::DISABLED, is_leader);
            let event = request.open()?;
            events.push(event);
        }
        let Some(leader) = events.first() else {
            return Err(OpenError::empty_group());
        };
        leader.enable().map_err(OpenError::of_control)?;
        Ok(Group { events })
    }

    /// Reads all counts at one moment, in the order in which the events were given.
    ///
    /// # Errors
    /// The kernel's refusal to read.
    pub fn read(&self) -> Result<Vec<Count>, EventError> {
        self.leader().read_group()
    }

    /// Stops counting; the counts stay.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn pause(&self) -> Result<(), EventError> {
        self.leader().disable_group()
    }

    /// Goes on counting.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn resume(&self) -> Result<(), EventError> {
        self.leader().enable_group()
    }

    /// Sets all counts to zero; the times go on.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn reset(&self) -> Result<(), EventError> {
        self.events.iter().try_for_each(Event::reset)
    }

    /// Returns the open events, leader first.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    fn leader(&self) -> &Event {
        // `start_for` refuses an empty group.
        &self.events[0]
    }
}

/// Makes a request count without samples, and read with times.
fn count_only(request: &mut OpenRequest<'_>) {
    let attr = &mut request.attr;
    attr.sample_period = 0;
    attr.flags.remove(AttrFlags::FREQ | AttrFlags::DISABLED);
    attr.set_precise_ip(0);
    attr.branch_sample_type = 0;
    attr.read_format |= ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING;
}

impl Count {
    /// Returns the count extrapolated to the whole time for which the event was enabled: `value * enabled / running`.
    ///
    /// The kernel shares counters among events in turns. `None` where the event never had a turn, or where the event
    /// was opened without its times.
    pub fn scaled(&self) -> Option<u64> {
        let enabled = u128::from(self.time_enabled?);
        let running = u128::from(self.time_running?);
        let scaled = (u128::from(self.value) * enabled).checked_div(running)?;
        Some(u64::try_from(scaled).unwrap_or(u64::MAX))
    }

    /// Returns true if the event shared its counter with others, so that [`Count::value`] is only a part.
    pub fn is_shared(&self) -> bool {
        self.time_running < self.time_enabled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_counts_are_scaled_without_overflow() {
        let count = |value, enabled, running| Count {
            value,
            time_enabled: Some(enabled),
            time_running: Some(running),
            ..Count::default()
        };
        assert_eq!(count(100, 30, 10).scaled(), Some(300));
        assert!(count(100, 30, 10).is_shared() && !count(1, 5, 5).is_shared());
        assert_eq!(count(u64::MAX, 3, 1).scaled(), Some(u64::MAX));
        assert_eq!(count(0, 30, 0).scaled(), None, "it never had a turn");
        assert_eq!(Count::default().scaled(), None);
    }
}
