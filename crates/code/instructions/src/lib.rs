//! Instructions, basic blocks, loops and the source lines of functions.
//!
//! [`Symbolizer::code`](dioptra_symbols::Symbolizer::code) opens a module's machine code as
//! [`ModuleCode`](dioptra_symbols::ModuleCode), and [`FunctionCode::of_module`] decodes one range of it. From that come the
//! [`ControlFlow`] (blocks and edges), its [`LoopNest`], a [`SourceMap`] and, where it is wanted, each
//! instruction's text. Code that lies elsewhere (a JIT compiler's) goes in through
//! [`FunctionCode::decode`], which reads no files.
//!
//! Decoded code holds bare numbers, since it is computed with: those called `address` are numbers of
//! [`RelativeAddress`](dioptra_symbols::RelativeAddress), those called `virtual_address` of
//! [`FileAddress`](dioptra_symbols::FileAddress).
//!
//! No process is started; nothing is kept but eight bytes for each instruction, and text is made when it
//! is asked for. Any bytes decode to something: what is no instruction is [`InstructionKind::Invalid`].

mod aarch64;
mod blocks;
mod function;
mod instruction;
mod loops;
mod source;
mod space;
mod tables;
mod text;
mod x86;

pub use blocks::{Block, CallBlocks, ControlFlow, Edge, EdgeEnd, EdgeKind};
pub use function::FunctionCode;
pub use instruction::{Instruction, InstructionKind, JumpTable, Target};
pub use loops::{IrreducibleRegion, Loop, LoopNest};
pub use source::{Credit, LineCode, SourceMap};
pub use space::CodeSpace;
pub use text::{InstructionText, Syntax};
