//! A function with its instructions, blocks, loops and lines. Lists of instructions are parallel, and frames are stored
//! once, since a large function has tens of thousands of instructions. Addresses are texts such as `0x1f`, because those of
//! the kernel are no numbers of JavaScript.

use super::FactAnswer;
use serde::Serialize;
use ts_rs::TS;

/// The answer of `/api/function`.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct FunctionAnswer {
    /// The profile's index.
    pub profile: usize,
    /// The generation that answers.
    pub generation: u64,
    /// The function.
    pub function: FunctionInfo,
    /// The events, in the order of all counts.
    pub events: Vec<FunctionEvent>,
    /// Whether there are instructions; else they are the addresses that have samples.
    pub has_code: bool,
    /// Texts to which lists refer by index.
    pub strings: Vec<String>,
    /// Functions and lines, each once.
    pub frames: CodeFrames,
    /// Stacks of frames, the innermost first; all but the last are inlined.
    pub stacks: Vec<Vec<u32>>,
    /// The instructions by rising address.
    pub instructions: CodeInstructions,
    /// Where instructions lead.
    pub targets: Vec<CodeTarget>,
    /// The basic blocks by rising address.
    pub blocks: Vec<CodeBlock>,
    /// The ways between blocks.
    pub edges: Vec<CodeEdge>,
    /// The loops, each behind the one around it.
    pub loops: Vec<CodeLoop>,
    /// The source files.
    pub files: Vec<SourceFile>,
    /// The source lines, by file and line.
    pub lines: Vec<CodeLine>,
    /// The number of indirect jumps whose targets are unknown.
    pub unresolved_jumps: usize,
    /// The counts in the profile that is compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub other: Option<FunctionOther>,
    /// Losses, fallbacks and limits.
    pub facts: Vec<FactAnswer>,
}

/// Which function it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, TS)]
pub struct FunctionInfo {
    /// Its key.
    pub key: String,
    /// Its name.
    pub name: String,
    /// Its name as linkers see it.
    pub raw_name: String,
    /// Its module.
    pub module: FunctionModule,
    /// Its first relative address.
    pub start: Option<String>,
    /// The first address behind it.
    pub end: Option<String>,
    /// Its first address as objdump shows it.
    pub virtual_start: Option<String>,
}

/// A function's module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, TS)]
pub struct FunctionModule {
    /// Its key.
    pub key: String,
    /// Its name in tables.
    pub name: String,
    /// Its recorded path.
    pub path: String,
}

/// An event, and the function's part of it.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct FunctionEvent {
    /// Its key.
    pub key: String,
    /// Its name.
    pub name: String,
    /// The unit of its weights.
    pub unit: Option<String>,
    /// Whether estimates are scaled for the time in which the event was not counted.
    pub scaled: bool,
    /// All selected samples.
    pub total: Counted,
    /// The samples in the function itself.
    pub own: Counted,
}

/// A count of samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, TS)]
pub struct Counted {
    /// Samples.
    pub samples: u64,
    /// The sum of their periods.
    pub weight: u64,
    /// The same, scaled.
    pub estimate: f64,
    /// One standard error of the estimate.
    pub error: f64,
}

/// Functions and lines as parallel lists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, TS)]
pub struct CodeFrames {
    /// The function, as an index of the texts; -1 if it is not known.
    pub function: Vec<i32>,
    /// The source file, as an index; -1 if it is not known.
    pub file: Vec<i32>,
    /// The line from 1; 0 if it is not known.
    pub line: Vec<u32>,
    /// The column from 1; 0 if it is not known.
    pub column: Vec<u32>,
    /// 1 if the compiler put the function into its caller, which is the next frame.
    pub inlined: Vec<u8>,
}

/// Instructions as parallel lists.
#[derive(Clone, Debug, Default, PartialEq, Serialize, TS)]
pub struct CodeInstructions {
    /// The relative address.
    pub address: Vec<String>,
    /// The address that objdump shows.
    pub virtual_address: Vec<String>,
    /// The bytes in hexadecimal digits.
    pub bytes: Vec<String>,
    /// The instruction.
    pub text: Vec<String>,
    /// The effect on the flow of control, as an index of the texts; -1 without code.
    pub kind: Vec<i32>,
    /// Its block; -1 if it has none.
    pub block: Vec<i32>,
    /// Its stack of frames; -1 if nothing is known.
    pub stack: Vec<i32>,
    /// By event, then instruction: samples.
    pub samples: Vec<Vec<u64>>,
    /// By event, then instruction: the sum of their periods.
    pub weight: Vec<Vec<u64>>,
    /// By event, then instruction: the same, scaled.
    pub estimate: Vec<Vec<f64>>,
    /// By event, then instruction: one standard error of the estimate.
    pub error: Vec<Vec<f64>>,
}

/// Where an instruction leads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, TS)]
pub struct CodeTarget {
    /// The instruction, as an index.
    pub instruction: u32,
    /// The instruction to which it leads, if that is one of this function.
    pub to: Option<u32>,
    /// The address to which it leads, as objdump shows it.
    pub virtual_address: String,
    /// The function to which it leads.
    pub function: Option<String>,
    /// The distance from that function's start.
    pub offset: Option<u64>,
    /// That function's key, if the profile knows it.
    pub key: Option<String>,
}

