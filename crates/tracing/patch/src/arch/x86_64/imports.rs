//! Calls of other modules' functions that bypass the procedure linkage table: through the pointer that the dynamic
//! linker has filled (`call *f@GOT(%rip)`), as `gcc -fno-plt` and rustc make them.
//!
//! The pointers are left alone, because programs compare them. Instead the calls are patched. Calls are looked for only
//! in functions whose places are known, so that no data is taken for code.

use super::loads::{FunctionCode, landing_pads};
use super::thunk::distance;
use crate::analysis::candidates::{ImportCalls, ImportSite, ImportUse};
use crate::analysis::described::Described;
use crate::analysis::image::Image;
use crate::analysis::special::is_silent;
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, OpKind, Register};
use std::cell::OnceCell;
use std::collections::HashSet;
use std::ops::Range;

/// Returns an instruction for the place of a call through a pointer that uses `target` itself; `None` if `target` is out
/// of reach.
pub fn direct(site: &ImportSite, target: u64) -> Option<Vec<u8>> {
    // A prefix, or a `nop` behind, makes the instruction as long as it was.
    let (front, back): (&[u8], &[u8]) = match &site.usage {
        ImportUse::Call => (&[0x67, 0xe8], &[]),
        ImportUse::Jump => (&[0xe9], &[0x90]),
        ImportUse::Load([prefix, register]) => (&[*prefix, 0x8d, *register], &[]),
    };
    let behind = site.at + front.len() as u64 + 4;
    let distance = distance(behind, target)?;
    Some([front, &distance, back].concat())
}

/// Finds the calls through pointers in the functions of an image.
pub fn import_calls(image: &Image<'_>, described: &[Described]) -> ImportCalls {
    let mut calls = ImportCalls::default();
    // Hooks of compilers are left out: each function calls them.
    let wanted = image.imports.iter().filter(|(_, name)| !is_silent(name));
    let wanted = Pointers::new(wanted.map(|(pointer, _)| *pointer).collect());
    let stubs: HashSet<u64> = image.stubs.values().map(|stub| stub.jump).collect();
    let mut hits = hits(image, &wanted);
    hits.retain(|hit| !stubs.contains(hit));
    let mut hits = hits.as_slice();
    let mut instructions = Vec::new();
    for function in described {
        let before = hits.partition_point(|hit| *hit < function.start);
        hits = &hits[before..];
        let inside = hits.partition_point(|hit| function.contains(*hit));
        let (inside, others) = hits.split_at(inside);
        hits = others;
        if !inside.is_empty() {
            decode(image, function, inside, &mut instructions, &mut calls);
        }
    }
    calls
}

/// The addresses of some pointers.
struct Pointers {
    sorted: Vec<u64>,
    /// A filter. Bit n, counted modulo 4096, says whether a pointer may lie 8 n bytes behind the first one.
    bits: [u64; 64],
}

impl Pointers {
    fn new(mut sorted: Vec<u64>) -> Pointers {
        sorted.sort_unstable();
        sorted.dedup();
        let mut pointers = Pointers {
            bits: [0; 64],
            sorted,
        };
        for number in 0..pointers.sorted.len() {
            let (word, bit) = pointers.place(pointers.sorted[number]);
            pointers.bits[word] |= bit;
        }
        pointers
    }

    fn place(&self, address: u64) -> (usize, u64) {
        let first = self.sorted.first().copied().unwrap_or_default();
        let number = address.wrapping_sub(first) / 8;
        ((number / 64 % 64) as usize, 1 << (number % 64))
    }

    fn contains(&self, address: u64) -> bool {
        let (word, bit) = self.place(address);
        self.bits[word] & bit != 0 && self.sorted.binary_search(&address).is_ok()
    }
}

/// Returns the addresses at which bytes look like an instruction that uses one of the pointers, sorted. Most functions
/// need not be decoded then.
fn hits(image: &Image<'_>, pointers: &Pointers) -> Vec<u64> {
    let mut hits = Vec::new();
    if pointers.sorted.is_empty() {
        return hits;
    }
    for segment in image.segments.iter().filter(|s| s.executable) {
        let bytes = image
            .bytes(segment.address, segment.file_size)
            .unwrap_or_default();
        let mut look = |at: usize| {
            let (front, back) = bytes.split_at(at);
            // The operand's address is given as a distance from the instruction's end.
            let Some(&[operand, a, b, c, d]) = back.first_chunk() else {
                return;
            };
            let size = match (front, operand) {
                ([.., 0xff], 0x15 | 0x25) => 1,
                ([.., 0x48 | 0x4c, 0x8b], _) if operand & 0xc7 == 0x05 => 2,
                _ => return,
            };
            let end = segment.address.wrapping_add(at as u64 + 5);
            let distance = i64::from(i32::from_le_bytes([a, b, c, d]));
            if pointers.contains(end.wrapping_add_signed(distance)) {
                hits.push(end.wrapping_sub(5 + size));
            }
        };
        // The end of the opcode is one of two bytes.
        memchr::memchr2_iter(0x8b, 0xff, bytes).for_each(|end| look(end + 1));
    }
    hits.sort_unstable();
    hits
}

