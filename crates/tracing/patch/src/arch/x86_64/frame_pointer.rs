//! Functions that treat the frame pointer as the ABI asks: they neither use nor change their caller's value.
//!
//! While a traced function runs, it finds another value there than its caller left (`hot`). When it returns, the caller
//! gets its own value back. Functions of compilers never notice: they save the register before they use it, and restore
//! it. Assembler code has conventions of its own now and then. Code that asks for the address of the caller's frame
//! (`__builtin_frame_address(1)`) looks at the saved value.

use crate::analysis::described::{Described, Slot};
use crate::analysis::image::Image;
use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic,
    OpAccess, OpKind, Register,
};
use std::collections::HashSet;

/// The largest number of instructions of a function that are looked at. An instruction counts once in each state.
const MOST_INSTRUCTIONS: usize = 1 << 16;

/// The use of the frame pointer by an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    None,
    /// The instruction saves the value on the stack.
    Save,
    /// The instruction overwrites the value, except perhaps its upper bits, without using it.
    Write,
    /// The instruction uses the value in any other way.
    Read,
}

fn is_frame_pointer(register: Register) -> bool {
    register.full_register() == Register::RBP
}

fn used(instruction: &Instruction) -> Use {
    let code = instruction.code();
    // All instructions come here, and most have nothing to do with the frame pointer.
    let is_operand = (0..instruction.op_count()).any(|operand| {
        instruction.op_kind(operand) == OpKind::Register
            && is_frame_pointer(instruction.op_register(operand))
    });
    let is_address =
        is_frame_pointer(instruction.memory_base()) || is_frame_pointer(instruction.memory_index());
    let is_implied = matches!(code.mnemonic(), Mnemonic::Leave | Mnemonic::Enter);
    if !is_operand && !is_address && !is_implied {
        return Use::None;
    }
    match code {
        Code::Nop_rm16 | Code::Nop_rm32 | Code::Nop_rm64 => return Use::None,
        Code::Push_r64 => return Use::Save,
        Code::Mov_rm64_r64 if instruction.memory_base() == Register::RSP && !is_address => {
            return Use::Save;
        }
        _ => {}
    }
    let mut factory = InstructionInfoFactory::new();
    let registers = factory.info(instruction).used_registers().iter();
    let is_written = registers
        .filter(|register| is_frame_pointer(register.register()))
        .all(|register| register.access() == OpAccess::Write);
    if is_written { Use::Write } else { Use::Read }
}

/// A watch over the instructions of a function, in the order in which they lie, for those that need a closer look.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watch {
    is_saved: bool,
    /// Whether an instruction uses the frame pointer before it is saved, as most functions do not.
    pub is_odd: bool,
}

impl Watch {
    /// Returns whether no instruction has used the frame pointer yet.
    pub fn is_untouched(&self) -> bool {
        !self.is_saved && !self.is_odd
    }

    /// Takes in the next instruction.
    pub fn see(&mut self, instruction: &Instruction) {
        if self.is_saved || self.is_odd {
            return;
        }
        match used(instruction) {
            Use::None => {}
            Use::Save => self.is_saved = true,
            Use::Write | Use::Read => self.is_odd = true,
        }
    }
}

/// Returns whether an instruction looks at the saved frame pointer of the caller, other than to restore it.
///
/// The saved value lies below the return address, where the frame pointer leads. The instruction may also use a copy of
/// the frame pointer that the instruction before has made.
pub fn looks_at_saved(instruction: &Instruction, before: &Instruction, slot: Slot) -> bool {
    let is_copied = matches!(before.code(), Code::Mov_rm64_r64 | Code::Mov_r64_rm64)
        && before.op0_kind() == OpKind::Register
        && before.op1_kind() == OpKind::Register
        && before.op1_register() == Register::RBP;
    let copy = if is_copied {
        before.op0_register()
    } else {
        Register::RBP
    };
    slot == Slot::AboveFramePointer(8)
        && [Register::RBP, copy].contains(&instruction.memory_base())
        && instruction.memory_index() == Register::None
        && instruction.memory_displacement64() == 0
        && instruction.op_kinds().any(|kind| kind == OpKind::Memory)
        && !matches!(
            instruction.code(),
            Code::Nop_rm16 | Code::Nop_rm32 | Code::Nop_rm64 | Code::Lea_r64_m
        )
}