/// A basic block.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct CodeBlock {
    /// Its first instruction.
    pub first: u32,
    /// The number of its instructions.
    pub count: u32,
    /// The innermost loop around it.
    #[serde(rename = "loop")]
    pub innermost_loop: Option<u32>,
    /// The number of loops around it.
    pub depth: u32,
    /// By event.
    pub samples: Vec<u64>,
    /// By event.
    pub weight: Vec<u64>,
    /// By event.
    pub estimate: Vec<f64>,
}

/// A way from one block to another, or out of the function.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct CodeEdge {
    /// The block that it leaves.
    pub from: u32,
    /// The block to which it leads.
    pub to: Option<u32>,
    /// The relative address outside of the function to which it leads.
    pub outside: Option<String>,
    /// The function to which it leads.
    pub function: Option<String>,
    /// `fall_through`, `taken`, `jump`, `call_return`, `table`, `indirect` or `leave`.
    pub kind: String,
    /// The number of times it was taken, where branch records tell.
    pub executions: Option<f64>,
}

/// A loop.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct CodeLoop {
    /// The block at which it is entered.
    pub header: u32,
    /// The loop around it.
    pub parent: Option<u32>,
    /// The number of loops around it, with itself.
    pub depth: u32,
    /// Its blocks.
    pub blocks: Vec<u32>,
    /// By event.
    pub samples: Vec<u64>,
    /// By event.
    pub weight: Vec<u64>,
    /// The mean number of iterations for each entry, where branch records tell.
    pub trips: Option<f64>,
    /// One standard error of that.
    pub trips_error: Option<f64>,
}

/// A source line.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct CodeLine {
    /// The file, as an index; -1 for all instructions whose line is not known.
    pub file: i32,
    /// The line from 1; 0 if it is not known.
    pub line: u32,
    /// Whether instructions were made from it, or only inlined calls lead through it.
    pub has_code: bool,
    /// By event: samples of instructions that were made from it.
    pub samples: Vec<u64>,
    /// By event: the sum of their periods.
    pub weight: Vec<u64>,
    /// By event: samples of instructions to which it led, by inlined calls too.
    pub outer_samples: Vec<u64>,
    /// By event: the sum of their periods.
    pub outer_weight: Vec<u64>,
}

/// A source file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, TS)]
pub struct SourceFile {
    /// The id by which `/api/source` gives its text.
    pub id: String,
    /// Its recorded path.
    pub path: String,
    /// Whether it was found.
    pub found: bool,
    /// The path where it was found.
    pub found_at: Option<String>,
    /// The number of its lines.
    pub lines: usize,
    /// Whether it was changed after the program was built.
    pub newer: bool,
    /// Where it was looked for, and why it is not there.
    pub why: Option<String>,
}

/// The answer of `/api/source`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, TS)]
pub struct SourceAnswer {
    /// The file.
    pub file: SourceFile,
    /// The first line of the answer, from 1.
    pub from: usize,
    /// The number of all lines.
    pub total_lines: usize,
    /// The lines.
    pub lines: Vec<String>,
}

/// The counts of a function in another profile.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct FunctionOther {
    /// The other profile's index.
    pub profile: usize,
    /// Its generation.
    pub generation: u64,
    /// The number of its functions that are this one; 0 if it has no samples of it.
    pub functions: usize,
    /// By event: its sums there; null where the other profile lacks the event.
    pub events: Vec<Option<OtherEvent>>,
    /// The lines of the answer, as the other profile counts them.
    pub lines: OtherLines,
    /// The instructions of the answer, as the other profile counts them; null where the code is not the same.
    pub instructions: Option<OtherInstructions>,
    /// Why instructions are not compared.
    pub instructions_why: Option<String>,
}

/// An event in the other profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, TS)]
pub struct OtherEvent {
    /// All selected samples.
    pub total: Counted,
    /// The samples in the function itself.
    pub own: Counted,
}

/// Counts of lines in the other profile.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, TS)]
pub struct OtherLines {
    /// By event, then line of the answer: samples of instructions that were made from it.
    pub samples: Vec<Vec<u64>>,
    /// By event, then line: the sum of their periods.
    pub weight: Vec<Vec<u64>>,
    /// By event, then line: samples of instructions to which it led, by inlined calls too.
    pub outer_samples: Vec<Vec<u64>>,
    /// By event, then line: the sum of their periods.
    pub outer_weight: Vec<Vec<u64>>,
    /// By event: samples at lines that only the other profile has.
    pub only_there_samples: Vec<u64>,
    /// By event: the sum of their periods.
    pub only_there_weight: Vec<u64>,
}

/// Counts of instructions in the other profile.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, TS)]
pub struct OtherInstructions {
    /// By event, then instruction of the answer: samples.
    pub samples: Vec<Vec<u64>>,
    /// By event, then instruction: the sum of their periods.
    pub weight: Vec<Vec<u64>>,
}
