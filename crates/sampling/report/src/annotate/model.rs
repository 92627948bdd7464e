//! What an annotation holds.

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

/// How to annotate.
#[derive(Clone, Debug, Default)]
pub struct AnnotateOptions {
    /// Which events, as indices of [`dioptra_profile::Profile::events`]; `None` for all that sampled.
    pub events: Option<Vec<usize>>,
    /// How x86 instructions are written.
    pub syntax: Syntax,
    /// Show C++ and Rust names as the programmer wrote them.
    pub demangle: bool,
    /// Where source files are looked for.
    pub sources: SourceFiles,
}

/// A function with its code and counts.
#[derive(Clone, Debug)]
pub struct Annotation {
    /// The function's name.
    pub name: String,
    /// The same as the symbol table has it.
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
    pub places: Vec<Place>,
    /// Whether places are instructions.
    pub has_code: bool,
    /// Basic blocks by rising address; none without code.
    pub blocks: Vec<AnnotatedBlock>,
    /// Edges by the block that they leave.
    pub edges: Vec<AnnotatedEdge>,
    /// Loops, each after the one around it.
    pub loops: Vec<AnnotatedLoop>,
    /// How many indirect jumps lead nobody knows where.
    pub unresolved_jumps: usize,
    /// Source lines by file and line, with the counts of the instructions that were made from them.
    pub lines: Vec<AnnotatedLine>,
    /// What branch records tell, where there are any.
    pub branches: Option<BranchColumns>,
    /// What memory samples tell, where there are any.
    pub memory: Option<MemoryColumn>,
    /// The source files that were found, by their recorded names.
    pub sources: BTreeMap<Arc<str>, super::source::SourceText>,
    /// What the reader has to know besides.
    pub facts: Facts,
}

/// An event and the function's share of it.
#[derive(Clone, Debug)]
pub struct AnnotatedEvent {
    /// Its index in [`dioptra_profile::Profile::events`].
    pub index: usize,
    /// Its name.
    pub name: String,
    /// What weights are measured in; `None` where a weight is no number of events.
    pub unit: Option<Unit>,
    /// Whether shares are those of scaled weights, because its counter did not run all the time.
    pub is_scaled: bool,
    /// All samples of the profile.
    pub all: PlaceCount,
    /// Those of the function.
    pub function: PlaceCount,
}

/// Samples at a place.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PlaceCount {
    /// Samples and their weight, exact.
    pub count: Count,
    /// What they stand for, with its error.
    pub estimate: Estimate,
}

impl PlaceCount {
    /// Adds another place's.
    pub fn add(&mut self, other: PlaceCount) {
        self.count.add(other.count);
        self.estimate.add(other.estimate);
    }
}

impl AnnotatedEvent {
    /// A place's share of `whole` (the function, or all), in percent: of weights, of scaled ones where the event is
    /// scaled; `None` where `whole` is nothing.
    pub fn percent(&self, part: PlaceCount, whole: PlaceCount) -> Option<f64> {
        if self.is_scaled {
            let percent = 100.0 * part.estimate.value / whole.estimate.value;
            return percent.is_finite().then_some(percent);
        }
        dioptra_tables::Cell::ratio(part.count.weight, whole.count.weight).value(100.0)
    }
}

/// An instruction, or an address with samples.
#[derive(Clone, Debug)]
pub struct Place {
    /// Its relative address.
    pub address: u64,
    /// As `objdump` prints it; the relative one where there is no code.
    pub virtual_address: u64,
    /// The instruction's bytes.
    pub bytes: Vec<u8>,
    /// The instruction; empty without code.
    pub text: String,
    /// What it does to the flow of control; `None` without code.
    pub kind: Option<InstructionKind>,
    /// Where it jumps to, what it calls, or the function whose address it takes.
    pub target: Option<JumpTarget>,
    /// Its block.
    pub block: Option<usize>,
    /// By event.
    pub counts: Vec<PlaceCount>,
    /// The functions that execute there, innermost first, all but the last inlined; shared by neighbours.
    pub frames: Arc<[PlaceFrame]>,
}

/// A function that executes at a place, and the line it is at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceFrame {
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

impl From<Frame> for PlaceFrame {
    fn from(frame: Frame) -> Self {
        PlaceFrame {
            line: frame.line.filter(|_| frame.file.is_some()),
            function: frame.function,
            file: frame.file,
            column: frame.column,
            is_inlined: frame.is_inlined,
        }
    }
}

/// Where an instruction leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JumpTarget {
    /// As `objdump` prints it.
    pub virtual_address: u64,
    /// The place of the same function.
    pub place: Option<usize>,
    /// The function there and the distance from its start, if it is another one.
    pub function: Option<(String, u64)>,
}

/// A basic block.
#[derive(Clone, Debug)]
pub struct AnnotatedBlock {
    /// Its places.
    pub places: Range<usize>,
    /// By event; the sum of its places.
    pub counts: Vec<PlaceCount>,
    /// The innermost loop around it.
    pub innermost_loop: Option<usize>,
    /// How many loops there are around it.
    pub depth: usize,
}

/// A way from one block to another, or out of the function.
#[derive(Clone, Debug)]
pub struct AnnotatedEdge {
    /// The block it leaves.
    pub from: usize,
    /// Where it goes.
    pub to: EdgeEnd,
    /// Why.
    pub kind: EdgeKind,
    /// The function that it goes to, if that is another one with a name.
    pub function: Option<String>,
    /// How often, where branch records tell.
    pub executions: Option<Executions>,
}

/// A natural loop.
#[derive(Clone, Debug)]
pub struct AnnotatedLoop {
    /// Header, latches, depth, and the loop around it.
    pub natural: Loop,
    /// Its blocks, those of loops inside it included.
    pub blocks: Vec<usize>,
    /// By event; the sum of its blocks.
    pub counts: Vec<PlaceCount>,
}

/// A line of a source file; `None` for all instructions whose line is not known.
#[derive(Clone, Debug)]
pub struct AnnotatedLine {
    /// The file, with the directory it was compiled in.
    pub file: Option<Arc<str>>,
    /// The line, from 1.
    pub line: Option<u32>,
    /// By event: of the instructions that were made from this line, wherever it stands.
    pub innermost: Vec<PlaceCount>,
    /// By event: of the instructions in the function itself that this line led to, by inlined calls too.
    pub outermost: Vec<PlaceCount>,
    /// Whether instructions were made from it, or only inlined calls lead through it.
    pub has_code: bool,
}

/// What branch records tell of the function.
#[derive(Clone, Debug)]
pub struct BranchColumns {
    /// The event whose samples hold them.
    pub event: String,
    /// Whether they are all branches that were taken; else counts are of what the stacks happened to show.
    pub is_exact: bool,
    /// By instruction, block, branching instruction and loop, numbered as in the annotation.
    pub counts: FunctionBranches,
    /// By loop: how often its header ran for each entry.
    pub trips: Vec<Option<TripCounts>>,
    /// Names of functions that branches lead to.
    pub functions: BTreeMap<FrameId, String>,
}

/// What memory samples tell of the function.
#[derive(Clone, Debug)]
pub struct MemoryColumn {
    /// The event whose samples hold it.
    pub event: String,
    /// By place.
    pub places: Vec<Option<MemoryPlace>>,
    /// Of all of them.
    pub function: MemoryPlace,
}
