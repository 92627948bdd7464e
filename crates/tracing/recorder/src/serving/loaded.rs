//! The modules of a process, with their patches; also of those that were unloaded, since their pools stay.
//!
//! A pool is never unloaded: a call that was open when its module was closed may still return through it. The module
//! often comes back to the place where it was, and finds its pool there.

use super::maps::{MappedModule, Maps};
use super::plan::ModulePlan;
use crate::analysis::prepare::Prepared;
use crate::attaching::detach::Original;
use dioptra_tracelayout::message::{InstrumentedFunction, Patch};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// A module in a process: where it begins, and its file.
pub type Planned = (u64, (String, u64));

/// A pool in a process.
#[derive(Clone, Copy, Debug)]
pub struct LoadedPool {
    /// Its first address.
    pub address: u64,
    /// The number of its file's inode.
    pub inode: u64,
}

/// A module in which functions are traced.
#[derive(Debug)]
pub struct Traced {
    /// The module.
    pub prepared: Arc<Prepared>,
    /// The module's first address in the process.
    pub start: u64,
    /// Its pool, if it needs one.
    pub pool: Option<LoadedPool>,
    /// The patches that were written.
    pub patches: Vec<Patch>,
    /// The functions that the runtime has learned.
    pub functions: Vec<InstrumentedFunction>,
}

impl Traced {
    /// Returns whether the process has its pool, if it needs one.
    fn has_pool(&self, maps: &Maps) -> bool {
        self.pool.is_none_or(|pool| {
            maps.areas
                .iter()
                .any(|area| area.start == pool.address && area.file.1 == pool.inode)
        })
    }
}

/// The modules of a process.
#[derive(Clone, Debug, Default)]
pub struct LoadedModules {
    present: HashMap<Planned, Option<Arc<Traced>>>,
    /// Modules that were unloaded and had pools.
    unloaded: Vec<Arc<Traced>>,
    /// Modules for which the process is just doing its steps.
    in_work: HashSet<Planned>,
    /// The bytes under the patches of modules, by the modules' first addresses, if the recorder has attached.
    originals: HashMap<u64, Vec<Original>>,
    /// The offset of a thread's block from its thread pointer, if the recorder has attached.
    thread_block: i64,
}

impl LoadedModules {
    /// Returns the bytes that patches have overwritten.
    pub fn originals(&self) -> impl Iterator<Item = &Original> {
        self.originals.values().flatten()
    }

    /// Returns the offset of a thread's block from its thread pointer.
    pub fn thread_block(&self) -> i64 {
        self.thread_block
    }

    /// Keeps the bytes that the patches of a module will overwrite. `thread_block` is the offset of a thread's block
    /// from its thread pointer.
    pub fn keep_originals(
        &mut self,
        module: &MappedModule,
        originals: Vec<Original>,
        thread_block: i64,
    ) {
        self.thread_block = thread_block;
        self.originals.insert(module.range().0, originals);
    }

    /// Returns the modules of a forked child of the process that has these modules now. Parent and child may have loaded
    /// and unloaded modules since the fork, so `reads` tells whether the child has bytes at an address; `None` if its memory
    /// cannot be read.
    pub fn in_child(
        &self,
        maps: &Maps,
        reads: impl Fn(u64, &[u8]) -> Option<bool>,
    ) -> LoadedModules {
        let is_there = |traced: &Arc<Traced>| traced.has_pool(maps);
        // The recorder can't see which functions the child's runtime knows, but may send them twice. A child that has
        // the pool knows its functions.
        let is_same = |traced: &Arc<Traced>| {
            is_there(traced) && (traced.pool.is_some() || traced.functions.is_empty())
        };
        // A module that both have loaded since the fork is at the same address in both, and patched in the parent only.
        let is_patched = |traced: &Arc<Traced>| {
            let first = traced.patches.first();
            first.is_none_or(|patch| {
                let bytes = patch.bytes.get(..usize::from(patch.length));
                let is_there = bytes.and_then(|bytes| reads(patch.address, bytes));
                is_there.unwrap_or(true)
            })
        };
        let (mut present, mut unloaded) = (HashMap::new(), Vec::new());
        for (module, traced) in &self.present {
            match traced {
                // The child of another thread takes no part in the steps, or has loaded the module itself.
                None if self.in_work.contains(module) => {}
                Some(traced) if !is_same(traced) => {}
                Some(traced) if !is_patched(traced) => unloaded.push(Arc::clone(traced)),
                _ => {
                    present.insert(module.clone(), traced.clone());
                }
            }
        }
        unloaded.extend(
            self.unloaded
                .iter()
                .filter(|traced| is_there(traced))
                .cloned(),
        );
        LoadedModules {
            present,
            unloaded,
            in_work: HashSet::new(),
            originals: self.originals.clone(),
            thread_block: self.thread_block,
        }
    }

    /// Notes that only these modules are still there. Returns the addresses at which the other modules began, and the
    /// functions that the runtime has to forget.
    pub fn keep(&mut self, present: &HashSet<Planned>) -> (Vec<u64>, Vec<InstrumentedFunction>) {
        let (mut gone, mut forgotten) = (Vec::new(), Vec::new());
        self.in_work.retain(|module| present.contains(module));
        for (module, traced) in self
            .present
            .extract_if(|module, _| !present.contains(module))
        {
            gone.push(module.0);
            self.originals.remove(&module.0);
            let Some(traced) = traced else {
                continue;
            };
            let none =
                |function: &InstrumentedFunction| InstrumentedFunction { id: 0, ..*function };
            forgotten.extend(traced.functions.iter().map(none));
            if traced.pool.is_some() {
                self.unloaded.push(traced);
            }
        }
        (gone, forgotten)
    }

    /// Notes that a module is there, and returns whether it was not before.
    pub fn add(&mut self, module: Planned) -> bool {
        let is_new = !self.present.contains_key(&module);
        if is_new {
            self.present.insert(module, None);
        }
        is_new
    }

    /// Notes that the process begins the steps for a module.
    pub fn begin(&mut self, module: Planned) {
        self.in_work.insert(module);
    }

    /// Notes that there are no steps for a module.
    pub fn leave_alone(&mut self, module: &Planned) {
        self.in_work.remove(module);
    }

    /// Forgets modules for which nothing was done because the process broke off.
    pub fn retract(&mut self, modules: &[Planned]) {
        let is_left = |module: &Planned, traced: &Option<Arc<Traced>>| {
            traced.is_none() && modules.contains(module)
        };
        self.present
            .retain(|module, traced| !is_left(module, traced));
        self.in_work.retain(|module| !modules.contains(module));
    }

    /// Returns the plan for a module that is back in its place and whose pool is there.
    pub fn returned(
        &mut self,
        prepared: &Arc<Prepared>,
        module: &MappedModule,
    ) -> Option<ModulePlan> {
        let (start, _) = module.range();
        let is_it =
            |traced: &Arc<Traced>| traced.start == start && Arc::ptr_eq(&traced.prepared, prepared);
        let at = self.unloaded.iter().position(is_it)?;
        let traced = self.unloaded.swap_remove(at);
        Some(ModulePlan {
            pool: Vec::new(),
            pool_address: 0,
            pool_size: 0,
            patches: traced.patches.clone(),
            functions: traced.functions.clone(),
            loaded: traced.pool,
        })
    }

    /// Notes that a module's functions are traced.
    pub fn traced(&mut self, module: &MappedModule, traced: Traced) {
        let key = (traced.start, module.file.clone());
        self.in_work.remove(&key);
        self.present.insert(key, Some(Arc::new(traced)));
    }
}
