//! Unwind tables of pools: unwinders and debuggers see through thunks and hooks as through any function.
//!
//! While a traced function runs, the place of its return address (`S`) holds an address in its thunk. The thunk's frame
//! says where the real one is: an expression looks for it in the shadow stacks of all threads, in the entry whose slot is
//! `S`. Slots go down from a stack's outermost entry to its innermost one, so that few are looked at; only where signal
//! handlers have stacks of their own this is not so, and if the entry is not found, all are looked at. Entries of functions
//! that were jumped to from others' ends (tail calls) are passed over: they share the slot of the first one, which has the
//! return address that matters.
//!
//! Unwinders tell frames apart by their addresses (CFA). The function's own is `S + 8`, so the thunk's, which takes no
//! room on the stack, has to be another: `S + 9`, and the stack pointer is restored as one less.
//!
//! The caller's frame pointer is found in the same entry. Where the frame pointer surely leads to the entry, in the hook and
//! the thunk before the function is called, it is taken from there.

use super::hot::RETURN;
use dioptra_tracelayout::message::RuntimeAddresses;
use dioptra_tracelayout::message::thread::{
    ENTRY_FLAGS, ENTRY_FRAME, ENTRY_RETURN, ENTRY_SIZE, ENTRY_SLOT, ENTRY_TAIL, RECORD_BOTTOM,
    RECORD_NEXT, RECORD_TOP,
};

const ADVANCE: u8 = 0x40;
const ADVANCE_4: u8 = 0x04;
const OFFSET_RA: u8 = 0x80 | 16;
const REMEMBER_STATE: u8 = 0x0a;
const RESTORE_STATE: u8 = 0x0b;
const DEF_CFA: u8 = 0x0c;
const DEF_CFA_OFFSET: u8 = 0x0e;
const VAL_OFFSET: u8 = 0x14;
const VAL_EXPRESSION: u8 = 0x16;
const SAME_VALUE: u8 = 0x08;
const EXPRESSION: u8 = 0x10;
const RBP: u8 = 6;
const RSP: u8 = 7;
const RA: u8 = 16;

const ADDR: u8 = 0x03;
const DEREF: u8 = 0x06;
const DUP: u8 = 0x12;
const DROP: u8 = 0x13;
const OVER: u8 = 0x14;
const PICK: u8 = 0x15;
const SWAP: u8 = 0x16;
const ROT: u8 = 0x17;
const AND: u8 = 0x1a;
const DIV: u8 = 0x1b;
const MINUS: u8 = 0x1c;
const MUL: u8 = 0x1e;
const PLUS: u8 = 0x22;
const PLUS_UCONST: u8 = 0x23;
const BRA: u8 = 0x28;
const EQ: u8 = 0x29;
const GE: u8 = 0x2a;
const GT: u8 = 0x2b;
const LT: u8 = 0x2d;
const SKIP: u8 = 0x2f;
const LIT0: u8 = 0x30;
const CONST1U: u8 = 0x08;
const CONST1S: u8 = 0x09;
const BREG_RBP: u8 = 0x70 + RBP;

/// The caller's frame pointer is where the frame pointer leads to.
const FRAMED: [u8; 5] = [EXPRESSION, RBP, 2, BREG_RBP, ENTRY_FRAME as u8];

/// A DWARF expression under construction, with jumps to places that come later or came before.
#[derive(Default)]
struct Expression {
    bytes: Vec<u8>,
}

impl Expression {
    fn op(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend(bytes);
        self
    }

    /// The word at an offset from the address on top of the stack, in its place.
    fn load(&mut self, offset: i64) -> &mut Self {
        // Offsets in records and entries are below 128.
        self.op(&[PLUS_UCONST, offset as u8, DEREF])
    }

    /// A jump whose target is not known yet.
    fn forward(&mut self, op: u8) -> usize {
        self.op(&[op, 0, 0]);
        self.bytes.len()
    }

    fn land(&mut self, from: usize) {
        let distance = (self.bytes.len() - from) as i16;
        self.bytes[from - 2..from].copy_from_slice(&distance.to_le_bytes());
    }

    fn back(&mut self, op: u8, to: usize) {
        let distance = to as i64 - (self.bytes.len() + 3) as i64;
        let [a, b] = (distance as i16).to_le_bytes();
        self.op(&[op, a, b]);
    }
}

/// What of a thunk's caller is looked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    ReturnAddress,
    FramePointer,
}

