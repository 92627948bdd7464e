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

use super::displace::Prologue;
use super::hot::HookSet;
use crate::pools::hooks::HookKind;
use core::mem::offset_of;
use dioptra_filters::{Moves, Sampling};
use dioptra_tracelayout::message::RuntimeAddresses;
use dioptra_tracelayout::message::thread::{JudgeNumbers, THUNK_SLOT, operand};
use dioptra_tracelayout::sampling;

/// The size of a thunk in bytes.
pub const THUNK_SIZE: u64 = 32;
/// The offset in a thunk to which its hook of an entry returns.
pub const HOOK_RETURN: i64 = 10;
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

/// Returns the bytes that lead a site to a thunk; `None` if the thunk is out of reach. `prologue` holds the
/// instructions that are moved away.
pub fn patch(site: u64, thunk: u64, prologue: Option<&Prologue>) -> Option<Vec<u8>> {
    let mut bytes = jump(site, thunk)?.to_vec();
    if let Some(prologue) = prologue {
        prologue.put_call(&mut bytes);
    }
    Some(bytes)
}

/// Returns the thunk at `at` with these hooks for the function with this id, whose body is at `body`; `None` if something is out of
/// reach.
pub fn thunk(at: u64, id: u32, hooks: HookSet, body: u64) -> Option<[u8; THUNK_SIZE as usize]> {
    let mut bytes = [0xcc; THUNK_SIZE as usize];
    let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
    let enter = if id <= 0xffff {
        hooks.enter
    } else {
        hooks.enter_large
    };
    put(0, &[0x68]);
    put(1, &operand(id).to_le_bytes());
    put(5, &[0xe8]);
    put(6, &distance(at + 10, enter)?);
    put(10, &[0x48, 0x8d, 0x64, 0x24, 0x10]);
    put(15, &[0xe8]);
    put(16, &distance(at + BODY_RETURN, body)?);
    put(20, &[0x48, 0x8d, 0x64, 0x24, 0xf8]);
    put(25, &[0xe8]);
    put(26, &distance(at + 30, hooks.exit)?);
    put(30, &[0xc3]);
    Some(bytes)
}

/// Returns the number of a slot, in the form in which it follows a thunk.
pub fn slot(number: u32) -> [u8; THUNK_SIZE as usize] {
    const AT: usize = (HOOK_RETURN + THUNK_SLOT - THUNK_SIZE as i64) as usize;
    let mut bytes = [0xcc; THUNK_SIZE as usize];
    bytes[AT..AT + 4].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Returns the numbers behind the thunk of a function that is judged; `None` if its memory is too far from the record.
pub fn judge_numbers(sampling: Sampling) -> Option<[u8; THUNK_SIZE as usize]> {
    let moves = Moves::of(sampling.parameter);
    let judged = i32::try_from(sampling::judged(sampling.tail)).ok()?;
    let mut bytes = slot(sampling.slot);
    let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
    put(offset_of!(JudgeNumbers, judged), &judged.to_le_bytes());
    put(offset_of!(JudgeNumbers, raise), &moves.raise.to_le_bytes());
    put(offset_of!(JudgeNumbers, lower), &moves.lower.to_le_bytes());
    put(offset_of!(JudgeNumbers, early), &moves.early.to_le_bytes());
    Some(bytes)
}

// The numbers begin where the slot's number is.
const _: () = {
    assert!(offset_of!(JudgeNumbers, slot) == 0);
    assert!(HOOK_RETURN + THUNK_SLOT == THUNK_SIZE as i64);
    assert!(size_of::<JudgeNumbers>() <= THUNK_SIZE as usize);
};

/// The size of a gate in bytes.
pub const GATE_SIZE: u64 = 24;
/// The size in bytes of a gate that its body follows.
pub const SHORT_GATE_SIZE: u64 = 15;

/// Returns the gate at `at`. A call that is hidden by its place goes on with `body`, any other call with the thunk.
///
/// ```text
///  0  cmp rsp, fs:[CELL]
///  9  jb BODY                    if the body follows: jae thunk
/// 15  jmp thunk
/// ```
pub fn gate(
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

/// Returns the thunk at `at` that reports a call of `function` to the runtime at `observer`, and then goes on with
/// `body`.
pub fn observer(
    at: u64,
    function: u32,
    observer: u64,
    body: u64,
) -> Option<[u8; THUNK_SIZE as usize]> {
    let mut bytes = [0xcc; THUNK_SIZE as usize];
    let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
    put(0, &[0x68]);
    put(1, &function.to_le_bytes());
    // call [rip + 13]; lea rsp, [rsp + 8]; jmp BODY; and the address `observer`.
    put(5, &[0xff, 0x15, 13, 0, 0, 0]);
    put(11, &[0x48, 0x8d, 0x64, 0x24, 0x08]);
    put(16, &jump(at + 16, body)?);
    put(24, &observer.to_le_bytes());
    Some(bytes)
}

/// Returns the code at `at` that goes on with `thunk` if the call's first argument is one of `values`, and else with
/// `body`. Returns `None` if all values are wanted, or something is out of reach.
///
/// ```text
///     cmp edi, VALUE; je thunk      for each of them
///     jmp BODY
/// ```
pub fn asks(at: u64, values: &[u16], thunk: u64, body: u64) -> Option<Vec<u8>> {
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

/// Returns a thunk that jumps to `target` at any distance.
pub fn far_jump(target: u64) -> [u8; THUNK_SIZE as usize] {
    let mut bytes = [0xcc; THUNK_SIZE as usize];
    bytes[..6].copy_from_slice(&[0xff, 0x25, 0, 0, 0, 0]);
    bytes[6..14].copy_from_slice(&target.to_le_bytes());
    bytes
}
