//! Stubs of the procedure linkage table, and the names of called functions.

use crate::analysis::image::{Image, Stub};
use iced_x86::{Code, Decoder, DecoderOptions, Instruction, OpKind};
use object::{Object, ObjectSection};
use std::collections::BTreeMap;

/// `endbr64`, which marks the targets of indirect branches.
pub const ENDBR: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];

/// Returns the stubs of an image whose relocations are known, by their addresses.
pub fn stubs(image: &Image<'_>) -> BTreeMap<u64, Stub> {
    let mut stubs = BTreeMap::new();
    for section in image.elf.sections() {
        let Ok(".plt" | ".plt.sec" | ".plt.got") = section.name() else {
            continue;
        };
        let Ok(bytes) = section.data() else { continue };
        let mut decoder = Decoder::with_ip(64, bytes, section.address(), DecoderOptions::NONE);
        let mut start = section.address();
        while decoder.can_decode() {
            let instruction = decoder.decode();
            if instruction.code() == Code::Endbr64 {
                start = instruction.ip();
                continue;
            }
            if instruction.code() == Code::Jmp_rm64
                && instruction.is_ip_rel_memory_operand()
                && let Some(name) = image.slots.get(&instruction.ip_rel_memory_address())
            {
                let stub = Stub {
                    name: name.clone(),
                    jump: instruction.ip(),
                    pointer: instruction.ip_rel_memory_address(),
                };
                stubs.insert(start.min(instruction.ip()), stub);
            }
            start = instruction.next_ip();
        }
    }
    stubs
}

/// Returns the name of the function of another module that an instruction calls.
pub fn called<'i>(image: &'i Image<'_>, instruction: &Instruction) -> Option<&'i str> {
    if instruction.op0_kind() == OpKind::NearBranch64 {
        let stub = image.stubs.get(&instruction.near_branch_target())?;
        return Some(&stub.name);
    }
    if instruction.is_ip_rel_memory_operand() {
        return image
            .slots
            .get(&instruction.ip_rel_memory_address())
            .map(String::as_str);
    }
    None
}
