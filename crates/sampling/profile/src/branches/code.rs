//! The code that ran, as the analysis needs it. The [`Code`] trait hides where the code comes from.

use crate::processes::modules::ModuleId;
use std::ops::Range;
use std::sync::Arc;

/// Finds the code of functions. Implementations may cache their answers, because the analysis asks often.
pub trait Code {
    /// Returns the function that holds an address of a module. `None` where there is no function or its code cannot be
    /// read.
    fn function(&self, module: ModuleId, address: u64) -> Option<Arc<CodeOutline>>;
}

/// The effect of an instruction on the flow of control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flow {
    /// Goes on with the next instruction.
    Sequential,
    /// Jumps, or goes on with the next instruction.
    Conditional,
    /// Jumps to a known target.
    Jump,
    /// Jumps to a computed target.
    IndirectJump,
    /// Calls a known target.
    Call,
    /// Calls a computed target.
    IndirectCall,
    /// Returns.
    Return,
    /// Enters the kernel, and goes on with the next instruction.
    SystemCall,
    /// Never goes on: a trap, or no instruction.
    Stop,
}

impl Flow {
    /// Returns whether execution never continues with the instruction that follows in memory.
    fn ends_runs(self) -> bool {
        !matches!(
            self,
            Flow::Sequential | Flow::Conditional | Flow::SystemCall
        )
    }

    /// Returns whether the instruction is a direct or an indirect call.
    pub fn is_call(self) -> bool {
        matches!(self, Flow::Call | Flow::IndirectCall)
    }
}

/// An instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutlineInstruction {
    /// Its address in the module.
    pub address: u64,
    /// Its effect on the flow of control.
    pub flow: Flow,
}

/// A natural loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutlineLoop {
    /// The block at which it is entered.
    pub header: usize,
    /// Its blocks by rising number, including the header and the blocks of inner loops.
    pub blocks: Vec<usize>,
    /// The loop around it.
    pub parent: Option<usize>,
}

/// A function: instructions, blocks, loops.
#[derive(Clone, Debug)]
pub struct CodeOutline {
    addresses: Range<u64>,
    instructions: Vec<OutlineInstruction>,
    blocks: Vec<Range<usize>>,
    loops: Vec<OutlineLoop>,
    /// By instruction: the number of instructions before it that end straight runs.
    barriers: Vec<u32>,
    /// By block: the loop that it is the header of.
    headed: Vec<Option<usize>>,
}

impl CodeOutline {
    /// Makes an outline. `addresses` is the function's range in its module, and `instructions` are all its instructions
    /// by rising address. `blocks` are ranges of instructions, rising and without gaps; a call may end a block or not.
    /// `loops` consist of these blocks, and no two have the same header.
    pub fn new(
        addresses: Range<u64>,
        instructions: Vec<OutlineInstruction>,
        blocks: Vec<Range<usize>>,
        loops: Vec<OutlineLoop>,
    ) -> Self {
        let mut count = 0;
        let barriers = instructions.iter().map(|instruction| {
            let before = count;
            count += u32::from(instruction.flow.ends_runs());
            before
        });
        let mut headed = vec![None; blocks.len()];
        for (number, natural) in loops.iter().enumerate() {
            if let Some(headed) = headed.get_mut(natural.header) {
                *headed = Some(number);
            }
        }
        CodeOutline {
            barriers: barriers.collect(),
            headed,
            addresses,
            instructions,
            blocks,
            loops,
        }
    }

    /// Returns the function's addresses in its module.
    pub fn addresses(&self) -> Range<u64> {
        self.addresses.clone()
    }

    /// Returns the instructions.
    pub fn instructions(&self) -> &[OutlineInstruction] {
        &self.instructions
    }

    /// Returns the blocks, as ranges of instructions.
    pub fn blocks(&self) -> &[Range<usize>] {
        &self.blocks
    }

    /// Returns the loops.
    pub fn loops(&self) -> &[OutlineLoop] {
        &self.loops
    }

    /// Returns the number of the instruction that starts at an address.
    pub fn instruction_at(&self, address: u64) -> Option<usize> {
        let found = self
            .instructions
            .binary_search_by_key(&address, |instruction| instruction.address);
        found.ok()
    }

    /// Returns the number of the block that holds an instruction.
    pub fn block_of(&self, instruction: usize) -> Option<usize> {
        let index = self
            .blocks
            .partition_point(|block| block.end <= instruction);
        let block = self.blocks.get(index)?;
        block.contains(&instruction).then_some(index)
    }

    /// Returns the number of the loop whose header a block is.
    pub fn headed_by(&self, block: usize) -> Option<usize> {
        *self.headed.get(block)?
    }

    /// Returns whether execution can go from `first` to `last` without a jump.
    pub(super) fn runs_straight(&self, first: usize, last: usize) -> bool {
        first <= last && self.barriers.get(first) == self.barriers.get(last)
    }
}
