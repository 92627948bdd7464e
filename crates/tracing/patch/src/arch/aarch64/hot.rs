//! The code that all thunks of a pool share: the hooks of entries and exits.
//!
//! A hook writes a record for a call (`dioptra_tracelayout::record`), and keeps the return address on the thread's
//! shadow stack. Whatever is out of the ordinary, it leaves to the runtime before it has changed anything. Hooks of
//! sampled functions leave everything to the runtime. So do hooks of calls that are taken back if they were short.
//!
//! Hooks change only `x16`, `x17` and the condition flags: compilers that know all callers of a function rely on the
//! registers that the function leaves alone.
//!
//! The hook of an entry finds the return address in `x17`, and the hook of an exit puts it there. `x30` holds the
//! address in the thunk to which a hook returns. A call's slot (`S`) lies 8 bytes below its frame, where other machines
//! have the return address:
//!
//! ```text
//! S-24 x9 | S-16 x10 | S-8 x11 | S x12 | S+8 the stack pointer at the call
//! ```
//!
//! A *busy* word in the thread's block keeps hooks of signal handlers away while a hook is at work.

use super::encode::{
    Code, Condition, LR, Label, RET, Register, SP, X16, X17, ZR, add, add_pages, bytes, cmp,
    counter, far_jump, ldp, ldr, ldr_w, low_bits, lsr, mov, mov_w, orr_shifted, orr_twice_w, pop,
    push, stp, str, stur, stur_h, stur_w, sub, sub_pages, sub_register,
};
use super::thunk::block;
use crate::pools::hooks::{Hook, HookKind, HookSet, HotCode, Parameters, Part, ValueHooks};
use dioptra_tracelayout::message::thread::{
    BLOCK_BUSY, BLOCK_HIDDEN, BLOCK_LEVEL, BLOCK_MUTED, BLOCK_RECORD, CURSOR_END, CURSOR_NEXT,
    CURSOR_TIME, ENTRY_FLAGS, ENTRY_FRAME, ENTRY_FUNCTION, ENTRY_MUTE, ENTRY_RETURN, ENTRY_SAVED,
    ENTRY_SIZE, ENTRY_SLOT, ENTRY_SPARE, RECORD_LIMIT, RECORD_TOP,
};
use dioptra_tracelayout::record::{ENTRY_ESCAPE, MAX_DELTA, TIME_ESCAPE};
use gimli::write::CallFrameInstruction;

/// The largest size of the code in bytes. The pool is laid out before the size is known.
pub const HOT_SIZE: u64 = 8192;

/// The size in bytes of the registers that a hook keeps on the stack.
const FRAME: u8 = 32;
/// The offset of the call's slot from the stack pointer in a hook.
const SLOT: u32 = FRAME as u32 - 8;
/// The register of the frame pointer.
const FRAME_POINTER: Register = 29;
/// The register of the thread's record, and then of anything.
const RECORD: Register = 9;
/// The register of the shadow stack's innermost entry, and then of the time.
const TOP: Register = 10;
/// The register of anything, and then of the time since the last record.
const DELTA: Register = 11;
/// The register of the thread's cursor.
const CURSOR: Register = 12;
/// The offset of a thunk's operand from the address to which hooks of entries return.
const OPERAND: u32 = 20;

/// Returns the offset of a field of the cursor in its page.
fn cursor(field: i64) -> u32 {
    (field + 4096) as u32
}

/// Generates the hooks; returns `None` if the thread's block is too far from the thread pointer.
pub fn hot_code(parameters: &Parameters) -> Option<HotCode> {
    let mut made = HotCode {
        bytes: Vec::new(),
        sets: [HookSet::default(); HookKind::ALL.len()],
        values: ValueHooks::default(),
        hooks: Vec::new(),
        observe: 0,
    };
    let options = &parameters.options;
    for kind in HookKind::ALL {
        let is_fast = matches!(kind, HookKind::Record | HookKind::Filter | HookKind::Mute)
            && !options.other_clock;
        let mut place = |part: Part| {
            made.bytes.extend(kind.bits(options).to_le_bytes());
            let start = parameters.address + made.bytes.len() as u64;
            let (code, frame) = match part {
                _ if !is_fast => (slow_hook(parameters, part), Vec::new()),
                Part::Exit => exit_hook(parameters, kind)?,
                _ => entry_hook(parameters, kind, part)?,
            };
            made.bytes.extend(code);
            let end = parameters.address + made.bytes.len() as u64;
            let size = made.bytes.len().next_multiple_of(16);
            made.bytes.resize(size, 0);
            made.hooks.push(Hook {
                start,
                end,
                rows: frame
                    .into_iter()
                    .map(|(at, size)| (at as u32, CallFrameInstruction::CfaOffset(size.into())))
                    .collect(),
            });
            Some(start)
        };
        made.sets[kind as usize] = HookSet {
            enter: place(Part::Enter)?,
            enter_large: place(Part::EnterLarge)?,
            exit: place(Part::Exit)?,
        };
    }
    made.observe = parameters.address + made.bytes.len() as u64;
    made.bytes
        .extend(bytes(&far_jump(parameters.runtime.observe)));
    Some(made)
}

