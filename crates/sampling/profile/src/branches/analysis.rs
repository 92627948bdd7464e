//! Branches and straight runs of a recording, mapped onto the instructions of the code.

use super::code::{Code, CodeOutline, Flow};
use super::sums::{Sums, less, pooled};
use super::tally::{Cycles, Executions, Share};
use super::{BranchEdge, BranchKind, BranchProfile, StraightRun};
use crate::processes::modules::ModuleId;
use crate::profile::Profile;
use crate::stacks::frames::{Frame, FrameId};
use std::ops::Range;

/// The branches of one event, mapped onto the code that ran.
pub struct BranchAnalysis<'a> {
    pub(super) profile: &'a Profile,
    pub(super) branches: &'a BranchProfile,
    pub(super) code: &'a dyn Code,
    /// Indices into `edges_list`, sorted by the source of the edge (`from`) and by its target (`to`).
    from: Vec<Placed>,
    to: Vec<Placed>,
    runs: Vec<Placed>,
    /// By module: length of the longest run, in bytes.
    longest: Vec<u64>,
    edges_list: Vec<BranchEdge>,
    runs_list: Vec<StraightRun>,
}

/// An edge or run at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Placed {
    module: ModuleId,
    address: u64,
    number: usize,
}

/// The branches of one function.
#[derive(Clone, Debug)]
pub struct FunctionBranches {
    /// By instruction of the [`CodeOutline`]: the number of times it ran. Empty where runs were not recorded.
    pub instructions: Vec<Executions>,
    /// By block: the number of times it was entered, and its cycles.
    pub blocks: Vec<BlockBranches>,
    /// By instruction: its branches, for instructions whose branch was taken or is conditional.
    pub sites: Vec<BranchSite>,
    /// By loop.
    pub loops: Vec<LoopBranches>,
    /// Sightings of runs that this code cannot have, because the binary is another one or branches are missing.
    pub impossible: u64,
    /// By instruction: the number of times that control came straight from the instruction before it.
    pub(super) through: Vec<Executions>,
}

/// A basic block that ran.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BlockBranches {
    /// The number of times that its first instruction ran.
    pub executions: Executions,
    /// Cycles of the block when a branch entered it and a branch left it.
    pub cycles: Cycles,
}

/// An instruction from which control went elsewhere.
#[derive(Clone, Debug, PartialEq)]
pub struct BranchSite {
    /// The number of the instruction.
    pub instruction: usize,
    /// The number of times that the branch was taken.
    pub taken: Executions,
    /// The number of times that a conditional branch was not taken. `None` for other branches, and where runs were not
    /// recorded.
    pub not_taken: Option<Executions>,
    /// The share of taken executions that were mispredicted. Records do not hold branches that were not taken.
    pub mispredicted: Option<Share>,
    /// The targets, the most frequent first; an indirect call has several.
    pub targets: Vec<BranchEdge>,
}

/// A natural loop that ran.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LoopBranches {
    /// The number of times that control entered the loop from outside.
    pub entries: Executions,
    /// The number of times that control went back to the header from inside the loop.
    pub back_edges: Executions,
}

impl LoopBranches {
    /// Returns the mean number of header executions per entry, and its standard error. `None` where no entry was seen.
    pub fn mean_trips(&self) -> Option<(f64, f64)> {
        let value = |count: &Executions| count.estimated.unwrap_or(count.seen as f64);
        let error = |count: &Executions| count.estimated_error().unwrap_or(count.error);
        let (entries, backs) = (value(&self.entries), value(&self.back_edges));
        if entries <= 0.0 {
            return None;
        }
        let ratio = backs / entries;
        let relative = |count: &Executions| {
            let value = value(count);
            if value > 0.0 {
                error(count) / value
            } else {
                0.0
            }
        };
        let spread = relative(&self.entries).hypot(relative(&self.back_edges));
        Some((1.0 + ratio, ratio * spread))
    }
}

