//! Chunks: pieces of a stream that can be decoded by themselves.
//!
//! ```text
//! 0        HEADER_SIZE                       records_offset(open)
//! | header | u32 × open: ids of open calls, 0… | records           | 0… |
//!   64 B     outermost first, padded to 8 B      crate::record       padded to 8 B
//! ```
//!
//! The listed calls are those that were open when the chunk began. A deep stack lists only its innermost [`MAX_OPEN`]
//! calls; [`ChunkHeader::depth`] counts them all.
//!
//! A reader that has counted something else believes the header: where a signal handler has left the tracer's own
//! code by a jump, the entry or exit of one call may be missing in the chunk before.

use crate::VERSION;

/// The first bytes of a chunk.
pub const MAGIC: u32 = u32::from_le_bytes(*b"DTch");
/// The size of a header in bytes.
pub const HEADER_SIZE: usize = 64;
/// The largest number of open calls that a chunk lists.
pub const MAX_OPEN: usize = 1024;
/// The largest size in bytes of a chunk; larger ones are refused.
pub const MAX_CHUNK: usize = 1 << 24;

/// The first 64 bytes of a chunk, the same in memory and in files: little endian.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkHeader {
    /// [`MAGIC`]. A thread that begins a chunk writes it last.
    pub magic: u32,
    /// The number of bytes from this header to the next, a multiple of 8. 0 in shared memory while the chunk is being
    /// filled.
    pub size: u32,
    /// The number of the chunk's stream.
    pub stream: u32,
    /// The number of the chunk in its stream, from 0.
    pub sequence: u32,
    /// The process id, in the recorder's pid namespace where that is known.
    pub pid: u32,
    /// The thread id.
    pub tid: u32,
    /// The tick from which the first record's delta counts.
    pub base: u64,
    /// The number of records of this stream that are missing before this chunk; `u32::MAX` stands for that many or
    /// more.
    pub lost: u32,
    /// The time in ticks for which the thread waited for this chunk because memory was full. The wait ended at
    /// `base`. `u32::MAX` stands for that long or longer.
    pub waited: u32,
    /// The number of calls that were open at the chunk's beginning.
    pub depth: u32,
    /// The number of open calls that are listed behind the header, the innermost ones.
    pub open: u32,
    /// The stream that this one continues and whose open calls it inherits, in the first chunk of a forked child;
    /// else 0.
    pub parent: u32,
    /// [`VERSION`].
    pub version: u16,
    /// The number of low bits of the clock's readings that are cut off.
    pub shift: u8,
    /// Always 0.
    pub reserved: u8,
    /// The tick of the last record; 0 if the chunk was not closed because its thread or process was killed.
    pub last: u64,
}

const _: () = assert!(size_of::<ChunkHeader>() == HEADER_SIZE);

/// The reason why bytes are no chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChunkError {
    /// There are fewer bytes than the header says.
    CutOff,
    /// The bytes do not begin with [`MAGIC`].
    Magic,
    /// The chunk is of another version.
    Version(u16),
    /// The sizes contradict each other or exceed their limits.
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

/// A parsed chunk, borrowed from bytes.
#[derive(Clone, Copy, Debug)]
pub struct Chunk<'a> {
    /// The chunk's header.
    pub header: ChunkHeader,
    open: &'a [u8],
    /// The chunk's records and the zeroes behind them, for a [`Decoder`](crate::Decoder).
    pub records: &'a [u8],
}

impl<'a> Chunk<'a> {
    /// Parses the chunk with which `bytes` begins. The next chunk begins [`ChunkHeader::size`] bytes later.
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

    /// Parses a chunk whose records are cut off because the recorder was killed while it wrote.
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

    /// Returns the function ids of the innermost calls that were open at the start, the outermost first.
    pub fn open(
        &self,
    ) -> impl DoubleEndedIterator<Item = u32> + ExactSizeIterator + Clone + use<'a> {
        self.open
            .chunks_exact(4)
            .map(|id| id.try_into().map_or(0, u32::from_le_bytes))
    }
}

/// Returns the offset of the records in a chunk that lists `open` calls.
pub const fn records_offset(open: usize) -> usize {
    HEADER_SIZE + (open * 4).next_multiple_of(8)
}

impl ChunkHeader {
    /// Parses the header with which `bytes` begins, and checks that its sizes fit each other and their limits.
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

    /// Returns the header's bytes.
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
        // The struct in memory has the same bytes. SAFETY: the struct has 64 bytes without padding.
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
