//! The bytes of a module's file that its analysis needs.

use dioptra_mapped::{Advice, MappedFile};
use dioptra_trace_patch::segments;
use object::Endianness;
use object::elf::{FileHeader64, PT_LOAD, SHT_DYNSYM, SHT_NOBITS, SHT_PROGBITS, SectionType};
use object::read::ReadRef;
use object::read::elf::{ElfFile, FileHeader, ProgramHeader, SectionHeader};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Reads the bytes of an ELF file that the scan needs: the loaded segments, the symbols and similar tables. All
/// other bytes, which may be many, are zero, and take neither time nor memory.
///
/// # Errors
/// If reading fails, also if the file has become shorter.
pub fn read_needed<'d, R: ReadRef<'d>>(
    file: &File,
    elf: &ElfFile<'d, FileHeader64<Endianness>, R>,
) -> io::Result<Vec<u8>> {
    let loaded = elf.elf_program_headers().iter();
    let loaded = loaded.filter(|s| s.p_type(elf.endian()) == PT_LOAD);
    let needed = loaded.map(|s| (s.p_offset(elf.endian()), s.p_filesz(elf.endian())));
    read_with_tables(file, elf, needed.collect(), |kind| {
        // Sections with debug information have the type SHT_PROGBITS.
        kind != SHT_PROGBITS && kind != SHT_NOBITS
    })
}

/// Maps the file of a program that a process executes, so that nothing is copied.
///
/// # Errors
/// If it can't be mapped.
pub fn map_program<'d, R: ReadRef<'d>>(
    file: &File,
    elf: &ElfFile<'d, FileHeader64<Endianness>, R>,
) -> io::Result<MappedFile> {
    let bytes = MappedFile::new(file)?;
    for segment in segments(elf) {
        // Asks for all pages at once. Older kernels can't do that, and map each page when it is used.
        let start = usize::try_from(segment.offset & !4095).unwrap_or(usize::MAX);
        let end = usize::try_from(segment.offset.saturating_add(segment.file_size));
        let end = end.unwrap_or(usize::MAX).min(bytes.len());
        if start < end {
            bytes.advise_range(Advice::PopulateRead, start..end);
        }
    }
    Ok(bytes)
}

/// A file's bytes.
pub enum FileBytes {
    /// A copy of the bytes.
    Read(Vec<u8>),
    /// The file itself, mapped.
    Mapped(MappedFile),
}

impl FileBytes {
    /// Returns whether the file was truncated since it was mapped. Bytes that were read since then may be wrong.
    pub fn is_truncated(&self) -> bool {
        match self {
            FileBytes::Read(_) => false,
            FileBytes::Mapped(bytes) => bytes.truncated_at().is_some(),
        }
    }
}

impl std::ops::Deref for FileBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            FileBytes::Read(bytes) => bytes,
            FileBytes::Mapped(bytes) => bytes,
        }
    }
}

/// Reads parts of an ELF file: `needed`, which are offsets and sizes, and the dynamic linker's symbols. All other bytes
/// are zero, as in [`read_needed`].
///
/// # Errors
/// As [`read_needed`].
pub fn read_some<'d, R: ReadRef<'d>>(
    file: &File,
    elf: &ElfFile<'d, FileHeader64<Endianness>, R>,
    mut needed: Vec<(u64, u64)>,
) -> io::Result<Vec<u8>> {
    let sections = elf.elf_section_table();
    let names = elf.elf_header().shstrndx(elf.endian(), elf.data());
    let names = names.map_or(0, |index| index as usize);
    let names = sections.iter().nth(names);
    needed.extend(names.map(|s| (s.sh_offset(elf.endian()), s.sh_size(elf.endian()))));
    let dynamic = sections
        .iter()
        .filter(|s| s.sh_type(elf.endian()) == SHT_DYNSYM);
    for symbols in dynamic {
        let linked = sections.iter().nth(symbols.sh_link(elf.endian()) as usize);
        needed.extend(linked.map(|s| (s.sh_offset(elf.endian()), s.sh_size(elf.endian()))));
    }
    read_with_tables(file, elf, needed, |kind| kind == SHT_DYNSYM)
}

