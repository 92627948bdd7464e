//! Unwind tables of pools: unwinders and debuggers see through thunks and hooks as through any function.
//!
//! While a traced function runs, its return address leads into its thunk. The thunk's frame finds the real one in the
//! entry of a shadow stack whose slot is that of the call ([`caller`]).
//!
//! Unwinders tell frames apart by their addresses (CFA). The function's CFA is `S + 8`. The thunk's frame takes no room
//! on the stack, so its CFA is `S + 9`, and the stack pointer is restored as one less.

use super::encode::FILL;
use super::hot::Hook;
use super::thunk::THUNK_SIZE;
use crate::pools::unwinding::{CallerValue, Frames, UnwindTables, caller, thunks_entry};
use dioptra_tracelayout::message::RuntimeAddresses;

const ADVANCE: u8 = 0x40;
const ADVANCE_4: u8 = 0x04;
const SAME_VALUE: u8 = 0x08;
const IN_REGISTER: u8 = 0x09;
const REMEMBER_STATE: u8 = 0x0a;
const RESTORE_STATE: u8 = 0x0b;
const DEF_CFA: u8 = 0x0c;
const DEF_CFA_OFFSET: u8 = 0x0e;
const VAL_OFFSET: u8 = 0x14;
const VAL_EXPRESSION: u8 = 0x16;
const X17: u8 = 17;
const RA: u8 = 30;
const SP: u8 = 31;

const MINUS: u8 = 0x1c;
const LIT0: u8 = 0x30;

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

/// Returns the unwind tables of a pool.
pub fn tables(layout: &Layout<'_>) -> UnwindTables {
    let mut frames = Frames::new(layout.frames);
    // Version 1, pointers relative to their place, code in bytes, data in -8, return address in x30.
    let plain = frames.entry(
        None,
        &[1, b'z', b'R', 0, 1, 0x78, RA, 1, 0x1b, DEF_CFA, SP, 0],
    );
    let mut thunk = thunks_entry(RA, layout.runtime.personality);
    // A call that no thread knows gets the return address 0, which is the end of all frames.
    let expression = caller(&layout.runtime, CallerValue::ReturnAddress, None, &[LIT0]);
    thunk.extend([DEF_CFA, SP, 1, VAL_EXPRESSION, RA]);
    thunk.extend([
        expression.len() as u8 & 0x7f | 0x80,
        (expression.len() >> 7) as u8,
    ]);
    thunk.extend(&expression);
    thunk.extend([VAL_EXPRESSION, SP, 2, LIT0 + 1, MINUS]);
    let thunk = frames.entry(None, &thunk);

    for hook in layout.hooks {
        let mut instructions = Vec::new();
        let mut before = hook.start;
        for (at, size) in &hook.frame {
            instructions.push(ADVANCE_4);
            instructions.extend(((at - before) as u32).to_le_bytes());
            instructions.extend([DEF_CFA_OFFSET, *size]);
            before = *at;
        }
        frames.function(plain, hook.start, hook.end - hook.start, &instructions);
    }
    for number in 0..layout.thunks.1 {
        let start = layout.thunks.0 + number * THUNK_SIZE;
        frames.function(
            thunk,
            start,
            THUNK_SIZE,
            &[
                // The return address is in x30, where calls leave it, and then in x17. (The state is remembered because
                // libgcc's `restore` does not restore the rules of the common entry.)
                REMEMBER_STATE,
                DEF_CFA,
                SP,
                0,
                SAME_VALUE,
                RA,
                VAL_OFFSET,
                SP,
                0,
                ADVANCE | 4,
                IN_REGISTER,
                RA,
                X17,
                // In the body and in the hook of the exit, the rules of the common entry hold.
                ADVANCE | 4,
                RESTORE_STATE,
                DEF_CFA,
                SP,
                1,
                ADVANCE | 8,
                DEF_CFA,
                SP,
                0,
                IN_REGISTER,
                RA,
                X17,
                VAL_OFFSET,
                SP,
                0,
                ADVANCE | 4,
                SAME_VALUE,
                RA,
            ],
        );
    }
    if layout.displaced.1 > layout.displaced.0 {
        let size = layout.displaced.1 - layout.displaced.0;
        frames.function(plain, layout.displaced.0, size, &[]);
    }
    frames.finish(layout.header)
}

/// Appends `FILL` until the size of the code is a multiple of `align` bytes.
pub fn fill(code: &mut Vec<u8>, align: usize) {
    while !code.len().is_multiple_of(align) {
        code.extend(FILL.to_le_bytes());
    }
}
