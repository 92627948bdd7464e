//! Unwind tables of pools: unwinders and debuggers see through thunks and hooks as through any function.
//!
//! While a traced function runs, its return address leads into its thunk. The thunk's frame gives an expression that
//! finds the real one ([`caller`]): it searches the shadow stacks of all threads for the entry whose slot is that of the
//! call (`S`). Slots go down from a stack's outermost entry to its innermost one, so the search looks at few entries.
//! This order fails where signal handlers have stacks of their own. So if the search finds no entry, the expression
//! looks at all entries.
//!
//! Entries of functions that were entered by a jump from another function's end (tail calls) are passed over. They
//! share the slot of the first function, whose entry has the return address that matters.
//!
//! Unwinders tell frames apart by their addresses (CFA). The function's CFA is `S + 8`. The thunk's frame takes no room
//! on the stack, but its CFA has to be another one: `S + 9`. The stack pointer is restored as one less.

use super::hooks::Hook;
use crate::arch::Thunks;
use dioptra_tracelayout::message::RuntimeAddresses;
use dioptra_tracelayout::message::thread::{
    ENTRY_FLAGS, ENTRY_FRAME, ENTRY_RETURN, ENTRY_SIZE, ENTRY_SLOT, ENTRY_TAIL, RECORD_FLOOR,
    RECORD_NEXT, RECORD_TOP, SPAN_END, SPAN_NEXT, SPAN_START, THUNK_SIZE,
};
use gimli::write::{
    Address, CallFrameInstruction as Row, CommonInformationEntry, EhFrame, EndianVec, Expression,
    FrameDescriptionEntry, FrameTable,
};
use gimli::{
    DW_OP_and as AND, DW_OP_div as DIV, DW_OP_drop as DROP, DW_OP_dup as DUP, DW_OP_eq as EQ,
    DW_OP_gt as GT, DW_OP_le as LE, DW_OP_minus as MINUS, DW_OP_mul as MUL, DW_OP_over as OVER,
    DW_OP_plus as PLUS, DW_OP_rot as ROT, DW_OP_swap as SWAP, DwOp, Encoding, Format, LittleEndian,
    Register,
};
use object::{Object, ObjectSymbol};

/// Returns whether a module is or contains LLVM's unwinder.
///
/// That unwinder finds the frame that handles an exception again by its stack pointer. A thunk's frame has the same
/// stack pointer as its caller's. The unwinder ends the program if the thunk's frame has a personality routine, so
/// thunks must not have one.
///
/// `data` holds the bytes of the module's file. If it is empty, only the names of the file and its symbols decide.
pub fn finds_frames_by_stack_pointer<'d>(
    file_name: &str,
    file: &impl Object<'d>,
    data: &[u8],
) -> bool {
    let has_step = || {
        let is_step = |name: &str| matches!(name, "unw_step" | "__unw_step");
        file.dynamic_symbols()
            .any(|symbol| !symbol.is_undefined() && symbol.name().is_ok_and(is_step))
    };
    file_name.starts_with("libunwind.so") && has_step()
        || memchr::memmem::find(data, b"libunwind: %s - %s").is_some()
}

/// The value of a thunk's caller that an expression finds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum CallerValue {
    /// The address to which the call returns.
    ReturnAddress,
    /// The caller's frame pointer.
    FramePointer,
}

/// Returns an expression that finds a thunk's return address, or the caller's frame pointer.
///
/// The expression begins with the thunk's CFA, which is 9 above the slot. `otherwise` computes the value from the slot
/// if no thread knows the call. `frame_pointer` is the register of the frame pointer, where that leads to entries.
pub fn caller(
    runtime: &RuntimeAddresses,
    wanted: CallerValue,
    frame_pointer: Option<Register>,
    otherwise: impl FnOnce(&mut Expression),
) -> Expression {
    let mut e = Expression::new();
    // The slot is on the stack twice, because libgcc's `pick` does not reach the lowest element.
    e.op_constu(9);
    ops(&mut e, &[MINUS, DUP]);
    // slot slot
    let guessed = frame_pointer.map(|register| guess(&mut e, runtime.spans, register));
    let found = [
        search(&mut e, runtime.threads),
        walk(&mut e, runtime.threads),
    ];
    otherwise(&mut e);
    let not_found = e.op_skip();
    for found in guessed.into_iter().chain(found) {
        land(&mut e, found);
    }
    // ... entry
    load(
        &mut e,
        match wanted {
            CallerValue::ReturnAddress => ENTRY_RETURN,
            CallerValue::FramePointer => ENTRY_FRAME,
        },
    );
    land(&mut e, not_found);
    e
}

