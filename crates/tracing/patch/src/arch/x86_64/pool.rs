//! A pool: a small ELF shared object with the thunks for a module, linked for one address near it.
//!
//! A pool has no dynamic symbols and no relocations. The dynamic linker takes the address for which a pool is linked as
//! a wish, and grants it where memory is free. The code that loads the pool checks whether it was granted.

use super::X86_64;
use super::cfi::{self, Hook, Layout};
use super::count::{self, MAX_ASIDE, MAX_WAY, Places, Stub, Ways};
use super::hot::{HOT_SIZE, HookCode, HotCode, Parameters, RETURN, hot_code};
use super::thunk::{
    GATE_SIZE, HOOK_RETURN, SHORT_GATE_SIZE, THUNK_SIZE, asks, distance, far_jump, gate,
    judge_numbers, observer, slot, thunk,
};
use crate::analysis::observed::observed_for;
use crate::pools::hooks::{HookKind, HookOptions};
use crate::pools::pool_file::pool_file;
use crate::pools::sections;
use crate::pools::thunks::{Body, Pool, PoolError, ThunkPart, ThunkRequest, Work};
use crate::values::Fetches;
use dioptra_filters::{Probe, SampleKind};
use dioptra_tracelayout::message::RuntimeAddresses;
use dioptra_tracelayout::message::thread::{COUNTED_TO_CHOSEN, COUNTED_TO_MUTED};
use object::elf::EM_X86_64;
use std::collections::HashMap;

/// The largest size of displaced instructions in bytes. Jumps that do not reach become longer.
const MAX_DISPLACED: u64 = 160;

/// Returns the largest size in bytes of the address space that a pool with these thunks takes.
pub fn upper_bound(wanted: &[ThunkRequest<X86_64>], page: u64) -> u64 {
    let displaced = wanted
        .iter()
        .filter(|wanted| !matches!(wanted.body, Body::At(_)))
        .count() as u64;
    let count: u64 = wanted.iter().map(|wanted| wanted.thunks().0).sum();
    let sampled = sampled(wanted);
    let frames = 4096 + count * 80;
    (page
        + HOT_SIZE
        + count * (THUNK_SIZE + 2 * GATE_SIZE)
        + sampled * (MAX_ASIDE + 2 * MAX_WAY)
        + displaced * MAX_DISPLACED
        + frames
        + sections::SIZE
        + 4 * page)
        .next_multiple_of(page)
}

/// Returns the number of thunks that have a stub.
fn sampled(wanted: &[ThunkRequest<X86_64>]) -> u64 {
    let sampled = wanted.iter().filter(|wanted| wanted.work.is_sampled());
    sampled.count() as u64
}

