//! Chunks: pieces of a stream that can be decoded by themselves.
//!
//! A chunk is a header of 64 bytes, the ids of calls that were open when it began (u32 each, the outermost first), zeroes
//! up to a multiple of 8 bytes, records, and zeroes up to a multiple of 8 bytes. Of very deep stacks only the innermost
//! [`MAX_OPEN`] calls are listed; [`ChunkHeader::depth`] counts them all.
//!
//! What a header says of open calls is true, whatever a reader has counted: where a signal handler has left the tracer's
//! own code by a jump, one call's entry or exit may be missing in the chunk before.

use crate::VERSION;

/// The first bytes of a chunk.
pub const MAGIC: u32 = u32::from_le_bytes(*b"DTch");
/// The size of a header in bytes.
pub const HEADER_SIZE: usize = 64;
/// The most open calls that a chunk lists.
pub const MAX_OPEN: usize = 1024;
/// Chunks larger than this are refused.
pub const MAX_CHUNK: usize = 1 << 24;

/// What a chunk's first 64 bytes say. In memory as in files, little endian.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkHeader {
    /// [`MAGIC`]. Written last when a chunk is begun.
    pub magic: u32,
    /// Bytes from this header to the next, a multiple of 8. 0 in shared memory while the chunk is being filled.
    pub size: u32,
    /// The stream that it belongs to.
    pub stream: u32,
    /// Its number in the stream, from 0.
    pub sequence: u32,
    /// The process, as it is called in the recorder's pid namespace where that is known.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The tick from which the first record's delta counts.
    pub base: u64,
    /// The number of records of this stream that are missing between the chunk before and this one; `u32::MAX`: or more.
    pub lost: u32,
    /// The time in ticks, up to `base`, for which the thread waited for this chunk since memory was full; `u32::MAX`: or
    /// longer.
    pub waited: u32,
    /// How many calls were open.
    pub depth: u32,
    /// How many of them are listed behind the header: the innermost.
    pub open: u32,
    /// For the first chunk of a forked child: the stream that it continues, of which it inherits open calls. Else 0.
    pub parent: u32,
    /// [`VERSION`].
    pub version: u16,
    /// How many bits of the clock's readings are cut off.
    pub shift: u8,
    /// Always 0.
    pub reserved: u8,
    /// The tick of the last record; 0 if the chunk was not closed (its thread or process was killed).
    pub last: u64,
}

const _: () = assert!(size_of::<ChunkHeader>() == HEADER_SIZE);

/// Why bytes are no chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChunkError {
    /// Fewer bytes than the chunk has.
    CutOff,
    /// The first bytes are no chunk's.
    Magic,
    /// Of another version.
    Version(u16),
    /// Sizes that contradict each other.
    Size,
}

impl core::fmt::Display for ChunkError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            ChunkError::CutOff => f.write_str("a chunk that is cut off"),
            ChunkError::Magic => f.write_str("bytes that are no chunk"),
            ChunkError::Version(version) => {
                write!(f, "a chunk of version {version}, this reads {VERSION}")
            }
            ChunkError::Size => f.write_str("a chunk whose sizes contradict each other"),
        }
    }
}

impl core::error::Error for ChunkError {}

/// A chunk in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Chunk<'a> {
    /// Its header.
    pub header: ChunkHeader,
    open: &'a [u8],
    /// Its records, with the zeroes behind them; for a [`Decoder`](crate::Decoder).
    pub records: &'a [u8],
}

