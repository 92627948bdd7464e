//! 64-bit Arm: all instructions have four bytes, and those that change the flow of control are few.
//! Encodings as in the Arm Architecture Reference Manual, section C4.1 (branches, exception generation).

use super::function::Decoded;
use super::instruction::InstructionKind;

/// Calls `each` for all instructions of some bytes, in order and without gaps.
pub(crate) fn decode(bytes: &[u8], address: u64, each: &mut impl FnMut(Decoded)) {
    let words = bytes.chunks_exact(4);
    let rest = words.remainder().len();
    let mut at = address;
    for word in words {
        let word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        let (kind, distance) = classify(word);
        each(Decoded {
            length: 4,
            kind,
            target: distance.map(|distance| at.wrapping_add_signed(distance)),
        });
        at = at.wrapping_add(4);
    }
    if rest > 0 {
        each(Decoded {
            length: rest as u8,
            kind: InstructionKind::Invalid,
            target: None,
        });
    }
}

/// A signed field of a word, in units of four bytes.
fn distance(word: u32, low: u32, bits: u32) -> i64 {
    let field = word << (32 - bits - low);
    i64::from((field as i32) >> (32 - bits)) * 4
}

/// The kind, and how far a direct jump or call goes.
pub(crate) fn classify(word: u32) -> (InstructionKind, Option<i64>) {
    use InstructionKind as Kind;
    // b, bl
    if word & 0x7c00_0000 == 0x1400_0000 {
        let kind = if word >> 31 == 0 {
            Kind::Jump
        } else {
            Kind::Call
        };
        return (kind, Some(distance(word, 0, 26)));
    }
    // b.cond, bc.cond; the last two conditions hold always.
    if word & 0xff00_0000 == 0x5400_0000 {
        let kind = if word & 0xe == 0xe {
            Kind::Jump
        } else {
            Kind::ConditionalJump
        };
        return (kind, Some(distance(word, 5, 19)));
    }
    // cbz, cbnz
    if word & 0x7e00_0000 == 0x3400_0000 {
        return (Kind::ConditionalJump, Some(distance(word, 5, 19)));
    }
    // tbz, tbnz
    if word & 0x7e00_0000 == 0x3600_0000 {
        return (Kind::ConditionalJump, Some(distance(word, 5, 14)));
    }
    // br, blr, ret, eret, drps and their kin with pointer authentication
    if word & 0xfe1f_0000 == 0xd61f_0000 {
        let kind = match word >> 21 & 0xf {
            0 | 8 => Kind::IndirectJump,
            1 | 9 => Kind::IndirectCall,
            2 | 4 | 5 => Kind::Return,
            _ => Kind::Invalid,
        };
        return (kind, None);
    }
    // svc, hvc, smc; brk; hlt
    if word & 0xff00_0000 == 0xd400_0000 {
        let kind = match (word >> 21 & 7, word & 0x1f) {
            (0, 1..=3) => Kind::SystemCall,
            (1 | 2, 0) => Kind::Trap,
            _ => Kind::Sequential,
        };
        return (kind, None);
    }
    // udf
    if word >> 16 == 0 {
        return (Kind::Trap, None);
    }
    (Kind::Sequential, None)
}

/// The address that `adr` or `adrp` at an address makes.
pub(crate) fn made_address(word: u32, at: u64) -> Option<u64> {
    if word & 0x1f00_0000 != 0x1000_0000 {
        return None;
    }
    let high = i64::from((word << 8) as i32 >> 13);
    let value = high << 2 | i64::from(word >> 29 & 3);
    Some(if word >> 31 == 0 {
        at.wrapping_add_signed(value)
    } else {
        (at & !0xfff).wrapping_add_signed(value << 12)
    })
}

const CONDITIONS: [&str; 16] = [
    "eq", "ne", "cs", "cc", "mi", "pl", "vs", "vc", "hi", "ls", "ge", "lt", "gt", "le", "al", "nv",
];

fn write(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing to a string can't fail.
    let _ = std::fmt::Write::write_fmt(text, arguments);
}

struct Register {
    is_wide: bool,
    number: u32,
}

impl std::fmt::Display for Register {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let width = if self.is_wide { 'x' } else { 'w' };
        match self.number {
            31 => write!(f, "{width}zr"),
            number => write!(f, "{width}{number}"),
        }
    }
}

/// Writes a direct jump or call.
pub(crate) fn write_branch(word: u32, target: u64, text: &mut String) {
    let register = |is_wide| Register {
        is_wide,
        number: word & 0x1f,
    };
    if word & 0x7c00_0000 == 0x1400_0000 {
        let name = if word >> 31 == 0 { "b" } else { "bl" };
        write(text, format_args!("{name} {target:#x}"));
    } else if word & 0xff00_0000 == 0x5400_0000 {
        let name = if word & 0x10 == 0 { "b" } else { "bc" };
        let condition = CONDITIONS[(word & 0xf) as usize];
        write(text, format_args!("{name}.{condition} {target:#x}"));
    } else if word & 0x7e00_0000 == 0x3400_0000 {
        let name = if word >> 24 & 1 == 0 { "cbz" } else { "cbnz" };
        let register = register(word >> 31 == 1);
        write(text, format_args!("{name} {register}, {target:#x}"));
    } else {
        let name = if word >> 24 & 1 == 0 { "tbz" } else { "tbnz" };
        let bit = word >> 31 << 5 | word >> 19 & 0x1f;
        let register = register(word >> 31 == 1);
        write(text, format_args!("{name} {register}, #{bit}, {target:#x}"));
    }
}

/// Writes `adr` or `adrp`.
pub(crate) fn write_made_address(word: u32, address: u64, text: &mut String) {
    let name = if word >> 31 == 0 { "adr" } else { "adrp" };
    let register = Register {
        is_wide: true,
        number: word & 0x1f,
    };
    write(text, format_args!("{name} {register}, {address:#x}"));
}

/// Writes a word for which there is no text.
pub(crate) fn write_unknown(word: u32, text: &mut String) {
    if word >> 16 == 0 {
        write(text, format_args!("udf #{word}"));
    } else {
        write(text, format_args!(".inst {word:#010x}"));
    }
}
