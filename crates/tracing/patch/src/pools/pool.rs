//! A pool: a small ELF shared object with the thunks for a module, linked for one address near it.
//!
//! ```text
//! headers | hooks | thunks | displaced code, and code in front of thunks | data | unwind tables, sections
//! ```

use super::hooks::{HookKind, HookOptions, HotCode, Parameters};
use super::pool_file::{SECTIONS_SIZE, frames_address, pool_file};
use super::thunks::{Body, Pool, PoolError, ThunkPart, ThunkRequest, Work};
use super::unwinding::{Layout, tables};
use crate::analysis::observed::observed_for;
use crate::arch::{Code, Thunks};
use crate::values::Fetches;
use dioptra_filters::Probe;
use dioptra_tracelayout::message::{RuntimeAddresses, thread};
use std::collections::HashMap;

/// The size of a thunk in bytes.
pub const THUNK_SIZE: u64 = thread::THUNK_SIZE as u64;

/// The code of a sampled function's probe site.
///
/// The ordinary way is the code for calls that are neither chosen nor a thread's first. It lies apart from the rest,
/// within as few cache lines as it fits in: with a thousand functions, it is the fetching of code that takes time.
#[derive(Debug)]
pub struct Front {
    /// The ordinary way, which sites jump to.
    pub way: Vec<u8>,
    /// The code for all other cases, to be placed aside.
    pub aside: Vec<u8>,
    /// The size in bytes of the jump to the body with which the ordinary way ends, if it does. The jump is left out if
    /// the body follows.
    pub jump: Option<u64>,
}

/// The addresses of the parts of a [`Front`].
#[derive(Clone, Copy, Debug)]
pub struct Places {
    /// The address of [`Front::way`].
    pub way: u64,
    /// The address of [`Front::aside`].
    pub aside: u64,
}

/// Returns the number of thunks of some functions.
fn count<A: Code>(wanted: &[ThunkRequest<A>]) -> u64 {
    wanted.iter().map(|wanted| wanted.thunks().0).sum()
}

/// Returns the number of functions whose calls are sampled.
fn sampled<A: Code>(wanted: &[ThunkRequest<A>]) -> u64 {
    let sampled = wanted.iter().filter(|wanted| wanted.work.is_sampled());
    sampled.count() as u64
}

/// Returns the largest size in bytes of the address space that a pool with these thunks takes.
pub fn upper_bound<A: Thunks>(wanted: &[ThunkRequest<A>], page: u64) -> u64 {
    let displaced = wanted
        .iter()
        .filter(|wanted| !matches!(wanted.body, Body::At(_)))
        .count() as u64;
    let count = count(wanted);
    let frames = 4096 + count * 80;
    (page
        + A::HOT_SIZE
        + count * (THUNK_SIZE + A::GATE_SIZE)
        + sampled(wanted) * A::STUB_SIZE.1
        + displaced * A::MAX_DISPLACED
        + frames
        + SECTIONS_SIZE
        + 4 * page)
        .next_multiple_of(page)
}

/// Fills code up to a size.
fn fill<A: Thunks>(code: &mut Vec<u8>, size: usize) {
    let size = size.max(code.len());
    match A::FILL {
        [byte] => code.resize(size, *byte),
        _ => code.extend(A::FILL.iter().cycle().take(size - code.len())),
    }
}

/// Fills code up to a multiple of some bytes.
fn align<A: Thunks>(code: &mut Vec<u8>, bytes: usize) {
    fill::<A>(code, code.len().next_multiple_of(bytes));
}

/// Returns a number in the form in which it follows a thunk.
pub fn numbers<A: Thunks>(number: u32) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    fill::<A>(&mut bytes, THUNK_SIZE as usize);
    bytes
}

