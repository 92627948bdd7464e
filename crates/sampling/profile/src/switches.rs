//! Context switches: when threads were off the CPU, and when CPUs idled.

use crate::hash::FxBuildHasher;
use crate::processes::tasks::ThreadId;
use crate::profile::Profile;
use crate::rows::hierarchy::TimeSlices;
use dioptra_perfrecords::record::{SampleId, Switch};
use hashbrown::HashMap;

/// The largest number of spans that are kept: 64 MiB.
const MOST_SPANS: usize = 1 << 22;

/// The number of the thread that runs where a CPU has nothing to do.
const IDLE: u32 = 0;

/// Spans of time between two switches, in nanoseconds of the recording's clock.
#[derive(Clone, Debug, Default)]
struct Gaps {
    /// Ended spans, in the order of their ends.
    ended: Vec<(u64, u64)>,
    /// The start of the span that has not ended.
    open: Option<u64>,
}

/// The context switches of a recording. Nothing is known of the time before the first switch of a thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct SwitchLog {
    /// By number of the thread, since the switch that ends a thread comes after the record of its end.
    off: HashMap<u32, Gaps, FxBuildHasher>,
    /// By CPU, where the recording watched CPUs.
    idle: HashMap<u32, Gaps, FxBuildHasher>,
    spans: usize,
    /// The number of spans that were not kept.
    left_out: u64,
    /// The number of switches.
    switches: u64,
}

impl SwitchLog {
    /// Notes a switch. Switches come in the order of their times.
    pub(crate) fn note(&mut self, switch: &Switch, ids: &SampleId, time: u64) {
        self.switches += 1;
        let Some(tid) = ids.tid.filter(|tid| *tid != u32::MAX) else {
            return;
        };
        // The idle thread runs on all CPUs at once, so its times belong to the CPU.
        let (gaps, begins) = match (tid, ids.cpu) {
            (IDLE, Some(cpu)) => (self.idle.entry(cpu).or_default(), !switch.out),
            (IDLE, None) => return,
            _ => (self.off.entry(tid).or_default(), switch.out),
        };
        if begins {
            // After a lost record the earlier start says nothing.
            gaps.open = Some(time);
            return;
        }
        let Some(start) = gaps.open.take().filter(|start| *start < time) else {
            return;
        };
        if self.spans < MOST_SPANS {
            self.spans += 1;
            gaps.ended.push((start, time));
        } else {
            self.left_out += 1;
        }
    }
}

/// The kind of a row whose time without a CPU or a thread is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GapsOf {
    /// A thread: the time that it was off the CPU.
    Thread(ThreadId),
    /// A CPU: the time that it idled.
    Cpu(u32),
}

impl Profile {
    /// Returns the number of context switches that the recording states; 0 without [`crate::LoadPlan::switches`].
    pub fn switches(&self) -> u64 {
        self.switch_log.switches
    }

    /// Returns the number of spans off the CPU that were not kept, because there are too many.
    pub fn switches_left_out(&self) -> u64 {
        self.switch_log.left_out
    }

    /// Returns the spans in which a thread was off the CPU, between two of its switches, in nanoseconds since the
    /// recording's first sample and cut off there. Needs [`crate::LoadPlan::switches`].
    pub fn spans_off_cpu(&self, id: ThreadId) -> Vec<(u64, u64)> {
        let (Some(thread), Some(first)) = (self.tasks.threads().get(id as usize), self.start)
        else {
            return Vec::new();
        };
        let Some(gaps) = self.switch_log.off.get(&thread.tid) else {
            return Vec::new();
        };
        // Numbers of threads are used again.
        let from = thread.start.unwrap_or(0).max(first);
        let until = thread.end.unwrap_or(u64::MAX);
        let spans = gaps.ended.iter();
        let spans = spans.map(|(start, end)| ((*start).max(from), (*end).min(until)));
        spans
            .filter(|(start, end)| start < end)
            .map(|(start, end)| (start - first, end - first))
            .collect()
    }

    /// Returns the nanoseconds of each slice that a thread was off the CPU, or that a CPU idled; `None` where no switch of
    /// it was recorded. Needs [`crate::LoadPlan::switches`].
    pub fn gaps(&self, of: GapsOf, slices: &TimeSlices) -> Option<Vec<u64>> {
        let (gaps, life) = match of {
            GapsOf::Thread(id) => {
                let thread = self.tasks.threads().get(id as usize)?;
                let life = (thread.start.unwrap_or(0), thread.end.unwrap_or(u64::MAX));
                (self.switch_log.off.get(&thread.tid)?, life)
            }
            GapsOf::Cpu(cpu) => (self.switch_log.idle.get(&cpu)?, (0, u64::MAX)),
        };
        let first = self.start?.saturating_add(slices.start);
        let width = slices.width.get();
        let end = first.saturating_add(width.saturating_mul(u64::from(slices.number)));
        let mut sums = vec![0_u64; slices.number as usize];
        let open = gaps.open.map(|start| (start, u64::MAX));
        for (from, to) in gaps.ended.iter().copied().chain(open) {
            let from = from.max(life.0).max(first);
            let to = to.min(life.1).min(end);
            if from >= to {
                continue;
            }
            let slice_of = |time: u64| ((time - first) / width) as usize;
            let covered = slice_of(from)..=slice_of(to - 1);
            for (slice, sum) in covered.clone().zip(&mut sums[covered]) {
                let start = first + slice as u64 * width;
                *sum += to.min(start.saturating_add(width)) - from.max(start);
            }
        }
        Some(sums)
    }
}
