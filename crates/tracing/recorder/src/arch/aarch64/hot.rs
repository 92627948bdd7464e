//! The code that all thunks of a pool share: the hooks of entries and exits.
//!
//! What they do for a call: write a record (`dioptra_tracelayout::record`), and keep the return address on the thread's
//! shadow stack. Whatever is out of the ordinary they leave to the runtime, before they have changed anything; hooks of
//! sampled functions, and of calls that are taken back if they were short, leave all to it. But for `x16`, `x17` and the condition flags they change no register: compilers that
//! know all callers of a function rely on what it leaves alone.
//!
//! The hook of an entry finds the return address in `x17`, that of an exit puts it there; where they return to in the thunk,
//! in `x30`. A call's slot (`S`) lies 8 bytes below its frame, where on other machines the return address is:
//!
//! ```text
//! S-24 x9 | S-16 x10 | S-8 x11 | S x12 | S+8 the stack pointer at the call
//! ```
//!
//! A *busy* word in the thread's block keeps hooks of signal handlers away while one is at work.

use super::encode::{
    Code, Condition, LR, Label, RET, Register, SP, X16, X17, ZR, add, add_pages, bytes, cmp,
    counter, far_jump, ldp, ldr, ldr_w, low_bits, lsr, mov, mov_w, orr_shifted, orr_twice_w, pop,
    push, stp, str, stur, stur_h, stur_w, sub, sub_pages, sub_register,
};
use super::thunk::block;
use crate::pools::hooks::{HookKind, HookOptions};
use dioptra_tracelayout::message::RuntimeAddresses;
use dioptra_tracelayout::message::thread::{
    BLOCK_BUSY, BLOCK_HIDDEN, BLOCK_LEVEL, BLOCK_MUTED, BLOCK_RECORD, CURSOR_END, CURSOR_NEXT,
    CURSOR_TIME, ENTRY_FLAGS, ENTRY_FRAME, ENTRY_FUNCTION, ENTRY_MUTE, ENTRY_RETURN, ENTRY_SAVED,
    ENTRY_SIZE, ENTRY_SLOT, ENTRY_SPARE, RECORD_LIMIT, RECORD_TOP,
};
use dioptra_tracelayout::record::{ENTRY_ESCAPE, MAX_DELTA, TIME_ESCAPE};

/// What the code has to know.
#[derive(Clone, Copy, Debug)]
pub struct Parameters {
    /// Where the code will lie.
    pub address: u64,
    /// Of the runtime.
    pub runtime: RuntimeAddresses,
    /// What hooks do.
    pub options: HookOptions,
}

/// The hooks of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct HookSet {
    /// Of an entry whose id fits 16 bits and comes shifted left by 16.
    pub enter: u64,
    /// Of an entry with a larger id, which comes as it is and whose lower 16 bits are not 0.
    pub enter_large: u64,
    /// Of an exit.
    pub exit: u64,
}

/// A hook, as far as unwinders have to know it.
#[derive(Clone, Debug)]
pub struct Hook {
    /// Its first byte.
    pub start: u64,
    /// The first byte behind it.
    pub end: u64,
    /// From where on the stack pointer is how many bytes below the call's.
    pub frame: Vec<(u64, u8)>,
}

/// The code, and where its parts begin.
#[derive(Clone, Debug)]
pub struct HotCode {
    /// To be placed at [`Parameters::address`].
    pub bytes: Vec<u8>,
    sets: [HookSet; HookKind::ALL.len()],
    /// The hooks.
    pub hooks: Vec<Hook>,
    /// A jump to where the runtime is told of calls.
    pub observe: u64,
}

impl HotCode {
    /// The hooks of a kind.
    pub fn set(&self, kind: HookKind) -> HookSet {
        self.sets[kind as usize]
    }
}

/// How large it is at most: the pool is laid out before it is known.
pub const HOT_SIZE: u64 = 8192;

/// What hooks keep on the stack.
const FRAME: u8 = 32;
/// Where the call's slot is in a hook, from the stack pointer.
const SLOT: u32 = FRAME as u32 - 8;
/// The frame pointer.
const FRAME_POINTER: Register = 29;
/// The thread's record, then anything.
const RECORD: Register = 9;
/// The shadow stack's innermost entry, then the time.
const TOP: Register = 10;
/// Anything, then the time since the last record.
const DELTA: Register = 11;
/// The thread's cursor.
const CURSOR: Register = 12;
/// From where hooks of entries return to in the thunk, to its operand.
const OPERAND: u32 = 20;

/// Where a field of the cursor is in its page.
fn cursor(field: i64) -> u32 {
    (field + 4096) as u32
}

