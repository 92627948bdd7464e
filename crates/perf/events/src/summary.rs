//! The totals of a session: samples, counts and losses.

use dioptra_perfrecords::Unsampled;

/// The totals of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Each event, in the order of [`AttachedSession::events`](crate::AttachedSession::events).
    pub events: Vec<EventSummary>,
    /// Samples delivered.
    pub samples: u64,
    /// Records delivered, samples included.
    pub records: u64,
    /// Bytes of all records.
    pub bytes: u64,
    /// Records that found a ring full. Each is counted once, whether the kernel reported it in a LOST record, in the
    /// event's own count, or in both.
    pub lost: u64,
    /// The part of [`Summary::lost`] that LOST records reported to the listener.
    pub lost_told: u64,
    /// Samples whose event is unknown.
    pub unknown_samples: u64,
    /// Samples that carried the id of another session's event (trap T9), and were given an id of the only event of this
    /// session that may have such samples.
    pub foreign_ids: u64,
    /// Records left out because their thread was found to be watched twice while attaching.
    pub duplicates: u64,
    /// Records that do not have their event's layout.
    pub malformed: u64,
    /// Bytes in rings that were no records.
    pub damaged_bytes: u64,
    /// THROTTLE records.
    pub throttled: u64,
    /// Threads attached to, and threads and processes that inherited events since; none for sessions of whole CPUs.
    pub threads: u64,
    /// Rounds in which all rings were drained.
    pub rounds: u64,
}

impl Summary {
    /// Returns the number of lost records that no LOST record reported: the kernel writes one only when there is room
    /// again.
    pub fn lost_untold(&self) -> u64 {
        self.lost.saturating_sub(self.lost_told)
    }

    /// Returns the events of which a good part was counted in threads that ended before their first period.
    pub fn unsampled(&self) -> Vec<Unsampled> {
        let of = |event: &EventSummary| {
            let period = event.period.filter(|_| event.is_per_thread)?;
            let lost = event.lost.unwrap_or(0).saturating_mul(period);
            let sampled = event.sampled.saturating_add(lost);
            let figures = (event.count, sampled);
            Unsampled::find(&event.name, figures, period, self.threads, event.is_time)
        };
        self.events.iter().filter_map(of).collect()
    }
}

/// The totals of one event, over all its threads and CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventSummary {
    /// The event's name.
    pub name: String,
    /// Samples delivered.
    pub samples: u64,
    /// Records of this event that found a ring full; `None` on kernels before 6.0, which count per ring only.
    pub lost: Option<u64>,
    /// THROTTLE records.
    pub throttled: u64,
    /// Events counted, nanoseconds for clocks.
    pub count: u64,
    /// Events that the samples delivered stand for: the sum of their periods.
    pub sampled: u64,
    /// Events between two samples, nanoseconds for clocks; an average for events sampled with a frequency, `None` where
    /// such an event has no sample, and for events that only count.
    pub period: Option<u64>,
    /// Whether the event is a clock, which counts nanoseconds.
    pub is_time: bool,
    /// Whether each thread counts its own periods, as inherited events do.
    pub is_per_thread: bool,
    /// Nanoseconds enabled, over all threads and CPUs.
    pub time_enabled: u64,
    /// Nanoseconds counting; less than enabled where counters were shared.
    pub time_running: u64,
}
