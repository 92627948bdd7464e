//! What is missing from the counts.

use dioptra_perfdata::ReadSummary;

/// What was lost, damaged or could not be told, all counted.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Losses {
    /// What the reader of the file tells: record counts, lost records, throttling, damage.
    pub summary: ReadSummary,
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
    /// Samples with a copy of the user's stack, from which the callers were not found.
    pub stacks_not_unwound: u64,
    /// Processes whose mappings were given up because a hostile file asked for too many copies.
    pub spaces_not_copied: u64,
}
