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
    pub(crate) total: Count,
    pub(crate) has_chains: bool,
    pub(crate) weighs_events: bool,
    /// By stack, or by frame where stacks were not asked for; empty where threads were.
    pub(crate) places: Dense,
    /// By thread and stack or frame.
    pub(crate) threads: Pairs,
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

    /// All its samples and their weight.
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
            .threads
            .iter()
            .for_each(|((_, place), count)| visit(place, count));
    }

    /// Calls `visit` with every counted thread of an event; none without [`LoadOptions::threads`].
    pub(crate) fn threads(&self, event: &EventProfile, mut visit: impl FnMut(ThreadId, Count)) {
        event
            .threads
            .iter()
            .for_each(|((thread, _), count)| visit(thread, count));
    }
}

/// Whether the event never counts anything and is there only to carry records of mappings and threads.
pub(crate) fn is_dummy(attr: &Attr) -> bool {
    /// `PERF_COUNT_SW_DUMMY`.
    const DUMMY: u64 = 9;
    attr.kind == event_type::SOFTWARE && attr.config == DUMMY
}