/// Makes the pool for these thunks at `address`. `page` is the size of a page in bytes.
///
/// # Errors
/// [`PoolError`]
pub fn pool<A: Thunks>(
    (address, page): (u64, u64),
    wanted: &[ThunkRequest<A>],
    runtime: RuntimeAddresses,
    options: HookOptions,
) -> Result<Pool, PoolError> {
    let range = address..address + upper_bound(wanted, page);
    let code_start = address + page;
    let first_thunk = code_start + A::HOT_SIZE;
    let count = count(wanted);
    let displaced_start = first_thunk + count * THUNK_SIZE;
    let hot = A::hot_code(&Parameters {
        address: code_start,
        runtime,
        thunks: (first_thunk, displaced_start),
        options,
    })?;
    if hot.bytes.len() as u64 > A::HOT_SIZE {
        return Err(PoolError::Size);
    }
    let mut code = hot.bytes.clone();
    fill::<A>(&mut code, A::HOT_SIZE as usize);
    let (aside_size, stub_size) = A::STUB_SIZE;
    // The stubs' code aside comes first.
    let mut displaced = Vec::new();
    fill::<A>(&mut displaced, (sampled(wanted) * aside_size) as usize);
    let mut stubs = 0;
    let mut thunks = Vec::with_capacity(wanted.len());
    let mut taken: HashMap<u64, u64> = HashMap::new();
    for wanted in wanted {
        let at = code_start + code.len() as u64;
        let aside = displaced_start + stubs * aside_size;
        let has_stub = stub_size > 0 && wanted.work.is_sampled();
        let stub = |way, body| A::stub(wanted, Places { way, aside }, at, body, &runtime, options);
        // The address of the gate or stub, if the body follows it.
        let before = match &wanted.body {
            Body::Displaced(prologue) if A::may_follow(prologue) => {
                let end = displaced_start + displaced.len() as u64;
                let size = match wanted.work {
                    Work::Trace(..) if !has_stub => A::SHORT_GATE_SIZE.filter(|_| options.hides),
                    _ => stub(end, aside).and_then(|stub| Some(stub.way.len() as u64 - stub.jump?)),
                };
                size.map(|size| {
                    let place = in_few_lines(end, size);
                    fill::<A>(&mut displaced, (place + size - displaced_start) as usize);
                    place
                })
            }
            _ => None,
        };
        let place = displaced_start + displaced.len() as u64;
        let body = match &wanted.body {
            Body::At(address) => Some(*address),
            Body::Displaced(prologue) => {
                let thunk = |place| taken.get(&place).copied();
                A::displace(prologue, place, &range, thunk).map(|(bytes, start)| {
                    displaced.extend(bytes);
                    align::<A>(&mut displaced, 8);
                    place + start
                })
            }
            Body::Pointer(pointer) => A::through_pointer(place, *pointer).map(|jump| {
                displaced.extend(jump);
                place
            }),
        };
        let bytes = body.and_then(|body| match wanted.work {
            Work::Trace(function, probe) => {
                thunks_of::<A>(at, (function, probe), wanted.values.as_deref(), body, &hot)
            }
            Work::Observe(_) | Work::Tell(..) => {
                A::observer(at, wanted.work.told(&options)?, hot.observe, body)
            }
            Work::Replace(target) => Some(A::far_jump(target)),
        });
        let (count, first) = wanted.thunks();
        let without = at + first * THUNK_SIZE;
        let end = displaced_start + displaced.len() as u64;
        let front = match (wanted.work, body) {
            (Work::Trace(_, probe), Some(body)) if options.hides && !has_stub => {
                let place = before.unwrap_or(end);
                let gate = A::gate(place, HookKind::of(probe), without, body, &runtime);
                gate.map(|gate| (place, gate))
            }
            (Work::Observe(function), Some(body)) => {
                let values = observed_for::<A>(function);
                A::asks(end, values, without, body).map(|asks| (end, asks))
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
        let thunk = bytes
            .as_ref()
            .map(|_| front.as_ref().map_or(without, |(place, _)| *place));
        if let Some(thunk) = thunk {
            taken.extend(wanted.places.iter().map(|place| (*place, thunk)));
        }
        thunks.push(thunk);
        code.extend(bytes.unwrap_or_default());
        fill::<A>(&mut code, (at - code_start + count * THUNK_SIZE) as usize);
        if let Some((place, bytes)) = front {
            let first = (place - displaced_start) as usize;
            let end = first + bytes.len();
            let size = displaced.len().max(end);
            fill::<A>(&mut displaced, size);
            displaced[first..end].copy_from_slice(&bytes);
            align::<A>(&mut displaced, A::FRONT_ALIGN);
        }
    }
    let displaced_end = displaced_start + displaced.len() as u64;
    code.extend(displaced);
    let code_end = code_start + code.len() as u64;
    let layout = Layout {
        hooks: &hot.hooks,
        thunks: (first_thunk, count),
        displaced: (displaced_start, displaced_end),
        runtime,
    };
    let tables = tables::<A>(frames_address(code_end, page), &layout)?;
    let (file, size) = pool_file(A::MACHINE, (address, page), (code_start, &code), &tables)?;
    Ok(Pool { size, file, thunks })
}

/// Returns the thunks at `at` of a traced function; `None` if something is out of reach.
fn thunks_of<A: Thunks>(
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
                A::thunk(at, function, hooks, body)?
            }
            ThunkPart::Slot => numbers::<A>(probe.sampling().map_or(0, |sampling| sampling.slot)),
            ThunkPart::JudgeNumbers => A::judge_numbers(probe.sampling()?)?,
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