impl<'a> BranchAnalysis<'a> {
    /// Makes the analysis of an event of `profile`; `None` where [`Profile::branches`] has none.
    pub fn new(profile: &'a Profile, event: usize, code: &'a dyn Code) -> Option<Self> {
        let branches = profile.branches(event)?;
        let edges_list: Vec<BranchEdge> = branches.edges().collect();
        let runs_list: Vec<StraightRun> = branches.runs().collect();
        let placed = |frames: &mut dyn Iterator<Item = FrameId>| {
            let mut list: Vec<Placed> = frames
                .enumerate()
                .map(|(number, frame)| {
                    let Frame { module, address } = profile.frames().get(frame);
                    Placed {
                        module,
                        address,
                        number,
                    }
                })
                .collect();
            list.sort_unstable();
            list
        };
        let mut longest = vec![0; profile.modules().len()];
        for run in &runs_list {
            let (start, end) = (
                profile.frames().get(run.start),
                profile.frames().get(run.end),
            );
            if let Some(longest) = longest.get_mut(start.module as usize) {
                *longest = (end.address - start.address).max(*longest);
            }
        }
        Some(BranchAnalysis {
            profile,
            branches,
            code,
            from: placed(&mut edges_list.iter().map(|edge| edge.from)),
            to: placed(&mut edges_list.iter().map(|edge| edge.to)),
            runs: placed(&mut runs_list.iter().map(|run| run.start)),
            longest,
            edges_list,
            runs_list,
        })
    }

    /// Returns all taken branches.
    pub fn edges(&self) -> &[BranchEdge] {
        &self.edges_list
    }

    /// Returns the branches that leave from a range of addresses.
    pub fn leaving(
        &self,
        module: ModuleId,
        addresses: Range<u64>,
    ) -> impl Iterator<Item = &BranchEdge> {
        within(&self.from, module, addresses).map(|number| &self.edges_list[number])
    }

    /// Returns the branches that lead to a range of addresses.
    pub fn arriving(
        &self,
        module: ModuleId,
        addresses: Range<u64>,
    ) -> impl Iterator<Item = &BranchEdge> {
        within(&self.to, module, addresses).map(|number| &self.edges_list[number])
    }

    /// Returns the branches of the function that holds an address of a module, and the code that they belong to. `None`
    /// where that code cannot be read.
    pub fn function(
        &self,
        module: ModuleId,
        address: u64,
    ) -> Option<(std::sync::Arc<CodeOutline>, FunctionBranches)> {
        let outline = self.code.function(module, address)?;
        let mut result = self.executions(module, &outline);
        result.sites = self.sites(module, &outline, &result);
        result.loops = outline
            .loops()
            .iter()
            .map(|natural| self.natural_loop(module, &outline, &result, natural))
            .collect();
        Some((outline, result))
    }

