//! x86 instructions, by the crate iced-x86.

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction};

use super::function::Decoded;
use super::instruction::InstructionKind;

/// A decoder of 32- or 64-bit code.
pub(crate) fn decoder(bits: u32, bytes: &[u8], address: u64) -> Decoder<'_> {
    Decoder::with_ip(bits, bytes, address, DecoderOptions::NONE)
}

/// Calls `each` for all instructions of some bytes, in order and without gaps.
pub(crate) fn decode(bits: u32, bytes: &[u8], address: u64, each: &mut impl FnMut(Decoded)) {
    let mut decoder = decoder(bits, bytes, address);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        let from = decoder.position();
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            // As objdump does: one byte is bad, the next may begin an instruction.
            let next = from + 1;
            if decoder.set_position(next).is_err() {
                return;
            }
            decoder.set_ip(address.wrapping_add(next as u64));
            each(Decoded {
                length: 1,
                kind: InstructionKind::Invalid,
                target: None,
            });
            continue;
        }
        let (kind, has_target) = classify(&instruction);
        each(Decoded {
            length: instruction.len() as u8,
            kind,
            target: has_target.then(|| instruction.near_branch_target()),
        });
    }
}

/// The kind, and whether it has a direct target.
fn classify(instruction: &Instruction) -> (InstructionKind, bool) {
    use InstructionKind as Kind;
    match instruction.flow_control() {
        FlowControl::Next => (Kind::Sequential, false),
        FlowControl::UnconditionalBranch if instruction.is_jmp_short_or_near() => {
            (Kind::Jump, true)
        }
        FlowControl::UnconditionalBranch | FlowControl::IndirectBranch => {
            (Kind::IndirectJump, false)
        }
        FlowControl::ConditionalBranch => (Kind::ConditionalJump, true),
        FlowControl::Return => (Kind::Return, false),
        FlowControl::Call if instruction.is_call_near() => (Kind::Call, true),
        FlowControl::Call if instruction.is_call_far() => (Kind::IndirectCall, false),
        FlowControl::Call => (Kind::SystemCall, false),
        FlowControl::IndirectCall => (Kind::IndirectCall, false),
        FlowControl::Interrupt => match instruction.code() {
            Code::Int_imm8 => (Kind::SystemCall, false),
            Code::Into => (Kind::Sequential, false),
            _ => (Kind::Trap, false),
        },
        FlowControl::XbeginXabortXend => match instruction.code() {
            // Goes to its target when the transaction is aborted.
            Code::Xbegin_rel16 | Code::Xbegin_rel32 => (Kind::ConditionalJump, true),
            _ => (Kind::Sequential, false),
        },
        FlowControl::Exception => (Kind::Trap, false),
    }
}

/// The address an instruction's memory operand has whatever the registers hold.
pub(crate) fn fixed_memory(instruction: &Instruction) -> Option<u64> {
    instruction
        .is_ip_rel_memory_operand()
        .then(|| instruction.ip_rel_memory_address())
}
