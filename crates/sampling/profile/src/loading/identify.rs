//! The first stage of a sample: its event, its task, and the key under which it counts.

use crate::counts::sample_keys::{self, SampleKeyId, SampleKeys};
use crate::loading::plan::LoadPlan;
use crate::loading::sample_fields::Essence;
use crate::loading::system::System;
use crate::processes::tasks::{ProcessId, ThreadId};
use dioptra_perfdata::PerfData;
use dioptra_perfrecords::{Attr, event_type};

/// The task and event of a sample, as far as they depend on the records before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SampledTask {
    pub event: usize,
    pub process: ProcessId,
    pub thread: ThreadId,
    /// Whether the sample passed the filter.
    pub passes: bool,
    /// The key under which it counts.
    pub sample_key: SampleKeyId,
    pub weight: u64,
    /// Nanoseconds since the first sample.
    pub elapsed: Option<u64>,
}

/// Finds the tasks of samples.
pub(crate) struct Identifier<'a> {
    plan: &'a LoadPlan,
    /// Whether there is a filter at all.
    filtered: bool,
    /// The event of samples with unknown ids. It is the only event that samples, or the only one whose samples may
    /// carry the id of another recorder's event.
    pub(crate) only_sampler: Option<usize>,
    /// The time of the first sample.
    pub(crate) first_time: Option<u64>,
    /// The keys of the samples, where counts are kept apart by key.
    pub(crate) keys: SampleKeys,
}

impl<'a> Identifier<'a> {
    pub(crate) fn new(data: &PerfData, plan: &'a LoadPlan) -> Self {
        Identifier {
            plan,
            filtered: !plan.filter.is_empty(),
            only_sampler: only_sampler(data),
            first_time: None,
            keys: SampleKeys::default(),
        }
    }

    /// Finds the task of a sample, and whether the sample passes the filter.
    #[inline]
    pub(crate) fn identify(
        &mut self,
        system: &mut System<'_>,
        (event, sample): (usize, &Essence<'_>),
        time: Option<u64>,
    ) -> SampledTask {
        let thread = system.tasks.thread(sample.pid, sample.tid);
        let first = *self.first_time.get_or_insert(time.unwrap_or(0));
        let elapsed = time.map(|time| time.saturating_sub(first));
        let filter = &self.plan.filter;
        let passes = !self.filtered || filter.passes(&system.tasks, thread, sample.cpu, elapsed);
        let sample_key = if !passes {
            sample_keys::WHOLE
        } else if self.plan.options.threads {
            let cpu = sample.cpu.filter(|_| self.plan.cpus);
            self.keys.of_thread(&system.tasks, thread, cpu)
        } else if self.plan.cpus {
            self.keys.of_cpu(sample.cpu)
        } else {
            sample_keys::WHOLE
        };
        SampledTask {
            event,
            process: system.tasks.threads()[thread as usize].process,
            thread,
            passes,
            sample_key,
            weight: sample.weight,
            elapsed,
        }
    }
}

/// Returns the event of samples with unknown ids, if only one event may have such samples.
fn only_sampler(data: &PerfData) -> Option<usize> {
    let only = |may_have: fn(&Attr) -> bool| {
        let all = data.events().iter().enumerate();
        let mut found = all.filter(|(_, event)| may_have(&event.attr));
        let first = found.next().map(|(index, _)| index);
        first.filter(|_| found.next().is_none())
    };
    let samples = |attr: &Attr| attr.samples() && !crate::profile::is_dummy(attr);
    // The kernel may write an id of another recorder's event into the sample of a software event other than a clock,
    // where both watch one thread.
    only(samples).or_else(|| only(may_have_foreign_ids))
}

/// Returns whether an event's samples may carry ids of events that the recording does not describe.
fn may_have_foreign_ids(attr: &Attr) -> bool {
    // PERF_COUNT_SW_CPU_CLOCK, _TASK_CLOCK and _DUMMY.
    attr.kind == event_type::SOFTWARE && attr.samples() && !matches!(attr.config, 0 | 1 | 9)
}
