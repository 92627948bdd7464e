//! Counting a part of a recording again, from memory.

use crate::counts::counter::Cell;
use crate::counts::sample_keys::Part;
use crate::processes::images::ProgramId;
use crate::processes::tasks::{ProcessId, ThreadId};
use crate::profile::Profile;
use crate::selecting::sample_log::is_bounded;
use crate::stacks::frames::FrameId;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Which samples of a loaded profile count. An empty list lets all pass; each condition must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Nanoseconds since the recording's first sample: from this one on, up to before that one. Samples without a
    /// time do not pass unless both are `None`. Needs [`crate::LoadPlan::log`].
    pub time: (Option<u64>, Option<u64>),
    /// Threads. These and the next five need [`crate::LoadOptions::threads`].
    pub threads: Vec<ThreadId>,
    /// Numbers of threads.
    pub tids: Vec<u32>,
    /// Names that the thread had when it was sampled.
    pub comms: Vec<String>,
    /// Processes.
    pub processes: Vec<ProcessId>,
    /// Numbers of processes.
    pub pids: Vec<u32>,
    /// What the process ran when it was sampled.
    pub programs: Vec<ProgramId>,
    /// CPUs. Samples that do not tell theirs do not pass. This and the next one need [`crate::LoadPlan::cpus`].
    pub cpus: Vec<RangeInclusive<u32>>,
    /// Sockets; samples of CPUs whose socket is not known do not pass.
    pub sockets: Vec<u32>,
    /// By [`crate::FrameId`]: whether samples pass that were taken there.
    pub leaves: Option<Vec<bool>>,
    /// By [`crate::StackId`]: whether samples pass that have this stack; see [`Profile::stacks_through`]. Needs
    /// [`crate::LoadOptions::call_chains`].
    pub stacks: Option<Vec<bool>>,
}

/// A profile that was not loaded with what a question needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectError {
    /// Times of samples are not known.
    #[error("the profile was loaded without its samples' times; load it with LoadPlan::log")]
    NoTimes,
    /// Counts are not kept apart by thread.
    #[error("the profile was loaded without threads; load it with LoadOptions::threads")]
    NoThreads,
    /// Counts are not kept apart by CPU.
    #[error("the profile was loaded without CPUs; load it with LoadPlan::cpus")]
    NoCpus,
    /// Call stacks are not known.
    #[error("the profile was loaded without call chains; load it with LoadOptions::call_chains")]
    NoChains,
    /// Blocks were asked for.
    #[error("blocks need a mapping from places to blocks; give HierarchyOptions::blocks")]
    NoBlocks,
    /// More levels than there can be.
    #[error("a hierarchy has from 1 to 16 levels")]
    Levels,
}

impl Selection {
    fn asks_for_threads(&self) -> bool {
        !(self.threads.is_empty()
            && self.tids.is_empty()
            && self.comms.is_empty()
            && self.processes.is_empty()
            && self.pids.is_empty()
            && self.programs.is_empty())
    }

    fn asks_for_cpus(&self) -> bool {
        !(self.cpus.is_empty() && self.sockets.is_empty())
    }

    fn passes(&self, profile: &Profile, part: Part) -> bool {
        let tasks = profile.tasks();
        let of_thread = || {
            let Some(id) = part.thread else {
                return false;
            };
            let Some(thread) = tasks.threads().get(id as usize) else {
                return false;
            };
            let pid = || tasks.processes()[thread.process as usize].pid;
            let program = || {
                part.image.is_some_and(|image| {
                    self.programs
                        .contains(&tasks.images()[image as usize].program)
                })
            };
            (self.threads.is_empty() || self.threads.contains(&id))
                && (self.tids.is_empty() || self.tids.contains(&thread.tid))
                && (self.comms.is_empty() || self.comms.contains(&tasks.comm_of(part)))
                && (self.processes.is_empty() || self.processes.contains(&thread.process))
                && (self.pids.is_empty() || self.pids.contains(&pid()))
                && (self.programs.is_empty() || program())
        };
        let of_cpu = || {
            (self.cpus.is_empty()
                || part
                    .cpu
                    .is_some_and(|cpu| self.cpus.iter().any(|range| range.contains(&cpu))))
                && (self.sockets.is_empty()
                    || part
                        .cpu
                        .and_then(|cpu| profile.socket(cpu))
                        .is_some_and(|socket| self.sockets.contains(&socket)))
        };
        (!self.asks_for_threads() || of_thread()) && (!self.asks_for_cpus() || of_cpu())
    }
}

impl Profile {
    /// The same profile with the counts of the selected samples only. Modules, frames, stacks and tasks are shared, so
    /// ids and [`crate::Names`] stay those of this profile. [`crate::EventProfile::unfiltered`] still tells of all.
    ///
    /// # Errors
    /// [`SelectError`] where the profile was not loaded with what the selection asks for.
    pub fn select(&self, selection: &Selection) -> Result<Profile, SelectError> {
        let bounded = is_bounded(selection.time);
        if bounded && !self.has_times() {
            return Err(SelectError::NoTimes);
        }
        if selection.asks_for_threads() && !self.options.threads {
            return Err(SelectError::NoThreads);
        }
        if selection.asks_for_cpus() && !self.by_cpu {
            return Err(SelectError::NoCpus);
        }
        if selection.stacks.is_some() && !self.options.call_chains {
            return Err(SelectError::NoChains);
        }
        let parts: Vec<bool> = self
            .parts
            .iter()
            .map(|part| selection.passes(self, part))
            .collect();
        let keep = |cell: Cell| {
            let on_stack = |stacks: &Vec<bool>| stacks.get(cell.place as usize).copied();
            parts[cell.part as usize]
                && selection
                    .stacks
                    .as_ref()
                    .is_none_or(|stacks| on_stack(stacks).unwrap_or(false))
                && selection.leaves.as_ref().is_none_or(|leaves| {
                    let leaf = self.leaf(cell.place);
                    leaves.get(leaf as usize).is_some_and(|wanted| *wanted)
                })
        };
        let mut selected = self.clone();
        let by_sample = bounded
            || selection.asks_for_threads()
            || selection.asks_for_cpus()
            || selection.stacks.is_some();
        if by_sample {
            selected.details = Arc::new(self.details.none_left());
        } else if let Some(leaves) = &selection.leaves {
            let wanted = |frame: FrameId| leaves.get(frame as usize).is_some_and(|wanted| *wanted);
            selected.details = Arc::new(self.details.at(wanted));
        }
        for event in &mut selected.events {
            event.counts = event.counts.select(selection.time, keep);
            // The log tells the times of all samples, not which were taken in the kernel.
            event.in_kernel = None;
            event.total = event.counts.total();
        }
        Ok(selected)
    }
}
