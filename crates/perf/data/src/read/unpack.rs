//! Compressed records: a zstd stream cut into records, which itself is a stream of records cut anywhere.

use crate::kind::file_type;
use crate::zstd_stream::{Decoder, Step};
use dioptra_perfrecords::record::{RawRecord, RecordType};
use dioptra_perfrecords::{ByteOrder, Cursor};
use std::collections::VecDeque;
use std::io;
use thiserror::Error;

/// Bytes unpacked at once.
const CHUNK: usize = 128 << 10;
/// Bytes that may wait unpacked, whatever the size of the file.
const LEAST_LIMIT: usize = 32 << 20;
/// The most bytes that may wait unpacked, as a multiple of the file's size.
const LIMIT_RATIO: usize = 32;

/// The most bytes of a pipe that raise what may wait unpacked.
const MOST_COUNTED: u64 = 16 << 20;

/// The largest window that zstd uses, as the logarithm of its bytes: that of level 22.
const LARGEST_WINDOW: u32 = 27;
/// The last level whose window fits into [`LEAST_LIMIT`].
const LAST_MODEST_LEVEL: u32 = 20;

/// Whether the record holds compressed ones.
#[inline]
pub(super) fn is_compressed(kind: RecordType) -> bool {
    kind == file_type::COMPRESSED || kind == file_type::COMPRESSED2
}

/// The reason why a compressed record could not be unpacked. Neither can any later one: all form one stream.
#[derive(Debug, Error)]
pub(super) enum UnpackError {
    #[error("compressed data cannot be unpacked: {0}")]
    Zstd(#[from] io::Error),
    #[error("compressed data expands beyond all measure")]
    Expands,
    #[error("compressed data makes the decoder stand still")]
    StandsStill,
    #[error("a COMPRESSED2 record is shorter than its data")]
    Short,
}

/// The unpacked bytes that are still needed. Positions count from the first byte ever unpacked.
pub(super) struct Unpacker {
    decoder: Option<Decoder>,
    window: Vec<u8>,
    /// Position of the window's first byte.
    base: u64,
    /// Position of the first byte that has not been read as a record.
    read: u64,
    /// For each compressed record: the position of its first byte, and its offset in the file.
    origins: VecDeque<(u64, u64)>,
    limit: usize,
    /// The memory that the decoder may reserve to look back, as the logarithm of the bytes.
    window_log: u32,
    broken: bool,
}

impl Unpacker {
    /// For a file of `length` bytes that was compressed at `level`, where that is known.
    ///
    /// Only files that state an extreme level may ask for more memory than other limits are.
    pub fn new(length: usize, level: Option<u32>) -> Self {
        let limit = LEAST_LIMIT.max(length.saturating_mul(LIMIT_RATIO));
        let window_log = match level {
            Some(level) if level > LAST_MODEST_LEVEL => LARGEST_WINDOW,
            _ => limit.ilog2().min(LARGEST_WINDOW),
        };
        Unpacker {
            decoder: None,
            window: Vec::new(),
            base: 0,
            read: 0,
            origins: VecDeque::new(),
            limit,
            window_log,
            broken: false,
        }
    }

    /// Takes notice of `length` bytes of the recording: the more there are, the more may wait unpacked.
    pub fn allow(&mut self, length: u64) {
        let length = usize::try_from(length.min(MOST_COUNTED)).unwrap_or(0);
        self.limit = self.limit.max(length.saturating_mul(LIMIT_RATIO));
    }

    /// The offset of the compressed record that was unpacked last.
    pub fn last_origin(&self) -> u64 {
        self.origins.back().map_or(0, |(_, offset)| *offset)
    }

    /// Whether nothing was ever unpacked.
    pub fn is_unused(&self) -> bool {
        self.decoder.is_none()
    }

    /// Whether as much waits as may.
    pub fn is_full(&self) -> bool {
        self.window.len() >= self.limit
    }

    /// Gives up: what comes later cannot be understood without what is broken.
    pub fn give_up(&mut self) {
        self.broken = true;
        self.read = self.base + self.window.len() as u64;
    }

    /// Unpacks the compressed record at `offset` behind the bytes that are there.
    ///
    /// # Errors
    /// The first failure has a reason. All later records fail without one.
    pub fn unpack(
        &mut self,
        raw: &RawRecord<'_>,
        offset: u64,
        order: ByteOrder,
    ) -> Result<(), Option<UnpackError>> {
        if self.broken {
            return Err(None);
        }
        let position = self.base + self.window.len() as u64;
        self.origins.push_back((position, offset));
        let result = payload(raw, order).and_then(|payload| self.run(payload));
        result.map_err(|why| {
            self.give_up();
            Some(why)
        })
    }

    fn run(&mut self, mut payload: &[u8]) -> Result<(), UnpackError> {
        let decoder = match &mut self.decoder {
            Some(decoder) => decoder,
            empty => empty.insert(Decoder::new(self.window_log)?),
        };
        loop {
            let length = self.window.len();
            if length > 2 * self.limit {
                return Err(UnpackError::Expands);
            }
            self.window.resize(length + CHUNK, 0);
            let step = decoder.run(payload, &mut self.window[length..]);
            let written = step.as_ref().map_or(0, |step| step.written);
            self.window.truncate(length + written);
            let Step { taken, written } = step?;
            payload = &payload[taken..];
            // With room left in the output, nothing more waits inside the decoder.
            if payload.is_empty() && written < CHUNK {
                return Ok(());
            }
            if written == 0 && taken == 0 {
                return Err(UnpackError::StandsStill);
            }
        }
    }

    /// The bytes that have not been read as records, and the position of the first.
    pub fn unread(&self) -> (&[u8], u64) {
        let start = (self.read - self.base) as usize;
        (self.window.get(start..).unwrap_or_default(), self.read)
    }

    pub fn has_unread(&self) -> bool {
        !self.unread().0.is_empty()
    }

    /// Counts `length` bytes as read.
    pub fn advance(&mut self, length: usize) {
        self.read += length as u64;
    }

    /// The bytes from `position` on, and the offset in the file of the record that they were compressed in.
    pub fn at(&self, position: u64) -> (Option<&[u8]>, u64) {
        let bytes = position
            .checked_sub(self.base)
            .and_then(|start| self.window.get(start as usize..));
        let after = self
            .origins
            .partition_point(|(start, _)| *start <= position);
        let origin = after
            .checked_sub(1)
            .and_then(|index| self.origins.get(index));
        (bytes, origin.map_or(0, |(_, offset)| *offset))
    }

    /// Forgets what lies before `oldest` (nothing waits where that is `None`) and has been read.
    pub fn discard_before(&mut self, oldest: Option<u64>) {
        if self.is_unused() {
            return;
        }
        let keep = oldest.unwrap_or(self.read).min(self.read);
        self.window.drain(..(keep - self.base) as usize);
        self.base = keep;
        while self.origins.get(1).is_some_and(|(start, _)| *start <= keep) {
            self.origins.pop_front();
        }
    }
}

/// The compressed bytes in a record.
fn payload<'a>(raw: &RawRecord<'a>, order: ByteOrder) -> Result<&'a [u8], UnpackError> {
    if raw.kind == file_type::COMPRESSED {
        return Ok(raw.body);
    }
    let mut at = Cursor::new(raw.body, order);
    let length = at.u64().and_then(|length| usize::try_from(length).ok());
    length
        .and_then(|length| at.take(length))
        .ok_or(UnpackError::Short)
}
