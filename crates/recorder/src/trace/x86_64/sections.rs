//! The section headers of pools. The dynamic linker needs none; debuggers do: they read a pool from memory and find its
//! code and its unwind tables by them.

/// What is in a pool.
#[derive(Clone, Copy, Debug)]
pub struct Contents {
    /// Where it lies.
    pub address: u64,
    /// Its code: from, to.
    pub code: (u64, u64),
    /// Its unwind tables: from, to.
    pub frames: (u64, u64),
}

/// How many sections there are: none, code, unwind tables, names.
pub const SECTIONS: u16 = 4;
/// The number of the one with the names.
pub const NAMES: u16 = 3;

/// The names, one after the other.
const TEXTS: &[u8] = b"\0.text\0.eh_frame\0.shstrtab\0\0\0\0\0\0";
/// The size of a header.
const HEADER_SIZE: usize = 64;
/// The size of all.
pub const SIZE: u64 = (TEXTS.len() + SECTIONS as usize * HEADER_SIZE) as u64;

/// The names, and behind them the headers, for the place `at`; and where the headers begin.
pub fn sections(at: u64, contents: &Contents) -> (Vec<u8>, u64) {
    const PROGBITS: u32 = 1;
    const STRTAB: u32 = 3;
    const ALLOC: u64 = 2;
    const EXECUTABLE: u64 = 4;
    let names = (at, at + TEXTS.len() as u64);
    let all = [
        (1_u32, PROGBITS, ALLOC | EXECUTABLE, contents.code, 16_u64),
        (7, PROGBITS, ALLOC, contents.frames, 8),
        (17, STRTAB, 0, names, 1),
    ];
    let mut bytes = TEXTS.to_vec();
    bytes.extend([0; HEADER_SIZE]);
    for (name, kind, flags, (from, to), align) in all {
        bytes.extend(name.to_le_bytes());
        bytes.extend(kind.to_le_bytes());
        let address = if flags & ALLOC == 0 { 0 } else { from };
        for word in [flags, address, from - contents.address, to - from] {
            bytes.extend(word.to_le_bytes());
        }
        // No link, no info.
        bytes.extend(0_u64.to_le_bytes());
        bytes.extend(align.to_le_bytes());
        bytes.extend(0_u64.to_le_bytes());
    }
    (bytes, at + TEXTS.len() as u64)
}

const _: () = assert!(TEXTS.len().is_multiple_of(8));
