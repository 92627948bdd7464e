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

use super::displace::Prologue;
use super::encode::{
    BTI_C, Condition, FILL, KEEP_RETURN, RET, RETURN_TO_X17, X16, X17, add, add_pages, b, bl,
    bytes, cmp, far_jump, ldr, sub, thread_pointer,
};
use super::hot::HotCode;
use crate::pools::hooks::HookKind;
use dioptra_tracelayout::message::RuntimeAddresses;
use dioptra_tracelayout::message::thread::operand;

/// The size of a thunk in bytes.
pub const THUNK_SIZE: u64 = 32;

/// Returns the bytes that lead a site to a thunk; `None` if the thunk is out of reach.
pub fn patch(site: u64, thunk: u64, prologue: Option<&Prologue>) -> Option<Vec<u8>> {
    match prologue.map(Prologue::size) {
        // The displaced `paciasp` or `pacibsp` was a landing pad, too, so a `bti c` takes its place.
        Some(8) => Some(bytes(&[BTI_C, b(site + 4, thunk)?])),
        _ => Some(bytes(&[b(site, thunk)?])),
    }
}

/// Returns the thunk at `at` for the function with this id, whose body is at `body`; `None` if something is out of
/// reach.
pub fn thunk(at: u64, id: u32, kind: HookKind, body: u64, hot: &HotCode) -> Option<[u32; 8]> {
    let hooks = hot.set(kind);
    let enter = if id <= 0xffff {
        hooks.enter
    } else {
        hooks.enter_large
    };
    Some([
        KEEP_RETURN,
        bl(at + 4, enter)?,
        bl(at + 8, body)?,
        bl(at + 12, hooks.exit)?,
        RETURN_TO_X17,
        RET,
        b(at + 24, body)?,
        operand(id),
    ])
}

/// Returns the number of a slot, in the form in which it follows a thunk.
pub fn slot(number: u32) -> [u32; 8] {
    let mut words = [FILL; 8];
    words[0] = number;
    words
}

/// The largest size of a gate in bytes.
pub const GATE_SIZE: u64 = 40;

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

/// Returns the gate at `at`. A call that is hidden by its place goes on with `body`, any other call with the thunk.
///
/// ```text
///     x16 = the thread's block
///     ldr x16, [x16, CELL]
///     sub x17, sp, 8            the call's slot
///     cmp x17, x16
///     b.hs 2 further
///     b BODY
///     b thunk
/// ```
pub fn gate(
    at: u64,
    kind: HookKind,
    thunk: u64,
    body: u64,
    runtime: &RuntimeAddresses,
) -> Option<Vec<u32>> {
    let cell = kind.gate();
    let mut words = block(runtime)?;
    words.extend([
        ldr(X16, X16, cell as u32),
        sub(X17, super::encode::SP, 8),
        cmp(X17, X16),
        0x5400_0000 | 2 << 5 | Condition::Hs as u32,
    ]);
    words.push(b(at + 4 * words.len() as u64, body)?);
    words.push(b(at + 4 * words.len() as u64, thunk)?);
    Some(words)
}

/// Returns the thunk at `at` that reports a call of `function` to the runtime, through the far jump at `observer`, and
/// then goes on with `body`.
pub fn observer(at: u64, function: u32, observer: u64, body: u64) -> Option<[u32; 8]> {
    let mut words = [FILL; 8];
    words[0] = KEEP_RETURN;
    words[1] = bl(at + 4, observer)?;
    words[2] = b(at + 8, body)?;
    words[7] = function;
    Some(words)
}

/// Returns the code at `at` that goes on with `thunk` if the call's first argument is one of `values`, and else with
/// `body`. Returns `None` if all values are wanted, or something is out of reach.
///
/// ```text
///     cmp w0, VALUE; b.ne 2 further; b thunk      for each of them
///     b BODY
/// ```
pub fn asks(at: u64, values: &[u16], thunk: u64, body: u64) -> Option<Vec<u32>> {
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
    Some(words)
}

/// Returns a thunk that jumps to `target` at any distance.
pub fn replacement(target: u64) -> [u32; 8] {
    let mut words = [FILL; 8];
    words[..4].copy_from_slice(&far_jump(target));
    words
}
