//! The layout of records, as an event's attr decides it.

use super::head::Prefix;
use super::{RawRecord, RecordType};
use crate::attr::{Attr, AttrFlags, ReadFormat, SampleType};
use crate::bytes::{ByteOrder, Cursor};

/// The layout of the records of one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordLayout {
    pub(super) order: ByteOrder,
    pub(super) sample_type: SampleType,
    pub(super) read_format: ReadFormat,
    pub(super) branch_sample_type: u64,
    pub(super) regs_user: u64,
    pub(super) regs_intr: u64,
    sample_id_all: bool,
    /// Bytes of the ids at the end of a record that is no sample.
    trailer: usize,
    /// The fields of one word each that samples begin with.
    pub(super) prefix: Prefix,
}

/// Fields of the ids that end every record but samples (`struct sample_id`), where `sample_id_all` was set.
const TRAILER: SampleType = SampleType::TID
    .union(SampleType::TIME)
    .union(SampleType::ID)
    .union(SampleType::STREAM_ID)
    .union(SampleType::CPU)
    .union(SampleType::IDENTIFIER);

/// Who, when and where: the ids at the end of a record. A field that the attr did not ask for is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleId {
    /// Process id.
    pub pid: Option<u32>,
    /// Thread id.
    pub tid: Option<u32>,
    /// Nanoseconds of the event's clock.
    pub time: Option<u64>,
    /// Event id.
    pub id: Option<u64>,
    /// Id of the event's clone.
    pub stream_id: Option<u64>,
    /// CPU number.
    pub cpu: Option<u32>,
}

impl RecordLayout {
    /// Prepares the layout of `attr`'s records in a recording of byte order `order`.
    pub fn new(attr: &Attr, order: ByteOrder) -> Self {
        let sample_id_all = attr.flags.contains(AttrFlags::SAMPLE_ID_ALL);
        let fields = attr.sample_type & TRAILER;
        RecordLayout {
            order,
            sample_type: attr.sample_type,
            read_format: attr.read_format,
            branch_sample_type: attr.branch_sample_type,
            regs_user: attr.sample_regs_user,
            regs_intr: attr.sample_regs_intr,
            sample_id_all,
            prefix: Prefix::new(attr.sample_type),
            trailer: if sample_id_all {
                8 * fields.bits().count_ones() as usize
            } else {
                0
            },
        }
    }

    /// Returns the byte order of the recording.
    pub fn order(&self) -> ByteOrder {
        self.order
    }

    /// Returns the fields of samples.
    pub fn sample_type(&self) -> SampleType {
        self.sample_type
    }

    /// Returns true if records that are no samples end with a [`SampleId`].
    pub fn sample_id_all(&self) -> bool {
        self.sample_id_all
    }

