//! The model of one recording.

use crate::counts::counter::{Cell, Count, Counts};
use crate::counts::estimate::Estimate;
use crate::counts::multiplex::Multiplexing;
use crate::counts::sample_keys::{SampleKey, SampleKeyId, SampleKeys};
use crate::loading::details::Details;
use crate::loading::load::LoadOptions;
use crate::loading::losses::Losses;
use crate::processes::mappings::MappingLog;
use crate::processes::modules::Modules;
use crate::processes::tasks::{Tasks, ThreadId};
use crate::rows::hierarchy::totals::Order;
use crate::stacks::call_stacks::Stacks;
use crate::stacks::frames::{FrameId, Frames};
use crate::switches::SwitchLog;
use dioptra_perfdata::ImportedNames;
use dioptra_perfrecords::{Attr, event_type};
use dioptra_symbols::RecordedKernel;
use std::sync::{Arc, OnceLock};

/// A recording: the tasks that ran, the places of the samples, and the counts of each place. Nothing has a name yet;
/// see [`crate::Names`].
#[derive(Clone, Debug)]
pub struct Profile {
    pub(crate) options: LoadOptions,
    pub(crate) by_cpu: bool,
    pub(crate) events: Vec<EventProfile>,
    pub(crate) modules: Arc<Modules>,
    pub(crate) frames: Arc<Frames>,
    pub(crate) stacks: Arc<Stacks>,
    pub(crate) tasks: Arc<Tasks>,
    pub(crate) sample_keys: Arc<SampleKeys>,
    /// By CPU.
    pub(crate) sockets: Arc<[u32]>,
    pub(crate) start: Option<u64>,
    pub(crate) mapping_log: Arc<MappingLog>,
    /// Computed on first use; selections share it.
    pub(crate) stack_order: Arc<OnceLock<Order>>,
    /// By stack: whether its outermost frame is a thunk of a tracer. Computed on first use; selections share it.
    pub(crate) ends_at_thunk: Arc<OnceLock<Vec<bool>>>,
    pub(crate) recorded_kernel: RecordedKernel,
    /// The names that came with the profile, if another tool's profile was imported.
    pub(crate) imported: Option<Arc<ImportedNames>>,
    pub(crate) details: Arc<Details>,
    pub(crate) switch_log: Arc<SwitchLog>,
    pub(crate) losses: Losses,
}

/// One event and its counts.
#[derive(Clone, Debug)]
pub struct EventProfile {
    pub(crate) name: String,
    pub(crate) attr: Attr,
    /// The count of all samples, before any filter.
    pub(crate) all: Count,
    pub(crate) total: Count,
    pub(crate) has_chains: bool,
    pub(crate) weighs_events: bool,
    pub(crate) is_set_aside: bool,
    pub(crate) is_off_cpu: bool,
    pub(crate) running: Option<Multiplexing>,
    /// By stack, or by frame where stacks were not loaded; and by sample key.
    pub(crate) counts: Counts,
    /// The part of the counts that was taken in the kernel and counts at the user code that entered it.
    pub(crate) in_kernel: Option<Counts>,
}

/// A sample that is kept with its time; see [`crate::LoadPlan::log`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoggedSample {
    /// Nanoseconds since the recording's first sample.
    pub elapsed: Option<u64>,
    /// The thread, CPU and image that ran it, in [`Profile::sample_keys`].
    pub sample_key: SampleKeyId,
    /// The stack, or the frame where stacks were not asked for.
    pub place: u32,
    /// Its period.
    pub weight: u64,
    /// The number of events that each event of the period stands for; 1 unless the counter shared a hardware counter.
    pub factor: f64,
}

impl EventProfile {
    /// Returns the event's name, such as `cpu-clock:u`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the event's attributes.
    pub fn attr(&self) -> &Attr {
        &self.attr
    }

    /// Returns the event's samples and their weight before any filter.
    pub fn unfiltered(&self) -> Count {
        self.all
    }

    /// Returns the samples that passed the filter, and their weight.
    pub fn total(&self) -> Count {
        self.total
    }

    /// Returns the estimated number of events of the counted samples, with its error. The estimate is scaled where
    /// counters took turns. The error is exact where [`crate::LoadPlan::errors`] was asked for or samples state their
    /// counter's times. Elsewhere it assumes samples of equal weight, and is too small where they differ.
    pub fn total_estimate(&self) -> Estimate {
        self.counts.total_estimate()
    }

    /// Returns whether the statistical errors know each sample's weight.
    pub fn knows_errors(&self) -> bool {
        self.counts.knows_spread()
    }

    /// Returns whether estimates scale the weights, because the event's counters did not run all the time. Counts are
    /// never scaled.
    pub fn is_scaled(&self) -> bool {
        self.counts.is_scaled()
    }

