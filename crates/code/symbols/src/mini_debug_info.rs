//! `.gnu_debugdata`: a small ELF file, packed with xz, that some distributions put into stripped files.

use std::io::Read;

use lzma_rust2::XzReader;
use object::read::ReadRef;

use crate::cause::{FileDamage, PackedDamage};
use crate::elf::Image;

/// Symbol tables pack about five to one; beyond this it is a bomb.
const MOST_EXPANSION: u64 = 64;
/// `xz -9` asks for 65 MiB to unpack.
const MOST_MEMORY_KIB: u32 = 80 * 1024;

/// The ELF file inside, if there is one.
pub(crate) fn unpack<'d, R: ReadRef<'d>>(
    image: &Image<'d, R>,
) -> Result<Option<Vec<u8>>, FileDamage> {
    let Some(section) = image.section_named(b".gnu_debugdata") else {
        return Ok(None);
    };
    let packed = image.bytes(section)?;
    let limit = (packed.len() as u64).saturating_mul(MOST_EXPANSION);
    let mut unpacked = Vec::new();
    let mut reader = XzReader::new_mem_limit(packed, false, MOST_MEMORY_KIB).take(limit + 1);
    reader
        .read_to_end(&mut unpacked)
        .map_err(|_| FileDamage::MiniDebugInfo(PackedDamage::Data))?;
    if unpacked.len() as u64 > limit {
        return Err(FileDamage::MiniDebugInfo(PackedDamage::Expansion));
    }
    Ok(Some(unpacked))
}
