//! Time off the CPU: from the switch that takes a thread off its CPU until the switch that brings it back.
//!
//! The event `off-cpu` samples every switch away from a thread, with the call stack of the blocking call. The sample waits
//! here until a SWITCH record says that the thread runs again, and counts with the nanoseconds between. A thread that was
//! preempted was not waiting for anything but a CPU: its time is kept apart.

use crate::hash::FxBuildHasher;
use crate::loading::stacking::WaitingSample;
use crate::processes::tasks::{Tasks, ThreadId};
use dioptra_perfrecords::{Attr, AttrFlags, SampleType, event_type};
use hashbrown::HashMap;

/// The name that marks the event in a recording. Its attr is that of `context-switches` with a period of 1.
pub const OFF_CPU_EVENT: &str = "off-cpu";

/// `PERF_COUNT_SW_CONTEXT_SWITCHES`.
const CONTEXT_SWITCHES: u64 = 3;

/// Returns whether an event samples each switch away from a thread, to tell the time off the CPU.
pub(crate) fn is_off_cpu(name: &str, attr: &Attr) -> bool {
    let base = name.split(':').next();
    base == Some(OFF_CPU_EVENT)
        && (attr.kind, attr.config) == (event_type::SOFTWARE, CONTEXT_SWITCHES)
        && attr.sample_period == 1
        && !attr.flags.contains(AttrFlags::FREQ)
        && attr
            .sample_type
            .contains(SampleType::TIME | SampleType::TID)
}

/// The switches of off-CPU events that are in no count, and the waits that the recording does not show whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OffCpu {
    /// Switches at which the thread could have run on. They are in no count.
    pub preempted: u64,
    /// Nanoseconds until those threads ran again.
    pub preempted_ns: u64,
    /// Waits that lasted until the recording's end; they count up to there.
    pub unended: u64,
    /// Waits whose end is missing, because records were lost. They are in no count.
    pub lost: u64,
}

/// A wait that has not ended.
#[derive(Clone, Copy)]
struct Wait {
    sample: WaitingSample,
    /// The stack, or the frame where stacks are not kept; `None` for a sample that did not pass the filter.
    place: Option<u32>,
    thread: ThreadId,
    /// Nanoseconds of the recording's clock.
    since: u64,
}

/// The last switch of a thread, as far as it is known.
#[derive(Clone, Copy, Default)]
struct Last {
    wait: Option<Wait>,
    /// Whether the thread was preempted, as the switch away from the CPU said; `None` while the thread runs.
    preempted: Option<bool>,
}

/// A wait that has ended.
pub(crate) struct EndedWait {
    pub sample: WaitingSample,
    /// The stack, or the frame; `None` for a sample that did not pass the filter.
    pub place: Option<u32>,
}

/// The waits of a recording with an off-CPU event.
#[derive(Default)]
pub(crate) struct Waits {
    /// By number of the thread, since SWITCH records of a thread that ends come after the record of its end.
    threads: HashMap<u32, Last, FxBuildHasher>,
    /// The time of the newest switch.
    newest: u64,
    pub(crate) counts: OffCpu,
}

impl Waits {
    /// Notes the sample of a switch away from a thread, which may come before or after the SWITCH record.
    pub(crate) fn begin(
        &mut self,
        (tid, thread): (u32, ThreadId),
        sample: WaitingSample,
        place: Option<u32>,
        since: u64,
    ) {
        self.newest = self.newest.max(since);
        if tid == 0 {
            // The idle thread waits for nothing.
            return;
        }
        let last = self.threads.entry(tid).or_default();
        let wait = Wait {
            sample,
            place,
            thread,
            since,
        };
        if last.wait.replace(wait).is_some() {
            self.counts.lost += 1;
        }
    }

    /// Notes that the CPU leaves a thread, which could have run on if it was `preempted`.
    pub(crate) fn switch_away(&mut self, tid: u32, preempted: bool, time: u64) {
        self.newest = self.newest.max(time);
        self.threads.entry(tid).or_default().preempted = Some(preempted);
    }

