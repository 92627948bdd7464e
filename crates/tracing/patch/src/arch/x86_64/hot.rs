//! The code that all thunks of a pool share: the hooks of entries and exits.
//!
//! A hook writes a record for a call (`dioptra_tracelayout::record`), and keeps the return address on the thread's
//! shadow stack. Whatever is out of the ordinary, it leaves to the runtime before it has changed anything.
//!
//! Hooks change no vector state, and no register but the frame pointer: compilers that know all callers of a function
//! rely on the registers that the function leaves alone. While the function runs, the frame pointer leads to the call's
//! entry on the shadow stack. There the caller's frame pointer and the return address make a frame record
//! ([`ENTRY_FRAME`]). So code that follows frame pointers, as the kernel does for call chains, finds the caller behind
//! the thunk.
//!
//! The stack in a hook (`S` is where the call's return address lies):
//!
//! ```text
//! entry: S-40 r11 | S-32 rdx | S-24 rax | S-16 into the thunk | S-8 function id | S return address
//! exit:           | S-32 r11 | S-24 rdx | S-16 rax            | S-8 into the thunk | S
//! ```
//!
//! A *busy* word in the thread's block keeps hooks of signal handlers away while a hook is at work.

mod exit;

use super::RBP;
use super::judge;
use super::thunk::{SLOT, VALUES};
use crate::pools::hooks::{Hook, HookKind, HookSet, HotCode, Parameters, Part, ValueHooks};
use core::mem::offset_of;
use dioptra_tracelayout::message::thread::{
    BLOCK_BUSY, BLOCK_HIDDEN, BLOCK_LEVEL, BLOCK_MUTED, BLOCK_RECORD, CURSOR_AREA, CURSOR_END,
    CURSOR_NEXT, CURSOR_TIME, ENTRY_CHOSEN, ENTRY_FLAGS, ENTRY_FRAME, ENTRY_FUNCTION, ENTRY_JUDGED,
    ENTRY_MUTE, ENTRY_POSITION, ENTRY_RETURN, ENTRY_SAVED, ENTRY_SIZE, ENTRY_SLOT, ENTRY_SPARE,
    ENTRY_TAIL, RECORD_LIMIT, RECORD_TOP, kind,
};
use dioptra_tracelayout::record::{
    ARGUMENTS_ESCAPE, ENTRY_ESCAPE, ESCAPE_HEAD, MAX_DELTA, TIME_ESCAPE,
};
use dioptra_tracelayout::sampling;
use dioptra_tracelayout::values::{INTEGER_REGISTERS, ValueNumbers};
use gimli::write::CallFrameInstruction as Row;
use gimli::write::Expression;
use iced_x86::code_asm::{
    AsmMemoryOperand, CodeAssembler, CodeLabel, ax, byte_ptr, dword_ptr, eax, edx, qword_ptr, r8,
    r9, r11, rax, rbp, rcx, rdi, rdx, rsi, rsp, word_ptr,
};
use iced_x86::{BlockEncoderOptions, IcedError};

pub(super) use exit::exit_begins;
use exit::exit_hook;

// The frame pointer leads to the entry, and the entry begins with the caller's frame pointer.
const _: () = assert!(ENTRY_FRAME == 0);

/// The largest size of the code in bytes. The pool is laid out before the size is known.
pub const HOT_SIZE: u64 = 12288;

/// Returns an offset as the 32-bit number that generated code takes.
pub(super) fn offset(value: i64) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

/// Returns the operand for a word of the thread's block.
pub(super) fn block(parameters: &Parameters, at: i64) -> AsmMemoryOperand {
    qword_ptr((parameters.runtime.thread_block + at) as u64).fs()
}

/// A hook under construction: its first and last place, and the range in which the frame pointer leads to the call's
/// entry.
type Made = (CodeLabel, CodeLabel, Option<(CodeLabel, CodeLabel)>);

