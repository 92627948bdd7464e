//! The control flow of a module, as far as it decides which functions can be patched: the targets of branches, and the
//! uses of return addresses.
//!
//! Finding it takes decoding all code, so it is found when it is first asked for.

use super::X86_64;
use super::frame_pointer::{Watch, looks_at_saved, uses_callers};
use super::marks::Marks;
use super::stubs::landing;
use crate::analysis::described::{Described, Slot, Stretch, each, unwinders};
use crate::analysis::image::Image;
use crate::analysis::scan::around;
use crate::analysis::work::share_out;
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, OpKind, Register};
use std::collections::HashSet;
use std::ops::Range;
use std::sync::OnceLock;

/// The largest number of entries of a jump table that are looked at.
const MOST_CASES: u64 = 4096;

/// The control flow of a module.
#[derive(Debug, Default)]
pub struct Flow {
    /// Addresses inside functions to which a branch or a pointer leads.
    targets: Marks,
    /// Functions that go on at their own first instruction.
    loops: HashSet<u64>,
    /// Functions that look at their return address, or change it.
    looks: HashSet<u64>,
    /// Functions that use or change their caller's frame pointer, or pass it on to functions that do.
    frame_pointer: HashSet<u64>,
    /// Functions that the functions of an unwinder call, which are left when an exception is thrown.
    unwinding: HashSet<u64>,
    /// Functions that move the stack pointer by a distance that is computed, and their callers.
    copying: HashSet<u64>,
}

impl Flow {
    /// Returns whether a function goes on with a stack that was copied away, as greenlets do, or calls a function that
    /// does.
    pub fn copies_stacks(&self, start: u64) -> bool {
        self.copying.contains(&start)
    }

    /// Returns whether a branch or a pointer leads to one of these addresses.
    pub fn enters(&self, addresses: Range<u64>) -> bool {
        self.targets.any(addresses)
    }

    /// Returns whether a function goes on at its own first instruction.
    pub fn loops(&self, start: u64) -> bool {
        self.loops.contains(&start)
    }

    /// Returns whether a function looks at its return address, or changes it.
    pub fn looks_at_return_address(&self, start: u64) -> bool {
        self.looks.contains(&start)
    }

    /// Returns whether a function uses its caller's frame pointer, or returns with another one.
    pub fn uses_frame_pointer(&self, start: u64) -> bool {
        self.frame_pointer.contains(&start)
    }

    /// Returns whether an unwinder calls a function.
    pub fn is_unwinding(&self, start: u64) -> bool {
        self.unwinding.contains(&start)
    }
}

/// The control flow of a module, found when it is first asked for.
pub struct LazyFlow<'s> {
    image: &'s Image<'s>,
    described: &'s [Described],
    flow: OnceLock<Flow>,
    has_unwinders: OnceLock<bool>,
    may_copy: OnceLock<bool>,
}

