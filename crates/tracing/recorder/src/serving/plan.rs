//! The plan for a module of a process whose calls are to be traced: its pool and patches.

use super::loaded::LoadedPool;
use super::maps::page_size;
use super::maps::{MappedModule, Maps};
use crate::analysis::prepare::Prepared;
use crate::processor::{Native, Prologue};
use dioptra_filters::Probe;
use dioptra_trace_patch::{
    Arch, Body, Candidate, CandidateBody, HookKind, HookOptions, HookWork, ImportSite, PoolError,
    Prologue as _, ThunkRequest, Work,
};
use dioptra_tracelayout::message::{InstrumentedFunction, PATCH_SIZE, Patch, RuntimeAddresses};
use thiserror::Error;

/// The pool and the patches that make a module of a process traceable.
#[derive(Debug)]
pub struct ModulePlan {
    /// The pool's file; empty if no thunk is needed.
    pub pool: Vec<u8>,
    /// The address at which the pool must lie.
    pub pool_address: u64,
    /// The size of the pool in memory, in bytes.
    pub pool_size: u64,
    /// The patches to write, by address.
    pub patches: Vec<Patch>,
    /// Functions that call the runtime themselves.
    pub functions: Vec<InstrumentedFunction>,
    /// The pool, if the process has loaded it for the module before.
    pub loaded: Option<LoadedPool>,
}