    /// Notes that a thread runs again. Returns the wait that ends with it.
    pub(crate) fn switch_back(&mut self, tid: u32, time: u64) -> Option<EndedWait> {
        self.newest = self.newest.max(time);
        let last = self.threads.get_mut(&tid)?;
        let preempted = last.preempted.take().unwrap_or(false);
        let mut wait = last.wait.take()?;
        let duration = time.saturating_sub(wait.since);
        if preempted {
            self.counts.preempted += 1;
            self.counts.preempted_ns = self.counts.preempted_ns.saturating_add(duration);
            return None;
        }
        wait.sample.hit.weight = duration;
        Some(EndedWait {
            sample: wait.sample,
            place: wait.place,
        })
    }

    /// Returns the waits that last until the end, of threads that live on. Waits for a CPU are left out.
    pub(crate) fn finish(&mut self, tasks: &Tasks) -> Vec<EndedWait> {
        let mut waits: Vec<Wait> = self
            .threads
            .drain()
            .filter(|(_, last)| last.preempted != Some(true))
            .filter_map(|(_, last)| last.wait)
            // The last switch of a thread is its end.
            .filter(|wait| {
                let thread = tasks.threads().get(wait.thread as usize);
                thread.is_some_and(|thread| thread.end.is_none())
            })
            .collect();
        waits.sort_unstable_by_key(|wait| (wait.since, wait.thread));
        self.counts.unended = waits.len() as u64;
        let ended = waits.into_iter().map(|mut wait| {
            wait.sample.hit.weight = self.newest.saturating_sub(wait.since);
            EndedWait {
                sample: wait.sample,
                place: wait.place,
            }
        });
        ended.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::counter::Hit;

    fn sample() -> WaitingSample {
        WaitingSample {
            event: 0,
            sample_key: 0,
            hit: Hit {
                weight: 1,
                elapsed: Some(0),
                factor: 1.0,
                in_kernel: false,
            },
        }
    }

    #[test]
    fn waits_end_with_the_next_switch_of_the_thread() {
        let mut waits = Waits::default();
        let mut tasks = Tasks::default();
        let (one, other) = (tasks.thread(7, 7), tasks.thread(7, 8));
        // The sample before the record, and after it.
        waits.begin((7, one), sample(), Some(40), 100);
        waits.switch_away(7, false, 101);
        waits.switch_away(8, false, 110);
        waits.begin((8, other), sample(), Some(41), 111);
        let ended = waits.switch_back(7, 150).expect("it ends");
        assert_eq!((ended.place, ended.sample.hit.weight), (Some(40), 50));
        // A second switch to the thread ends nothing.
        assert!(waits.switch_back(7, 160).is_none());
        let ended = waits.switch_back(8, 211).expect("it ends");
        assert_eq!((ended.place, ended.sample.hit.weight), (Some(41), 100));
        assert_eq!(waits.counts, OffCpu::default());
        assert!(waits.finish(&tasks).is_empty());
    }

    #[test]
    fn preempted_lost_and_open_waits() {
        let mut waits = Waits::default();
        let mut tasks = Tasks::default();
        let (one, other) = (tasks.thread(7, 7), tasks.thread(7, 8));
        waits.begin((7, one), sample(), Some(40), 100);
        waits.switch_away(7, true, 100);
        assert!(waits.switch_back(7, 130).is_none());
        assert_eq!((waits.counts.preempted, waits.counts.preempted_ns), (1, 30));
        // The record of the switch back is missing.
        waits.begin((8, other), sample(), Some(41), 140);
        waits.begin((8, other), sample(), Some(42), 200);
        assert_eq!(waits.counts.lost, 1);
        // The idle thread, and a thread that has ended.
        waits.begin((0, one), sample(), Some(1), 210);
        waits.begin((7, one), sample(), Some(43), 220);
        tasks.end(7, 7, 230);
        waits.switch_away(7, false, 240);
        let open = waits.finish(&tasks);
        assert_eq!(open.len(), 1);
        assert_eq!((open[0].place, open[0].sample.hit.weight), (Some(42), 40));
        assert_eq!(waits.counts.unended, 1);
    }

    #[test]
    fn the_event_is_known_by_name_and_attr() {
        let attr = Attr {
            kind: event_type::SOFTWARE,
            config: CONTEXT_SWITCHES,
            sample_period: 1,
            sample_type: SampleType::TIME | SampleType::TID | SampleType::IP,
            ..Attr::default()
        };
        assert!(is_off_cpu("off-cpu", &attr) && is_off_cpu("off-cpu:H", &attr));
        assert!(!is_off_cpu("context-switches", &attr));
        let clock = Attr { config: 0, ..attr };
        assert!(!is_off_cpu("off-cpu", &clock));
    }
}
