//! First instructions of functions, moved elsewhere so that a jump fits in their place.

use super::refused::Refused;
use super::thunk::distance;
use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code, Decoder, DecoderOptions, FlowControl, Instruction,
    InstructionBlock, MemoryOperand, OpKind, Register,
};

/// The size of the jump that takes their place.
pub const JUMP: usize = 5;

/// Instructions that will be moved.
#[derive(Clone, Debug)]
pub struct Prologue {
    /// They, as they are.
    moved: Moved,
    /// Where the function goes on; `None` if it never comes there.
    rest: Option<u64>,
}

/// What is moved.
#[derive(Clone, Debug)]
enum Moved {
    /// The bytes of instructions that are the same everywhere, as most are.
    Bytes(Vec<u8>),
    /// Instructions of which some name a place relative to their own.
    Instructions(Vec<Instruction>),
}

impl Moved {
    /// These instructions, which were found in `bytes` from `address` on.
    fn new(instructions: Vec<Instruction>, bytes: &[u8], address: u64) -> Moved {
        if instructions.iter().any(depends_on_its_place) {
            return Moved::Instructions(instructions);
        }
        let mut moved = Vec::with_capacity(instructions.iter().map(Instruction::len).sum());
        for instruction in &instructions {
            let at = (instruction.ip() - address) as usize;
            moved.extend(bytes.get(at..at + instruction.len()).unwrap_or_default());
        }
        Moved::Bytes(moved)
    }

    /// The instructions, as far as they are not the same everywhere.
    fn instructions(&self) -> &[Instruction] {
        match self {
            Moved::Bytes(_) => &[],
            Moved::Instructions(instructions) => instructions,
        }
    }

    fn instructions_mut(&mut self) -> &mut [Instruction] {
        match self {
            Moved::Bytes(_) => &mut [],
            Moved::Instructions(instructions) => instructions,
        }
    }
}

/// The instructions at `address` that a jump would overwrite, with `bytes` from there on to the function's end.
/// Calls of one of `ignored` (hooks of compilers) are left out, and belong to the prologue as far as they go.
/// `padded`: whether only padding follows the function.
///
/// # Errors
/// [`Refused`]
pub fn prologue(
    bytes: &[u8],
    address: u64,
    until: usize,
    padded: bool,
    is_ignored: impl Fn(&Instruction) -> bool,
) -> Result<Prologue, Refused> {
    let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
    let mut instructions = Vec::with_capacity(JUMP);
    let mut size = 0;
    let made = |instructions, rest| Prologue {
        moved: Moved::new(instructions, bytes, address),
        rest,
    };
    while size < until.max(JUMP) {
        if !decoder.can_decode() {
            return if padded && size > 0 {
                Ok(made(instructions, Some(address + size as u64)))
            } else {
                Err(Refused::Short)
            };
        }
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return Err(Refused::Unknown);
        }
        size += instruction.len();
        if is_ignored(&instruction) {
            continue;
        }
        match instruction.flow_control() {
            FlowControl::Next | FlowControl::ConditionalBranch | FlowControl::Call => {
                instructions.push(instruction);
            }
            FlowControl::Return
            | FlowControl::UnconditionalBranch
            | FlowControl::IndirectBranch => {
                instructions.push(instruction);
                // Nothing but padding may be overwritten behind it.
                let fits = size >= JUMP || (padded && size == bytes.len());
                return if fits {
                    Ok(made(instructions, None))
                } else {
                    Err(Refused::Short)
                };
            }
            FlowControl::IndirectCall
                if instruction.code() == Code::Call_rm64
                    && instruction.is_ip_rel_memory_operand() =>
            {
                instructions.push(instruction);
            }
            FlowControl::IndirectCall => return Err(Refused::Instruction),
            FlowControl::Interrupt | FlowControl::XbeginXabortXend | FlowControl::Exception => {
                // `ud2` and `syscall` can be anywhere; the others are no compiler's.
                if matches!(instruction.code(), Code::Ud2 | Code::Syscall) {
                    instructions.push(instruction);
                } else {
                    return Err(Refused::Instruction);
                }
            }
        }
    }
    Ok(made(instructions, Some(address + size as u64)))
}

