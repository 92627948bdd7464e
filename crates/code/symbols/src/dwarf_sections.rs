//! The debug sections of one file: read, unpacked, owned.

use std::fs::File;
use std::os::unix::fs::FileExt;

use dioptra_mapped::{Advice, MappedFile};
use gimli::{EndianSlice, RunTimeEndian, SectionId};
use object::endian::Endianness;
use object::read::{CompressedData, CompressionFormat, ReadRef};

use crate::cause::{FileDamage, FilePart, PackedDamage};
use crate::elf::{Image, Section};

/// The type by which gimli reads sections here.
pub(crate) type Slice<'a> = EndianSlice<'a, RunTimeEndian>;

/// Debug information packs three to six to one; beyond this it is a bomb.
const MOST_EXPANSION: u64 = 64;

/// The sections that lines and inline frames need. The others (locations of variables, types, macros) are more
/// than half of a debug file.
const NEEDED: [SectionId; 10] = [
    SectionId::DebugAbbrev,
    SectionId::DebugAddr,
    SectionId::DebugAranges,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugLineStr,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
];

/// The further sections of a package of split files. All sections that its index lists must be there, or its
/// units can't be cut out.
const NEEDED_IN_PACKAGE: [SectionId; 7] = [
    SectionId::DebugCuIndex,
    SectionId::DebugTuIndex,
    SectionId::DebugLoc,
    SectionId::DebugLocLists,
    SectionId::DebugMacinfo,
    SectionId::DebugMacro,
    SectionId::DebugTypes,
];

/// Larger sections are mapped: of a gigabyte of debug information a few addresses need a few megabytes.
const MAPPED_FROM: u64 = 4 << 20;

/// A section's bytes.
#[derive(Debug)]
enum Bytes {
    /// Read, or unpacked.
    Heap(Vec<u8>),
    /// Pages of the file, read as they are needed.
    Mapped(MappedFile),
}

impl Bytes {
    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Heap(bytes) => bytes,
            Self::Mapped(map) => map,
        }
    }

    fn heap_bytes(&self) -> usize {
        match self {
            Self::Heap(bytes) => bytes.capacity(),
            Self::Mapped(_) => 0,
        }
    }
}

/// The debug sections of a file.
#[derive(Debug, Default)]
pub(crate) struct DebugSections {
    found: Vec<(SectionId, Bytes)>,
    is_big_endian: bool,
}

impl DebugSections {
    /// Whether an image has debug information of its own.
    pub(crate) fn present<'d, R: ReadRef<'d>>(image: &Image<'d, R>) -> bool {
        [&b".debug_info"[..], b".zdebug_info"]
            .iter()
            .filter_map(|name| image.section_named(name))
            .any(|section| section.kind != object::elf::SHT_NOBITS && section.size > 0)
    }

    /// Reads the sections of a program or debug file.
    pub(crate) fn read<'d, R: ReadRef<'d>>(
        file: &File,
        image: &Image<'d, R>,
    ) -> Result<Self, FileDamage> {
        let names = NEEDED.iter().map(|&id| (id, id.name()));
        Self::read_named(file, image, names)
    }

    /// Reads the sections of a `.dwo` or `.dwp` file.
    pub(crate) fn read_split<'d, R: ReadRef<'d>>(
        file: &File,
        image: &Image<'d, R>,
    ) -> Result<Self, FileDamage> {
        let is_package = image.section_named(b".debug_cu_index").is_some();
        let more = &NEEDED_IN_PACKAGE[..if is_package {
            NEEDED_IN_PACKAGE.len()
        } else {
            0
        }];
        let ids = NEEDED.iter().chain(more);
        Self::read_named(
            file,
            image,
            ids.filter_map(|&id| Some((id, id.dwo_name()?))),
        )
    }

    fn read_named<'d, R: ReadRef<'d>>(
        file: &File,
        image: &Image<'d, R>,
        names: impl Iterator<Item = (SectionId, &'static str)>,
    ) -> Result<Self, FileDamage> {
        let mut found = Vec::new();
        for (id, name) in names {
            let is_old_packed = |section: &&Section<'_>| {
                section.name.strip_prefix(b".z") == Some(&name.as_bytes()[1..])
            };
            let bytes = if let Some(section) = image.section_named(name.as_bytes()) {
                if section.compressed {
                    Bytes::Heap(unpack(&bytes_of(file, section)?, image)?)
                } else if section.size >= MAPPED_FROM {
                    map(file, section)?
                } else {
                    Bytes::Heap(bytes_of(file, section)?)
                }
            } else if let Some(section) = image.sections.iter().find(is_old_packed) {
                Bytes::Heap(unpack_old(&bytes_of(file, section)?)?)
            } else {
                continue;
            };
            found.push((id, bytes));
        }
        Ok(Self {
            found,
            is_big_endian: image.endian() == Endianness::Big,
        })
    }

