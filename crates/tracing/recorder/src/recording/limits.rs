//! Notes about processes of which only a part was recorded.

use super::notes::{PartLimit, TraceNote};
use dioptra_tracelayout::arena::{Arena, Processes};

/// Returns the notes about processes of which only a part could be recorded.
pub fn limits(arena: &Arena) -> Vec<TraceNote> {
    let counted = [
        (&arena.confined, PartLimit::Confined),
        (&arena.alone, PartLimit::Alone),
        (&arena.preempted, PartLimit::Preempted),
        (&arena.sharing, PartLimit::Sharing),
    ];
    let note = |(processes, limit): (&Processes, PartLimit)| {
        let (pid, others) = processes.get()?;
        Some(TraceNote::Partly { pid, others, limit })
    };
    counted.into_iter().filter_map(note).collect()
}
