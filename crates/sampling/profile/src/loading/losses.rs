//! Losses and damage that make the counts incomplete.

use crate::loading::waits::OffCpu;
use crate::stacks::unwinding::UnwindCounts;
use dioptra_perfdata::ReadSummary;
use dioptra_perfevents::Unsampled;
use dioptra_symbols::Note;

/// Counts of everything that was lost, damaged or could not be resolved.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Losses {
    /// The reader's summary of the file: record counts, lost records, throttling, damage.
    pub summary: ReadSummary,
    /// Events that the recorder counted in threads too short to be sampled.
    pub unsampled: Vec<Unsampled>,
    /// Samples of unknown events, which are in no count.
    pub unknown_event: u64,
    /// Samples of unknown events that were counted for the only event that samples.
    pub adopted: u64,
    /// Records that are too short for the fields that their event announces.
    pub malformed: u64,
    /// Samples outside of all known mappings.
    pub unmapped: u64,
    /// Call chains with unknown marks; their samples count without callers.
    pub bad_chains: u64,
    /// Samples whose call chains led through a function tracer's thunks to the callers behind them. The thunks are left
    /// out, so that the chains look as they would without the tracer.
    pub through_thunks: u64,
    /// The outcomes of unwinding copies of user stacks, where call stacks were loaded.
    pub unwinding: UnwindCounts,
    /// The unwinder's notes about modules, such as missing files or files of other builds.
    pub unwinding_notes: Vec<Note>,
    /// Processes whose mappings were given up because a hostile file asked for too many copies.
    pub spaces_not_copied: u64,
    /// Switches of the off-CPU event that are in no count, and waits that the recording does not show whole.
    pub off_cpu: OffCpu,
    /// jitdump files whose times could not be compared with the recording's. Where code replaced other code, only the
    /// last code is known.
    pub jit_dumps_without_times: u64,
    /// jitdump files that were not read because a hostile recording names too many.
    pub jit_dumps_refused: u64,
}
