//! The parts of hooks that judge executions at their ends (`sample=pNN`). Executions that were not slow are taken back.
//!
//! The code does the work of `dioptra_filters::Tail::observe`, without a system call, for all executions but a thread's
//! first ones. The runtime does the rest: executions that began in another chunk, and those that are left by a jump.
//!
//! These parts use more registers than other hooks save. They save them below the stack pointer, where handlers leave
//! room, so frames stay as unwinders expect them. Code that gives up restores the registers first.

use super::hot::{
    block, exit_begins, find_sampler, finish, offset, read_clock, restore_gate, time_escape,
};
use super::thunk::{EXIT_RETURN, SLOT};
use crate::pools::hooks::Parameters;
use crate::pools::pool::THUNK_SIZE;
use core::mem::offset_of;
use dioptra_filters::{Moves, Sampler, Tail};
use dioptra_tracelayout::message::thread::{
    BLOCK_BUSY, CURSOR_AREA, CURSOR_NEXT, CURSOR_TIME, ENTRY_FLAGS, ENTRY_FRAME, ENTRY_JUDGED,
    ENTRY_RETURN, ENTRY_SIZE, ENTRY_UNWOUND, JudgeNumbers, RECORD_TOP,
};
use dioptra_tracelayout::record::{DISCARDED_ESCAPE, MAX_DELTA};
use dioptra_tracelayout::sampling::{self, Judged};
use iced_x86::IcedError;
use iced_x86::code_asm::{
    AsmMemoryOperand, AsmRegister64, CodeAssembler, CodeLabel, ax, dword_ptr, eax, ecx, edx,
    qword_ptr, r11, rax, rbp, rcx, rdi, rdx, rsi, rsp, word_ptr,
};

// A thread's memory of a judged function begins with the running percentile.
const _: () = assert!(offset_of!(Judged, tail) == 0 && Judged::OPEN == Judged::STACK + 4);

/// Returns the offset of one of the numbers behind the thunk from the address to which its hook of an exit returns.
fn number(at: usize) -> i32 {
    (THUNK_SIZE as i64 - EXIT_RETURN) as i32 + at as i32
}

/// The offset of [`JudgeNumbers::judged`] from the address to which the hook of an entry returns.
const JUDGED: i32 = SLOT as i32 + offset_of!(JudgeNumbers, judged) as i32;

/// Returns the operand for a word of the thread's [`Judged`] of the function, which is at rdi.
fn known(at: usize) -> AsmMemoryOperand {
    qword_ptr(rdi + at as i32)
}

/// Returns the operand for the word in which a register is saved meanwhile.
fn saved(register: AsmRegister64) -> AsmMemoryOperand {
    qword_ptr(match register {
        _ if register == rcx => rsp - 8,
        _ if register == rsi => rsp - 16,
        _ => rsp - 24,
    })
}

/// Returns the operand for the word with the time of the execution's end.
fn end_time() -> AsmMemoryOperand {
    qword_ptr(rsp - 32)
}

/// Compares the function's number of open executions with 0; changes rdx.
pub fn is_open(a: &mut CodeAssembler) -> Result<(), IcedError> {
    a.mov(rdx, qword_ptr(rsp + 24))?;
    a.movsxd(rdx, dword_ptr(rdx + JUDGED))?;
    a.cmp(dword_ptr(rdx + r11 + Judged::OPEN as i32), 0)
}

/// Begins an execution: reads the clock as all hooks of entries do, and notes where the execution's records begin.
pub fn begin(a: &mut CodeAssembler, parameters: &Parameters) -> Result<(), IcedError> {
    let word = |at: usize| qword_ptr(rcx + at as i32);
    a.mov(saved(rcx), rcx)?;
    a.mov(rcx, qword_ptr(rsp + 24))?;
    a.movsxd(rcx, dword_ptr(rcx + JUDGED))?;
    a.add(rcx, r11)?;
    // One write sets the stack slot and opens the execution, and comes first. A handler's executions before it stand
    // alone; those behind it belong to this execution.
    a.lea(edx, qword_ptr(rsp + 40))?;
    a.bts(rdx, 32)?;
    a.mov(word(Judged::STACK), rdx)?;
    a.mov(rdx, qword_ptr(r11 + offset(CURSOR_NEXT)))?;
    a.mov(word(Judged::PLACE), rdx)?;
    a.mov(rdx, qword_ptr(r11 + offset(CURSOR_TIME)))?;
    a.mov(word(Judged::BEFORE), rdx)?;
    read_clock(a, parameters)?;
    // `mov` keeps the flags of the comparison of the clock's distance.
    a.mov(word(Judged::START), rdx)?;
    a.mov(rcx, saved(rcx))
}

