//! Stubs of the procedure linkage table, and the names of called functions.

use crate::analysis::image::Image;
use iced_x86::{Instruction, OpKind};

/// `endbr64`, which marks the targets of indirect branches.
const ENDBR: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];

/// Returns the size in bytes of the mark at a function's start, if there is one.
pub fn landing(code: &[u8]) -> usize {
    match code.starts_with(ENDBR) {
        true => ENDBR.len(),
        false => 0,
    }
}

/// Returns the name of the function of another module that an instruction calls.
pub fn called<'i>(image: &'i Image<'_>, instruction: &Instruction) -> Option<&'i str> {
    if instruction.op0_kind() == OpKind::NearBranch64 {
        let stub = image.stubs.get(&instruction.near_branch_target())?;
        return Some(stub.name);
    }
    if instruction.is_ip_rel_memory_operand() {
        return image
            .slots
            .get(&instruction.ip_rel_memory_address())
            .copied();
    }
    None
}
