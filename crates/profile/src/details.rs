//! What samples tell besides where they lie: branch stacks, and the memory that was accessed.

use crate::branches::{BranchProfile, Branches, Owner};
use crate::load::Loader;
use crate::memory::{Accesses, MemoryProfile};
use crate::plan::LoadPlan;
use crate::settle::resolve;
use crate::tasks::{ProcessId, ThreadId};
use dioptra_perfdata::{FileRecord, PerfData};
use dioptra_perfevents::record::CpuMode;

/// What is kept of it, by event.
#[derive(Clone, Debug, Default)]
pub(crate) struct Details {
    pub branches: Vec<Option<Box<BranchProfile>>>,
    pub memory: Vec<Option<MemoryProfile>>,
}

/// The same while it is read.
#[derive(Debug)]
pub(crate) struct Collectors {
    branches: Option<Branches>,
    memory: Option<Accesses>,
}

impl Collectors {
    /// `None` where nothing was asked for, or the recording has nothing of it.
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

    /// Records are missing.
    pub fn lost(&mut self) {
        if let Some(branches) = &mut self.branches {
            branches.lost();
        }
    }

    pub fn finish(self) -> Details {
        Details {
            branches: self.branches.map(Branches::finish).unwrap_or_default(),
            memory: self.memory.map(Accesses::finish).unwrap_or_default(),
        }
    }
}

impl Loader<'_> {
    /// Adds what a sample tells that stands for `period` events.
    pub(crate) fn detail(
        &mut self,
        event: usize,
        record: &FileRecord<'_>,
        (process, thread): (ProcessId, ThreadId),
        period: u64,
    ) {
        let Some(collectors) = self.collectors.as_mut().filter(|all| all.has(event)) else {
            return;
        };
        let Ok(sample) = self.events[event].layout.sample(&record.raw) else {
            self.losses.malformed += 1;
            return;
        };
        let owner = Owner {
            thread,
            process,
            versions: (self.versions[process as usize], self.kernel_version),
        };
        let (kernel, space) = (&mut self.kernel, &mut self.spaces[process as usize]);
        let kernel_image = self.kernel_image;
        let mut resolve = |mode, address, frames: &mut _| {
            resolve(
                kernel,
                kernel_image,
                (&mut *space, None),
                frames,
                mode,
                address,
            )
        };
        if let Some(memory) = &mut collectors.memory {
            let mode = record.raw.misc.cpu_mode();
            let frame = resolve(mode, sample.ip.unwrap_or(0), &mut self.frames);
            memory.add(event, &sample, process, frame);
        }
        if let Some(branches) = &mut collectors.branches {
            let frames = &mut self.frames;
            branches.add(event, &sample, period, owner, frames, |address, frames| {
                resolve(mode_of(address), address, frames)
            });
        }
    }
}

/// Where an address of a branch lies, which may be elsewhere than the sample: kernels take the upper half.
fn mode_of(address: u64) -> CpuMode {
    if address >> 63 == 1 {
        CpuMode::Kernel
    } else {
        CpuMode::User
    }
}