    /// Counts the executions of instructions and blocks.
    fn executions(&self, module: ModuleId, outline: &CodeOutline) -> FunctionBranches {
        let length = outline.instructions().len();
        let mut sums = Sums::new(length);
        let mut cycles = vec![Cycles::default(); outline.blocks().len()];
        let mut impossible = 0;
        let addresses = outline.addresses();
        let before = self.longest.get(module as usize).copied().unwrap_or(0);
        let starts = addresses.start.saturating_sub(before)..addresses.end;
        for number in within(&self.runs, module, starts) {
            let run = &self.runs_list[number];
            let (start, end) = (
                self.profile.frames().get(run.start).address,
                self.profile.frames().get(run.end).address,
            );
            if end < addresses.start {
                continue;
            }
            // A run may begin in the function before this one, when no branch lies between them.
            let first = match start.checked_sub(addresses.start) {
                Some(_) => outline.instruction_at(start),
                None => Some(0),
            };
            let last = if end < addresses.end {
                outline.instruction_at(end)
            } else {
                length.checked_sub(1)
            };
            let (Some(first), Some(last)) = (first, last) else {
                impossible += run.executions.seen;
                continue;
            };
            if !outline.runs_straight(first, last) {
                impossible += run.executions.seen;
                continue;
            }
            let branches = outline.instructions()[last].flow != Flow::Sequential;
            // An interrupt or fault left from the last instruction before that instruction ran.
            let after = if branches || end >= addresses.end {
                last + 1
            } else {
                last
            };
            sums.add(first..after, &run.executions, start < addresses.start);
            let block = outline.block_of(first);
            if let Some(block) = block
                && outline.blocks()[block] == (first..last + 1)
                && branches
            {
                cycles[block] = run.cycles;
            }
        }
        let known = self.branches.filter().is_complete();
        let (instructions, through) = if known {
            sums.finish(self.branches.counted() != super::Counted::Other)
        } else {
            (Vec::new(), Vec::new())
        };
        let blocks = outline
            .blocks()
            .iter()
            .zip(cycles)
            .map(|(block, cycles)| BlockBranches {
                executions: instructions.get(block.start).copied().unwrap_or_default(),
                cycles,
            });
        FunctionBranches {
            blocks: blocks.collect(),
            instructions,
            sites: Vec::new(),
            loops: Vec::new(),
            impossible,
            through,
        }
    }

    /// Finds the instructions from which control went elsewhere.
    fn sites(
        &self,
        module: ModuleId,
        outline: &CodeOutline,
        counts: &FunctionBranches,
    ) -> Vec<BranchSite> {
        let mut sites = Vec::new();
        let mut edges = self.leaving(module, outline.addresses()).peekable();
        for (instruction, found) in outline.instructions().iter().enumerate() {
            let mut targets = Vec::new();
            while let Some(edge) = edges
                .next_if(|edge| self.address(edge.from) <= instruction_end(outline, instruction))
            {
                if self.address(edge.from) == found.address {
                    targets.push(*edge);
                }
            }
            let ran = counts.instructions.get(instruction);
            let conditional = found.flow == Flow::Conditional;
            if targets.is_empty() && !(conditional && ran.is_some_and(|ran| ran.seen > 0)) {
                continue;
            }
            targets.sort_by_key(|edge| std::cmp::Reverse(edge.taken.seen));
            let taken = targets
                .iter()
                .filter(|edge| !edge.kind.is_diversion())
                .fold(self.nothing(), |sum, edge| sum.plus(edge.taken));
            sites.push(BranchSite {
                instruction,
                taken,
                not_taken: ran.filter(|_| conditional).map(|ran| less(*ran, taken)),
                mispredicted: pooled(targets.iter().filter_map(|edge| edge.mispredicted)),
                targets,
            });
        }
        sites
    }

    /// Counts the entries and the repetitions of a loop.
    fn natural_loop(
        &self,
        module: ModuleId,
        outline: &CodeOutline,
        counts: &FunctionBranches,
        natural: &super::OutlineLoop,
    ) -> LoopBranches {
        let mut result = LoopBranches {
            entries: self.nothing(),
            back_edges: self.nothing(),
        };
        let Some(first) = outline
            .blocks()
            .get(natural.header)
            .map(|block| block.start)
        else {
            return result;
        };
        let Some(header) = outline.instructions().get(first) else {
            return result;
        };
        let inside = |instruction: usize| {
            let block = outline.block_of(instruction);
            block.is_some_and(|block| natural.blocks.binary_search(&block).is_ok())
        };
        let mut add = |is_back: bool, count: Executions| {
            let sum = if is_back {
                &mut result.back_edges
            } else {
                &mut result.entries
            };
            *sum = sum.plus(count);
        };
        let before = first.checked_sub(1);
        if let Some(through) = counts.through.get(first)
            && through.seen > 0
        {
            add(before.is_some_and(inside), *through);
        }
        for edge in self.arriving(module, header.address..header.address + 1) {
            let from = self.profile.frames().get(edge.from);
            let source = (from.module == module && outline.addresses().contains(&from.address))
                .then(|| outline.instruction_at(from.address))
                .flatten();
            match (source, self.kind_of(edge)) {
                // A return to the header from a callee or the kernel continues after the instruction before the header.
                (_, Some(BranchClass::Return))
                    if before.is_some_and(|at| outline.instructions()[at].flow.is_call()) =>
                {
                    add(before.is_some_and(inside), edge.taken);
                }
                (_, Some(BranchClass::Resumption)) => {}
                (Some(_), Some(BranchClass::Call)) | (None, _) => add(false, edge.taken),
                (Some(source), _) => add(inside(source), edge.taken),
            }
        }
        result
    }