/// Generates the hooks.
///
/// # Errors
/// [`IcedError`] if the assembler refuses, which would be a defect.
pub fn hot_code(parameters: &Parameters) -> Result<HotCode, IcedError> {
    use Part::{Enter, EnterLarge, Exit};
    let mut a = CodeAssembler::new(64)?;
    let mut slow_enter = a.create_label();
    let mut slow_exit = a.create_label();
    let options = &parameters.options;
    // A recording without rules needs one kind.
    let kinds: &[HookKind] = match options.hides || options.at_least.is_some() {
        _ if options.samples => &HookKind::ALL,
        true => &HookKind::ALL[..HookKind::UNSAMPLED],
        false => &HookKind::ALL[..1],
    };
    let mut labels: Vec<Made> = Vec::new();
    let mut hook = |kind: HookKind, part, with_values, is_slow| {
        let (slow, bit) = match part {
            Exit => (slow_exit, kind::RETURNED),
            _ => (slow_enter, kind::ARGUMENTS),
        };
        let bits = kind.bits(options) | if with_values { bit } else { 0 };
        let mut start = a.create_label();
        let mut end = a.create_label();
        a.dq(&[bits])?;
        a.set_label(&mut start)?;
        let mut framed = None;
        match part {
            _ if is_slow => counted_hook(&mut a, slow)?,
            Exit if kind == HookKind::JudgeTree => judge::exit_hook(&mut a, parameters, slow)?,
            Exit => exit_hook(&mut a, parameters, (kind, with_values), slow)?,
            _ => {
                let kind = (kind, with_values);
                framed = Some(entry_hook(&mut a, parameters, kind, part, slow)?);
            }
        }
        a.set_label(&mut end)?;
        a.nops_with_size(8)?;
        labels.push((start, end, framed));
        Ok::<_, IcedError>(())
    };
    for &kind in kinds {
        for part in [Enter, EnterLarge, Exit] {
            hook(kind, part, false, kind.is_counted())?;
        }
    }
    if options.values {
        for &kind in kinds {
            hook(kind, Enter, true, true)?;
            hook(kind, Exit, true, true)?;
        }
        for part in [Enter, EnterLarge, Exit] {
            hook(HookKind::Record, part, true, false)?;
        }
    }
    a.set_label(&mut slow_enter)?;
    a.dq(&[parameters.runtime.enter_slow])?;
    a.set_label(&mut slow_exit)?;
    a.dq(&[parameters.runtime.exit_slow])?;

    let result = a.assemble_options(
        parameters.address,
        BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS,
    )?;
    let bytes = &result.inner.code_buffer;
    let hooks = labels
        .iter()
        .map(|(start, end, framed)| {
            let (start, end) = (result.label_ip(start)?, result.label_ip(end)?);
            let framed = match framed {
                Some((from, to)) => Some((result.label_ip(from)?, result.label_ip(to)?)),
                None => None,
            };
            let inside = (start - parameters.address) as usize..(end - parameters.address) as usize;
            let code = bytes.get(inside).unwrap_or_default();
            let framed = framed.map(|(from, to)| ((from - start) as u32, (to - start) as u32));
            let rows = rows(code, framed);
            Ok(Hook { start, end, rows })
        })
        .collect::<Result<Vec<_>, IcedError>>()?;
    let set = |hooks: Option<&[Hook]>| match hooks {
        Some([enter, others @ .., exit]) => HookSet {
            enter: enter.start,
            enter_large: others.first().unwrap_or(enter).start,
            exit: exit.start,
        },
        _ => HookSet::default(),
    };
    let mut sets = [set(hooks.get(..3)); HookKind::ALL.len()];
    let (plain, values) = hooks.split_at(kinds.len() * 3);
    for (kind, hooks) in sets.iter_mut().zip(plain.chunks_exact(3)) {
        *kind = set(Some(hooks));
    }
    let (slow, fast) = values.split_at(values.len().min(kinds.len() * 2));
    let mut values = ValueHooks {
        fast: set(Some(fast)),
        ..ValueHooks::default()
    };
    for (kind, hooks) in values.slow.iter_mut().zip(slow.chunks_exact(2)) {
        *kind = set(Some(hooks));
    }
    Ok(HotCode {
        values,
        sets,
        hooks,
        bytes: result.inner.code_buffer,
        observe: parameters.runtime.observe,
    })
}

