//! The code that all thunks of a pool share: the hooks of entries and exits.
//!
//! What they do for a call: write a record (`dioptra_tracelayout::record`), and keep the return address on the thread's
//! shadow stack. Whatever is out of the ordinary they leave to the runtime, before they have changed anything. They
//! change no register and no vector state: compilers that know all callers of a function rely on what it leaves alone.
//!
//! The stack in a hook (`S` is where the call's return address lies):
//!
//! ```text
//! entry: S-40 r11 | S-32 rdx | S-24 rax | S-16 into the thunk | S-8 function id | S return address
//! exit:           | S-32 r11 | S-24 rdx | S-16 rax            | S-8 into the thunk | S
//! ```
//!
//! A *busy* word in the thread's block keeps hooks of signal handlers away while one is at work.

use dioptra_tracelayout::message::RuntimeAddresses;
use dioptra_tracelayout::message::thread::{
    BLOCK_BUSY, BLOCK_RECORD, CURSOR_END, CURSOR_NEXT, CURSOR_TIME, ENTRY_FUNCTION, ENTRY_RETURN,
    ENTRY_SIZE, ENTRY_SLOT, ENTRY_TAIL, RECORD_LIMIT, RECORD_TOP,
};
use dioptra_tracelayout::record::{ENTRY_ESCAPE, MAX_DELTA, TIME_ESCAPE};
use iced_x86::code_asm::{
    AsmMemoryOperand, CodeAssembler, CodeLabel, ax, dword_ptr, eax, edx, qword_ptr, r11, rax, rdx,
    rsp, word_ptr,
};
use iced_x86::{BlockEncoderOptions, IcedError};

/// What the code has to know.
#[derive(Clone, Copy, Debug)]
pub struct Parameters {
    /// Where the code will lie.
    pub address: u64,
    /// Of the runtime.
    pub runtime: RuntimeAddresses,
    /// Where the pool's thunks lie: from, to. A return address there is that of a traced function that ended in a jump.
    pub thunks: (u64, u64),
    /// How many bits of the clock's readings are left out.
    pub shift: u32,
}

/// The code, and where its parts begin.
#[derive(Clone, Debug)]
pub struct HotCode {
    /// To be placed at [`Parameters::address`].
    pub bytes: Vec<u8>,
    /// The hook of an entry whose id fits 16 bits and comes shifted left by 16.
    pub enter: u64,
    /// The hook of an entry with a larger id, which comes as it is and whose lower 16 bits are not 0.
    pub enter_large: u64,
    /// The hook of an exit.
    pub exit: u64,
    /// The end of the code; pointers follow.
    pub end: u64,
}

/// How large it is at most: the pool is laid out before it is known.
pub const HOT_SIZE: u64 = 1024;

/// Offsets in generated code are 32-bit numbers.
fn offset(value: i64) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

/// A word of the thread's block.
fn block(parameters: &Parameters, at: i64) -> AsmMemoryOperand {
    qword_ptr((parameters.runtime.thread_block + at) as u64).fs()
}

/// Generates the hooks.
///
/// # Errors
/// [`IcedError`] if the assembler refuses, which would be a defect.
pub fn hot_code(parameters: &Parameters) -> Result<HotCode, IcedError> {
    let mut a = CodeAssembler::new(64)?;
    let mut enter = a.create_label();
    let mut enter_large = a.create_label();
    let mut exit = a.create_label();
    let mut slow_enter = a.create_label();
    let mut slow_exit = a.create_label();

    a.set_label(&mut enter)?;
    entry_hook(&mut a, parameters, slow_enter, false)?;
    a.nops_with_size(8)?;
    a.set_label(&mut enter_large)?;
    entry_hook(&mut a, parameters, slow_enter, true)?;
    a.nops_with_size(8)?;
    a.set_label(&mut exit)?;
    exit_hook(&mut a, parameters, slow_exit)?;
    a.set_label(&mut slow_enter)?;
    a.dq(&[parameters.runtime.enter_slow])?;
    a.set_label(&mut slow_exit)?;
    a.dq(&[parameters.runtime.exit_slow])?;

    let result = a.assemble_options(
        parameters.address,
        BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS,
    )?;
    Ok(HotCode {
        enter: result.label_ip(&enter)?,
        enter_large: result.label_ip(&enter_large)?,
        exit: result.label_ip(&exit)?,
        end: result.label_ip(&slow_enter)?,
        bytes: result.inner.code_buffer,
    })
}

/// The common end of hooks: the code behind it is reached by jumps only.
fn finish(a: &mut CodeAssembler, parameters: &Parameters) -> Result<(), IcedError> {
    a.mov(block(parameters, BLOCK_BUSY), 0)?;
    a.pop(r11)?;
    a.pop(rdx)?;
    a.pop(rax)?;
    a.ret()
}

/// The clock's reading, shifted, in rdx; the distance from the last record's in rax.
fn read_clock(a: &mut CodeAssembler, parameters: &Parameters) -> Result<(), IcedError> {
    a.rdtsc()?;
    a.shl(rdx, 32)?;
    a.or(rdx, rax)?;
    a.shr(rdx, parameters.shift)?;
    a.mov(rax, rdx)?;
    a.sub(rax, qword_ptr(r11 + offset(CURSOR_TIME)))?;
    a.cmp(rax, MAX_DELTA as i32)
}