/// Adds operations that have no operands.
fn ops(e: &mut Expression, operations: &[DwOp]) {
    operations.iter().for_each(|operation| e.op(*operation));
}

/// Replaces the address on top of the stack by the word at an offset from it.
fn load(e: &mut Expression, offset: i64) {
    e.op_plus_uconst(offset.cast_unsigned());
    e.op_deref();
}

/// Lets a jump lead here.
fn land(e: &mut Expression, jump: usize) {
    e.set_target(jump, e.next_index());
}

/// Adds a jump to an earlier place.
fn back(e: &mut Expression, to: usize) {
    let jump = e.op_skip();
    e.set_target(jump, to);
}

/// Begins a loop over a list whose head is at an address.
///
/// Returns the position to go back to with the next item on top of the stack, and the jump to land behind the loop.
fn each(e: &mut Expression, head: u64) -> (usize, usize) {
    e.op_addr(Address::Constant(head));
    e.op_deref();
    // slot slot item
    let item = e.next_index();
    e.op(DUP);
    let is_item = e.op_bra();
    e.op(DROP);
    let end = e.op_skip();
    land(e, is_item);
    (item, end)
}

/// Looks at the entry to which the frame pointer leads, if it leads to shadow stack memory at all.
///
/// Returns the jump that is taken, with the entry on top of the stack, if the entry is the wanted one. Otherwise the
/// expression goes on with the stack as it was.
fn guess(e: &mut Expression, spans: u64, frame_pointer: Register) -> usize {
    let (span, end) = each(e, spans);
    e.op(DUP);
    load(e, SPAN_START);
    e.op_breg(frame_pointer, 0);
    ops(e, &[LE, OVER]);
    load(e, SPAN_END);
    e.op_breg(frame_pointer, 0);
    ops(e, &[GT, AND]);
    let is_inside = e.op_bra();
    let next = e.next_index();
    load(e, SPAN_NEXT);
    back(e, span);
    land(e, is_inside);
    // slot slot span
    e.op_breg(frame_pointer, ENTRY_SLOT);
    e.op_deref();
    e.op_pick(2);
    e.op(EQ);
    let is_here = e.op_bra();
    back(e, next);
    land(e, is_here);
    e.op_breg(frame_pointer, 0);
    // slot slot span entry
    // The entry of a tail call has the slot of the function that jumped. The frame pointer saved in it leads to that
    // function's entry, which knows the caller. The lists are no help here: the entry of a tail call does not hold the
    // caller's frame pointer.
    let entry = e.next_index();
    is_tail(e);
    let goes_on = e.op_bra();
    let found = e.op_skip();
    land(e, goes_on);
    load(e, ENTRY_FRAME);
    back(e, entry);
    land(e, end);
    found
}

/// Asks whether the entry on top of the stack, which stays there, is that of a tail call.
fn is_tail(e: &mut Expression) {
    e.op(DUP);
    // The flags are the lower half of the word at this offset.
    load(e, ENTRY_FLAGS);
    e.op_constu(ENTRY_TAIL.into());
    e.op(AND);
}

/// Compares the slot of the entry on top of the stack, which stays there, with the slot so many elements below.
fn compare_slot(e: &mut Expression, below: u8, comparison: DwOp) {
    e.op(DUP);
    load(e, ENTRY_SLOT);
    e.op_pick(below);
    e.op(comparison);
}

