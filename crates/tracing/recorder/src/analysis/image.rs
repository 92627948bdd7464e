//! The parts of an ELF file that decide where calls can be traced.
//!
//! Addresses are those of the file (virtual addresses), before it is loaded.

use crate::arch;
use dioptra_mapped::{Advice, MappedFile};
use object::elf::{
    EM_AARCH64, ET_EXEC, FileHeader64, PF_W, PF_X, PT_LOAD, R_AARCH64_GLOB_DAT,
    R_AARCH64_JUMP_SLOT, R_AARCH64_RELATIVE, R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT,
    R_X86_64_RELATIVE, SHT_DYNSYM, SHT_NOBITS, SHT_PROGBITS, SectionType,
};
use object::read::elf::{ElfFile, FileHeader, ProgramHeader, SectionHeader};
use object::{
    Endianness, Object, ObjectSection, ObjectSymbol, ObjectSymbolTable, ReadRef, RelocationFlags,
    RelocationTarget, SymbolKind,
};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

type Elf<'a> = ElfFile<'a, FileHeader64<Endianness>>;

/// A loadable segment.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// The offset of its first byte in the file.
    pub offset: u64,
    /// The virtual address of its first byte.
    pub address: u64,
    /// The size in bytes of the part of the file that it maps.
    pub file_size: u64,
    /// Whether it holds code.
    pub executable: bool,
    /// Whether the program may write to it.
    pub writable: bool,
}

/// Returns the loadable segments of an ELF file.
pub fn segments<'d, R: ReadRef<'d>>(
    elf: &ElfFile<'d, FileHeader64<Endianness>, R>,
) -> Vec<Segment> {
    let endian = elf.endian();
    elf.elf_program_headers()
        .iter()
        .filter(|header| header.p_type(endian) == PT_LOAD)
        .map(|header| Segment {
            offset: header.p_offset(endian),
            address: header.p_vaddr(endian),
            file_size: header.p_filesz(endian),
            executable: header.p_flags(endian).0 & PF_X.0 != 0,
            writable: header.p_flags(endian).0 & PF_W.0 != 0,
        })
        .collect()
}

/// Reads the bytes of an ELF file that an [`Image`] needs: the loaded segments, the symbols and similar tables. All
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

/// An ELF file.
pub struct Image<'a> {
    /// The file.
    pub elf: Elf<'a>,
    /// Its loadable segments.
    pub segments: Vec<Segment>,
    data: &'a [u8],
    /// The pointers that the dynamic linker fills with functions: their addresses, and the functions' names.
    pub slots: HashMap<u64, String>,
    /// The slots of functions of other modules that code should only call through: `GLOB_DAT` and `JUMP_SLOT`
    /// relocations of undefined symbols.
    pub imports: HashMap<u64, String>,
    /// The words that the dynamic linker relocates by the load address: their addresses, and the addresses that they
    /// refer to.
    pub relative: BTreeMap<u64, u64>,
    /// The stubs that jump through slots, by address.
    pub stubs: BTreeMap<u64, Stub>,
}

/// A stub of the procedure linkage table.
#[derive(Clone, Debug)]
pub struct Stub {
    /// The name of the function that it leads to.
    pub name: String,
    /// The address of its jump, or of instructions that can be replaced by one.
    pub jump: u64,
    /// The address of the pointer through which it jumps.
    pub pointer: u64,
}