/// Generates the hook of an exit.
pub fn exit_hook(
    a: &mut CodeAssembler,
    parameters: &Parameters,
    slow_address: CodeLabel,
) -> Result<(), IcedError> {
    let mut give_up = a.create_label();
    let mut free = a.create_label();
    let mut restore = a.create_label();
    let mut long_pause = a.create_label();
    let mut write = a.create_label();
    let mut done = a.create_label();
    let marks = parameters.options.marks;

    exit_begins(a, parameters, true, give_up)?;
    a.mov(edx, dword_ptr(rax + offset(ENTRY_FLAGS)))?;
    a.and(edx, (ENTRY_JUDGED | ENTRY_UNWOUND) as i32)?;
    a.cmp(edx, ENTRY_JUDGED as i32)?;
    a.jne(free)?;

    a.mov(saved(rcx), rcx)?;
    a.mov(saved(rsi), rsi)?;
    a.mov(saved(rdi), rdi)?;
    a.mov(rsi, qword_ptr(rsp + 24))?;
    a.movsxd(
        rdi,
        dword_ptr(rsi + number(offset_of!(JudgeNumbers, judged))),
    )?;
    a.add(rdi, r11)?;
    a.cmp(known(Tail::SEEN), Tail::SETTLED as i32)?;
    a.jb(restore)?;
    a.cmp(known(Judged::PLACE), 0)?;
    a.je(restore)?;
    a.lea(rdx, qword_ptr(rsp + 32))?;
    a.cmp(dword_ptr(rdi + Judged::STACK as i32), edx)?;
    a.jne(restore)?;
    a.mov(rcx, known(Judged::START))?;
    a.test(rcx, rcx)?;
    a.je(restore)?;
    read_clock(a, parameters)?;
    // The clock of another processor may be behind.
    a.cmp(rdx, qword_ptr(r11 + offset(CURSOR_TIME)))?;
    a.jb(restore)?;
    a.mov(end_time(), rdx)?;
    a.sub(rdx, rcx)?;
    a.jb(restore)?;
    level(a)?;
    judge(a, parameters, restore)?;

    a.mov(dword_ptr(rdi + Judged::OPEN as i32), 0)?;
    a.mov(rax, qword_ptr(r11 + offset(RECORD_TOP)))?;
    count(a)?;
    a.mov(rdx, qword_ptr(rax + offset(ENTRY_RETURN)))?;
    a.mov(qword_ptr(rsp + 32), rdx)?;
    // This comes before the entry is removed, because unwinders find the frame pointer there until then.
    a.mov(rbp, qword_ptr(rax + offset(ENTRY_FRAME)))?;
    restore_gate(a, parameters)?;
    a.sub(rax, offset(ENTRY_SIZE))?;
    a.mov(qword_ptr(r11 + offset(RECORD_TOP)), rax)?;
    a.mov(rdi, saved(rdi))?;
    a.mov(rsi, saved(rsi))?;
    if !marks {
        a.test(ecx, ecx)?;
        a.je(done)?;
    }
    a.mov(rdx, end_time())?;
    a.mov(rax, rdx)?;
    a.sub(rax, qword_ptr(r11 + offset(CURSOR_TIME)))?;
    a.cmp(rax, MAX_DELTA as i32)?;
    a.ja(long_pause)?;
    a.set_label(&mut write)?;
    a.mov(qword_ptr(r11 + offset(CURSOR_TIME)), rdx)?;
    a.mov(rdx, qword_ptr(r11 + offset(CURSOR_NEXT)))?;
    a.lea(eax, dword_ptr(rax + rax + 1))?;
    if marks {
        let mut keep = a.create_label();
        a.test(ecx, ecx)?;
        a.jne(keep)?;
        a.mov(word_ptr(rdx + 4), ax)?;
        a.mov(dword_ptr(rdx), DISCARDED_ESCAPE as i32)?;
        a.add(qword_ptr(r11 + offset(CURSOR_NEXT)), 6)?;
        a.jmp(done)?;
        a.set_label(&mut keep)?;
    }
    a.mov(word_ptr(rdx), ax)?;
    a.add(qword_ptr(r11 + offset(CURSOR_NEXT)), 2)?;
    a.set_label(&mut done)?;
    a.mov(rcx, saved(rcx))?;
    finish(a, parameters)?;

    a.set_label(&mut long_pause)?;
    time_escape(a, write)?;
    a.set_label(&mut restore)?;
    a.mov(rcx, saved(rcx))?;
    a.mov(rsi, saved(rsi))?;
    a.mov(rdi, saved(rdi))?;
    a.set_label(&mut free)?;
    a.mov(block(parameters, BLOCK_BUSY), 0)?;
    a.set_label(&mut give_up)?;
    a.jmp(qword_ptr(slow_address))
}

/// Puts the level of the duration in rdx in rax; changes rcx and rdx.
fn level(a: &mut CodeAssembler) -> Result<(), IcedError> {
    // A duration of 0 counts as 1.
    a.cmp(rdx, 1)?;
    a.adc(rdx, 0)?;
    a.bsr(rax, rdx)?;
    a.mov(ecx, eax)?;
    a.xor(ecx, 63)?;
    a.shl(rdx, iced_x86::code_asm::cl)?;
    a.add(rdx, rdx)?;
    a.shr(rdx, 32)?;
    a.shl(rax, 32)?;
    a.or(rax, rdx)
}

