//! The plans for a traced process: its new modules are found, and the work in them is planned.

use super::debugged::Debugger;
use super::loaded::{LoadedPool, Planned, Traced};
use super::maps::{MappedModule, Maps};
use super::plan::{ModulePlan, plan};
use crate::analysis::prepare::{Prepared, SampledFunction};
use crate::collecting::clock::TraceClock;
use crate::collecting::counters::how;
use crate::recording::notes::TraceNote;
use crate::recording::shared::{Shared, State, monotonic};
use crate::selection::selector::Gating;
use dioptra_processes::procfs;
use dioptra_trace_patch::HookOptions;
use dioptra_tracedata::{ClockPair, JournalEntry, ModuleMapping, ProcessCause, SampledFunctions};
use dioptra_tracelayout::message::{
    Hello, InstrumentedFunction, PATCH_SIZE, Reason, RuntimeAddresses,
};
use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A module of a process, and the plan for it.
pub struct PlannedModule {
    /// The module.
    pub module: MappedModule,
    prepared: Arc<Prepared>,
    /// The plan.
    pub plan: ModulePlan,
}

impl PlannedModule {
    /// Returns the address at which the module begins, and its file.
    pub fn key(&self) -> Planned {
        (self.module.range().0, self.module.file.clone())
    }

    /// Makes a plan for the process as it is now. Other threads may have taken a place near the module before the
    /// process did.
    ///
    /// # Errors
    /// If the process is gone.
    pub fn again(
        &self,
        pid: u32,
        hello: &Hello,
        shared: &Shared,
    ) -> io::Result<Option<ModulePlan>> {
        let maps = Maps::read(pid)?;
        let hooks = hook_options(shared.state().planner.gating(), shared);
        let addresses = addresses(&shared.state(), pid, hello);
        let again = plan(&self.prepared, &self.module, &maps, addresses, &hooks);
        let mut again = again.ok().flatten();
        if let (Some(debugger), Some(plan)) = (Debugger::of(pid), &mut again) {
            spare(&debugger, plan, &self.module, &self.prepared);
        }
        Ok(again)
    }

    /// Notes that the whole plan was carried out; `pool` is the pool that was loaded for it.
    pub fn note_done(self, pid: u32, pool: Option<LoadedPool>, shared: &Shared) {
        let traced = Traced {
            prepared: self.prepared,
            start: self.module.range().0,
            pool,
            patches: self.plan.patches,
            functions: self.plan.functions,
        };
        let mut state = shared.state();
        let loaded = state.planned.entry(pid).or_default();
        loaded.traced(&self.module, traced);
    }
}

/// Returns the addresses of the runtime to which the pools of a process refer.
fn addresses(state: &State, pid: u32, hello: &Hello) -> RuntimeAddresses {
    let mut addresses = hello.addresses;
    if state.without_personality.contains(&pid) {
        addresses.personality = 0;
    }
    addresses
}

/// Takes patches out of a plan that a debugger's breakpoints forbid, and returns the notes about them.
fn spare(
    debugger: &Debugger,
    plan: &mut ModulePlan,
    module: &MappedModule,
    prepared: &Prepared,
) -> Vec<TraceNote> {
    let runtimes_own = prepared.is_runtimes_own();
    let spared = debugger.spare(plan, module, runtimes_own);
    debugger.notes(spared, module, runtimes_own)
}

/// Notes that a process image begins.
fn begin(state: &mut State, pid: u32, time: u64, program: &Path, shared: &Shared) {
    state.connected += 1;
    state.planned.remove(&pid);
    state.without_personality.remove(&pid);
    if !state.processes.insert(pid) {
        let first = shared.arena.header().next_stream.load(Ordering::Relaxed);
        state.executed.push((pid, first));
    }
    let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    state.journal(&JournalEntry::Process {
        time,
        pid,
        parent: procfs::parents(pid).map_or(0, |parents| parents.parent),
        cause: ProcessCause::Exec,
        executable: program.to_string_lossy().into_owned(),
        arguments: arguments
            .split(|&byte| byte == 0)
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .filter(|word| !word.is_empty())
            .collect(),
    });
}

