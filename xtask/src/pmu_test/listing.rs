//! The instructions that a program of `tests/pmu` executes, found by stepping through objdump's listing of it: the truth that recordings of
//! the emulated counters are held against, known before the program runs.

use std::collections::{BTreeMap, HashMap};

use anyhow::{Context, Result, bail};

/// The number of the system call `exit`.
const EXIT: u64 = 93;
/// No program here is meant to run longer.
const TOO_LONG: u64 = 1_000_000_000;

/// The instructions of an executable, by address.
pub struct Listing {
    /// Beginnings of functions.
    functions: BTreeMap<u64, String>,
    /// One for every four bytes from the first instruction on.
    code: Vec<Instruction>,
    first: u64,
    /// Constants between the functions, four bytes each.
    words: HashMap<u64, u64>,
}

/// As much of an instruction as decides where the program goes on.
#[derive(Clone, Copy)]
enum Instruction {
    Plain,
    Set(usize, u64),
    Load(usize, u64),
    /// Puts the register `x19` on the stack, or takes it from there.
    Save,
    Restore,
    /// Takes one from a register, and notes whether it is zero.
    Decrement(usize),
    BranchNotZero(u64),
    Call(u64),
    Return,
    SystemCall,
    /// Something that stepping does not know.
    Unknown,
}

impl Listing {
    /// Reads `objdump -d --no-show-raw-insn`.
    pub fn parse(text: &str) -> Listing {
        let mut functions = BTreeMap::new();
        let mut words = HashMap::new();
        let mut instructions = Vec::new();
        for line in text.lines() {
            if let Some((address, name)) = line
                .strip_suffix(">:")
                .and_then(|line| line.split_once(" <"))
            {
                if let Ok(address) = u64::from_str_radix(address, 16) {
                    functions.insert(address, name.to_string());
                }
            } else if let Some((address, instruction)) = line.trim_start().split_once(":\t") {
                let Ok(address) = u64::from_str_radix(address, 16) else {
                    continue;
                };
                let instruction = instruction.split("//").next().unwrap_or_default().trim();
                if let Some(word) = instruction.strip_prefix(".word\t0x") {
                    words.insert(address, u64::from_str_radix(word, 16).unwrap_or_default());
                } else {
                    instructions.push((address, Instruction::parse(instruction)));
                }
            }
        }
        let first = instructions
            .iter()
            .map(|(address, _)| *address)
            .min()
            .unwrap_or(0);
        let mut code = Vec::new();
        for (address, instruction) in instructions {
            let place = index(first, address);
            if place >= code.len() {
                code.resize(place + 1, Instruction::Unknown);
            }
            code[place] = instruction;
        }
        Listing {
            functions,
            code,
            first,
            words,
        }
    }

    /// The address of a function.
    ///
    /// # Errors
    /// If there is none of the name: checks and sources belong together.
    pub fn address(&self, function: &str) -> Result<u64> {
        self.functions
            .iter()
            .find(|(_, name)| *name == function)
            .map(|(address, _)| *address)
            .with_context(|| format!("the program has no function {function}"))
    }

    /// The function that an address belongs to.
    pub fn function(&self, address: u64) -> &str {
        self.functions
            .range(..=address)
            .next_back()
            .map_or("", |(_, name)| name)
    }

    /// Steps through the program from `_start` to its exit. `at` gets each instruction's address before the
    /// instruction is executed; the result is their number.
    ///
    /// # Errors
    /// If the program uses instructions that are not known here, or does not come to its exit.
    pub fn step(&self, mut at: impl FnMut(u64)) -> Result<u64> {
        let mut address = self.address("_start")?;
        let mut registers = [0_u64; 31];
        let mut zero = false;
        let (mut callers, mut saved) = (Vec::new(), Vec::new());
        for count in 1..TOO_LONG {
            at(address);
            let instruction = self
                .code
                .get(index(self.first, address))
                .with_context(|| format!("there is no code at {address:#x}"))?;
            address += 4;
            match *instruction {
                Instruction::Plain => {}
                Instruction::Set(register, value) => registers[register] = value,
                Instruction::Load(register, place) => {
                    let half = |place| {
                        self.words
                            .get(&place)
                            .with_context(|| format!("no constant at {place:#x}"))
                    };
                    registers[register] = half(place)? | half(place + 4)? << 32;
                }
                Instruction::Save => saved.push(registers[19]),
                Instruction::Restore => registers[19] = saved.pop().context("x19 was not saved")?,
                Instruction::Decrement(register) => {
                    registers[register] = registers[register].wrapping_sub(1);
                    zero = registers[register] == 0;
                }
                Instruction::BranchNotZero(place) if !zero => address = place,
                Instruction::BranchNotZero(_) => {}
                Instruction::Call(place) => {
                    callers.push(address);
                    address = place;
                }
                Instruction::Return => {
                    address = callers.pop().context("a return without a call")?
                }
                Instruction::SystemCall if registers[8] == EXIT => return Ok(count),
                Instruction::SystemCall => {}
                Instruction::Unknown => bail!("the instruction at {:#x} is not known", address - 4),
            }
        }
        bail!("the program does not end")
    }
}

