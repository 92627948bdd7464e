//! The functions of a module, as its unwind tables describe them.

use crate::analysis::image::Image;
use gimli::{
    BaseAddresses, CfaRule, CommonInformationEntry, EhFrame, EndianSlice, LittleEndian, Register,
    UnwindContext, UnwindSection,
};
use object::{Object, ObjectSection};
use std::collections::HashMap;

const STACK_POINTER: Register = Register(31);
/// The pseudo-register that says whether the return address is signed.
const SIGNED: Register = Register(34);

/// A function, or a part of one.
#[derive(Clone, Copy, Debug)]
pub struct Described {
    /// Its first address.
    pub start: u64,
    /// Its size in bytes.
    pub size: u64,
    /// Whether it begins as a function does: the return address is in its register, and nothing is saved.
    pub entry: bool,
    /// Whether it is entered by the kernel, or resumes after exceptions.
    pub special: bool,
}

impl Described {
    /// Returns whether an address lies in the function.
    pub fn contains(&self, address: u64) -> bool {
        address.wrapping_sub(self.start) < self.size
    }
}

/// Returns the functions that the unwind tables of an image describe, sorted by address.
pub fn described(image: &Image<'_>) -> Vec<Described> {
    let mut all = Vec::new();
    let Some(section) = image.elf.section_by_name(".eh_frame") else {
        return all;
    };
    let Ok(data) = section.data() else {
        return all;
    };
    let frames = EhFrame::new(data, LittleEndian);
    let mut bases = BaseAddresses::default().set_eh_frame(section.address());
    if let Some(text) = image.elf.section_by_name(".text") {
        bases = bases.set_text(text.address());
    }
    let mut context = UnwindContext::new();
    let mut cies: HashMap<usize, CommonInformationEntry<EndianSlice<'_, LittleEndian>>> =
        HashMap::new();
    let mut entries = frames.entries(&bases);
    while let Ok(Some(entry)) = entries.next() {
        let gimli::CieOrFde::Fde(partial) = entry else {
            continue;
        };
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
        let mut function = Described {
            start: fde.initial_address(),
            size: fde.len(),
            entry: false,
            special: fde.is_signal_trampoline(),
        };
        if let Ok(mut rows) = fde.rows(&frames, &bases, &mut context) {
            let mut is_first = true;
            while let Ok(Some(row)) = rows.next_row() {
                if std::mem::take(&mut is_first) {
                    let is_at_start = matches!(
                        row.cfa(),
                        CfaRule::RegisterAndOffset {
                            register: STACK_POINTER,
                            offset: 0
                        }
                    );
                    let saves_nothing = row.registers().all(|(register, _)| *register == SIGNED);
                    function.entry = is_at_start && saves_nothing;
                }
                // Only functions that resume after exceptions save the registers that hold results.
                function.special |= row.registers().any(|(register, _)| register.0 < 4);
            }
        }
        all.push(function);
    }
    all.sort_by_key(|function| function.start);
    all.dedup_by_key(|function| function.start);
    all
}
