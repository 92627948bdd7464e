//! The model of one recording.

use crate::counts::{Count, Dense, Pairs};
use crate::frames::{FrameId, Frames};
use crate::load::LoadOptions;
use crate::losses::Losses;
use crate::modules::Modules;
use crate::stacks::Stacks;
use crate::tasks::{Tasks, ThreadId};
use dioptra_perfevents::{Attr, event_type};
use dioptra_symbols::RecordedKernel;

/// A recording: who ran, where the samples lie, and how much each place counts. Nothing has a name yet; see
/// [`crate::Names`].
#[derive(Clone, Debug)]
pub struct Profile {
    pub(crate) options: LoadOptions,
    pub(crate) by_thread: bool,
    pub(crate) by_cpu: bool,
    pub(crate) events: Vec<EventProfile>,
    pub(crate) modules: Modules,
    pub(crate) frames: Frames,
    pub(crate) stacks: Stacks,
    pub(crate) tasks: Tasks,
    pub(crate) recorded_kernel: RecordedKernel,
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
    /// By stack, or by frame where stacks were not asked for; empty where counts are kept apart.
    pub(crate) places: Dense,
    /// By thread or CPU, and stack or frame.
    pub(crate) parts: Pairs,
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

    /// Whether its samples hold call chains.
    pub fn has_chains(&self) -> bool {
        self.has_chains
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

    /// The places of events worth a column: those that have samples, and those that could have had some.
    pub fn sampled_events(&self) -> Vec<usize> {
        let shown = |event: &EventProfile| {
            !event.total.is_zero() || (event.attr.samples() && !is_dummy(&event.attr))
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

    /// Which kernel was running, as far as the recording tells.
    pub fn recorded_kernel(&self) -> &RecordedKernel {
        &self.recorded_kernel
    }

    /// What is missing from the counts.
    pub fn losses(&self) -> &Losses {
        &self.losses
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

    /// Calls `visit` with every counted place of an event.
    pub(crate) fn places(&self, event: &EventProfile, mut visit: impl FnMut(u32, Count)) {
        event
            .places
            .iter()
            .for_each(|(place, count)| visit(place, count));
        event
            .parts
            .iter()
            .for_each(|((_, place), count)| visit(place, count));
    }

    /// Calls `visit` with every counted thread of an event; none without [`LoadOptions::threads`].
    pub(crate) fn threads(&self, event: &EventProfile, visit: impl FnMut(ThreadId, Count)) {
        if self.by_thread {
            self.parts(event, visit);
        }
    }

    /// Calls `visit` with every counted CPU of an event (`u32::MAX` for samples that do not tell theirs); none
    /// without [`crate::LoadPlan::cpus`].
    pub(crate) fn cpus(&self, event: &EventProfile, visit: impl FnMut(u32, Count)) {
        if self.by_cpu {
            self.parts(event, visit);
        }
    }

    fn parts(&self, event: &EventProfile, mut visit: impl FnMut(u32, Count)) {
        event
            .parts
            .iter()
            .for_each(|((part, _), count)| visit(part, count));
    }

    /// Keeps only samples whose innermost frame passes `keep`; [`EventProfile::unfiltered`] still tells of all.
    pub fn retain_samples(&mut self, keep: impl Fn(FrameId) -> bool) {
        let mut events = std::mem::take(&mut self.events);
        for event in &mut events {
            let passes = |place| keep(self.leaf(place));
            event.places.retain_counted(passes);
            event.parts.retain(|(_, place)| passes(place));
            let mut total = Count::default();
            self.places(event, |_, count| total.add(count));
            event.total = total;
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