/// The reason why a module can't be traced.
#[derive(Debug, Error)]
pub enum PlanError {
    /// The segments are not mapped as the file says.
    #[error("it is not mapped as its file says")]
    Mapping,
    /// No memory for thunks is free near the module.
    #[error("no memory is free near it")]
    Far,
    /// The thunks can't be made.
    #[error(transparent)]
    Pool(#[from] PoolError),
}

/// Makes the plan for a module of a process; `None` if there is nothing to do.
///
/// # Errors
/// [`PlanError`]
pub fn plan(
    prepared: &Prepared,
    module: &MappedModule,
    maps: &Maps,
    runtime: RuntimeAddresses,
    options: &HookOptions,
) -> Result<Option<ModulePlan>, PlanError> {
    let code = &prepared.code;
    let bias = module.bias(
        code.segments
            .iter()
            .map(|segment| (segment.offset, segment.address)),
    );
    let bias = bias.ok_or(PlanError::Mapping)?;
    let mut wanted = Vec::new();
    let mut sites: Vec<ThunkEntry<'_>> = Vec::new();
    let mut patches = Vec::new();
    let mut functions = Vec::new();
    for hook in &prepared.hooks {
        wanted.push(ThunkRequest {
            work: match hook.work {
                HookWork::Observe(function) => Work::Observe(function),
                HookWork::Execve => Work::Replace(runtime.execve),
            },
            body: Body::Displaced(hook.prologue.rebase(bias)),
            is_leaf: false,
            values: None,
            places: Vec::new(),
        });
        sites.push(ThunkEntry::At(hook.site, Some(&hook.prologue)));
    }
    // Functions' first instructions may call library functions through pointers, so those library functions come first.
    let is_called = |(candidate, _): &(&Candidate<Native>, _)| !candidate.calls.is_empty();
    let candidates = || code.candidates.iter().zip(&prepared.chosen);
    let others = candidates().filter(|candidate| !is_called(candidate));
    for (candidate, (probe, id)) in candidates().filter(is_called).chain(others) {
        if prepared
            .hooks
            .iter()
            .any(|hook| hook.site == candidate.site)
        {
            continue;
        }
        match probe {
            Probe::Skip => {
                if let Some(bytes) = candidate.neutral {
                    patches.extend(patch(candidate.site.wrapping_add(bias), bytes, maps));
                }
            }
            _ if matches!(candidate.body, CandidateBody::Itself) => {
                let sampling = probe.sampling();
                functions.push(InstrumentedFunction {
                    address: candidate.start.wrapping_add(bias),
                    id: *id,
                    kind: HookKind::of(*probe).bits(options) as u32,
                    slot: sampling.map_or(0, |sampling| sampling.slot),
                    sample: sampling.map_or(0, |sampling| sampling.kind as u32),
                });
            }
            _ => {
                wanted.push(ThunkRequest {
                    work: match candidate.is_told() {
                        true => Work::Tell(*id, *probe),
                        false => Work::Trace(*id, *probe),
                    },
                    body: match &candidate.body {
                        CandidateBody::At(address) => Body::At(address.wrapping_add(bias)),
                        CandidateBody::Displaced(prologue) => {
                            Body::Displaced(prologue.rebase(bias))
                        }
                        CandidateBody::Pointer(address) => {
                            Body::Pointer(address.wrapping_add(bias))
                        }
                        CandidateBody::Itself => continue,
                    },
                    is_leaf: prepared.leaves.contains(&candidate.start),
                    values: prepared.values.get(id).cloned(),
                    places: candidate
                        .calls
                        .iter()
                        .map(|call| call.rebase(bias).at)
                        .collect(),
                });
                sites.push(match candidate.calls.as_slice() {
                    [] => ThunkEntry::At(
                        candidate.site,
                        match &candidate.body {
                            CandidateBody::Displaced(prologue) => Some(prologue),
                            _ => None,
                        },
                    ),
                    calls => ThunkEntry::Calls(calls),
                });
            }
        }
    }
    let mut made = ModulePlan {
        pool: Vec::new(),
        pool_address: 0,
        pool_size: 0,
        patches: Vec::new(),
        functions: Vec::new(),
        loaded: None,
    };
    if !wanted.is_empty() {
        let (start, end) = module.range();
        made.pool_address = maps
            .room_near(start, end, Native::upper_bound(&wanted, page_size()))
            .ok_or(PlanError::Far)?;
        let pool = Native::pool(made.pool_address, &wanted, runtime, *options, page_size())?;
        let places = || sites.iter().zip(&pool.thunks);
        for (place, thunk) in places() {
            let ThunkEntry::At(site, prologue) = place else {
                continue;
            };
            let site = site.wrapping_add(bias);
            if let Some(bytes) = thunk.and_then(|thunk| Native::patch(site, thunk, *prologue)) {
                patches.extend(patch(site, &bytes, maps));
            }
        }
        // Calls that were moved away are executed in the pool, so their old places are not patched.
        let mut moved: Vec<u64> = patches.iter().map(|patch| patch.address).collect();
        moved.sort_unstable();
        for (place, thunk) in places() {
            let (ThunkEntry::Calls(calls), Some(thunk)) = (place, thunk) else {
                continue;
            };
            for call in calls.iter().map(|call| call.rebase(bias)) {
                let from = call.at.saturating_sub(PATCH_SIZE as u64);
                let at = moved.partition_point(|address| *address < from);
                let near = moved.get(at..).unwrap_or_default().iter();
                let mut near = near.take_while(|address| **address < call.at + PATCH_SIZE as u64);
                if near.any(|address| call.overlaps(*address, Native::JUMP as u64)) {
                    continue;
                }
                if let Some(bytes) = Native::direct(&call, *thunk) {
                    patches.extend(patch(call.at, &bytes, maps));
                }
            }
        }
        made.pool = pool.file;
        made.pool_size = pool.size;
    }
    patches.sort_by_key(|patch| patch.address);
    made.patches = patches;
    made.functions = functions;
    let is_empty = made.patches.is_empty() && made.functions.is_empty();
    Ok((!is_empty).then_some(made))
}

/// The place from which a thunk is reached.
enum ThunkEntry<'a> {
    /// A jump at this address, in the place of the instructions that were moved away for it.
    At(u64, Option<&'a Prologue>),
    /// These calls.
    Calls(&'a [ImportSite]),
}

fn patch(address: u64, bytes: &[u8], maps: &Maps) -> Option<Patch> {
    let mut patch = Patch {
        address,
        length: u8::try_from(bytes.len()).ok()?,
        protection: maps.protection(address)?,
        reserved: [0; 6],
        bytes: [0; PATCH_SIZE],
    };
    patch.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(patch)
}