/// Returns the rows of a hook's unwind tables, by offset. `framed` is the only range in which the frame pointer leads to
/// the call's entry.
fn rows(code: &[u8], framed: Option<(u32, u32)>) -> Vec<(u32, Row)> {
    /// `pop r11; pop rdx; pop rax; ret`: the hook takes the registers from the stack.
    const POPS: &[u8] = &[0x41, 0x5b, 0x5a, 0x58, RETURN[0], RETURN[1]];
    let pops = code
        .windows(POPS.len())
        .position(|window| window == POPS)
        // The hook leaves by a jump, and the registers stay on the stack.
        .unwrap_or(code.len()) as u32;
    let mut rows: Vec<(u32, Row)> = [(1, 16), (2, 24), (4, 32)]
        .map(|(at, size)| (at, Row::CfaOffset(size)))
        .into();
    rows.extend(framed.map(|(from, _)| (from, framed_row())));
    let behind = pops + POPS.len() as u32;
    let popped = [(pops + 2, 24), (pops + 3, 16), (pops + 4, 8), (behind, 32)];
    rows.extend(popped.map(|(at, size)| (at, Row::CfaOffset(size))));
    rows.extend(framed.map(|(_, to)| (to, Row::SameValue(RBP))));
    rows
}

/// Returns the rule for the caller's frame pointer where the frame pointer leads to the call's entry.
pub fn framed_row() -> Row {
    let mut entry = Expression::new();
    entry.op_breg(RBP, ENTRY_FRAME);
    Row::Expression(RBP, entry)
}

/// Generates a hook that leaves everything to the runtime.
fn counted_hook(a: &mut CodeAssembler, slow_address: CodeLabel) -> Result<(), IcedError> {
    a.push(rax)?;
    a.push(rdx)?;
    a.push(r11)?;
    a.jmp(qword_ptr(slow_address))
}

/// Puts the slot of the chosen execution whose entry is at rax in rdx. Returns the operand for the number of open
/// executions of that slot.
fn open_executions(a: &mut CodeAssembler) -> Result<AsmMemoryOperand, IcedError> {
    a.mov(edx, dword_ptr(rax + offset(ENTRY_FLAGS)))?;
    a.shr(edx, 8)?;
    Ok(dword_ptr(r11 + rdx * 4 + offset(sampling::open(0))))
}

/// `ret` with a prefix that does nothing. Debuggers (gdb) take a bare `ret` for the end of an ordinary function, where
/// all registers are the caller's, and do not ask the tables.
pub const RETURN: &[u8] = &[0xf3, 0xc3];

/// Puts the address of the sampler of the entry at rax, less [`sampling::SAMPLERS`], in rdx.
pub(super) fn find_sampler(a: &mut CodeAssembler) -> Result<(), IcedError> {
    a.mov(edx, dword_ptr(rax + offset(ENTRY_FLAGS)))?;
    a.shr(edx, 8)?;
    a.shl(rdx, sampling::SAMPLER_SIZE.trailing_zeros())?;
    a.add(rdx, qword_ptr(r11 + offset(CURSOR_AREA)))
}

/// Ends a hook. Only jumps reach the code behind it.
pub(super) fn finish(a: &mut CodeAssembler, parameters: &Parameters) -> Result<(), IcedError> {
    a.mov(block(parameters, BLOCK_BUSY), 0)?;
    a.pop(r11)?;
    a.pop(rdx)?;
    a.pop(rax)?;
    a.db(RETURN)
}

/// Reads the clock: puts the shifted reading in rdx and its distance from the last record in rax, and compares the
/// distance with the largest that fits a record.
pub(super) fn read_clock(a: &mut CodeAssembler, parameters: &Parameters) -> Result<(), IcedError> {
    a.rdtsc()?;
    a.shl(rdx, 32)?;
    a.or(rdx, rax)?;
    a.shr(rdx, parameters.options.shift)?;
    a.mov(rax, rdx)?;
    a.sub(rax, qword_ptr(r11 + offset(CURSOR_TIME)))?;
    a.cmp(rax, MAX_DELTA as i32)
}

