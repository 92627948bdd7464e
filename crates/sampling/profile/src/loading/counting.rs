//! The last stage of a sample: it counts at its stack.

use crate::counts::counter::{Count, Counter, Hit, Keep};
use crate::counts::multiplex::{Running, tells_times};
use crate::counts::sample_keys::SampleKeyId;
use crate::hash::FxBuildHasher;
use crate::loading::identify::SampledTask;
use crate::loading::losses::Losses;
use crate::loading::plan::LoadPlan;
use crate::loading::stacking::WaitingSample;
use crate::processes::tasks::ThreadId;
use dioptra_perfdata::PerfData;
use dioptra_perfrecords::AttrFlags;
use dioptra_perfrecords::record::{RawRecord, RecordLayout};
use hashbrown::HashMap;

/// The counts of one event.
pub(crate) struct EventCounts {
    /// Samples before any filter.
    pub(crate) all: Count,
    pub(crate) total: Count,
    pub(crate) counter: Counter,
    /// The counts of the samples that were taken in the kernel and count at user code.
    pub(crate) in_kernel: Counter,
    /// Whether samples state how long their counter ran.
    pub(crate) tells_times: bool,
}

/// Counts samples at their stacks, by event.
pub(crate) struct Counting<'a> {
    data: &'a PerfData,
    pub(crate) events: Vec<EventCounts>,
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
        let events = data.events().iter().map(|event| {
            let tells_times = tells_times(&event.attr);
            EventCounts {
                all: Count::default(),
                total: Count::default(),
                counter: Counter::new(Keep {
                    sample_keys,
                    spread: plan.errors || tells_times,
                    log: plan.log,
                }),
                in_kernel: Counter::new(Keep {
                    sample_keys,
                    ..Keep::default()
                }),
                tells_times,
            }
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
            running: Running::default(),
            readings,
            last_values: HashMap::default(),
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
        let WaitingSample {
            event,
            sample_key,
            hit,
        } = sample;
        let count = Count {
            samples: 1,
            weight: hit.weight,
        };
        let counts = &mut self.events[event];
        counts.all.add(count);
        counts.total.add(count);
        counts.counter.add(sample_key, stack, hit);
        if hit.in_kernel {
            counts.in_kernel.add(sample_key, stack, hit);
        }
        if counts.tells_times {
            self.running.count(event);
        }
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
