//! What the analysis needs to know of the code that ran; where it comes from is another's business.

use crate::processes::modules::ModuleId;
use std::ops::Range;
use std::sync::Arc;

/// Finds the code of functions. Answers may be kept by whoever implements it: the analysis asks often.
pub trait Code {
    /// The function that holds an address of a module; `None` where there is none, or no code to be had.
    fn function(&self, module: ModuleId, address: u64) -> Option<Arc<CodeOutline>>;
}

/// What an instruction does to the flow of control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flow {
    /// Goes on with the next one.
    Sequential,
    /// Jumps, or goes on with the next one.
    Conditional,
    /// Jumps to a known target.
    Jump,
    /// Jumps to a computed one.
    IndirectJump,
    /// Calls a known target.
    Call,
    /// Calls a computed one.
    IndirectCall,
    /// Returns.
    Return,
    /// Enters the kernel, and goes on with the next one.
    SystemCall,
    /// Never goes on: a trap, or no instruction.
    Stop,
}

impl Flow {
    /// Whether nothing can run straight past it: whatever comes next in the code is not what runs next.
    fn ends_runs(self) -> bool {
        !matches!(
            self,
            Flow::Sequential | Flow::Conditional | Flow::SystemCall
        )
    }

    /// Whether it is a call of either sort.
    pub fn is_call(self) -> bool {
        matches!(self, Flow::Call | Flow::IndirectCall)
    }
}

/// An instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutlineInstruction {
    /// Its address in the module.
    pub address: u64,
    /// What it does.
    pub flow: Flow,
}

/// A natural loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutlineLoop {
    /// The block at which it is entered.
    pub header: usize,
    /// Its blocks, the header and those of inner loops among them, rising.
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
    /// By instruction: how many before it end runs.
    barriers: Vec<u32>,
    /// By block: the loop that it is the header of.
    headed: Vec<Option<usize>>,
}

impl CodeOutline {
    /// `addresses` are the function's in its module, `instructions` all of them by rising address; `blocks` are
    /// ranges of instructions, rising and without gaps (calls may end a block or not); `loops` are of these blocks, no
    /// two with the same header.
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

    /// The function's addresses in its module.
    pub fn addresses(&self) -> Range<u64> {
        self.addresses.clone()
    }

    /// Its instructions.
    pub fn instructions(&self) -> &[OutlineInstruction] {
        &self.instructions
    }

    /// Its blocks, as ranges of instructions.
    pub fn blocks(&self) -> &[Range<usize>] {
        &self.blocks
    }

    /// Its loops.
    pub fn loops(&self) -> &[OutlineLoop] {
        &self.loops
    }

    /// The number of the instruction that starts at an address.
    pub fn instruction_at(&self, address: u64) -> Option<usize> {
        let found = self
            .instructions
            .binary_search_by_key(&address, |instruction| instruction.address);
        found.ok()
    }

    /// The number of the block that holds an instruction.
    pub fn block_of(&self, instruction: usize) -> Option<usize> {
        let index = self
            .blocks
            .partition_point(|block| block.end <= instruction);
        let block = self.blocks.get(index)?;
        block.contains(&instruction).then_some(index)
    }

    /// The number of the loop whose header a block is.
    pub fn headed_by(&self, block: usize) -> Option<usize> {
        *self.headed.get(block)?
    }

    /// Whether execution can go from the one to the other without a jump.
    pub(super) fn runs_straight(&self, first: usize, last: usize) -> bool {
        first <= last && self.barriers.get(first) == self.barriers.get(last)
    }
}