/// A record that sets the clock to rdx, and 0 in rax.
fn time_escape(a: &mut CodeAssembler, back: CodeLabel) -> Result<(), IcedError> {
    a.mov(rax, qword_ptr(r11 + offset(CURSOR_NEXT)))?;
    a.mov(qword_ptr(rax + 4), rdx)?;
    a.mov(dword_ptr(rax), TIME_ESCAPE as i32)?;
    a.add(qword_ptr(r11 + offset(CURSOR_NEXT)), 12)?;
    a.xor(eax, eax)?;
    a.jmp(back)
}

fn entry_hook(
    a: &mut CodeAssembler,
    parameters: &Parameters,
    slow_address: CodeLabel,
    large: bool,
) -> Result<(), IcedError> {
    let mut slow = a.create_label();
    let mut give_up = a.create_label();
    let mut not_above = a.create_label();
    let mut push = a.create_label();
    let mut long_pause = a.create_label();
    let mut write = a.create_label();
    let next = offset(ENTRY_SIZE);

    a.push(rax)?;
    a.push(rdx)?;
    a.push(r11)?;
    a.mov(r11, block(parameters, BLOCK_RECORD))?;
    a.cmp(block(parameters, BLOCK_BUSY), 0)?;
    a.jne(slow)?;
    a.mov(block(parameters, BLOCK_BUSY), rsp)?;
    // Room for the record, and for the call?
    a.mov(rdx, qword_ptr(r11 + offset(CURSOR_NEXT)))?;
    a.mov(rax, qword_ptr(r11 + offset(RECORD_TOP)))?;
    a.cmp(rdx, qword_ptr(r11 + offset(CURSOR_END)))?;
    a.jae(give_up)?;
    a.cmp(rax, qword_ptr(r11 + offset(RECORD_LIMIT)))?;
    a.jae(give_up)?;
    // Callers lie above.
    a.lea(rdx, qword_ptr(rsp + 40))?;
    a.cmp(qword_ptr(rax + offset(ENTRY_SLOT)), rdx)?;
    a.jbe(not_above)?;
    a.mov(qword_ptr(rax + next + offset(ENTRY_SLOT)), rdx)?;
    a.mov(edx, dword_ptr(rsp + 32))?;
    a.set_label(&mut push)?;
    a.mov(qword_ptr(rax + next + offset(ENTRY_FUNCTION)), rdx)?;
    a.mov(rdx, qword_ptr(rsp + 40))?;
    a.mov(qword_ptr(rax + next + offset(ENTRY_RETURN)), rdx)?;
    a.add(rax, next)?;
    a.mov(qword_ptr(r11 + offset(RECORD_TOP)), rax)?;
    read_clock(a, parameters)?;
    a.ja(long_pause)?;
    a.set_label(&mut write)?;
    a.mov(qword_ptr(r11 + offset(CURSOR_TIME)), rdx)?;
    a.mov(rdx, qword_ptr(r11 + offset(CURSOR_NEXT)))?;
    if large {
        // {escape, kind, delta, id}: the id and the delta first.
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
    finish(a, parameters)?;

    a.set_label(&mut long_pause)?;
    time_escape(a, write)?;

    // The innermost open call lies below or here. Here, with a return address in the pool: a function ended in a jump
    // to this one. Else the stack was cut.
    a.set_label(&mut not_above)?;
    a.jne(give_up)?;
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
    a.jmp(qword_ptr(slow_address))
}

fn exit_hook(
    a: &mut CodeAssembler,
    parameters: &Parameters,
    slow_address: CodeLabel,
) -> Result<(), IcedError> {
    let mut give_up = a.create_label();
    let mut long_pause = a.create_label();
    let mut write = a.create_label();

    a.push(rax)?;
    a.push(rdx)?;
    a.push(r11)?;
    a.mov(r11, block(parameters, BLOCK_RECORD))?;
    a.mov(block(parameters, BLOCK_BUSY), rsp)?;
    a.mov(rdx, qword_ptr(r11 + offset(CURSOR_NEXT)))?;
    a.mov(rax, qword_ptr(r11 + offset(RECORD_TOP)))?;
    a.cmp(rdx, qword_ptr(r11 + offset(CURSOR_END)))?;
    a.jae(give_up)?;
    a.lea(rdx, qword_ptr(rsp + 32))?;
    a.cmp(qword_ptr(rax + offset(ENTRY_SLOT)), rdx)?;
    a.jne(give_up)?;
    a.mov(rdx, qword_ptr(rax + offset(ENTRY_RETURN)))?;
    a.mov(qword_ptr(rsp + 32), rdx)?;
    a.sub(rax, offset(ENTRY_SIZE))?;
    a.mov(qword_ptr(r11 + offset(RECORD_TOP)), rax)?;
    read_clock(a, parameters)?;
    a.ja(long_pause)?;
    a.set_label(&mut write)?;
    a.mov(qword_ptr(r11 + offset(CURSOR_TIME)), rdx)?;
    a.mov(rdx, qword_ptr(r11 + offset(CURSOR_NEXT)))?;
    a.lea(eax, dword_ptr(rax + rax + 1))?;
    a.mov(word_ptr(rdx), ax)?;
    a.add(qword_ptr(r11 + offset(CURSOR_NEXT)), 2)?;
    finish(a, parameters)?;

    a.set_label(&mut long_pause)?;
    time_escape(a, write)?;
    a.set_label(&mut give_up)?;
    a.jmp(qword_ptr(slow_address))
}
