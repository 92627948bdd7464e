//! Call stacks from user registers and a copy of the top of the stack.
//!
//! A [`StackUnwinder`] reads the unwind tables of modules, each once. An [`AddressSpace`] knows which
//! module lies where in one process, and unwinds. An [`UnwindCache`] belongs to a thread and remembers
//! what the tables said of an address in a module, whichever processes map it.

mod signals;
mod space;
mod tables;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustc_hash::FxHashMap;

use crate::address::{FileMapping, MemoryAddress};
use crate::note::Note;
use crate::options::{ModuleKind, ModuleRequest, SymbolOptions};
use crate::symbolizer::Symbolizer;
pub use space::{AddressSpace, UnwindCache};
use tables::UnwindTables;

/// The processor whose stacks are unwound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UnwindMachine {
    /// 64-bit x86.
    X86_64,
    /// 64-bit Arm.
    Aarch64,
}

impl UnwindMachine {
    /// The machine by the name `uname -m` gives it, as recordings hold it.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        match name {
            "x86_64" => Some(Self::X86_64),
            "aarch64" | "arm64" => Some(Self::Aarch64),
            _ => None,
        }
    }

    /// This machine.
    #[must_use]
    pub fn native() -> Option<Self> {
        Self::of_name(std::env::consts::ARCH)
    }
}

/// The user registers that unwinding starts from. They are bare numbers, since a register may hold anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum UserRegisters {
    /// The registers of 64-bit x86.
    X86_64 {
        /// Instruction pointer.
        ip: u64,
        /// Stack pointer.
        sp: u64,
        /// Frame pointer, `rbp`.
        bp: u64,
    },
    /// The registers of 64-bit Arm.
    Aarch64 {
        /// Program counter.
        pc: u64,
        /// Stack pointer.
        sp: u64,
        /// Frame pointer, `x29`.
        fp: u64,
        /// Link register, `x30`.
        lr: u64,
    },
}

impl UserRegisters {
    /// Takes the registers out of a sample; `get` gives the register of a number of `perf_event_open`'s
    /// register mask. `None` when one that is needed wasn't recorded.
    #[must_use]
    pub fn of_sample(machine: UnwindMachine, get: impl Fn(u32) -> Option<u64>) -> Option<Self> {
        Some(match machine {
            UnwindMachine::X86_64 => Self::X86_64 {
                ip: get(8)?,
                sp: get(7)?,
                bp: get(6)?,
            },
            UnwindMachine::Aarch64 => Self::Aarch64 {
                pc: get(32)?,
                sp: get(31)?,
                fp: get(29)?,
                lr: get(30)?,
            },
        })
    }

    /// The machine they belong to.
    #[must_use]
    pub fn machine(&self) -> UnwindMachine {
        match self {
            Self::X86_64 { .. } => UnwindMachine::X86_64,
            Self::Aarch64 { .. } => UnwindMachine::Aarch64,
        }
    }

    /// The stack pointer, which is the address of the first byte of the stack's copy.
    #[must_use]
    pub fn stack_pointer(&self) -> MemoryAddress {
        match *self {
            Self::X86_64 { sp, .. } | Self::Aarch64 { sp, .. } => MemoryAddress(sp),
        }
    }
}

/// An executable mapping of a process.
#[derive(Debug, Clone, Copy)]
pub struct UnwindMapping<'a> {
    /// The part of the image, and its place.
    pub mapping: FileMapping,
    /// The mapped image. Anything but files and the vdso has no unwind tables.
    pub module: ModuleRequest<'a>,
}

/// The end of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StackEnd {
    /// The outermost function was reached: the stack is whole.
    Complete,
    /// The rest of the stack lies above the part that was recorded.
    DumpExhausted,
    /// The last frame lies in code without unwind tables (a JIT compiler's, or of a file that isn't
    /// there), and following frame pointers from there led nowhere.
    NoUnwindTable,
    /// The tables led to an address that can't belong to the stack: the stack was overwritten, or the
    /// tables are wrong.
    Broken,
    /// More frames than are kept.
    TooDeep,
    /// The registers are of another machine than the address space.
    WrongMachine,
}

/// A module's unwind tables, to be mapped into any number of address spaces. Clones share them.
#[derive(Clone)]
pub struct UnwindModule(Arc<UnwindTables>);

impl std::fmt::Debug for UnwindModule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UnwindModule")
            .field("note", &self.0.note)
            .finish_non_exhaustive()
    }
}

/// Reads the unwind tables of modules and keeps them. May be shared by threads.
#[derive(Debug, Default)]
pub struct StackUnwinder {
    symbolizer: Symbolizer,
    modules: Mutex<FxHashMap<ModuleKey, UnwindModule>>,
}

type ModuleKey = (ModuleKind, PathBuf, Option<Vec<u8>>);

impl StackUnwinder {
    /// Looks for modules where the options say.
    #[must_use]
    pub fn new(options: SymbolOptions) -> Self {
        Self {
            symbolizer: Symbolizer::new(options),
            modules: Mutex::default(),
        }
    }

    /// Returns notes about the modules met so far: files that aren't there or are other builds.
    #[must_use]
    pub fn notes(&self) -> Vec<Note> {
        let modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        let mut notes: Vec<Note> = modules
            .values()
            .filter_map(|module| module.0.note.clone())
            .collect();
        notes.sort_by_cached_key(ToString::to_string);
        notes.dedup();
        notes
    }

    /// Heap memory that the tables hold, in bytes.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        modules.values().map(|module| module.0.heap_bytes()).sum()
    }

    /// The unwind tables of a module, read when it is first asked for (a millisecond for a few megabytes). One
    /// without tables is a module too: [`notes`](Self::notes) tells why where that is worth telling.
    #[must_use]
    pub fn module(&self, request: &ModuleRequest<'_>) -> UnwindModule {
        let key = |path: &Path| {
            let build_id = request.build_id.map(<[u8]>::to_vec);
            (request.kind, path.to_path_buf(), build_id)
        };
        let key = key(request.path);
        // A module is read under the lock: two threads that meet it at once would both read it. What a
        // panic elsewhere left is whole, since an entry is added in one step.
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        modules
            .entry(key)
            .or_insert_with(|| {
                UnwindModule(Arc::new(UnwindTables::read(&self.symbolizer, request)))
            })
            .clone()
    }
}