    /// A section; empty when the file has none of this kind.
    pub(crate) fn slice(&self, id: SectionId) -> Slice<'_> {
        let bytes = self
            .found
            .iter()
            .find(|&&(found, _)| found == id)
            .map_or(&[][..], |(_, bytes)| bytes.as_slice());
        let endian = if self.is_big_endian {
            RunTimeEndian::Big
        } else {
            RunTimeEndian::Little
        };
        EndianSlice::new(bytes, endian)
    }

    /// gimli's view of the sections.
    pub(crate) fn dwarf(&self) -> gimli::Dwarf<Slice<'_>> {
        let load = |id| Ok::<_, std::convert::Infallible>(self.slice(id));
        match gimli::Dwarf::load(load) {
            Ok(dwarf) => dwarf,
            Err(never) => match never {},
        }
    }

    /// Heap memory held, in bytes; mapped sections count as none.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.found.iter().map(|(_, bytes)| bytes.heap_bytes()).sum()
    }
}

/// Returns the size of a section in the file. The bytes exist, unlike the size that a header may claim.
fn size_in(file: &File, section: &Section<'_>) -> Result<usize, FileDamage> {
    if section.kind == object::elf::SHT_NOBITS {
        return Ok(0);
    }
    let file_size = file.metadata().map_or(0, |data| data.len());
    let outside = FileDamage::Outside(FilePart::DebugSection);
    let end = section.offset.checked_add(section.size).ok_or(outside)?;
    if end > file_size {
        return Err(outside);
    }
    usize::try_from(section.size).map_err(|_| outside)
}

/// Maps a section.
fn map(file: &File, section: &Section<'_>) -> Result<Bytes, FileDamage> {
    let len = size_in(file, section)?;
    if len == 0 {
        return Ok(Bytes::Heap(Vec::new()));
    }
    let map = MappedFile::part(file, section.offset, len);
    let map = map.map_err(|_| FileDamage::UnmappedSection)?;
    // Units lie far apart; only memory depends on it.
    map.advise(Advice::Random);
    Ok(Bytes::Mapped(map))
}

/// A section's bytes as they lie in the file.
pub(crate) fn bytes_of(file: &File, section: &Section<'_>) -> Result<Vec<u8>, FileDamage> {
    let size = size_in(file, section)?;
    let mut bytes = vec![0; size];
    if size == 0 {
        return Ok(bytes);
    }
    file.read_exact_at(&mut bytes, section.offset)
        .map_err(|_| FileDamage::UnreadSection)?;
    Ok(bytes)
}

/// Unpacks a section with the flag `SHF_COMPRESSED`.
pub(crate) fn unpack<'d, R: ReadRef<'d>>(
    packed: &[u8],
    image: &Image<'d, R>,
) -> Result<Vec<u8>, FileDamage> {
    let short = FileDamage::DebugSection(PackedDamage::NoHeader);
    let word = |at: usize, len: usize| -> Option<u64> {
        let bytes = packed.get(at..at + len)?;
        let fold = |value: u64, &byte: &u8| value << 8 | u64::from(byte);
        Some(match image.endian() {
            Endianness::Big => bytes.iter().fold(0, fold),
            Endianness::Little => bytes.iter().rev().fold(0, fold),
        })
    };
    // Kind and size; the 64-bit header has padding behind the kind.
    let (size, header) = if image.is_64() {
        (word(8, 8), 24)
    } else {
        (word(4, 4), 12)
    };
    let format = match word(0, 4) {
        Some(1) => CompressionFormat::Zlib,
        Some(2) => CompressionFormat::Zstandard,
        Some(_) => {
            return Err(FileDamage::DebugSection(PackedDamage::Method));
        }
        None => return Err(short),
    };
    let data = packed.get(header..).ok_or(short)?;
    decompress(format, data, size.ok_or(short)?)
}

/// Unpacks a `.zdebug_` section: `ZLIB`, the size, then the data.
fn unpack_old(packed: &[u8]) -> Result<Vec<u8>, FileDamage> {
    let header = packed
        .strip_prefix(b"ZLIB")
        .and_then(|rest| rest.split_first_chunk());
    let Some((size, data)) = header else {
        return Err(FileDamage::DebugSection(PackedDamage::NoHeader));
    };
    decompress(CompressionFormat::Zlib, data, u64::from_be_bytes(*size))
}

fn decompress(format: CompressionFormat, data: &[u8], size: u64) -> Result<Vec<u8>, FileDamage> {
    // A page more, for tiny sections of one repeated byte.
    if size > (data.len() as u64).saturating_mul(MOST_EXPANSION) + 4096 {
        return Err(FileDamage::DebugSection(PackedDamage::Expansion));
    }
    let packed = CompressedData {
        format,
        data,
        uncompressed_size: size,
    };
    packed
        .decompress()
        .map(std::borrow::Cow::into_owned)
        .map_err(|_| FileDamage::DebugSection(PackedDamage::Data))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_of_a_file_that_is_truncated_reads_as_zeroes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap().join("debug");
        std::fs::write(&path, vec![9; 6 << 20]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let section = Section {
            name: b".debug_info",
            kind: object::elf::SHT_PROGBITS,
            executable: false,
            compressed: false,
            address: 0,
            offset: 100,
            size: 5 << 20,
            link: 0,
            entry_size: 0,
            align: 1,
        };
        let bytes = map(&file, &section).unwrap();
        assert!(bytes.as_slice().iter().all(|byte| *byte == 9));
        file.set_len(1 << 20).unwrap();
        assert_eq!(bytes.as_slice().last(), Some(&0));
        let all = dioptra_mapped::truncations();
        let ours = all.iter().find(|truncation| truncation.path == path);
        assert_eq!(ours.unwrap().offset, 1 << 20);
    }
}
