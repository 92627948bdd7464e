//! Basic blocks and the edges between them.

use std::ops::Range;

use super::function::FunctionCode;
use super::instruction::{Instruction, InstructionKind, Target};
use super::loops::LoopNest;
use dioptra_symbols::CodeMachine;

/// Whether a call ends a basic block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CallBlocks {
    /// A block goes on after a call, as compilers see it.
    #[default]
    Continue,
    /// A call ends its block, as branch records see it: the next one is reached by
    /// [`EdgeKind::CallReturn`].
    End,
}

/// Instructions that are executed together: entered only at the first, left only at the last.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Block {
    /// The numbers of its instructions in the function.
    pub instructions: Range<usize>,
    /// Its relative addresses.
    pub addresses: Range<u64>,
}

/// Why control may go from one block to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum EdgeKind {
    /// To the next instruction, for want of a jump.
    FallThrough,
    /// A conditional jump that jumps.
    Taken,
    /// A jump without condition.
    Jump,
    /// To the instruction after a call, once the callee returns (only with [`CallBlocks::End`]).
    CallReturn,
    /// One or more entries of a jump table.
    Table,
    /// A jump through a register or memory whose targets aren't known: a tail call, or a `switch`.
    Indirect,
    /// A direct jump out of the function: a tail call, or into its split-off cold part.
    Leave,
}

/// Where an edge ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EdgeEnd {
    /// The number of a block of the same function.
    Block(usize),
    /// A relative address outside the function; `None` if it isn't known.
    Outside(Option<u64>),
}

/// A way from one block to another, or out of the function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Edge {
    /// The number of the block it leaves.
    pub from: usize,
    /// Where it goes.
    pub to: EdgeEnd,
    /// Why.
    pub kind: EdgeKind,
    /// Whether the jump leads into the middle of an instruction of the block `to`, as where a `lock` prefix
    /// is jumped over.
    pub is_inside_instruction: bool,
}

/// The basic blocks of a function, by rising address and without gaps, and the edges between them.
///
/// A block without predecessors that isn't the first one is entered from outside (an exception handler), or
/// by an indirect jump whose table is unknown, or never.
#[derive(Debug, Clone)]
pub struct ControlFlow {
    blocks: Vec<Block>,
    /// By `from`; each pair of blocks once for each kind.
    edges: Vec<Edge>,
    /// Where each block's edges begin, and the end.
    edges_from: Vec<u32>,
    /// Numbers of edges by the block they lead to.
    incoming: Vec<u32>,
    incoming_from: Vec<u32>,
    unresolved: usize,
}

impl FunctionCode {
    /// Its basic blocks. All calls are taken to return, but for one that ends the function.
    #[must_use]
    pub fn control_flow(&self, calls: CallBlocks) -> ControlFlow {
        self.control_flow_where(calls, |_| true)
    }

