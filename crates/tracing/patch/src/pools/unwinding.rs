//! Unwind tables under construction, and the expression that finds return addresses in shadow stacks.

use dioptra_tracelayout::message::RuntimeAddresses;
use dioptra_tracelayout::message::thread::{
    ENTRY_FLAGS, ENTRY_FRAME, ENTRY_RETURN, ENTRY_SIZE, ENTRY_SLOT, ENTRY_TAIL, RECORD_FLOOR,
    RECORD_NEXT, RECORD_TOP, SPAN_END, SPAN_NEXT, SPAN_START,
};

use object::{Object, ObjectSymbol};

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
const GT: u8 = 0x2b;
const LE: u8 = 0x2c;
const SKIP: u8 = 0x2f;
const LIT0: u8 = 0x30;
const CONST1U: u8 = 0x08;
const CONST1S: u8 = 0x09;
/// The unwind tables of a pool.
#[derive(Debug)]
pub struct UnwindTables {
    /// The bytes of `.eh_frame`, with the terminator.
    pub frames: Vec<u8>,
    /// The bytes of `.eh_frame_hdr`, with a search table.
    pub header: Vec<u8>,
}

/// Returns the beginning of the common entry of thunks' frames.
///
/// The entry states the version, pointers relative to their place, units of 1 for code and -8 for data, and the column
/// of the return address. The personality routine is part of the entry if it is not 0
/// ([`finds_frames_by_stack_pointer`]).
pub fn thunks_entry(return_address: u8, personality: u64) -> Vec<u8> {
    if personality == 0 {
        return vec![1, b'z', b'R', 0, 1, 0x78, return_address, 1, 0x1b];
    }
    let mut entry = vec![1, b'z', b'P', b'R', 0, 1, 0x78, return_address, 10, 0];
    entry.extend(personality.to_le_bytes());
    entry.push(0x1b);
    entry
}

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

    /// Replaces the address on top of the stack by the word at an offset from it.
    fn load(&mut self, offset: i64) -> &mut Self {
        // Offsets in records and entries are below 128.
        self.op(&[PLUS_UCONST, offset as u8, DEREF])
    }

    /// Adds a jump whose target is not known yet. Returns the position that `land` needs.
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
/// if no thread knows the call. `frame_pointer` is the operation that reads the frame pointer, where that leads to
/// entries.
pub fn caller(
    runtime: &RuntimeAddresses,
    wanted: CallerValue,
    frame_pointer: Option<u8>,
    otherwise: &[u8],
) -> Vec<u8> {
    let mut e = Expression::default();
    // The slot is on the stack twice, because libgcc's `pick` does not reach the lowest element.
    e.op(&[LIT0 + 9, MINUS, DUP]);
    // slot slot
    let guessed = frame_pointer.map(|register| guess(&mut e, runtime.spans, register));
    let found = [
        search(&mut e, runtime.threads),
        walk(&mut e, runtime.threads),
    ];
    e.op(otherwise);
    let not_found = e.forward(SKIP);
    for found in guessed.into_iter().chain(found) {
        e.land(found);
    }
    // ... entry
    e.load(match wanted {
        CallerValue::ReturnAddress => ENTRY_RETURN,
        CallerValue::FramePointer => ENTRY_FRAME,
    });
    e.land(not_found);
    e.bytes
}

/// Begins a loop over a list whose head is at an address.
///
/// Returns the position to go back to with the next item on top of the stack, and the jump to land behind the loop.
fn each(e: &mut Expression, head: u64) -> (usize, usize) {
    e.op(&[ADDR]).op(&head.to_le_bytes()).op(&[DEREF]);
    // slot slot item
    let item = e.bytes.len();
    e.op(&[DUP]);
    let is_item = e.forward(BRA);
    e.op(&[DROP]);
    let end = e.forward(SKIP);
    e.land(is_item);
    (item, end)
}

