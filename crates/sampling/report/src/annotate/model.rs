//! The model of an annotation: places, blocks, edges, loops and lines with their counts.

use super::source::SourceFiles;
use dioptra_instructions::{EdgeEnd, EdgeKind, InstructionKind, Loop, Syntax};
use dioptra_profile::branches::{Executions, FunctionBranches, TripCounts};
use dioptra_profile::memory::MemoryPlace;
use dioptra_profile::{Count, Estimate, FrameId};
use dioptra_symbols::Frame;
use dioptra_tables::{Facts, Unit};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// The options of an annotation.
#[derive(Clone, Debug, Default)]
pub struct AnnotateOptions {
    /// The events, as indices of [`dioptra_profile::Profile::events`]; `None` for all that sampled.
    pub events: Option<Vec<usize>>,
    /// The syntax in which x86 instructions are written.
    pub syntax: Syntax,
    /// Whether C++ and Rust names are shown as the programmer wrote them.
    pub demangle: bool,
    /// The folders in which source files are looked for.
    pub sources: SourceFiles,
}

/// A function with its code and counts.
#[derive(Clone, Debug)]
pub struct Annotation {
    /// The function's name.
    pub name: String,
    /// The function's name in the symbol table.
    pub raw_name: String,
    /// The module's name in tables.
    pub module: String,
    /// The module's recorded path.
    pub module_path: String,
    /// The function's addresses in its module (file offsets); `None` where its extent is not known.
    pub addresses: Option<Range<u64>>,
    /// The address of its start as `objdump` prints it; `None` without code.
    pub virtual_start: Option<u64>,
    /// The events, in the order of all counts.
    pub events: Vec<AnnotatedEvent>,
    /// All instructions by rising address; without code, all addresses that have samples.
    pub places: Vec<AnnotatedAddress>,
    /// Whether places are instructions.
    pub has_code: bool,
    /// Basic blocks by rising address; none without code.
    pub blocks: Vec<AnnotatedBlock>,
    /// The edges between blocks, in the order of the blocks that they leave.
    pub edges: Vec<AnnotatedEdge>,
    /// Loops, each after the one around it.
    pub loops: Vec<AnnotatedLoop>,
    /// The number of indirect jumps whose targets are unknown.
    pub unresolved_jumps: usize,
    /// Source lines by file and line, with the counts of the instructions that were made from them.
    pub lines: Vec<AnnotatedLine>,
    /// The numbers from branch records, where there are any.
    pub branches: Option<BranchColumns>,
    /// The numbers from memory samples, where there are any.
    pub memory: Option<MemoryColumn>,
    /// The source files that were found, by their recorded names.
    pub sources: BTreeMap<Arc<str>, super::source::SourceText>,
    /// Losses, fallbacks and other facts for the reader.
    pub facts: Facts,
}

/// An event and the function's share of it.
#[derive(Clone, Debug)]
pub struct AnnotatedEvent {
    /// Its index in [`dioptra_profile::Profile::events`].
    pub index: usize,
    /// Its name.
    pub name: String,
    /// The unit of weights; `None` where a weight is no number of events.
    pub unit: Option<Unit>,
    /// Whether shares are computed from scaled weights, because the event's counter did not run all the time.
    pub is_scaled: bool,
    /// The count of all samples of the profile.
    pub all: AddressCount,
    /// The count of the function's samples.
    pub function: AddressCount,
}

/// The samples of one event at a place.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AddressCount {
    /// Samples and their weight, exact.
    pub count: Count,
    /// The estimated number of events, with its error.
    pub estimate: Estimate,
}

impl AddressCount {
    /// Adds another place's count.
    pub fn add(&mut self, other: AddressCount) {
        self.count.add(other.count);
        self.estimate.add(other.estimate);
    }
}

impl AnnotatedEvent {
    /// Returns a place's share of `whole` (the function, or all samples) in percent. Scaled events compare estimates,
    /// all others weights. Returns `None` where `whole` is zero.
    pub fn percent(&self, part: AddressCount, whole: AddressCount) -> Option<f64> {
        if self.is_scaled {
            let percent = 100.0 * part.estimate.value / whole.estimate.value;
            return percent.is_finite().then_some(percent);
        }
        dioptra_tables::Cell::ratio(part.count.weight, whole.count.weight).value(100.0)
    }
}