impl<'a> Image<'a> {
    /// Reads the headers only. Slots, imports and stubs stay empty.
    ///
    /// # Errors
    /// If the bytes are no ELF file for this machine.
    pub fn new(data: &'a [u8]) -> Result<Image<'a>, object::Error> {
        let elf = Elf::parse(data)?;
        Ok(Image {
            segments: segments(&elf),
            elf,
            data,
            slots: HashMap::new(),
            imports: HashMap::new(),
            relative: BTreeMap::new(),
            stubs: BTreeMap::new(),
        })
    }

    /// Reads the headers, the relocations and the linkage tables.
    ///
    /// # Errors
    /// As [`Image::new`].
    pub fn linked(data: &'a [u8]) -> Result<Image<'a>, object::Error> {
        let mut image = Image::new(data)?;
        image.relocations();
        image.stubs = arch::stubs(&image);
        Ok(image)
    }

    /// Returns the size of the file in bytes.
    pub fn size(&self) -> u64 {
        self.data.len() as u64
    }

    /// Returns whether the file is made for one address (`ET_EXEC`). Its pointers need no relocations.
    pub fn is_fixed(&self) -> bool {
        self.elf.elf_header().e_type(self.elf.endian()) == ET_EXEC
    }

    /// Returns whether an address is one of code.
    pub fn is_code(&self, address: u64) -> bool {
        self.segments
            .iter()
            .any(|s| s.executable && address.wrapping_sub(s.address) < s.file_size)
    }

    fn relocations(&mut self) {
        let Some(relocations) = self.elf.dynamic_relocations() else {
            return;
        };
        let symbols = self.elf.dynamic_symbol_table();
        let machine = self.elf.elf_header().e_machine(self.elf.endian());
        let (pointers, relative) = match machine {
            EM_AARCH64 => (
                [R_AARCH64_GLOB_DAT, R_AARCH64_JUMP_SLOT],
                R_AARCH64_RELATIVE,
            ),
            _ => ([R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT], R_X86_64_RELATIVE),
        };
        for (address, relocation) in relocations {
            match relocation.target() {
                RelocationTarget::Symbol(index) => {
                    let symbol = symbols
                        .as_ref()
                        .and_then(|table| table.symbol_by_index(index).ok());
                    let Some((symbol, name)) = symbol.and_then(|s| Some((s, s.name().ok()?)))
                    else {
                        continue;
                    };
                    let is_pointer = matches!(
                        relocation.flags(),
                        RelocationFlags::Elf { r_type } if pointers.contains(&r_type)
                    );
                    // The linker leaves symbols whose definition it has not seen without a type.
                    let is_function =
                        matches!(symbol.kind(), SymbolKind::Text | SymbolKind::Unknown);
                    if is_pointer && symbol.is_undefined() && is_function {
                        self.imports.insert(address, name.to_owned());
                    }
                    self.slots.insert(address, name.to_owned());
                }
                _ => {
                    if matches!(relocation.flags(), RelocationFlags::Elf { r_type } if r_type == relative)
                    {
                        self.relative.insert(address, relocation.addend() as u64);
                    }
                }
            }
        }
    }

    /// Returns `size` bytes at an address, or fewer where the segment's part of the file ends.
    pub fn bytes(&self, address: u64, size: u64) -> Option<&'a [u8]> {
        let segment = self
            .segments
            .iter()
            .find(|segment| address.wrapping_sub(segment.address) < segment.file_size)?;
        let inside = address - segment.address;
        let size = size.min(segment.file_size - inside);
        let start = usize::try_from(segment.offset.checked_add(inside)?).ok()?;
        self.data.get(start..start.checked_add(size as usize)?)
    }

    /// Returns the addresses that a section lists, sorted.
    pub fn listed(&self, name: &str) -> Vec<u64> {
        let mut all = Vec::new();
        for section in self.elf.sections() {
            if section.name() != Ok(name) {
                continue;
            }
            let Ok(data) = section.data() else { continue };
            for (at, word) in data.chunks_exact(8).enumerate() {
                let stored = word.try_into().map_or(0, u64::from_le_bytes);
                let place = section.address() + 8 * at as u64;
                let address = self.relative.get(&place).copied().unwrap_or(stored);
                if address != 0 {
                    all.push(address);
                }
            }
        }
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Returns the functions that have names, each with its address, size and name.
    pub fn named(&self) -> impl Iterator<Item = (u64, u64, &'a str)> {
        self.elf
            .symbols()
            .chain(self.elf.dynamic_symbols())
            .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.address() != 0)
            .filter_map(|symbol| Some((symbol.address(), symbol.size(), symbol.name().ok()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::candidates::ScanOptions;
    use crate::arch::scan;
    use object::ReadCache;

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
        };
        // The scan may fail, but must not end the program.
        let _ = scan(&data, options);
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
        let (needed, whole) = (
            Image::linked(&needed).unwrap(),
            Image::linked(&whole).unwrap(),
        );
        assert!(needed.named().eq(whole.named()) && needed.named().count() > 100);
        let found = |image: &Image<'_>| {
            let options = ScanOptions {
                plain: true,
                library_calls: true,
            };
            format!("{:?}", scan(image.data, options).unwrap())
        };
        assert_eq!(found(&needed), found(&whole));
    }
}
