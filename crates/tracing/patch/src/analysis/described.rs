//! The functions of a module, as its unwind tables describe them.

use super::image::Image;
use super::special::is_unwinder;
use super::work::{Share, share_out};
use crate::arch::Functions;
use gimli::{
    BaseAddresses, CommonInformationEntry, EhFrame, EndianSlice, FrameDescriptionEntry,
    LittleEndian, UnwindContext, UnwindSection,
};
use object::{Object, ObjectSection};
use std::collections::{HashMap, HashSet};

type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// A function, or a part of one.
#[derive(Clone, Copy, Debug)]
pub struct Described {
    /// Its first address.
    pub start: u64,
    /// Its size in bytes.
    pub size: u64,
    /// Whether it begins as a function does: the return address is where a call leaves it, and nothing is saved.
    pub entry: bool,
    /// Whether it is entered by the kernel, or resumes after exceptions.
    pub special: bool,
    /// The function's frame, if the return address lies above the frame pointer and nothing more is to know of the
    /// frame.
    pub framed: Option<Framed>,
    /// The place of the table that says what happens when an exception passes through the function.
    pub exceptions: Exceptions,
}

impl Described {
    /// Returns the first address behind the function.
    pub fn end(&self) -> u64 {
        self.start + self.size
    }

    /// Returns whether an address lies in the function.
    pub fn contains(&self, address: u64) -> bool {
        address.wrapping_sub(self.start) < self.size
    }
}

/// The frame of a function that makes it first and keeps it until it returns. All the time between, the return address
/// lies above the frame pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Framed {
    /// Whether the function ends with a jump to its own start: a loop, each round of which would take memory.
    pub loops: bool,
}

/// The place of a function's table of exceptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exceptions {
    /// The function has no table.
    None,
    /// The table is somewhere, but the address is not known.
    Unknown,
    /// The table is at this address.
    Table(u64),
}

/// The place of the return address at an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// So many bytes above the stack pointer. Where a function begins, 0 also stands for the register in which calls leave
    /// the return address.
    AboveStackPointer(i64),
    /// So many bytes above the frame pointer.
    AboveFramePointer(i64),
    /// A place that the tables do not describe in one of these simple ways.
    Unknown,
}

/// A stretch of code in which the return address has one place.
#[derive(Clone, Copy, Debug)]
pub struct Stretch {
    /// The first address behind it.
    pub end: u64,
    /// The place of the return address.
    pub slot: Slot,
}

/// Returns the functions that the unwind tables of an image describe, sorted by address.
pub fn described<A: Functions>(image: &Image<'_>) -> Vec<Described> {
    /// The size in bytes of a function's entry in the tables, about.
    const ENTRY: usize = 40;
    let tables = image.elf.section_by_name(".eh_frame");
    let entries = tables.map_or(0, |tables| tables.size() as usize / ENTRY);
    let shares = share_out(entries, image.threads, |share| {
        let mut some = Vec::new();
        each::<A>(image, share, |function, _| some.push(function));
        some
    });
    let mut all = shares.concat();
    all.sort_by_key(|function| function.start);
    all.dedup_by_key(|function| function.start);
    all
}

/// The largest number of functions that a byte of code lies in, on average.
const OVERLAPS: u64 = 8;

/// Calls `told` for each function of a share, in the order of the tables, with the places of the return address from
/// the function's start on.
pub fn each<A: Functions>(
    image: &Image<'_>,
    share: Share,
    mut told: impl FnMut(Described, &[Stretch]),
) {
    let Some(section) = image.elf.section_by_name(".eh_frame") else {
        return;
    };
    let Ok(data) = section.data() else {
        return;
    };
    let frames = EhFrame::new(data, LittleEndian);
    let mut bases = BaseAddresses::default().set_eh_frame(section.address());
    if let Some(text) = image.elf.section_by_name(".text") {
        bases = bases.set_text(text.address());
    }
    let mut context = UnwindContext::new();
    let mut cies: HashMap<usize, CommonInformationEntry<Bytes<'_>>> = HashMap::new();
    let mut entries = frames.entries(&bases);
    let mut stretches = Vec::new();
    let mut number = 0;
    let mut left = OVERLAPS * image.size();
    while let Ok(Some(entry)) = entries.next() {
        let gimli::CieOrFde::Fde(partial) = entry else {
            continue;
        };
        number += 1;
        if !share.has(number) {
            continue;
        }
        let parsed = partial.parse(|section, bases, offset| {
            if let Some(cie) = cies.get(&offset.0) {
                return Ok(CommonInformationEntry::clone(cie));
            }
            let cie = section.cie_from_offset(bases, offset)?;
            cies.insert(offset.0, cie.clone());
            Ok(cie)
        });
        let Ok(fde) = parsed else { continue };
        // Entries overlap in files that are made to do harm.
        let work = fde.len().min(image.size()) / OVERLAPS
            + (fde.entry_len() + fde.cie().entry_len()) as u64;
        let Some(rest) = left.checked_sub(work) else {
            break;
        };
        left = rest;
        // A damaged entry may state an end beyond the last address.
        if fde.len() == 0 || fde.initial_address().checked_add(fde.len()).is_none() {
            continue;
        }
        let mut function = function::<A>(&fde, &frames, &bases, &mut context, &mut stretches);
        function.framed = A::framed(image, &function, &stretches);
        told(function, &stretches);
    }
}

fn function<'a, A: Functions>(
    fde: &FrameDescriptionEntry<Bytes<'a>>,
    frames: &EhFrame<Bytes<'a>>,
    bases: &BaseAddresses,
    context: &mut UnwindContext<usize>,
    stretches: &mut Vec<Stretch>,
) -> Described {
    stretches.clear();
    let mut function = Described {
        start: fde.initial_address(),
        size: fde.len(),
        entry: false,
        special: fde.is_signal_trampoline(),
        framed: None,
        exceptions: match fde.lsda() {
            None => Exceptions::None,
            Some(gimli::Pointer::Direct(table)) => Exceptions::Table(table),
            Some(gimli::Pointer::Indirect(_)) => Exceptions::Unknown,
        },
    };
    let Ok(mut rows) = fde.rows(frames, bases, context) else {
        return function;
    };
    while let Ok(Some(row)) = rows.next_row() {
        let slot = A::slot(row);
        if stretches.is_empty() {
            let mut ruled = row.registers();
            let saves_nothing = ruled.all(|(register, _)| *register == A::RULED_AT_ENTRY);
            function.entry = slot == Slot::AboveStackPointer(0) && saves_nothing;
        }
        function.special |= row.registers().any(|(register, _)| register.0 < A::RESULTS);
        stretches.push(Stretch {
            end: row.end_address(),
            slot,
        });
    }
    function
}

/// Returns the functions that throw exceptions or resume after them.
pub fn unwinders(image: &Image<'_>, described: &[Described]) -> HashSet<u64> {
    let special = described.iter().filter(|function| function.special);
    let named = image.named().filter(|(.., name)| is_unwinder(name));
    let special = special.map(|function| function.start);
    special.chain(named.map(|(address, ..)| address)).collect()
}