    /// Returns a count of nothing, in the unit of this event's counts.
    fn nothing(&self) -> Executions {
        Executions {
            seen: 0,
            estimated: (self.branches.counted() != super::Counted::Other).then_some(0.0),
            error: 0.0,
        }
    }

    pub(super) fn address(&self, frame: FrameId) -> u64 {
        self.profile.frames().get(frame).address
    }

    /// Returns the class of an edge: from the recorded type, else from the filter, else from the code.
    pub(super) fn kind_of(&self, edge: &BranchEdge) -> Option<BranchClass> {
        let recorded = match edge.kind {
            kind if kind.is_call() => Some(BranchClass::Call),
            kind if kind.is_return() => Some(BranchClass::Return),
            kind if kind.is_diversion() => Some(BranchClass::Diversion),
            BranchKind::Syscall => Some(BranchClass::Diversion),
            BranchKind::Sysret | BranchKind::ExceptionReturn => Some(BranchClass::Resumption),
            BranchKind::Conditional | BranchKind::Unconditional | BranchKind::Indirect => {
                Some(BranchClass::Jump)
            }
            _ => self.branches.filter().only_class(),
        };
        if recorded.is_some() {
            return recorded;
        }
        let kernel = |frame| {
            let module = self.profile.frames().get(frame).module;
            self.profile.modules().get(module).kind == dioptra_symbols::ModuleKind::Kernel
        };
        match (kernel(edge.from), kernel(edge.to)) {
            (false, true) => return Some(BranchClass::Diversion),
            (true, false) => return Some(BranchClass::Resumption),
            _ => {}
        }
        let Frame { module, address } = self.profile.frames().get(edge.from);
        let outline = self.code.function(module, address)?;
        let instruction = outline.instruction_at(address)?;
        match outline.instructions()[instruction].flow {
            Flow::Call | Flow::IndirectCall => Some(BranchClass::Call),
            Flow::Return => Some(BranchClass::Return),
            Flow::Jump | Flow::IndirectJump | Flow::Conditional => Some(BranchClass::Jump),
            Flow::SystemCall | Flow::Sequential | Flow::Stop => Some(BranchClass::Diversion),
        }
    }
}

/// The effect of a branch on the stack of open calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BranchClass {
    /// Stays in its function, or leaves it for good.
    Jump,
    /// Opens a call.
    Call,
    /// Ends a call.
    Return,
    /// Enters the kernel.
    Diversion,
    /// Comes back from the kernel.
    Resumption,
}

/// Returns the last address before the next instruction.
fn instruction_end(outline: &CodeOutline, instruction: usize) -> u64 {
    let next = outline.instructions().get(instruction + 1);
    next.map_or(outline.addresses().end, |next| next.address)
        .saturating_sub(1)
}

/// Returns the numbers of the entries placed in a range of addresses.
fn within(list: &[Placed], module: ModuleId, addresses: Range<u64>) -> impl Iterator<Item = usize> {
    let place = |address| {
        list.partition_point(|placed| (placed.module, placed.address) < (module, address))
    };
    let (first, after) = (place(addresses.start), place(addresses.end));
    list[first..after.max(first)]
        .iter()
        .map(|placed| placed.number)
}
