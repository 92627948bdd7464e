//! Names for the procedure linkage table (`puts@plt`), read from its instructions.
//!
//! Layouts differ by linker, flags and year (lazy or not, with or without branch-target marks, a
//! second table, entries without relocation order), so nothing is inferred from an entry's position:
//! each entry is decoded down to the slot it jumps through, and the relocation of that slot names it.

use object::elf;
use object::endian::Endianness;
use object::read::ReadRef;

use crate::cause::FileDamage;
use crate::elf::{CodeSymbol, Image, Section, SlotRelocation};
use crate::table::Binding;

/// More relocation sections than any linker writes; a hostile file may have as many as it likes.
const MOST_RELOCATION_SECTIONS: usize = 8;

/// An entry whose callee is known.
pub(crate) struct PltEntry<'d> {
    pub address: u64,
    pub size: u64,
    pub section_end: u64,
    pub callee: Callee<'d>,
}

/// The function that an entry calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Callee<'d> {
    /// The function of this name, wherever it is found.
    Named(&'d [u8]),
    /// The function that the resolver at this address of the same file chooses when the file is loaded.
    ChosenBy(u64),
}

impl PltEntry<'_> {
    /// The entry as a symbol with the name of what it calls.
    pub(crate) fn symbol<'n>(&self, name: &'n [u8]) -> CodeSymbol<'n> {
        CodeSymbol {
            address: self.address,
            size: self.size,
            section_end: self.section_end,
            binding: Binding::Local,
            is_function: true,
            file: &[],
            name,
        }
    }
}

/// The way in which an entry finds its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    /// Jumps through the slot at this address.
    Slot(u64),
    /// Pushes the index of its relocation in `.rela.plt` (the first half of a lazy entry).
    Index(u32),
}

struct Found {
    address: u64,
    size: u64,
    section_end: u64,
    target: Target,
}

/// The entries with known callees of all procedure linkage tables. Empty for machines whose code isn't known here.
pub(crate) fn entries<'d, R: ReadRef<'d>>(
    image: &Image<'d, R>,
) -> Result<Vec<PltEntry<'d>>, FileDamage> {
    let decode = match image.machine {
        elf::EM_X86_64 => decode_x86_64,
        elf::EM_AARCH64 if image.endian() == Endianness::Little => decode_aarch64,
        _ => return Ok(Vec::new()),
    };
    let mut found = Vec::new();
    for name in [
        &b".plt"[..],
        b".plt.sec",
        b".plt.got",
        b".plt.bnd",
        b".iplt",
    ] {
        if let Some(section) = image.section_named(name) {
            decode(image.bytes(section)?, section, &mut found);
        }
    }
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let symbols = relocated_by(image, &mut found)?;
    name_entries(image, &found, &symbols)
}

/// Finds the relocation behind every entry.
fn relocated_by<'d, R: ReadRef<'d>>(
    image: &Image<'d, R>,
    found: &mut [Found],
) -> Result<Vec<Option<SlotRelocation>>, FileDamage> {
    let sections = image
        .sections
        .iter()
        .filter(|section| section.kind == elf::SHT_RELA);
    let sections: Vec<&Section<'d>> = sections.take(MOST_RELOCATION_SECTIONS).collect();

    // Indices first: they become slots.
    if let Some(plt) = sections.iter().find(|section| section.name == b".rela.plt") {
        let mut slots = Vec::new();
        image.slot_relocations(plt, |relocation| slots.push(relocation.slot))?;
        for entry in found.iter_mut() {
            if let Target::Index(index) = entry.target {
                // An index beyond the table leaves a slot that nothing relocates.
                entry.target = Target::Slot(slots.get(index as usize).copied().unwrap_or(u64::MAX));
            }
        }
    }
    let slot_of = |entry: &Found| match entry.target {
        Target::Slot(slot) => slot,
        Target::Index(_) => u64::MAX,
    };
    let mut wanted: Vec<(u64, Option<SlotRelocation>)> =
        found.iter().map(|entry| (slot_of(entry), None)).collect();
    wanted.sort_unstable_by_key(|&(slot, _)| slot);
    wanted.dedup_by_key(|&mut (slot, _)| slot);
    for section in sections {
        image.slot_relocations(section, |relocation| {
            if let Ok(at) = wanted.binary_search_by_key(&relocation.slot, |&(slot, _)| slot) {
                wanted[at].1.get_or_insert(relocation);
            }
        })?;
    }
    let relocation = |entry: &Found| {
        let at = wanted
            .binary_search_by_key(&slot_of(entry), |&(slot, _)| slot)
            .ok()?;
        wanted[at].1
    };
    Ok(found.iter().map(relocation).collect())
}

