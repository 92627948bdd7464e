//! What is missing from the counts.

use crate::stacks::unwinding::UnwindCounts;
use dioptra_perfdata::ReadSummary;
use dioptra_perfevents::Unsampled;
use dioptra_symbols::Note;

/// What was lost, damaged or could not be told, all counted.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Losses {
    /// What the reader of the file tells: record counts, lost records, throttling, damage.
    pub summary: ReadSummary,
    /// Events that the recorder counted in threads too short to be sampled.
    pub unsampled: Vec<Unsampled>,
    /// Samples whose event is not known and that are in no count.
    pub unknown_event: u64,
    /// Samples of unknown events that were counted for the only event that samples.
    pub adopted: u64,
    /// Records too short for what their event says they hold.
    pub malformed: u64,
    /// Samples outside of all mappings that are known.
    pub unmapped: u64,
    /// Call chains with marks that do not exist; their samples count without callers.
    pub bad_chains: u64,
    /// Samples whose call chains led through a function tracer's thunks to the callers behind them. The thunks are left out:
    /// chains are as they would be without the tracer.
    pub through_thunks: u64,
    /// How the callers of samples with a copy of the user's stack were found, where call stacks were loaded.
    pub unwinding: UnwindCounts,
    /// What the unwinder told of modules: files that are not there or are other builds.
    pub unwinding_notes: Vec<Note>,
    /// Processes whose mappings were given up because a hostile file asked for too many copies.
    pub spaces_not_copied: u64,
    /// jitdump files whose times could not be compared with the recording's, so that of code which replaced other code
    /// only the last is known.
    pub jit_dumps_without_times: u64,
    /// jitdump files that were not read because a hostile recording names too many.
    pub jit_dumps_refused: u64,
}