/// Which instruction lies at an address; one before the first is none of them.
fn index(first: u64, address: u64) -> usize {
    usize::try_from(address.wrapping_sub(first) / 4).unwrap_or(usize::MAX)
}

impl Instruction {
    fn parse(text: &str) -> Instruction {
        let (name, operands) = text.split_once('\t').unwrap_or((text, ""));
        let mut parts = operands.split(", ");
        let first = parts.next().unwrap_or_default();
        let rest: Vec<_> = parts.collect();
        let register = first
            .strip_prefix('x')
            .and_then(|number| number.parse::<usize>().ok())
            .filter(|r| *r < 31);
        let place =
            |text: &str| u64::from_str_radix(text.split(' ').next().unwrap_or_default(), 16).ok();
        let number = |text: &str| {
            text.strip_prefix("#0x")
                .and_then(|digits| u64::from_str_radix(digits, 16).ok())
        };
        let known = match (name, register, rest.as_slice()) {
            ("mov", Some(register), [value]) if value.starts_with('#') => {
                number(value).map(|value| Instruction::Set(register, value))
            }
            ("str", Some(19), ["[sp", ..]) => Some(Instruction::Save),
            ("ldr", Some(19), ["[sp", ..]) => Some(Instruction::Restore),
            ("ldr", Some(register), [value]) if !value.starts_with('[') => {
                place(value).map(|place| Instruction::Load(register, place))
            }
            ("subs", Some(register), [_, "#0x1"]) if rest[0] == first => {
                Some(Instruction::Decrement(register))
            }
            ("b.ne", ..) => place(first).map(Instruction::BranchNotZero),
            ("bl", ..) => place(first).map(Instruction::Call),
            ("ret", ..) => Some(Instruction::Return),
            ("svc", ..) => Some(Instruction::SystemCall),
            ("add" | "stp" | "ldp" | "nop", ..) => Some(Instruction::Plain),
            ("mov", Some(_), _) | ("str", _, ["[x10]"]) => Some(Instruction::Plain),
            _ => None,
        };
        known.unwrap_or(Instruction::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::Listing;

    #[test]
    fn a_loop_is_stepped_through() {
        let listing = Listing::parse(concat!(
            "0000000000000100 <f>:\n",
            " 100:\tldr\tx19, 110 <f+0x10>\n",
            " 104:\tsubs\tx19, x19, #0x1\n",
            " 108:\tb.ne\t104 <f+0x4>  // b.any\n",
            " 10c:\tret\n",
            " 110:\t.word\t0x00000003\n",
            " 114:\t.word\t0x00000000\n",
            "\n0000000000000200 <_start>:\n",
            " 200:\tbl\t100 <f>\n",
            " 204:\tmov\tx8, #0x5d                  \t// #93\n",
            " 208:\tsvc\t#0x0\n",
        ));
        let mut visited = Vec::new();
        let count = listing
            .step(|address| visited.push(address))
            .expect("it ends");
        assert_eq!(count, 1 + 1 + 3 * 2 + 1 + 2);
        assert_eq!(
            visited.iter().filter(|address| **address == 0x104).count(),
            3
        );
        assert_eq!(listing.function(0x108), "f");
        assert_eq!(listing.function(0x204), "_start");
    }

    #[test]
    fn unknown_instructions_are_refused() {
        let listing = Listing::parse("0000000000000200 <_start>:\n 200:\tbr\tx3\n");
        assert!(listing.step(|_| ()).is_err());
    }
}
