//! The file of a pool: a small ELF shared object, linked for one address, without dynamic symbols and relocations.

use super::sections::{self, Contents, sections};
use super::unwinding::UnwindTables;
use object::elf::Machine;

/// The ELF header and seven program headers.
const HEADERS: u64 = 64 + 7 * 56;

/// Returns an ELF file for `machine` with this code, to be loaded at `address`, and its size in memory in bytes. `page`
/// is the size of a page in bytes.
///
/// `tables` makes the unwind tables for the addresses of `.eh_frame` and `.eh_frame_hdr`. The parts of the file are
/// aligned to pages.
pub fn pool_file(
    machine: Machine,
    (address, page): (u64, u64),
    (code_start, code): (u64, &[u8]),
    tables: impl Fn(u64, u64) -> UnwindTables,
) -> (Vec<u8>, u64) {
    let data_start = (code_start + code.len() as u64).next_multiple_of(page);
    let frames_start = data_start + page;
    // The size of `.eh_frame` does not depend on the address of `.eh_frame_hdr`.
    let frames_size = tables(frames_start, frames_start).frames.len() as u64;
    let header_start = (frames_start + frames_size).next_multiple_of(8);
    let tables = tables(frames_start, header_start);
    let contents = Contents {
        address,
        code: (code_start, code_start + code.len() as u64),
        frames: (frames_start, frames_start + frames_size),
    };
    let sections_start = (header_start + tables.header.len() as u64).next_multiple_of(8);
    let (sections, section_headers) = sections(sections_start, &contents);
    let end = sections_start + sections.len() as u64;

    let mut file = vec![0; (end - address) as usize];
    let mut put = |at: u64, bytes: &[u8]| {
        let at = (at - address) as usize;
        file[at..at + bytes.len()].copy_from_slice(bytes);
    };
    put(
        address,
        &headers(
            (machine, page),
            &contents,
            data_start,
            (header_start, sections_start),
            end,
            section_headers,
        ),
    );
    put(code_start, code);
    put(data_start, &dynamic(data_start));
    put(frames_start, &tables.frames);
    put(header_start, &tables.header);
    put(sections_start, &sections);
    (file, (end - address).next_multiple_of(page))
}

fn dynamic(start: u64) -> Vec<u8> {
    const DT_NULL: u64 = 0;
    const DT_STRTAB: u64 = 5;
    const DT_SYMTAB: u64 = 6;
    const DT_STRSZ: u64 = 10;
    const DT_SYMENT: u64 = 11;
    // The tables hold one empty symbol and one empty name.
    let symbols = start + DYNAMIC_SIZE;
    let strings = symbols + 24;
    [
        (DT_STRTAB, strings),
        (DT_SYMTAB, symbols),
        (DT_STRSZ, 1),
        (DT_SYMENT, 24),
        (DT_NULL, 0),
    ]
    .iter()
    .flat_map(|(tag, value)| [tag.to_le_bytes(), value.to_le_bytes()])
    .flatten()
    .chain([0; 32])
    .collect()
}

const DYNAMIC_SIZE: u64 = 5 * 16;

fn headers(
    (machine, page): (Machine, u64),
    contents: &Contents,
    data: u64,
    header: (u64, u64),
    end: u64,
    sections: u64,
) -> Vec<u8> {
    let address = contents.address;
    let (code, code_end) = contents.code;
    let frames = contents.frames.0;
    const LOAD: u32 = 1;
    const DYNAMIC: u32 = 2;
    const GNU_EH_FRAME: u32 = 0x6474_e550;
    const GNU_STACK: u32 = 0x6474_e551;
    const R: u32 = 4;
    const RW: u32 = 6;
    const RX: u32 = 5;
    let data_size = DYNAMIC_SIZE + 32;
    let segments = [
        (LOAD, R, address, HEADERS, page),
        (LOAD, RX, code, code_end - code, page),
        (LOAD, RW, data, data_size, page),
        (LOAD, R, frames, end - frames, page),
        (DYNAMIC, RW, data, DYNAMIC_SIZE, 8),
        (GNU_EH_FRAME, R, header.0, header.1 - header.0, 4),
        (GNU_STACK, RW, address, 0, 16),
    ];
    let mut bytes = Vec::with_capacity(HEADERS as usize);
    bytes.extend(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    // The type of the file: a shared object.
    bytes.extend(3_u16.to_le_bytes());
    bytes.extend(machine.0.to_le_bytes());
    bytes.extend(1_u32.to_le_bytes());
    bytes.extend(0_u64.to_le_bytes());
    bytes.extend(64_u64.to_le_bytes());
    bytes.extend((sections - address).to_le_bytes());
    bytes.extend(0_u32.to_le_bytes());
    for half in [
        64_u16,
        56,
        segments.len() as u16,
        64,
        sections::SECTIONS,
        sections::NAMES,
    ] {
        bytes.extend(half.to_le_bytes());
    }
    for (kind, flags, start, size, align) in segments {
        bytes.extend(kind.to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        let (offset, start) = match kind {
            GNU_STACK => (0, 0),
            _ => (start - address, start),
        };
        for word in [offset, start, start, size, size, align] {
            bytes.extend(word.to_le_bytes());
        }
    }
    bytes
}
