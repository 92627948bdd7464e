//! The results of reading a recording: counts of every record type, losses, damage.

use crate::error::{DAMAGE_LIMIT, Damage, note};
use dioptra_perfrecords::record::RecordType;
use std::collections::BTreeMap;

/// Types below this are counted in an array.
const COMMON_TYPES: usize = 96;

/// The number of records of each type.
#[derive(Clone, PartialEq, Eq)]
pub struct RecordCounts {
    common: [u64; COMMON_TYPES],
    others: BTreeMap<RecordType, u64>,
}

impl Default for RecordCounts {
    fn default() -> Self {
        RecordCounts {
            common: [0; COMMON_TYPES],
            others: BTreeMap::new(),
        }
    }
}

impl RecordCounts {
    /// Counts one record.
    #[inline]
    pub fn add(&mut self, kind: RecordType) {
        match self.common.get_mut(kind.0 as usize) {
            Some(count) => *count += 1,
            None => *self.others.entry(kind).or_default() += 1,
        }
    }

    /// Returns the number of records of `kind`.
    pub fn get(&self, kind: RecordType) -> u64 {
        match self.common.get(kind.0 as usize) {
            Some(count) => *count,
            None => self.others.get(&kind).copied().unwrap_or(0),
        }
    }

    /// The types that there are, lowest number first, with how many records each has.
    pub fn iter(&self) -> impl Iterator<Item = (RecordType, u64)> + '_ {
        let common = (0_u32..).zip(self.common);
        common
            .map(|(kind, count)| (RecordType(kind), count))
            .chain(self.others.iter().map(|(kind, count)| (*kind, *count)))
            .filter(|(_, count)| *count != 0)
    }

    /// All records.
    pub fn total(&self) -> u64 {
        self.iter().map(|(_, count)| count).sum()
    }
}

impl std::fmt::Debug for RecordCounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// The results of reading a recording. Every loss is counted: each figure here belongs into an output's facts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadSummary {
    /// Records of every type, those inside compressed ones as well as the compressed ones themselves.
    pub records: RecordCounts,
    /// Records of each event, in the order of [`crate::PerfData::events`]: samples only.
    pub samples: Vec<u64>,
    /// Records that LOST records say were lost.
    pub lost: u64,
    /// Samples that LOST_SAMPLES records say were lost.
    pub lost_samples: u64,
    /// The number of times that an event was throttled.
    pub throttled: u64,
    /// Samples whose id belongs to no event; they are passed on with `event: None`.
    pub unknown_ids: u64,
    /// Records of types that this crate does not know (passed on all the same), and compressed ones that could not be
    /// unpacked.
    pub skipped: u64,
    /// Bytes that are no records, among the records; [`ReadSummary::damaged`] has the offset of each.
    pub skipped_bytes: u64,
    /// Bytes behind the last record that are messages of the recorder, for people.
    pub message_bytes: u64,
    /// Records that came too late to be put into the order of time.
    pub out_of_order: u64,
    /// The damages, at most [`DAMAGE_LIMIT`] entries.
    pub damaged: Vec<Damage>,
    /// The number of damages.
    pub damages: u64,
    /// The offset in the file where reading stopped before the end of the data.
    pub stopped_at: Option<u64>,
    /// The recorder did not finish the file, or its end is missing or unreadable: this is what could be read.
    pub salvaged: bool,
}

const _: () = assert!(DAMAGE_LIMIT > 0);

impl ReadSummary {
    pub(crate) fn damage(&mut self, offset: u64, why: impl Into<String>) {
        self.damages += 1;
        note(&mut self.damaged, offset, why);
    }
}
