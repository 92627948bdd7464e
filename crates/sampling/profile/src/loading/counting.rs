//! The last stage of a sample: it counts at its stack.

use crate::counts::counter::{Count, Hit, Keep};
use crate::counts::multiplex::{Running, tells_times};
use crate::counts::sample_keys::SampleKeyId;
use crate::hash::FxBuildHasher;
use crate::loading::counters::{Counters, EventCounter};
use crate::loading::identify::SampledTask;
use crate::loading::losses::Losses;
use crate::loading::plan::LoadPlan;
use crate::loading::stacking::WaitingSample;
use crate::processes::tasks::ThreadId;
use dioptra_perfdata::PerfData;
use dioptra_perfrecords::AttrFlags;
use dioptra_perfrecords::record::{RawRecord, RecordLayout};
use hashbrown::HashMap;
use std::thread::Scope;

/// The sums of one event.
pub(crate) struct EventSums {
    /// Samples before any filter.
    pub(crate) all: Count,
    pub(crate) total: Count,
    /// Whether samples state how long their counter ran.
    pub(crate) tells_times: bool,
}

/// Counts samples at their stacks, by event.
pub(crate) struct Counting<'a> {
    data: &'a PerfData,
    pub(crate) events: Vec<EventSums>,
    pub(crate) counters: Counters,
    /// The time that each counter ran, as its samples state it.
    pub(crate) running: Running,
    /// The event of each id that samples of groups read; empty where no samples do.
    readings: HashMap<u64, usize, FxBuildHasher>,
    /// The value of an id in the last sample of its group, by id and thread. Inherited counters share an id, and each
    /// thread has values of its own. For counters that are not inherited the thread is 0.
    last_values: HashMap<(u64, ThreadId), u64, FxBuildHasher>,
}

impl<'a> Counting<'a> {
    /// Makes the stage. `reads_groups`: some samples hold the values of their whole group.
    pub(crate) fn new(data: &'a PerfData, plan: &LoadPlan, reads_groups: bool) -> Self {
        let sample_keys = plan.options.threads || plan.cpus;
        let described = || data.events().iter();
        let events = described().map(|event| EventSums {
            all: Count::default(),
            total: Count::default(),
            tells_times: tells_times(&event.attr),
        });
        let counters = described().map(|event| {
            EventCounter::new(Keep {
                sample_keys,
                spread: plan.errors || tells_times(&event.attr),
                log: plan.log,
            })
        });
        let mut readings = HashMap::default();
        if reads_groups {
            for (index, event) in data.events().iter().enumerate() {
                readings.extend(event.ids.iter().map(|id| (*id, index)));
            }
        }
        Counting {
            data,
            events: events.collect(),
            counters: Counters::Inline(counters.collect()),
            running: Running::default(),
            readings,
            last_values: HashMap::default(),
        }
    }

    /// Lets the counters grow on a thread of their own in `scope`.
    pub(crate) fn count_beside<'s>(&mut self, scope: &'s Scope<'s, '_>) {
        if let Counters::Inline(counters) = std::mem::take(&mut self.counters) {
            self.counters = Counters::beside(scope, counters);
        }
    }

    /// Returns the factor by which a sample stands for time in which its counter did not run.
    #[inline]
    pub(crate) fn factor(
        &mut self,
        event: usize,
        layout: &RecordLayout,
        raw: &RawRecord<'_>,
    ) -> f64 {
        if !self.events[event].tells_times {
            return 1.0;
        }
        let attr = &self.data.events()[event].attr;
        self.running.factor(event, attr, layout, raw)
    }

    /// Counts a sample at a stack.
    #[inline]
    pub(crate) fn count(&mut self, sample: WaitingSample, stack: u32) {
        let sums = &mut self.events[sample.event];
        sums.all.add_sample(sample.hit.weight);
        sums.total.add_sample(sample.hit.weight);
        if sums.tells_times {
            self.running.count(sample.event);
        }
        self.counters.add(sample, stack);
    }

    /// Counts a sample that holds the values of its whole group (`{a,b}:S`). As in perf, the sample counts for each
    /// member whose value has grown, by the growth. A sample without a stack did not pass the filter.
    pub(crate) fn count_group(
        &mut self,
        task: SampledTask,
        (layout, raw): (&RecordLayout, &RawRecord<'_>),
        hit: Hit,
        place: Option<(SampleKeyId, u32)>,
        losses: &mut Losses,
    ) {
        let attr = &self.data.events()[task.event].attr;
        let is_inherited = attr.flags.contains(AttrFlags::INHERIT);
        let thread = if is_inherited { task.thread } else { 0 };
        let sample = layout.sample(raw);
        let Some(values) = sample.ok().and_then(|sample| sample.read) else {
            losses.malformed += 1;
            return;
        };
        for value in values.iter() {
            let known = value.id.and_then(|id| Some((id, *self.readings.get(&id)?)));
            let Some((id, member)) = known else {
                losses.unknown_event += 1;
                continue;
            };
            let before = self.last_values.entry((id, thread)).or_default();
            let weight = value.value.saturating_sub(*before);
            *before = value.value;
            match place {
                _ if weight == 0 => {}
                Some((sample_key, stack)) => {
                    let hit = Hit { weight, ..hit };
                    let sample = WaitingSample {
                        event: member,
                        sample_key,
                        hit,
                    };
                    self.count(sample, stack);
                }
                None => self.events[member].all.add_sample(weight),
            }
        }
    }
}