/// An instruction, or an address with samples.
#[derive(Clone, Debug)]
pub struct AnnotatedAddress {
    /// Its relative address.
    pub address: u64,
    /// Its address as `objdump` prints it; the relative one where there is no code.
    pub virtual_address: u64,
    /// The instruction's bytes.
    pub bytes: Vec<u8>,
    /// The instruction's text; empty without code.
    pub text: String,
    /// The instruction's effect on the flow of control; `None` without code.
    pub kind: Option<InstructionKind>,
    /// The target of a jump or call, or the function whose address the instruction takes.
    pub target: Option<JumpTarget>,
    /// The index of its block.
    pub block: Option<usize>,
    /// The count of each event.
    pub counts: Vec<AddressCount>,
    /// The functions that execute there, innermost first, all but the last inlined; shared by neighbours.
    pub frames: Arc<[AddressFrame]>,
}

/// A function that executes at a place, and the line it is at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressFrame {
    /// The function, where debug information names it.
    pub function: Option<Arc<str>>,
    /// The source file, with the directory it was compiled in.
    pub file: Option<Arc<str>>,
    /// The line, from 1; only with a file.
    pub line: Option<u32>,
    /// The column, from 1.
    pub column: Option<u32>,
    /// Whether the compiler put this function's code into its caller, which is the next frame.
    pub is_inlined: bool,
}

impl From<Frame> for AddressFrame {
    fn from(frame: Frame) -> Self {
        AddressFrame {
            line: frame.line.filter(|_| frame.file.is_some()),
            function: frame.function,
            file: frame.file,
            column: frame.column,
            is_inlined: frame.is_inlined,
        }
    }
}

/// The code to which an instruction leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JumpTarget {
    /// Its address as `objdump` prints it.
    pub virtual_address: u64,
    /// The index of its place, if it lies in the same function.
    pub place: Option<usize>,
    /// The name of the function there and the distance from its start in bytes, if it is another function.
    pub function: Option<(String, u64)>,
}

/// A basic block.
#[derive(Clone, Debug)]
pub struct AnnotatedBlock {
    /// The indices of its places.
    pub places: Range<usize>,
    /// The count of each event: the sum over its places.
    pub counts: Vec<AddressCount>,
    /// The index of the innermost loop around it.
    pub innermost_loop: Option<usize>,
    /// The number of loops around it.
    pub depth: usize,
}

/// A way from one block to another, or out of the function.
#[derive(Clone, Debug)]
pub struct AnnotatedEdge {
    /// The index of the block that it leaves.
    pub from: usize,
    /// The block that it enters, or an address outside of the function.
    pub to: EdgeEnd,
    /// The kind of control flow, such as a taken jump.
    pub kind: EdgeKind,
    /// The name of the function that it enters, if that is another function with a name.
    pub function: Option<String>,
    /// The number of executions, where branch records have it.
    pub executions: Option<Executions>,
}

/// A natural loop.
#[derive(Clone, Debug)]
pub struct AnnotatedLoop {
    /// The header, the latches, the depth, and the loop around it.
    pub natural: Loop,
    /// The indices of its blocks, including the blocks of loops inside it.
    pub blocks: Vec<usize>,
    /// The count of each event: the sum over its blocks.
    pub counts: Vec<AddressCount>,
}

/// A line of a source file; without a file, it stands for all instructions whose line is unknown.
#[derive(Clone, Debug)]
pub struct AnnotatedLine {
    /// The file, with the directory it was compiled in.
    pub file: Option<Arc<str>>,
    /// The line, from 1.
    pub line: Option<u32>,
    /// The count of each event in the instructions that were made from this line, inlined or not.
    pub innermost: Vec<AddressCount>,
    /// The count of each event in the instructions to which this line of the function itself led, by inlined calls
    /// too.
    pub outermost: Vec<AddressCount>,
    /// Whether instructions were made from this line; otherwise inlined calls lead through it.
    pub has_code: bool,
}

/// The numbers of a function that come from branch records.
#[derive(Clone, Debug)]
pub struct BranchColumns {
    /// The event whose samples hold the records.
    pub event: String,
    /// Whether the records are all branches that were taken; otherwise counts are of the branches in the sampled
    /// stacks.
    pub is_exact: bool,
    /// The counts by instruction, block, branching instruction and loop, numbered as in the annotation.
    pub counts: FunctionBranches,
    /// The trips of each loop: the number of times that its header ran for each entry.
    pub trips: Vec<Option<TripCounts>>,
    /// The names of the functions to which branches lead.
    pub functions: BTreeMap<FrameId, String>,
}

/// The numbers of a function that come from memory samples.
#[derive(Clone, Debug)]
pub struct MemoryColumn {
    /// The event whose samples they are.
    pub event: String,
    /// The memory samples of each place; `None` where there are none.
    pub places: Vec<Option<MemoryPlace>>,
    /// The memory samples of the whole function.
    pub function: MemoryPlace,
}