impl<'s> LazyFlow<'s> {
    /// Creates the control flow of the functions of an image, without finding it yet.
    pub fn new(image: &'s Image<'s>, described: &'s [Described]) -> LazyFlow<'s> {
        LazyFlow {
            image,
            described,
            flow: OnceLock::new(),
            has_unwinders: OnceLock::new(),
            may_copy: OnceLock::new(),
        }
    }

    /// Returns the control flow.
    pub fn get(&self) -> &Flow {
        self.flow.get_or_init(|| find(self.image, self.described))
    }

    /// Returns whether a function exchanges stacks by copying them. All code is decoded only if some bytes look as if
    /// code did.
    pub fn copies_stacks(&self, start: u64) -> bool {
        let may_copy = self.may_copy.get_or_init(|| {
            self.described.iter().any(|function| {
                let bytes = self.image.bytes(function.start, function.size);
                bytes.is_some_and(may_move_stack)
            })
        });
        *may_copy && self.get().copies_stacks(start)
    }

    /// Returns whether the image has unwinders. Without them, [`Flow::is_unwinding`] holds for no function.
    pub fn has_unwinders(&self) -> bool {
        *self
            .has_unwinders
            .get_or_init(|| !unwinders(self.image, self.described).is_empty())
    }
}

fn find(image: &Image<'_>, described: &[Described]) -> Flow {
    let unwinders = unwinders(image, described);
    let targets = Marks::of_code(image);
    let all = share_out(described.len(), image.threads, |share| {
        let mut finder = Finder {
            image,
            described,
            unwinders: &unwinders,
            targets: &targets,
            found: Found::default(),
            named: Default::default(),
            tables: Vec::new(),
        };
        each::<X86_64>(image, share, |function, stretches| {
            finder.function(&function, stretches);
        });
        finder.found
    });
    gaps(image, described, &targets);
    // Pointers that the dynamic linker will fill are targets, too. In a program for one fixed place, the linker has
    // filled them.
    image
        .relative
        .values()
        .for_each(|target| targets.set(*target));
    if image.is_fixed() {
        pointers(image, &targets);
    }
    let mut found = Found::default();
    for part in all {
        found.loops.extend(part.loops);
        found.looks.extend(part.looks);
        found.frame_pointer.extend(part.frame_pointer);
        found.frame.extend(part.frame);
        found.passes.extend(part.passes);
        found.unwinding.extend(part.unwinding);
        found.moves.extend(part.moves);
        found.parts.extend(part.parts);
        found.backs.extend(part.backs);
    }
    for (part, start) in found.backs {
        if found.parts.contains(&(start, part)) {
            found.loops.insert(start);
        }
    }
    let copying = with_callers(image, described, found.moves);
    pass_on(&mut found.frame_pointer, found.passes);
    found.frame_pointer.extend(found.frame);
    Flow {
        targets,
        loops: found.loops,
        looks: found.looks,
        frame_pointer: found.frame_pointer,
        unwinding: found.unwinding,
        copying,
    }
}

/// Adds to some functions their callers, and the functions that end with a jump to them.
fn with_callers(
    image: &Image<'_>,
    described: &[Described],
    functions: HashSet<u64>,
) -> HashSet<u64> {
    if functions.is_empty() {
        return functions;
    }
    let calls = |function: &&Described| {
        let bytes = image.bytes(function.start, function.size);
        let mut decoder = Decoder::with_ip(
            64,
            bytes.unwrap_or_default(),
            function.start,
            DecoderOptions::NONE,
        );
        decoder.iter().any(|instruction| {
            is_near_branch(&instruction) && functions.contains(&instruction.near_branch_target())
        })
    };
    let callers = described.iter().filter(calls).map(|caller| caller.start);
    callers.chain(functions.iter().copied()).collect()
}

/// Returns whether an instruction adds a register to the stack pointer.
///
/// Compilers make room with subtractions, and give it back with numbers or saved values. Code that adds a computed
/// distance goes on with another stack.
fn moves_stack(instruction: &Instruction) -> bool {
    matches!(instruction.code(), Code::Add_rm64_r64 | Code::Add_r64_rm64)
        && instruction.op0_register() == Register::RSP
        && instruction.op1_kind() == OpKind::Register
}

/// Returns whether some bytes of code may be an instruction that adds a register to the stack pointer.
fn may_move_stack(code: &[u8]) -> bool {
    memchr::memchr2_iter(0x01, 0x03, code).any(|at| {
        let before = at.checked_sub(1).and_then(|at| code.get(at));
        match (before, code.get(at), code.get(at + 1)) {
            (Some(0x48 | 0x4c), Some(0x01), Some(operand)) => operand & 0xc7 == 0xc4,
            (Some(0x48 | 0x49), Some(0x03), Some(operand)) => operand & 0xf8 == 0xe0,
            _ => false,
        }
    })
}

/// Adds the functions that pass their caller's frame pointer on to one of these functions. The callee uses or changes
/// the caller's value then.
///
/// Each pass is the address of the callee and the address of the calling function.
fn pass_on(functions: &mut HashSet<u64>, mut passes: Vec<(u64, u64)>) {
    let mut open: Vec<u64> = functions.iter().copied().collect();
    if !open.is_empty() {
        passes.sort_unstable();
    }
    while let Some(callee) = open.pop() {
        let first = passes.partition_point(|(called, _)| *called < callee);
        let of_callee = passes.iter().skip(first);
        for (_, caller) in of_callee.take_while(|(called, _)| *called == callee) {
            if functions.insert(*caller) {
                open.push(*caller);
            }
        }
    }
}

/// The findings in some of the functions, as in [`Flow`].
#[derive(Default)]
struct Found {
    loops: HashSet<u64>,
    looks: HashSet<u64>,
    frame_pointer: HashSet<u64>,
    /// Functions that look at their caller's frame pointer where they have saved it.
    frame: HashSet<u64>,
    /// Branches and calls while the frame pointer is as the caller left it: the target, and the function.
    passes: Vec<(u64, u64)>,
    unwinding: HashSet<u64>,
    /// Functions that add a register to the stack pointer.
    moves: HashSet<u64>,
    /// Pairs of a function and a part of another function to which it branches.
    parts: HashSet<(u64, u64)>,
    /// Pairs of a part of a function and the function to whose start it branches.
    backs: Vec<(u64, u64)>,
}

struct Finder<'s, 'a> {
    image: &'s Image<'a>,
    described: &'s [Described],
    unwinders: &'s HashSet<u64>,
    targets: &'s Marks,
    found: Found,
    /// Addresses that a function has named so far, by the number of the register that holds them.
    named: [Vec<u64>; 16],
    /// Addresses of the tables of distances in a function.
    tables: Vec<u64>,
}

impl Finder<'_, '_> {
    fn function(&mut self, function: &Described, stretches: &[Stretch]) {
        let Some(bytes) = self.image.bytes(function.start, function.size) else {
            return;
        };
        let mut decoder = Decoder::with_ip(64, bytes, function.start, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        let mut stretches = stretches.iter().peekable();
        self.named.iter_mut().for_each(Vec::clear);
        self.tables.clear();
        let is_unwinder = self.unwinders.contains(&function.start);
        let mut watch = Watch::default();
        while decoder.can_decode() {
            let before = instruction;
            decoder.decode_out(&mut instruction);
            while stretches
                .next_if(|stretch| stretch.end <= instruction.ip())
                .is_some()
            {}
            let slot = stretches.peek().map_or(Slot::Unknown, |s| s.slot);
            watch.see(&instruction);
            if function.entry && looks(&instruction, slot) {
                self.found.looks.insert(function.start);
            }
            if function.entry && looks_at_saved(&instruction, &before, slot) {
                self.found.frame.insert(function.start);
            }
            if moves_stack(&instruction) {
                self.found.moves.insert(function.start);
            }
            if is_near_branch(&instruction) {
                let target = instruction.near_branch_target();
                if function.entry && watch.is_untouched() && !function.contains(target) {
                    self.found.passes.push((target, function.start));
                }
                if instruction.flow_control() == FlowControl::Call {
                    self.targets.set(target);
                    if is_unwinder {
                        self.found.unwinding.insert(target);
                    }
                } else {
                    self.branch(function, target);
                }
            } else if instruction.is_ip_rel_memory_operand() {
                let address = instruction.ip_rel_memory_address();
                // The address is a function's (also of this one), or the label of a computed jump.
                self.targets.set(address);
                if let Some(named) = self.named(instruction.op0_register()) {
                    named.push(address);
                }
            } else if instruction.code() == Code::Movsxd_r64_rm32
                && instruction.memory_index_scale() == 4
            {
                // The instruction reads a distance from a table.
                let base = instruction.memory_base();
                let of_base = self.named(base).map(std::mem::take);
                self.tables.extend(of_base.unwrap_or_default());
            } else if instruction.flow_control() == FlowControl::IndirectBranch
                && instruction.op0_kind() == OpKind::Memory
                && instruction.memory_base() == Register::None
            {
                // The jump reads a table of addresses, in code for one fixed place.
                self.addresses(function, instruction.memory_displacement64());
            }
        }
        if function.entry && watch.is_odd && uses_callers(self.image, function) {
            self.found.frame_pointer.insert(function.start);
        }
        let mut tables = std::mem::take(&mut self.tables);
        tables.sort_unstable();
        tables.dedup();
        for table in &tables {
            self.distances(function, *table);
        }
        self.tables = tables;
    }

    /// Returns the addresses that were put in a register.
    fn named(&mut self, register: Register) -> Option<&mut Vec<u64>> {
        let number = register.is_gpr64().then(|| register.number());
        number.and_then(|number| self.named.get_mut(number))
    }

    /// Takes in a branch of a function, or of a part of one.
    fn branch(&mut self, function: &Described, target: u64) {
        self.go_on(function, target);
        if function.contains(target) {
            return;
        }
        let Some(other) = around(self.described, target) else {
            return;
        };
        if !function.entry && is_start(self.image, other, target) {
            self.found.backs.push((function.start, other.start));
        }
        if !other.entry {
            self.found.parts.insert((function.start, other.start));
        }
    }

    /// Takes in that a function may go on at an address.
    fn go_on(&mut self, function: &Described, target: u64) {
        if is_start(self.image, function, target) {
            self.found.loops.insert(function.start);
        } else {
            self.targets.set(target);
        }
    }

    /// Looks at a table of distances from itself, as compilers make for `switch`.
    ///
    /// The table ends before the first word that leads elsewhere than into the function and its parts.
    fn distances(&mut self, function: &Described, table: u64) {
        for case in 0..MOST_CASES {
            let Some(&[a, b, c, d]) = self.image.bytes(table.wrapping_add(4 * case), 4) else {
                return;
            };
            let distance = i32::from_le_bytes([a, b, c, d]);
            let target = table.wrapping_add_signed(i64::from(distance));
            if !function.contains(target) && around(self.described, target).is_none_or(|f| f.entry)
            {
                return;
            }
            self.go_on(function, target);
        }
    }

    /// Looks at a table of addresses, which ends as in [`Finder::distances`].
    fn addresses(&mut self, function: &Described, table: u64) {
        for case in 0..MOST_CASES {
            let word = self.image.bytes(table.wrapping_add(8 * case), 8);
            let Some(target) =
                word.and_then(|word| Some(u64::from_le_bytes(word.try_into().ok()?)))
            else {
                return;
            };
            if !function.contains(target) && around(self.described, target).is_none_or(|f| f.entry)
            {
                return;
            }
            self.go_on(function, target);
        }
    }
}

/// Looks at code that no unwind table describes: it may branch into functions.
fn gaps(image: &Image<'_>, described: &[Described], targets: &Marks) {
    let mut at = 0;
    for segment in image.segments.iter().filter(|s| s.executable) {
        let end = segment.address.saturating_add(segment.file_size);
        at = at.max(segment.address);
        let inside = described.iter().filter(|f| f.start < end);
        for (from, to) in inside
            .map(|function| (function.start, function.end()))
            .chain([(end, end)])
        {
            if from > at {
                gap(image, at, from, targets);
            }
            at = at.max(to);
        }
    }
}

fn gap(image: &Image<'_>, from: u64, to: u64, targets: &Marks) {
    let Some(bytes) = image.bytes(from, to - from) else {
        return;
    };
    let mut decoder = Decoder::with_ip(64, bytes, from, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        if is_near_branch(&instruction) {
            targets.set(instruction.near_branch_target());
        }
    }
}

/// Looks at the data of a program for one fixed place: its words may be pointers to code.
fn pointers(image: &Image<'_>, targets: &Marks) {
    for segment in image.segments.iter().filter(|s| !s.executable) {
        let bytes = image.bytes(segment.address, segment.file_size);
        let (words, _) = bytes.unwrap_or_default().as_chunks::<8>();
        for word in words {
            targets.set(u64::from_le_bytes(*word));
        }
    }
}

fn is_near_branch(instruction: &Instruction) -> bool {
    matches!(
        instruction.op0_kind(),
        OpKind::NearBranch64 | OpKind::NearBranch32 | OpKind::NearBranch16
    )
}

/// Returns whether an address is that of a function's first instruction.
fn is_start(image: &Image<'_>, function: &Described, address: u64) -> bool {
    if address == function.start {
        return true;
    }
    let start = image.bytes(function.start, 4);
    address == function.start + start.map_or(0, landing) as u64
}

/// Returns whether an instruction uses the place of the return address, other than to return.
pub fn looks(instruction: &Instruction, slot: Slot) -> bool {
    let (register, distance) = match slot {
        Slot::AboveStackPointer(distance) => (Register::RSP, distance),
        Slot::AboveFramePointer(distance) => (Register::RBP, distance),
        Slot::Unknown => return false,
    };
    let pops = matches!(instruction.code(), Code::Pop_r64 | Code::Pop_rm64);
    if pops && slot == Slot::AboveStackPointer(0) {
        return true;
    }
    // Nops have operands, too. Hand-written code computes the address of the place for its frame pointer. An
    // instruction that changes nothing with the bus locked is a fence.
    let is_fence =
        instruction.has_lock_prefix() && instruction.op1_kind() == OpKind::Immediate8to64;
    let is_used = !is_fence
        && !matches!(
            instruction.code(),
            Code::Nop_rm16 | Code::Nop_rm32 | Code::Nop_rm64 | Code::Lea_r64_m
        );
    is_used
        && instruction.memory_base() == register
        && instruction.memory_index() == Register::None
        && instruction.op_kinds().any(|kind| kind == OpKind::Memory)
        && instruction.memory_displacement64() == distance.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::code_asm::{CodeAssembler, qword_ptr, r10, rax, rbp, rsp};

    /// Returns whether the instruction that `assemble` makes looks at the return address where it lies at `slot`.
    fn looks_so(slot: Slot, assemble: impl FnOnce(&mut CodeAssembler)) -> bool {
        let mut assembler = CodeAssembler::new(64).unwrap();
        assemble(&mut assembler);
        let bytes = assembler.assemble(0x1000).unwrap();
        looks(&Decoder::with_ip(64, &bytes, 0x1000, 0).decode(), slot)
    }

    #[test]
    fn looks_at_return_addresses_are_seen() {
        use Slot::{AboveFramePointer, AboveStackPointer};
        let load = |a: &mut CodeAssembler| a.mov(rax, qword_ptr(rsp + 24)).unwrap();
        assert!(looks_so(AboveStackPointer(24), load));
        assert!(!looks_so(AboveStackPointer(32), load));
        assert!(!looks_so(AboveFramePointer(24), load));
        let store = |a: &mut CodeAssembler| a.mov(qword_ptr(rbp + 8), rax).unwrap();
        assert!(looks_so(AboveFramePointer(8), store));
        assert!(!looks_so(AboveFramePointer(16), store));
        let pop = |a: &mut CodeAssembler| a.pop(r10).unwrap();
        assert!(looks_so(AboveStackPointer(0), pop));
        assert!(!looks_so(AboveStackPointer(8), pop));
        let fence = |a: &mut CodeAssembler| a.lock().or(qword_ptr(rsp), 0).unwrap();
        assert!(!looks_so(AboveStackPointer(0), fence));
        let back = |a: &mut CodeAssembler| a.ret().unwrap();
        assert!(!looks_so(AboveStackPointer(0), back));
    }
}