/// Generates the hooks; `None` if the thread's block is too far from the thread pointer.
pub fn hot_code(parameters: &Parameters) -> Option<HotCode> {
    let mut made = HotCode {
        bytes: Vec::new(),
        sets: [HookSet::default(); HookKind::ALL.len()],
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
                frame: frame
                    .into_iter()
                    .map(|(at, size)| (start + at, size))
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

/// Which hook.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Enter,
    EnterLarge,
    Exit,
}

/// Code, and from where on in it the stack pointer is how many bytes below the call's.
type Made = (Vec<u8>, Vec<(u64, u8)>);

/// A hook that leaves all to the runtime.
fn slow_hook(parameters: &Parameters, part: Part) -> Vec<u8> {
    let to = match part {
        Part::Exit => parameters.runtime.exit_slow,
        _ => parameters.runtime.enter_slow,
    };
    bytes(&far_jump(to))
}

/// Begins a hook: makes room, and finds the block, the record and the cursor.
fn begin(code: &mut Code, parameters: &Parameters) -> Option<()> {
    code.put(&[push(RECORD, TOP, FRAME.into()), stp(DELTA, CURSOR, SP, 16)]);
    code.put(&block(&parameters.runtime)?);
    code.put(&[
        ldr(RECORD, X16, BLOCK_RECORD as u32),
        sub_pages(CURSOR, RECORD, 1),
    ]);
    Some(())
}

/// Takes the registers back.
fn restore(code: &mut Code) {
    code.put(&[ldp(DELTA, CURSOR, SP, 16), pop(RECORD, TOP, FRAME.into())]);
}

/// The clock's reading in [`TOP`], the distance from the last record's in [`DELTA`], and flags for whether that is too much;
/// changes [`RECORD`].
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

/// Ends a hook: what is put behind it is only reached by jumps.
fn finish(code: &mut Code) {
    code.put(&[str(ZR, X16, BLOCK_BUSY as u32)]);
    restore(code);
    code.put(&[RET]);
}

/// A record that sets the clock to [`TOP`], and 0 in [`DELTA`].
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

/// What was in the block before, into the entry that comes; changes [`RECORD`] and [`DELTA`].
fn save_gate(code: &mut Code) {
    code.put(&[
        ldr(RECORD, X16, BLOCK_LEVEL as u32),
        ldr(DELTA, X16, BLOCK_HIDDEN as u32),
        orr_shifted(DELTA, DELTA, RECORD, 48),
        str(DELTA, TOP, (ENTRY_SIZE + ENTRY_SPARE) as u32),
    ]);
}

/// The same, back from the entry; changes [`RECORD`] and [`DELTA`].
fn restore_gate(code: &mut Code) {
    code.put(&[
        ldr(DELTA, TOP, ENTRY_SPARE as u32),
        lsr(RECORD, DELTA, 48),
        str(RECORD, X16, BLOCK_LEVEL as u32),
        low_bits(DELTA, DELTA, 48),
        str(DELTA, X16, BLOCK_HIDDEN as u32),
    ]);
}

/// What a call changes in the block for those within it; changes [`RECORD`] and [`DELTA`].
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
    // Room for the record, and for the call?
    if !mutes {
        check_room(&mut code, give_up);
    }
    code.put(&[
        ldr(TOP, RECORD, RECORD_TOP as u32),
        ldr(DELTA, RECORD, RECORD_LIMIT as u32),
        cmp(TOP, DELTA),
    ]);
    code.jump_if(Condition::Hs, give_up);
    // Callers lie above. What lies here or below is a function that ended in a jump to this one, or was left.
    code.put(&[add(DELTA, SP, SLOT), ldr(TOP, TOP, ENTRY_SLOT as u32)]);
    code.put(&[cmp(TOP, DELTA)]);
    code.jump_if(Condition::Ls, give_up);
    code.put(&[
        ldr(TOP, RECORD, RECORD_TOP as u32),
        str(DELTA, TOP, next + ENTRY_SLOT as u32),
        // Without flags.
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
            // {escape, kind, delta, id}: the id and the delta first.
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

/// Gives up where the chunk has no room for a record. It needs `TOP` and `DELTA`.
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
    // Where stacks are copied, several suspended calls have the same slot: the frame pointer tells some of them apart.
    code.put(&[
        ldr(DELTA, TOP, ENTRY_FRAME as u32),
        cmp(DELTA, FRAME_POINTER),
    ]);
    code.jump_if(Condition::Ne, give_up);
    // A hook that was left by a jump has perhaps recorded half of what it did: the runtime has to see its word.
    code.put(&[ldr(X17, X16, BLOCK_BUSY as u32)]);
    code.jump_if_not_zero(X17, give_up);
    // A handler may have called and returned meanwhile: that leaves the top as it was, and the chunk's margin is wide
    // enough.
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