/// Writes a record that sets the clock to rdx, puts 0 in rax, and goes on at `back`.
pub(super) fn time_escape(a: &mut CodeAssembler, back: CodeLabel) -> Result<(), IcedError> {
    a.mov(rax, qword_ptr(r11 + offset(CURSOR_NEXT)))?;
    a.mov(qword_ptr(rax + 4), rdx)?;
    a.mov(dword_ptr(rax), TIME_ESCAPE as i32)?;
    a.add(qword_ptr(r11 + offset(CURSOR_NEXT)), 12)?;
    a.xor(eax, eax)?;
    a.jmp(back)
}

/// Saves the block's words that hide calls in the word `entry`; changes rdx. Where levels are not limited, the level is
/// 0 and need not be saved.
fn save_gate(
    a: &mut CodeAssembler,
    parameters: &Parameters,
    entry: AsmMemoryOperand,
) -> Result<(), IcedError> {
    if parameters.options.levels.is_some() {
        a.mov(rdx, block(parameters, BLOCK_LEVEL))?;
        a.shl(rdx, 48)?;
        a.or(rdx, block(parameters, BLOCK_HIDDEN))?;
    } else {
        a.mov(rdx, block(parameters, BLOCK_HIDDEN))?;
    }
    a.mov(entry, rdx)
}

/// Restores the block's words that hide calls from the entry at rax; changes rdx.
pub(super) fn restore_gate(
    a: &mut CodeAssembler,
    parameters: &Parameters,
) -> Result<(), IcedError> {
    let saved = qword_ptr(rax + offset(ENTRY_SPARE));
    a.mov(rdx, saved)?;
    if parameters.options.levels.is_some() {
        a.shr(rdx, 48)?;
        a.mov(block(parameters, BLOCK_LEVEL), rdx)?;
        a.mov(rdx, saved)?;
        a.shl(rdx, 16)?;
        a.shr(rdx, 16)?;
    }
    a.mov(block(parameters, BLOCK_HIDDEN), rdx)
}

/// Writes the record of the registers for integer arguments that the numbers behind the thunk name. Changes rax and rdx.
fn record_registers(a: &mut CodeAssembler, parameters: &Parameters) -> Result<(), IcedError> {
    let thunk = qword_ptr(rsp + 24);
    a.mov(rdx, qword_ptr(r11 + offset(CURSOR_NEXT)))?;
    a.add(rdx, ESCAPE_HEAD as i32)?;
    a.mov(rax, thunk)?;
    let registers = VALUES + offset_of!(ValueNumbers, registers) as i64;
    a.movzx(eax, byte_ptr(rax + offset(registers)))?;
    for number in 0..u32::from(INTEGER_REGISTERS) {
        let mut behind = a.create_label();
        a.test(eax, 1 << number)?;
        a.je(behind)?;
        match number {
            0 => a.mov(qword_ptr(rdx), rdi)?,
            1 => a.mov(qword_ptr(rdx), rsi)?,
            2 => {
                // The hook has saved it below r11.
                a.mov(r11, qword_ptr(rsp + 8))?;
                a.mov(qword_ptr(rdx), r11)?;
            }
            3 => a.mov(qword_ptr(rdx), rcx)?,
            4 => a.mov(qword_ptr(rdx), r8)?,
            _ => a.mov(qword_ptr(rdx), r9)?,
        }
        a.add(rdx, 8)?;
        a.set_label(&mut behind)?;
        a.zero_bytes()?;
    }
    // The first word comes last: without it the record does not exist.
    a.mov(r11, block(parameters, BLOCK_RECORD))?;
    a.mov(rax, thunk)?;
    let words = VALUES + offset_of!(ValueNumbers, words) as i64;
    a.movzx(eax, byte_ptr(rax + offset(words)))?;
    a.shl(eax, 24)?;
    a.or(eax, ARGUMENTS_ESCAPE as i32)?;
    a.mov(r11, qword_ptr(r11 + offset(CURSOR_NEXT)))?;
    a.mov(dword_ptr(r11), eax)?;
    a.mov(r11, block(parameters, BLOCK_RECORD))?;
    a.mov(qword_ptr(r11 + offset(CURSOR_NEXT)), rdx)
}

