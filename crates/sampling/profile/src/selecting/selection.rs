//! Counts a part of a recording again, from memory.

use crate::counts::counter::Cell;
use crate::counts::sample_keys::SampleKey;
use crate::processes::images::ProgramId;
use crate::processes::tasks::{ProcessId, ThreadId};
use crate::profile::Profile;
use crate::selecting::sample_log::is_bounded;
use crate::stacks::frames::FrameId;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// The conditions that samples of a loaded profile must meet to count. An empty list lets all samples pass, and each
/// condition must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Nanoseconds since the recording's first sample: the start, which is included, and the end, which is not. Samples
    /// without a time do not pass unless both are `None`. Needs [`crate::LoadPlan::log`].
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
    /// The programs that the process ran when it was sampled.
    pub programs: Vec<ProgramId>,
    /// CPUs. Samples without a CPU do not pass. This field and the next one need [`crate::LoadPlan::cpus`].
    pub cpus: Vec<RangeInclusive<u32>>,
    /// Sockets; samples of CPUs whose socket is not known do not pass.
    pub sockets: Vec<u32>,
    /// By [`crate::FrameId`]: whether samples whose innermost frame it is pass.
    pub leaves: Option<Vec<bool>>,
    /// By [`crate::StackId`]: whether samples pass that have this stack; see [`Profile::stacks_through`]. Needs
    /// [`crate::LoadOptions::call_chains`].
    pub stacks: Option<Vec<bool>>,
}

/// The reason why a loaded profile cannot answer a question.
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
    /// Blocks were asked for without a mapping from places to blocks.
    #[error("blocks need a mapping from places to blocks; give HierarchyOptions::blocks")]
    NoBlocks,
    /// There are no levels, or more than a hierarchy may have.
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

    fn passes(&self, profile: &Profile, sample_key: SampleKey) -> bool {
        let tasks = profile.tasks();
        let of_thread = || {
            let Some(id) = sample_key.thread else {
                return false;
            };
            let Some(thread) = tasks.threads().get(id as usize) else {
                return false;
            };
            let pid = || tasks.processes()[thread.process as usize].pid;
            let program = || {
                sample_key.image.is_some_and(|image| {
                    self.programs
                        .contains(&tasks.images()[image as usize].program)
                })
            };
            (self.threads.is_empty() || self.threads.contains(&id))
                && (self.tids.is_empty() || self.tids.contains(&thread.tid))
                && (self.comms.is_empty() || self.comms.contains(&tasks.comm_of(sample_key)))
                && (self.processes.is_empty() || self.processes.contains(&thread.process))
                && (self.pids.is_empty() || self.pids.contains(&pid()))
                && (self.programs.is_empty() || program())
        };
        let of_cpu = || {
            (self.cpus.is_empty()
                || sample_key
                    .cpu
                    .is_some_and(|cpu| self.cpus.iter().any(|range| range.contains(&cpu))))
                && (self.sockets.is_empty()
                    || sample_key
                        .cpu
                        .and_then(|cpu| profile.socket(cpu))
                        .is_some_and(|socket| self.sockets.contains(&socket)))
        };
        (!self.asks_for_threads() || of_thread()) && (!self.asks_for_cpus() || of_cpu())
    }
}

impl Profile {
    /// Returns the same profile with only the counts of the selected samples. Modules, frames, stacks and tasks are
    /// shared, so ids and [`crate::Names`] stay those of this profile. [`crate::EventProfile::unfiltered`] still counts
    /// all samples.
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
        let sample_keys: Vec<bool> = self
            .sample_keys
            .iter()
            .map(|sample_key| selection.passes(self, sample_key))
            .collect();
        let keep = |cell: Cell| {
            let on_stack = |stacks: &Vec<bool>| stacks.get(cell.place as usize).copied();
            sample_keys[cell.sample_key as usize]
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
            // The log holds the times of all samples, but not whether they were taken in the kernel.
            event.in_kernel = None;
            event.total = event.counts.total();
        }
        Ok(selected)
    }
}
