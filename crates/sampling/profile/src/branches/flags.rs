//! The flags word of a branch record.

use dioptra_perfrecords::ByteOrder;

/// The fields of a branch record beside its two addresses, as in `struct perf_branch_entry`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BranchFlags {
    /// Bit fields from the lowest bit up, as little-endian machines lay them out.
    word: u64,
}

/// The type of a branch, where the recording states it (`--branch-filter …,save_type`, Arm's BRBE).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BranchKind {
    /// The recording does not say.
    #[default]
    Unknown,
    /// A conditional jump.
    Conditional,
    /// A direct jump.
    Unconditional,
    /// A jump to a computed address.
    Indirect,
    /// A direct call.
    Call,
    /// A call of a computed address.
    IndirectCall,
    /// A return.
    Return,
    /// The entry of a system call.
    Syscall,
    /// The return from a system call.
    Sysret,
    /// A conditional call.
    ConditionalCall,
    /// A conditional return.
    ConditionalReturn,
    /// The return from an exception.
    ExceptionReturn,
    /// An interrupt: its source is the interrupted instruction, not a branch.
    Interrupt,
    /// A system error.
    SystemError,
    /// Not in a transaction.
    NoTransaction,
    /// A fault of alignment, data or instruction: its source is no branch either.
    Fault,
    /// An architecture's own type: 1 to 5 are Arm's FIQ, debug halt, debug exit, debug instruction and debug data.
    Architecture(u8),
    /// A number that is not known.
    Other(u8),
}

impl BranchKind {
    /// Returns whether it is a call of any kind within a program. System calls are not.
    pub fn is_call(self) -> bool {
        matches!(
            self,
            BranchKind::Call | BranchKind::IndirectCall | BranchKind::ConditionalCall
        )
    }

    /// Returns whether it is a return of any kind within a program.
    pub fn is_return(self) -> bool {
        matches!(self, BranchKind::Return | BranchKind::ConditionalReturn)
    }

    /// Returns whether the program was diverted. The source of such a branch is the instruction that will run (again)
    /// afterwards.
    pub fn is_diversion(self) -> bool {
        matches!(
            self,
            BranchKind::Interrupt | BranchKind::SystemError | BranchKind::Fault
        )
    }
}

/// The outcome of a branch that the CPU recorded while it was still speculative (AMD).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speculation {
    /// The recording does not say.
    Unknown,
    /// The branch was on a wrong path and never happened.
    WrongPath,
    /// The branch was not speculative.
    None,
    /// The branch was speculative and happened.
    CorrectPath,
}

impl BranchFlags {
    /// Makes flags from a word that was read in the byte order of its recording.
    ///
    /// The fields are C bit fields, which compilers for big-endian machines lay out from the highest bit down.
    #[inline]
    pub fn new(word: u64, order: ByteOrder) -> Self {
        match order {
            ByteOrder::Little => BranchFlags { word },
            ByteOrder::Big => BranchFlags {
                word: from_big_endian(word),
            },
        }
    }

    #[inline]
    fn bits(self, first: u32, count: u32) -> u64 {
        self.word >> first & ((1 << count) - 1)
    }

    /// Returns whether the CPU had predicted its target or direction wrongly.
    #[inline]
    pub fn mispredicted(self) -> bool {
        self.bits(0, 1) == 1
    }

    /// Returns whether the CPU had predicted them rightly. Neither flag is set where the CPU does not say.
    #[inline]
    pub fn predicted(self) -> bool {
        self.bits(1, 1) == 1
    }

    /// Returns whether it was in a transaction.
    #[inline]
    pub fn in_transaction(self) -> bool {
        self.bits(2, 1) == 1
    }

    /// Returns whether it was the abort of a transaction.
    #[inline]
    pub fn aborted(self) -> bool {
        self.bits(3, 1) == 1
    }

    /// Returns the core cycles since the branch before it; 0 where the CPU does not say. Counts stop at 65,535.
    #[inline]
    pub fn cycles(self) -> u16 {
        self.bits(4, 16) as u16
    }

    /// Returns the type of the branch.
    #[inline]
    pub fn kind(self) -> BranchKind {
        match self.bits(20, 4) {
            0 => BranchKind::Unknown,
            1 => BranchKind::Conditional,
            2 => BranchKind::Unconditional,
            3 => BranchKind::Indirect,
            4 => BranchKind::Call,
            5 => BranchKind::IndirectCall,
            6 => BranchKind::Return,
            7 => BranchKind::Syscall,
            8 => BranchKind::Sysret,
            9 => BranchKind::ConditionalCall,
            10 => BranchKind::ConditionalReturn,
            11 => BranchKind::ExceptionReturn,
            12 => BranchKind::Interrupt,
            13 => BranchKind::SystemError,
            14 => BranchKind::NoTransaction,
            // Further types stand in a second field.
            _ => match self.bits(26, 4) as u8 {
                0..=2 => BranchKind::Fault,
                number @ 3..=7 => BranchKind::Architecture(number - 2),
                number => BranchKind::Other(number),
            },
        }
    }

    /// Returns the outcome of the branch, for CPUs that record branches while they are speculative.
    #[inline]
    pub fn speculation(self) -> Speculation {
        match self.bits(24, 2) {
            0 => Speculation::Unknown,
            1 => Speculation::WrongPath,
            2 => Speculation::None,
            _ => Speculation::CorrectPath,
        }
    }

    /// Returns the privilege level of the target: 0 not stated, 1 user, 2 kernel, 3 hypervisor.
    pub fn privilege(self) -> u8 {
        self.bits(30, 3) as u8
    }
}

/// Moves the fields of a big-endian machine's word to where little-endian machines have them.
fn from_big_endian(word: u64) -> u64 {
    const WIDTHS: [u32; 9] = [1, 1, 1, 1, 16, 4, 2, 4, 3];
    let mut result = 0;
    let mut at = 0;
    for width in WIDTHS {
        let mask = (1 << width) - 1;
        result |= (word >> (64 - at - width) & mask) << at;
        at += width;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_stand_where_the_header_puts_them() {
        let word = 1 | 1 << 3 | 0x1234 << 4 | 5 << 20 | 3 << 24 | 2 << 30;
        let flags = BranchFlags::new(word, ByteOrder::Little);
        assert!(flags.mispredicted() && !flags.predicted());
        assert!(!flags.in_transaction() && flags.aborted());
        assert_eq!(flags.cycles(), 0x1234);
        assert_eq!(flags.kind(), BranchKind::IndirectCall);
        assert_eq!(flags.speculation(), Speculation::CorrectPath);
        assert_eq!(flags.privilege(), 2);
        let kind = |new: u64| BranchFlags::new(15 << 20 | new << 26, ByteOrder::Little).kind();
        assert_eq!(kind(1), BranchKind::Fault);
        assert_eq!(kind(4), BranchKind::Architecture(2));
        assert_eq!(kind(9), BranchKind::Other(9));
    }

    #[test]
    fn big_endian_machines_fill_words_from_the_top() {
        let word = 1 << 62 | 1 << 61 | 0x1234 << 44 | 6 << 40 | 1 << 38 | 1 << 31;
        let flags = BranchFlags::new(word, ByteOrder::Big);
        assert!(flags.predicted() && flags.in_transaction());
        assert!(!flags.mispredicted() && !flags.aborted());
        assert_eq!(flags.cycles(), 0x1234);
        assert_eq!(flags.kind(), BranchKind::Return);
        assert_eq!(flags.speculation(), Speculation::WrongPath);
        assert_eq!(flags.privilege(), 1);
    }
}