/// Generates the hook of an entry, which records the registers of arguments `with_values`. Returns the range in which the
/// frame pointer leads to the call's entry.
fn entry_hook(
    a: &mut CodeAssembler,
    parameters: &Parameters,
    (kind, with_values): (HookKind, bool),
    part: Part,
    slow_address: CodeLabel,
) -> Result<(CodeLabel, CodeLabel), IcedError> {
    let mut slow = a.create_label();
    let mut give_up = a.create_label();
    let mut not_above = a.create_label();
    let mut push = a.create_label();
    let mut framed = a.create_label();
    let mut long_pause = a.create_label();
    let mut write = a.create_label();
    let next = offset(ENTRY_SIZE);
    let options = &parameters.options;
    let mutes = kind == HookKind::Mute;
    let saves = kind.saves(options);
    let judged = kind == HookKind::JudgeTree;
    let chosen = kind == HookKind::Chosen || judged;
    let mut flags = Vec::new();
    if saves {
        flags.push(ENTRY_SAVED);
    }
    if mutes {
        flags.push(ENTRY_MUTE);
    }
    if chosen {
        flags.push(ENTRY_CHOSEN);
    }
    if judged {
        flags.push(ENTRY_JUDGED);
    }

    a.push(rax)?;
    a.push(rdx)?;
    a.push(r11)?;
    a.mov(r11, block(parameters, BLOCK_RECORD))?;
    a.cmp(block(parameters, BLOCK_BUSY), 0)?;
    a.jne(slow)?;
    a.mov(block(parameters, BLOCK_BUSY), rsp)?;
    // Is there room for the record and for the entry?
    a.mov(rax, qword_ptr(r11 + offset(RECORD_TOP)))?;
    if !mutes {
        a.mov(rdx, qword_ptr(r11 + offset(CURSOR_NEXT)))?;
        a.cmp(rdx, qword_ptr(r11 + offset(CURSOR_END)))?;
        a.jae(give_up)?;
    }
    a.cmp(rax, qword_ptr(r11 + offset(RECORD_LIMIT)))?;
    a.jae(give_up)?;
    if chosen {
        a.cmp(qword_ptr(r11 + offset(CURSOR_AREA)), 0)?;
        a.je(give_up)?;
    }
    // Callers lie above.
    a.lea(rdx, qword_ptr(rsp + 40))?;
    a.cmp(qword_ptr(rax + offset(ENTRY_SLOT)), rdx)?;
    a.jbe(not_above)?;
    a.mov(qword_ptr(rax + next + offset(ENTRY_SLOT)), rdx)?;
    a.mov(edx, dword_ptr(rsp + 32))?;
    a.set_label(&mut push)?;
    for flag in &flags {
        a.bts(rdx, 32 + flag.trailing_zeros())?;
    }
    a.mov(qword_ptr(rax + next + offset(ENTRY_FUNCTION)), rdx)?;
    if chosen {
        a.mov(rdx, qword_ptr(rsp + 24))?;
        a.mov(edx, dword_ptr(rdx + offset(SLOT)))?;
        a.shl(edx, 8)?;
        a.or(dword_ptr(rax + next + offset(ENTRY_FLAGS)), edx)?;
    }
    if judged {
        // A call within an execution belongs to that execution.
        judge::is_open(a)?;
        a.jne(give_up)?;
    }
    if saves {
        save_gate(a, parameters, qword_ptr(rax + next + offset(ENTRY_SPARE)))?;
    }
    a.mov(rdx, qword_ptr(rsp + 40))?;
    a.mov(qword_ptr(rax + next + offset(ENTRY_RETURN)), rdx)?;
    a.mov(qword_ptr(rax + next + offset(ENTRY_FRAME)), rbp)?;
    a.add(rax, next)?;
    a.mov(qword_ptr(r11 + offset(RECORD_TOP)), rax)?;
    a.mov(rbp, rax)?;
    a.set_label(&mut framed)?;
    a.zero_bytes()?;
    let hide_below = |a: &mut CodeAssembler| {
        a.lea(rdx, qword_ptr(rsp + 40))?;
        a.mov(block(parameters, BLOCK_HIDDEN), rdx)
    };
    match (kind, options.levels) {
        (HookKind::Mute, _) => {
            hide_below(a)?;
            a.mov(block(parameters, BLOCK_MUTED), rdx)?;
        }
        (HookKind::Filter | HookKind::Chosen | HookKind::JudgeTree, levels) => {
            if levels.is_some() {
                a.mov(block(parameters, BLOCK_LEVEL), 1)?;
            }
            match levels {
                Some(1) => hide_below(a)?,
                _ => a.mov(block(parameters, BLOCK_HIDDEN), 0)?,
            }
        }
        (_, Some(levels)) => {
            let mut shallow = a.create_label();
            a.inc(block(parameters, BLOCK_LEVEL))?;
            a.cmp(block(parameters, BLOCK_LEVEL), i32::from(levels))?;
            a.jb(shallow)?;
            hide_below(a)?;
            a.set_label(&mut shallow)?;
            a.zero_bytes()?;
        }
        _ => {}
    }
    if chosen && !judged {
        // The entry is there: if a handler leaves the hook from here on, the execution ends with the entry.
        let open = open_executions(a)?;
        a.inc(open)?;
    }
    if !mutes {
        if judged {
            judge::begin(a, parameters)?;
        } else {
            read_clock(a, parameters)?;
        }
        a.ja(long_pause)?;
        a.set_label(&mut write)?;
        a.mov(qword_ptr(r11 + offset(CURSOR_TIME)), rdx)?;
        a.mov(rdx, qword_ptr(r11 + offset(CURSOR_NEXT)))?;
        if part == Part::EnterLarge {
            // The record is {escape, kind, delta, id}. The id and the delta are written first.
            a.mov(word_ptr(rdx + 4), ax)?;
            a.mov(eax, dword_ptr(rsp + 32))?;
            a.mov(dword_ptr(rdx + 6), eax)?;
            a.mov(dword_ptr(rdx), ENTRY_ESCAPE as i32)?;
            a.add(qword_ptr(r11 + offset(CURSOR_NEXT)), 10)?;
        } else {
            a.add(eax, eax)?;
            a.or(eax, dword_ptr(rsp + 32))?;
            a.mov(dword_ptr(rdx), eax)?;
            a.add(qword_ptr(r11 + offset(CURSOR_NEXT)), 4)?;
        }
        if with_values {
            record_registers(a, parameters)?;
        }
        if kind == HookKind::Timed {
            a.mov(rax, qword_ptr(r11 + offset(RECORD_TOP)))?;
            if part == Part::EnterLarge {
                // The record of a large id is never taken back, because it is not worth the trouble.
                a.mov(edx, ENTRY_POSITION)?;
            } else {
                a.add(edx, 4)?;
                a.shl(edx, 8)?;
            }
            a.or(dword_ptr(rax + offset(ENTRY_FLAGS)), edx)?;
        }
    }
    finish(a, parameters)?;

    if !mutes {
        a.set_label(&mut long_pause)?;
        time_escape(a, write)?;
    }

    // The innermost open call lies below or here. If it lies here and the return address is in the pool, a function
    // ended in a jump to this one. Otherwise the stack was cut.
    a.set_label(&mut not_above)?;
    a.jne(give_up)?;
    if options.hides {
        // The function that jumped may have hidden the calls below it.
        a.cmp(block(parameters, BLOCK_HIDDEN), rdx)?;
        a.je(give_up)?;
    }
    a.mov(qword_ptr(rax + next + offset(ENTRY_SLOT)), rdx)?;
    a.mov(rdx, parameters.thunks.0)?;
    a.neg(rdx)?;
    a.add(rdx, qword_ptr(rsp + 40))?;
    a.cmp(
        rdx,
        i32::try_from(parameters.thunks.1 - parameters.thunks.0).unwrap_or(i32::MAX),
    )?;
    a.mov(edx, dword_ptr(rsp + 32))?;
    a.jae(give_up)?;
    a.bts(rdx, 32 + ENTRY_TAIL.trailing_zeros())?;
    a.jmp(push)?;

    a.set_label(&mut give_up)?;
    a.mov(block(parameters, BLOCK_BUSY), 0)?;
    a.set_label(&mut slow)?;
    a.jmp(qword_ptr(slow_address))?;
    Ok((framed, not_above))
}