/// The work to be done in a process.
#[derive(Default)]
pub struct Plans {
    /// Functions of modules that were unloaded, with ids of 0: the runtime has to forget them first.
    pub forgotten: Vec<InstrumentedFunction>,
    /// The modules that were not there before.
    pub modules: Vec<PlannedModule>,
}

/// Returns the work to be done in a process that has said hello, or that has loaded or unloaded modules.
///
/// # Errors
/// If it is gone, or the trace can't be written.
pub fn plans(pid: u32, hello: &Hello, shared: &Shared) -> io::Result<Plans> {
    let mut maps = Maps::read(pid)?;
    let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let mut guard = shared.state();
    let state = &mut *guard;
    let time = monotonic();
    let is_start = hello.reason == Reason::Start as u32;
    if is_start {
        begin(state, pid, time, &program, shared);
    } else if !state.planned.contains_key(&pid) {
        // A forked child has its parent's modules.
        let parent = procfs::parents(pid).map_or(0, |parents| parents.parent);
        let parents = state.planned.get(&parent);
        let memory = File::open(format!("/proc/{pid}/mem")).ok();
        let reads = |address: u64, expected: &[u8]| {
            let mut found = [0; PATCH_SIZE];
            let found = found.get_mut(..expected.len())?;
            memory.as_ref()?.read_exact_at(found, address).ok()?;
            Some(found == expected)
        };
        let inherited = parents.map(|modules| modules.in_child(&maps, reads));
        state.planned.insert(pid, inherited.unwrap_or_default());
        if state.without_personality.contains(&parent) {
            state.without_personality.insert(pid);
        }
    }
    let debugger = Debugger::of(pid);
    let modules = maps.modules();
    let present: HashSet<Planned> = modules
        .iter()
        .map(|module| (module.range().0, module.file.clone()))
        .collect();
    let (gone, forgotten) = state.planned.entry(pid).or_default().keep(&present);
    for start in gone {
        state.journal(&JournalEntry::Unmapping { time, pid, start });
    }
    let hooks = hook_options(state.planner.gating(), shared);
    let at_least = &shared.arena.header().at_least;
    at_least.store(hooks.at_least.unwrap_or(0), Ordering::Relaxed);
    let mut new = Vec::new();
    for module in modules {
        if is_ours(&module.path, &shared.runtime) {
            continue;
        }
        let key = (module.range().0, module.file.clone());
        if !state.planned.entry(pid).or_default().add(key) {
            continue;
        }
        let is_program = module.path == program;
        let prepared = state
            .planner
            .prepare(pid, &module, is_program, &mut state.writer)
            .map_err(io::Error::other)?;
        for note in state.planner.take_notes() {
            state.note(note);
        }
        let sampled = state.planner.take_sampled();
        if !sampled.is_empty() {
            let rate = clock_rate(shared);
            let ticks = |nanoseconds| (nanoseconds as f64 * rate).round().max(1.0) as u64;
            state.counters.add(&sampled, &shared.arena, ticks);
            for entry in sampled_functions(&sampled) {
                state.journal(&entry);
            }
        }
        for area in &module.areas {
            if area.protection & libc::PROT_EXEC as u8 != 0 {
                state.journal(&JournalEntry::Mapping(ModuleMapping {
                    time,
                    pid,
                    module: prepared.as_ref().and_then(|prepared| prepared.number),
                    path: module.path.to_string_lossy().into_owned(),
                    start: area.start,
                    end: area.end,
                    offset: area.offset,
                }));
            }
        }
        if let Some(prepared) = prepared {
            let key = (module.range().0, module.file.clone());
            state.planned.entry(pid).or_default().begin(key);
            new.push((module, prepared));
        }
    }
    if new
        .iter()
        .any(|(_, prepared)| prepared.finds_frames_by_stack_pointer)
    {
        let is_first = state.without_personality.insert(pid);
        if is_first && !is_start {
            state.note(TraceNote::LateUnwinder { pid });
        }
    }
    let addresses = addresses(state, pid, hello);
    let mut plans = Plans {
        forgotten,
        modules: Vec::new(),
    };
    for (module, prepared) in new {
        let loaded = state.planned.entry(pid).or_default();
        let made = match loaded.returned(&prepared, &module) {
            Some(plan) => Ok(Some(plan)),
            None => plan(&prepared, &module, &maps, addresses, &hooks),
        };
        if !matches!(made, Ok(Some(_))) {
            loaded.leave_alone(&(module.range().0, module.file.clone()));
        }
        match made {
            Ok(Some(mut plan)) => {
                if shared.attached && !plan.functions.is_empty() {
                    // Their calls are bound to the C library's functions of these names, which do nothing.
                    state.note(TraceNote::CallThemselves {
                        module: module.path.clone(),
                        functions: std::mem::take(&mut plan.functions).len(),
                    });
                }
                if let Some(debugger) = &debugger {
                    let notes = spare(debugger, &mut plan, &module, &prepared);
                    notes.into_iter().for_each(|note| state.note(note));
                }
                maps.take(plan.pool_address, plan.pool_size);
                plans.modules.push(PlannedModule {
                    module,
                    prepared,
                    plan,
                });
            }
            Ok(None) => {}
            Err(error) => state.note(TraceNote::ModuleUnplanned {
                pid,
                module: module.path.clone(),
                because: error.to_string(),
            }),
        }
    }
    Ok(plans)
}