    /// Returns the time that the event's counters ran, where its samples state it. All samples that passed the filter
    /// at loading are included.
    pub fn multiplexing(&self) -> Option<Multiplexing> {
        self.running
    }

    /// Calls `visit` with every counted sample in the order of the recording. Without [`crate::LoadPlan::log`] there
    /// are no calls.
    pub fn samples(&self, mut visit: impl FnMut(LoggedSample)) {
        self.counts.samples(|cell, hit| {
            let cell = self.counts.cell(cell);
            visit(LoggedSample {
                elapsed: hit.elapsed,
                sample_key: cell.sample_key,
                place: cell.place,
                weight: hit.weight,
                factor: hit.factor,
            });
        });
    }

    /// Returns whether its samples hold call chains.
    pub fn has_chains(&self) -> bool {
        self.has_chains
    }

    /// Returns whether its samples were not recorded to show where time went ([`crate::LoadPlan::set_aside`]).
    pub fn is_set_aside(&self) -> bool {
        self.is_set_aside
    }

    /// Returns whether its weights are nanoseconds for which threads waited, and its samples the waits.
    pub fn is_off_cpu(&self) -> bool {
        self.is_off_cpu
    }

    /// Returns whether it never counts anything, and only carries records of mappings and threads.
    pub fn is_dummy(&self) -> bool {
        is_dummy(&self.attr)
    }

    /// Returns whether a weight is a number of events. Otherwise every sample weighs one, since the recording does not
    /// state the number of events that a sample stands for.
    pub fn weighs_events(&self) -> bool {
        self.weighs_events
    }
}

impl Profile {
    /// Returns the options that the profile was loaded with.
    pub fn options(&self) -> LoadOptions {
        self.options
    }

    /// Returns all events of the recording, in its order.
    pub fn events(&self) -> &[EventProfile] {
        &self.events
    }

    /// Returns the indices of the events worth a column: events with samples, and events that could have had some.
    /// Events that are set aside are among them only where there are no others.
    pub fn sampled_events(&self) -> Vec<usize> {
        let samples = |event: &EventProfile| {
            !event.total.is_zero() || (event.attr.samples() && !is_dummy(&event.attr))
        };
        let ordinary = |event: &EventProfile| samples(event) && !event.is_set_aside;
        let any_ordinary = self.events.iter().any(ordinary);
        let shown = |event: &EventProfile| match any_ordinary {
            true => ordinary(event),
            false => samples(event),
        };
        (0..self.events.len())
            .filter(|index| shown(&self.events[*index]))
            .collect()
    }

    /// Returns all modules.
    pub fn modules(&self) -> &Modules {
        &self.modules
    }

    /// Returns all places where a sample or a call lies.
    pub fn frames(&self) -> &Frames {
        &self.frames
    }

    /// Returns all call stacks; only the empty one without [`LoadOptions::call_chains`].
    pub fn stacks(&self) -> &Stacks {
        &self.stacks
    }

    /// Returns all processes and threads.
    pub fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    /// Returns all sample keys into which counts are kept apart; see [`SampleKey`].
    pub fn sample_keys(&self) -> &SampleKeys {
        &self.sample_keys
    }

    /// Returns the socket of a CPU, where the recording states it.
    pub fn socket(&self, cpu: u32) -> Option<u32> {
        self.sockets.get(cpu as usize).copied()
    }

    /// Nanoseconds of the recording's clock at its first sample.
    pub fn first_time(&self) -> Option<u64> {
        self.start
    }

    /// Returns whether samples are kept with their times; see [`crate::LoadPlan::log`].
    pub fn has_times(&self) -> bool {
        self.events.iter().all(|event| event.counts.has_log())
    }

    /// Returns the kernel that was running, where the recording states it.
    pub fn recorded_kernel(&self) -> &RecordedKernel {
        &self.recorded_kernel
    }

    /// Returns the losses and damage that make the counts incomplete.
    pub fn losses(&self) -> &Losses {
        &self.losses
    }

    /// Returns all stacks in an order in which each is followed by its callees.
    pub(crate) fn stack_order(&self) -> &Order {
        self.stack_order.get_or_init(|| Order::of(&self.stacks))
    }

    /// Returns the innermost frame of a place: of a stack, or the frame itself where stacks were not loaded.
    #[inline]
    pub(crate) fn leaf(&self, place: u32) -> FrameId {
        if self.options.call_chains {
            self.stacks.get(place).frame
        } else {
            place
        }
    }

    /// Returns the innermost frame of a stack, or the frame itself where stacks were not loaded.
    pub fn innermost_frame(&self, stack: u32) -> FrameId {
        self.leaf(stack)
    }

