//! The plan of a load: the data to read of a recording, and the samples to count.

use crate::loading::load::LoadOptions;
use crate::loading::progress::LoadProgress;
use crate::processes::tasks::{Tasks, ThreadId};
use dioptra_symbols::SymbolOptions;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// A plan for reading a recording: the data to keep, the samples that count, and the places of the modules.
#[derive(Clone, Debug, Default)]
pub struct LoadPlan {
    /// The parts of the recording to keep.
    pub options: LoadOptions,
    /// Keep counts apart by CPU; together with [`LoadOptions::threads`] by thread and CPU.
    pub cpus: bool,
    /// Keep every sample with its time, so that [`crate::Profile::select`] can count any range of time: 8 bytes a
    /// sample, 12 where their weights differ.
    pub log: bool,
    /// Keep the modules that each process had mapped, with their times; see [`crate::Profile::mappings`].
    pub mappings: bool,
    /// Keep the sums that the statistical errors of counts need where the samples' weights differ; see
    /// [`crate::EventProfile::total_estimate`].
    pub errors: bool,
    /// Keep context switches, where the recording states them; see [`crate::Profile::gaps`]: 16 bytes for each time that a
    /// thread was off the CPU.
    pub switches: bool,
    /// Add up branch stacks (LBR); see [`crate::Profile::branches`].
    pub branches: bool,
    /// Add up memory samples; see [`crate::Profile::memory`].
    pub memory: bool,
    /// Events that were not recorded to show where time went, as indices of [`crate::Profile::events`]: tables leave
    /// their samples out unless there are no others.
    pub set_aside: Vec<usize>,
    /// The place where kernel samples count.
    pub kernel: KernelSamples,
    /// The samples that count.
    pub filter: SampleFilter,
    /// The places of the modules whose tables unwind copies of user stacks.
    pub symbols: SymbolOptions,
    /// The progress of the reading, which other threads watch and may cancel. `None` if nobody does.
    pub progress: Option<Arc<LoadProgress>>,
}

/// The place where samples count that were taken in the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KernelSamples {
    /// At the kernel's code.
    #[default]
    Apart,
    /// Samples of events that are set aside ([`LoadPlan::set_aside`]) count at the user code that entered the kernel,
    /// where they state it. All other samples count at the kernel's code.
    WithCallerOfSetAside,
    /// At the user code that entered the kernel, where samples state it. [`crate::Profile::in_kernel`] has the counts
    /// of these samples.
    WithCaller,
}

impl From<LoadOptions> for LoadPlan {
    fn from(options: LoadOptions) -> Self {
        LoadPlan {
            options,
            ..LoadPlan::default()
        }
    }
}

/// A filter of samples. An empty list lets all samples pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SampleFilter {
    /// Names that the thread had when it was sampled.
    pub comms: Vec<String>,
    /// Numbers of threads.
    pub tids: Vec<u32>,
    /// CPUs. Samples without a CPU do not pass.
    pub cpus: Vec<RangeInclusive<u32>>,
    /// Nanoseconds since the recording's first sample: the start, which is included, and the end, which is not. Samples
    /// without a time do not pass unless both are `None`.
    pub time: (Option<u64>, Option<u64>),
}

impl SampleFilter {
    /// Returns whether every sample passes.
    pub fn is_empty(&self) -> bool {
        *self == SampleFilter::default()
    }

    /// Returns whether a sample passes that was taken `elapsed` nanoseconds after the first one.
    pub(crate) fn passes(
        &self,
        tasks: &Tasks,
        thread: ThreadId,
        cpu: Option<u32>,
        elapsed: Option<u64>,
    ) -> bool {
        let of_task = || {
            let known = tasks.threads().get(thread as usize);
            (self.tids.is_empty() || known.is_some_and(|known| self.tids.contains(&known.tid)))
                && (self.comms.is_empty() || self.comms.contains(&tasks.thread_name(thread)))
        };
        let of_cpu = || {
            self.cpus.is_empty()
                || cpu.is_some_and(|cpu| self.cpus.iter().any(|range| range.contains(&cpu)))
        };
        let in_time = || match (self.time, elapsed) {
            ((None, None), _) => true,
            (_, None) => false,
            ((from, to), Some(elapsed)) => {
                from.is_none_or(|from| from <= elapsed) && to.is_none_or(|to| elapsed < to)
            }
        };
        in_time() && of_cpu() && of_task()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_condition_must_hold() {
        let mut tasks = Tasks::default();
        let thread = tasks.thread(10, 11);
        tasks.rename(thread, b"worker");
        let filter = SampleFilter {
            comms: vec!["other".into(), "worker".into()],
            tids: vec![11],
            cpus: vec![0..=0, 2..=5],
            time: (Some(100), Some(200)),
        };
        let passes = |cpu, elapsed| filter.passes(&tasks, thread, cpu, elapsed);
        assert!(passes(Some(3), Some(100)));
        assert!(!passes(Some(3), Some(200)), "the end is not within");
        assert!(!passes(Some(3), Some(99)));
        assert!(!passes(Some(1), Some(150)));
        assert!(!passes(None, Some(150)));
        assert!(!passes(Some(3), None));
        let stranger = tasks.thread(12, 12);
        assert!(!filter.passes(&tasks, stranger, Some(3), Some(150)));
        assert!(SampleFilter::default().passes(&tasks, stranger, None, None));
    }
}
