//! A pool: a small ELF shared object with the thunks for a module, linked for one address near it.
//!
//! It has no symbols and no relocations. The dynamic linker takes the address for which it is linked as a wish, and
//! grants it where memory is free; that it has been granted is checked by whoever loads it.

use super::cfi::{self, Hook, Layout};
use super::count::{self, MAX_COUNT, Ways};
use super::displace::Prologue;
use super::hot::{
    HOT_SIZE, HookCode, HookKind, HookOptions, HotCode, Parameters, RETURN, hot_code,
};
use super::sections::{self, Contents, sections};
use super::thunk::{
    GATE_SIZE, HOOK_RETURN, THUNK_SIZE, distance, far_jump, gate, judge_numbers, observer, slot,
    thunk,
};
use dioptra_filters::{SampleKind, Sampling};
use dioptra_tracelayout::message::thread::{COUNTED_TO_CHOSEN, COUNTED_TO_MUTED};
use dioptra_tracelayout::message::{Observed, RuntimeAddresses};
use iced_x86::IcedError;
use std::collections::HashMap;
use thiserror::Error;

const PAGE: u64 = 4096;
/// The ELF header and seven program headers.
const HEADERS: u64 = 64 + 7 * 56;
/// The most bytes that displaced instructions take: jumps that do not reach become longer.
const MAX_DISPLACED: u64 = 160;

/// What a probe site's thunk goes on with.
#[derive(Clone, Debug)]
pub enum Body {
    /// The code at an address.
    At(u64),
    /// Displaced instructions, and then the rest of the function.
    Displaced(Prologue),
    /// What the pointer at an address leads to.
    Pointer(u64),
}

/// What a thunk does.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// It traces the function with this id, with hooks of this kind.
    Trace(u32, HookKind),
    /// It traces chosen calls of the function with this id, with hooks of this kind; those of a filter
    /// ([`HookKind::Chosen`]) with what they call.
    Sample(u32, HookKind, Sampling),
    /// It traces calls of the function with this id, with what they call; they are judged at their ends.
    Judge(u32, Sampling),
    /// It tells the runtime of a call.
    Observe(Observed),
    /// It leads to another function, and the body is not called.
    Replace(u64),
}

impl Work {
    /// How many thunks it takes, those that hold a slot's number behind others included.
    fn thunks(self) -> u64 {
        match self {
            // What is chosen, and what the runtime counts, each followed by the slot; and what is muted.
            Work::Sample(_, HookKind::Chosen, _) => 5,
            Work::Sample(..) => 4,
            // What belongs to an execution around it; what is judged, followed by its numbers.
            Work::Judge(..) => 3,
            _ => 1,
        }
    }
}

/// A thunk that is wanted.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// What it does.
    pub work: Work,
    /// What it calls.
    pub body: Body,
    /// Places from which it is called: those of them that are displaced behind this one call it, too.
    pub places: Vec<u64>,
}

