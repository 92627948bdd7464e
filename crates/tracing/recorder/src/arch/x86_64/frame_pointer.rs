//! Which functions deal with the frame pointer as the ABI asks: what their caller has in it they neither use nor change.
//!
//! While a traced function runs, it finds another value there than its caller left (`hot`), and when it returns, the caller
//! gets back its own. Compilers' functions never know: they save the register before they use it, and restore it. Assembler
//! code has conventions of its own now and then, and who asks for the address of the caller's frame
//! (`__builtin_frame_address(1)`) looks at what was saved.

use super::described::{Described, Slot};
use crate::analysis::image::Image;
use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic,
    OpAccess, OpKind, Register,
};
use std::collections::HashSet;

/// How many instructions of a function are looked at, each in all states.
const MOST_INSTRUCTIONS: usize = 1 << 16;

/// What an instruction does with the frame pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    None,
    /// It keeps its value on the stack.
    Save,
    /// It has another value now, whatever it had before; in its upper bits perhaps not.
    Write,
    /// All else.
    Read,
}

fn is_frame_pointer(register: Register) -> bool {
    register.full_register() == Register::RBP
}

fn used(instruction: &Instruction) -> Use {
    let code = instruction.code();
    // It is asked of all instructions: most have nothing to do with it.
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

/// Watches a function's instructions go by, in the order in which they lie, for what needs a closer look.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watch {
    is_saved: bool,
    /// It does something with the frame pointer that most functions do not do.
    pub is_odd: bool,
}

impl Watch {
    /// Whether the frame pointer is what the caller has left.
    pub fn is_untouched(&self) -> bool {
        !self.is_saved && !self.is_odd
    }

    /// The next instruction.
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

/// Whether an instruction looks at the caller's frame pointer where it was saved, other than to restore it: below the return
/// address, where the frame pointer leads, or a copy of it that the instruction before has made.
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

/// Whether a function uses its caller's frame pointer, or returns with another. Branches through tables are not followed,
/// nor is what happens once the value is saved: what compilers then do with the register does not depend on it, but they
/// copy it about where it is undefined.
pub fn uses_callers(image: &Image<'_>, function: &Described) -> bool {
    let mut open = vec![(function.start, false)];
    let mut seen = HashSet::new();
    let mut instruction = Instruction::default();
    // Whether the caller's value is overwritten goes with each place.
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

    /// What is used by the instruction that `assemble` makes.
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
