//! Thunks: the code that probe sites jump to.
//!
//! ```text
//!  0  mov x17, x30       the return address
//!  4  bl enter           keeps it on the shadow stack
//!  8  bl BODY            the function is called from here: the processor predicts its return
//! 12  bl exit            takes the return address back, to x17
//! 16  mov x30, x17
//! 20  ret
//! 24  b BODY             where the runtime goes on with calls that are not traced
//! 28  OPERAND            the function id
//! ```
//!
//! Between functions, `x16` and `x17` belong to linkers, so no code relies on them at a site. All other registers stay
//! as they were.

use super::Aarch64;
use super::displace::Prologue;
use super::encode::{
    Condition, FILL, KEEP_RETURN, RET, RETURN_TO_X17, SP, X16, X17, add, add_pages, b, bl, bytes,
    cmp, far_jump, ldr, sub, thread_pointer,
};
use super::hot;
use crate::arch::{Code, Thunks};
use crate::pools::hooks::{HookKind, HookSet, HotCode, Parameters};
use crate::pools::thunks::PoolError;
use crate::pools::unwinding::{CallerValue, caller};
use dioptra_tracelayout::message::RuntimeAddresses;
use dioptra_tracelayout::message::thread::operand;
use gimli::Register;
use gimli::write::CallFrameInstruction as Row;
use gimli::write::Expression;
use std::ops::Range;

/// Returns instructions that load the address of the thread's block into `x16`; `None` if it is too far from the thread
/// pointer.
pub fn block(runtime: &RuntimeAddresses) -> Option<Vec<u32>> {
    let offset = u32::try_from(runtime.thread_block).ok()?;
    if offset >= 1 << 24 {
        return None;
    }
    let mut words = vec![thread_pointer(X16), add(X16, X16, offset & 0xfff)];
    if offset >> 12 != 0 {
        words.push(add_pages(X16, X16, offset >> 12));
    }
    Some(words)
}

impl Thunks for Aarch64 {
    const HOT_SIZE: u64 = hot::HOT_SIZE;
    const FILL: &[u8] = &FILL.to_le_bytes();
    const FRONT_ALIGN: usize = 8;
    const GATE_SIZE: u64 = 40;
    const MAX_DISPLACED: u64 = 64;

    fn hot_code(parameters: &Parameters) -> Result<HotCode, PoolError> {
        hot::hot_code(parameters).ok_or(PoolError::Block)
    }

    fn first_rows() -> Vec<Row> {
        vec![Row::Cfa(Self::STACK_POINTER, 0)]
    }

    fn callers(runtime: &RuntimeAddresses) -> Vec<(Register, Expression)> {
        // A call that no thread knows gets the return address 0, which is the end of all frames.
        let end = |e: &mut Expression| e.op_constu(0);
        let found = caller(runtime, CallerValue::ReturnAddress, None, end);
        vec![(Self::RETURN_ADDRESS, found)]
    }

    fn thunk_rows() -> Vec<(u32, Row)> {
        let (sp, ra) = (Self::STACK_POINTER, Self::RETURN_ADDRESS);
        vec![
            // The return address is in x30, where calls leave it, and then in x17. (The state is remembered because
            // libgcc's `restore` does not restore the rules of the common entry.)
            (0, Row::RememberState),
            (0, Row::Cfa(sp, 0)),
            (0, Row::SameValue(ra)),
            (0, Row::ValOffset(sp, 0)),
            (4, Row::Register(ra, Register(17))),
            // In the body and in the hook of the exit, the rules of the common entry hold.
            (8, Row::RestoreState),
            (8, Row::Cfa(sp, 1)),
            (16, Row::Cfa(sp, 0)),
            (16, Row::Register(ra, Register(17))),
            (16, Row::ValOffset(sp, 0)),
            (20, Row::SameValue(ra)),
        ]
    }

    fn displace(
        prologue: &Prologue,
        at: u64,
        _: &Range<u64>,
        _: impl Fn(u64) -> Option<u64>,
    ) -> Option<(Vec<u8>, u64)> {
        Some((prologue.encode(at).ok()?, 0))
    }

    fn thunk(at: u64, id: u32, hooks: HookSet, body: u64) -> Option<Vec<u8>> {
        Some(bytes(&[
            KEEP_RETURN,
            bl(at + 4, hooks.enter_for(id))?,
            bl(at + 8, body)?,
            bl(at + 12, hooks.exit)?,
            RETURN_TO_X17,
            RET,
            b(at + 24, body)?,
            operand(id),
        ]))
    }

    /// ```text
    ///     x16 = the thread's block
    ///     ldr x16, [x16, CELL]
    ///     sub x17, sp, 8            the call's slot
    ///     cmp x17, x16
    ///     b.hs 2 further
    ///     b BODY
    ///     b thunk
    /// ```
    fn gate(
        at: u64,
        kind: HookKind,
        thunk: u64,
        body: u64,
        runtime: &RuntimeAddresses,
    ) -> Option<Vec<u8>> {
        let cell = kind.gate();
        let mut words = block(runtime)?;
        words.extend([
            ldr(X16, X16, cell as u32),
            sub(X17, SP, 8),
            cmp(X17, X16),
            0x5400_0000 | 2 << 5 | Condition::Hs as u32,
        ]);
        words.push(b(at + 4 * words.len() as u64, body)?);
        words.push(b(at + 4 * words.len() as u64, thunk)?);
        Some(bytes(&words))
    }

    fn observer(at: u64, function: u32, observer: u64, body: u64) -> Option<Vec<u8>> {
        let mut words = [FILL; 8];
        words[0] = KEEP_RETURN;
        words[1] = bl(at + 4, observer)?;
        words[2] = b(at + 8, body)?;
        words[7] = function;
        Some(bytes(&words))
    }

    /// ```text
    ///     cmp w0, VALUE; b.ne 2 further; b thunk      for each of them
    ///     b BODY
    /// ```
    fn asks(at: u64, values: &[u16], thunk: u64, body: u64) -> Option<Vec<u8>> {
        /// `cmp w0, 0`; the value goes into the bits from bit 10 on.
        const COMPARE: u32 = 0x7100_001f;
        /// `b.ne` over one instruction.
        const UNLESS: u32 = 0x5400_0000 | 2 << 5 | 1;
        if values.is_empty() {
            return None;
        }
        let mut words = Vec::new();
        for value in values {
            words.extend([COMPARE | u32::from(*value) << 10, UNLESS]);
            words.push(b(at + 4 * words.len() as u64, thunk)?);
        }
        words.push(b(at + 4 * words.len() as u64, body)?);
        Some(bytes(&words))
    }

    fn far_jump(target: u64) -> Vec<u8> {
        bytes(&far_jump(target))
    }
}