/// Makes the pool for these thunks at `address`.
///
/// # Errors
/// [`PoolError`]
pub fn pool(
    address: u64,
    wanted: &[ThunkRequest<X86_64>],
    runtime: RuntimeAddresses,
    options: HookOptions,
    page: u64,
) -> Result<Pool, PoolError> {
    let range = address..address + upper_bound(wanted, page);
    let code_start = address + page;
    let first_thunk = code_start + HOT_SIZE;
    let count: u64 = wanted.iter().map(|wanted| wanted.thunks().0).sum();
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
    // The stubs' code aside comes first.
    let mut displaced = vec![0xcc; (sampled(wanted) * MAX_ASIDE) as usize];
    let mut stubs = 0;
    let mut thunks = Vec::with_capacity(wanted.len());
    let mut taken: HashMap<u64, u64> = HashMap::new();
    for wanted in wanted {
        let at = code_start + code.len() as u64;
        let aside = displaced_start + stubs * MAX_ASIDE;
        let stub = |way, body| {
            stub(
                (wanted.work, wanted.is_leaf),
                Places { way, aside },
                at,
                body,
                &runtime,
                options,
            )
        };
        // The address of the gate or stub, if the body follows it.
        let before = match &wanted.body {
            Body::Displaced(prologue) if prologue.call().is_none() => {
                let end = displaced_start + displaced.len() as u64;
                let size = match wanted.work {
                    Work::Trace(..) if !wanted.work.is_sampled() => {
                        options.hides.then_some(SHORT_GATE_SIZE)
                    }
                    _ => stub(end, aside)
                        .filter(|stub| stub.goes_on)
                        .map(|stub| stub.way.len() as u64 - count::JUMP),
                };
                size.map(|size| {
                    let place = in_few_lines(end, size);
                    displaced.resize((place + size - displaced_start) as usize, 0xcc);
                    place
                })
            }
            _ => None,
        };
        let body = match &wanted.body {
            Body::At(address) => Some(*address),
            Body::Displaced(prologue) => {
                let place = displaced_start + displaced.len() as u64;
                let prologue = prologue.redirect(|place| taken.get(&place).copied());
                prologue.encode(place, &range).ok().map(|code| {
                    displaced.extend(code.bytes);
                    let rest = displaced.len().next_multiple_of(8);
                    displaced.resize(rest, 0xcc);
                    place + code.start
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
            Work::Trace(function, probe) => {
                thunks_of(at, (function, probe), wanted.values.as_deref(), body, &hot)
            }
            Work::Observe(_) | Work::Tell(..) => {
                let operand = wanted.work.told(&options)?;
                Some(observer(at, operand, runtime.observe, body)?.to_vec())
            }
            Work::Replace(target) => Some(far_jump(target).to_vec()),
        });
        let (count, first) = wanted.thunks();
        let size = (count * THUNK_SIZE) as usize;
        let end = displaced_start + displaced.len() as u64;
        let front = match (wanted.work, body) {
            (Work::Trace(_, probe), Some(body)) if options.hides && !wanted.work.is_sampled() => {
                let place = before.unwrap_or(end);
                let gate = gate(place, HookKind::of(probe), at, body, &runtime);
                gate.map(|gate| (place, gate))
            }
            (Work::Observe(function), Some(body)) => {
                let values = observed_for::<X86_64>(function);
                asks(end, values, at, body).map(|asks| (end, asks))
            }
            (_, Some(body)) => {
                let size = stub(end, body).map_or(0, |stub| stub.way.len() as u64);
                let place = before.unwrap_or_else(|| in_few_lines(end, size));
                stub(place, body).map(|stub| {
                    let first = (aside - displaced_start) as usize;
                    displaced[first..first + stub.aside.len()].copy_from_slice(&stub.aside);
                    (place, stub.way)
                })
            }
            _ => None,
        };
        stubs += u64::from(wanted.work.is_sampled());
        let without = at + first * THUNK_SIZE;
        let thunk = bytes
            .as_ref()
            .map(|_| front.as_ref().map_or(without, |(place, _)| *place));
        if let Some(thunk) = thunk {
            taken.extend(wanted.places.iter().map(|place| (*place, thunk)));
        }
        thunks.push(thunk);
        code.extend(bytes.unwrap_or_default());
        code.resize((at - code_start) as usize + size, 0xcc);
        if let Some((place, bytes)) = front {
            let first = (place - displaced_start) as usize;
            let end = first + bytes.len();
            displaced.resize(displaced.len().max(end), 0xcc);
            displaced[first..end].copy_from_slice(&bytes);
        }
    }
    let displaced_end = displaced_start + displaced.len() as u64;
    code.extend(displaced);

    let hooks: Vec<Hook> = hot
        .hooks
        .iter()
        .map(|code| hook(&hot, code_start, *code))
        .collect();
    let (file, size) = pool_file(
        EM_X86_64,
        (address, page),
        (code_start, &code),
        |frames, header| {
            cfi::tables(&Layout {
                frames,
                header,
                hooks: &hooks,
                thunks: (first_thunk, count),
                displaced: (displaced_start, displaced_end),
                runtime,
            })
        },
    );
    Ok(Pool { size, file, thunks })
}

const _: () = {
    assert!(COUNTED_TO_CHOSEN == -HOOK_RETURN - 2 * THUNK_SIZE as i64);
    assert!(COUNTED_TO_MUTED == -HOOK_RETURN + 2 * THUNK_SIZE as i64);
};

/// Returns the stub of a sampled function whose thunks begin at `at`; `None` if there is none, or something is too far
/// away.
fn stub(
    (work, is_leaf): (Work, bool),
    places: Places,
    at: u64,
    body: u64,
    runtime: &RuntimeAddresses,
    options: HookOptions,
) -> Option<Stub> {
    let Work::Trace(_, probe) = work else {
        return None;
    };
    match probe {
        // The runtime finds out itself which calls are hidden.
        Probe::Sample(sampling) | Probe::SampleFilter(sampling)
            if options.other_clock && sampling.kind == SampleKind::Rate =>
        {
            None
        }
        Probe::Sample(sampling) | Probe::SampleFilter(sampling) => {
            let tree = probe.samples_trees();
            let ways = Ways {
                body,
                skipped: match tree && !is_leaf {
                    true => at + 4 * THUNK_SIZE,
                    false => body,
                },
                chosen: at,
                counted: at + 2 * THUNK_SIZE,
                tree,
            };
            count::count(places, sampling, options.hides, &ways, runtime)
        }
        Probe::JudgeFilter(sampling) => {
            let thunks = (at + THUNK_SIZE, at);
            count::judge(places, sampling.tail, body, thunks, runtime)
        }
        _ => None,
    }
}

/// Returns the thunks at `at` of a traced function; `None` if something is out of reach.
fn thunks_of(
    at: u64,
    (function, probe): (u32, Probe),
    values: Option<&Fetches>,
    body: u64,
    hot: &HotCode,
) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let (parts, _) = ThunkPart::all(probe, values.is_some());
    let list = parts.len() * THUNK_SIZE as usize;
    for (number, part) in parts.iter().enumerate() {
        let at = at + bytes.len() as u64;
        let mut part = match part {
            ThunkPart::Thunk(kind) => {
                let has_numbers =
                    !matches!(parts.get(number + 1), Some(ThunkPart::Thunk(_)) | None);
                let hooks = match values.filter(|_| has_numbers) {
                    Some(values) => hot.with_values(*kind, values),
                    None => hot.set(*kind),
                };
                thunk(at, function, hooks, body)?
            }
            ThunkPart::Slot => slot(probe.sampling().map_or(0, |sampling| sampling.slot)),
            ThunkPart::JudgeNumbers => judge_numbers(probe.sampling()?)?,
        };
        if let Some(values) = values
            && !matches!(parts.get(number), Some(ThunkPart::Thunk(_)))
        {
            values.put_numbers(&mut part, list - bytes.len())?;
        }
        bytes.extend(part);
    }
    bytes.extend(values.map_or(Vec::new(), Fetches::list));
    Some(bytes)
}

/// Returns the first address from `end` on where so many bytes of code are in as few cache lines as they fit in.
fn in_few_lines(end: u64, size: u64) -> u64 {
    const LINE: u64 = 64;
    let first = end % LINE;
    if (first + size).div_ceil(LINE) > size.div_ceil(LINE) {
        end.next_multiple_of(LINE)
    } else {
        end
    }
}

/// Returns a hook's code, as far as unwinders have to know it.
fn hook(hot: &HotCode, code: u64, at: HookCode) -> Hook {
    const POPS: &[u8] = &[0x41, 0x5b, 0x5a, 0x58, RETURN[0], RETURN[1]];
    let first = (at.start - code) as usize;
    let last = (at.end - code) as usize;
    let code = hot.bytes.get(first..last).unwrap_or_default();
    let pops = code
        .windows(POPS.len())
        .position(|window| window == POPS)
        // The hook leaves by a jump, and the registers stay on the stack.
        .unwrap_or(code.len());
    Hook {
        start: at.start,
        end: at.end,
        pops: at.start + pops as u64,
        framed: at.framed,
    }
}
