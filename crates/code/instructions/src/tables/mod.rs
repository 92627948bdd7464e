//! Jump tables: where the indirect jumps that compilers make of a `switch` lead.
//!
//! Only what is certain counts. A table needs a known place, a known number of entries (from the comparison,
//! mask or byte-wide index before the jump), and entries that all lead to code; otherwise the jump stays
//! indirect.

mod aarch64;
mod x86;

use std::ops::Range;

use super::function::FunctionCode;
use super::instruction::{InstructionKind, JumpTable, Target};
use super::space::CodeSpace;
use dioptra_symbols::CodeMachine;

/// More entries than any compiler makes: a `switch` of 16 bits.
const MOST_ENTRIES: u64 = 1 << 16;
/// The number of values of a byte: the bound of an index that isn't compared.
const BYTE_VALUES: u64 = 256;
/// Entries of all tables of a function, so that hostile code can't ask for more than memory has.
const MOST_ENTRIES_IN_ALL: usize = 1 << 18;
/// The number of instructions that are looked at before a jump, and in all for a function.
const FAR: usize = 256;
const MOST_STEPS: usize = 1 << 20;
/// The largest distance, in instructions, at which a table's address may be loaded before the jump.
const FAR_FOR_PLACE: usize = 8192;

/// A table before its entries are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TableLayout {
    /// Where it lies.
    place: u64,
    /// The address that its entries are added to; `None` if entries are addresses.
    base: Option<u64>,
    /// The width of an entry, in bytes, and whether it has a sign.
    size: usize,
    is_signed: bool,
    /// By how many bits an entry is shifted.
    shift: u32,
    /// The number of entries.
    count: u64,
}

/// Finds tables before their entries are read.
trait FindShape {
    fn shape(&mut self, jump: usize) -> Option<TableLayout>;
}

/// The tables of a function, by rising number of their jump.
pub(crate) fn resolve(code: &FunctionCode, space: &dyn CodeSpace) -> Vec<JumpTable> {
    let mut tables = Vec::new();
    let mut finder: Option<Box<dyn FindShape + '_>> = None;
    let mut entries = 0;
    let mut cold = None;
    for (index, packed) in code.packed().iter().enumerate() {
        if packed.kind != InstructionKind::IndirectJump {
            continue;
        }
        let finder = finder.get_or_insert_with(|| match code.machine() {
            CodeMachine::Aarch64 => Box::new(aarch64::Finder::new(code)),
            CodeMachine::I386 | CodeMachine::X86_64 => Box::new(x86::Finder::new(code)),
        });
        let Some(shape) = finder.shape(index) else {
            continue;
        };
        if shape.count > MOST_ENTRIES || entries + shape.count as usize > MOST_ENTRIES_IN_ALL {
            continue;
        }
        // Counted whether or not they are any good.
        entries += shape.count as usize;
        let cold = cold.get_or_insert_with(|| cold_part(code)).clone();
        if let Some(targets) = read(code, space, &shape, cold) {
            tables.push(JumpTable {
                instruction: index,
                virtual_address: shape.place,
                targets,
            });
        }
    }
    tables
}

/// Direct jumps by the instruction they lead to.
fn jumps_by_target(code: &FunctionCode) -> Vec<(u32, u32)> {
    let mut jumps: Vec<(u32, u32)> = code
        .targets()
        .iter()
        .filter(|(at, _)| code.packed()[*at as usize].kind.is_jump())
        .filter_map(|(at, target)| {
            let to = code.index_of_virtual(target.virtual_address)?;
            Some((to as u32, *at))
        })
        .collect();
    jumps.sort_unstable();
    jumps
}

/// The direct jumps to an instruction.
fn jumps_to(jumps: &[(u32, u32)], to: usize) -> impl Iterator<Item = usize> {
    let from = jumps.partition_point(|(target, _)| (*target as usize) < to);
    jumps[from..]
        .iter()
        .take_while(move |(target, _)| *target as usize == to)
        .map(|(_, source)| *source as usize)
}

/// Where the part of a function lies that is seldom executed, as virtual addresses: compilers put it elsewhere, in one
/// piece, and conditional jumps lead there. Other functions are called without conditions.
fn cold_part(code: &FunctionCode) -> Range<u64> {
    /// The number of bytes that it goes on behind the targets of conditional jumps.
    const BEYOND: u64 = 512;
    let outside = code.targets().iter().filter_map(|(at, target)| {
        let is_conditional = code.packed()[*at as usize].kind == InstructionKind::ConditionalJump;
        let address = target.virtual_address;
        (is_conditional && code.index_of_virtual(address).is_none()).then_some(address)
    });
    let (first, last) = (outside.clone().min(), outside.max());
    first
        .zip(last)
        .map_or(0..0, |(first, last)| first..last.saturating_add(BEYOND))
}

/// Where a table's entries lead, if all lead to code and one of them into the function.
fn read(
    code: &FunctionCode,
    space: &dyn CodeSpace,
    shape: &TableLayout,
    cold: Range<u64>,
) -> Option<Vec<Target>> {
    let count = usize::try_from(shape.count)
        .ok()
        .filter(|&count| count > 0)?;
    let mut bytes = vec![0; count * shape.size];
    if !space.read(shape.place, &mut bytes) {
        return None;
    }
    let mut is_inside = false;
    let targets: Option<Vec<Target>> = bytes
        .chunks_exact(shape.size)
        .map(|bytes| {
            let mut wide = [0; 8];
            wide[..shape.size].copy_from_slice(bytes);
            let unused = 64 - 8 * shape.size as u32;
            let entry = u64::from_le_bytes(wide) << unused;
            let entry = if shape.is_signed {
                (entry as i64 >> unused) as u64
            } else {
                entry >> unused
            };
            let virtual_address = match shape.base {
                Some(base) => base.wrapping_add(entry << shape.shift),
                None => entry,
            };
            let address = match code.index_of_virtual(virtual_address) {
                Some(index) => {
                    is_inside = true;
                    let found = code.get(index)?;
                    if found.virtual_address != virtual_address {
                        return None;
                    }
                    found.address
                }
                // A byte as index, perhaps with a comparison that was not found: what leads out of the
                // function may be the next table.
                None if shape.count == BYTE_VALUES && !cold.contains(&virtual_address) => {
                    return None;
                }
                // Cases that are seldom taken lie in the function's cold part.
                None => space.relative(virtual_address)?,
            };
            Some(Target {
                address: Some(address),
                virtual_address,
            })
        })
        .collect();
    targets.filter(|_| is_inside)
}
