//! The model of one recording.

use crate::counts::counter::{Cell, Count, Counts};
use crate::counts::estimate::Estimate;
use crate::counts::multiplex::Multiplexing;
use crate::counts::sample_keys::{Part, PartId, Parts};
use crate::loading::details::Details;
use crate::loading::load::LoadOptions;
use crate::loading::losses::Losses;
use crate::processes::mappings::MappingLog;
use crate::processes::modules::Modules;
use crate::processes::tasks::{Tasks, ThreadId};
use crate::rows::hierarchy::totals::Order;
use crate::stacks::call_stacks::Stacks;
use crate::stacks::frames::{FrameId, Frames};
use dioptra_perfrecords::{Attr, event_type};
use dioptra_symbols::RecordedKernel;
use std::sync::{Arc, OnceLock};

/// A recording: who ran, where the samples lie, and how much each place counts. Nothing has a name yet; see
/// [`crate::Names`].
#[derive(Clone, Debug)]
pub struct Profile {
    pub(crate) options: LoadOptions,
    pub(crate) by_cpu: bool,
    pub(crate) events: Vec<EventProfile>,
    pub(crate) modules: Arc<Modules>,
    pub(crate) frames: Arc<Frames>,
    pub(crate) stacks: Arc<Stacks>,
    pub(crate) tasks: Arc<Tasks>,
    pub(crate) parts: Arc<Parts>,
    /// By CPU.
    pub(crate) sockets: Arc<[u32]>,
    pub(crate) start: Option<u64>,
    pub(crate) mapping_log: Arc<MappingLog>,
    /// Made when it is first asked for; selections share it.
    pub(crate) stack_order: Arc<OnceLock<Order>>,
    pub(crate) recorded_kernel: RecordedKernel,
    pub(crate) details: Arc<Details>,
    pub(crate) losses: Losses,
}

/// One event and its counts.
#[derive(Clone, Debug)]
pub struct EventProfile {
    pub(crate) name: String,
    pub(crate) attr: Attr,
    /// Before any filter.
    pub(crate) all: Count,
    pub(crate) total: Count,
    pub(crate) has_chains: bool,
    pub(crate) weighs_events: bool,
    pub(crate) is_set_aside: bool,
    pub(crate) running: Option<Multiplexing>,
    /// By stack, or by frame where stacks were not asked for; and by part.
    pub(crate) counts: Counts,
    /// Those of the counts that were taken in the kernel and count at the user code that entered it.
    pub(crate) in_kernel: Option<Counts>,
}

/// A sample that is kept with its time; see [`crate::LoadPlan::log`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoggedSample {
    /// Nanoseconds since the recording's first sample.
    pub elapsed: Option<u64>,
    /// Who ran it, in [`Profile::parts`].
    pub part: PartId,
    /// The stack, or the frame where stacks were not asked for.
    pub place: u32,
    /// Its period.
    pub weight: u64,
    /// For how many events each one of the period stands; 1 unless the counter shared a hardware counter.
    pub factor: f64,
}

impl EventProfile {
    /// Its name, such as `cpu-clock:u`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its attributes.
    pub fn attr(&self) -> &Attr {
        &self.attr
    }

    /// All its samples and their weight before any filter.
    pub fn unfiltered(&self) -> Count {
        self.all
    }

    /// Its samples and their weight, those that passed the filter.
    pub fn total(&self) -> Count {
        self.total
    }

    /// What the counted samples stand for and its error: scaled where counters took turns. Exact where
    /// [`crate::LoadPlan::errors`] was asked for or samples tell their counter's times; else the error is that of
    /// samples which all weigh the same, and so too small where they do not.
    pub fn total_estimate(&self) -> Estimate {
        let mut total = Estimate::default();
        for (cell, _) in self.counts.iter() {
            total.add(self.counts.estimate(cell.id));
        }
        total
    }

    /// Whether each sample's weight is known to its statistical errors.
    pub fn knows_errors(&self) -> bool {
        self.counts.knows_spread()
    }

    /// Whether weights are scaled in its estimates, because its counters did not run all the time. Counts are never
    /// scaled.
    pub fn is_scaled(&self) -> bool {
        self.counts.is_scaled()
    }

    /// For how long its counters ran, where its samples tell; of all samples that passed the filter at loading.
    pub fn multiplexing(&self) -> Option<Multiplexing> {
        self.running
    }

    /// Calls `visit` with every counted sample in the order of the recording; with none unless
    /// [`crate::LoadPlan::log`] was asked for.
    pub fn samples(&self, mut visit: impl FnMut(LoggedSample)) {
        self.counts.samples(|cell, hit| {
            let cell = self.counts.cell(cell);
            visit(LoggedSample {
                elapsed: hit.elapsed,
                part: cell.part,
                place: cell.place,
                weight: hit.weight,
                factor: hit.factor,
            });
        });
    }

    /// Whether its samples hold call chains.
    pub fn has_chains(&self) -> bool {
        self.has_chains
    }