impl Prologue {
    /// The instructions for the place `at`, with a jump to the rest of the function behind them, and 8-byte constants.
    ///
    /// # Errors
    /// [`Refused::Far`], [`Refused::Unknown`]
    pub fn encode(&self, at: u64) -> Result<Vec<u8>, Refused> {
        let instructions = match &self.moved {
            Moved::Instructions(instructions) => instructions.clone(),
            Moved::Bytes(bytes) => {
                let end = at + bytes.len() as u64;
                let jump = self.rest.map(|rest| distance(end + JUMP as u64, rest));
                match jump {
                    None => return Ok(bytes.clone()),
                    Some(Some(distance)) => {
                        return Ok([bytes.as_slice(), &[0xe9], &distance].concat());
                    }
                    // Too far for a simple jump.
                    Some(None) => Decoder::new(64, bytes, DecoderOptions::NONE)
                        .into_iter()
                        .collect(),
                }
            }
        };
        // The return address of a displaced call has to be in the function, or unwinders are lost: it is pushed, and the
        // callee jumped to. The constants stand in front.
        let calls = instructions
            .iter()
            .filter(|instruction| is_call(instruction))
            .count();
        let code_at = at + 8 * calls as u64;
        let mut bytes = Vec::new();
        let mut moved = Vec::new();
        for instruction in &instructions {
            if is_call(instruction) {
                let constant = at + bytes.len() as u64;
                bytes.extend(instruction.next_ip().to_le_bytes());
                let place = MemoryOperand::with_base_displ(Register::RIP, constant as i64);
                let push =
                    Instruction::with1(Code::Push_rm64, place).map_err(|_| Refused::Unknown)?;
                let jump = match instruction.flow_control() {
                    FlowControl::Call => Instruction::with_branch(
                        Code::Jmp_rel32_64,
                        instruction.near_branch_target(),
                    ),
                    _ => {
                        let pointer = instruction.ip_rel_memory_address() as i64;
                        let pointer = MemoryOperand::with_base_displ(Register::RIP, pointer);
                        Instruction::with1(Code::Jmp_rm64, pointer)
                    }
                };
                moved.extend([push, jump.map_err(|_| Refused::Unknown)?]);
            } else {
                moved.push(*instruction);
            }
        }
        if let Some(rest) = self.rest {
            let jump =
                Instruction::with_branch(Code::Jmp_rel32_64, rest).map_err(|_| Refused::Unknown)?;
            moved.push(jump);
        }
        // What refers to one of them means the function, not the copy: nobody knows where they were. (Targets are absolute.)
        for instruction in &mut moved {
            instruction.set_ip(0);
        }
        let block = InstructionBlock::new(&moved, code_at);
        let code = BlockEncoder::encode(64, block, BlockEncoderOptions::DONT_FIX_BRANCHES)
            .or_else(|_| {
                BlockEncoder::encode(
                    64,
                    InstructionBlock::new(&moved, code_at),
                    BlockEncoderOptions::NONE,
                )
            })
            .map_err(|_| Refused::Far)?
            .code_buffer;
        bytes.extend(code);
        Ok(bytes)
    }

    /// How many bytes of constants [`Prologue::encode`] puts in front of the code.
    pub fn constants(&self) -> u64 {
        8 * self
            .moved
            .instructions()
            .iter()
            .filter(|instruction| is_call(instruction))
            .count() as u64
    }

    /// Calls and jumps through pointers, and loads of them, lead directly to what `target` says for the instruction's
    /// address.
    pub fn redirect(&self, target: impl Fn(u64) -> Option<u64>) -> Prologue {
        let mut moved = self.clone();
        for instruction in moved.moved.instructions_mut() {
            let code = match instruction.code() {
                Code::Call_rm64 => Code::Call_rel32_64,
                Code::Jmp_rm64 => Code::Jmp_rel32_64,
                Code::Mov_r64_rm64 => Code::Lea_r64_m,
                _ => continue,
            };
            let target = target(instruction.ip());
            let direct = target.and_then(|target| {
                let direct = match code {
                    Code::Lea_r64_m => {
                        let place = MemoryOperand::with_base_displ(Register::RIP, target as i64);
                        Instruction::with2(code, instruction.op0_register(), place)
                    }
                    _ => Instruction::with_branch(code, target),
                };
                direct.ok()
            });
            if let Some(mut direct) = direct {
                // Where a call returns to stays the same.
                direct.set_len(instruction.len());
                direct.set_ip(instruction.ip());
                *instruction = direct;
            }
        }
        moved
    }

    /// Moves all addresses by the distance at which the module was loaded.
    pub fn rebase(&self, bias: u64) -> Prologue {
        let mut moved = self.clone();
        for instruction in moved.moved.instructions_mut() {
            instruction.set_ip(instruction.ip().wrapping_add(bias));
            if instruction.is_ip_rel_memory_operand() {
                let target = instruction.ip_rel_memory_address();
                instruction.set_memory_displacement64(target.wrapping_add(bias));
            }
            if matches!(
                instruction.op0_kind(),
                OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64
            ) {
                let target = instruction.near_branch_target();
                instruction.set_near_branch64(target.wrapping_add(bias));
            }
        }
        moved.rest = self.rest.map(|rest| rest.wrapping_add(bias));
        moved
    }
}

/// Whether an instruction names a place relative to its own, as calls do.
fn depends_on_its_place(instruction: &Instruction) -> bool {
    instruction.is_ip_rel_memory_operand()
        || matches!(
            instruction.op0_kind(),
            OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64
        )
}