/// Returns the number of the clock's ticks, unshifted, in a nanosecond.
fn clock_rate(shared: &Shared) -> f64 {
    let now = clock_pair_later(shared);
    let ticks = now.ticks.saturating_sub(shared.start.ticks);
    let time = now.monotonic.saturating_sub(shared.start.monotonic);
    ticks as f64 / time.max(1) as f64
}

/// Reads both clocks, long enough after the start to compare them.
fn clock_pair_later(shared: &Shared) -> ClockPair {
    let now = shared.clock.pair();
    if now.monotonic - shared.start.monotonic >= 1_000_000 {
        return now;
    }
    std::thread::sleep(Duration::from_millis(1));
    shared.clock.pair()
}

/// Describes how functions are sampled, with one entry for all that are sampled alike.
fn sampled_functions(functions: &[SampledFunction]) -> Vec<JournalEntry> {
    let mut alike: BTreeMap<(String, bool), Vec<u32>> = BTreeMap::new();
    for function in functions {
        let key = (how(&function.sampling), function.tree);
        alike.entry(key).or_default().push(function.function);
    }
    let entry = |((how, tree), functions)| {
        JournalEntry::Sampled(SampledFunctions {
            how,
            tree,
            functions,
        })
    };
    alike.into_iter().map(entry).collect()
}

/// Returns the options of hooks, with times in units of the records' clock.
fn hook_options(gating: Gating, shared: &Shared) -> HookOptions {
    let now = match gating.at_least {
        Some(_) => clock_pair_later(shared),
        None => shared.clock.pair(),
    };
    let ticks = u128::from(now.ticks.saturating_sub(shared.start.ticks));
    let time = u128::from(now.monotonic.saturating_sub(shared.start.monotonic)).max(1);
    let at_least = gating.at_least.map(|nanoseconds| {
        // The limit is a little lower. Readers know the clock better, and decide about calls near the limit.
        let exact = (u128::from(nanoseconds) * ticks / time) >> shared.clock.shift();
        u64::try_from(exact - exact / 1000)
            .unwrap_or(u64::MAX)
            .saturating_sub(2)
    });
    HookOptions {
        shift: shared.clock.shift(),
        hides: gating.hides(),
        levels: gating.levels,
        at_least,
        samples: gating.samples,
        other_clock: shared.clock != TraceClock::Tsc,
        marks: shared.arena.header().marks != 0,
        values: gating.values,
    }
}

/// Returns whether a file is the runtime itself or a pool.
fn is_ours(path: &Path, runtime: &Path) -> bool {
    path == runtime || path.as_os_str().as_bytes().starts_with(b"/memfd:")
}
