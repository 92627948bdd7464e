//! Details of samples beside their places: branch stacks, and accessed memory.

use crate::branches::{BranchProfile, Branches, Owner};
use crate::loading::identify::SampledTask;
use crate::loading::plan::LoadPlan;
use crate::loading::system::System;
use crate::memory::{Accesses, MemoryProfile};
use crate::profile::Profile;
use crate::stacks::frames::{FrameId, Frames};
use dioptra_perfdata::PerfData;
use dioptra_perfrecords::record::{CpuMode, RawRecord, RecordError, RecordLayout};

/// The branches and memory samples of a profile, by event.
#[derive(Clone, Debug, Default)]
pub(crate) struct Details {
    pub branches: Vec<Option<Box<BranchProfile>>>,
    pub memory: Vec<Option<MemoryProfile>>,
    dropped: DroppedDetails,
}

/// The details that a profile lost when its samples were narrowed. Branch records and memory samples are kept as sums,
/// not by sample. To have them for a part of the samples, load the profile again with a filter
/// ([`crate::LoadPlan::filter`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DroppedDetails {
    /// Branch records: [`Profile::branches`] has none for any event.
    pub branches: bool,
    /// Memory samples: [`Profile::memory`] has none for any event.
    pub memory: bool,
}

impl Details {
    /// Returns details without branches and memory samples, for a selection that splits their sums.
    pub fn none_left(&self) -> Self {
        Details {
            dropped: DroppedDetails {
                memory: self.dropped.memory || self.memory.iter().any(Option::is_some),
                ..self.without_branches()
            },
            ..Details::default()
        }
    }

    /// Returns the details of the samples at some places. Memory samples are kept by place; branches are dropped.
    pub fn at(&self, keep: impl Fn(FrameId) -> bool) -> Self {
        let mut memory = self.memory.clone();
        memory
            .iter_mut()
            .flatten()
            .for_each(|one| one.retain(&keep));
        Details {
            branches: Vec::new(),
            memory,
            dropped: self.without_branches(),
        }
    }

    fn without_branches(&self) -> DroppedDetails {
        DroppedDetails {
            branches: self.dropped.branches || self.branches.iter().any(Option::is_some),
            ..self.dropped
        }
    }
}

impl Profile {
    /// Returns the details that narrowing the samples has dropped; nothing for a profile as it was loaded.
    pub fn dropped(&self) -> DroppedDetails {
        self.details.dropped
    }
}

/// The collectors of the details while a recording is read.
#[derive(Debug)]
pub(crate) struct Collectors {
    branches: Option<Branches>,
    memory: Option<Accesses>,
}

impl Collectors {
    /// Makes the collectors. `None` where nothing was asked for, or the recording holds no such details.
    pub fn new(data: &PerfData, plan: &LoadPlan) -> Option<Box<Self>> {
        let branches = plan.branches.then(|| Branches::new(data)).flatten();
        let memory = plan.memory.then(|| Accesses::new(data)).flatten();
        let any = branches.is_some() || memory.is_some();
        any.then(|| Box::new(Collectors { branches, memory }))
    }

    fn has(&self, event: usize) -> bool {
        self.branches.as_ref().is_some_and(|all| all.has(event))
            || self.memory.as_ref().is_some_and(|all| all.has(event))
    }

    /// Notes that records are missing.
    pub fn lost(&mut self) {
        if let Some(branches) = &mut self.branches {
            branches.lost();
        }
    }

    /// Adds the details of a sample.
    ///
    /// # Errors
    /// The sample could not be parsed.
    pub fn collect(
        &mut self,
        task: SampledTask,
        raw: &RawRecord<'_>,
        layout: &RecordLayout,
        (system, frames): (&mut System<'_>, &mut Frames),
    ) -> Result<(), RecordError> {
        let (event, process) = (task.event, task.process);
        if !self.has(event) {
            return Ok(());
        }
        let sample = layout.sample(raw)?;
        let owner = Owner {
            thread: task.thread,
            process,
            versions: (system.versions[process as usize], system.kernel_version),
        };
        let mut resolve = |mode, address, frames: &mut Frames| {
            frames.intern(system.locate(process, None, mode, address))
        };
        if let Some(memory) = &mut self.memory {
            let frame = resolve(raw.misc.cpu_mode(), sample.ip.unwrap_or(0), frames);
            memory.add(event, &sample, process, frame);
        }
        if let Some(branches) = &mut self.branches {
            branches.add(
                event,
                &sample,
                task.weight,
                owner,
                frames,
                |address, frames| resolve(mode_of(address), address, frames),
            );
        }
        Ok(())
    }

    pub fn finish(self) -> Details {
        Details {
            branches: self.branches.map(Branches::finish).unwrap_or_default(),
            memory: self.memory.map(Accesses::finish).unwrap_or_default(),
            dropped: DroppedDetails::default(),
        }
    }
}

/// Returns the mode of a branch address, which may differ from the sample's mode: kernels take the upper half.
fn mode_of(address: u64) -> CpuMode {
    if address >> 63 == 1 {
        CpuMode::Kernel
    } else {
        CpuMode::User
    }
}
