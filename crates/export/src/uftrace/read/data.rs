//! The records of a thread's file.
//!
//! Arguments, return values and the data of events follow their records. Their sizes stand in the recording's
//! specifications only, so the reader goes to the next record that fits the calls that are open.

use super::super::record::{DataRecord, RECORD_SIZE, RecordKind};

/// The largest distance in bytes from a record to the next one.
const MOST_PAYLOAD: usize = 1 << 16;
/// The largest size in bytes of a call's arguments.
const MOST_ARGUMENTS: usize = 2048;

/// A record with what was found in front of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DataItem {
    pub record: DataRecord,
    /// The number of bytes in front that are neither a record nor its payload.
    pub damaged: u64,
}

impl DataItem {
    /// Returns true if a call begins or ends.
    pub fn is_call(&self) -> bool {
        matches!(self.record.kind, RecordKind::Entry | RecordKind::Exit)
    }
}

/// A reader of records.
#[derive(Debug)]
pub(super) struct DataReader<'a> {
    bytes: &'a [u8],
    offset: usize,
    /// The kind of the last record, if a payload follows.
    payload_of: Option<RecordKind>,
}

impl<'a> DataReader<'a> {
    pub fn new(bytes: &'a [u8]) -> DataReader<'a> {
        DataReader {
            bytes,
            offset: 0,
            payload_of: None,
        }
    }

    fn at(&self, offset: usize) -> Option<DataRecord> {
        DataRecord::from_bytes(self.bytes.get(offset..)?)
    }

    /// Returns the next record. Behind payloads and damage it is the next one that `fits`.
    pub fn next_that(&mut self, fits: impl Fn(&DataRecord) -> bool) -> Option<DataItem> {
        let start = self.offset;
        let payload = self.payload_of.take();
        let mut damaged = 0;
        let found = match payload {
            None => self.at(start).map(|record| (start, record)),
            Some(RecordKind::Event) => {
                let length = self
                    .bytes
                    .get(start..)
                    .and_then(|rest| rest.first_chunk::<2>());
                let length = length.map_or(0, |length| usize::from(u16::from_le_bytes(*length)));
                let end = start + (2 + length).next_multiple_of(8);
                if end >= self.bytes.len() {
                    self.offset = end.min(self.bytes.len());
                }
                self.at(end).map(|record| (end, record))
            }
            Some(_) => self.search(start + 8, MOST_ARGUMENTS, &fits),
        };
        let found = found.or_else(|| {
            let from = match payload {
                None => start,
                Some(_) => start + 8,
            };
            let found = self.search(from, MOST_PAYLOAD, &fits);
            if let Some((offset, _)) = found {
                damaged = (offset - start) as u64;
            } else if payload.is_some() && self.bytes.len().saturating_sub(start) <= MOST_ARGUMENTS
            {
                // The last record's payload.
                self.offset = self.bytes.len();
            }
            found
        });
        let (offset, record) = found?;
        self.offset = offset + RECORD_SIZE;
        self.payload_of = record.has_payload.then_some(record.kind);
        Some(DataItem { record, damaged })
    }

    fn search(
        &self,
        from: usize,
        most: usize,
        fits: impl Fn(&DataRecord) -> bool,
    ) -> Option<(usize, DataRecord)> {
        let until = from.saturating_add(most).min(self.bytes.len());
        let mut offsets = (from..until).step_by(8);
        offsets.find_map(|offset| {
            let record = self.at(offset).filter(|record| fits(record))?;
            Some((offset, record))
        })
    }

    /// Returns the number of bytes that are left: at the end, of those that are no records.
    pub fn left(&self) -> u64 {
        (self.bytes.len() - self.offset.min(self.bytes.len())) as u64
    }
}

impl Iterator for DataReader<'_> {
    type Item = DataItem;

    fn next(&mut self) -> Option<DataItem> {
        self.next_that(|record| record.time > 0)
    }
}