    /// Calls `visit` with the self counts of an event (an index of [`Profile::events`]) in some frames, and with their
    /// estimates. A frame comes several times: once for each stack that it ends, and each sample key. The first call sorts
    /// the event's counts by frame, which takes about as long as two walks through them; later calls take time for
    /// `frames` only.
    pub fn own_counts(
        &self,
        event: usize,
        frames: impl IntoIterator<Item = FrameId>,
        mut visit: impl FnMut(FrameId, Count, Estimate),
    ) {
        let Some(event) = self.events.get(event) else {
            return;
        };
        let counts = &event.counts;
        let by_leaf = counts.by_leaf(self.frames.len(), |place| self.leaf(place));
        for frame in frames {
            for cell in by_leaf.cells(frame) {
                visit(frame, counts.get(*cell), counts.estimate(*cell));
            }
        }
    }

    /// Returns the self counts of all frames that have some, in rising order; computed on first use.
    pub(crate) fn own_by_frame<'a>(&'a self, event: &'a EventProfile) -> &'a [(FrameId, Count)] {
        let counts = &event.counts;
        counts.own(self.frames.len(), |place| self.leaf(place))
    }

    /// Calls `visit` with the count of every sample key and place of an event. The place is a stack, or a frame where
    /// stacks were not loaded. Each pair comes once, and counts of zero do not come.
    pub fn counts(&self, event: &EventProfile, mut visit: impl FnMut(SampleKeyId, u32, Count)) {
        for (cell, count) in event.counts.iter().filter(|(_, count)| !count.is_zero()) {
            visit(cell.sample_key, cell.place, count);
        }
    }

    /// Calls `visit` with every counted place of an event. With counts kept apart by sample key, a place comes several times.
    pub(crate) fn places(&self, event: &EventProfile, mut visit: impl FnMut(u32, Count)) {
        event
            .counts
            .iter()
            .for_each(|(cell, count)| visit(cell.place, count));
    }

    /// Calls `visit` with every counted thread of an event; none without [`LoadOptions::threads`].
    pub(crate) fn threads(&self, event: &EventProfile, mut visit: impl FnMut(ThreadId, Count)) {
        if self.options.threads {
            self.of_parts(event, |sample_key, count| {
                if let Some(thread) = sample_key.thread {
                    visit(thread, count);
                }
            });
        }
    }

    /// Calls `visit` with every counted CPU of an event (`u32::MAX` for samples without a CPU); none without
    /// [`crate::LoadPlan::cpus`].
    pub(crate) fn cpus(&self, event: &EventProfile, mut visit: impl FnMut(u32, Count)) {
        if self.by_cpu {
            self.of_parts(event, |sample_key, count| {
                visit(sample_key.cpu.unwrap_or(u32::MAX), count)
            });
        }
    }

    /// Returns whether kernel samples of an event count at the user code that entered the kernel, where they show that
    /// code.
    pub fn counts_kernel_at_caller(&self, event: usize) -> bool {
        let event = self.events.get(event);
        event.is_some_and(|event| event.in_kernel.is_some())
    }

    /// Returns the same profile with only the counts of samples that were taken in the kernel and count at the user
    /// code that entered it ([`crate::LoadPlan::kernel`]). Ids stay those of this profile.
    pub fn in_kernel(&self) -> Profile {
        let mut inside = self.clone();
        for event in &mut inside.events {
            event.counts = event.in_kernel.clone().unwrap_or_default();
            event.total = event.counts.total();
        }
        inside
    }

    fn of_parts(&self, event: &EventProfile, mut visit: impl FnMut(SampleKey, Count)) {
        event
            .counts
            .iter()
            .for_each(|(cell, count)| visit(self.sample_keys.get(cell.sample_key), count));
    }

    /// Keeps only samples whose innermost frame passes `keep`; [`EventProfile::unfiltered`] still counts all samples.
    pub fn retain_samples(&mut self, keep: impl Fn(FrameId) -> bool) {
        self.details = Arc::new(self.details.at(&keep));
        let mut events = std::mem::take(&mut self.events);
        for event in &mut events {
            let inside = event.in_kernel.iter_mut();
            for counts in inside.chain([&mut event.counts]) {
                counts.retain(|cell: Cell| keep(self.leaf(cell.place)));
            }
            event.total = event.counts.total();
        }
        self.events = events;
    }
}

/// Returns whether the event never counts anything and only carries records of mappings and threads.
pub(crate) fn is_dummy(attr: &Attr) -> bool {
    /// `PERF_COUNT_SW_DUMMY`.
    const DUMMY: u64 = 9;
    attr.kind == event_type::SOFTWARE && attr.config == DUMMY
}
