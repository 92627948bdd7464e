//! Unwind tables of pools: unwinders and debuggers see through thunks and hooks as through any function.
//!
//! While a traced function runs, the place of its return address (`S`) holds an address in its thunk. The thunk's frame
//! gives an expression that finds the real one: it searches the shadow stacks of all threads for the entry whose slot
//! is `S`. Slots go down from a stack's outermost entry to its innermost one, so the search looks at few entries. This
//! order fails where signal handlers have stacks of their own. So if the search finds no entry, the expression looks at
//! all entries.
//!
//! Entries of functions that were entered by a jump from another function's end (tail calls) are passed over. They
//! share the slot of the first function, whose entry has the return address that matters.
//!
//! Unwinders tell frames apart by their addresses (CFA). The function's CFA is `S + 8`. The thunk's frame takes no room
//! on the stack, but its CFA has to be another one: `S + 9`. The stack pointer is restored as one less.
//!
//! The caller's frame pointer is found in the same entry. In the hook and the thunk, before the function is called, the
//! frame pointer surely leads to the entry. There the tables take the caller's frame pointer from that entry.

use super::hot::RETURN;
use crate::pools::unwinding::{CallerValue, Frames, UnwindTables, caller, thunks_entry};
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

/// The rule for the caller's frame pointer where the frame pointer leads to the call's entry.
const FRAMED: [u8; 5] = [EXPRESSION, RBP, 2, BREG_RBP, ENTRY_FRAME as u8];

/// The addresses of the parts of a pool that the tables describe.
#[derive(Clone, Copy, Debug)]
pub struct Layout<'a> {
    /// The address at which `.eh_frame` will lie.
    pub frames: u64,
    /// The address at which `.eh_frame_hdr` will lie, near `.eh_frame`.
    pub header: u64,
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

/// A hook's code.
#[derive(Clone, Copy, Debug)]
pub struct Hook {
    /// The address of the first byte.
    pub start: u64,
    /// The address of the first byte behind the hook.
    pub end: u64,
    /// The address at which the hook takes the registers from the stack: `pop r11; pop rdx; pop rax; ret`.
    pub pops: u64,
    /// The range around `pops` in which the frame pointer leads to the call's entry, which holds the caller's frame
    /// pointer.
    pub framed: Option<(u64, u64)>,
}

/// Returns the unwind tables of a pool.
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
    for (register, wanted) in [
        (RA, CallerValue::ReturnAddress),
        (RBP, CallerValue::FramePointer),
    ] {
        // If no thread knows the call, the exit hook has put both values back.
        let otherwise: &[u8] = match wanted {
            CallerValue::ReturnAddress => &[DEREF],
            CallerValue::FramePointer => &[BREG_RBP, 0],
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
        // Before the call of the body, the return address is on the stack. (The state is remembered because libgcc's
        // `restore` does not restore the rules of the common entry.)
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
        // Behind the hook of the entry, the frame pointer leads to the call's entry.
        ADVANCE | 5,
    ];
    thunk_rows.extend(FRAMED);
    thunk_rows.extend([
        ADVANCE | 5,
        DEF_CFA_OFFSET,
        0,
        // In the body, the rules of the common entry hold.
        ADVANCE | 1,
        RESTORE_STATE,
        DEF_CFA,
        RSP,
        1,
        // In the hook of the exit, the return address moves back. Until then the shadow stack knows it.
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
