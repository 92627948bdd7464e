//! Code that changes while the program runs, or when it is loaded: the tracer does not move its instructions.
//!
//! A plain function is traced by a jump in the place of its first instructions, which are executed elsewhere. A program
//! that writes to these instructions would write into the jump. The tracer copies the instructions from the file, but
//! the dynamic linker may have changed them in memory. Code that a program makes at run time belongs to no file, and is
//! never looked at.

use super::candidates::{CandidateBody, ModuleCode};
use super::refusal::Refused;
use crate::arch::Code;
use object::Endianness;
use object::elf::{DF_TEXTREL, DT_FLAGS, DT_TEXTREL, FileHeader64};
use object::read::ReadRef;
use object::read::elf::{Dyn, ElfFile, ProgramHeader};

/// Returns whether the dynamic linker changes a module's code (text relocations).
pub fn is_relocated<'d, R: ReadRef<'d>>(elf: &ElfFile<'d, FileHeader64<Endianness>, R>) -> bool {
    let (endian, data) = (elf.endian(), elf.data());
    let headers = elf.elf_program_headers().iter();
    let mut entries = headers
        .filter_map(|header| header.dynamic(endian, data).ok().flatten())
        .flatten();
    entries.any(|entry| match entry.tag(endian) {
        DT_TEXTREL => true,
        DT_FLAGS => entry.val(endian) & DF_TEXTREL.0 != 0,
        _ => false,
    })
}

/// Refuses the functions whose first instructions would have to be moved, although they change.
pub fn refuse<A: Code>(code: &mut ModuleCode<A>, is_relocated: bool) {
    let segments = &code.segments;
    let is_writable = |address: u64| {
        let mut inside = segments
            .iter()
            .filter(|segment| address.wrapping_sub(segment.address) < segment.file_size);
        inside.any(|segment| segment.writable)
    };
    let refused = &mut code.refused;
    code.candidates.retain(|candidate| {
        let why = match candidate.body {
            CandidateBody::Displaced(_) if is_relocated => Refused::Relocated,
            CandidateBody::Displaced(_) if is_writable(candidate.site) => Refused::Written,
            _ => return true,
        };
        refused.push((candidate.start, why));
        false
    });
    refused.sort_unstable();
}
