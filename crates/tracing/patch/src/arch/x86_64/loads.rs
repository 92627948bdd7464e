//! Loads of library functions' addresses into registers, and whether the addresses are only called.
//!
//! If they are, the program can't tell the function's address from a thunk's.

use crate::analysis::described::{Described, Exceptions};
use crate::analysis::image::Image;
use iced_x86::{
    Code, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};
use std::ops::Range;

/// Registers that a called function leaves as they are.
const KEPT: [Register; 6] = [
    Register::RBX,
    Register::RBP,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];
/// Registers in which calls neither take nor return values, except that `rax` holds the number of vector registers.
const PASSED_OVER: [Register; 3] = [Register::RAX, Register::R10, Register::R11];

/// The code of a function.
pub struct FunctionCode<'a> {
    /// The instructions, sorted by address.
    instructions: &'a [Instruction],
    /// The landing pads: ranges of instructions, and the address at which an exception that passes through the range
    /// goes on. `None` if they are not known.
    pads: Option<Vec<(Range<u64>, u64)>>,
}

impl<'a> FunctionCode<'a> {
    /// Creates the code of a function from all its instructions and its landing pads.
    pub fn new(
        instructions: &'a [Instruction],
        pads: Option<Vec<(Range<u64>, u64)>>,
    ) -> FunctionCode<'a> {
        FunctionCode { instructions, pads }
    }

    /// Returns the index of the instruction at an address.
    fn place(&self, address: u64) -> Option<usize> {
        self.instructions
            .binary_search_by_key(&address, Instruction::ip)
            .ok()
    }

    /// Follows the value that the instruction at an address loads into its register.
    ///
    /// Calls `each` once for each instruction that may be reached, with its index, the register, and its effect on the
    /// register. `each` adds the indices of the instructions to go on with. If `each` returns `None`, the function ends
    /// early and returns `None`, too.
    fn follow(
        &self,
        load: u64,
        mut each: impl FnMut(&Instruction, usize, Register, Step, &mut Vec<usize>) -> Option<()>,
    ) -> Option<()> {
        let start = self.place(load)?;
        let register = self.instructions[start].op0_register();
        let mut info = InstructionInfoFactory::new();
        let mut seen = vec![false; self.instructions.len()];
        let mut later = vec![start + 1];
        while let Some(at) = later.pop() {
            let (Some(instruction), Some(seen)) = (self.instructions.get(at), seen.get_mut(at))
            else {
                // The code ends behind a call that does not return.
                continue;
            };
            if !std::mem::replace(seen, true) {
                let step = step(instruction, register, &mut info);
                each(instruction, at, register, step, &mut later)?;
            }
        }
        Some(())
    }

    /// Returns whether the value that the instruction at an address loads into its register may be called.
    ///
    /// A value is not called if its memory is read, as that of data is, or if the function only compares it or hands it
    /// on. A copy of the value counts as called, because it is not followed.
    pub fn may_be_called(&self, load: u64) -> bool {
        let mut called = false;
        let followed = self.follow(load, |instruction, at, register, step, later| {
            let bases = [instruction.memory_base(), instruction.memory_index()];
            if bases.iter().any(|base| base.full_register() == register) {
                // Code does not read the bytes of a function, so the value is the address of data.
                return None;
            }
            // A copy of the value goes on elsewhere.
            let is_copied = matches!(instruction.op0_kind(), OpKind::Register | OpKind::Memory)
                && (1..instruction.op_count()).any(|n| {
                    instruction.op_kind(n) == OpKind::Register
                        && instruction.op_register(n).full_register() == register
                });
            let is_compared = matches!(instruction.mnemonic(), Mnemonic::Cmp | Mnemonic::Test);
            called |= is_copied && !is_compared;
            match step {
                Step::Ends => {}
                Step::Unknown => match instruction.flow_control() {
                    FlowControl::Next => later.push(at + 1),
                    // The target is not known, and may call the value.
                    FlowControl::IndirectBranch => called = true,
                    _ => {}
                },
                Step::Next => later.push(at + 1),
                Step::Branches(target, goes_on) => {
                    later.extend(self.place(target));
                    later.extend(goes_on.then_some(at + 1));
                }
                Step::Calls(is_it, goes_on) => {
                    called |= is_it;
                    later.extend(goes_on.then_some(at + 1));
                }
            }
            Some(())
        });
        followed.is_some() && called
    }

    /// Returns whether the value that the instruction at an address loads into its register is called, and nothing else
    /// is done with it.
    pub fn is_only_called(&self, load: u64) -> bool {
        let mut called = false;
        let followed = self.follow(load, |instruction, at, _, step, later| {
            match step {
                Step::Unknown => return None,
                Step::Ends => {}
                Step::Next => later.push(at + 1),
                Step::Branches(target, goes_on) => {
                    later.push(self.place(target)?);
                    later.extend(goes_on.then_some(at + 1));
                }
                Step::Calls(is_it, goes_on) => {
                    called |= is_it;
                    if goes_on {
                        later.push(at + 1);
                        let pads = self.pads.as_ref()?;
                        let place = instruction.ip();
                        for (_, pad) in pads.iter().filter(|(range, _)| range.contains(&place)) {
                            later.push(self.place(*pad)?);
                        }
                    }
                }
            }
            Some(())
        });
        followed.is_some() && called
    }
}

