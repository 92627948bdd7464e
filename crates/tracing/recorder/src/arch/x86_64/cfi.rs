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
use crate::pools::unwinding::{Frames, UnwindTables, Wanted, caller, thunks_entry};
use dioptra_tracelayout::message::RuntimeAddresses;
use dioptra_tracelayout::message::thread::ENTRY_FRAME;

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

const DEREF: u8 = 0x06;
const MINUS: u8 = 0x1c;
const LIT0: u8 = 0x30;
const BREG_RBP: u8 = 0x70 + RBP;

/// The caller's frame pointer is where the frame pointer leads to.
const FRAMED: [u8; 5] = [EXPRESSION, RBP, 2, BREG_RBP, ENTRY_FRAME as u8];

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

/// Describes a pool.
pub fn tables(layout: &Layout<'_>) -> UnwindTables {
    let mut frames = Frames::new(layout.frames);
    // Version 1, pointers relative to their place, code in bytes, data in -8, return address in column 16.
    let plain = frames.entry(
        None,
        &[
            1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b, DEF_CFA, RSP, 8, OFFSET_RA, 1,
        ],
    );
    let mut thunk = thunks_entry(16, layout.runtime.personality);
    thunk.extend([DEF_CFA, RSP, 1]);
    for (register, wanted) in [(RA, Wanted::ReturnAddress), (RBP, Wanted::FramePointer)] {
        // No thread knows it: the exit hook has put both back.
        let otherwise: &[u8] = match wanted {
            Wanted::ReturnAddress => &[DEREF],
            Wanted::FramePointer => &[BREG_RBP, 0],
        };
        let expression = caller(&layout.runtime, wanted, Some(BREG_RBP), otherwise);
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
    frames.finish(layout.header)
}
