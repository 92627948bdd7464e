//! The profile of a recording that goes on.

use super::load::Loader;
use crate::loading::plan::LoadPlan;
use crate::profile::Profile;
use crate::stacks::unwinding::{Splitting, Unwinding};
use dioptra_perfdata::{FileRecord, PerfData, ReadSummary};

/// The sizes of a live profile's tables, which only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveSize {
    /// The number of distinct places.
    pub frames: usize,
    /// The number of distinct call stacks, and of the stacks that they begin with.
    pub stacks: usize,
    /// The number of threads, ended ones included.
    pub threads: usize,
    /// The number of pairs of a thread and a place with counts of their own, of all events.
    pub cells: usize,
}

/// The profile of a recording that goes on: it takes records as they come, and shows the profile so far.
///
/// Each record goes through the stages of [`Profile::load`]. Memory follows the number of distinct stacks, tasks and
/// modules, and with [`LoadPlan::log`] the number of samples that [`LiveProfile::forget_samples`] leaves.
pub struct LiveProfile<'a> {
    loader: Loader<'a>,
}

impl Profile {
    /// Lets `run` pass the records of a recording to a profile as they come. `data` describes the events.
    ///
    /// The threads that unwind copied stacks end with the call.
    pub fn follow<R>(
        data: &PerfData,
        plan: &LoadPlan,
        run: impl FnOnce(&mut LiveProfile<'_>) -> R,
    ) -> R {
        std::thread::scope(|scope| {
            let mut loader = Loader::new(data, plan, None);
            loader.learns_build_ids = true;
            if loader.copies_stacks() {
                let splitting = Splitting::for_this_machine();
                let unwinding = Unwinding::new(scope, data, plan.symbols.clone(), splitting);
                loader.unwinding = Some(Box::new(unwinding));
            }
            run(&mut LiveProfile { loader })
        })
    }
}

impl LiveProfile<'_> {
    /// Takes the next record. Records come in the order of time.
    pub fn record(&mut self, record: &FileRecord<'_>) {
        self.loader.record(record);
    }

    /// Returns the profile of the records so far, with the reader's summary of them. Later records do not change it.
    ///
    /// Branches, memory samples, context switches and mappings are not in it.
    pub fn snapshot(&mut self, summary: &ReadSummary) -> Profile {
        let mut profile = self.loader.snapshot();
        profile.losses.summary = summary.clone();
        profile
    }

    /// Forgets the times of samples that were taken before `elapsed` nanoseconds since the first sample, and of the oldest
    /// samples beyond `most` of each event. Counts keep all samples; only [`Profile::select`] with a time finds the others.
    ///
    /// Returns the number of samples that were forgotten because of `most`.
    pub fn forget_samples(&mut self, elapsed: u64, most: usize) -> u64 {
        let counters = &mut self.loader.counting.counters;
        counters.forget_samples(elapsed, most)
    }

    /// Nanoseconds of the recording's clock at its first sample; `None` before it.
    pub fn first_time(&self) -> Option<u64> {
        self.loader.identifier.first_time
    }

    /// Returns the sizes of the tables.
    pub fn size(&self) -> LiveSize {
        LiveSize {
            frames: self.loader.stacking.frames.len(),
            stacks: self.loader.stacking.stacks.len(),
            threads: self.loader.system.tasks.threads().len(),
            cells: self.loader.counting.counters.cells(),
        }
    }
}
