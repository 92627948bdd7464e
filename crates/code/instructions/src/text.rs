//! Instructions as text.

use std::fmt;

use iced_x86::{Formatter, GasFormatter, IntelFormatter};
use yaxpeax_arch::{Decoder, U8Reader};
use yaxpeax_arm::armv8::a64::InstDecoder;

use super::function::FunctionCode;
use super::instruction::{Instruction, InstructionKind};
use super::{aarch64, x86};
use dioptra_symbols::CodeMachine;

/// The syntax of x86 instructions; other machines have one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Syntax {
    /// As `objdump` and `perf annotate` write: source first, `%rax`, `$1`.
    #[default]
    AtAndT,
    /// As the makers write: destination first.
    Intel,
}

/// Writes instructions of x86 and Arm as `objdump` would, but for the names of targets: those, and what to
/// do with them, [`Instruction::target`] and [`data_address`](Self::data_address) tell.
pub struct InstructionText {
    x86: Box<dyn Formatter>,
    aarch64: InstDecoder,
}

impl fmt::Debug for InstructionText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InstructionText").finish_non_exhaustive()
    }
}

impl InstructionText {
    /// Something to write many instructions with.
    #[must_use]
    pub fn new(syntax: Syntax) -> Self {
        let mut x86: Box<dyn Formatter> = match syntax {
            Syntax::AtAndT => Box::new(GasFormatter::new()),
            Syntax::Intel => Box::new(IntelFormatter::new()),
        };
        let options = x86.options_mut();
        options.set_uppercase_hex(false);
        options.set_hex_prefix("0x");
        options.set_hex_suffix("");
        options.set_small_hex_numbers_in_decimal(false);
        options.set_branch_leading_zeros(false);
        options.set_rip_relative_addresses(syntax == Syntax::AtAndT);
        Self {
            x86,
            aarch64: InstDecoder::default(),
        }
    }

    /// Appends one instruction's text. Targets are virtual addresses, as `objdump` writes them.
    pub fn write(&mut self, code: &FunctionCode, instruction: &Instruction<'_>, text: &mut String) {
        if instruction.kind == InstructionKind::Invalid {
            text.push_str("(bad)");
            return;
        }
        match code.machine() {
            CodeMachine::X86_64 => self.write_x86(64, instruction, text),
            CodeMachine::I386 => self.write_x86(32, instruction, text),
            CodeMachine::Aarch64 => self.write_aarch64(instruction, text),
        }
    }

    fn write_x86(&mut self, bits: u32, instruction: &Instruction<'_>, text: &mut String) {
        let mut decoder = x86::decoder(bits, instruction.bytes, instruction.virtual_address);
        self.x86.format(&decoder.decode(), text);
    }

    fn write_aarch64(&mut self, instruction: &Instruction<'_>, text: &mut String) {
        let &[a, b, c, d] = instruction.bytes else {
            text.push_str("(bad)");
            return;
        };
        let word = u32::from_le_bytes([a, b, c, d]);
        if let Some(target) = instruction.target {
            return aarch64::write_branch(word, target.virtual_address, text);
        }
        if let Some(address) = aarch64::made_address(word, instruction.virtual_address) {
            return aarch64::write_made_address(word, address, text);
        }
        match self.aarch64.decode(&mut U8Reader::new(instruction.bytes)) {
            Ok(decoded) => {
                use fmt::Write;
                // Writing to a string can't fail.
                let _ = write!(text, "{decoded}");
            }
            // Newer than the decoder, or no instruction.
            Err(_) => aarch64::write_unknown(word, text),
        }
    }

    /// The virtual address of the data, or pointer, that an instruction names by its distance from itself
    /// (`0x2f1c(%rip)`, `adr`).
    #[must_use]
    pub fn data_address(&self, code: &FunctionCode, instruction: &Instruction<'_>) -> Option<u64> {
        if instruction.kind == InstructionKind::Invalid {
            return None;
        }
        match code.machine() {
            CodeMachine::X86_64 => {
                let mut decoder = x86::decoder(64, instruction.bytes, instruction.virtual_address);
                x86::fixed_memory(&decoder.decode())
            }
            CodeMachine::I386 => None,
            CodeMachine::Aarch64 => {
                let &[a, b, c, d] = instruction.bytes else {
                    return None;
                };
                let word = u32::from_le_bytes([a, b, c, d]);
                aarch64::made_address(word, instruction.virtual_address)
            }
        }
    }
}
