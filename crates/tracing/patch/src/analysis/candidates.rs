//! The functions of a module, and the ways in which their calls can be traced.
//!
//! Addresses here are those of the ELF file (virtual addresses), before it is loaded.

use super::image::Segment;
use super::refusal::Refused;
use super::special::is_told;
use crate::arch::Code;
use dioptra_tracelayout::message::Method;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The kinds of functions that a scan looks for.
#[derive(Clone, Copy, Debug)]
pub struct ScanOptions {
    /// Whether functions without instrumentation are looked for, too.
    pub plain: bool,
    /// Whether library calls are looked for, too.
    pub library_calls: bool,
    /// The number of threads that may share the work.
    pub threads: usize,
}

/// A function whose calls can be traced.
#[derive(Clone, Debug)]
pub struct Candidate<A: Code> {
    /// The address of its first byte.
    pub start: u64,
    /// Its size in bytes; 0 if it is not known.
    pub size: u64,
    /// The way in which its calls are found.
    pub method: Method,
    /// The address of the jump to its thunk, or of the pointer through which it is called.
    pub site: u64,
    /// The code that the thunk calls.
    pub body: CandidateBody<A>,
    /// The instructions that overwrite a compiler's hook at the site if the function is not wanted, so that its calls
    /// cost nothing; `None` where no hook has to be removed.
    pub neutral: Option<&'static [u8]>,
    /// The name of a library call; `None` for a function of the module itself.
    pub name: Option<Arc<str>>,
    /// The instructions that call a library function; empty if the jump to its thunk is at the site.
    pub calls: Vec<ImportSite>,
}

impl<A: Code> Candidate<A> {
    /// Creates a candidate with a start and a size, without a name.
    pub fn new(
        (start, size): (u64, u64),
        method: Method,
        site: u64,
        body: CandidateBody<A>,
    ) -> Candidate<A> {
        Candidate {
            start,
            size,
            method,
            site,
            body,
            neutral: None,
            name: None,
            calls: Vec::new(),
        }
    }

    /// Returns whether only the beginnings of its calls are recorded.
    pub fn is_told(&self) -> bool {
        self.name.as_deref().is_some_and(is_told) && self.method.finds_library_calls()
    }
}

/// The code that a thunk calls.
#[derive(Clone, Debug)]
pub enum CandidateBody<A: Code> {
    /// The code at this address.
    At(u64),
    /// These displaced instructions, and then the rest of the function.
    Displaced(A::Prologue),
    /// The function to which the pointer at this address leads.
    Pointer(u64),
    /// Nothing: the function calls the runtime itself.
    Itself,
}

/// An instruction that uses a pointer to a library function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImportSite {
    /// The address of the instruction.
    pub at: u64,
    /// The use of the pointer.
    pub usage: ImportUse,
}

/// The use of a pointer to a library function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportUse {
    /// The function is called.
    Call,
    /// The function is jumped to, as another function's last call.
    Jump,
    /// The pointer is loaded into a register, and then only called. The bytes are the instruction's prefix and its
    /// operand byte, which say which register.
    Load([u8; 2]),
}

impl ImportSite {
    /// Returns the size of the instruction in bytes.
    pub fn size(&self) -> u64 {
        match self.usage {
            ImportUse::Call | ImportUse::Jump => 6,
            ImportUse::Load(_) => 7,
        }
    }

    /// Returns whether `size` bytes of code at `address` overlap the instruction.
    pub fn overlaps(&self, address: u64, size: u64) -> bool {
        self.at < address.wrapping_add(size) && address < self.at + self.size()
    }

    /// Returns the instruction at the distance at which the module was loaded.
    #[must_use]
    pub fn rebase(self, bias: u64) -> ImportSite {
        ImportSite {
            at: self.at.wrapping_add(bias),
            ..self
        }
    }
}

/// Calls through pointers.
#[derive(Debug, Default)]
pub struct ImportCalls {
    /// The instructions, by the address of the pointer.
    pub sites: BTreeMap<u64, Vec<ImportSite>>,
    /// Names of functions whose addresses are loaded and called in ways that can't be followed.
    pub through_registers: BTreeSet<String>,
}

/// The result of a module's scan.
#[derive(Debug, Default)]
pub struct ModuleCode<A: Code> {
    /// The functions whose calls can be traced, by address.
    pub candidates: Vec<Candidate<A>>,
    /// The addresses of functions that can't be traced, with the reasons.
    pub refused: Vec<(u64, Refused)>,
    /// The loadable segments.
    pub segments: Vec<Segment>,
    /// Library functions that are called through registers, which can't be traced.
    pub through_registers: Vec<String>,
}

impl<A: Code> ModuleCode<A> {
    /// Returns the file offset of a virtual address.
    pub fn file_offset(&self, address: u64) -> Option<u64> {
        self.segments
            .iter()
            .find(|segment| address.wrapping_sub(segment.address) < segment.file_size)
            .map(|segment| address - segment.address + segment.offset)
    }
}
