//! Context switches of the traced threads: the file `switches`.
//!
//! ```text
//! | header, 16 B | switch, 16 B | … (count) | header | switch | …
//!   magic, count, pid, tid     time u64, CPU u32, kind u8, 0 0 0
//! ```
//!
//! The file is a row of blocks, each with switches of one thread: a [header](BlockHeader) and its
//! [switches](ContextSwitch), all little endian. Blocks of one thread are in the order of time. A block that is cut
//! off is the file's end.

/// The first four bytes of a block.
pub const BLOCK_MAGIC: u32 = u32::from_le_bytes(*b"dsch");
/// The size of a block's header in bytes.
pub const BLOCK_HEADER_SIZE: usize = 16;
/// The size of a switch in bytes.
pub const SWITCH_SIZE: usize = 16;
/// The largest number of switches in a block.
pub const MAX_SWITCHES: usize = 1 << 16;

/// The header of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// The number of switches that follow.
    pub count: u32,
    /// The process id.
    pub pid: u32,
    /// The thread id.
    pub tid: u32,
}

impl BlockHeader {
    /// Returns the header's bytes: [`BLOCK_MAGIC`], count, pid, tid.
    pub fn to_bytes(&self) -> [u8; BLOCK_HEADER_SIZE] {
        let mut bytes = [0; BLOCK_HEADER_SIZE];
        let words = [BLOCK_MAGIC, self.count, self.pid, self.tid];
        for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Returns the header with which `bytes` begins; `None` if the bytes are no header.
    pub fn from_bytes(bytes: &[u8]) -> Option<BlockHeader> {
        let bytes: &[u8; BLOCK_HEADER_SIZE] = bytes.first_chunk()?;
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let header = BlockHeader {
            count: word(4),
            pid: word(8),
            tid: word(12),
        };
        (word(0) == BLOCK_MAGIC && header.count as usize <= MAX_SWITCHES).then_some(header)
    }

    /// Returns the size of the whole block in bytes.
    pub fn block_size(&self) -> usize {
        BLOCK_HEADER_SIZE + self.count as usize * SWITCH_SIZE
    }
}

/// The change that a context switch makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SwitchKind {
    /// The thread leaves the CPU because it waits for something.
    Wait = 1,
    /// The thread leaves the CPU though it could go on.
    Preempted = 2,
    /// The thread gets a CPU.
    In = 3,
}

/// A context switch: a thread leaves a CPU or gets one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextSwitch {
    /// The time, `CLOCK_MONOTONIC` in nanoseconds.
    pub time: u64,
    /// The number of the CPU.
    pub cpu: u32,
    /// The change.
    pub kind: SwitchKind,
}

impl ContextSwitch {
    /// Returns the switch's bytes: time (8), CPU (4), kind (1), three zeroes.
    pub fn to_bytes(&self) -> [u8; SWITCH_SIZE] {
        let mut bytes = [0; SWITCH_SIZE];
        bytes[..8].copy_from_slice(&self.time.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.cpu.to_le_bytes());
        bytes[12] = self.kind as u8;
        bytes
    }

    /// Returns the switch in these bytes; `None` if its kind is not known.
    pub fn from_bytes(bytes: &[u8; SWITCH_SIZE]) -> Option<ContextSwitch> {
        let [t0, t1, t2, t3, t4, t5, t6, t7, c0, c1, c2, c3, kind, ..] = *bytes;
        Some(ContextSwitch {
            time: u64::from_le_bytes([t0, t1, t2, t3, t4, t5, t6, t7]),
            cpu: u32::from_le_bytes([c0, c1, c2, c3]),
            kind: match kind {
                1 => SwitchKind::Wait,
                2 => SwitchKind::Preempted,
                3 => SwitchKind::In,
                _ => return None,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_read_as_they_were_written() {
        let header = BlockHeader {
            count: 3,
            pid: 4,
            tid: 5,
        };
        assert_eq!(BlockHeader::from_bytes(&header.to_bytes()), Some(header));
        assert_eq!(header.block_size(), 64);
        let many = BlockHeader {
            count: MAX_SWITCHES as u32 + 1,
            ..header
        };
        assert_eq!(BlockHeader::from_bytes(&many.to_bytes()), None);
        assert_eq!(BlockHeader::from_bytes(&header.to_bytes()[..15]), None);
        for kind in [SwitchKind::Wait, SwitchKind::Preempted, SwitchKind::In] {
            let switch = ContextSwitch {
                time: 7 << 40 | 1,
                cpu: 300,
                kind,
            };
            assert_eq!(ContextSwitch::from_bytes(&switch.to_bytes()), Some(switch));
        }
        assert_eq!(ContextSwitch::from_bytes(&[0; SWITCH_SIZE]), None);
    }
}