/// Reads the headers, the parts that are `needed`, and the sections of some types.
fn read_with_tables<'d, R: ReadRef<'d>>(
    file: &File,
    elf: &ElfFile<'d, FileHeader64<Endianness>, R>,
    mut needed: Vec<(u64, u64)>,
    is_needed: impl Fn(SectionType) -> bool,
) -> io::Result<Vec<u8>> {
    let size = file.metadata()?.len();
    let (header, endian) = (elf.elf_header(), elf.endian());
    let table = |start: u64, entry: u16, count: usize| (start, u64::from(entry) * count as u64);
    let segments = elf.elf_program_headers();
    let sections = elf.elf_section_table();
    needed.extend([
        (0, size_of::<FileHeader64<Endianness>>() as u64),
        table(
            header.e_phoff(endian),
            header.e_phentsize(endian),
            segments.len(),
        ),
        table(
            header.e_shoff(endian),
            header.e_shentsize(endian),
            sections.len(),
        ),
    ]);
    let tables = sections.iter().filter(|s| is_needed(s.sh_type(endian)));
    needed.extend(tables.map(|s| (s.sh_offset(endian), s.sh_size(endian))));
    needed.sort_unstable();

    let mut bytes = vec![0; usize::try_from(size).map_err(io::Error::other)?];
    let mut done = 0;
    for (start, length) in needed {
        let end = start.saturating_add(length).min(size);
        let start = start.max(done);
        if start < end {
            // Both are at most the vector's length.
            file.read_exact_at(&mut bytes[start as usize..end as usize], start)?;
            done = end;
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::partial_file::Glance;
    use crate::processor::Native;
    use crate::serving::maps::Maps;
    use dioptra_trace_patch::{Arch, ScanOptions, has_hooks, hooked_code};
    use object::ReadCache;
    use object::read::elf::ElfFile64;
    use object::{Object, ObjectSymbol, SymbolKind};
    use std::fs;

    #[test]
    fn a_program_that_is_truncated_while_it_is_analysed_is_known_to_be() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        std::fs::copy(std::env::current_exe().unwrap(), &path).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let cache = ReadCache::new(&file);
        let elf = ElfFile::parse(&cache).unwrap();
        let data = FileBytes::Mapped(map_program(&file, &elf).unwrap());
        assert!(!data.is_truncated());
        file.set_len(5000).unwrap();
        let options = ScanOptions {
            plain: true,
            library_calls: true,
            threads: 2,
        };
        // The scan may fail, but must not end the program.
        let _ = Native::scan(&data, options);
        assert!(data.iter().skip(5000).all(|byte| *byte == 0));
        assert!(data.is_truncated());
    }

    #[test]
    fn what_is_not_read_is_not_needed() {
        let path = std::env::current_exe().unwrap();
        let whole = std::fs::read(&path).unwrap();
        let file = File::open(&path).unwrap();
        let cache = ReadCache::new(&file);
        let needed = read_needed(&file, &ElfFile::parse(&cache).unwrap()).unwrap();
        assert_eq!(needed.len(), whole.len());
        let mapped = map_program(&file, &ElfFile::parse(&cache).unwrap()).unwrap();
        assert!(mapped[..] == whole[..]);
        let zeros = |bytes: &[u8]| bytes.iter().filter(|&&byte| byte == 0).count();
        assert!(
            zeros(&needed) > zeros(&whole),
            "a test has debug information"
        );
        let named = |data: &[u8]| -> Vec<(u64, String)> {
            let elf = ElfFile64::<Endianness>::parse(data).unwrap();
            let functions = elf
                .symbols()
                .filter(|symbol| symbol.kind() == SymbolKind::Text);
            let named = functions.map(|s| (s.address(), s.name().unwrap().to_owned()));
            named.collect()
        };
        assert!(named(&needed) == named(&whole) && named(&needed).len() > 100);
        let found = |data: &[u8]| {
            let options = ScanOptions {
                plain: true,
                library_calls: true,
                threads: 2,
            };
            format!("{:?}", Native::scan(data, options).unwrap())
        };
        assert_eq!(found(&needed), found(&whole));
    }

    #[test]
    fn hooks_need_little_of_a_file() {
        let maps = Maps::read(std::process::id()).unwrap();
        let mut found = 0;
        for module in maps.modules() {
            let file = File::open(&module.path).unwrap();
            let glance = Glance::new(&file).unwrap();
            let elf = ElfFile64::<object::Endianness, _>::parse(&glance).unwrap();
            if !has_hooks(&elf) {
                continue;
            }
            let some = read_some(&file, &elf, hooked_code(&elf, &segments(&elf))).unwrap();
            let whole = fs::read(&module.path).unwrap();
            let all = Native::hooks(&whole);
            assert_eq!(format!("{:?}", Native::hooks(&some)), format!("{all:?}"));
            found += all.len();
        }
        assert!(found >= 4, "a C library and a dynamic linker");
    }
}
