//! A pool: a small ELF shared object with the thunks for a module, linked for one address near it.

use super::Aarch64;
use super::cfi::{self, Layout, fill};
use super::encode::{FILL, bytes};
use super::hot::{HOT_SIZE, HotCode, Parameters, hot_code};
use super::thunk::{GATE_SIZE, THUNK_SIZE, asks, gate, observer, replacement, slot, thunk};
use crate::analysis::observed::observed_for;
use crate::pools::hooks::{HookKind, HookOptions};
use crate::pools::pool_file::pool_file;
use crate::pools::sections;
use crate::pools::thunks::{Body, Pool, PoolError, ThunkPart, ThunkRequest, Work};
use dioptra_filters::Probe;
use dioptra_tracelayout::message::RuntimeAddresses;
use dioptra_tracelayout::message::thread;
use object::elf::EM_AARCH64;

/// The largest size of displaced instructions in bytes.
const MAX_DISPLACED: u64 = 64;

const _: () = assert!(THUNK_SIZE as i64 == thread::THUNK_SIZE);

/// Returns the largest size in bytes of the address space that a pool with these thunks takes.
pub fn upper_bound(wanted: &[ThunkRequest<Aarch64>], page: u64) -> u64 {
    let displaced = wanted
        .iter()
        .filter(|wanted| !matches!(wanted.body, Body::At(_)))
        .count() as u64;
    let count: u64 = wanted.iter().map(|wanted| wanted.thunks().0).sum();
    let frames = 4096 + count * 80;
    (page
        + HOT_SIZE
        + count * (THUNK_SIZE + GATE_SIZE)
        + displaced * MAX_DISPLACED
        + frames
        + sections::SIZE
        + 4 * page)
        .next_multiple_of(page)
}

/// Makes the pool for these thunks at `address`.
///
/// # Errors
/// [`PoolError`]
pub fn pool(
    address: u64,
    wanted: &[ThunkRequest<Aarch64>],
    runtime: RuntimeAddresses,
    options: HookOptions,
    page: u64,
) -> Result<Pool, PoolError> {
    let code_start = address + page;
    let first_thunk = code_start + HOT_SIZE;
    let count: u64 = wanted.iter().map(|wanted| wanted.thunks().0).sum();
    let displaced_start = first_thunk + count * THUNK_SIZE;
    let hot = hot_code(&Parameters {
        address: code_start,
        runtime,
        options,
    })
    .ok_or(PoolError::Block)?;
    if hot.bytes.len() as u64 > HOT_SIZE {
        return Err(PoolError::Size);
    }
    let mut code = hot.bytes.clone();
    fill(&mut code, HOT_SIZE as usize);
    let mut displaced = Vec::new();
    let mut thunks = Vec::with_capacity(wanted.len());
    for wanted in wanted {
        let at = code_start + code.len() as u64;
        let place = displaced_start + displaced.len() as u64;
        let body = match &wanted.body {
            Body::At(address) => Some(*address),
            Body::Displaced(prologue) => prologue.encode(place).ok().map(|bytes| {
                displaced.extend(bytes);
                fill(&mut displaced, 8);
                place
            }),
            // Calls through pointers are found at their stubs, which are displaced. So there is no such body here.
            Body::Pointer(_) => None,
        };
        let words = body.and_then(|body| match wanted.work {
            Work::Trace(function, probe) => thunks_of(at, function, probe, body, &hot),
            Work::Observe(_) | Work::Tell(..) => {
                let operand = wanted.work.told(&options)?;
                Some(observer(at, operand, hot.observe, body)?.to_vec())
            }
            Work::Replace(target) => Some(replacement(target).to_vec()),
        });
        let (count, first) = wanted.thunks();
        let size = (count * THUNK_SIZE) as usize;
        let place = displaced_start + displaced.len() as u64;
        let first = at + first * THUNK_SIZE;
        let front = match (wanted.work, body, &words) {
            (Work::Trace(_, probe), Some(body), Some(_)) if options.hides => {
                gate(place, HookKind::of(probe), first, body, &runtime)
            }
            (Work::Observe(function), Some(body), Some(_)) => {
                asks(place, observed_for::<Aarch64>(function), first, body)
            }
            _ => None,
        };
        thunks.push(words.as_ref().map(|_| match front {
            Some(_) => place,
            None => first,
        }));
        code.extend(bytes(&words.unwrap_or_default()));
        let end = (at - code_start) as usize + size;
        while code.len() < end {
            code.extend(FILL.to_le_bytes());
        }
        displaced.extend(bytes(&front.unwrap_or_default()));
        fill(&mut displaced, 8);
    }
    let displaced_end = displaced_start + displaced.len() as u64;
    code.extend(displaced);
    let (file, size) = pool_file(
        EM_AARCH64,
        (address, page),
        (code_start, &code),
        |frames, header| {
            cfi::tables(&Layout {
                frames,
                header,
                hooks: &hot.hooks,
                thunks: (first_thunk, count),
                displaced: (displaced_start, displaced_end),
                runtime,
            })
        },
    );
    Ok(Pool { size, file, thunks })
}

/// Returns the thunks at `at` of a traced function; `None` if something is out of reach. The runtime judges, and knows
/// which calls lie within an execution.
fn thunks_of(at: u64, function: u32, probe: Probe, body: u64, hot: &HotCode) -> Option<Vec<u32>> {
    let mut words = Vec::new();
    for part in ThunkPart::all(probe, false).0 {
        let at = at + 4 * words.len() as u64;
        words.extend(match part {
            ThunkPart::Thunk(kind) => thunk(at, function, *kind, body, hot)?,
            ThunkPart::Slot | ThunkPart::JudgeNumbers => slot(probe.sampling()?.slot),
        });
    }
    Some(words)
}
