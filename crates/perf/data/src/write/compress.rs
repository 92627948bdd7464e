//! Records collected and compressed: one zstd stream, cut into COMPRESSED records.

use crate::error::WriteError;
use crate::zstd_stream::Encoder;
use dioptra_perfrecords::record::HEADER_SIZE;
use std::fmt;

/// Bytes of records that are compressed at once.
const BATCH: usize = 512 << 10;
/// The largest payload of a record, a multiple of eight.
const PAYLOAD: usize = (u16::MAX as usize - HEADER_SIZE) & !7;
/// The most bytes that one COMPRESSED record holds: perf reserves so much for each.
pub(super) const MMAP_LENGTH: u32 = 1 << 20;

const _: () = assert!(BATCH + u16::MAX as usize <= MMAP_LENGTH as usize);

/// Levels above this look back farther than [`WINDOW`], for which readers would have to reserve up to 128 MiB.
const LAST_MODEST_LEVEL: i32 = 20;
/// The largest distance that compression looks back, as the logarithm of the bytes.
const WINDOW: u32 = 25;

pub(super) struct Compressor {
    encoder: Encoder,
    level: i32,
    batch: Vec<u8>,
    output: Vec<u8>,
    bytes_in: u64,
    bytes_out: u64,
}

impl fmt::Debug for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Compressor");
        shown.field("level", &self.level);
        shown.finish_non_exhaustive()
    }
}

impl Compressor {
    pub fn new(level: i32) -> Result<Self, WriteError> {
        Ok(Compressor {
            encoder: Encoder::new(level, (level > LAST_MODEST_LEVEL).then_some(WINDOW))?,
            level,
            batch: Vec::with_capacity(BATCH),
            output: vec![0; PAYLOAD],
            bytes_in: 0,
            bytes_out: 0,
        })
    }

    pub fn level(&self) -> u32 {
        self.level.max(0).cast_unsigned()
    }

    /// Returns the size of the data relative to its compressed size, rounded down, at least 1.
    pub fn ratio(&self) -> u32 {
        let ratio = self.bytes_in / self.bytes_out.max(1);
        u32::try_from(ratio).unwrap_or(u32::MAX).max(1)
    }

    /// Collects a record; true when so much is collected that it should be drained.
    pub fn push(&mut self, record: &[u8]) -> bool {
        self.batch.extend_from_slice(record);
        self.batch.len() >= BATCH
    }

    /// Compresses what was collected, and passes on payloads of records. All of it can be unpacked from them.
    pub fn drain(
        &mut self,
        mut put: impl FnMut(&[u8]) -> Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        if self.batch.is_empty() {
            return Ok(());
        }
        self.bytes_in += self.batch.len() as u64;
        let mut input = &self.batch[..];
        loop {
            let (length, more) = if input.is_empty() {
                self.encoder.flush(&mut self.output)?
            } else {
                let step = self.encoder.run(input, &mut self.output)?;
                input = &input[step.taken..];
                // The flush follows.
                (step.written, true)
            };
            if length > 0 {
                self.bytes_out += length as u64;
                put(&self.output[..length])?;
            }
            if !more {
                break;
            }
        }
        self.batch.clear();
        Ok(())
    }
}
