//! First instructions of functions, moved elsewhere so that a branch fits in their place.

use super::encode::{
    BTI_C, BTI_JC, LR, PACIASP, PACIBSP, RET, Register, X16, b, br, bytes, ldr_ahead,
};
use crate::analysis::refusal::Refused;

/// Instructions that will be moved: one, or a `paciasp` or `pacibsp` and the instruction behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prologue {
    /// The address of the first instruction.
    address: u64,
    words: Vec<u32>,
}

/// The way in which an instruction depends on its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// Means the same at any address.
    Anywhere,
    /// Means the same at any address, and the next instruction does not follow.
    Ends,
    /// Puts this number in a register.
    Makes(Register, u64),
    /// Loads from this address.
    Loads(u64),
    /// Jumps to this address.
    Jumps(u64),
    /// Calls the function at this address.
    Calls(u64),
    /// Calls the function whose address is in this register.
    CallsRegister(Register),
    /// Branches to this address on a condition.
    Branches(u64),
    /// Can't be moved.
    Unknown,
}

/// Returns the way in which the instruction at an address depends on that address.
pub fn instruction(word: u32, address: u64) -> Instruction {
    /// Returns the signed number of `bits` bits that begins at bit `at`.
    fn number(word: u32, at: u32, bits: u32) -> i64 {
        let number = i64::from(word >> at) << (64 - bits);
        number >> (64 - bits)
    }
    let page = |immediate: i64| (address & !0xfff).wrapping_add_signed(immediate << 12);
    let target = |at, bits| address.wrapping_add_signed(number(word, at, bits) << 2);
    let immediate = number(word, 5, 19) << 2 | i64::from(word >> 29 & 3);
    match word {
        _ if word & 0x9f00_0000 == 0x1000_0000 => {
            Instruction::Makes(word & 31, address.wrapping_add_signed(immediate))
        }
        _ if word & 0x9f00_0000 == 0x9000_0000 => Instruction::Makes(word & 31, page(immediate)),
        _ if word & 0xfc00_0000 == 0x1400_0000 => Instruction::Jumps(target(0, 26)),
        _ if word & 0xfc00_0000 == 0x9400_0000 => Instruction::Calls(target(0, 26)),
        _ if word & 0xff00_0000 == 0x5400_0000 => Instruction::Branches(target(5, 19)),
        _ if word & 0x7e00_0000 == 0x3400_0000 => Instruction::Branches(target(5, 19)),
        _ if word & 0x7e00_0000 == 0x3600_0000 => Instruction::Branches(target(5, 14)),
        _ if word & 0x3b00_0000 == 0x1800_0000 => Instruction::Loads(target(5, 19)),
        _ if word & 0xffff_fc1f == 0xd63f_0000 => Instruction::CallsRegister(word >> 5 & 31),
        // `br`, `ret`, and their variants that authenticate. The other instructions of this group call.
        _ if word & 0xfe1f_0000 == 0xd61f_0000 => match word >> 21 & 15 {
            0 | 2 | 8 => Instruction::Ends,
            _ => Instruction::Unknown,
        },
        _ => Instruction::Anywhere,
    }
}

/// Returns the size in bytes of a landing pad at a function's start, which can stay where it is; 0 if there is none.
pub fn landing(word: u32) -> u64 {
    match word {
        BTI_C | BTI_JC => 4,
        _ => 0,
    }
}

/// Returns the instructions that must be moved for a branch at `address`. `code` holds the instructions from there to
/// the function's end.
///
/// # Errors
/// [`Refused`]
pub fn prologue(code: impl IntoIterator<Item = u32>, address: u64) -> Result<Prologue, Refused> {
    let mut code = code.into_iter();
    let first = code.next().ok_or(Refused::Short)?;
    let mut words = vec![first];
    if matches!(first, PACIASP | PACIBSP) {
        // Calls may only lead to a landing pad, as this instruction is. A `bti c` takes its place, and the branch takes
        // the place of the next instruction.
        words.push(code.next().ok_or(Refused::Short)?);
    }
    let (last, at) = match words.as_slice() {
        [_, last] => (*last, address + 4),
        _ => (first, address),
    };
    if last == 0 {
        return Err(Refused::Unknown);
    }
    let is_refused = match instruction(last, at) {
        Instruction::CallsRegister(register) => register == LR,
        Instruction::Unknown => true,
        _ => false,
    };
    match is_refused {
        true => Err(Refused::Instruction),
        false => Ok(Prologue { address, words }),
    }
}