    /// Its basic blocks, if it is known which calls return: a call for which `returns` is false ends its
    /// block, and no edge leads on. Else what follows a call of `abort` seems to be reached from there, which
    /// may make a loop irreducible.
    #[must_use]
    pub fn control_flow_where(
        &self,
        calls: CallBlocks,
        returns: impl Fn(&Instruction<'_>) -> bool,
    ) -> ControlFlow {
        let last_calls: Vec<u32> = self
            .calls()
            .filter(|call| !returns(call))
            .map(|call| call.index as u32)
            .collect();
        self.control_flow_after(calls, &last_calls)
    }

    /// The blocks, given the numbers of the calls that don't return.
    fn control_flow_after(&self, calls: CallBlocks, last_calls: &[u32]) -> ControlFlow {
        let (starts, is_target) = self.block_starts(calls, last_calls);
        let ends = |index: usize| {
            !self.packed()[index].kind.continues()
                || last_calls.binary_search(&(index as u32)).is_ok()
        };
        let length_before = |index: usize| match self.packed().get(index) {
            Some(packed) => u64::from(packed.offset),
            None => self.bytes().len() as u64,
        };
        let start = self.addresses().start;
        let blocks: Vec<Block> = starts
            .iter()
            .enumerate()
            .map(|(number, &first)| {
                let end = starts
                    .get(number + 1)
                    .map_or(self.len(), |&next| next as usize);
                let first = first as usize;
                Block {
                    instructions: first..end,
                    addresses: start.wrapping_add(length_before(first))
                        ..start.wrapping_add(length_before(end)),
                }
            })
            .collect();
        let mut edges = Vec::with_capacity(blocks.len() * 2);
        let mut edges_from = Vec::with_capacity(blocks.len() + 1);
        let mut unresolved = 0;
        for number in 0..blocks.len() {
            let from = edges.len();
            edges_from.push(from as u32);
            let first = blocks[number].instructions.start;
            let is_reached = is_target[first] || first == 0 || !ends(first - 1);
            if !is_reached && self.is_padding(&blocks[number]) {
                continue;
            }
            let last = blocks[number].instructions.end - 1;
            if last_calls.binary_search(&(last as u32)).is_ok() {
                continue;
            }
            unresolved += usize::from(!self.edges_of(number, &blocks, calls, &mut edges));
            edges[from..].sort_unstable();
            // A table leads to the same place many times.
            let mut kept = from;
            for at in from..edges.len() {
                if at == from || edges[at] != edges[kept - 1] {
                    edges[kept] = edges[at];
                    kept += 1;
                }
            }
            edges.truncate(kept);
        }
        edges_from.push(edges.len() as u32);
        let (incoming, incoming_from) = by_target(&edges, blocks.len());
        ControlFlow {
            blocks,
            edges,
            edges_from,
            incoming,
            incoming_from,
            unresolved,
        }
    }

    /// Whether a block does nothing: it fills the room up to the next one.
    fn is_padding(&self, block: &Block) -> bool {
        let mut instructions = block.instructions.clone();
        instructions.all(|index| {
            self.get(index)
                .is_some_and(|raw| does_nothing(self.machine(), raw.bytes))
        })
    }

    /// The numbers of the instructions that begin a block, and whether each instruction is jumped to.
    fn block_starts(&self, calls: CallBlocks, last_calls: &[u32]) -> (Vec<u32>, Vec<bool>) {
        let mut begins = vec![false; self.len() + 1];
        let mut is_target = vec![false; self.len() + 1];
        begins[0] = true;
        for &call in last_calls {
            begins[call as usize + 1] = true;
        }
        for (index, packed) in self.packed().iter().enumerate() {
            if packed.kind.ends_block() || (calls == CallBlocks::End && packed.kind.is_call()) {
                begins[index + 1] = true;
            }
        }
        let jumps = self
            .targets()
            .iter()
            .filter(|(index, _)| self.packed()[*index as usize].kind.is_jump())
            .map(|(_, target)| target);
        let entries = self.tables().iter().flat_map(|table| &table.targets);
        for target in jumps.chain(entries) {
            if let Some(index) = self.index_of_virtual(target.virtual_address) {
                begins[index] = true;
                is_target[index] = true;
            }
        }
        let starts = (0..self.len() as u32).filter(|&index| begins[index as usize]);
        (starts.collect(), is_target)
    }

    /// Adds a block's edges; false if it ends with a jump whose targets aren't known.
    fn edges_of(
        &self,
        from: usize,
        blocks: &[Block],
        calls: CallBlocks,
        edges: &mut Vec<Edge>,
    ) -> bool {
        let last = blocks[from].instructions.end - 1;
        let kind = self.packed()[last].kind;
        let next = if from + 1 < blocks.len() {
            EdgeEnd::Block(from + 1)
        } else {
            EdgeEnd::Outside(Some(self.addresses().end))
        };
        let mut push = |to, kind| {
            edges.push(Edge {
                from,
                to,
                kind,
                is_inside_instruction: false,
            });
        };
        if kind.is_call() && calls == CallBlocks::End {
            push(next, EdgeKind::CallReturn);
        } else if kind.is_call() && from + 1 == blocks.len() {
            // The last thing a function does: its callee doesn't return.
        } else if kind.continues() {
            push(next, EdgeKind::FallThrough);
        }
        match kind {
            InstructionKind::ConditionalJump | InstructionKind::Jump => {
                let taken = if kind == InstructionKind::Jump {
                    EdgeKind::Jump
                } else {
                    EdgeKind::Taken
                };
                let at = self
                    .targets()
                    .binary_search_by_key(&last, |(index, _)| *index as usize);
                if let Ok(at) = at {
                    edges.push(self.edge_to(from, self.targets()[at].1, taken, blocks));
                }
            }
            InstructionKind::IndirectJump => match self.table_of(last) {
                Some(table) => edges.extend(
                    table
                        .targets
                        .iter()
                        .map(|&target| self.edge_to(from, target, EdgeKind::Table, blocks)),
                ),
                None => {
                    push(EdgeEnd::Outside(None), EdgeKind::Indirect);
                    return false;
                }
            },
            _ => {}
        }
        true
    }

    fn edge_to(&self, from: usize, target: Target, kind: EdgeKind, blocks: &[Block]) -> Edge {
        let Some(index) = self.index_of_virtual(target.virtual_address) else {
            return Edge {
                from,
                to: EdgeEnd::Outside(target.address),
                kind: match kind {
                    EdgeKind::Table => kind,
                    _ => EdgeKind::Leave,
                },
                is_inside_instruction: false,
            };
        };
        let offset = target.virtual_address.wrapping_sub(self.virtual_start());
        Edge {
            from,
            to: EdgeEnd::Block(block_with(blocks, index)),
            kind,
            is_inside_instruction: offset != u64::from(self.packed()[index].offset),
        }
    }
}

/// Whether an instruction is one of those that assemblers fill gaps with.
fn does_nothing(machine: CodeMachine, bytes: &[u8]) -> bool {
    if machine == CodeMachine::Aarch64 {
        return bytes == [0x1f, 0x20, 0x03, 0xd5];
    }
    let prefixes = bytes
        .iter()
        .take_while(|&&byte| matches!(byte, 0x66 | 0x2e));
    match &bytes[prefixes.count()..] {
        [0x90] | [0x0f, 0x1f, ..] => true,
        // lea 0(%esi),%esi and its longer kin
        [0x8d, 0x76, 0] | [0x8d, 0x74, 0x26, 0] => machine == CodeMachine::I386,
        [0x8d, 0xb6, 0, 0, 0, 0] | [0x8d, 0xb4, 0x26, 0, 0, 0, 0] => machine == CodeMachine::I386,
        _ => false,
    }
}

fn block_with(blocks: &[Block], instruction: usize) -> usize {
    blocks.partition_point(|block| block.instructions.end <= instruction)
}

/// Numbers of edges sorted by the block they lead to, and where each block's begin.
fn by_target(edges: &[Edge], blocks: usize) -> (Vec<u32>, Vec<u32>) {
    let mut from = vec![0_u32; blocks + 1];
    for edge in edges {
        if let EdgeEnd::Block(to) = edge.to {
            from[to + 1] += 1;
        }
    }
    for at in 1..from.len() {
        from[at] += from[at - 1];
    }
    let mut next = from.clone();
    let mut incoming = vec![0; from.last().map_or(0, |&last| last as usize)];
    for (number, edge) in edges.iter().enumerate() {
        if let EdgeEnd::Block(to) = edge.to {
            incoming[next[to] as usize] = number as u32;
            next[to] += 1;
        }
    }
    (incoming, from)
}

impl ControlFlow {
    /// The blocks by rising address.
    #[must_use]
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// All edges, by the block they leave.
    #[must_use]
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// The edges that leave a block.
    ///
    /// # Panics
    /// If there is no such block.
    #[must_use]
    pub fn successors(&self, block: usize) -> &[Edge] {
        &self.edges[self.edges_from[block] as usize..self.edges_from[block + 1] as usize]
    }

