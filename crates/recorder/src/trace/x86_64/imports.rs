//! Calls of other modules' functions that pass by the procedure linkage table: through the pointer that the dynamic
//! linker has filled (`call *f@GOT(%rip)`), as `gcc -fno-plt` and rustc make them.
//!
//! The pointers are left alone, since programs compare them: it is the calls that are patched. Where they are is known
//! if the functions that they are in are, so that no data is taken for code.

use super::described::Described;
use super::image::Image;
use super::special::is_special;
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, OpKind, Register};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// The size of a call or a jump through a pointer.
const SIZE: u64 = 6;

/// A call, or a jump, through a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImportSite {
    /// Where it is.
    pub at: u64,
    /// Whether it is a jump: a function's last call.
    pub is_jump: bool,
}

impl ImportSite {
    /// Whether code at an address, so many bytes of it, is a part of it.
    pub fn overlaps(&self, address: u64, size: u64) -> bool {
        self.at < address.wrapping_add(size) && address < self.at + SIZE
    }

    /// The same at the distance at which the module was loaded.
    pub fn rebase(self, bias: u64) -> ImportSite {
        ImportSite {
            at: self.at.wrapping_add(bias),
            ..self
        }
    }

    /// What leads to `target` directly in its place, if that is near.
    pub fn direct(&self, target: u64) -> Option<[u8; SIZE as usize]> {
        // A prefix, or a `nop` behind, makes it as long as it was.
        let (code, behind): ([u8; 2], _) = match self.is_jump {
            true => ([0xe9, 0x90], self.at + SIZE - 1),
            false => ([0x67, 0xe8], self.at + SIZE),
        };
        let [a, b, c, d] = super::thunk::distance(behind, target)?;
        Some(match self.is_jump {
            true => [code[0], a, b, c, d, code[1]],
            false => [code[0], code[1], a, b, c, d],
        })
    }
}

/// Calls through pointers.
#[derive(Debug, Default)]
pub struct ImportCalls {
    /// By the pointer.
    pub sites: BTreeMap<u64, Vec<ImportSite>>,
    /// Functions whose addresses are loaded, to be called through a register.
    pub through_registers: BTreeSet<String>,
}

/// Finds them.
pub fn import_calls(image: &Image<'_>, described: &[Described]) -> ImportCalls {
    let mut calls = ImportCalls::default();
    if image.imports.values().all(|name| is_special(name)) {
        return calls;
    }
    let stubs: HashSet<u64> = image.stubs.values().map(|stub| stub.jump.ip()).collect();
    let mut hits = hits(image).into_iter().peekable();
    for function in described {
        while hits.next_if(|hit| *hit < function.start).is_some() {}
        let mut inside = HashSet::new();
        while let Some(hit) = hits.next_if(|hit| function.contains(*hit)) {
            if !stubs.contains(&hit) {
                inside.insert(hit);
            }
        }
        if !inside.is_empty() {
            decode(image, function, &inside, &mut calls);
        }
    }
    calls
}

/// Where bytes look like an instruction that uses a pointer to a function, by address: most functions need not be
/// decoded.
fn hits(image: &Image<'_>) -> Vec<u64> {
    let mut hits = Vec::new();
    for segment in image.segments.iter().filter(|s| s.executable) {
        let bytes = image
            .bytes(segment.address, segment.file_size)
            .unwrap_or_default();
        for (at, window) in bytes.windows(7).enumerate() {
            let (skip, [a, b, c, d]) = match *window {
                [0xff, 0x15 | 0x25, a, b, c, d, _] => (0, [a, b, c, d]),
                [0x48 | 0x4c, 0x8b, to, a, b, c, d] if to & 0xc7 == 0x05 => (1, [a, b, c, d]),
                _ => continue,
            };
            let address = segment.address + at as u64;
            let distance = i64::from(i32::from_le_bytes([a, b, c, d]));
            let pointer = (address + SIZE + skip).wrapping_add_signed(distance);
            if image.imports.contains_key(&pointer) {
                hits.push(address);
            }
        }
    }
    hits.sort_unstable();
    hits
}

fn decode(image: &Image<'_>, function: &Described, hits: &HashSet<u64>, calls: &mut ImportCalls) {
    let Some(bytes) = image.bytes(function.start, function.size) else {
        return;
    };
    let mut decoder = Decoder::with_ip(64, bytes, function.start, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    let mut found = Vec::new();
    let mut loaded: Vec<(Register, &str)> = Vec::new();
    let mut called: HashSet<Register> = HashSet::new();
    let mut targets = BTreeSet::new();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        let flow = instruction.flow_control();
        if instruction.op0_kind() == OpKind::NearBranch64 && flow != FlowControl::Call {
            targets.insert(instruction.near_branch_target());
        }
        let is_indirect = matches!(
            flow,
            FlowControl::IndirectCall | FlowControl::IndirectBranch
        );
        if is_indirect && instruction.op0_kind() == OpKind::Register {
            called.insert(instruction.op0_register());
        }
        if !hits.contains(&instruction.ip()) || !instruction.is_ip_rel_memory_operand() {
            continue;
        }
        let pointer = instruction.ip_rel_memory_address();
        let name = image.imports.get(&pointer);
        let Some(name) = name.filter(|name| !is_special(name)) else {
            continue;
        };
        if instruction.code() == Code::Mov_r64_rm64 {
            loaded.push((instruction.op0_register(), name));
        } else if is_indirect && instruction.len() as u64 == SIZE {
            let site = ImportSite {
                at: instruction.ip(),
                is_jump: flow == FlowControl::IndirectBranch,
            };
            found.push((pointer, site));
        }
    }
    for (pointer, site) in found {
        // Somebody who knows what he does may jump into it.
        if targets.range(site.at + 1..site.at + SIZE).next().is_none() {
            calls.sites.entry(pointer).or_default().push(site);
        }
    }
    let loaded = loaded
        .into_iter()
        .filter(|(register, _)| called.contains(register));
    calls
        .through_registers
        .extend(loaded.map(|(_, name)| name.to_owned()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_the_place_of_a_call_is_as_long_and_leads_to_the_target() {
        for (is_jump, code) in [(false, Code::Call_rel32_64), (true, Code::Jmp_rel32_64)] {
            let site = ImportSite {
                at: 0x1000,
                is_jump,
            };
            let bytes = site.direct(0x9000).unwrap();
            let instruction = Decoder::with_ip(64, &bytes, 0x1000, DecoderOptions::NONE).decode();
            assert_eq!(instruction.code(), code);
            assert_eq!(instruction.near_branch_target(), 0x9000);
            assert!(is_jump || instruction.next_ip() == 0x1006);
            assert_eq!(site.direct(0x9000_0000_0000), None);
        }
    }
}
