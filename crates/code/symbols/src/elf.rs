//! The parts of an ELF file that naming needs: segments, sections, symbols, notes; either class and byte order.

use object::elf;
use object::endian::Endianness;
use object::read::ReadRef;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, Sym};
use object::{U32, U64};

use crate::cause::{FileDamage, FilePart};
use crate::table::Binding;

/// Longer names are left out.
const LONGEST_NAME: usize = 128 * 1024;
/// Longer names are not read one by one.
const SHORT_NAME: u64 = 4096;
/// The size of a name table, in bytes, up to which names are read one by one; larger ones are faster read at once.
const NAMES_ALONE: u64 = 512;
/// Notes in more or larger sections than any real file has are not looked at.
const MOST_NOTES: usize = 64;
const LARGEST_NOTE: u64 = 64 * 1024;

/// A part of the file that is mapped into memory as one piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    pub kind: elf::ProgramType,
    pub executable: bool,
    pub offset: u64,
    pub address: u64,
    pub file_size: u64,
    pub align: u64,
}

impl Segment {
    /// The file offset of an address that this segment takes from the file.
    pub(crate) fn offset_of(&self, address: u64) -> Option<u64> {
        let inside = address.checked_sub(self.address)?;
        (inside < self.file_size).then(|| self.offset.checked_add(inside))?
    }

    /// The address of a file offset that this segment maps.
    pub(crate) fn address_of(&self, offset: u64) -> Option<u64> {
        let inside = offset.checked_sub(self.offset)?;
        (inside < self.file_size).then(|| self.address.checked_add(inside))?
    }

    /// Where its part of the file ends.
    pub(crate) fn end(&self) -> u64 {
        self.offset.saturating_add(self.file_size)
    }
}

/// A section header, in whatever class and byte order it was written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Section<'d> {
    pub name: &'d [u8],
    pub kind: elf::SectionType,
    pub executable: bool,
    pub compressed: bool,
    pub address: u64,
    pub offset: u64,
    pub size: u64,
    pub link: u32,
    pub entry_size: u64,
    pub align: u64,
}

/// A symbol that may name code.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CodeSymbol<'d> {
    pub address: u64,
    pub size: u64,
    /// Where its section ends, as an address; the largest one when the section isn't known.
    pub section_end: u64,
    pub binding: Binding,
    pub is_function: bool,
    /// The source file of a local symbol, from the file symbol before it; else empty.
    pub file: &'d [u8],
    pub name: &'d [u8],
}

/// Whoever takes the symbols of a table.
pub(crate) trait TakeSymbols {
    /// Whether a symbol, whose name may still be empty, is worth taking.
    fn wants(&mut self, symbol: &CodeSymbol<'_>) -> bool;

    /// Takes a symbol that is wanted.
    fn take(&mut self, symbol: &CodeSymbol<'_>);
}

/// A relocation of a slot by a symbol, or (index 0) by an address.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlotRelocation {
    pub slot: u64,
    pub symbol: u32,
    pub kind: u32,
    pub addend: u64,
}

/// An ELF file whose headers have been read.
pub(crate) struct Image<'d, R: ReadRef<'d>> {
    data: R,
    endian: Endianness,
    is_64: bool,
    pub machine: elf::Machine,
    /// Where the program, or the dynamic linker, starts; zero in other files.
    pub entry: u64,
    pub segments: Vec<Segment>,
    pub sections: Vec<Section<'d>>,
    /// Set when the section headers can't be read although there should be some.
    pub damage: Option<FileDamage>,
}

impl<'d, R: ReadRef<'d>> Image<'d, R> {
    /// Reads the headers.
    pub(crate) fn parse(data: R) -> Result<Self, FileDamage> {
        let ident = data.read_bytes_at(0, 16).map_err(|()| FileDamage::NotElf)?;
        if ident[..4] != elf::ELFMAG {
            return Err(FileDamage::NotElf);
        }
        match ident[4] {
            1 => Self::parse_class::<elf::FileHeader32<Endianness>>(data),
            2 => Self::parse_class::<elf::FileHeader64<Endianness>>(data),
            _ => Err(FileDamage::Class),
        }
    }