/// Searches each shadow stack by halves for the outermost entry whose slot is not above the wanted one.
///
/// Returns the jump that is taken, with the entry on top of the stack, if the slots are equal. Otherwise the expression
/// goes on with the stack as it was.
fn search(e: &mut Expression, threads: u64) -> usize {
    let (thread, end) = each(e, threads);
    e.op(DUP);
    load(e, RECORD_FLOOR);
    e.op(OVER);
    load(e, RECORD_TOP);
    // slot slot thread low high: the slot of low is above the wanted one, the slot of high is not, or there is no
    // entry.
    ops(e, &[OVER, OVER, EQ]);
    let is_empty = e.op_bra();
    compare_slot(e, 4, GT);
    let is_above = e.op_bra();
    let halves = e.next_index();
    ops(e, &[OVER, OVER, SWAP, MINUS]);
    // ... low high distance
    e.op(DUP);
    e.op_constu(ENTRY_SIZE.cast_unsigned());
    e.op(GT);
    let is_wide = e.op_bra();
    e.op(DROP);
    compare_slot(e, 4, EQ);
    let found = e.op_bra();
    land(e, is_empty);
    land(e, is_above);
    ops(e, &[DROP, DROP]);
    load(e, RECORD_NEXT);
    back(e, thread);
    land(e, is_wide);
    e.op_constu(2 * ENTRY_SIZE.cast_unsigned());
    e.op(DIV);
    e.op_constu(ENTRY_SIZE.cast_unsigned());
    e.op(MUL);
    e.op_pick(2);
    e.op(PLUS);
    compare_slot(e, 5, GT);
    // ... low high middle
    let middle_is_above = e.op_bra();
    ops(e, &[SWAP, DROP]);
    back(e, halves);
    land(e, middle_is_above);
    ops(e, &[ROT, SWAP, DROP]);
    back(e, halves);
    land(e, end);
    found
}

/// Looks at all entries of all threads.
///
/// Returns the jump that is taken, with the entry on top of the stack, if the entry is found. Otherwise the expression
/// goes on with the stack as it was.
fn walk(e: &mut Expression, threads: u64) -> usize {
    let (thread, end) = each(e, threads);
    e.op(DUP);
    load(e, RECORD_TOP);
    // slot slot thread entry
    let entry = e.next_index();
    compare_slot(e, 3, EQ);
    let same = e.op_bra();
    let other = e.next_index();
    e.op(DUP);
    load(e, ENTRY_SLOT);
    e.op_consts(-1);
    e.op(EQ);
    let bottom = e.op_bra();
    e.op_constu(ENTRY_SIZE.cast_unsigned());
    e.op(MINUS);
    back(e, entry);
    land(e, same);
    is_tail(e);
    let goes_on = e.op_bra();
    e.set_target(goes_on, other);
    let found = e.op_skip();
    land(e, bottom);
    e.op(DROP);
    load(e, RECORD_NEXT);
    back(e, thread);
    land(e, end);
    found
}

/// The addresses of the parts of a pool that its tables describe.
#[derive(Clone, Copy, Debug)]
pub struct Layout<'a> {
    /// The hooks' code.
    pub hooks: &'a [Hook],
    /// The address of the first thunk, and the number of thunks.
    pub thunks: (u64, u64),
    /// The first address of displaced code, and the first address behind it. The code is described as if it were at a
    /// function's first instruction.
    pub displaced: (u64, u64),
    /// The addresses in the traced process that the tables refer to.
    pub runtime: RuntimeAddresses,
}

/// The unwind tables of a pool.
#[derive(Debug)]
pub struct UnwindTables {
    /// The bytes of `.eh_frame`, with the terminator.
    pub frames: Vec<u8>,
    /// The address of `.eh_frame`.
    address: u64,
    /// The first addresses of the functions, and the offsets of their entries.
    entries: Vec<(u64, u64)>,
}

/// The offset in an entry of the function's first address, which is relative to its own place.
const START: usize = 8;