/// Code, and the distance in bytes of the stack pointer below the call's, from each of these offsets on.
type Made = (Vec<u8>, Vec<(u64, u8)>);

/// Returns a hook that leaves everything to the runtime.
fn slow_hook(parameters: &Parameters, part: Part) -> Vec<u8> {
    let to = match part {
        Part::Exit => parameters.runtime.exit_slow,
        _ => parameters.runtime.enter_slow,
    };
    bytes(&far_jump(to))
}

/// Begins a hook: saves registers, and finds the block, the record and the cursor.
fn begin(code: &mut Code, parameters: &Parameters) -> Option<()> {
    code.put(&[push(RECORD, TOP, FRAME.into()), stp(DELTA, CURSOR, SP, 16)]);
    code.put(&block(&parameters.runtime)?);
    code.put(&[
        ldr(RECORD, X16, BLOCK_RECORD as u32),
        sub_pages(CURSOR, RECORD, 1),
    ]);
    Some(())
}

/// Restores the registers.
fn restore(code: &mut Code) {
    code.put(&[ldp(DELTA, CURSOR, SP, 16), pop(RECORD, TOP, FRAME.into())]);
}

/// Reads the clock: puts the reading in [`TOP`] and its distance from the last record in [`DELTA`], and compares the
/// distance with the largest that fits a record. Changes [`RECORD`].
fn read_clock(code: &mut Code, parameters: &Parameters) {
    code.put(&[counter(TOP)]);
    if parameters.options.shift > 0 {
        code.put(&[lsr(TOP, TOP, parameters.options.shift)]);
    }
    code.put(&[
        ldr(DELTA, CURSOR, cursor(CURSOR_TIME)),
        sub_register(DELTA, TOP, DELTA),
        mov(RECORD, MAX_DELTA as u32 + 1),
        cmp(DELTA, RECORD),
    ]);
}

/// Ends a hook. Only jumps reach the code behind it.
fn finish(code: &mut Code) {
    code.put(&[str(ZR, X16, BLOCK_BUSY as u32)]);
    restore(code);
    code.put(&[RET]);
}

/// Writes a record that sets the clock to [`TOP`], and puts 0 in [`DELTA`].
fn time_escape(code: &mut Code) {
    code.put(&[
        ldr(RECORD, CURSOR, cursor(CURSOR_NEXT)),
        stur(TOP, RECORD, 4),
    ]);
    code.put(&mov_w(DELTA, TIME_ESCAPE));
    code.put(&[
        stur_w(DELTA, RECORD, 0),
        add(RECORD, RECORD, 12),
        str(RECORD, CURSOR, cursor(CURSOR_NEXT)),
        mov(DELTA, 0),
    ]);
}

/// Saves the block's words that hide calls in the entry that comes; changes [`RECORD`] and [`DELTA`].
fn save_gate(code: &mut Code) {
    code.put(&[
        ldr(RECORD, X16, BLOCK_LEVEL as u32),
        ldr(DELTA, X16, BLOCK_HIDDEN as u32),
        orr_shifted(DELTA, DELTA, RECORD, 48),
        str(DELTA, TOP, (ENTRY_SIZE + ENTRY_SPARE) as u32),
    ]);
}

/// Restores the block's words that hide calls from the innermost entry; changes [`RECORD`] and [`DELTA`].
fn restore_gate(code: &mut Code) {
    code.put(&[
        ldr(DELTA, TOP, ENTRY_SPARE as u32),
        lsr(RECORD, DELTA, 48),
        str(RECORD, X16, BLOCK_LEVEL as u32),
        low_bits(DELTA, DELTA, 48),
        str(DELTA, X16, BLOCK_HIDDEN as u32),
    ]);
}