    fn parse_class<H>(data: R) -> Result<Self, FileDamage>
    where
        H: FileHeader<Endian = Endianness>,
    {
        let header = H::parse(data)?;
        let endian = header.endian()?;
        let segments = header
            .program_headers(endian, data)?
            .iter()
            .map(|segment| Segment {
                kind: segment.p_type(endian),
                executable: segment.p_flags(endian).contains(elf::PF_X),
                offset: segment.p_offset(endian).into(),
                address: segment.p_vaddr(endian).into(),
                file_size: segment.p_filesz(endian).into(),
                align: segment.p_align(endian).into(),
            })
            .collect();
        // A truncated file loses its section headers first, since they come last.
        let (headers, damage) = match header.section_headers(endian, data) {
            Ok(headers) => (headers, None),
            Err(_) => (&[][..], Some(FileDamage::SectionHeaders)),
        };
        // All names at once: read one by one, hostile ones could overlap without end.
        let names = header
            .shstrndx(endian, data)
            .ok()
            .and_then(|index| headers.get(index as usize));
        let names = names
            .and_then(|section| section.data(endian, data).ok())
            .unwrap_or_default();
        let sections = headers
            .iter()
            .map(|section| Section {
                name: string_at(names, section.sh_name(endian)),
                kind: section.sh_type(endian),
                executable: section.sh_flags(endian).contains(elf::SHF_EXECINSTR),
                compressed: section.sh_flags(endian).contains(elf::SHF_COMPRESSED),
                address: section.sh_addr(endian).into(),
                offset: section.sh_offset(endian).into(),
                size: section.sh_size(endian).into(),
                link: section.sh_link(endian),
                entry_size: section.sh_entsize(endian).into(),
                align: section.sh_addralign(endian).into(),
            })
            .collect();
        Ok(Self {
            data,
            endian,
            is_64: header.is_type_64(),
            machine: header.e_machine(endian),
            entry: header.e_entry(endian).into(),
            segments,
            sections,
            damage,
        })
    }