/// Whether it is a call that is moved as a jump.
fn is_call(instruction: &Instruction) -> bool {
    matches!(
        instruction.flow_control(),
        FlowControl::Call | FlowControl::IndirectCall
    )
}

/// How many of the bytes pad.
pub fn padding(bytes: &[u8], most: u64) -> usize {
    let most = usize::try_from(most).unwrap_or(usize::MAX).min(bytes.len());
    let mut decoder = Decoder::new(64, &bytes[..most], DecoderOptions::NONE);
    let mut size = 0;
    while decoder.can_decode() {
        let instruction = decoder.decode();
        let is_padding = matches!(
            instruction.code(),
            Code::Nopw
                | Code::Nopd
                | Code::Nopq
                | Code::Nop_rm16
                | Code::Nop_rm32
                | Code::Nop_rm64
                | Code::Int3
        );
        if !is_padding {
            break;
        }
        size += instruction.len();
    }
    size
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The targets of the displaced instructions of `code`, which was at `address`, at `place`.
    fn targets(code: &[u8], address: u64, place: u64) -> Vec<u64> {
        let prologue = prologue(code, address, 0, false, |_| false).unwrap();
        let bytes = prologue.encode(place).unwrap();
        let skip = prologue.constants() as usize;
        let start = place + skip as u64;
        Decoder::with_ip(64, &bytes[skip..], start, DecoderOptions::NONE)
            .into_iter()
            .filter_map(|instruction| match instruction.op0_kind() {
                OpKind::NearBranch64 => Some(instruction.near_branch_target()),
                _ if instruction.is_ip_rel_memory_operand() => {
                    Some(instruction.ip_rel_memory_address())
                }
                _ => None,
            })
            .collect()
    }

    #[test]
    fn a_function_that_names_itself_means_its_entry() {
        // push r15; lea rax, [rip - 9]
        let code = [0x41, 0x57, 0x48, 0x8d, 0x05, 0xf7, 0xff, 0xff, 0xff, 0x90];
        assert_eq!(targets(&code, 0x1000, 0x9000), [0x1000, 0x1009]);
    }

    #[test]
    fn a_call_through_a_pointer_returns_to_the_function_and_may_be_led_elsewhere() {
        // push rax; call [rip + 0x100]
        let code = [0x50, 0xff, 0x15, 0x00, 0x01, 0x00, 0x00];
        // The constant, the pointer, and the rest.
        assert_eq!(targets(&code, 0x1000, 0x9000), [0x9000, 0x1107, 0x1007]);
        let prologue = prologue(&code, 0x1000, 0, false, |_| false).unwrap();
        let same = prologue.redirect(|_| None).encode(0x9000).unwrap();
        assert_eq!(same, prologue.encode(0x9000).unwrap());
        let led = prologue.redirect(|at| (at == 0x1001).then_some(0xa000));
        let bytes = led.encode(0x9000).unwrap();
        assert_eq!(bytes[..8], 0x1007_u64.to_le_bytes());
        let mut decoder = Decoder::with_ip(64, &bytes[8..], 0x9008, DecoderOptions::NONE);
        let jump = decoder.iter().nth(2).unwrap();
        assert_eq!(
            (jump.code(), jump.near_branch_target()),
            (Code::Jmp_rel32_64, 0xa000)
        );
    }

    #[test]
    fn instructions_that_are_the_same_everywhere_are_copied() {
        // push rbp; mov rbp, rsp; sub rsp, 16
        let code = [0x55, 0x48, 0x8b, 0xec, 0x48, 0x83, 0xec, 0x10, 0xc3];
        let prologue = prologue(&code, 0x1000, 8, false, |_| false).unwrap();
        for rebased in [prologue.clone(), prologue.redirect(|_| Some(0x4000))] {
            let bytes = rebased.rebase(0x20_0000).encode(0x9000).unwrap();
            assert_eq!(bytes[..8], code[..8]);
            let jump = Decoder::with_ip(64, &bytes[8..], 0x9008, DecoderOptions::NONE).decode();
            assert_eq!(jump.near_branch_target(), 0x20_1008);
            assert_eq!(bytes.len(), 8 + JUMP);
        }
        // So far away a jump is longer.
        let bytes = prologue.encode(0x9000_0000_0000).unwrap();
        assert!(bytes.starts_with(&code[..8]) && bytes.len() > 8 + JUMP);
        assert_eq!(prologue.constants(), 0);
    }

    #[test]
    fn a_function_that_calls_itself_calls_its_entry() {
        // call 0x1000: its return address is a constant in front, and then it is a jump.
        let code = [0xe8, 0xfb, 0xff, 0xff, 0xff, 0xc3];
        assert_eq!(targets(&code, 0x1000, 0x9000), [0x9000, 0x1000, 0x1005]);
    }
}