/// Returns the tables of a pool, whose `.eh_frame` will lie at `address`.
///
/// # Errors
/// If something is too far away, which would be a defect.
pub fn tables<A: Thunks>(
    address: u64,
    layout: &Layout<'_>,
) -> Result<UnwindTables, gimli::write::Error> {
    let entry = |rows: Vec<Row>| {
        let encoding = Encoding {
            format: Format::Dwarf32,
            version: 1,
            address_size: 8,
        };
        let mut entry = CommonInformationEntry::new(encoding, 1, -8, A::RETURN_ADDRESS);
        entry.fde_address_encoding =
            gimli::DwEhPe(gimli::DW_EH_PE_pcrel.0 | gimli::DW_EH_PE_sdata4.0);
        rows.into_iter().for_each(|row| entry.add_instruction(row));
        entry
    };
    let mut rows = vec![Row::Cfa(A::STACK_POINTER, 1)];
    let callers = A::callers(&layout.runtime).into_iter();
    rows.extend(callers.map(|(register, found)| Row::ValExpression(register, found)));
    let mut less = Expression::new();
    less.op_constu(1);
    less.op(MINUS);
    rows.push(Row::ValExpression(A::STACK_POINTER, less));
    let mut thunk = entry(rows);
    let personality = layout.runtime.personality;
    thunk.personality =
        (personality != 0).then_some((gimli::DW_EH_PE_absptr, Address::Constant(personality)));

    let mut table = FrameTable::default();
    let plain = table.add_cie(entry(A::first_rows()));
    let thunk = table.add_cie(thunk);
    let mut starts = Vec::new();
    let mut function = |cie, (from, to): (u64, u64), rows: Vec<(u32, Row)>| {
        // The writer takes the section's own address for 0.
        let start = Address::Constant(from.wrapping_sub(address));
        let mut function = FrameDescriptionEntry::new(start, (to - from) as u32);
        for (at, row) in rows {
            function.add_instruction(at, row);
        }
        table.add_fde(cie, function);
        starts.push(from);
    };
    for hook in layout.hooks {
        function(plain, (hook.start, hook.end), hook.rows.clone());
    }
    if layout.displaced.1 > layout.displaced.0 {
        function(plain, layout.displaced, Vec::new());
    }
    let (first, count) = layout.thunks;
    let size = THUNK_SIZE as u64;
    if count > 0 {
        function(thunk, (first, first + size), A::thunk_rows());
    }
    let mut section = EhFrame(EndianVec::new(LittleEndian));
    table.write_eh_frame(&mut section)?;
    let mut frames = section.0.into_vec();

    let word = |frames: &[u8], at: usize| {
        let word = frames.get(at..).and_then(|rest| rest.first_chunk());
        word.map_or(0, |word| u32::from_le_bytes(*word))
    };
    let mut entries = Vec::with_capacity(starts.len() + count as usize);
    let mut starts = starts.into_iter();
    let mut at = 0;
    while at < frames.len() {
        // Common entries have a 0 here.
        if word(&frames, at + 4) != 0 {
            entries.extend(starts.next().map(|start| (start, at as u64)));
        }
        at += 4 + word(&frames, at) as usize;
    }
    // All thunks have the same rows, and there may be many. So the writer makes the first entry, and this code the
    // others: they differ by the distances to the common entry and to the thunk.
    if let Some((_, at)) = entries.last().copied().filter(|_| count > 0) {
        let mut next = frames.split_off(at as usize);
        let length = next.len() as u32;
        frames.reserve(next.len() * count as usize + 4);
        entries.pop();
        for number in 0..count {
            entries.push((first + number * size, frames.len() as u64));
            frames.extend(&next);
            for (place, more) in [(4, length), (START, (size as u32).wrapping_sub(length))] {
                let moved = word(&next, place).wrapping_add(more);
                next[place..place + 4].copy_from_slice(&moved.to_le_bytes());
            }
        }
    }
    frames.extend([0; 4]);
    Ok(UnwindTables {
        frames,
        address,
        entries,
    })
}

impl UnwindTables {
    /// Returns the bytes of `.eh_frame_hdr` for the address `at`, with a search table. `gimli` does not write this
    /// section.
    pub fn header(&self, at: u64) -> Vec<u8> {
        let relative = |to: u64, from: u64| (to.wrapping_sub(from) as u32).to_le_bytes();
        let mut entries = self.entries.clone();
        entries.sort_unstable();
        let mut header = vec![1, 0x1b, 0x03, 0x3b];
        header.extend(relative(self.address, at + 4));
        header.extend((entries.len() as u32).to_le_bytes());
        for (start, entry) in entries {
            header.extend(relative(start, at));
            header.extend(relative(self.address + entry, at));
        }
        header
    }
}
