//! Decompression with a limit, since a small file may decompress to more than the machine has memory.

use super::error::ImportError;
use flate2::read::MultiGzDecoder;
use std::io::Read;

/// The content may be so many times larger than its compressed form. Profiles compress to a tenth, and repetitive ones to
/// a hundredth.
const MOST_RATIO: u64 = 256;
/// Content up to this size is always accepted, in bytes.
const ALWAYS: u64 = 64 << 20;

/// Returns whether bytes are compressed with gzip.
pub(super) fn is_compressed(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0x1f, 0x8b])
}

/// Decompresses all of a file.
pub(super) fn decompress(bytes: &[u8]) -> Result<Vec<u8>, ImportError> {
    let limit = (bytes.len() as u64).saturating_mul(MOST_RATIO).max(ALWAYS);
    let mut content = Vec::new();
    let mut decoder = MultiGzDecoder::new(bytes).take(limit + 1);
    let result = decoder.read_to_end(&mut content);
    let offset = content.len() as u64;
    result.map_err(|source| ImportError::Gzip { offset, source })?;
    match offset > limit {
        true => Err(ImportError::TooLarge { limit }),
        false => Ok(content),
    }
}
