//! The line at which a function is declared, which is not the line of its first instruction if its head takes several.

use super::LineReader;
use crate::address::RelativeAddress;
use crate::dwarf_sections::Slice;
use addr2line::{LookupContinuation, LookupResult};
use gimli::{AttributeValue, UnitOffset, UnitRef};
use std::path::PathBuf;
use std::sync::Arc;

/// More steps from an instance to its declaration than any compiler makes.
const MOST_STEPS: usize = 8;

impl<'a> LineReader<'a> {
    /// Returns the file and the line at which the function is declared whose code lies at an address: that
    /// of the definition, with its name. None if the debug information does not tell, or lies in split files.
    #[must_use]
    pub fn declaration(&self, address: RelativeAddress) -> Option<(Arc<str>, u32)> {
        let context = self.context.as_ref()?;
        let probe = self.lines.address_of(address)?;
        let mut found = self.loaded(context.find_frames(probe)).ok()?;
        let mut entry = None;
        // The outermost frame: what is inlined there is not the function.
        while let Ok(Some(frame)) = found.next() {
            entry = frame.dw_die_offset;
        }
        let unit = self.loaded(context.find_dwarf_and_unit(probe))?;
        if unit.dwo_name().is_ok_and(|name| name.is_some()) {
            return None;
        }
        let mut entry = entry?;
        // A definition outside of its class has a line of its own, and perhaps the file of what it defines.
        let (mut line, mut file) = (None, None);
        for _ in 0..MOST_STEPS {
            let declared = declared(&unit, entry)?;
            line = line.or(declared.line);
            file = file.or(declared.file);
            if let (Some(line), Some(file)) = (line, file) {
                return Some((self.file(&path(&unit, file)?), line));
            }
            entry = declared.by?;
        }
        None
    }

    /// Returns what a lookup finds, with the split files that it asks for.
    pub(super) fn loaded<L>(&self, mut lookup: LookupResult<L>) -> L::Output
    where
        L: LookupContinuation<Buf = Slice<'a>>,
    {
        loop {
            match lookup {
                LookupResult::Output(found) => return found,
                LookupResult::Load { load, continuation } => {
                    let split = self.lines.split.load(&load, self.package.as_ref());
                    lookup = continuation.resume(split);
                }
            }
        }
    }
}

/// Where an entry is declared.
struct Declared {
    /// The file, by its number in the unit's table.
    file: Option<u64>,
    /// The line.
    line: Option<u32>,
    /// The entry of which this one is an instance or the definition.
    by: Option<UnitOffset>,
}

/// Returns the line at which the function of an entry is declared.
pub(super) fn line(unit: &UnitRef<'_, Slice<'_>>, entry: UnitOffset) -> Option<u32> {
    let mut entry = entry;
    for _ in 0..MOST_STEPS {
        let declared = declared(unit, entry)?;
        if declared.line.is_some() {
            return declared.line;
        }
        entry = declared.by?;
    }
    None
}

fn declared(unit: &UnitRef<'_, Slice<'_>>, entry: UnitOffset) -> Option<Declared> {
    let entry = unit.entry(entry).ok()?;
    let number = |name| match entry.attr_value(name)? {
        AttributeValue::FileIndex(file) => Some(file),
        value => value.udata_value(),
    };
    let line = number(gimli::DW_AT_decl_line).and_then(|line| u32::try_from(line).ok());
    let others = [gimli::DW_AT_abstract_origin, gimli::DW_AT_specification];
    Some(Declared {
        file: number(gimli::DW_AT_decl_file),
        line,
        by: others
            .into_iter()
            .find_map(|name| match entry.attr_value(name)? {
                AttributeValue::UnitRef(offset) => Some(offset),
                _ => None,
            }),
    })
}

/// Returns the path of a file of a unit's table.
fn path(unit: &UnitRef<'_, Slice<'_>>, file: u64) -> Option<String> {
    let header = unit.line_program.as_ref()?.header();
    let file = header.file(file)?;
    let text = |value| -> Option<String> {
        let text = unit.attr_string(value).ok()?;
        Some(String::from_utf8_lossy(text.slice()).into_owned())
    };
    let mut path = PathBuf::new();
    if let Some(folder) = &unit.comp_dir {
        path.push(&*String::from_utf8_lossy(folder.slice()));
    }
    // A path that is absolute takes the place of what is in front.
    if let Some(folder) = file.directory(header).and_then(text) {
        path.push(folder);
    }
    path.push(text(file.path_name())?);
    Some(path.to_string_lossy().into_owned())
}
