//! First instructions of functions, moved elsewhere so that a jump fits in their place.

use super::instructions::is_nop;
use super::thunk::distance;
use crate::analysis::refusal::Refused;
use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code, Decoder, DecoderOptions, FlowControl, Instruction,
    InstructionBlock, MemoryOperand, OpKind, Register,
};
use std::ops::Range;

/// The size in bytes of the jump that takes the place of first instructions.
pub const JUMP: usize = 5;

/// `call rax`.
const CALL_RAX: [u8; 2] = [0xff, 0xd0];

/// Instructions that will be moved.
///
/// A call can only be the last of them, and its return address has to lie in the function. Callees look at it, and
/// unwinders find there what the function does with exceptions. The processor predicts the return if a call instruction
/// ends at that address. There are three cases:
///
/// - The moved instructions leave room for `call rax` behind the jump.
/// - They leave room for all but the first byte of `call rax`. The jump's last byte is that first byte, which means
///   that the jump leads back by no more than 16 MiB.
/// - Otherwise the code pushes the return address and jumps to the callee. Then this return and the returns of all
///   callers are mispredicted.
#[derive(Clone, Debug)]
pub struct Prologue {
    /// The address of the first instruction.
    start: u64,
    /// The instructions as they are in the function.
    moved: Moved,
    /// The address at which the function goes on; `None` if the instructions never lead there.
    rest: Option<u64>,
}

/// The instructions that are moved.
#[derive(Clone, Debug)]
enum Moved {
    /// The bytes of instructions that mean the same at any address, as most do.
    Bytes(Vec<u8>),
    /// Instructions, at least one of which names a place relative to its own.
    Instructions(Vec<Instruction>),
}

impl Moved {
    /// Stores instructions that were decoded from `bytes`, which lie at `address`.
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

    /// Returns the instructions if at least one depends on its place; otherwise none.
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

/// Returns the instructions at `address` that a jump would overwrite.
///
/// `bytes` is the code from there on to the function's end, and the prologue covers at least `until` bytes of it. Calls
/// that `is_ignored` accepts (hooks of compilers) are left out, but their bytes belong to the prologue. `padded` says
/// whether only padding follows the function.
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
        start: address,
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
            FlowControl::Next | FlowControl::ConditionalBranch => {
                instructions.push(instruction);
            }
            FlowControl::Return
            | FlowControl::UnconditionalBranch
            | FlowControl::IndirectBranch => {
                instructions.push(instruction);
                // Behind such an instruction, only padding may be overwritten.
                let fits = size >= JUMP || (padded && size == bytes.len());
                return if fits {
                    Ok(made(instructions, None))
                } else {
                    Err(Refused::Short)
                };
            }
            _ if is_call(&instruction) => {
                instructions.push(instruction);
                // The call returns to the function itself.
                return if size >= until.max(JUMP) {
                    Ok(made(instructions, None))
                } else {
                    Err(Refused::Instruction)
                };
            }
            FlowControl::Call
            | FlowControl::IndirectCall
            | FlowControl::Interrupt
            | FlowControl::XbeginXabortXend
            | FlowControl::Exception => {
                // `ud2` and `syscall` can be anywhere. Compilers do not make the other instructions.
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

/// Displaced instructions in encoded form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Displaced {
    /// The instructions, and the code and data in front of them that they need.
    pub bytes: Vec<u8>,
    /// The offset of the first instruction in `bytes`.
    pub start: u64,
}

impl Displaced {
    /// Wraps instructions that need nothing in front of them.
    fn alone(bytes: Vec<u8>) -> Displaced {
        Displaced { bytes, start: 0 }
    }
}

impl Prologue {
    /// Returns the instructions for the place `at` in a pool, with a jump to the rest of the function behind them.
    ///
    /// # Errors
    /// [`Refused::Far`], [`Refused::Unknown`]
    pub fn encode(&self, at: u64, pool: &Range<u64>) -> Result<Displaced, Refused> {
        let mut moved = match &self.moved {
            Moved::Instructions(instructions) => instructions.clone(),
            Moved::Bytes(bytes) => {
                let end = at + bytes.len() as u64;
                let jump = self.rest.map(|rest| distance(end + JUMP as u64, rest));
                match jump {
                    None => return Ok(Displaced::alone(bytes.clone())),
                    Some(Some(distance)) => {
                        let bytes = [bytes.as_slice(), &[0xe9], &distance].concat();
                        return Ok(Displaced::alone(bytes));
                    }
                    // The rest of the function is too far away for a simple jump.
                    Some(None) => Decoder::new(64, bytes, DecoderOptions::NONE)
                        .into_iter()
                        .collect(),
                }
            }
        };
        let unknown = |_| Refused::Unknown;
        let direct = |target| Instruction::with_branch(Code::Jmp_rel32_64, target).map_err(unknown);
        let below = |distance| MemoryOperand::with_base_displ(Register::RSP, distance);
        let relative = |address: u64| MemoryOperand::with_base_displ(Register::RIP, address as i64);
        let Some(call) = self.call() else {
            if let Some(rest) = self.rest {
                moved.push(direct(rest)?);
            }
            return block(moved, at).map(Displaced::alone);
        };
        let jump = match call.code() {
            Code::Call_rel32_64 => direct(call.near_branch_target())?,
            _ => {
                let pointer = relative(call.ip_rel_memory_address());
                Instruction::with1(Code::Jmp_rm64, pointer).map_err(unknown)?
            }
        };
        moved.pop();
        let mut bytes;
        if let Some(place) = self.call_place(pool) {
            // The word lies below the stack pointer, where handlers leave room, and where the callee may write later.
            let restore = Instruction::with2(Code::Mov_r64_rm64, Register::RAX, below(-8));
            bytes = block(vec![restore.map_err(unknown)?, jump], at)?;
            let save = Instruction::with2(Code::Mov_rm64_r64, below(-16), Register::RAX);
            let load = Instruction::with2(Code::Lea_r64_m, Register::RAX, relative(at));
            moved.extend([
                save.map_err(unknown)?,
                load.map_err(unknown)?,
                direct(place)?,
            ]);
        } else {
            bytes = call.next_ip().to_le_bytes().to_vec();
            let push = Instruction::with1(Code::Push_rm64, relative(at));
            moved.extend([push.map_err(unknown)?, jump]);
        }
        bytes.resize(bytes.len().next_multiple_of(8), 0xcc);
        let start = bytes.len() as u64;
        bytes.extend(block(moved, at + start)?);
        Ok(Displaced { bytes, start })
    }

