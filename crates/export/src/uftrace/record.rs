//! Records of a thread's calls: two little-endian words of 8 bytes.
//!
//! ```text
//! word 0   time in nanoseconds; 0 in records of losses
//! word 1   bits 0-1 kind, 2 a payload follows, 3-5 the number 5, 6-15 depth, 16-63 address or number
//! ```

/// The size of a record in bytes.
pub(super) const RECORD_SIZE: usize = 16;
/// The number of depths that a record can state: from 0 up to this.
pub(super) const DEPTHS: usize = 1 << 10;
/// The largest address or number of a record.
pub(super) const MAX_ADDRESS: u64 = (1 << 48) - 1;

const MARK: u64 = 5;

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordKind {
    /// A call begins.
    Entry,
    /// A call ends.
    Exit,
    /// Records are missing; the address is their number.
    Lost,
    /// An event; the address is its number.
    Event,
}

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DataRecord {
    /// The time, in nanoseconds of the recording's clock.
    pub time: u64,
    /// The kind.
    pub kind: RecordKind,
    /// True if arguments, a return value or an event's data follow.
    pub has_payload: bool,
    /// The number of open calls around the call.
    pub depth: u16,
    /// The address of the function, or the number of an event or of missing records.
    pub address: u64,
}

impl DataRecord {
    /// Returns the record with which `bytes` begins; `None` if it has not the mark of one.
    pub fn from_bytes(bytes: &[u8]) -> Option<DataRecord> {
        let (time, rest) = bytes.split_first_chunk::<8>()?;
        let word = u64::from_le_bytes(*rest.first_chunk::<8>()?);
        if word >> 3 & 7 != MARK {
            return None;
        }
        Some(DataRecord {
            time: u64::from_le_bytes(*time),
            kind: match word & 3 {
                0 => RecordKind::Entry,
                1 => RecordKind::Exit,
                2 => RecordKind::Lost,
                _ => RecordKind::Event,
            },
            has_payload: word & 4 != 0,
            depth: (word >> 6) as u16 % DEPTHS as u16,
            address: word >> 16,
        })
    }

    /// Returns the record's bytes. Depth and address are cut to their bits.
    pub fn to_bytes(self) -> [u8; RECORD_SIZE] {
        let kind = match self.kind {
            RecordKind::Entry => 0,
            RecordKind::Exit => 1,
            RecordKind::Lost => 2,
            RecordKind::Event => 3,
        };
        let depth = u64::from(self.depth) % DEPTHS as u64;
        let word = kind
            | u64::from(self.has_payload) << 2
            | MARK << 3
            | depth << 6
            | (self.address & MAX_ADDRESS) << 16;
        let mut bytes = [0; RECORD_SIZE];
        bytes[..8].copy_from_slice(&self.time.to_le_bytes());
        bytes[8..].copy_from_slice(&word.to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_the_bytes_that_uftrace_writes() {
        // From a recording of uftrace 0.13, which it dumps as
        // `14283.992567304  29414: [entry] a(5633baa24235) depth: 1`.
        let bytes = [
            0x08, 0x8e, 0x4d, 0xc0, 0xfd, 0x0c, 0, 0, 0x68, 0x00, 0x35, 0x42, 0xa2, 0xba, 0x33,
            0x56,
        ];
        let record = DataRecord {
            time: 14_283_992_567_304,
            kind: RecordKind::Entry,
            has_payload: false,
            depth: 1,
            address: 0x5633_baa2_4235,
        };
        assert_eq!(record.to_bytes(), bytes);
        assert_eq!(DataRecord::from_bytes(&bytes), Some(record));
        assert_eq!(DataRecord::from_bytes(&bytes[..15]), None);
    }
}
