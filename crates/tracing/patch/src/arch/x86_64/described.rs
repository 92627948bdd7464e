//! The functions of a module, as its unwind tables describe them.

use super::framed::{Framed, framed};
use super::loads::Exceptions;
use super::work::{Share, share_out};
use crate::analysis::image::Image;
use gimli::{
    BaseAddresses, CfaRule, CommonInformationEntry, EhFrame, EndianSlice, FrameDescriptionEntry,
    LittleEndian, Register, RegisterRule, UnwindContext, UnwindSection,
};
use object::{Object, ObjectSection};
use std::collections::HashMap;

type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// The return address, as a register of unwind tables.
const RETURN_ADDRESS: Register = Register(16);
/// The stack pointer.
const STACK_POINTER: Register = Register(7);
/// The frame pointer.
const FRAME_POINTER: Register = Register(6);

/// A function, or a part of one.
#[derive(Clone, Copy, Debug)]
pub struct Described {
    /// Its first address.
    pub start: u64,
    /// Its size in bytes.
    pub size: u64,
    /// Whether it begins as a function does: the return address is on top of the stack, and nothing is saved.
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

/// The place of the return address at an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// So many bytes above the stack pointer.
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
pub fn described(image: &Image<'_>) -> Vec<Described> {
    /// The size in bytes of a function's entry in the tables, about.
    const ENTRY: usize = 40;
    let tables = image.elf.section_by_name(".eh_frame");
    let entries = tables.map_or(0, |tables| tables.size() as usize / ENTRY);
    let shares = share_out(entries, image.threads, |share| {
        let mut some = Vec::new();
        each(image, share, |function, _| some.push(function));
        some
    });
    let mut all = shares.concat();
    all.sort_by_key(|function| function.start);
    all.dedup_by_key(|function| function.start);
    all
}

/// Calls `told` for each function of a share, in the order of the tables, with the places of the return address from
/// the function's start on.
pub fn each(image: &Image<'_>, share: Share, mut told: impl FnMut(Described, &[Stretch])) {
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
        // A damaged entry may state an end beyond the last address.
        if fde.len() == 0 || fde.initial_address().checked_add(fde.len()).is_none() {
            continue;
        }
        let mut function = function(&fde, &frames, &bases, &mut context, &mut stretches);
        function.framed = framed(image, &function, &stretches);
        told(function, &stretches);
    }
}

fn function<'a>(
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
        let is_ordinary = row.register(RETURN_ADDRESS) == Some(RegisterRule::Offset(-8));
        let slot = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } if is_ordinary => match *register {
                STACK_POINTER => Slot::AboveStackPointer(offset.saturating_sub(8)),
                FRAME_POINTER => Slot::AboveFramePointer(offset.saturating_sub(8)),
                _ => Slot::Unknown,
            },
            _ => Slot::Unknown,
        };
        if stretches.is_empty() {
            let saves_nothing = row
                .registers()
                .all(|(register, _)| *register == RETURN_ADDRESS);
            function.entry = slot == Slot::AboveStackPointer(0) && saves_nothing;
        }
        // Only functions that resume after exceptions save the registers that hold results.
        function.special |= row
            .registers()
            .any(|(register, _)| matches!(register, Register(0 | 1)));
        stretches.push(Stretch {
            end: row.end_address(),
            slot,
        });
    }
    function
}