/// Judges by the level in rax: puts 1 in ecx if the execution is kept, else 0.
///
/// Unless executions are marked, the records of an execution that is not kept are taken back. Goes to `restore` if the
/// runtime has to judge.
fn judge(
    a: &mut CodeAssembler,
    parameters: &Parameters,
    restore: CodeLabel,
) -> Result<(), IcedError> {
    let mut slow = a.create_label();
    let mut early = a.create_label();
    let mut judged = a.create_label();
    let is_early = |a: &mut CodeAssembler| {
        a.mov(rcx, known(Tail::SEEN))?;
        a.cmp(
            rcx,
            qword_ptr(rsi + number(offset_of!(JudgeNumbers, early))),
        )
    };
    a.cmp(rax, known(Tail::CUT))?;
    a.jg(slow)?;
    part_of_step(a, offset_of!(JudgeNumbers, lower))?;
    is_early(a)?;
    a.jb(early)?;
    a.sub(known(Tail::CUT), rdx)?;
    a.set_label(&mut early)?;
    settle(a)?;
    a.xor(ecx, ecx)?;
    // Whatever becomes of this hook, the execution is not judged again.
    a.mov(known(Judged::START), 0)?;
    if !parameters.options.marks {
        take_back(a, restore)?;
    }
    a.jmp(judged)?;

    a.set_label(&mut slow)?;
    is_early(a)?;
    a.jb(restore)?;
    part_of_step(a, offset_of!(JudgeNumbers, raise))?;
    a.add(known(Tail::CUT), rdx)?;
    settle(a)?;
    a.mov(ecx, 1)?;
    a.mov(known(Judged::START), 0)?;
    a.set_label(&mut judged)?;
    a.zero_bytes()
}

/// Puts a part of a step in rdx; `at` is the offset of the part's size in [`JudgeNumbers`]. Changes rcx.
fn part_of_step(a: &mut CodeAssembler, at: usize) -> Result<(), IcedError> {
    a.mov(rdx, known(Tail::DEVIATION))?;
    a.shr(rdx, 2)?;
    a.or(rdx, 1)?;
    a.mov(ecx, dword_ptr(rsi + number(at)))?;
    a.imul_2(rdx, rcx)?;
    a.shr(rdx, Moves::BITS)
}

/// Moves the mean and the deviation of the levels towards the level in rax, and counts the execution.
fn settle(a: &mut CodeAssembler) -> Result<(), IcedError> {
    a.sub(rax, known(Tail::MEAN))?;
    a.mov(rdx, rax)?;
    a.sar(rdx, Tail::MEMORY_BITS)?;
    a.add(known(Tail::MEAN), rdx)?;
    // The distance without its sign.
    a.mov(rdx, rax)?;
    a.sar(rdx, 63)?;
    a.xor(rax, rdx)?;
    a.sub(rax, rdx)?;
    a.sub(rax, known(Tail::DEVIATION))?;
    a.sar(rax, Tail::MEMORY_BITS)?;
    a.add(known(Tail::DEVIATION), rax)?;
    a.inc(known(Tail::SEEN))
}

/// Takes back the execution's records.
///
/// Memory behind the records is zero at any moment: without its first word, a record is not there. The place of the
/// records is read first. Before each write, the code checks that the cursor still has the value that was read. If a
/// handler forks, its child goes on here, and must not take back the records.
fn take_back(a: &mut CodeAssembler, restore: CodeLabel) -> Result<(), IcedError> {
    let mut next = a.create_label();
    a.mov(rdx, known(Judged::PLACE))?;
    a.mov(rax, qword_ptr(r11 + offset(CURSOR_NEXT)))?;
    a.test(rdx, rdx)?;
    a.je(restore)?;
    a.set_label(&mut next)?;
    a.cmp(rax, qword_ptr(r11 + offset(CURSOR_NEXT)))?;
    a.jne(restore)?;
    // There is room behind the last record.
    a.mov(qword_ptr(rdx), 0)?;
    a.add(rdx, 8)?;
    a.cmp(rdx, rax)?;
    a.jb(next)?;
    a.mov(rdx, known(Judged::BEFORE))?;
    a.mov(qword_ptr(r11 + offset(CURSOR_TIME)), rdx)?;
    a.mov(rdx, known(Judged::PLACE))?;
    a.mov(qword_ptr(r11 + offset(CURSOR_NEXT)), rdx)
}

/// Counts the execution of the entry at rax, which has ended, in its sampler. Changes rdx; ecx is 1 if the execution is
/// kept.
fn count(a: &mut CodeAssembler) -> Result<(), IcedError> {
    let word = |at: usize| qword_ptr(rdx + (sampling::SAMPLERS + at) as i32);
    let mut counted = a.create_label();
    // A forked child has counters of its own, and ends calls that its parent began.
    a.cmp(qword_ptr(r11 + offset(CURSOR_AREA)), 0)?;
    a.je(counted)?;
    find_sampler(a)?;
    a.inc(word(Sampler::FINISHED))?;
    a.add(word(Sampler::SHOWN), rcx)?;
    a.set_label(&mut counted)?;
    a.zero_bytes()
}