/// Changes the block's words for the calls below a call; changes [`RECORD`] and [`DELTA`].
fn change_gate(code: &mut Code, kind: HookKind, levels: Option<u16>) {
    let slot = add(DELTA, SP, SLOT);
    let hide = str(DELTA, X16, BLOCK_HIDDEN as u32);
    match (kind, levels) {
        (HookKind::Mute, _) => code.put(&[slot, hide, str(DELTA, X16, BLOCK_MUTED as u32)]),
        (HookKind::Filter, levels) => {
            if levels.is_some() {
                code.put(&[mov(DELTA, 1), str(DELTA, X16, BLOCK_LEVEL as u32)]);
            }
            match levels {
                Some(1) => code.put(&[slot, hide]),
                _ => code.put(&[str(ZR, X16, BLOCK_HIDDEN as u32)]),
            }
        }
        (_, Some(levels)) => {
            let shallow = code.label();
            code.put(&[
                ldr(DELTA, X16, BLOCK_LEVEL as u32),
                add(DELTA, DELTA, 1),
                str(DELTA, X16, BLOCK_LEVEL as u32),
                mov(RECORD, levels.into()),
                cmp(DELTA, RECORD),
            ]);
            code.jump_if(Condition::Lo, shallow);
            code.put(&[slot, hide]);
            code.set(shallow);
        }
        _ => {}
    }
}

fn entry_hook(parameters: &Parameters, kind: HookKind, part: Part) -> Option<Made> {
    let mut code = Code::default();
    let slow = code.label();
    let give_up = code.label();
    let long_pause = code.label();
    let write = code.label();
    let next = ENTRY_SIZE as u32;
    let mutes = kind == HookKind::Mute;
    let saves = kind.saves(&parameters.options);
    begin(&mut code, parameters)?;
    code.put(&[ldr(TOP, X16, BLOCK_BUSY as u32)]);
    code.jump_if_not_zero(TOP, slow);
    code.put(&[add(TOP, SP, 0), str(TOP, X16, BLOCK_BUSY as u32)]);
    // Is there room for the record and for the entry?
    if !mutes {
        check_room(&mut code, give_up);
    }
    code.put(&[
        ldr(TOP, RECORD, RECORD_TOP as u32),
        ldr(DELTA, RECORD, RECORD_LIMIT as u32),
        cmp(TOP, DELTA),
    ]);
    code.jump_if(Condition::Hs, give_up);
    // Callers lie above. An entry here or below belongs to a function that ended in a jump to this one, or to one that
    // was left by a jump.
    code.put(&[add(DELTA, SP, SLOT), ldr(TOP, TOP, ENTRY_SLOT as u32)]);
    code.put(&[cmp(TOP, DELTA)]);
    code.jump_if(Condition::Ls, give_up);
    code.put(&[
        ldr(TOP, RECORD, RECORD_TOP as u32),
        str(DELTA, TOP, next + ENTRY_SLOT as u32),
        // The id takes the lower half of the word; the flags become 0.
        ldr_w(DELTA, LR, OPERAND),
        str(DELTA, TOP, next + ENTRY_FUNCTION as u32),
        str(FRAME_POINTER, TOP, next + ENTRY_FRAME as u32),
        str(X17, TOP, next + ENTRY_RETURN as u32),
    ]);
    if saves {
        let muted = if mutes { ENTRY_MUTE } else { 0 };
        code.put(&[
            mov(DELTA, ENTRY_SAVED | muted),
            stur_w(DELTA, TOP, next + ENTRY_FLAGS as u32),
        ]);
        save_gate(&mut code);
        code.put(&[add_pages(RECORD, CURSOR, 1)]);
    }
    code.put(&[add(TOP, TOP, next), str(TOP, RECORD, RECORD_TOP as u32)]);
    change_gate(&mut code, kind, parameters.options.levels);
    if !mutes {
        read_clock(&mut code, parameters);
        code.jump_if(Condition::Hs, long_pause);
        code.set(write);
        code.put(&[
            str(TOP, CURSOR, cursor(CURSOR_TIME)),
            ldr(TOP, CURSOR, cursor(CURSOR_NEXT)),
            ldr_w(RECORD, LR, OPERAND),
        ]);
        if part == Part::EnterLarge {
            // The record is {escape, kind, delta, id}. The id and the delta are written first.
            code.put(&[stur_h(DELTA, TOP, 4), stur_w(RECORD, TOP, 6)]);
            code.put(&mov_w(DELTA, ENTRY_ESCAPE));
            code.put(&[stur_w(DELTA, TOP, 0), add(TOP, TOP, 10)]);
        } else {
            code.put(&[
                orr_twice_w(RECORD, RECORD, DELTA),
                stur_w(RECORD, TOP, 0),
                add(TOP, TOP, 4),
            ]);
        }
        code.put(&[str(TOP, CURSOR, cursor(CURSOR_NEXT))]);
    }
    finish(&mut code);
    let mut frame = vec![(4, FRAME), (code.size() - 4, 0), (code.size(), FRAME)];

    if !mutes {
        code.set(long_pause);
        time_escape(&mut code);
        code.jump(write);
    }

    code.set(give_up);
    code.put(&[str(ZR, X16, BLOCK_BUSY as u32)]);
    code.set(slow);
    restore(&mut code);
    frame.push((code.size(), 0));
    code.put(&far_jump(parameters.runtime.enter_slow));
    Some((code.finish()?, frame))
}

