//! Jump tables of 64-bit Arm: distances from an address that `adr` (or `adrp` and `add`) makes.

use super::super::aarch64::made_address;
use super::super::function::FunctionCode;
use super::super::instruction::InstructionKind;
use super::{
    BYTE_VALUES, FAR, FAR_FOR_PLACE, FindShape, MOST_STEPS, TableLayout, jumps_by_target, jumps_to,
};

/// Finds the tables of one function.
pub(super) struct Finder<'a> {
    code: &'a FunctionCode,
    jumps: Vec<(u32, u32)>,
    steps: usize,
}

/// A load from a base register plus an index register.
struct IndexedLoad {
    base: u32,
    index: u32,
    size: usize,
    is_signed: bool,
}

fn destination(word: u32) -> u32 {
    word & 0x1f
}

fn first_operand(word: u32) -> u32 {
    word >> 5 & 0x1f
}

fn second_operand(word: u32) -> u32 {
    word >> 16 & 0x1f
}

impl IndexedLoad {
    /// `ldrb`, `ldrh`, `ldr` or `ldrs*` with a register as offset.
    fn of(word: u32) -> Option<Self> {
        if word & 0x3f20_0c00 != 0x3820_0800 {
            return None;
        }
        let size = 1 << (word >> 30);
        let (is_signed, is_load) = match word >> 22 & 3 {
            1 => (false, true),
            2 | 3 => (true, true),
            _ => (false, false),
        };
        let is_scaled = size == 1 || word >> 12 & 1 == 1;
        (is_load && is_scaled && size < 8).then_some(Self {
            base: first_operand(word),
            index: second_operand(word),
            size,
            is_signed,
        })
    }
}

impl FindShape for Finder<'_> {
    fn shape(&mut self, jump: usize) -> Option<TableLayout> {
        // br
        let word = self.word(jump)?;
        if word & 0xffff_fc1f != 0xd61f_0000 {
            return None;
        }
        let (added_at, added) = self.definition(jump, first_operand(word), FAR)?;
        // add, with the second operand shifted or extended
        let (shift, extension) = match added & 0xffe0_0000 {
            0x8b00_0000 => (added >> 10 & 0x3f, None),
            0x8b20_0000 => (added >> 10 & 7, Some(added >> 13 & 7)),
            _ => return None,
        };
        if shift > 4 {
            return None;
        }
        let (loaded_at, loaded) = self.definition(added_at, second_operand(added), FAR)?;
        let load = IndexedLoad::of(loaded)?;
        let is_signed = match extension {
            // Narrower than what was loaded: not a distance.
            Some(extension) if 1 << (extension & 3) < load.size => return None,
            Some(extension) if 1 << (extension & 3) == load.size => extension & 4 != 0,
            _ => load.is_signed,
        };
        let base = self.constant(added_at, first_operand(added))?;
        let place = self.constant(loaded_at, load.base)?;
        let count = self.bound(loaded_at, load.index)?;
        Some(TableLayout {
            place,
            base: Some(base),
            size: load.size,
            is_signed,
            shift,
            count,
        })
    }
}

impl<'a> Finder<'a> {
    pub(super) fn new(code: &'a FunctionCode) -> Self {
        Self {
            code,
            jumps: jumps_by_target(code),
            steps: 0,
        }
    }

    fn word(&mut self, index: usize) -> Option<u32> {
        self.steps += 1;
        if self.steps > MOST_STEPS {
            return None;
        }
        let bytes = self.code.bytes().get(index * 4..)?.first_chunk()?;
        Some(u32::from_le_bytes(*bytes))
    }

    /// The closest instruction before another, in the order of addresses, that writes a register.
    fn definition(&mut self, before: usize, register: u32, far: usize) -> Option<(usize, u32)> {
        for at in (before.saturating_sub(far)..before).rev() {
            let word = self.word(at)?;
            if self.writes(at, word, register) {
                return Some((at, word));
            }
        }
        None
    }

