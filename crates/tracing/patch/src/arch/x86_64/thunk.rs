//! Thunks: the code that probe sites jump to.
//!
//! ```text
//!  0  push OPERAND            the function id
//!  5  call enter              keeps the return address on the shadow stack
//! 10  lea rsp, [rsp + 16]     as if the function had not been called yet
//! 15  call BODY               and now it is called from here: the processor predicts its return
//! 20  lea rsp, [rsp - 8]
//! 25  call exit               puts the return address back
//! 30  ret
//! ```
//!
//! All branches are direct: a thousand indirect ones would be predicted badly.

use super::count::{self, MAX_ASIDE, MAX_WAY};
use super::displace::Prologue;
use super::hot::{self, framed_row};
use super::{RA, RBP, RSP, X86_64};
use crate::arch::Thunks;
use crate::pools::hooks::{HookKind, HookOptions, HookSet, HotCode, Parameters};
use crate::pools::pool::{Front, Places, THUNK_SIZE, numbers};
use crate::pools::thunks::{PoolError, ThunkRequest};
use crate::pools::unwinding::{CallerValue, caller};
use core::mem::offset_of;
use dioptra_filters::{Moves, Sampling};
use dioptra_tracelayout::message::RuntimeAddresses;
use dioptra_tracelayout::message::thread::{JudgeNumbers, operand};
use dioptra_tracelayout::sampling;
use gimli::Register;
use gimli::write::CallFrameInstruction as Row;
use gimli::write::Expression;
use std::ops::Range;

/// The offset in a thunk to which its hook of an entry returns.
pub const HOOK_RETURN: i64 = 10;
/// The offset of the number of a sampling slot, which follows the thunk, from the address to which hooks of entries
/// return.
pub const SLOT: i64 = THUNK_SIZE as i64 - HOOK_RETURN;
/// The offset of the numbers of a function's values from the same address.
pub const VALUES: i64 = SLOT + size_of::<JudgeNumbers>() as i64;
/// The offset in a thunk to which its hook of an exit returns.
pub const EXIT_RETURN: i64 = 30;
/// The offset in a thunk to which its body returns.
const BODY_RETURN: u64 = 20;

/// Returns the distance to `to` from the address behind a branch, as the branch's operand; `None` if it does not fit.
pub fn distance(from_behind: u64, to: u64) -> Option<[u8; 4]> {
    let distance = to.wrapping_sub(from_behind) as i64;
    i32::try_from(distance).ok().map(i32::to_le_bytes)
}

/// Returns a jump of five bytes; `None` if the target is out of reach.
pub fn jump(at: u64, to: u64) -> Option<[u8; 5]> {
    let [a, b, c, d] = distance(at + 5, to)?;
    Some([0xe9, a, b, c, d])
}

// The numbers begin where the slot's number is.
const _: () = {
    assert!(offset_of!(JudgeNumbers, slot) == 0);
    assert!(size_of::<JudgeNumbers>() <= THUNK_SIZE as usize);
};

/// The size of a gate in bytes.
pub const GATE_SIZE: u64 = 24;
/// The size in bytes of a gate that its body follows.
pub const SHORT_GATE_SIZE: u64 = 15;

impl Thunks for X86_64 {
    const HOT_SIZE: u64 = hot::HOT_SIZE;
    /// `int3`.
    const FILL: &[u8] = &[0xcc];
    const FRONT_ALIGN: usize = 1;
    const GATE_SIZE: u64 = 2 * GATE_SIZE;
    const SHORT_GATE_SIZE: Option<u64> = Some(SHORT_GATE_SIZE);
    const STUB_SIZE: (u64, u64) = (MAX_ASIDE, MAX_ASIDE + 2 * MAX_WAY);
    /// Jumps that do not reach become longer.
    const MAX_DISPLACED: u64 = 160;

    fn hot_code(parameters: &Parameters) -> Result<HotCode, PoolError> {
        Ok(hot::hot_code(parameters)?)
    }

    fn first_rows() -> Vec<Row> {
        vec![Row::Cfa(RSP, 8), Row::Offset(RA, -8)]
    }

    /// The caller's frame pointer is found in the call's entry, too. In the hook and the thunk, before the function is
    /// called, the frame pointer surely leads to the entry. There the rows take the caller's frame pointer from that
    /// entry.
    fn callers(runtime: &RuntimeAddresses) -> Vec<(Register, Expression)> {
        use CallerValue::{FramePointer, ReturnAddress};
        // If no thread knows the call, the exit hook has put both values back.
        let address = caller(runtime, ReturnAddress, Some(RBP), Expression::op_deref);
        let frame = caller(runtime, FramePointer, Some(RBP), |e| e.op_breg(RBP, 0));
        vec![(RA, address), (RBP, frame)]
    }

    fn thunk_rows() -> Vec<(u32, Row)> {
        let ordinary = [
            Row::Offset(RA, -8),
            Row::ValOffset(RSP, 0),
            Row::SameValue(RBP),
        ];
        let ordinary = |at| ordinary.clone().map(|row| (at, row));
        // Before the call of the body, the return address is on the stack. (The state is remembered because libgcc's
        // `restore` does not restore the rules of the common entry.)
        let mut rows = vec![(0, Row::RememberState), (0, Row::Cfa(RSP, 8))];
        rows.extend(ordinary(0));
        rows.extend([
            (5, Row::CfaOffset(16)),
            // Behind the hook of the entry, the frame pointer leads to the call's entry.
            (10, framed_row()),
            (15, Row::CfaOffset(0)),
            // In the body, the rules of the common entry hold.
            (16, Row::RestoreState),
            (16, Row::Cfa(RSP, 1)),
            // In the hook of the exit, the return address moves back. Until then the shadow stack knows it.
            (25, Row::CfaOffset(9)),
            (30, Row::CfaOffset(8)),
        ]);
        rows.extend(ordinary(30));
        rows
    }

