//! The ids of samples, where the kernel wrote those of another profiler's event (trap T9): readers could not tell their
//! layout, and perf gives up at the first such sample. The ids of the counts are always right.

use crate::SampleType;
use crate::record::{HEADER_SIZE, RawRecord, RecordLayout};

/// The id that a sample should have, its leader's, where it has one of none of the events it counts.
pub(super) fn own_id(layout: &RecordLayout, record: &RawRecord<'_>) -> Option<u64> {
    if !layout.sample_type().contains(SampleType::IDENTIFIER) {
        return None;
    }
    let sample = layout.sample(record).ok()?;
    let read = sample.read?;
    let is_known = read.iter().any(|value| value.id == sample.id);
    let leader = read.get(0)?.id?;
    (!is_known).then_some(leader)
}

/// Gives a sample, the whole record, an id.
pub(crate) fn set_id(id: u64, record: &mut [u8]) {
    if let Some(identifier) = record.get_mut(HEADER_SIZE..HEADER_SIZE + 8) {
        identifier.copy_from_slice(&id.to_ne_bytes());
    }
}
