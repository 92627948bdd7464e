//! What is found in a module: functions, and how their calls can be traced.
//!
//! Addresses here are those of the ELF file (virtual addresses), before it is loaded.

use super::image::Segment;
use super::refusal::Refused;
use super::special::is_told;
use crate::arch::{ImportSite, Prologue};
use dioptra_tracelayout::message::Method;

/// What is looked for.
#[derive(Clone, Copy, Debug)]
pub struct ScanOptions {
    /// Functions without instrumentation, too.
    pub plain: bool,
    /// Library calls, too.
    pub library_calls: bool,
}

/// A function whose calls can be traced.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Its first byte.
    pub start: u64,
    /// Its size in bytes; 0 if it is not known.
    pub size: u64,
    /// How.
    pub method: Method,
    /// Where the jump to its thunk goes, or the pointer through which it is called.
    pub site: u64,
    /// What the thunk calls.
    pub body: CandidateBody,
    /// What takes the place of a hook that is not wanted, and how many bytes of it, at the site: calls that cost nothing.
    pub neutral: Option<&'static [u8]>,
    /// The name of a library call.
    pub name: Option<String>,
    /// The calls of a library function; empty if the jump to its thunk is at the site.
    pub calls: Vec<ImportSite>,
}

impl Candidate {
    /// Returns whether of its calls only the beginning is recorded.
    pub fn is_told(&self) -> bool {
        self.name.as_deref().is_some_and(is_told) && self.method.finds_library_calls()
    }
}

/// What a thunk calls.
#[derive(Clone, Debug)]
pub enum CandidateBody {
    /// This address.
    At(u64),
    /// These instructions.
    Displaced(Prologue),
    /// What the pointer at this address leads to.
    Pointer(u64),
    /// Nothing: the function calls the runtime itself.
    Itself,
}

/// What was found in a module.
#[derive(Debug, Default)]
pub struct ModuleCode {
    /// In the order of their addresses.
    pub candidates: Vec<Candidate>,
    /// What can't be traced, and why.
    pub refused: Vec<(u64, Refused)>,
    /// Loadable segments.
    pub segments: Vec<Segment>,
    /// Library functions that are called through registers, which can't be traced.
    pub through_registers: Vec<String>,
}

impl ModuleCode {
    /// The file offset of a virtual address.
    pub fn file_offset(&self, address: u64) -> Option<u64> {
        self.segments
            .iter()
            .find(|segment| address.wrapping_sub(segment.address) < segment.file_size)
            .map(|segment| address - segment.address + segment.offset)
    }
}