/// Gives up where the chunk has no room for a record; changes [`TOP`] and [`DELTA`].
fn check_room(code: &mut Code, give_up: Label) {
    code.put(&[
        ldr(TOP, CURSOR, cursor(CURSOR_NEXT)),
        ldr(DELTA, CURSOR, cursor(CURSOR_END)),
        cmp(TOP, DELTA),
    ]);
    code.jump_if(Condition::Hs, give_up);
}

fn exit_hook(parameters: &Parameters, kind: HookKind) -> Option<Made> {
    let mut code = Code::default();
    let give_up = code.label();
    let long_pause = code.label();
    let write = code.label();
    let mutes = kind == HookKind::Mute;
    begin(&mut code, parameters)?;
    if !mutes {
        check_room(&mut code, give_up);
    }
    code.put(&[
        ldr(TOP, RECORD, RECORD_TOP as u32),
        ldr(DELTA, TOP, ENTRY_SLOT as u32),
        add(X17, SP, SLOT),
        cmp(DELTA, X17),
    ]);
    code.jump_if(Condition::Ne, give_up);
    // Where stacks are copied, several suspended calls have the same slot. The frame pointer tells some of them apart.
    code.put(&[
        ldr(DELTA, TOP, ENTRY_FRAME as u32),
        cmp(DELTA, FRAME_POINTER),
    ]);
    code.jump_if(Condition::Ne, give_up);
    // A hook that was left by a jump may have recorded half of its work. Then the runtime has to see the busy word.
    code.put(&[ldr(X17, X16, BLOCK_BUSY as u32)]);
    code.jump_if_not_zero(X17, give_up);
    // A handler may have called functions and returned meanwhile. Then the top is as it was, and the chunk's margin is
    // wide enough.
    code.put(&[
        add(X17, SP, 0),
        str(X17, X16, BLOCK_BUSY as u32),
        ldr(X17, TOP, ENTRY_RETURN as u32),
    ]);
    if kind.saves(&parameters.options) {
        restore_gate(&mut code);
        code.put(&[add_pages(RECORD, CURSOR, 1)]);
    }
    if mutes {
        code.put(&[str(ZR, X16, BLOCK_MUTED as u32)]);
    }
    code.put(&[
        sub(TOP, TOP, ENTRY_SIZE as u32),
        str(TOP, RECORD, RECORD_TOP as u32),
    ]);
    if !mutes {
        read_clock(&mut code, parameters);
        code.jump_if(Condition::Hs, long_pause);
        code.set(write);
        code.put(&[
            str(TOP, CURSOR, cursor(CURSOR_TIME)),
            ldr(TOP, CURSOR, cursor(CURSOR_NEXT)),
            mov(RECORD, 1),
            orr_twice_w(RECORD, RECORD, DELTA),
            stur_h(RECORD, TOP, 0),
            add(TOP, TOP, 2),
            str(TOP, CURSOR, cursor(CURSOR_NEXT)),
        ]);
    }
    finish(&mut code);
    let mut frame = vec![(4, FRAME), (code.size() - 4, 0), (code.size(), FRAME)];

    if !mutes {
        code.set(long_pause);
        time_escape(&mut code);
        code.jump(write);
    }

    code.set(give_up);
    restore(&mut code);
    frame.push((code.size(), 0));
    code.put(&far_jump(parameters.runtime.exit_slow));
    Some((code.finish()?, frame))
}