/// Why a pool could not be made.
#[derive(Debug, Error)]
pub enum PoolError {
    /// The hooks could not be assembled.
    #[error("generating the tracer's hooks: {0}")]
    Hooks(#[from] IcedError),
    /// They did not come out as expected.
    #[error("generating the tracer's hooks: they are not as large as they should be")]
    Size,
}

/// A pool.
#[derive(Debug)]
pub struct Pool {
    /// The file.
    pub file: Vec<u8>,
    /// Its size in memory.
    pub size: u64,
    /// Where the sites jump to: the thunks' addresses or those of gates in front of them; `None` where the body could not be reached.
    pub thunks: Vec<Option<u64>>,
}

/// How much address space a pool for so many thunks may need.
pub fn upper_bound(wanted: &[Wanted]) -> u64 {
    let displaced = wanted
        .iter()
        .filter(|wanted| !matches!(wanted.body, Body::At(_)))
        .count() as u64;
    let count: u64 = wanted.iter().map(|wanted| wanted.work.thunks()).sum();
    let is_sampled = |wanted: &&Wanted| matches!(wanted.work, Work::Sample(..) | Work::Judge(..));
    let sampled = wanted.iter().filter(is_sampled).count() as u64;
    let frames = 4096 + count * 80;
    (PAGE
        + HOT_SIZE
        + count * (THUNK_SIZE + GATE_SIZE)
        + sampled * MAX_COUNT
        + displaced * MAX_DISPLACED
        + frames
        + sections::SIZE
        + 4 * PAGE)
        .next_multiple_of(PAGE)
}

/// Makes the pool for these thunks at `address`.
///
/// # Errors
/// [`PoolError`]
pub fn pool(
    address: u64,
    wanted: &[Wanted],
    runtime: RuntimeAddresses,
    options: HookOptions,
) -> Result<Pool, PoolError> {
    let code_start = address + PAGE;
    let first_thunk = code_start + HOT_SIZE;
    let count: u64 = wanted.iter().map(|wanted| wanted.work.thunks()).sum();
    let displaced_start = first_thunk + count * THUNK_SIZE;
    let hot = hot_code(&Parameters {
        address: code_start,
        runtime,
        thunks: (first_thunk, displaced_start),
        options,
    })?;
    if hot.bytes.len() as u64 > HOT_SIZE {
        return Err(PoolError::Size);
    }
    let mut code = hot.bytes.clone();
    code.resize(HOT_SIZE as usize, 0xcc);
    let mut displaced = Vec::new();
    let mut thunks = Vec::with_capacity(wanted.len());
    let mut taken: HashMap<u64, u64> = HashMap::new();
    for wanted in wanted {
        let at = code_start + code.len() as u64;
        let body = match &wanted.body {
            Body::At(address) => Some(*address),
            Body::Displaced(prologue) => {
                let place = displaced_start + displaced.len() as u64;
                let prologue = prologue.redirect(|place| taken.get(&place).copied());
                prologue.encode(place).ok().map(|bytes| {
                    displaced.extend(bytes);
                    let rest = displaced.len().next_multiple_of(8);
                    displaced.resize(rest, 0xcc);
                    place + prologue.constants()
                })
            }
            Body::Pointer(pointer) => {
                let place = displaced_start + displaced.len() as u64;
                distance(place + 6, *pointer).map(|[a, b, c, d]| {
                    // jmp [rip + distance]
                    displaced.extend([0xff, 0x25, a, b, c, d, 0xcc, 0xcc]);
                    place
                })
            }
        };
        let bytes = body.and_then(|body| match wanted.work {
            Work::Trace(function, kind) => Some(thunk(at, function, kind, body, &hot)?.to_vec()),
            Work::Sample(function, kind, sampling) => {
                let ways = ways(at, kind, body);
                let (counted, muted) = match kind {
                    HookKind::Chosen => (HookKind::CountTree, ways.muted),
                    _ => (HookKind::CountCall, None),
                };
                let slot = slot(sampling.slot);
                let mut bytes = thunk(at, function, kind, body, &hot)?.to_vec();
                bytes.extend(slot);
                bytes.extend(thunk(ways.counted, function, counted, body, &hot)?);
                bytes.extend(slot);
                if let Some(at) = muted {
                    bytes.extend(thunk(at, function, HookKind::Mute, body, &hot)?);
                }
                Some(bytes)
            }
            Work::Judge(function, sampling) => {
                let judged = at + THUNK_SIZE;
                let mut bytes = thunk(at, function, HookKind::Filter, body, &hot)?.to_vec();
                bytes.extend(thunk(judged, function, HookKind::JudgeTree, body, &hot)?);
                bytes.extend(judge_numbers(sampling)?);
                Some(bytes)
            }
            Work::Observe(function) => {
                Some(observer(at, function as u32, runtime.observe, body)?.to_vec())
            }
            Work::Replace(target) => Some(far_jump(target).to_vec()),
        });
        let size = (wanted.work.thunks() * THUNK_SIZE) as usize;
        let place = displaced_start + displaced.len() as u64;
        let front = match (wanted.work, body) {
            (Work::Trace(_, kind), Some(body)) if options.hides => {
                gate(place, kind, at, body, &runtime).map(|gate| gate.to_vec())
            }
            // The runtime finds out itself what is hidden.
            (Work::Sample(_, _, sampling), _)
                if options.other_clock && sampling.kind == SampleKind::Rate =>
            {
                None
            }
            (Work::Sample(_, kind, sampling), Some(body)) => {
                let ways = ways(at, kind, body);
                count::count(place, sampling, options.hides, &ways, &runtime)
            }
            (Work::Judge(_, sampling), Some(body)) => {
                let thunks = (at + THUNK_SIZE, at);
                count::judge(place, sampling.tail, body, thunks, &runtime)
            }
            _ => None,
        };
        let without = match wanted.work {
            Work::Sample(_, kind, _) => ways(at, kind, 0).counted,
            Work::Judge(..) => at + THUNK_SIZE,
            _ => at,
        };
        let thunk = bytes
            .as_ref()
            .map(|_| if front.is_some() { place } else { without });
        if let Some(thunk) = thunk {
            taken.extend(wanted.places.iter().map(|place| (*place, thunk)));
        }
        thunks.push(thunk);
        code.extend(bytes.unwrap_or_default());
        code.resize((at - code_start) as usize + size, 0xcc);
        displaced.extend(front.unwrap_or_default());
    }
    let displaced_end = displaced_start + displaced.len() as u64;
    code.extend(displaced);

    let data_start = (code_start + code.len() as u64).next_multiple_of(PAGE);
    let frames_start = data_start + PAGE;
    let hooks: Vec<Hook> = hot
        .hooks
        .iter()
        .map(|code| hook(&hot, code_start, *code))
        .collect();
    let layout = |header| Layout {
        frames: frames_start,
        header,
        hooks: &hooks,
        thunks: (first_thunk, count),
        displaced: (displaced_start, displaced_end),
        runtime,
    };
    // The frames' size does not depend on where the header is.
    let frames_size = cfi::tables(&layout(frames_start)).frames.len() as u64;
    let header_start = (frames_start + frames_size).next_multiple_of(8);
    let tables = cfi::tables(&layout(header_start));
    let contents = Contents {
        address,
        code: (code_start, code_start + code.len() as u64),
        frames: (frames_start, frames_start + frames_size),
    };
    let sections_start = (header_start + tables.header.len() as u64).next_multiple_of(8);
    let (sections, section_headers) = sections(sections_start, &contents);
    let end = sections_start + sections.len() as u64;

    let mut file = vec![0; (end - address) as usize];
    let mut put = |at: u64, bytes: &[u8]| {
        let at = (at - address) as usize;
        file[at..at + bytes.len()].copy_from_slice(bytes);
    };
    put(
        address,
        &headers(
            &contents,
            data_start,
            (header_start, sections_start),
            end,
            section_headers,
        ),
    );
    put(code_start, &code);
    put(data_start, &dynamic(data_start));
    put(frames_start, &tables.frames);
    put(header_start, &tables.header);
    put(sections_start, &sections);
    Ok(Pool {
        size: (end - address).next_multiple_of(PAGE),
        file,
        thunks,
    })
}

const _: () = {
    assert!(COUNTED_TO_CHOSEN == -HOOK_RETURN - 2 * THUNK_SIZE as i64);
    assert!(COUNTED_TO_MUTED == -HOOK_RETURN + 2 * THUNK_SIZE as i64);
};

/// Where calls of a sampled function go on that has its thunks from `at` on.
fn ways(at: u64, kind: HookKind, body: u64) -> Ways {
    Ways {
        body,
        chosen: at,
        counted: at + 2 * THUNK_SIZE,
        muted: (kind == HookKind::Chosen).then_some(at + 4 * THUNK_SIZE),
    }
}

/// A hook's code, as far as unwinders have to know it.
fn hook(hot: &HotCode, code: u64, at: HookCode) -> Hook {
    const POPS: &[u8] = &[0x41, 0x5b, 0x5a, 0x58, RETURN[0], RETURN[1]];
    let first = (at.start - code) as usize;
    let last = (at.end - code) as usize;
    let code = hot.bytes.get(first..last).unwrap_or_default();
    let pops = code
        .windows(POPS.len())
        .position(|window| window == POPS)
        // It leaves by a jump, with what it has put there.
        .unwrap_or(code.len());
    Hook {
        start: at.start,
        end: at.end,
        pops: at.start + pops as u64,
        framed: at.framed,
    }
}

fn dynamic(start: u64) -> Vec<u8> {
    const DT_NULL: u64 = 0;
    const DT_STRTAB: u64 = 5;
    const DT_SYMTAB: u64 = 6;
    const DT_STRSZ: u64 = 10;
    const DT_SYMENT: u64 = 11;
    // One empty symbol, one empty name.
    let symbols = start + DYNAMIC_SIZE;
    let strings = symbols + 24;
    [
        (DT_STRTAB, strings),
        (DT_SYMTAB, symbols),
        (DT_STRSZ, 1),
        (DT_SYMENT, 24),
        (DT_NULL, 0),
    ]
    .iter()
    .flat_map(|(tag, value)| [tag.to_le_bytes(), value.to_le_bytes()])
    .flatten()
    .chain([0; 32])
    .collect()
}

const DYNAMIC_SIZE: u64 = 5 * 16;

fn headers(contents: &Contents, data: u64, header: (u64, u64), end: u64, sections: u64) -> Vec<u8> {
    let address = contents.address;
    let (code, code_end) = contents.code;
    let frames = contents.frames.0;
    const LOAD: u32 = 1;
    const DYNAMIC: u32 = 2;
    const GNU_EH_FRAME: u32 = 0x6474_e550;
    const GNU_STACK: u32 = 0x6474_e551;
    const R: u32 = 4;
    const RW: u32 = 6;
    const RX: u32 = 5;
    let data_size = DYNAMIC_SIZE + 32;
    let segments = [
        (LOAD, R, address, HEADERS, PAGE),
        (LOAD, RX, code, code_end - code, PAGE),
        (LOAD, RW, data, data_size, PAGE),
        (LOAD, R, frames, end - frames, PAGE),
        (DYNAMIC, RW, data, DYNAMIC_SIZE, 8),
        (GNU_EH_FRAME, R, header.0, header.1 - header.0, 4),
        (GNU_STACK, RW, address, 0, 16),
    ];
    let mut bytes = Vec::with_capacity(HEADERS as usize);
    bytes.extend(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    // A shared object for x86-64.
    bytes.extend(3_u16.to_le_bytes());
    bytes.extend(62_u16.to_le_bytes());
    bytes.extend(1_u32.to_le_bytes());
    bytes.extend(0_u64.to_le_bytes());
    bytes.extend(64_u64.to_le_bytes());
    bytes.extend((sections - address).to_le_bytes());
    bytes.extend(0_u32.to_le_bytes());
    for half in [
        64_u16,
        56,
        segments.len() as u16,
        64,
        sections::SECTIONS,
        sections::NAMES,
    ] {
        bytes.extend(half.to_le_bytes());
    }
    for (kind, flags, start, size, align) in segments {
        bytes.extend(kind.to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        let (offset, start) = match kind {
            GNU_STACK => (0, 0),
            _ => (start - address, start),
        };
        for word in [offset, start, start, size, size, align] {
            bytes.extend(word.to_le_bytes());
        }
    }
    bytes
}