    /// Whether its samples were not recorded to show where time went ([`crate::LoadPlan::set_aside`]).
    pub fn is_set_aside(&self) -> bool {
        self.is_set_aside
    }

    /// Whether it never counts anything, and only carries records of mappings and threads.
    pub fn is_dummy(&self) -> bool {
        is_dummy(&self.attr)
    }

    /// Whether a weight is a number of events; else every sample weighs one, since the recording does not tell for
    /// how many events it stands.
    pub fn weighs_events(&self) -> bool {
        self.weighs_events
    }
}

impl Profile {
    /// How it was loaded.
    pub fn options(&self) -> LoadOptions {
        self.options
    }

    /// All events of the recording, in its order.
    pub fn events(&self) -> &[EventProfile] {
        &self.events
    }

    /// The places of events worth a column: those that have samples, and those that could have had some. Events that
    /// are set aside are among them only where there are no others.
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

    /// All modules.
    pub fn modules(&self) -> &Modules {
        &self.modules
    }

    /// All places where a sample or a call lies.
    pub fn frames(&self) -> &Frames {
        &self.frames
    }

    /// All call stacks; only the empty one without [`LoadOptions::call_chains`].
    pub fn stacks(&self) -> &Stacks {
        &self.stacks
    }

    /// All processes and threads.
    pub fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    /// All parts into which counts are kept apart; see [`Part`].
    pub fn parts(&self) -> &Parts {
        &self.parts
    }

    /// The socket of a CPU, as far as the recording tells.
    pub fn socket(&self, cpu: u32) -> Option<u32> {
        self.sockets.get(cpu as usize).copied()
    }

    /// Nanoseconds of the recording's clock at its first sample.
    pub fn first_time(&self) -> Option<u64> {
        self.start
    }

    /// Whether samples are kept with their times; see [`crate::LoadPlan::log`].
    pub fn has_times(&self) -> bool {
        self.events.iter().all(|event| event.counts.has_log())
    }

    /// Which kernel was running, as far as the recording tells.
    pub fn recorded_kernel(&self) -> &RecordedKernel {
        &self.recorded_kernel
    }

    /// What is missing from the counts.
    pub fn losses(&self) -> &Losses {
        &self.losses
    }

    /// All stacks in an order in which each is followed by what it calls.
    pub(crate) fn stack_order(&self) -> &Order {
        self.stack_order.get_or_init(|| Order::of(&self.stacks))
    }

    /// The innermost frame of a place: of a stack, or the frame itself where stacks were not asked for.
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

    /// Calls `visit` with every counted place of an event; with counts kept apart, several times with the same place.
    pub(crate) fn places(&self, event: &EventProfile, mut visit: impl FnMut(u32, Count)) {
        event
            .counts
            .iter()
            .for_each(|(cell, count)| visit(cell.place, count));
    }

    /// Calls `visit` with every counted thread of an event; none without [`LoadOptions::threads`].
    pub(crate) fn threads(&self, event: &EventProfile, mut visit: impl FnMut(ThreadId, Count)) {
        if self.options.threads {
            self.of_parts(event, |part, count| {
                if let Some(thread) = part.thread {
                    visit(thread, count);
                }
            });
        }
    }

    /// Calls `visit` with every counted CPU of an event (`u32::MAX` for samples that do not tell theirs); none
    /// without [`crate::LoadPlan::cpus`].
    pub(crate) fn cpus(&self, event: &EventProfile, mut visit: impl FnMut(u32, Count)) {
        if self.by_cpu {
            self.of_parts(event, |part, count| {
                visit(part.cpu.unwrap_or(u32::MAX), count)
            });
        }
    }

    /// Whether samples of an event in the kernel count at the user code that entered it, as far as they tell that code.
    pub fn counts_kernel_at_caller(&self, event: usize) -> bool {
        let event = self.events.get(event);
        event.is_some_and(|event| event.in_kernel.is_some())
    }

    /// The same profile with the counts of those samples only that were taken in the kernel and count at the user code that
    /// entered it ([`crate::LoadPlan::kernel`]). Ids stay those of this profile.
    pub fn in_kernel(&self) -> Profile {
        let mut inside = self.clone();
        for event in &mut inside.events {
            event.counts = event.in_kernel.clone().unwrap_or_default();
            event.total = event.counts.total();
        }
        inside
    }

    fn of_parts(&self, event: &EventProfile, mut visit: impl FnMut(Part, Count)) {
        event
            .counts
            .iter()
            .for_each(|(cell, count)| visit(self.parts.get(cell.part), count));
    }

    /// Keeps only samples whose innermost frame passes `keep`; [`EventProfile::unfiltered`] still tells of all.
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

/// Whether the event never counts anything and is there only to carry records of mappings and threads.
pub(crate) fn is_dummy(attr: &Attr) -> bool {
    /// `PERF_COUNT_SW_DUMMY`.
    const DUMMY: u64 = 9;
    attr.kind == event_type::SOFTWARE && attr.config == DUMMY
}