    /// Whether an instruction may write a register. Says yes too often, for stores.
    fn writes(&self, at: usize, word: u32, register: u32) -> bool {
        match self.code.packed()[at].kind {
            // Callees keep x19 to x30.
            InstructionKind::Call | InstructionKind::IndirectCall => return register < 19,
            InstructionKind::Sequential => {}
            _ => return false,
        }
        let is_pair = word & 0x3a00_0000 == 0x2800_0000;
        destination(word) == register || (is_pair && word >> 10 & 0x1f == register)
    }

    /// Returns a register's value before an instruction, if the value is an address made there.
    fn constant(&mut self, before: usize, register: u32) -> Option<u64> {
        let (at, word) = self.definition(before, register, FAR_FOR_PLACE)?;
        let address = self.code.virtual_start().wrapping_add(at as u64 * 4);
        if let Some(made) = made_address(word, address) {
            return Some(made);
        }
        // add, with a number
        if word & 0xff80_0000 != 0x9100_0000 {
            return None;
        }
        let number = u64::from(word >> 10 & 0xfff) << (12 * (word >> 22 & 1));
        let (at, word) = self.definition(at, first_operand(word), FAR_FOR_PLACE)?;
        let address = self.code.virtual_start().wrapping_add(at as u64 * 4);
        Some(made_address(word, address)?.wrapping_add(number))
    }

    /// Returns the number of values that an index can have where an instruction reads it.
    fn bound(&mut self, read_at: usize, mut index: u32) -> Option<u64> {
        let mut at = read_at;
        let mut has_jumped = false;
        // The number of values, given the number that is compared with.
        let mut condition: Option<fn(u64) -> u64> = None;
        for _ in 0..FAR {
            let above = at.checked_sub(1);
            let falls = above.filter(|&above| self.code.packed()[above].kind.continues());
            let is_taken = falls.is_none();
            at = match falls {
                Some(above) => above,
                // Only jumps lead here.
                None if has_jumped => return None,
                None => {
                    has_jumped = true;
                    jumps_to(&self.jumps, at).next()?
                }
            };
            let word = self.word(at)?;
            if self.code.packed()[at].kind == InstructionKind::ConditionalJump {
                // b.hi, b.ls; b.hs, b.lo
                if word & 0xff00_0010 == 0x5400_0000 {
                    match (word & 0xf, is_taken) {
                        (8, false) | (9, true) => condition = Some(|limit| limit + 1),
                        (2, false) | (3, true) => condition = Some(|limit| limit),
                        _ => {}
                    }
                }
                continue;
            }
            // cmp, with a number
            if word & 0x7f80_001f == 0x7100_001f {
                let number = u64::from(word >> 10 & 0xfff) << (12 * (word >> 22 & 1));
                if first_operand(word) == index
                    && let Some(count) = condition
                {
                    return Some(count(number));
                }
            }
            // Everything else that sets flags: adds, subs, ands, bics, ccmp, ccmn; fcmp is followed by other
            // conditions.
            let sets_flags = word & 0x3f00_0000 == 0x3100_0000
                || word & 0x3f00_0000 == 0x2b00_0000
                || word & 0x7f80_0000 == 0x7200_0000
                || word & 0x7f00_0000 == 0x6a00_0000
                || word & 0x3fe0_0000 == 0x3a40_0000;
            if sets_flags {
                condition = None;
            }
            if !self.writes(at, word, index) {
                continue;
            }
            if word & 0x7fe0_ffe0 == 0x2a00_03e0 {
                // mov
                index = second_operand(word);
            } else if word & 0x7f80_0000 == 0x1200_0000 && word >> 16 & 0x3f == 0 {
                // and, with a number whose low bits are set
                let ones = (word >> 10 & 0x3f) + 1;
                return (ones <= 16).then(|| 1 << ones);
            } else {
                // A byte that was loaded, or cut out: ldrb, uxtb.
                let is_byte = word & 0xffc0_0000 == 0x3940_0000
                    || word & 0xffe0_0000 == 0x3840_0000
                    || word & 0xffff_fc00 == 0x5300_1c00;
                return is_byte.then_some(BYTE_VALUES);
            }
        }
        None
    }
}