/// Gives each entry what its relocation tells.
fn name_entries<'d, R: ReadRef<'d>>(
    image: &Image<'d, R>,
    found: &[Found],
    relocations: &[Option<SlotRelocation>],
) -> Result<Vec<PltEntry<'d>>, FileDamage> {
    let indices: Vec<u32> = relocations
        .iter()
        .map(|relocation| relocation.map_or(0, |r| r.symbol))
        .collect();
    let names = match image.section_of_kind(elf::SHT_DYNSYM) {
        Some(table) => image.symbol_names(table, &indices)?,
        None => vec![&[][..]; indices.len()],
    };
    let irelative = match image.machine {
        elf::EM_AARCH64 => elf::R_AARCH64_IRELATIVE.0,
        _ => elf::R_X86_64_IRELATIVE.0,
    };
    let mut entries = Vec::new();
    for ((entry, relocation), name) in found.iter().zip(relocations).zip(names) {
        let callee = match relocation {
            Some(relocation) if relocation.kind == irelative => Callee::ChosenBy(relocation.addend),
            Some(_) if !name.is_empty() => Callee::Named(name),
            _ => continue,
        };
        entries.push(PltEntry {
            address: entry.address,
            size: entry.size,
            section_end: entry.section_end,
            callee,
        });
    }
    Ok(entries)
}

/// Entries of 8 or 16 bytes: an optional branch-target mark (`endbr64`) and an optional `bnd` prefix
/// before `jmp *slot(%rip)`; or, where the jump is in `.plt.sec`, before `push $index`.
fn decode_x86_64(code: &[u8], section: &Section<'_>, found: &mut Vec<Found>) {
    let size = if section.entry_size == 8 { 8 } else { 16 };
    let section_end = section.address.saturating_add(section.size);
    for (entry, address) in code
        .chunks_exact(size)
        .zip((section.address..).step_by(size))
    {
        let body = entry.strip_prefix(b"\xf3\x0f\x1e\xfa").unwrap_or(entry);
        let jump = body.strip_prefix(b"\xf2").unwrap_or(body);
        let target = match (jump, body) {
            ([0xff, 0x25, a, b, c, d, ..], _) => {
                let after = address.wrapping_add((size - jump.len() + 6) as u64);
                let distance = i32::from_le_bytes([*a, *b, *c, *d]);
                Target::Slot(after.wrapping_add_signed(i64::from(distance)))
            }
            (_, [0x68, a, b, c, d, ..]) => Target::Index(u32::from_le_bytes([*a, *b, *c, *d])),
            _ => continue,
        };
        found.push(Found {
            address,
            size: size as u64,
            section_end,
            target,
        });
    }
}

/// `adrp x16, page; ldr x17, [x16, #offset]; add x16, …; br x17`, perhaps after `bti c`.
fn decode_aarch64(code: &[u8], section: &Section<'_>, found: &mut Vec<Found>) {
    const BTI_C: u32 = 0xd503_245f;
    let section_end = section.address.saturating_add(section.size);
    let words: Vec<u32> = code
        .chunks_exact(4)
        .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
        .collect();
    for (index, pair) in words.windows(2).enumerate() {
        let (adrp, ldr) = (pair[0], pair[1]);
        if adrp & 0x9f00_001f != 0x9000_0010 || ldr & 0xffc0_03ff != 0xf940_0211 {
            continue;
        }
        let at = section.address.wrapping_add(index as u64 * 4);
        // 21 bits, in units of pages: two low ones at bit 29, nineteen at bit 5.
        let pages = u64::from((adrp >> 29) & 3 | ((adrp >> 5) & 0x7_ffff) << 2);
        let distance = ((pages << 43) as i64 >> 43) << 12;
        let page = (at & !0xfff).wrapping_add_signed(distance);
        let slot = page.wrapping_add(u64::from((ldr >> 10) & 0xfff) * 8);
        let marked = index > 0 && words[index - 1] == BTI_C;
        let (address, size) = if marked { (at - 4, 24) } else { (at, 16) };
        found.push(Found {
            address,
            size,
            section_end,
            target: Target::Slot(slot),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(address: u64, size: u64, entry_size: u64) -> Section<'static> {
        Section {
            name: b".plt",
            kind: elf::SHT_PROGBITS,
            executable: true,
            compressed: false,
            address,
            offset: 0,
            size,
            link: 0,
            entry_size,
            align: 16,
        }
    }

    #[test]
    fn aarch64_entries_are_decoded() {
        // As binutils 2.40 links them: a 32-byte header, then 16 bytes an entry.
        let words: [u32; 12] = [
            0xa9bf_7bf0,
            0xf000_00f0,
            0xf947_fe11,
            0x913f_e210,
            0xd61f_0220,
            0xd503_201f,
            0xd503_201f,
            0xd503_201f,
            0x9000_0110,
            0xf940_0211,
            0x9100_0210,
            0xd61f_0220,
        ];
        let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut found = Vec::new();
        decode_aarch64(&code, &section(0x5d0, 48, 16), &mut found);
        let entry = found
            .last()
            .map(|entry| (entry.address, entry.size, entry.target));
        assert_eq!(entry, Some((0x5f0, 16, Target::Slot(0x20000))));
    }

    #[test]
    fn x86_64_first_entry_has_no_target_of_its_own() {
        let header = *b"\xff\x35\xe2\x2f\x00\x00\xff\x25\xe4\x2f\x00\x00\x0f\x1f\x40\x00";
        let mut found = Vec::new();
        decode_x86_64(&header, &section(0x1020, 16, 16), &mut found);
        assert!(found.is_empty());
    }
}