impl<'a> Chunk<'a> {
    /// The chunk with which `bytes` begins; [`ChunkHeader::size`] says where the next one does.
    ///
    /// # Errors
    /// [`ChunkError`]
    pub fn parse(bytes: &'a [u8]) -> Result<Chunk<'a>, ChunkError> {
        let header = ChunkHeader::from_bytes(bytes)?;
        if bytes.len() < header.size as usize {
            return Err(ChunkError::CutOff);
        }
        Self::parse_cut_off(bytes)
    }

    /// What is there of a chunk that is cut off behind its listed calls: its recorder was killed while it wrote.
    ///
    /// # Errors
    /// [`ChunkError`]
    pub fn parse_cut_off(bytes: &'a [u8]) -> Result<Chunk<'a>, ChunkError> {
        let header = ChunkHeader::from_bytes(bytes)?;
        let size = bytes.len().min(header.size as usize);
        let records = records_offset(header.open as usize);
        let open = bytes.get(HEADER_SIZE..HEADER_SIZE + header.open as usize * 4);
        Ok(Chunk {
            header,
            open: open.ok_or(ChunkError::CutOff)?,
            records: bytes.get(records..size).ok_or(ChunkError::CutOff)?,
        })
    }

    /// The function ids of the innermost calls that were open at the start, the outermost first.
    pub fn open(
        &self,
    ) -> impl DoubleEndedIterator<Item = u32> + ExactSizeIterator + Clone + use<'a> {
        self.open
            .chunks_exact(4)
            .map(|id| id.try_into().map_or(0, u32::from_le_bytes))
    }
}

/// Where the records of a chunk with that many listed calls begin.
pub const fn records_offset(open: usize) -> usize {
    HEADER_SIZE + (open * 4).next_multiple_of(8)
}

impl ChunkHeader {
    /// The header with which `bytes` begins, checked: sizes fit each other, and are not large.
    ///
    /// # Errors
    /// [`ChunkError`]
    pub fn from_bytes(bytes: &[u8]) -> Result<ChunkHeader, ChunkError> {
        let bytes: &[u8; HEADER_SIZE] = bytes
            .get(..HEADER_SIZE)
            .and_then(|bytes| bytes.try_into().ok())
            .ok_or(ChunkError::CutOff)?;
        let u32_at = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        let header = ChunkHeader {
            magic: u32_at(0),
            size: u32_at(4),
            stream: u32_at(8),
            sequence: u32_at(12),
            pid: u32_at(16),
            tid: u32_at(20),
            base: u64_at(24),
            lost: u32_at(32),
            waited: u32_at(36),
            depth: u32_at(40),
            open: u32_at(44),
            parent: u32_at(48),
            version: u16::from_le_bytes([bytes[52], bytes[53]]),
            shift: bytes[54],
            reserved: bytes[55],
            last: u64_at(56),
        };
        if header.magic != MAGIC {
            return Err(ChunkError::Magic);
        }
        if header.version != VERSION {
            return Err(ChunkError::Version(header.version));
        }
        let size = header.size as usize;
        let open = header.open as usize;
        let fits = size.is_multiple_of(8)
            && size <= MAX_CHUNK
            && open <= MAX_OPEN
            && header.open <= header.depth
            && records_offset(open) <= size
            && header.shift < 32;
        if !fits {
            return Err(ChunkError::Size);
        }
        Ok(header)
    }

    /// The header's bytes.
    pub fn to_bytes(&self) -> [u8; HEADER_SIZE] {
        let mut bytes = [0; HEADER_SIZE];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &self.magic.to_le_bytes());
        put(4, &self.size.to_le_bytes());
        put(8, &self.stream.to_le_bytes());
        put(12, &self.sequence.to_le_bytes());
        put(16, &self.pid.to_le_bytes());
        put(20, &self.tid.to_le_bytes());
        put(24, &self.base.to_le_bytes());
        put(32, &self.lost.to_le_bytes());
        put(36, &self.waited.to_le_bytes());
        put(40, &self.depth.to_le_bytes());
        put(44, &self.open.to_le_bytes());
        put(48, &self.parent.to_le_bytes());
        put(52, &self.version.to_le_bytes());
        put(54, &[self.shift, self.reserved]);
        put(56, &self.last.to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn header() -> ChunkHeader {
        ChunkHeader {
            magic: MAGIC,
            size: 64 + 16 + 8,
            stream: 3,
            sequence: 4,
            pid: 5,
            tid: 6,
            base: 7 << 40,
            lost: 8 << 20,
            waited: 12 << 20,
            depth: 9,
            open: 3,
            parent: 10,
            version: VERSION,
            shift: 2,
            reserved: 0,
            last: 11 << 40,
        }
    }

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let header = header();
        let mut bytes = Vec::from(header.to_bytes());
        assert_eq!(ChunkHeader::from_bytes(&bytes), Ok(header));
        // In memory it looks the same.
        // SAFETY: the struct has 64 bytes without padding.
        let memory: [u8; 64] = unsafe { core::mem::transmute(header) };
        assert_eq!(memory, header.to_bytes());
        for id in [1_u32, 2, 3, 0] {
            bytes.extend(id.to_le_bytes());
        }
        bytes.extend([1, 0, 1, 0, 0, 0, 0, 0]);
        let chunk = Chunk::parse(&bytes).unwrap();
        assert_eq!(chunk.open().collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(crate::Decoder::new(chunk.records, 0).count(), 2);
        assert_eq!(Chunk::parse(&bytes[..80]).unwrap_err(), ChunkError::CutOff);
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed(mut bytes: Vec<u8>, keep in 0..64_usize, header_first: bool) {
            if header_first {
                let known = header().to_bytes();
                for (place, byte) in bytes.iter_mut().zip(known).take(keep) {
                    *place = byte;
                }
            }
            if let Ok(chunk) = Chunk::parse(&bytes) {
                prop_assert!(chunk.header.size as usize <= bytes.len());
                let _ = crate::Decoder::new(chunk.records, chunk.header.base).count();
            }
        }
    }
}