/// The effect of an instruction on a register, and the instructions that come next.
enum Step {
    /// The instruction may do something else with the register's value than calling it.
    Unknown,
    /// The register's value is not needed behind the instruction.
    Ends,
    /// The next instruction comes next.
    Next,
    /// The instruction at this address comes next, or also the instruction behind if the flag is set.
    Branches(u64, bool),
    /// A call. The flags say whether it calls the register's value, and whether the value is there afterwards.
    Calls(bool, bool),
}

fn step(instruction: &Instruction, register: Register, info: &mut InstructionInfoFactory) -> Step {
    let is_it =
        instruction.op0_kind() == OpKind::Register && instruction.op0_register() == register;
    let is_kept = KEPT.contains(&register);
    let passes_over = is_kept || PASSED_OVER.contains(&register);
    match instruction.flow_control() {
        FlowControl::IndirectCall if is_it && passes_over => return Step::Calls(true, is_kept),
        FlowControl::IndirectBranch if is_it && passes_over => return Step::Calls(true, false),
        _ => {}
    }
    let mut ends = false;
    for used in info.info(instruction).used_registers() {
        if used.register().full_register() != register {
            continue;
        }
        let is_whole = used.register().size() >= 4;
        match used.access() {
            OpAccess::Write if is_whole => ends = true,
            OpAccess::NoMemAccess | OpAccess::None => {}
            _ => return Step::Unknown,
        }
    }
    match instruction.flow_control() {
        FlowControl::Next if ends => Step::Ends,
        FlowControl::Next => Step::Next,
        FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
            if instruction.op0_kind() == OpKind::NearBranch64 =>
        {
            let goes_on = instruction.flow_control() == FlowControl::ConditionalBranch;
            Step::Branches(instruction.near_branch_target(), goes_on)
        }
        FlowControl::Call | FlowControl::IndirectCall if is_kept => Step::Calls(false, true),
        // Results are not returned in these registers.
        FlowControl::Return if matches!(register, Register::R10 | Register::R11) => Step::Ends,
        FlowControl::Exception if instruction.code() == Code::Ud2 => Step::Ends,
        _ => Step::Unknown,
    }
}

/// Returns the landing pads of a function, as in [`FunctionCode`]; `None` if its table can't be read.
pub fn landing_pads(image: &Image<'_>, function: &Described) -> Option<Vec<(Range<u64>, u64)>> {
    const OMITTED: u8 = 0xff;
    const ULEB128: u8 = 0x01;
    const UDATA4: u8 = 0x03;
    let table = match function.exceptions {
        Exceptions::None => return Some(Vec::new()),
        Exceptions::Unknown => return None,
        Exceptions::Table(table) => table,
    };
    let mut bytes = image.bytes(table, u64::MAX)?;
    if byte(&mut bytes)? != OMITTED {
        // The pads are relative to another place than the function's start.
        return None;
    }
    if byte(&mut bytes)? != OMITTED {
        leb128(&mut bytes)?;
    }
    let encoding = byte(&mut bytes)?;
    let size = usize::try_from(leb128(&mut bytes)?).ok()?;
    let mut sites = bytes.get(..size)?;
    let mut pads = Vec::new();
    while !sites.is_empty() {
        let mut word = || match encoding {
            ULEB128 => leb128(&mut sites),
            UDATA4 => {
                let (word, rest) = sites.split_first_chunk::<4>()?;
                sites = rest;
                Some(u64::from(u32::from_le_bytes(*word)))
            }
            _ => None,
        };
        let (from, size, pad) = (word()?, word()?, word()?);
        leb128(&mut sites)?;
        if pad != 0 {
            let from = function.start.checked_add(from)?;
            pads.push((
                from..from.checked_add(size)?,
                function.start.checked_add(pad)?,
            ));
        }
    }
    Some(pads)
}

fn byte(bytes: &mut &[u8]) -> Option<u8> {
    let (first, rest) = bytes.split_first()?;
    *bytes = rest;
    Some(*first)
}

