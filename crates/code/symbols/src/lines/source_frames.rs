//! The functions at an address as compilers find them again in a profile: by link name, the declaration's line, the line
//! at the address, and the discriminator, which distinguishes the blocks of a line.

use super::{LineReader, MOST_FRAMES, declared};
use crate::address::RelativeAddress;
use crate::dwarf_sections::Slice;
use gimli::{AttributeValue, UnitOffset, UnitRef};
use std::rc::Rc;
use std::sync::Arc;

/// A function at an address, with the numbers that outlast a new build of the program.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct SourceFrame {
    /// The name as the linker knows it, or as the source has it if the linker knows none.
    pub link_name: Option<Arc<str>>,
    /// The line at which the function is declared, from 1.
    pub declared: Option<u32>,
    /// The line at the address, from 1; in a function that another was inlined into, the line of that call.
    pub line: Option<u32>,
    /// The discriminator of the block, or of the call that was inlined; 0 where the compiler gave none. Of clang's
    /// discriminators it is the part that stands for the source ("base discriminator").
    pub discriminator: u64,
}

/// A stretch of code with one discriminator.
#[derive(Debug)]
pub(super) struct DiscriminatorRow {
    start: u64,
    end: u64,
    discriminator: u64,
}

impl<'a> LineReader<'a> {
    /// Returns the functions that are executing at an address, innermost first, as [`LineReader::frames`] does. Empty
    /// when the debug information tells nothing of the address, or lies in split files.
    #[must_use]
    pub fn source_frames(&self, address: RelativeAddress) -> Vec<SourceFrame> {
        let mut frames: Vec<SourceFrame> = Vec::new();
        let (Some(context), Some(probe)) = (&self.context, self.lines.address_of(address)) else {
            return frames;
        };
        let Some(unit) = self.loaded(context.find_dwarf_and_unit(probe)) else {
            return frames;
        };
        if unit.dwo_name().is_ok_and(|name| name.is_some()) {
            return frames;
        }
        let Ok(mut found) = self.loaded(context.find_frames(probe)) else {
            return frames;
        };
        let is_clang = is_by_clang(&unit);
        let of_source = |raw| if is_clang { base(raw) } else { raw };
        let mut discriminator = self.discriminator(&unit, probe);
        while let Ok(Some(frame)) = found.next() {
            frames.push(SourceFrame {
                link_name: frame.function.map(|function| {
                    Arc::from(String::from_utf8_lossy(function.name.slice()).as_ref())
                }),
                declared: frame.dw_die_offset.and_then(|at| declared::line(&unit, at)),
                line: frame.location.and_then(|location| location.line),
                discriminator: of_source(discriminator),
            });
            // An inlined function's entry has the discriminator of the call, which lies in the next frame.
            let of_call = frame
                .dw_die_offset
                .and_then(|at| number(&unit, at, gimli::DW_AT_GNU_discriminator));
            discriminator = of_call.unwrap_or(0);
            if frames.len() == MOST_FRAMES {
                break;
            }
        }
        frames
    }

    /// Returns the discriminator that the line table has for an address of the debug information.
    fn discriminator(&self, unit: &UnitRef<'_, Slice<'a>>, probe: u64) -> u64 {
        let key = unit.header.debug_info_offset().map(|offset| offset.0);
        let mut known = self.discriminators.borrow_mut();
        let rows = known
            .entry(key)
            .or_insert_with(|| Rc::new(discriminator_rows(unit)));
        let after = rows.partition_point(|row| row.start <= probe);
        let row = after.checked_sub(1).and_then(|at| rows.get(at));
        row.filter(|row| probe < row.end)
            .map_or(0, |row| row.discriminator)
    }
}

/// Reads the line table's rows that have a discriminator, by rising address. Damage ends the list.
fn discriminator_rows(unit: &UnitRef<'_, Slice<'_>>) -> Vec<DiscriminatorRow> {
    let mut found = Vec::new();
    let Some(program) = unit.line_program.clone() else {
        return found;
    };
    let mut rows = program.rows();
    let mut before: Option<(u64, u64)> = None;
    while let Ok(Some((_, row))) = rows.next_row() {
        if let Some((start, discriminator)) = before
            && discriminator != 0
            && start < row.address()
        {
            found.push(DiscriminatorRow {
                start,
                end: row.address(),
                discriminator,
            });
        }
        before = (!row.end_sequence()).then(|| (row.address(), row.discriminator()));
    }
    found.sort_unstable_by_key(|row| row.start);
    found
}

fn number(unit: &UnitRef<'_, Slice<'_>>, entry: UnitOffset, name: gimli::DwAt) -> Option<u64> {
    unit.entry(entry).ok()?.attr_value(name)?.udata_value()
}

/// Returns whether clang or a compiler of its family made a unit.
fn is_by_clang(unit: &UnitRef<'_, Slice<'_>>) -> bool {
    let mut entries = unit.entries();
    let Ok(Some(root)) = entries.next_dfs() else {
        return false;
    };
    let producer: Option<AttributeValue<Slice<'_>>> = root.attr_value(gimli::DW_AT_producer);
    let producer = producer.and_then(|value| unit.attr_string(value).ok());
    producer.is_some_and(|text| {
        let text = String::from_utf8_lossy(text.slice()).into_owned();
        text.contains("clang") || text.contains("LLVM")
    })
}

/// Returns the first component of a discriminator of LLVM. A component is the bit 1 if it is zero, else a 0 bit, five
/// bits of the number, and, if the bit behind them is set, seven more.
fn base(discriminator: u64) -> u64 {
    if discriminator & 1 == 1 {
        return 0;
    }
    let rest = discriminator >> 1;
    match rest & 0x20 {
        0 => rest & 0x1f,
        _ => ((rest >> 1) & 0xfe0) | (rest & 0x1f),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_discriminators() {
        assert_eq!(base(0), 0);
        // One: a zero bit, and the number.
        assert_eq!(base(0b10), 1);
        // Zero, with a duplication factor behind it.
        assert_eq!(base(0b1001), 0);
        assert_eq!(base(31 << 1), 31);
        // 33 = 0b1_00001: five low bits, the mark, then the rest.
        assert_eq!(base((1 << 7 | 1 << 5 | 1) << 1), 0x20 << 1 | 1);
    }
}