/// Looks at the entry to which the frame pointer leads, if it leads to shadow stack memory at all.
///
/// Returns the jump that is taken, with the entry on top of the stack, if the entry is the wanted one. Otherwise the
/// expression goes on with the stack as it was.
fn guess(e: &mut Expression, spans: u64, frame_pointer: u8) -> usize {
    let (span, end) = each(e, spans);
    e.op(&[DUP]).load(SPAN_START);
    e.op(&[frame_pointer, 0, LE, OVER]).load(SPAN_END);
    e.op(&[frame_pointer, 0, GT, AND]);
    let is_inside = e.forward(BRA);
    let next = e.bytes.len();
    e.load(SPAN_NEXT);
    e.back(SKIP, span);
    e.land(is_inside);
    // slot slot span
    e.op(&[frame_pointer, ENTRY_SLOT as u8, DEREF, PICK, 2, EQ]);
    let is_here = e.forward(BRA);
    e.back(SKIP, next);
    e.land(is_here);
    e.op(&[frame_pointer, 0]);
    // slot slot span entry
    // The entry of a tail call has the slot of the function that jumped. The frame pointer saved in it leads to that
    // function's entry, which knows the caller. The lists are no help here: the entry of a tail call does not hold the
    // caller's frame pointer.
    let entry = e.bytes.len();
    e.op(&[DUP])
        .load(ENTRY_FLAGS)
        .op(&[LIT0 + ENTRY_TAIL as u8, AND]);
    let is_tail = e.forward(BRA);
    let found = e.forward(SKIP);
    e.land(is_tail);
    e.load(ENTRY_FRAME);
    e.back(SKIP, entry);
    e.land(end);
    found
}

/// Searches each shadow stack by halves for the outermost entry whose slot is not above the wanted one.
///
/// Returns the jump that is taken, with the entry on top of the stack, if the slots are equal. Otherwise the expression
/// goes on with the stack as it was.
fn search(e: &mut Expression, threads: u64) -> usize {
    let (thread, end) = each(e, threads);
    e.op(&[DUP]).load(RECORD_FLOOR);
    e.op(&[OVER]).load(RECORD_TOP);
    // slot slot thread low high: the slot of low is above the wanted one, the slot of high is not, or there is no
    // entry.
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

/// Looks at all entries of all threads.
///
/// Returns the jump that is taken, with the entry on top of the stack, if the entry is found. Otherwise the expression
/// goes on with the stack as it was.
fn walk(e: &mut Expression, threads: u64) -> usize {
    let (thread, end) = each(e, threads);
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
    // The flags are the lower half of the word at this offset.
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

/// Unwind tables under construction.
pub struct Frames {
    bytes: Vec<u8>,
    address: u64,
    table: Vec<(u64, u64)>,
}

impl Frames {
    /// Creates empty tables that will lie at an address.
    pub fn new(address: u64) -> Frames {
        Frames {
            bytes: Vec::new(),
            address,
            table: Vec::new(),
        }
    }

    /// Returns the tables, with `.eh_frame_hdr` for the address `header_at`.
    pub fn finish(mut self, header_at: u64) -> UnwindTables {
        self.bytes.extend([0; 4]);
        let mut header = vec![1, 0x1b, 0x03, 0x3b];
        header.extend((self.address.wrapping_sub(header_at + 4) as u32).to_le_bytes());
        header.extend((self.table.len() as u32).to_le_bytes());
        self.table.sort_unstable();
        for (start, entry) in &self.table {
            header.extend((start.wrapping_sub(header_at) as u32).to_le_bytes());
            header.extend((entry.wrapping_sub(header_at) as u32).to_le_bytes());
        }
        UnwindTables {
            frames: self.bytes,
            header,
        }
    }

    /// Adds a common entry, or an entry that refers to the common entry at `cie`. Returns the offset of the new entry.
    pub fn entry(&mut self, cie: Option<usize>, body: &[u8]) -> usize {
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

    /// Adds the entry of a function.
    pub fn function(&mut self, cie: usize, start: u64, size: u64, instructions: &[u8]) {
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
