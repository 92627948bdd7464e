//! The section headers of pools. The dynamic linker needs none. Debuggers do: they read a pool from memory and find its
//! code and its unwind tables by the headers.

/// The addresses of a pool's parts.
#[derive(Clone, Copy, Debug)]
pub struct Contents {
    /// The address of the pool.
    pub address: u64,
    /// The first address of the code, and the first address behind it.
    pub code: (u64, u64),
    /// The first address of the unwind tables, and the first address behind them.
    pub frames: (u64, u64),
}

/// The number of section headers: an empty one, code, unwind tables, symbols, symbol names, and section names.
pub const SECTIONS: u16 = 6;
/// The index of the section with the sections' names.
pub const NAMES: u16 = 5;

/// The index of the section with the symbols' names.
const SYMBOL_NAMES: u32 = 4;

/// The names of the sections, one after the other.
///
/// The code is in `.plt`, which elsewhere holds the linker's code. Debuggers that step from line to line go through
/// such code, up to the function that it leads to.
const TEXTS: &[u8] = b"\0.plt\0.eh_frame\0.symtab\0.strtab\0.shstrtab\0\0\0\0\0\0\0";
/// The names of the symbols: one symbol stands for all code.
const SYMBOL_TEXTS: &[u8; 16] = b"\0dioptra_thunks\0";
/// The size of the symbol table in bytes: an empty symbol, and the symbol of the code.
const SYMBOLS_SIZE: usize = 2 * 24;
/// The size of a section header in bytes.
const HEADER_SIZE: usize = 64;
/// The number of bytes in front of the section headers.
const BEFORE: usize = TEXTS.len() + SYMBOL_TEXTS.len() + SYMBOLS_SIZE;
/// The size of names, symbols and headers in bytes.
pub const SIZE: u64 = (BEFORE + SECTIONS as usize * HEADER_SIZE) as u64;

/// Returns the names, the symbols and then the section headers for the address `at`, and the address of the headers.
pub fn sections(at: u64, contents: &Contents) -> (Vec<u8>, u64) {
    const PROGBITS: u32 = 1;
    const SYMTAB: u32 = 2;
    const STRTAB: u32 = 3;
    const ALLOC: u64 = 2;
    const EXECUTABLE: u64 = 4;
    let names = (at, at + TEXTS.len() as u64);
    let texts = (names.1, names.1 + SYMBOL_TEXTS.len() as u64);
    let symbols = (texts.1, texts.1 + SYMBOLS_SIZE as u64);
    let all = [
        (1_u32, PROGBITS, ALLOC | EXECUTABLE, contents.code, 16_u64),
        (6, PROGBITS, ALLOC, contents.frames, 8),
        (16, SYMTAB, 0, symbols, 8),
        (24, STRTAB, 0, texts, 1),
        (32, STRTAB, 0, names, 1),
    ];
    let mut bytes = [TEXTS, SYMBOL_TEXTS, &symbol_table(contents)].concat();
    bytes.extend([0; HEADER_SIZE]);
    for (name, kind, flags, (from, to), align) in all {
        bytes.extend(name.to_le_bytes());
        bytes.extend(kind.to_le_bytes());
        let address = if flags & ALLOC == 0 { 0 } else { from };
        for word in [flags, address, from - contents.address, to - from] {
            bytes.extend(word.to_le_bytes());
        }
        // The header of the symbol table states the section with the names, the first global symbol, and the size of a
        // symbol.
        let (link, info, entry) = match kind {
            SYMTAB => (SYMBOL_NAMES, 1, 24_u64),
            _ => (0_u32, 0_u32, 0),
        };
        bytes.extend(link.to_le_bytes());
        bytes.extend(info.to_le_bytes());
        bytes.extend(align.to_le_bytes());
        bytes.extend(entry.to_le_bytes());
    }
    (bytes, at + BEFORE as u64)
}

/// Returns the symbol table, in which a global function in the first section covers all code.
fn symbol_table(contents: &Contents) -> [u8; SYMBOLS_SIZE] {
    let (from, to) = contents.code;
    let mut table = [0; SYMBOLS_SIZE];
    let name_kind_section = 1 | 0x12 << 32 | 1 << 48;
    let words: [u64; 3] = [name_kind_section, from, to - from];
    for (place, word) in table[24..].chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    table
}

const _: () = assert!(TEXTS.len().is_multiple_of(8) && BEFORE.is_multiple_of(8));