fn leb128(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..63).step_by(7) {
        let next = byte(bytes)?;
        value |= u64::from(next & 0x7f) << shift;
        if next & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::code_asm::{CodeAssembler, eax, ptr, qword_ptr, r11, rax, rbx, rdi, rsp};
    use iced_x86::{Decoder, DecoderOptions};

    /// Returns whether the value that the first instruction loads is only called, in the code that `assemble` makes.
    /// `is_caught` says whether exceptions go on at the last instruction.
    fn only_called(is_caught: bool, assemble: impl FnOnce(&mut CodeAssembler)) -> bool {
        let mut assembler = CodeAssembler::new(64).unwrap();
        assemble(&mut assembler);
        let bytes = assembler.assemble(0x1000).unwrap();
        let instructions: Vec<Instruction> =
            Decoder::with_ip(64, &bytes, 0x1000, DecoderOptions::NONE)
                .into_iter()
                .collect();
        let last = instructions.last().filter(|_| is_caught);
        let pads = last.map(|last| (0x1000..last.ip(), last.ip()));
        FunctionCode::new(&instructions, Some(pads.into_iter().collect())).is_only_called(0x1000)
    }

    #[test]
    fn what_is_never_called_is_known() {
        let may_be_called = |rest: fn(&mut CodeAssembler)| {
            let mut assembler = CodeAssembler::new(64).unwrap();
            assembler.mov(rax, qword_ptr(0x9000)).unwrap();
            rest(&mut assembler);
            let bytes = assembler.assemble(0x1000).unwrap();
            let instructions: Vec<Instruction> =
                Decoder::with_ip(64, &bytes, 0x1000, DecoderOptions::NONE)
                    .into_iter()
                    .collect();
            FunctionCode::new(&instructions, None).may_be_called(0x1000)
        };
        // Data, whatever is done with it later.
        assert!(!may_be_called(|a| {
            a.mov(rdi, qword_ptr(rax)).unwrap();
            a.call(rax).unwrap();
        }));
        // Compared, and then something else is called.
        assert!(!may_be_called(|a| {
            a.cmp(rdi, rax).unwrap();
            a.mov(rax, qword_ptr(rdi)).unwrap();
            a.call(rax).unwrap();
        }));
        assert!(!may_be_called(|a| a.ret().unwrap()));
        assert!(may_be_called(|a| {
            a.test(rax, rax).unwrap();
            a.call(rax).unwrap();
        }));
        assert!(may_be_called(|a| {
            a.cmove(rbx, rax).unwrap();
            a.call(rbx).unwrap();
        }));
        assert!(may_be_called(|a| {
            a.mov(qword_ptr(rsp), rax).unwrap();
            a.ret().unwrap();
        }));
    }

    #[test]
    fn what_is_only_called_is_known() {
        let in_a_loop = |a: &mut CodeAssembler| {
            let mut again = a.create_label();
            a.mov(rbx, qword_ptr(0x9000)).unwrap();
            a.set_label(&mut again).unwrap();
            a.call(rbx).unwrap();
            a.dec(eax).unwrap();
            a.jnz(again).unwrap();
            a.pop(rbx).unwrap();
            a.ret().unwrap();
        };
        assert!(only_called(false, in_a_loop));
        // The pointer would be there at the end, and `ret` is no landing pad that drops it.
        assert!(!only_called(true, in_a_loop));
        assert!(only_called(false, |a| {
            a.mov(rax, qword_ptr(0x9000)).unwrap();
            a.lea(rdi, ptr(rsp + 8)).unwrap();
            a.call(rax).unwrap();
            a.mov(rdi, rax).unwrap();
            a.ret().unwrap();
        }));
        assert!(only_called(false, |a| {
            a.mov(r11, qword_ptr(0x9000)).unwrap();
            a.pop(rbx).unwrap();
            a.jmp(r11).unwrap();
        }));
    }

    #[test]
    fn what_else_is_done_is_known() {
        let loaded = |rest: fn(&mut CodeAssembler)| {
            only_called(false, |a| {
                a.mov(rax, qword_ptr(0x9000)).unwrap();
                rest(a);
            })
        };
        assert!(!loaded(|a| a.ret().unwrap()));
        assert!(!loaded(|a| {
            a.test(rax, rax).unwrap();
            a.call(rax).unwrap();
        }));
        assert!(!loaded(|a| {
            a.mov(qword_ptr(rsp), rax).unwrap();
            a.call(rax).unwrap();
        }));
        assert!(!loaded(|a| {
            a.mov(rdi, rax).unwrap();
            a.call(rax).unwrap();
        }));
        // Never called.
        assert!(!loaded(|a| {
            a.xor(eax, eax).unwrap();
            a.ret().unwrap();
        }));
        // The jump leads to a place that is not known.
        assert!(!loaded(|a| a.jmp(rbx).unwrap()));
        assert!(!loaded(|a| a.jmp(0x5000).unwrap()));
        // Passed to another function.
        assert!(!only_called(false, |a| {
            a.mov(rdi, qword_ptr(0x9000)).unwrap();
            a.call(rbx).unwrap();
            a.call(rdi).unwrap();
        }));
        // The register is read before the call on one of two ways.
        assert!(!only_called(false, |a| {
            let mut over = a.create_label();
            a.mov(rbx, qword_ptr(0x9000)).unwrap();
            a.jz(over).unwrap();
            a.mov(rdi, rbx).unwrap();
            a.set_label(&mut over).unwrap();
            a.call(rbx).unwrap();
            a.ud2().unwrap();
        }));
    }
}