    /// The first section of a kind.
    pub(crate) fn section_of_kind(&self, kind: elf::SectionType) -> Option<&Section<'d>> {
        self.sections.iter().find(|section| section.kind == kind)
    }

    /// The first section with a name.
    pub(crate) fn section_named(&self, name: &[u8]) -> Option<&Section<'d>> {
        self.sections.iter().find(|section| section.name == name)
    }

    /// A section's bytes; none for one that takes no room in the file.
    pub(crate) fn bytes(&self, section: &Section<'d>) -> Result<&'d [u8], FileDamage> {
        if section.kind == elf::SHT_NOBITS {
            return Ok(&[]);
        }
        self.data
            .read_bytes_at(section.offset, section.size)
            .map_err(|()| FileDamage::Outside(FilePart::Section))
    }

    /// Segments from which code is loaded.
    pub(crate) fn code_segments(&self) -> impl Iterator<Item = &Segment> {
        self.segments
            .iter()
            .filter(|segment| segment.kind == elf::PT_LOAD && segment.executable)
    }

    /// The lowest address any loaded segment has; moves when a file is prelinked.
    pub(crate) fn base(&self) -> Option<u64> {
        self.segments
            .iter()
            .filter(|segment| segment.kind == elf::PT_LOAD)
            .map(|segment| segment.address)
            .min()
    }

    /// Passes every symbol of a table that may name code to `taker`. With `few`, names are read one by one, else all
    /// at once.
    pub(crate) fn code_symbols(
        &self,
        table: &Section<'d>,
        few: bool,
        taker: &mut impl TakeSymbols,
    ) -> Result<(), FileDamage> {
        if self.is_64 {
            self.code_symbols_of::<elf::Sym64<Endianness>>(table, few, taker)
        } else {
            self.code_symbols_of::<elf::Sym32<Endianness>>(table, few, taker)
        }
    }

    fn code_symbols_of<S>(
        &self,
        table: &Section<'d>,
        few: bool,
        taker: &mut impl TakeSymbols,
    ) -> Result<(), FileDamage>
    where
        S: Sym<Endian = Endianness>,
    {
        let symbols = self.symbols_of::<S>(table)?;
        let section = self.strings_of(table)?;
        let mut strings = if few {
            None
        } else {
            Some(self.bytes(section)?)
        };
        let mut alone = 0_u64;
        // Where the name of the last file symbol stands, and that name once it is read.
        let mut file_at = None;
        let mut file: Option<&[u8]> = None;
        for symbol in symbols {
            let is_function = match symbol.st_type() {
                elf::STT_FUNC | elf::STT_GNU_IFUNC => true,
                elf::STT_NOTYPE => false,
                elf::STT_FILE => {
                    file_at = Some(symbol.st_name(self.endian));
                    file = None;
                    continue;
                }
                _ => continue,
            };
            let index = symbol.st_shndx(self.endian);
            let section_end = match index.index() {
                Some(index) => match self.sections.get(usize::from(index)) {
                    Some(section) if section.executable => {
                        section.address.saturating_add(section.size)
                    }
                    _ => continue,
                },
                // More sections than 16 bits can count: the executable segments decide.
                None if index == elf::SHN_XINDEX => u64::MAX,
                None => continue,
            };
            let mut address: u64 = symbol.st_value(self.endian).into();
            if self.machine == elf::EM_ARM {
                // The lowest bit tells Thumb code.
                address &= !1;
            }
            let mut found = CodeSymbol {
                address,
                size: symbol.st_size(self.endian).into(),
                section_end,
                binding: match symbol.st_bind() {
                    elf::STB_LOCAL => Binding::Local,
                    elf::STB_WEAK => Binding::Weak,
                    _ => Binding::Global,
                },
                is_function,
                file: &[],
                name: &[],
            };
            // A label must show by its name that it is one.
            if is_function && !taker.wants(&found) {
                continue;
            }
            let at = symbol.st_name(self.endian);
            if strings.is_none() {
                alone += 1;
                if alone > section.size / NAMES_ALONE {
                    strings = Some(self.bytes(section)?);
                }
            }
            found.name = match strings {
                Some(strings) => string_at(strings, at),
                None => match self.string_in(section, at) {
                    Some(name) => name,
                    // A long name. Read alone, many that overlap would take far more memory than the section.
                    None => string_at(strings.insert(self.bytes(section)?), at),
                },
            };
            if found.name.is_empty() {
                continue;
            }
            if found.binding == Binding::Local
                && let Some(at) = file_at
            {
                found.file = *file.get_or_insert_with(|| match strings {
                    Some(strings) => string_at(strings, at),
                    None => self.string_in(section, at).unwrap_or_default(),
                });
            }
            if is_function
                || (names_code(found.name, symbol.st_visibility()) && taker.wants(&found))
            {
                taker.take(&found);
            }
        }
        Ok(())
    }

    /// The NUL-terminated string at an offset of a section, read alone; `None` where it lies outside or is long.
    fn string_in(&self, section: &Section<'d>, offset: u32) -> Option<&'d [u8]> {
        if section.kind == elf::SHT_NOBITS {
            return None;
        }
        let start = section.offset.checked_add(u64::from(offset))?;
        let end = section.offset.checked_add(section.size)?;
        let length = end.checked_sub(start)?.min(SHORT_NAME);
        let bytes = self.data.read_bytes_at_until(start..start + length, 0);
        bytes.ok()
    }

    fn symbols_of<S>(&self, table: &Section<'d>) -> Result<&'d [S], FileDamage>
    where
        S: Sym<Endian = Endianness>,
    {
        if table.kind == elf::SHT_NOBITS {
            return Ok(&[]);
        }
        let count = usize::try_from(table.size / size_of::<S>() as u64).unwrap_or(usize::MAX);
        self.data
            .read_slice_at(table.offset, count)
            .map_err(|()| FileDamage::Outside(FilePart::SymbolTable))
    }

    /// The section that holds a symbol table's names.
    fn strings_of(&self, table: &Section<'d>) -> Result<&Section<'d>, FileDamage> {
        self.sections
            .get(table.link as usize)
            .ok_or(FileDamage::NoStringTable)
    }

    /// Names of some symbols of a table, by their index; empty where there is none.
    pub(crate) fn symbol_names(
        &self,
        table: &Section<'d>,
        indices: &[u32],
    ) -> Result<Vec<&'d [u8]>, FileDamage> {
        if self.is_64 {
            self.symbol_names_of::<elf::Sym64<Endianness>>(table, indices)
        } else {
            self.symbol_names_of::<elf::Sym32<Endianness>>(table, indices)
        }
    }

    fn symbol_names_of<S>(
        &self,
        table: &Section<'d>,
        indices: &[u32],
    ) -> Result<Vec<&'d [u8]>, FileDamage>
    where
        S: Sym<Endian = Endianness>,
    {
        let symbols = self.symbols_of::<S>(table)?;
        let section = self.strings_of(table)?;
        let mut strings = None;
        let mut names = Vec::with_capacity(indices.len());
        for &index in indices {
            let Some(symbol) = symbols.get(index as usize) else {
                names.push(&[][..]);
                continue;
            };
            let at = symbol.st_name(self.endian);
            names.push(match strings {
                Some(strings) => string_at(strings, at),
                None => match self.string_in(section, at) {
                    Some(name) => name,
                    None => string_at(strings.insert(self.bytes(section)?), at),
                },
            });
        }
        Ok(names)
    }

    /// Calls `each` for every relocation with addend of a 64-bit file's section.
    pub(crate) fn slot_relocations(
        &self,
        section: &Section<'d>,
        mut each: impl FnMut(SlotRelocation),
    ) -> Result<(), FileDamage> {
        if !self.is_64 || section.kind != elf::SHT_RELA {
            return Ok(());
        }
        // Each is three words: place, symbol and kind, addend.
        let count = usize::try_from(section.size / 24).unwrap_or(usize::MAX);
        let relocations: &[[U64<Endianness>; 3]] =
            self.data
                .read_slice_at(section.offset, count)
                .map_err(|()| FileDamage::Outside(FilePart::Relocations))?;
        for [slot, info, addend] in relocations {
            let info = info.get(self.endian);
            each(SlotRelocation {
                slot: slot.get(self.endian),
                symbol: (info >> 32) as u32,
                kind: info as u32,
                addend: addend.get(self.endian),
            });
        }
        Ok(())
    }

    /// The GNU build id.
    pub(crate) fn build_id(&self) -> Option<&'d [u8]> {
        // Sections first: in a debug file the segments' offsets are those of the original file.
        let from_sections = self
            .sections
            .iter()
            .filter(|section| section.kind == elf::SHT_NOTE && section.size <= LARGEST_NOTE)
            .take(MOST_NOTES)
            .find_map(|section| {
                gnu_build_id(self.bytes(section).ok()?, section.align, self.endian)
            });
        from_sections.or_else(|| {
            let notes = self.segments.iter().filter(|segment| {
                segment.kind == elf::PT_NOTE && segment.file_size <= LARGEST_NOTE
            });
            notes.take(MOST_NOTES).find_map(|segment| {
                let bytes = self
                    .data
                    .read_bytes_at(segment.offset, segment.file_size)
                    .ok()?;
                gnu_build_id(bytes, segment.align, self.endian)
            })
        })
    }

    /// The name and checksum of the debug file that `.gnu_debuglink` asks for.
    pub(crate) fn debug_link(&self) -> Option<(&'d [u8], u32)> {
        let bytes = self.bytes(self.section_named(b".gnu_debuglink")?).ok()?;
        let name = &bytes[..memchr::memchr(0, bytes)?];
        let at = (name.len() + 1).next_multiple_of(4);
        let (checksum, _) = object::pod::from_bytes::<U32<Endianness>>(bytes.get(at..)?).ok()?;
        Some((name, checksum.get(self.endian)))
    }

    /// The name and build id of the file that `.gnu_debugaltlink` refers to, which holds what several
    /// debug files have in common (dwz makes it).
    pub(crate) fn supplementary_link(&self) -> Option<(&'d [u8], &'d [u8])> {
        let bytes = self.bytes(self.section_named(b".gnu_debugaltlink")?).ok()?;
        let end = memchr::memchr(0, bytes)?;
        Some((&bytes[..end], &bytes[end + 1..]))
    }

    /// Whether addresses have 64 bits (rather than 32).
    pub(crate) fn is_64(&self) -> bool {
        self.is_64
    }

    /// The byte order of the file.
    pub(crate) fn endian(&self) -> Endianness {
        self.endian
    }
}

/// Whether an untyped symbol names code a person would know: no mapping symbols (`$x`, `$d`, ARM and
/// RISC-V), no hidden or file-internal marks that compilers leave behind.
fn names_code(name: &[u8], visibility: elf::SymbolVisibility) -> bool {
    !name.starts_with(b"$")
        && !name.starts_with(b".L")
        && visibility != elf::STV_HIDDEN
        && visibility != elf::STV_INTERNAL
}

/// The NUL-terminated string at an offset; empty when it lies outside or is longer than any real name.
fn string_at(strings: &[u8], offset: u32) -> &[u8] {
    let tail = strings.get(offset as usize..).unwrap_or_default();
    // Bounded, since a hostile table may have a million names that all end far away.
    let tail = &tail[..tail.len().min(LONGEST_NAME)];
    &tail[..memchr::memchr(0, tail).unwrap_or(0)]
}

/// The build id in a run of ELF notes (a note section, or `/sys/kernel/notes`).
pub(crate) fn gnu_build_id(mut notes: &[u8], align: u64, endian: Endianness) -> Option<&[u8]> {
    const NT_GNU_BUILD_ID: u32 = 3;
    let align: usize = if align == 8 { 8 } else { 4 };
    while let Some(header) = notes.get(..12) {
        let word = |at: usize| {
            let bytes = [header[at], header[at + 1], header[at + 2], header[at + 3]];
            match endian {
                Endianness::Little => u32::from_le_bytes(bytes),
                Endianness::Big => u32::from_be_bytes(bytes),
            }
        };
        let (name_len, id_len, kind) = (word(0) as usize, word(4) as usize, word(8));
        let id_at = name_len.checked_add(12)?.checked_next_multiple_of(align)?;
        let name = notes.get(12..)?.get(..name_len)?;
        let id = notes.get(id_at..)?.get(..id_len)?;
        if kind == NT_GNU_BUILD_ID && name == b"GNU\0" && !id.is_empty() {
            return Some(id);
        }
        let next = id_at.checked_add(id_len)?.checked_next_multiple_of(align)?;
        notes = notes.get(next..)?;
    }
    None
}