/// From the thunk's CFA to its return address, or the caller's frame pointer.
fn caller(threads: u64, wanted: Wanted) -> Vec<u8> {
    let mut e = Expression::default();
    // libgcc's `pick` does not reach the lowest element: the slot is there twice.
    e.op(&[LIT0 + 9, MINUS, DUP]);
    // slot slot
    let found = [
        guess(&mut e, threads),
        search(&mut e, threads),
        walk(&mut e, threads),
    ];
    // No thread knows it: the exit hook has put both back.
    match wanted {
        Wanted::ReturnAddress => e.op(&[DEREF]),
        Wanted::FramePointer => e.op(&[BREG_RBP, 0]),
    };
    let not_found = e.forward(SKIP);
    for found in found {
        e.land(found);
    }
    // ... entry
    e.load(match wanted {
        Wanted::ReturnAddress => ENTRY_RETURN,
        Wanted::FramePointer => ENTRY_FRAME,
    });
    e.land(not_found);
    e.bytes
}

/// Begins a loop over the threads' records: where to go back to with the next record on top, and what is left to land where
/// there is none.
fn each_thread(e: &mut Expression, threads: u64) -> (usize, usize) {
    e.op(&[ADDR]).op(&threads.to_le_bytes()).op(&[DEREF]);
    // slot slot thread
    let thread = e.bytes.len();
    e.op(&[DUP]);
    let is_thread = e.forward(BRA);
    e.op(&[DROP]);
    let end = e.forward(SKIP);
    e.land(is_thread);
    (thread, end)
}

/// Looks where the frame pointer leads, as a rule: to the entry, if it leads to a shadow stack at all. Jumps with it on top
/// of the stack if it is the wanted one. Goes on with the stack as it was.
fn guess(e: &mut Expression, threads: u64) -> usize {
    let (thread, end) = each_thread(e, threads);
    e.op(&[DUP, BREG_RBP, 0, LT]);
    e.op(&[OVER]).load(RECORD_TOP).op(&[BREG_RBP, 0, GE, AND]);
    let is_inside = e.forward(BRA);
    let next = e.bytes.len();
    e.load(RECORD_NEXT);
    e.back(SKIP, thread);
    e.land(is_inside);
    // slot slot thread
    e.op(&[BREG_RBP, ENTRY_SLOT as u8, DEREF, PICK, 2, EQ]);
    let is_here = e.forward(BRA);
    e.back(SKIP, next);
    e.land(is_here);
    e.op(&[
        BREG_RBP,
        ENTRY_FLAGS as u8,
        DEREF,
        LIT0 + ENTRY_TAIL as u8,
        AND,
    ]);
    e.back(BRA, next);
    e.op(&[BREG_RBP, 0]);
    let found = e.forward(SKIP);
    e.land(end);
    found
}

/// Searches each shadow stack for the outermost entry whose slot is not above the wanted one, by halves; jumps with the
/// entry on top of the stack if that is it. Goes on with the stack as it was.
fn search(e: &mut Expression, threads: u64) -> usize {
    let (thread, end) = each_thread(e, threads);
    e.op(&[DUP, PLUS_UCONST]).op(&[
        RECORD_BOTTOM as u8 & 0x7f | 0x80,
        (RECORD_BOTTOM >> 7) as u8,
    ]);
    e.op(&[OVER]).load(RECORD_TOP);
    // slot slot thread low high: the slot of low is above, that of high is not, or there is no entry.
    e.op(&[OVER, OVER, EQ]);
    let is_empty = e.forward(BRA);
    e.op(&[DUP]).load(ENTRY_SLOT).op(&[PICK, 4, GT]);
    let is_above = e.forward(BRA);
    let halves = e.bytes.len();
    e.op(&[OVER, OVER, SWAP, MINUS]);
    // ... low high distance
    e.op(&[DUP, CONST1U, ENTRY_SIZE as u8, GT]);
    let is_wide = e.forward(BRA);
    e.op(&[DROP, DUP]).load(ENTRY_SLOT).op(&[PICK, 4, EQ]);
    let found = e.forward(BRA);
    e.land(is_empty);
    e.land(is_above);
    e.op(&[DROP, DROP]).load(RECORD_NEXT);
    e.back(SKIP, thread);
    e.land(is_wide);
    e.op(&[CONST1U, 2 * ENTRY_SIZE as u8, DIV]);
    e.op(&[CONST1U, ENTRY_SIZE as u8, MUL]);
    e.op(&[PICK, 2, PLUS, DUP])
        .load(ENTRY_SLOT)
        .op(&[PICK, 5, GT]);
    // ... low high middle
    let middle_is_above = e.forward(BRA);
    e.op(&[SWAP, DROP]);
    e.back(SKIP, halves);
    e.land(middle_is_above);
    e.op(&[ROT, SWAP, DROP]);
    e.back(SKIP, halves);
    e.land(end);
    found
}