    fn displace(
        prologue: &Prologue,
        at: u64,
        pool: &Range<u64>,
        thunk: impl Fn(u64) -> Option<u64>,
    ) -> Option<(Vec<u8>, u64)> {
        let code = prologue.redirect(thunk).encode(at, pool).ok()?;
        Some((code.bytes, code.start))
    }

    fn may_follow(prologue: &Prologue) -> bool {
        prologue.call().is_none()
    }

    fn through_pointer(at: u64, pointer: u64) -> Option<Vec<u8>> {
        let [a, b, c, d] = distance(at + 6, pointer)?;
        // jmp [rip + distance]
        Some(vec![0xff, 0x25, a, b, c, d, 0xcc, 0xcc])
    }

    fn thunk(at: u64, id: u32, hooks: HookSet, body: u64) -> Option<Vec<u8>> {
        let mut bytes = [0xcc; THUNK_SIZE as usize];
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        put(0, &[0x68]);
        put(1, &operand(id).to_le_bytes());
        put(5, &[0xe8]);
        put(6, &distance(at + 10, hooks.enter_for(id))?);
        put(10, &[0x48, 0x8d, 0x64, 0x24, 0x10]);
        put(15, &[0xe8]);
        put(16, &distance(at + BODY_RETURN, body)?);
        put(20, &[0x48, 0x8d, 0x64, 0x24, 0xf8]);
        put(25, &[0xe8]);
        put(26, &distance(at + 30, hooks.exit)?);
        put(30, &[0xc3]);
        Some(bytes.to_vec())
    }

    fn judge_numbers(sampling: Sampling) -> Option<Vec<u8>> {
        let moves = Moves::of(sampling.parameter);
        let judged = i32::try_from(sampling::judged(sampling.tail)).ok()?;
        let mut bytes = numbers::<X86_64>(sampling.slot);
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        put(offset_of!(JudgeNumbers, judged), &judged.to_le_bytes());
        put(offset_of!(JudgeNumbers, raise), &moves.raise.to_le_bytes());
        put(offset_of!(JudgeNumbers, lower), &moves.lower.to_le_bytes());
        put(offset_of!(JudgeNumbers, early), &moves.early.to_le_bytes());
        Some(bytes)
    }

    fn stub(
        wanted: &ThunkRequest<X86_64>,
        places: Places,
        thunks: u64,
        body: u64,
        runtime: &RuntimeAddresses,
        options: HookOptions,
    ) -> Option<Front> {
        count::stub(wanted, places, thunks, body, runtime, options)
    }

    /// ```text
    ///  0  cmp rsp, fs:[CELL]
    ///  9  jb BODY                    if the body follows: jae thunk
    /// 15  jmp thunk
    /// ```
    fn gate(
        at: u64,
        kind: HookKind,
        thunk: u64,
        body: u64,
        runtime: &RuntimeAddresses,
    ) -> Option<Vec<u8>> {
        let cell = kind.gate();
        let cell = i32::try_from(runtime.thread_block + cell).ok()?;
        let mut bytes = vec![0x64, 0x48, 0x3b, 0x24, 0x25];
        bytes.extend(cell.to_le_bytes());
        if body == at + SHORT_GATE_SIZE {
            bytes.extend([0x0f, 0x83]);
            bytes.extend(distance(at + 15, thunk)?);
        } else {
            bytes.extend([0x0f, 0x82]);
            bytes.extend(distance(at + 15, body)?);
            bytes.extend(jump(at + 15, thunk)?);
            bytes.resize(GATE_SIZE as usize, 0xcc);
        }
        Some(bytes)
    }

    fn observer(at: u64, function: u32, observer: u64, body: u64) -> Option<Vec<u8>> {
        let mut bytes = [0xcc; THUNK_SIZE as usize];
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        put(0, &[0x68]);
        put(1, &function.to_le_bytes());
        // call [rip + 13]; lea rsp, [rsp + 8]; jmp BODY; and the address `observer`.
        put(5, &[0xff, 0x15, 13, 0, 0, 0]);
        put(11, &[0x48, 0x8d, 0x64, 0x24, 0x08]);
        put(16, &jump(at + 16, body)?);
        put(24, &observer.to_le_bytes());
        Some(bytes.to_vec())
    }

    /// ```text
    ///     cmp edi, VALUE; je thunk      for each of them
    ///     jmp BODY
    /// ```
    fn asks(at: u64, values: &[u16], thunk: u64, body: u64) -> Option<Vec<u8>> {
        if values.is_empty() {
            return None;
        }
        let mut bytes = Vec::new();
        for value in values {
            bytes.extend([0x81, 0xff]);
            bytes.extend(u32::from(*value).to_le_bytes());
            bytes.extend([0x0f, 0x84]);
            bytes.extend(distance(at + bytes.len() as u64 + 4, thunk)?);
        }
        bytes.extend(jump(at + bytes.len() as u64, body)?);
        Some(bytes)
    }

    fn far_jump(target: u64) -> Vec<u8> {
        [&[0xff, 0x25, 0, 0, 0, 0][..], &target.to_le_bytes()].concat()
    }
}
