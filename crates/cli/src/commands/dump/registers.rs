//! Names of registers by their number in a sample's mask (`asm/perf_regs.h` of each machine).

use dioptra_perfevents::record::Registers;

const X86: [&str; 24] = [
    "ax", "bx", "cx", "dx", "si", "di", "bp", "sp", "ip", "flags", "cs", "ss", "ds", "es", "fs",
    "gs", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
];

/// A machine whose registers have names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    X86,
    Arm64,
    Arm,
    Other,
}

impl Machine {
    /// Returns the machine of a name that `uname -m` prints.
    pub fn of_name(name: &str) -> Machine {
        match name {
            "x86_64" | "i386" | "i486" | "i586" | "i686" => Machine::X86,
            "aarch64" | "arm64" => Machine::Arm64,
            name if name.starts_with("arm") => Machine::Arm,
            _ => Machine::Other,
        }
    }

    fn register(self, number: u32) -> String {
        match (self, number) {
            (Machine::X86, 0..24) => X86[number as usize].to_owned(),
            (Machine::X86, 32..64) if number.is_multiple_of(2) => {
                format!("xmm{}", (number - 32) / 2)
            }
            (Machine::X86, 32..64) => format!("xmm{}_high", (number - 32) / 2),
            (Machine::Arm64, 0..30) => format!("x{number}"),
            (Machine::Arm64, 30) => "lr".to_owned(),
            (Machine::Arm64, 31) => "sp".to_owned(),
            (Machine::Arm64, 32) => "pc".to_owned(),
            (Machine::Arm, 11) => "fp".to_owned(),
            (Machine::Arm, 12) => "ip".to_owned(),
            (Machine::Arm, 13) => "sp".to_owned(),
            (Machine::Arm, 14) => "lr".to_owned(),
            (Machine::Arm, 15) => "pc".to_owned(),
            _ => format!("r{number}"),
        }
    }

    /// Returns a sample's registers with their names, in the order of their numbers.
    pub fn named(self, registers: &Registers<'_>) -> Vec<(String, u64)> {
        (0..64)
            .filter_map(|number| Some((self.register(number), registers.get(number)?)))
            .collect()
    }
}