/// Looks at all entries of all threads; jumps with the entry on top of the stack if it is found. Goes on with the stack as
/// it was.
fn walk(e: &mut Expression, threads: u64) -> usize {
    let (thread, end) = each_thread(e, threads);
    e.op(&[DUP]).load(RECORD_TOP);
    // slot slot thread entry
    let entry = e.bytes.len();
    e.op(&[DUP]).load(ENTRY_SLOT).op(&[PICK, 3, EQ]);
    let same = e.forward(BRA);
    let other = e.bytes.len();
    e.op(&[DUP]).load(ENTRY_SLOT).op(&[CONST1S, 0xff, EQ]);
    let bottom = e.forward(BRA);
    e.op(&[CONST1U, ENTRY_SIZE as u8, MINUS]);
    e.back(SKIP, entry);
    e.land(same);
    // The flags are the upper half of the function's word.
    e.op(&[DUP])
        .load(ENTRY_FLAGS)
        .op(&[LIT0 + ENTRY_TAIL as u8, AND]);
    e.back(BRA, other);
    let found = e.forward(SKIP);
    e.land(bottom);
    e.op(&[DROP]).load(RECORD_NEXT);
    e.back(SKIP, thread);
    e.land(end);
    found
}

/// The tables of a pool.
#[derive(Debug)]
pub struct UnwindTables {
    /// For `.eh_frame`, with the terminator.
    pub frames: Vec<u8>,
    /// For `.eh_frame_hdr`, with a search table.
    pub header: Vec<u8>,
}

/// What is described.
#[derive(Clone, Copy, Debug)]
pub struct Layout<'a> {
    /// Where the frames will lie.
    pub frames: u64,
    /// Where the header will lie, near them.
    pub header: u64,
    /// The hooks: where each begins and ends, and how many bytes before its end the registers are taken from the stack.
    pub hooks: &'a [Hook],
    /// The first thunk's address, and their number.
    pub thunks: (u64, u64),
    /// Displaced code: from, to. It is described as if it were at a function's first instruction.
    pub displaced: (u64, u64),
    /// Of the runtime.
    pub runtime: RuntimeAddresses,
}

/// A hook's code.
#[derive(Clone, Copy, Debug)]
pub struct Hook {
    /// Its first byte.
    pub start: u64,
    /// The first byte behind it.
    pub end: u64,
    /// Where it takes the registers from the stack: `pop r11; pop rdx; pop rax; ret`.
    pub pops: u64,
    /// From, around these, to: here the frame pointer leads to the caller's.
    pub framed: Option<(u64, u64)>,
}

struct Frames {
    bytes: Vec<u8>,
    address: u64,
    table: Vec<(u64, u64)>,
}

impl Frames {
    fn entry(&mut self, cie: Option<usize>, body: &[u8]) -> usize {
        let start = self.bytes.len();
        let size = (4 + body.len()).next_multiple_of(8) + 4;
        // Entries begin at multiples of 4; with their length word they take a multiple of 4.
        let length = (size - 4) as u32;
        self.bytes.extend(length.to_le_bytes());
        let pointer = cie.map_or(0, |cie| (start + 4 - cie) as u32);
        self.bytes.extend(pointer.to_le_bytes());
        self.bytes.extend(body);
        self.bytes.resize(start + size, 0);
        start
    }

    fn function(&mut self, cie: usize, start: u64, size: u64, instructions: &[u8]) {
        let at = self.bytes.len() as u64 + 8;
        let mut body = Vec::with_capacity(16 + instructions.len());
        body.extend((start.wrapping_sub(self.address + at) as u32).to_le_bytes());
        body.extend((size as u32).to_le_bytes());
        body.push(0);
        body.extend(instructions);
        let entry = self.entry(Some(cie), &body) as u64;
        self.table.push((start, self.address + entry));
    }
}

