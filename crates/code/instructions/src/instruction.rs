//! One instruction.

/// The effect of an instruction on the flow of control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum InstructionKind {
    /// Goes on with the next one.
    Sequential,
    /// Jumps, or goes on with the next one; its target is known.
    ConditionalJump,
    /// Jumps to a known target.
    Jump,
    /// Jumps through a register or memory; see [`FunctionCode::table_of`](super::FunctionCode::table_of).
    IndirectJump,
    /// Calls a known target.
    Call,
    /// Calls through a register or memory.
    IndirectCall,
    /// Returns from a function or an interrupt.
    Return,
    /// Enters the kernel or a hypervisor, and goes on with the next one.
    SystemCall,
    /// Raises an exception on purpose (`ud2`, `int3`, `brk`).
    Trap,
    /// No instruction known to the decoder.
    Invalid,
}

impl InstructionKind {
    /// Whether it calls, directly or not.
    #[must_use]
    pub fn is_call(self) -> bool {
        matches!(self, Self::Call | Self::IndirectCall)
    }

    /// Whether it jumps, at least sometimes.
    #[must_use]
    pub fn is_jump(self) -> bool {
        matches!(
            self,
            Self::ConditionalJump | Self::Jump | Self::IndirectJump
        )
    }

    /// Whether the next instruction may come after it: at once, or when the callee returns.
    #[must_use]
    pub fn continues(self) -> bool {
        !matches!(
            self,
            Self::Jump | Self::IndirectJump | Self::Return | Self::Trap | Self::Invalid
        )
    }

    /// Whether a basic block ends with it (calls are another matter).
    #[must_use]
    pub fn ends_block(self) -> bool {
        self == Self::ConditionalJump || !self.continues()
    }
}

/// Where a jump or call goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Target {
    /// The relative address, as [`ModuleSymbols::function`](dioptra_symbols::ModuleSymbols::function) wants it;
    /// `None` if the module has no code there.
    pub address: Option<u64>,
    /// The address as the file's symbols and `objdump` tell it.
    pub virtual_address: u64,
}

/// An instruction of a [`FunctionCode`](super::FunctionCode).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Instruction<'a> {
    /// Its number in the function.
    pub index: usize,
    /// Its relative address.
    pub address: u64,
    /// Its address as `objdump` prints it.
    pub virtual_address: u64,
    /// Its bytes.
    pub bytes: &'a [u8],
    /// The instruction's effect on the flow of control.
    pub kind: InstructionKind,
    /// Where it jumps to or what it calls, if the instruction itself tells.
    pub target: Option<Target>,
}

/// The table through which an indirect jump goes: a `switch`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct JumpTable {
    /// The number of the jump in the function.
    pub instruction: usize,
    /// The table's virtual address.
    pub virtual_address: u64,
    /// Where each entry leads, in the table's order.
    pub targets: Vec<Target>,
}

/// An instruction as it is kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packed {
    /// Distance from the function's start.
    pub offset: u32,
    pub length: u8,
    pub kind: InstructionKind,
}
