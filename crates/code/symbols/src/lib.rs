#![doc = include_str!("../README.md")]
//!
//! # Where to look
//! A [`Symbolizer`] makes [`ModuleSymbols`] of a [`ModuleRequest`]: a path, perhaps a build id. [`ModuleSymbols`] answers which
//! function is at a [`RelativeAddress`].
//!
//! Debug sections of 4 MiB and more are mapped ([`dioptra_mapped`]), so that a gigabyte of them costs only the pages that are
//! read. A file that shrinks while it is read gives a [`Note`], whose causes are types: [`FileDamage`], [`DebugFileRefusal`] and
//! others.
//!
//! # Addresses
//! | type | meaning | given by |
//! |---|---|---|
//! | [`MemoryAddress`] | a place in the memory of a process or the kernel | samples, call chains |
//! | [`FileOffset`] | a place in a file | [`FileMapping::offset_of`] |
//! | [`FileAddress`] | an address that a linker chose | `objdump`, `nm`, [`ModuleCode::virtual_address`], [`LoadBias::in_file`] |
//! | [`RelativeAddress`] | the key for names, lines and code | a [`FileOffset`]; [`RelativeAddress::of_kernel`] |
//!
//! Registers ([`UserRegisters`]) stay bare numbers.
//!
//! # Further questions
//! [`Symbolizer::lines`] gives [`ModuleLines`]: source lines and inline frames from the debug
//! information of the file or of its debug file, packed, shared (dwz) or split (`.dwo`, `.dwp`).
//!
//! [`Symbolizer::code`] gives [`ModuleCode`]: the machine code of functions.
//!
//! [`StackUnwinder`], [`AddressSpace`] and [`UnwindCache`] turn user registers and a copy of the stack
//! into return addresses (300,000 stacks of 20 frames a second on one core of 2026).
//!
//! [`Symbolizer::jit`] gives [`JitSymbols`]: the functions that a process's JIT compilers made, from
//! `/tmp/perf-PID.map` and jitdump files.
//!
//! The kernel's names come from `/proc/kallsyms`, else from its file `vmlinux`, which tells its lines and code too.
//!
//! Debug files lie in directories, or are fetched from [`Debuginfod`] servers if the options name some.
//!
//! Sources of names, best first: `.symtab` of the file, `.symtab` of a separate debug file (by build id, then
//! by `.gnu_debuglink` with its checksum), `.symtab` inside `.gnu_debugdata`, `.dynsym`, and entries
//! of the procedure linkage table decoded from their instructions (`puts@plt`). For code of a stripped
//! file that no symbol names, [`ModuleSymbols::extent`] still tells where its function begins and ends.

mod address;
mod append_only;
mod build_id;
mod cause;
mod debug_file;
mod debuginfod;
mod demangle;
mod dwarf_sections;
mod elf;
mod extents;
mod jit;
mod kallsyms;
mod kallsyms_cache;
mod kernel;
mod lines;
mod mini_debug_info;
mod module;
mod module_code;
mod note;
mod options;
mod plt;
mod split_dwarf;
mod symbolizer;
mod table;
mod unwind;
mod vdso;
mod vmlinux;
mod wanted_addresses;

pub use address::{FileAddress, FileMapping, FileOffset, LoadBias, MemoryAddress, RelativeAddress};
pub use build_id::build_id;
pub use cause::{
    DebugFileRefusal, DebuginfodCause, FileDamage, FilePart, IoCause, NoCodeCause, PackedDamage,
};
pub use debuginfod::Debuginfod;
pub use demangle::demangle;
pub use jit::{JitFunction, JitPlacement, JitSymbols, is_jit_dump};
pub use lines::{
    Frame, FunctionSignature, LineRange, LineReader, ModuleLines, Parameter, SourceFrame,
    StructType, ValueType,
};
pub use module::{Function, ModuleSymbols, place_name};
pub use module_code::{CodeBytes, CodeError, CodeMachine, ModuleCode};
pub use note::Note;
pub use options::{ModuleKind, ModuleRequest, RecordedKernel, SymbolOptions};
pub use symbolizer::Symbolizer;
pub use unwind::{
    AddressSpace, StackEnd, StackUnwinder, UnwindCache, UnwindMachine, UnwindMapping, UnwindModule,
    UserRegisters,
};