/// Describes a pool.
pub fn tables(layout: &Layout<'_>) -> UnwindTables {
    let mut frames = Frames {
        bytes: Vec::new(),
        address: layout.frames,
        table: Vec::new(),
    };
    // Version 1, pointers relative to their place, code in bytes, data in -8, return address in column 16.
    let plain = frames.entry(
        None,
        &[
            1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b, DEF_CFA, RSP, 8, OFFSET_RA, 1,
        ],
    );
    let mut thunk = vec![1, b'z', b'P', b'R', 0, 1, 0x78, 16, 10, 0];
    thunk.extend(layout.runtime.personality.to_le_bytes());
    thunk.extend([0x1b, DEF_CFA, RSP, 1]);
    for (register, wanted) in [(RA, Wanted::ReturnAddress), (RBP, Wanted::FramePointer)] {
        let expression = caller(layout.runtime.threads, wanted);
        thunk.extend([VAL_EXPRESSION, register]);
        thunk.extend([
            expression.len() as u8 & 0x7f | 0x80,
            (expression.len() >> 7) as u8,
        ]);
        thunk.extend(&expression);
    }
    thunk.extend([VAL_EXPRESSION, RSP, 2, LIT0 + 1, MINUS]);
    let thunk = frames.entry(None, &thunk);

    for hook in layout.hooks {
        let mut pops = (hook.pops - hook.start - 4) as u32;
        let mut instructions = vec![
            ADVANCE | 1,
            DEF_CFA_OFFSET,
            16,
            ADVANCE | 1,
            DEF_CFA_OFFSET,
            24,
            ADVANCE | 2,
            DEF_CFA_OFFSET,
            32,
        ];
        let advance = |instructions: &mut Vec<u8>, by: u32| {
            instructions.push(ADVANCE_4);
            instructions.extend(by.to_le_bytes());
        };
        if let Some((from, _)) = hook.framed {
            let before = (from - hook.start - 4) as u32;
            advance(&mut instructions, before);
            instructions.extend(FRAMED);
            pops -= before;
        }
        advance(&mut instructions, pops);
        instructions.extend([
            ADVANCE | 2,
            DEF_CFA_OFFSET,
            24,
            ADVANCE | 1,
            DEF_CFA_OFFSET,
            16,
            ADVANCE | 1,
            DEF_CFA_OFFSET,
            8,
            ADVANCE | RETURN.len() as u8,
            DEF_CFA_OFFSET,
            32,
        ]);
        if let Some((_, to)) = hook.framed {
            advance(
                &mut instructions,
                (to - hook.pops - 4) as u32 - RETURN.len() as u32,
            );
            instructions.extend([SAME_VALUE, RBP]);
        }
        frames.function(plain, hook.start, hook.end - hook.start, &instructions);
    }
    let mut thunk_rows = vec![
        // Before the call of the body the return address is on the stack. (libgcc's `restore` does not restore what the
        // common entry says.)
        REMEMBER_STATE,
        DEF_CFA,
        RSP,
        8,
        OFFSET_RA,
        1,
        VAL_OFFSET,
        RSP,
        0,
        SAME_VALUE,
        RBP,
        ADVANCE | 5,
        DEF_CFA_OFFSET,
        16,
        // The hook has been here.
        ADVANCE | 5,
    ];
    thunk_rows.extend(FRAMED);
    thunk_rows.extend([
        ADVANCE | 5,
        DEF_CFA_OFFSET,
        0,
        // In it, as the common entry says.
        ADVANCE | 1,
        RESTORE_STATE,
        DEF_CFA,
        RSP,
        1,
        // In the hook of the exit the return address moves back, but the shadow stack knows it until then.
        ADVANCE | 9,
        DEF_CFA_OFFSET,
        9,
        ADVANCE | 5,
        DEF_CFA_OFFSET,
        8,
        OFFSET_RA,
        1,
        VAL_OFFSET,
        RSP,
        0,
        SAME_VALUE,
        RBP,
    ]);
    for number in 0..layout.thunks.1 {
        let start = layout.thunks.0 + number * super::thunk::THUNK_SIZE;
        frames.function(thunk, start, super::thunk::THUNK_SIZE, &thunk_rows);
    }
    if layout.displaced.1 > layout.displaced.0 {
        let size = layout.displaced.1 - layout.displaced.0;
        frames.function(plain, layout.displaced.0, size, &[]);
    }
    frames.bytes.extend([0; 4]);

    let mut header = vec![1, 0x1b, 0x03, 0x3b];
    header.extend((layout.frames.wrapping_sub(layout.header + 4) as u32).to_le_bytes());
    header.extend((frames.table.len() as u32).to_le_bytes());
    frames.table.sort_unstable();
    for (start, entry) in &frames.table {
        header.extend((start.wrapping_sub(layout.header) as u32).to_le_bytes());
        header.extend((entry.wrapping_sub(layout.header) as u32).to_le_bytes());
    }
    UnwindTables {
        frames: frames.bytes,
        header,
    }
}