impl Prologue {
    /// Returns the size of the instructions in bytes.
    pub fn size(&self) -> u64 {
        4 * self.words.len() as u64
    }

    /// Returns the code for the place `at`, a multiple of 8: the instructions, and a branch to the rest of the
    /// function.
    ///
    /// # Errors
    /// [`Refused::Far`]
    pub fn encode(&self, at: u64) -> Result<Vec<u8>, Refused> {
        let mut code = Vec::new();
        let mut constants: Vec<(usize, Register, u64)> = Vec::new();
        let mut address = self.address;
        let mut goes_on = true;
        let here = |code: &Vec<u32>| at + 4 * code.len() as u64;
        let jump = |code: &mut Vec<u32>, to| {
            let word = b(here(code), to).ok_or(Refused::Far)?;
            code.push(word);
            Ok(())
        };
        for &word in &self.words {
            let constant = |code: &mut Vec<u32>, constants: &mut Vec<_>, register, number| {
                constants.push((code.len(), register, number));
                code.push(0);
            };
            match instruction(word, address) {
                Instruction::Anywhere | Instruction::Unknown => code.push(word),
                Instruction::Ends => {
                    code.push(word);
                    goes_on = false;
                }
                Instruction::Makes(register, number) => {
                    constant(&mut code, &mut constants, register, number);
                }
                Instruction::Loads(from) => {
                    if let Some(load) = load_from_x16(word) {
                        constant(&mut code, &mut constants, X16, from);
                        code.push(load);
                    }
                }
                Instruction::Jumps(to) => {
                    jump(&mut code, to)?;
                    goes_on = false;
                }
                // The return address has to lie in the function, or unwinders are lost.
                Instruction::Calls(to) => {
                    constant(&mut code, &mut constants, LR, address + 4);
                    jump(&mut code, to)?;
                    goes_on = false;
                }
                Instruction::CallsRegister(register) => {
                    constant(&mut code, &mut constants, LR, address + 4);
                    code.push(br(register));
                    goes_on = false;
                }
                Instruction::Branches(to) => {
                    code.push(with_distance_of_two(word));
                    let next = here(&code) + 8;
                    jump(&mut code, next)?;
                    jump(&mut code, to)?;
                }
            }
            address += 4;
        }
        if goes_on {
            jump(&mut code, address)?;
        }
        if !constants.is_empty() && code.len() % 2 == 1 {
            code.push(RET);
        }
        for (place, register, number) in constants {
            let ahead = 4 * (code.len() - place) as u32;
            code[place] = ldr_ahead(register, ahead);
            code.extend([number as u32, (number >> 32) as u32]);
        }
        Ok(bytes(&code))
    }
}

impl super::super::Prologue for Prologue {
    fn rebase(&self, bias: u64) -> Prologue {
        Prologue {
            address: self.address.wrapping_add(bias),
            words: self.words.clone(),
        }
    }
}

/// Turns a load of a constant into a load from the address in `x16`; returns `None` for a prefetch hint.
fn load_from_x16(word: u32) -> Option<u32> {
    let code = match (word >> 26 & 1, word >> 30) {
        (0, 0) => 0xb940_0000,
        (0, 1) => 0xf940_0000,
        (0, 2) => 0xb980_0000,
        (1, 0) => 0xbd40_0000,
        (1, 1) => 0xfd40_0000,
        (1, 2) => 0x3dc0_0000,
        _ => return None,
    };
    Some(code | X16 << 5 | word & 31)
}

/// Returns a conditional branch with a distance of two instructions, over the next one.
fn with_distance_of_two(word: u32) -> u32 {
    let bits = if word & 0x7e00_0000 == 0x3600_0000 {
        14
    } else {
        19
    };
    let field = ((1 << bits) - 1) << 5;
    word & !field | 2 << 5
}