    /// Returns the call, if there is one.
    pub fn call(&self) -> Option<&Instruction> {
        self.moved
            .instructions()
            .last()
            .filter(|last| is_call(last))
    }

    /// Returns the address in the function where `call rax` takes the call's place, if that works for all thunks of a
    /// pool.
    fn call_place(&self, pool: &Range<u64>) -> Option<u64> {
        let place = self.call()?.next_ip() - CALL_RAX.len() as u64;
        let behind = self.start + JUMP as u64;
        let shares = place + 1 == behind && pool.end <= self.start && behind - pool.start < 1 << 24;
        (place >= behind || shares).then_some(place)
    }

    /// Adds `call rax` to a patch: behind the jump, or from the jump's last byte on if that is the same byte.
    pub fn put_call(&self, patch: &mut Vec<u8>) {
        let Some(call) = self.call() else { return };
        let place = (call.next_ip() - self.start) as usize - CALL_RAX.len();
        if place + 1 == JUMP && patch.last() == Some(&CALL_RAX[0]) {
            patch.push(CALL_RAX[1]);
        } else if place >= JUMP {
            patch.resize(place, 0x90);
            patch.extend(CALL_RAX);
        }
    }

    /// Returns a copy in which calls, jumps and loads through pointers lead directly to the result of `target`.
    ///
    /// `target` takes the address of an instruction, and returns `None` for instructions that stay.
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
                // The return address of a call stays the same.
                direct.set_len(instruction.len());
                direct.set_ip(instruction.ip());
                *instruction = direct;
            }
        }
        moved
    }
}