/// Looks at the instructions of a function at some `hits`, which are sorted. `instructions` is memory for the
/// function's instructions that is used again.
fn decode(
    image: &Image<'_>,
    function: &Described,
    hits: &[u64],
    instructions: &mut Vec<Instruction>,
    calls: &mut ImportCalls,
) {
    let Some(bytes) = image.bytes(function.start, function.size) else {
        return;
    };
    instructions.clear();
    instructions.extend(&mut Decoder::with_ip(
        64,
        bytes,
        function.start,
        DecoderOptions::NONE,
    ));
    let instructions = instructions.as_slice();
    let mut targets: Vec<u64> = instructions
        .iter()
        .filter(|i| i.op0_kind() == OpKind::NearBranch64 && i.flow_control() != FlowControl::Call)
        .map(Instruction::near_branch_target)
        .collect();
    targets.sort_unstable();
    let is_target = |inside: Range<u64>| {
        let first = targets.partition_point(|target| *target < inside.start);
        targets
            .get(first)
            .is_some_and(|target| *target < inside.end)
    };
    let is_called = |register: Register| {
        let mut calls = instructions.iter().filter(|i| {
            i.op0_kind() == OpKind::Register && i.op0_register() == register && is_indirect(i)
        });
        calls.next().is_some()
    };
    let code = OnceCell::new();
    let function_code = || {
        let made = || FunctionCode::new(instructions, landing_pads(image, function));
        code.get_or_init(made)
    };
    for hit in hits {
        let Ok(number) = instructions.binary_search_by_key(hit, Instruction::ip) else {
            continue;
        };
        let instruction = &instructions[number];
        let at = instruction.ip();
        if !instruction.is_ip_rel_memory_operand() {
            continue;
        }
        let pointer = instruction.ip_rel_memory_address();
        let name = image.imports.get(&pointer);
        let Some(name) = name.filter(|name| !is_silent(name)) else {
            continue;
        };
        let usage = match (instruction.code(), image.bytes(at, 3)) {
            (Code::Call_rm64, _) => ImportUse::Call,
            (Code::Jmp_rm64, _) => ImportUse::Jump,
            (Code::Mov_r64_rm64, Some([prefix, _, register])) => {
                if !is_called(instruction.op0_register()) {
                    continue;
                }
                if !function_code().is_only_called(at) {
                    if function_code().may_be_called(at) {
                        calls.through_registers.insert((*name).to_owned());
                    }
                    continue;
                }
                ImportUse::Load([*prefix, *register])
            }
            _ => continue,
        };
        let site = ImportSite { at, usage };
        // Hand-written code may jump into the instruction.
        let is_plain = site.size() == instruction.len() as u64;
        if is_plain && !is_target(at + 1..at + site.size()) {
            calls.sites.entry(pointer).or_default().push(site);
        }
    }
}

fn is_indirect(instruction: &Instruction) -> bool {
    matches!(
        instruction.flow_control(),
        FlowControl::IndirectCall | FlowControl::IndirectBranch
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_the_place_of_a_call_is_as_long_and_leads_to_the_target() {
        for (usage, code) in [
            (ImportUse::Call, Code::Call_rel32_64),
            (ImportUse::Jump, Code::Jmp_rel32_64),
            // mov r12, [rip + …]
            (ImportUse::Load([0x4c, 0x25]), Code::Lea_r64_m),
        ] {
            let site = ImportSite { at: 0x1000, usage };
            let bytes = direct(&site, 0x9000).unwrap();
            assert_eq!(bytes.len() as u64, site.size());
            let instruction = Decoder::with_ip(64, &bytes, 0x1000, DecoderOptions::NONE).decode();
            assert_eq!(instruction.code(), code);
            let target = match usage {
                ImportUse::Load(_) => instruction.ip_rel_memory_address(),
                _ => instruction.near_branch_target(),
            };
            assert_eq!(target, 0x9000);
            assert!(usage == ImportUse::Jump || instruction.next_ip() == 0x1000 + site.size());
            assert_eq!(direct(&site, 0x9000_0000_0000), None);
        }
    }
}