    /// The edges that lead to a block from within the function.
    ///
    /// # Panics
    /// If there is no such block.
    pub fn predecessors(&self, block: usize) -> impl ExactSizeIterator<Item = &Edge> {
        let range = self.incoming_from[block] as usize..self.incoming_from[block + 1] as usize;
        self.incoming[range]
            .iter()
            .map(|&edge| &self.edges[edge as usize])
    }

    /// The number of the block with a relative address.
    #[must_use]
    pub fn block_at(&self, address: u64) -> Option<usize> {
        let at = self
            .blocks
            .partition_point(|block| block.addresses.end <= address);
        let block = self.blocks.get(at)?;
        block.addresses.contains(&address).then_some(at)
    }

    /// The number of the block with an instruction of the function.
    #[must_use]
    pub fn block_of(&self, instruction: usize) -> Option<usize> {
        let at = block_with(&self.blocks, instruction);
        (at < self.blocks.len()).then_some(at)
    }

    /// Returns the number of indirect jumps with unknown targets: blocks and loops may be joined by edges that are
    /// missing here.
    #[must_use]
    pub fn unresolved_jumps(&self) -> usize {
        self.unresolved
    }

    /// The loops.
    #[must_use]
    pub fn loops(&self) -> LoopNest {
        LoopNest::of(self)
    }
}