    /// Splits the ids off the end of a record's body. A body too short for them has none.
    pub(super) fn split_trailer<'a>(&self, body: &'a [u8]) -> (&'a [u8], SampleId) {
        let Some((fields, trailer)) = body.split_at_checked(body.len().wrapping_sub(self.trailer))
        else {
            return (body, SampleId::default());
        };
        (fields, self.trailer_ids(trailer).unwrap_or_default())
    }

    fn trailer_ids(&self, trailer: &[u8]) -> Option<SampleId> {
        let mut at = Cursor::new(trailer, self.order);
        let mut ids = SampleId::default();
        if !self.sample_id_all {
            return Some(ids);
        }
        if self.sample_type.contains(SampleType::TID) {
            ids.pid = Some(at.u32()?);
            ids.tid = Some(at.u32()?);
        }
        if self.sample_type.contains(SampleType::TIME) {
            ids.time = Some(at.u64()?);
        }
        if self.sample_type.contains(SampleType::ID) {
            ids.id = Some(at.u64()?);
        }
        if self.sample_type.contains(SampleType::STREAM_ID) {
            ids.stream_id = Some(at.u64()?);
        }
        if self.sample_type.contains(SampleType::CPU) {
            ids.cpu = Some(at.u32()?);
            at.u32()?;
        }
        if self.sample_type.contains(SampleType::IDENTIFIER) {
            ids.id = Some(at.u64()?);
        }
        Some(ids)
    }

    /// Returns the event id of a record, read without parsing the rest; `None` where the record holds none.
    ///
    /// Files with several events need it first, to know which layout the record has. It is found without a layout
    /// only when all events have `IDENTIFIER` or the same sample type, as `perf_event_open(2)` says.
    #[inline]
    pub fn event_id(&self, record: &RawRecord<'_>) -> Option<u64> {
        let offset = if record.kind == RecordType::SAMPLE {
            self.sample_id_offset()?
        } else {
            let from_end = self.trailer_id_distance()?;
            record.body.len().checked_sub(from_end)?
        };
        let bytes = record.body.get(offset..)?.first_chunk()?;
        Some(self.order.u64(*bytes))
    }

    /// Returns the offset of the event id in a sample's body, in bytes.
    #[inline]
    pub fn sample_id_offset(&self) -> Option<usize> {
        if self.sample_type.contains(SampleType::IDENTIFIER) {
            return Some(0);
        }
        let before = SampleType::IP | SampleType::TID | SampleType::TIME | SampleType::ADDR;
        self.sample_type
            .contains(SampleType::ID)
            .then(|| 8 * (self.sample_type & before).bits().count_ones() as usize)
    }

    /// Returns the offset of the event id before the end of a record that is no sample, in bytes.
    #[inline]
    pub fn trailer_id_distance(&self) -> Option<usize> {
        if !self.sample_id_all {
            return None;
        }
        if self.sample_type.contains(SampleType::IDENTIFIER) {
            return Some(8);
        }
        let from_id = SampleType::ID | SampleType::STREAM_ID | SampleType::CPU;
        self.sample_type
            .contains(SampleType::ID)
            .then(|| 8 * (self.sample_type & from_id).bits().count_ones() as usize)
    }

    /// Returns the thread of a record, read without parsing the rest; `None` where the record holds none.
    #[inline]
    pub fn thread(&self, record: &RawRecord<'_>) -> Option<u32> {
        if !self.sample_type.contains(SampleType::TID) {
            return None;
        }
        // Pid and tid share a word; the tid is its second half.
        let offset = if record.kind == RecordType::SAMPLE {
            let before = SampleType::IDENTIFIER | SampleType::IP;
            8 * (self.sample_type & before).bits().count_ones() as usize + 4
        } else {
            if !self.sample_id_all {
                return None;
            }
            record.body.len().checked_sub(self.trailer)? + 4
        };
        let bytes = record.body.get(offset..)?.first_chunk()?;
        Some(self.order.u32(*bytes))
    }

    /// Returns the period of a sample, read without parsing the rest; `None` where samples hold none.
    #[inline]
    pub fn period(&self, record: &RawRecord<'_>) -> Option<u64> {
        if !self.sample_type.contains(SampleType::PERIOD) {
            return None;
        }
        let before = TRAILER | SampleType::IP | SampleType::ADDR;
        let offset = 8 * (self.sample_type & before).bits().count_ones() as usize;
        let bytes = record.body.get(offset..)?.first_chunk()?;
        Some(self.order.u64(*bytes))
    }

    /// Returns the time of a record in nanoseconds, read without parsing the rest; `None` where the record holds none.
    #[inline]
    pub fn time(&self, record: &RawRecord<'_>) -> Option<u64> {
        if !self.sample_type.contains(SampleType::TIME) {
            return None;
        }
        let offset = if record.kind == RecordType::SAMPLE {
            let before = SampleType::IDENTIFIER | SampleType::IP | SampleType::TID;
            8 * (self.sample_type & before).bits().count_ones() as usize
        } else {
            if !self.sample_id_all {
                return None;
            }
            let after = TRAILER.difference(SampleType::TID);
            record
                .body
                .len()
                .checked_sub(8 * (self.sample_type & after).bits().count_ones() as usize)?
        };
        let bytes = record.body.get(offset..)?.first_chunk()?;
        Some(self.order.u64(*bytes))
    }
}