/// Returns whether a function uses its caller's frame pointer, or returns with another one.
///
/// Branches through tables are not followed. Neither is code behind the instruction that saves the value: the later
/// uses of the register by compilers do not depend on it, but they copy it about where it is undefined.
pub fn uses_callers(image: &Image<'_>, function: &Described) -> bool {
    let mut open = vec![(function.start, false)];
    let mut seen = HashSet::new();
    let mut instruction = Instruction::default();
    // Each place to look at comes with a flag: whether the caller's value is overwritten there.
    while let Some((start, mut is_lost)) = open.pop() {
        let size = function.end().saturating_sub(start);
        let Some(bytes) = image.bytes(start, size) else {
            continue;
        };
        let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            if seen.len() > MOST_INSTRUCTIONS || !seen.insert((instruction.ip(), is_lost)) {
                break;
            }
            match used(&instruction) {
                _ if is_lost => {}
                Use::None => {}
                Use::Save => break,
                Use::Read => return true,
                Use::Write => is_lost = true,
            }
            let leaves = match instruction.flow_control() {
                FlowControl::Return | FlowControl::IndirectBranch => true,
                FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {
                    let target = instruction.near_branch_target();
                    let is_inside = function.contains(target);
                    if is_inside {
                        open.push((target, is_lost));
                    }
                    !is_inside
                }
                _ => false,
            };
            if leaves && is_lost {
                return true;
            }
            if matches!(
                instruction.flow_control(),
                FlowControl::Return
                    | FlowControl::IndirectBranch
                    | FlowControl::UnconditionalBranch
                    | FlowControl::Exception
            ) {
                break;
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::IcedError;
    use iced_x86::code_asm::{CodeAssembler, eax, ebp, qword_ptr, r12, rax, rbp, rbx, rdi, rsp};

    /// Returns the use of the frame pointer by the instruction that `assemble` makes.
    fn use_of(assemble: impl FnOnce(&mut CodeAssembler) -> Result<(), IcedError>) -> Use {
        let mut assembler = CodeAssembler::new(64).unwrap();
        assemble(&mut assembler).unwrap();
        let bytes = assembler.assemble(0x1000).unwrap();
        used(&Decoder::with_ip(64, &bytes, 0x1000, 0).decode())
    }

    #[test]
    fn uses_of_the_frame_pointer_are_told_apart() {
        assert_eq!(use_of(|a| a.push(rbp)), Use::Save);
        assert_eq!(use_of(|a| a.mov(qword_ptr(rsp + 8), rbp)), Use::Save);
        assert_eq!(use_of(|a| a.mov(qword_ptr(rdi + 8), rbp)), Use::Read);
        assert_eq!(use_of(|a| a.push(qword_ptr(rbp))), Use::Read);
        assert_eq!(use_of(|a| a.mov(rbp, rsp)), Use::Write);
        assert_eq!(use_of(|a| a.mov(ebp, eax)), Use::Write);
        assert_eq!(use_of(|a| a.xor(ebp, ebp)), Use::Write);
        assert_eq!(use_of(|a| a.pop(rbp)), Use::Write);
        assert_eq!(use_of(|a| a.lea(rbp, qword_ptr(rbx + 8))), Use::Write);
        assert_eq!(use_of(|a| a.lea(rbp, qword_ptr(rbp + 8))), Use::Read);
        assert_eq!(use_of(|a| a.mov(rbp, qword_ptr(rbp))), Use::Read);
        assert_eq!(use_of(|a| a.mov(rax, rbp)), Use::Read);
        assert_eq!(use_of(|a| a.add(rbp, 8)), Use::Read);
        assert_eq!(use_of(|a| a.leave()), Use::Read);
        assert_eq!(use_of(|a| a.xchg(rbp, r12)), Use::Read);
        assert_eq!(use_of(|a| a.jmp(rbp)), Use::Read);
        assert_eq!(use_of(|a| a.mov(rax, rbx)), Use::None);
        assert_eq!(use_of(|a| a.push(rbx)), Use::None);
    }
}
