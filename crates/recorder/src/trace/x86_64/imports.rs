//! Calls of other modules' functions that pass by the procedure linkage table: through the pointer that the dynamic
//! linker has filled (`call *f@GOT(%rip)`), as `gcc -fno-plt` and rustc make them.
//!
//! The pointers are left alone, since programs compare them: it is the calls that are patched. Where they are is known
//! if the functions that they are in are, so that no data is taken for code.

use super::described::Described;
use super::image::Image;
use super::loads::{FunctionCode, landing_pads};
use super::special::is_special;
use super::thunk::distance;
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, OpKind, Register};
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// An instruction that uses a pointer to a library function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImportSite {
    /// Where it is.
    pub at: u64,
    /// What it does.
    pub usage: ImportUse,
}

/// What is done with a pointer to a library function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportUse {
    /// It is called.
    Call,
    /// It is jumped to: a function's last call.
    Jump,
    /// It is loaded into a register, and then only called. With the instruction's bytes that say which.
    Load([u8; 2]),
}

impl ImportSite {
    /// Its size in bytes.
    pub fn size(&self) -> u64 {
        match self.usage {
            ImportUse::Call | ImportUse::Jump => 6,
            ImportUse::Load(_) => 7,
        }
    }

    /// Whether code at an address, so many bytes of it, is a part of it.
    pub fn overlaps(&self, address: u64, size: u64) -> bool {
        self.at < address.wrapping_add(size) && address < self.at + self.size()
    }

    /// The same at the distance at which the module was loaded.
    pub fn rebase(self, bias: u64) -> ImportSite {
        ImportSite {
            at: self.at.wrapping_add(bias),
            ..self
        }
    }

    /// What does the same with `target` itself in its place, if that is near.
    pub fn direct(&self, target: u64) -> Option<Vec<u8>> {
        // A prefix, or a `nop` behind, makes it as long as it was.
        let (front, back): (&[u8], &[u8]) = match &self.usage {
            ImportUse::Call => (&[0x67, 0xe8], &[]),
            ImportUse::Jump => (&[0xe9], &[0x90]),
            ImportUse::Load([prefix, register]) => (&[*prefix, 0x8d, *register], &[]),
        };
        let behind = self.at + front.len() as u64 + 4;
        let distance = distance(behind, target)?;
        Some([front, &distance, back].concat())
    }
}

/// Calls through pointers.
#[derive(Debug, Default)]
pub struct ImportCalls {
    /// By the pointer.
    pub sites: BTreeMap<u64, Vec<ImportSite>>,
    /// Functions whose addresses are loaded and called in ways that can't be followed.
    pub through_registers: BTreeSet<String>,
}

/// Finds them.
pub fn import_calls(image: &Image<'_>, described: &[Described]) -> ImportCalls {
    let mut calls = ImportCalls::default();
    // Hooks of compilers are among the others: each function calls them.
    let wanted = image.imports.iter().filter(|(_, name)| !is_special(name));
    let wanted: HashSet<u64> = wanted.map(|(pointer, _)| *pointer).collect();
    if wanted.is_empty() {
        return calls;
    }
    let stubs: HashSet<u64> = image.stubs.values().map(|stub| stub.jump).collect();
    let mut hits = hits(image, &wanted).into_iter().peekable();
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

/// Where bytes look like an instruction that uses one of the pointers, by address: most functions need not be decoded.
fn hits(image: &Image<'_>, pointers: &HashSet<u64>) -> Vec<u64> {
    let first = pointers.iter().min().copied().unwrap_or(u64::MAX);
    let last = pointers.iter().max().copied().unwrap_or(0);
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
            let pointer = (address + 6 + skip).wrapping_add_signed(distance);
            if (first..=last).contains(&pointer) && pointers.contains(&pointer) {
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
    let instructions: Vec<Instruction> =
        Decoder::with_ip(64, bytes, function.start, DecoderOptions::NONE)
            .into_iter()
            .collect();
    let targets: BTreeSet<u64> = instructions
        .iter()
        .filter(|i| i.op0_kind() == OpKind::NearBranch64 && i.flow_control() != FlowControl::Call)
        .map(Instruction::near_branch_target)
        .collect();
    let called: HashSet<Register> = instructions
        .iter()
        .filter(|i| is_indirect(i) && i.op0_kind() == OpKind::Register)
        .map(Instruction::op0_register)
        .collect();
    let code = OnceCell::new();
    let function_code = || {
        let made = || FunctionCode::new(&instructions, landing_pads(image, function));
        code.get_or_init(made)
    };
    for instruction in &instructions {
        let at = instruction.ip();
        if !hits.contains(&at) || !instruction.is_ip_rel_memory_operand() {
            continue;
        }
        let pointer = instruction.ip_rel_memory_address();
        let name = image.imports.get(&pointer);
        let Some(name) = name.filter(|name| !is_special(name)) else {
            continue;
        };
        let usage = match (instruction.code(), image.bytes(at, 3)) {
            (Code::Call_rm64, _) => ImportUse::Call,
            (Code::Jmp_rm64, _) => ImportUse::Jump,
            (Code::Mov_r64_rm64, Some([prefix, _, register])) => {
                if !called.contains(&instruction.op0_register()) {
                    continue;
                }
                if !function_code().is_only_called(at) {
                    if function_code().may_be_called(at) {
                        calls.through_registers.insert(name.clone());
                    }
                    continue;
                }
                ImportUse::Load([*prefix, *register])
            }
            _ => continue,
        };
        let site = ImportSite { at, usage };
        let inside = at + 1..at + site.size();
        // Somebody who knows what he does may jump into it.
        let is_plain = site.size() == instruction.len() as u64;
        if is_plain && targets.range(inside).next().is_none() {
            calls.sites.entry(pointer).or_default().push(site);
        }
    }
}

fn is_indirect(instruction: &Instruction) -> bool {
    matches!(
        instruction.flow_control(),
        FlowControl::IndirectCall | FlowControl::IndirectBranch
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_the_place_of_a_call_is_as_long_and_leads_to_the_target() {
        for (usage, code) in [
            (ImportUse::Call, Code::Call_rel32_64),
            (ImportUse::Jump, Code::Jmp_rel32_64),
            // mov r12, [rip + …]
            (ImportUse::Load([0x4c, 0x25]), Code::Lea_r64_m),
        ] {
            let site = ImportSite { at: 0x1000, usage };
            let bytes = site.direct(0x9000).unwrap();
            assert_eq!(bytes.len() as u64, site.size());
            let instruction = Decoder::with_ip(64, &bytes, 0x1000, DecoderOptions::NONE).decode();
            assert_eq!(instruction.code(), code);
            let target = match usage {
                ImportUse::Load(_) => instruction.ip_rel_memory_address(),
                _ => instruction.near_branch_target(),
            };
            assert_eq!(target, 0x9000);
            assert!(usage == ImportUse::Jump || instruction.next_ip() == 0x1000 + site.size());
            assert_eq!(site.direct(0x9000_0000_0000), None);
        }
    }
}
