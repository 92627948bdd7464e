//! The parts of an ELF file that decide where calls can be traced.
//!
//! Addresses are those of the file (virtual addresses), before it is loaded.

use crate::arch::Functions;
use object::elf::{ET_EXEC, FileHeader64, PF_W, PF_X, PT_LOAD};
use object::read::elf::{ElfFile, ElfSection64, FileHeader, ProgramHeader};
use object::{
    Endianness, Object, ObjectSection, ObjectSymbol, ObjectSymbolTable, ReadRef, RelocationFlags,
    RelocationTarget, SymbolKind,
};
use std::collections::{BTreeMap, HashMap};

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

/// The end of the addresses and offsets that segments may have. Sums of addresses and sizes below it do not overflow, and
/// no program has higher ones.
const END: u64 = 1 << 62;

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
        .filter(|segment| {
            let first = segment.address.max(segment.offset);
            first
                .checked_add(segment.file_size)
                .is_some_and(|end| end <= END)
        })
        .collect()
}

/// An ELF file.
pub struct Image<'a> {
    /// The file.
    pub elf: Elf<'a>,
    /// Its loadable segments.
    pub segments: Vec<Segment>,
    data: &'a [u8],
    /// The number of threads that may share work on the file.
    pub threads: usize,
    /// The pointers that the dynamic linker fills with functions: their addresses, and the functions' names.
    pub slots: HashMap<u64, &'a str>,
    /// The slots of functions of other modules that code should only call through: `GLOB_DAT` and `JUMP_SLOT`
    /// relocations of undefined symbols.
    pub imports: HashMap<u64, &'a str>,
    /// The words that the dynamic linker relocates by the load address: their addresses, and the addresses that they
    /// refer to.
    pub relative: BTreeMap<u64, u64>,
    /// The stubs that jump through slots, by address.
    pub stubs: BTreeMap<u64, Stub<'a>>,
}

/// A stub of the procedure linkage table.
#[derive(Clone, Debug)]
pub struct Stub<'a> {
    /// The name of the function that it leads to.
    pub name: &'a str,
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
            threads: 1,
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
    pub fn linked<A: Functions>(
        data: &'a [u8],
        threads: usize,
    ) -> Result<Image<'a>, object::Error> {
        let mut image = Image::new(data)?;
        image.relocations::<A>();
        image.threads = threads;
        image.stubs = image.find_stubs::<A>();
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

    fn relocations<A: Functions>(&mut self) {
        let Some(relocations) = self.elf.dynamic_relocations() else {
            return;
        };
        let symbols = self.elf.dynamic_symbol_table();
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
                        RelocationFlags::Elf { r_type } if A::POINTERS.contains(&r_type)
                    );
                    // The linker leaves symbols whose definition it has not seen without a type.
                    let is_function =
                        matches!(symbol.kind(), SymbolKind::Text | SymbolKind::Unknown);
                    if is_pointer && symbol.is_undefined() && is_function {
                        self.imports.insert(address, name);
                    }
                    self.slots.insert(address, name);
                }
                _ => {
                    if matches!(relocation.flags(), RelocationFlags::Elf { r_type } if r_type == A::RELATIVE)
                    {
                        self.relative.insert(address, relocation.addend() as u64);
                    }
                }
            }
        }
    }

    /// Returns the sections with these names, and their bytes. Leaves out further ones where they have more bytes than
    /// the file: sections overlap in files that are made to do harm.
    fn named_sections<'s>(
        &'s self,
        names: &'s [&str],
    ) -> impl Iterator<Item = (ElfSection64<'a, 's, Endianness>, &'a [u8])> {
        let mut left = self.data.len();
        self.elf.sections().filter_map(move |section| {
            let is_wanted = section.name().is_ok_and(|name| names.contains(&name));
            let bytes = is_wanted.then(|| section.data().ok()).flatten()?;
            left = left.checked_sub(bytes.len())?;
            Some((section, bytes))
        })
    }

    /// Returns the stubs of the procedure linkage table. The relocations are known.
    fn find_stubs<A: Functions>(&self) -> BTreeMap<u64, Stub<'a>> {
        let mut stubs = BTreeMap::new();
        for (section, bytes) in self.named_sections(&[".plt", ".plt.sec", ".plt.got"]) {
            for (start, jump, pointer) in A::stubs(bytes, section.address()) {
                if let Some(name) = self.slots.get(&pointer).copied() {
                    let stub = Stub {
                        name,
                        jump,
                        pointer,
                    };
                    stubs.insert(start, stub);
                }
            }
        }
        stubs
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
        for (section, data) in self.named_sections(&[name]) {
            for (at, word) in data.chunks_exact(8).enumerate() {
                let stored = word.try_into().map_or(0, u64::from_le_bytes);
                let place = section.address().wrapping_add(8 * at as u64);
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