impl super::super::Prologue for Prologue {
    fn rebase(&self, bias: u64) -> Prologue {
        let mut moved = self.clone();
        moved.start = self.start.wrapping_add(bias);
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

/// Returns whether an instruction names a place relative to its own, as calls do.
fn depends_on_its_place(instruction: &Instruction) -> bool {
    instruction.is_ip_rel_memory_operand()
        || matches!(
            instruction.op0_kind(),
            OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64
        )
}

/// Encodes instructions for a place.
fn block(mut moved: Vec<Instruction>, at: u64) -> Result<Vec<u8>, Refused> {
    // An operand that names a moved instruction means the function, not the copy. Without old addresses, the encoder
    // can't take it for the copy. (Targets are absolute.)
    for instruction in &mut moved {
        instruction.set_ip(0);
    }
    let encode = |options| BlockEncoder::encode(64, InstructionBlock::new(&moved, at), options);
    encode(BlockEncoderOptions::DONT_FIX_BRANCHES)
        .or_else(|_| encode(BlockEncoderOptions::NONE))
        .map(|result| result.code_buffer)
        .map_err(|_| Refused::Far)
}

/// Returns whether an instruction is a call that can be moved. (A system call is not, though it comes back.)
fn is_call(instruction: &Instruction) -> bool {
    match instruction.code() {
        Code::Call_rel32_64 => true,
        Code::Call_rm64 => instruction.is_ip_rel_memory_operand(),
        _ => false,
    }
}

/// Returns the number of bytes of padding at the start of the first `most` bytes.
pub fn padding(bytes: &[u8], most: u64) -> usize {
    let most = usize::try_from(most).unwrap_or(usize::MAX).min(bytes.len());
    let mut decoder = Decoder::new(64, &bytes[..most], DecoderOptions::NONE);
    let mut size = 0;
    while decoder.can_decode() {
        let instruction = decoder.decode();
        let code = instruction.code();
        let is_padding = is_nop(code) || code == Code::Int3;
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
    use crate::arch::{Arch, Prologue as _, X86_64};
    use iced_x86::{Formatter, IntelFormatter};

    /// Pools at this distance below or above functions at 0x1000_0000.
    const NEAR: Range<u64> = 0xf10_0000..0xf11_0000;
    const FAR: Range<u64> = 0xe00_0000..0xe01_0000;
    const ABOVE: Range<u64> = 0x1001_0000..0x1002_0000;
    const START: u64 = 0x1000_0000;

    fn displaced(code: &[u8]) -> Prologue {
        prologue(code, START, 0, false, |_| false).unwrap()
    }

    /// Returns the code in front of the displaced instructions, and the instructions.
    fn encoded(prologue: &Prologue, pool: &Range<u64>) -> (Vec<String>, Vec<String>) {
        let at = pool.start + 0x40;
        let code = prologue.encode(at, pool).unwrap();
        let (front, rest) = code.bytes.split_at(code.start as usize);
        assert_eq!(code.start % 8, 0);
        (text(front, at), text(rest, at + code.start))
    }

    fn text(bytes: &[u8], at: u64) -> Vec<String> {
        let mut formatter = IntelFormatter::new();
        formatter.options_mut().set_rip_relative_addresses(false);
        formatter.options_mut().set_branch_leading_zeros(false);
        Decoder::with_ip(64, bytes, at, DecoderOptions::NONE)
            .into_iter()
            .map(|instruction| {
                let mut text = String::new();
                formatter.format(&instruction, &mut text);
                text
            })
            .filter(|text| text != "int 3" && text != "int3")
            .collect()
    }

    fn patched(prologue: &Prologue, pool: &Range<u64>) -> Vec<String> {
        let patch = X86_64::patch(START, pool.start + 0x100, Some(prologue)).unwrap();
        let mut instructions = text(&patch, START);
        // The last byte of the jump may be another instruction's first one.
        instructions.truncate(1);
        instructions.extend(text(&patch[patch.len() - 2..], 0));
        instructions
    }

    #[test]
    fn a_function_that_names_itself_means_its_entry() {
        // push r15; lea rax, [rip - 9]
        let code = [0x41, 0x57, 0x48, 0x8d, 0x05, 0xf7, 0xff, 0xff, 0xff, 0x90];
        let (front, code) = encoded(&displaced(&code), &NEAR);
        assert!(front.is_empty());
        assert_eq!(code, ["push r15", "lea rax,[10000000h]", "jmp 10000009h"]);
    }

    #[test]
    fn a_call_is_made_behind_the_jump_if_there_is_room() {
        // sub rsp, 8; call 0x10000109
        let prologue = displaced(&[0x48, 0x83, 0xec, 8, 0xe8, 0, 1, 0, 0, 0x90]);
        for pool in [NEAR, FAR, ABOVE] {
            let (front, code) = encoded(&prologue, &pool);
            assert_eq!(front, ["mov rax,[rsp-8]", "jmp 10000109h"]);
            let trampoline = format!("lea rax,[{:X}h]", pool.start + 0x40);
            let expected = [
                "sub rsp,8",
                "mov [rsp-10h],rax",
                &trampoline
                    .replace("lea rax,[F", "lea rax,[0F")
                    .replace("[E", "[0E"),
                "jmp 10000007h",
            ];
            assert_eq!(code, expected);
            let jump = format!("jmp {:X}h", pool.start + 0x100);
            let jump = jump.replace(" F", " 0F").replace(" E", " 0E");
            assert_eq!(patched(&prologue, &pool), [jump.as_str(), "call rax"]);
        }
    }

    #[test]
    fn a_call_shares_a_byte_with_a_jump_that_leads_back_a_little() {
        // push rax; call 0x10000106
        let prologue = displaced(&[0x50, 0xe8, 0, 1, 0, 0, 0x90]);
        let (front, code) = encoded(&prologue, &NEAR);
        assert_eq!(front, ["mov rax,[rsp-8]", "jmp 10000106h"]);
        assert_eq!(code[3], "jmp 10000004h");
        assert_eq!(patched(&prologue, &NEAR), ["jmp 0F100100h", "call rax"]);
        for pool in [FAR, ABOVE] {
            let (_, code) = encoded(&prologue, &pool);
            assert_eq!(code[2], "jmp 10000106h");
            let code = prologue.encode(pool.start, &pool).unwrap();
            assert_eq!(code.bytes[..8], (START + 6).to_le_bytes());
            let patch = X86_64::patch(START, pool.start, Some(&prologue));
            assert_eq!(patch.unwrap().len(), JUMP);
        }
    }

    #[test]
    fn a_call_through_a_pointer_returns_to_the_function_and_may_be_led_elsewhere() {
        // push rax; call [rip + 0x100]
        let prologue = displaced(&[0x50, 0xff, 0x15, 0x00, 0x01, 0x00, 0x00]);
        assert_eq!(encoded(&prologue, &ABOVE).0[1], "jmp qword ptr [10000107h]");
        assert_eq!(encoded(&prologue, &ABOVE).1[3], "jmp 10000005h");
        let same = prologue.redirect(|_| None);
        assert_eq!(encoded(&same, &ABOVE), encoded(&prologue, &ABOVE));
        let led = prologue.redirect(|at| (at == START + 1).then_some(0x1000_a000));
        assert_eq!(encoded(&led, &ABOVE).0[1], "jmp 1000A000h");
        assert_eq!(encoded(&led, &ABOVE).1[3], "jmp 10000005h");
    }

    #[test]
    fn instructions_that_are_the_same_everywhere_are_copied() {
        // push rbp; mov rbp, rsp; sub rsp, 16
        let code = [0x55, 0x48, 0x8b, 0xec, 0x48, 0x83, 0xec, 0x10, 0xc3];
        let prologue = prologue(&code, 0x1000, 8, false, |_| false).unwrap();
        for rebased in [prologue.clone(), prologue.redirect(|_| Some(0x4000))] {
            let bytes = rebased
                .rebase(0x20_0000)
                .encode(0x9000, &NEAR)
                .unwrap()
                .bytes;
            assert_eq!(bytes[..8], code[..8]);
            let jump = Decoder::with_ip(64, &bytes[8..], 0x9008, DecoderOptions::NONE).decode();
            assert_eq!(jump.near_branch_target(), 0x20_1008);
            assert_eq!(bytes.len(), 8 + JUMP);
        }
        // So far away a jump is longer.
        let bytes = prologue.encode(0x9000_0000_0000, &NEAR).unwrap().bytes;
        assert!(bytes.starts_with(&code[..8]) && bytes.len() > 8 + JUMP);
        assert!(prologue.call().is_none());
    }

    #[test]
    fn a_function_that_calls_itself_calls_its_entry() {
        // call 0x10000000: its return address is a constant in front, and then it is a jump.
        let prologue = displaced(&[0xe8, 0xfb, 0xff, 0xff, 0xff, 0xc3]);
        let code = prologue.encode(0xf10_0000, &NEAR).unwrap();
        assert_eq!(code.bytes[..8], (START + 5).to_le_bytes());
        let code = text(&code.bytes[8..], 0xf10_0008);
        assert_eq!(code[1], "jmp 10000000h");
    }

    #[test]
    fn a_system_call_is_no_call() {
        // xor eax, eax; syscall; ret; and a nop behind.
        let code = [0x31, 0xc0, 0x0f, 0x05, 0xc3, 0x90];
        let prologue = displaced(&code);
        assert!(prologue.call().is_none());
        assert_eq!(
            encoded(&prologue, &NEAR).1,
            ["xor eax,eax", "syscall", "ret"]
        );
    }
}
