//! The file of a pool: a small ELF shared object, linked for one address, without dynamic symbols and relocations.
//!
//! The dynamic linker takes the address for which a pool is linked as a wish, and grants it where memory is free. The
//! code that loads the pool checks whether it was granted. The dynamic linker needs no section headers. Debuggers do:
//! they read a pool from memory and find its code and its unwind tables by the headers.

use super::thunks::PoolError;
use super::unwinding::UnwindTables;
use object::Endianness;
use object::elf::*;
use object::write::elf::{FileHeader, ProgramHeader, SectionHeader, Sym, Writer};

/// The largest size in bytes of symbols, names, section headers and the gaps between them.
pub const SECTIONS_SIZE: u64 = 1024;

/// The number of program headers.
const SEGMENTS: u32 = 7;
/// The size in bytes of the dynamic section.
const DYNAMIC_SIZE: u64 = 5 * 16;
/// The size in bytes of the dynamic section and the tables behind it, which hold one empty symbol and one empty name.
const DATA_SIZE: u64 = DYNAMIC_SIZE + 32;

/// Returns the address of a pool's `.eh_frame`. The parts of the file are aligned to pages.
pub fn frames_address(code_end: u64, page: u64) -> u64 {
    code_end.next_multiple_of(page) + page
}

/// Returns an ELF file for `machine` with this code, to be loaded at `address`, and its size in memory in bytes. `page`
/// is the size of a page in bytes, and `tables` lie at [`frames_address`].
///
/// # Errors
/// If a part is too large.
pub fn pool_file(
    machine: Machine,
    (address, page): (u64, u64),
    (code_start, code): (u64, &[u8]),
    tables: &UnwindTables,
) -> Result<(Vec<u8>, u64), PoolError> {
    let code_end = code_start + code.len() as u64;
    let data_start = code_end.next_multiple_of(page);
    let frames_start = frames_address(code_end, page);
    let frames_end = frames_start + tables.frames.len() as u64;
    let header_start = frames_end.next_multiple_of(8);
    let header = tables.header(header_start);
    let header_end = header_start + header.len() as u64;

    let mut file = Vec::new();
    let mut w = Writer::new(Endianness::Little, true, &mut file);
    w.reserve_file_header();
    w.reserve_program_headers(SEGMENTS);
    let headers_end = address + w.reserved_len();
    w.reserve_until(header_end - address);
    // The code is in `.plt`, which elsewhere holds the linker's code. Debuggers that step from line to line go through
    // such code, up to the function that it leads to.
    let names = [".plt", ".eh_frame"].map(|name| w.add_section_name(name.as_bytes()));
    w.reserve_null_section_index();
    let sections = names.map(|_| w.reserve_section_index());
    w.reserve_symtab_section_index();
    w.reserve_strtab_section_index();
    w.reserve_shstrtab_section_index();
    w.reserve_null_symbol_index();
    w.reserve_symbol_index(Some(sections[0]));
    let symbol = w.add_string(b"dioptra_thunks");
    w.reserve_symtab();
    w.reserve_strtab()?;
    w.reserve_shstrtab()?;
    w.reserve_section_headers();
    let end = address + w.reserved_len();

    w.write_file_header(&FileHeader {
        os_abi: ELFOSABI_NONE,
        abi_version: 0,
        e_type: ET_DYN,
        e_machine: machine,
        e_entry: 0,
        e_flags: FileFlags(0),
    })?;
    w.write_align_program_headers();
    let (r, rw, rx) = (PF_R, PF_R | PF_W, PF_R | PF_X);
    for (p_type, p_flags, from, to, p_align) in [
        (PT_LOAD, r, address, headers_end, page),
        (PT_LOAD, rx, code_start, code_end, page),
        (PT_LOAD, rw, data_start, data_start + DATA_SIZE, page),
        (PT_LOAD, r, frames_start, end, page),
        (PT_DYNAMIC, rw, data_start, data_start + DYNAMIC_SIZE, 8),
        (PT_GNU_EH_FRAME, r, header_start, header_end, 4),
        (PT_GNU_STACK, rw, address, address, 16),
    ] {
        let p_vaddr = if p_type == PT_GNU_STACK { 0 } else { from };
        w.write_program_header(&ProgramHeader {
            p_type,
            p_flags,
            p_offset: from - address,
            p_vaddr,
            p_paddr: p_vaddr,
            p_filesz: to - from,
            p_memsz: to - from,
            p_align,
        });
    }
    w.pad_until(code_start - address);
    w.write(code);
    w.pad_until(data_start - address);
    let symbols = data_start + DYNAMIC_SIZE;
    for (tag, value) in [
        (DT_STRTAB, symbols + 24),
        (DT_SYMTAB, symbols),
        (DT_STRSZ, 1),
        (DT_SYMENT, 24),
        (DT_NULL, 0),
    ] {
        w.write(&[tag.0.cast_unsigned().to_le_bytes(), value.to_le_bytes()].concat());
    }
    w.pad_until(frames_start - address);
    w.write(&tables.frames);
    w.pad_until(header_start - address);
    w.write(&header);
    w.write_null_symbol();
    // One global function stands for all code.
    w.write_symbol(&Sym {
        section: Some(sections[0].0),
        st_name: w.string_offset(Some(symbol)),
        st_info: SymbolInfo::new(STB_GLOBAL, STT_FUNC),
        st_other: SymbolOther(0),
        st_shndx: SymbolSection(0),
        st_value: code_start,
        st_size: code.len() as u64,
    });
    w.write_strtab();
    w.write_shstrtab();
    w.write_null_section_header();
    let parts = [
        (SHF_ALLOC | SHF_EXECINSTR, code_start, code_end, 16),
        (SHF_ALLOC, frames_start, frames_end, 8),
    ];
    for (name, (sh_flags, from, to, sh_addralign)) in names.into_iter().zip(parts) {
        w.write_section_header(&SectionHeader {
            sh_name: w.section_name_offset(Some(name)),
            sh_type: SHT_PROGBITS,
            sh_flags,
            sh_addr: from,
            sh_offset: from - address,
            sh_size: to - from,
            sh_link: 0,
            sh_info: 0,
            sh_addralign,
            sh_entsize: 0,
        });
    }
    w.write_symtab_section_header(1);
    w.write_strtab_section_header();
    w.write_shstrtab_section_header();
    Ok((file, (end - address).next_multiple_of(page)))
}
