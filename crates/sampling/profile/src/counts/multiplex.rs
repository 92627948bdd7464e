//! Counters that shared a hardware counter, and the part of each interval that they ran.
//!
//! Samples with `READ` and both times state how long their counter was enabled and how long it ran. Both times grow
//! between two samples of a counter. Their quotient is the number of events that each counted event of this interval
//! stands for.
//!
//! A short interval says little by itself when counters take longer turns. Most short intervals end within one turn.
//! The few that span a gap include the kernel's time for changing counters. In that time a counter runs but counts
//! nothing if it leaves the kernel out. For short intervals the quotient is therefore taken over the last [`SPAN`] or
//! more of intervals, up to and including the current one.
//!
//! A thread's inherited event has one counter for each CPU. Each counter is enabled while the thread runs on any CPU,
//! but runs on its own CPU only. The enabled time is therefore the thread's, and the running times of its counters are
//! added up. Only one time is not known yet: the time that a counter ran since its last sample, before the thread moved
//! away.

use crate::hash::FxBuildHasher;
use dioptra_perfrecords::record::{RawRecord, RecordLayout};
use dioptra_perfrecords::{Attr, AttrFlags, ReadFormat, SampleType};
use hashbrown::HashMap;

/// The least time enabled, in nanoseconds, over which a quotient is taken. It covers many turns, which take 1 to 4 ms
/// each. A span ends within a turn, so that half a gap is missing from it on average.
const SPAN: u64 = 250_000_000;

/// The time that an event's counters ran, summed over the intervals that end with its samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Multiplexing {
    /// Nanoseconds enabled.
    pub enabled: u64,
    /// Nanoseconds running; less than enabled where counters took turns.
    pub running: u64,
    /// Samples whose weight was scaled.
    pub scaled: u64,
    /// Samples whose times are inconsistent; their weight was not scaled.
    pub unknown: u64,
}

/// Returns whether samples state how long their counter ran.
pub(crate) fn tells_times(attr: &Attr) -> bool {
    let times = ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING;
    attr.sample_type.contains(SampleType::READ) && attr.read_format.contains(times)
}

/// A set of counters that are enabled at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Enabled {
    Counter(u64),
    OfThread { event: usize, thread: u32 },
}

/// The intervals of the last [`SPAN`] to twice [`SPAN`].
#[derive(Clone, Copy, Debug, Default)]
struct Recent {
    /// Nanoseconds enabled and running in the span before.
    before: (u64, u64),
    /// Nanoseconds enabled and running in the current span so far.
    now: (u64, u64),
}

impl Recent {
    /// Returns the number of events that each counted event of an interval with these times stands for.
    fn factor(&mut self, enabled: u64, running: u64) -> f64 {
        if enabled >= SPAN {
            *self = Recent::default();
            return ratio(enabled, running);
        }
        self.now.0 += enabled;
        self.now.1 = self.now.1.saturating_add(running);
        let factor = ratio(
            self.before.0 + self.now.0,
            self.before.1.saturating_add(self.now.1),
        );
        if self.now.0 >= SPAN {
            self.before = std::mem::take(&mut self.now);
        }
        factor
    }
}

fn ratio(enabled: u64, running: u64) -> f64 {
    (enabled as f64 / running as f64).max(1.0)
}

/// The times of all counters while a recording is read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Running {
    /// By counter: the time that it had run at its last sample.
    ran: HashMap<(u64, u32), u64, FxBuildHasher>,
    /// By counter, or by event and thread: the enabled time that samples were already scaled for.
    covered: HashMap<Enabled, u64, FxBuildHasher>,
    /// By the same keys: the recent intervals.
    recent: HashMap<Enabled, Recent, FxBuildHasher>,
    /// The interval of the last sample.
    interval: Multiplexing,
    /// The sums by event.
    sums: Vec<Multiplexing>,
}

impl Running {
    /// Returns the number of events that each event stands for that this sample's counter counted since its sample
    /// before.
    pub(crate) fn factor(
        &mut self,
        event: usize,
        attr: &Attr,
        layout: &RecordLayout,
        record: &RawRecord<'_>,
    ) -> f64 {
        self.interval = Multiplexing {
            unknown: 1,
            ..Multiplexing::default()
        };
        let mut factor = 1.0;
        if let Ok(sample) = layout.sample(record)
            && let Some(read) = &sample.read
            && let (Some(enabled), Some(running)) = (read.time_enabled, read.time_running)
        {
            // Inherited counters have their own times, and may share their id.
            let inherited = attr.flags.contains(AttrFlags::INHERIT) && sample.stream_id.is_none();
            let thread = sample.tid.filter(|_| inherited).unwrap_or(0);
            let id = sample.stream_id.or(sample.id).unwrap_or(0);
            // An event without ids has only one counter, or its counters cannot be told apart.
            let id = if id == 0 { event as u64 } else { id };
            let whose = match sample.tid {
                Some(thread) if attr.flags.contains(AttrFlags::INHERIT) => {
                    Enabled::OfThread { event, thread }
                }
                _ => Enabled::Counter(id),
            };
            let ran = self.ran.entry((id, thread)).or_default();
            let covered = self.covered.entry(whose).or_default();
            let ran = running.checked_sub(std::mem::replace(ran, running));
            let enabled = match (whose, ran) {
                // The samples of the thread's other counters cover the time that these counters ran, now or later.
                (Enabled::OfThread { .. }, Some(ran)) if enabled >= *covered / 2 => {
                    let interval = enabled.saturating_sub(*covered).max(ran);
                    *covered = covered.saturating_add(interval);
                    Some(interval)
                }
                // The number belongs to another thread now.
                (Enabled::OfThread { .. }, _) => {
                    *covered = enabled;
                    None
                }
                (Enabled::Counter(_), _) => {
                    enabled.checked_sub(std::mem::replace(covered, enabled))
                }
            };
            if let (Some(enabled), Some(running @ 1..)) = (enabled, ran) {
                factor = self
                    .recent
                    .entry(whose)
                    .or_default()
                    .factor(enabled, running);
                self.interval = Multiplexing {
                    enabled,
                    running: running.min(enabled),
                    scaled: u64::from(factor != 1.0),
                    unknown: 0,
                };
            }
        }
        factor
    }

    /// Counts the last sample's interval for an event.
    pub(crate) fn count(&mut self, event: usize) {
        if event >= self.sums.len() {
            self.sums.resize(event + 1, Multiplexing::default());
        }
        let sum = &mut self.sums[event];
        sum.enabled = sum.enabled.saturating_add(self.interval.enabled);
        sum.running = sum.running.saturating_add(self.interval.running);
        sum.scaled += self.interval.scaled;
        sum.unknown += self.interval.unknown;
    }

    /// Returns the sums of an event.
    pub(crate) fn of_event(&self, event: usize) -> Option<Multiplexing> {
        self.sums.get(event).copied()
    }
}
