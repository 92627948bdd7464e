//! The hooks of exits.

use super::{block, finish, offset, open_executions, read_clock, restore_gate, time_escape};
use crate::pools::hooks::{HookKind, Parameters};
use dioptra_tracelayout::message::thread::{
    BLOCK_BUSY, BLOCK_MUTED, BLOCK_RECORD, CURSOR_END, CURSOR_NEXT, CURSOR_TIME, ENTRY_FLAGS,
    ENTRY_FRAME, ENTRY_RETURN, ENTRY_SIZE, ENTRY_SLOT, RECORD_TOP,
};
use dioptra_tracelayout::record::{ESCAPE_HEAD, MAX_DELTA, RETURNED_ESCAPE};
use iced_x86::IcedError;
use iced_x86::code_asm::{
    CodeAssembler, CodeLabel, ax, dword_ptr, eax, edx, qword_ptr, r11, rax, rbp, rdx, rsp, word_ptr,
};

/// Begins the hook of an exit: puts the record in r11 and the innermost entry in rax.
///
/// Gives up unless the entry is that of the call. Also gives up if another hook is at work, or if a record is `written`
/// and there is no room for it.
pub fn exit_begins(
    a: &mut CodeAssembler,
    parameters: &Parameters,
    written: bool,
    give_up: CodeLabel,
) -> Result<(), IcedError> {
    a.push(rax)?;
    a.push(rdx)?;
    a.push(r11)?;
    a.mov(r11, block(parameters, BLOCK_RECORD))?;
    a.mov(rax, qword_ptr(r11 + offset(RECORD_TOP)))?;
    if written {
        a.mov(rdx, qword_ptr(r11 + offset(CURSOR_NEXT)))?;
        a.cmp(rdx, qword_ptr(r11 + offset(CURSOR_END)))?;
        a.jae(give_up)?;
    }
    // The frame pointer leads to the call's entry again, as it did when the function began. The slot alone is not
    // enough: where stacks are copied, several suspended calls have the same one.
    a.cmp(rbp, rax)?;
    a.jne(give_up)?;
    a.lea(rdx, qword_ptr(rsp + 32))?;
    a.cmp(qword_ptr(rax + offset(ENTRY_SLOT)), rdx)?;
    a.jne(give_up)?;
    // A hook that was left by a jump may have recorded half of its work. Then the runtime has to see the busy word.
    a.cmp(block(parameters, BLOCK_BUSY), 0)?;
    a.jne(give_up)?;
    // A handler may have called functions and returned meanwhile. Then the top is as it was, and the chunk's margin is
    // wide enough.
    a.mov(block(parameters, BLOCK_BUSY), rsp)
}

/// Writes the record of the register with the return value, which the hook has saved. Changes rax and rdx.
fn record_value(a: &mut CodeAssembler) -> Result<(), IcedError> {
    const VALUE: i32 = 8;
    a.mov(rdx, qword_ptr(r11 + offset(CURSOR_NEXT)))?;
    a.mov(rax, qword_ptr(rsp + 16))?;
    a.mov(qword_ptr(rdx + ESCAPE_HEAD as i32), rax)?;
    a.mov(dword_ptr(rdx), RETURNED_ESCAPE as i32)?;
    a.add(
        qword_ptr(r11 + offset(CURSOR_NEXT)),
        ESCAPE_HEAD as i32 + VALUE,
    )
}

/// Generates the hook of an exit, which records the register of the return value `with_value`.
pub fn exit_hook(
    a: &mut CodeAssembler,
    parameters: &Parameters,
    (kind, with_value): (HookKind, bool),
    slow_address: CodeLabel,
) -> Result<(), IcedError> {
    let mut give_up = a.create_label();
    let mut long_pause = a.create_label();
    let mut write = a.create_label();
    let mut keep = a.create_label();
    let mut kept = a.create_label();
    let mut done = a.create_label();
    let options = &parameters.options;
    let mutes = kind == HookKind::Mute;
    let saves = kind.saves(options);

    exit_begins(a, parameters, !mutes, give_up)?;
    a.mov(rdx, qword_ptr(rax + offset(ENTRY_RETURN)))?;
    a.mov(qword_ptr(rsp + 32), rdx)?;
    // This comes before the entry is removed, because unwinders find the frame pointer there until then.
    a.mov(rbp, qword_ptr(rax + offset(ENTRY_FRAME)))?;
    if saves {
        restore_gate(a, parameters)?;
    }
    if mutes {
        a.mov(block(parameters, BLOCK_MUTED), 0)?;
    }
    if kind == HookKind::Chosen {
        let mut closed = a.create_label();
        // A forked child ends calls that its parent began.
        let open = open_executions(a)?;
        a.cmp(open, 0)?;
        a.je(closed)?;
        a.dec(open)?;
        a.set_label(&mut closed)?;
        a.zero_bytes()?;
    }
    let timed = options.at_least.filter(|_| kind == HookKind::Timed);
    if timed.is_some() {
        a.mov(edx, dword_ptr(rax + offset(ENTRY_FLAGS)))?;
        a.shr(edx, 8)?;
    }
    a.sub(rax, offset(ENTRY_SIZE))?;
    a.mov(qword_ptr(r11 + offset(RECORD_TOP)), rax)?;
    if let Some(at_least) = timed {
        // Is the entry the last record?
        a.xor(edx, dword_ptr(r11 + offset(CURSOR_NEXT)))?;
        a.and(edx, 0x00ff_ffff)?;
        a.jne(keep)?;
        // Then the time of the last record is the entry's.
        read_clock(a, parameters)?;
        a.cmp(rax, i32::try_from(at_least).unwrap_or(i32::MAX))?;
        a.jae(kept)?;
        a.mov(rax, qword_ptr(r11 + offset(CURSOR_NEXT)))?;
        a.movzx(edx, word_ptr(rax - 4))?;
        a.shr(edx, 1)?;
        a.sub(qword_ptr(r11 + offset(CURSOR_TIME)), rdx)?;
        a.mov(dword_ptr(rax - 4), 0)?;
        a.sub(qword_ptr(r11 + offset(CURSOR_NEXT)), 4)?;
        a.jmp(done)?;
    }
    if !mutes {
        a.set_label(&mut keep)?;
        if with_value {
            record_value(a)?;
        }
        read_clock(a, parameters)?;
        if timed.is_some() {
            let mut compared = a.create_label();
            a.jmp(compared)?;
            a.set_label(&mut kept)?;
            a.cmp(rax, MAX_DELTA as i32)?;
            a.set_label(&mut compared)?;
        }
        a.ja(long_pause)?;
        a.set_label(&mut write)?;
        a.mov(qword_ptr(r11 + offset(CURSOR_TIME)), rdx)?;
        a.mov(rdx, qword_ptr(r11 + offset(CURSOR_NEXT)))?;
        a.lea(eax, dword_ptr(rax + rax + 1))?;
        a.mov(word_ptr(rdx), ax)?;
        a.add(qword_ptr(r11 + offset(CURSOR_NEXT)), 2)?;
    }
    if timed.is_some() {
        a.set_label(&mut done)?;
    }
    finish(a, parameters)?;

    if !mutes {
        a.set_label(&mut long_pause)?;
        time_escape(a, write)?;
    }
    a.set_label(&mut give_up)?;
    a.jmp(qword_ptr(slow_address))
}
