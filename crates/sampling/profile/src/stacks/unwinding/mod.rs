//! Callers found from copies of user stacks, on all CPUs.
//!
//! Samples are gathered in batches; threads unwind them, each batch on one of them; the reader takes them back in the
//! order of the file. What a stack leads to depends on nothing but its sample and the mappings of its process at that
//! time, which a batch holds unchanged: so the result is the same, whoever unwinds and in whatever batches.
//!
//! ```text
//!   reader: read, gather ──► batch ──► threads: unwind ──► batch ──► reader: count
//! ```

mod batch;
mod memory;
mod pool;
#[cfg(test)]
mod tests;

pub(crate) use batch::Batch;
pub(crate) use memory::MemoryState;

use crate::loading::load::SampledTask;
use crate::processes::address_space::Space;
use crate::processes::modules::Modules;
use dioptra_perfdata::PerfData;
use dioptra_perfrecords::record::RawRecord;
use dioptra_symbols::{Note, SymbolOptions, UnwindMachine};
use memory::Memories;
use pool::Pool;
use std::thread::{self, Scope};

/// How unwinding went, in samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnwindCounts {
    /// Up to the outermost function.
    pub complete: u64,
    /// The rest of the stack was not recorded.
    pub cut: u64,
    /// Stopped in code without unwind tables.
    pub no_table: u64,
    /// Led to what is no stack, or deeper than is kept.
    pub broken: u64,
    /// Not tried: registers of a program of 32 bits or of a machine that is not known.
    pub not_tried: u64,
}

impl UnwindCounts {
    /// Samples whose callers are not all there.
    pub fn incomplete(&self) -> u64 {
        self.cut + self.no_table + self.broken + self.not_tried
    }

    fn add(&mut self, other: UnwindCounts) {
        self.complete += other.complete;
        self.cut += other.cut;
        self.no_table += other.no_table;
        self.broken += other.broken;
        self.not_tried += other.not_tried;
    }
}

/// How samples are spread over threads; decides about speed and memory, not about the result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Splitting {
    /// Threads that unwind, beside the one that reads and counts; without any, that one does it all.
    pub threads: usize,
    /// Samples of a batch.
    pub samples: usize,
    /// Bytes of a batch's samples, before the last one.
    pub bytes: usize,
    /// Mappings in a batch's states of memory, before the last one.
    pub mappings: usize,
    /// Batches that are gathered, but not counted yet.
    pub batches: usize,
}

impl Splitting {
    /// More threads than this one reader could not feed.
    const MOST_THREADS: usize = 8;
    /// Bytes of samples that wait: of a mapped file, so much is kept in memory behind what was read.
    const WAITING: usize = PerfData::LASTING_IN_MEMORY;

    /// A batch is worth about a millisecond.
    pub(crate) fn for_this_machine() -> Self {
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        let threads = match cpus {
            1 => 0,
            cpus => cpus.min(Self::MOST_THREADS),
        };
        let batches = 3 * threads.max(1);
        Splitting {
            threads,
            samples: 128,
            // Beside those that are on their way, one is gathered and one counted.
            bytes: Self::WAITING / (batches + 2),
            mappings: 1 << 14,
            batches,
        }
    }
}

/// Unwinds the samples of one recording.
pub(crate) struct Unwinding<'d> {
    data: &'d PerfData,
    splitting: Splitting,
    memories: Memories,
    gathered: Batch<'d>,
    /// Batches to be filled again, for their memory.
    spare: Vec<Batch<'d>>,
    pool: Pool<'d>,
    pub(crate) counts: UnwindCounts,
}

impl<'d> Unwinding<'d> {
    pub(crate) fn new<'s>(
        scope: &'s Scope<'s, '_>,
        data: &'d PerfData,
        symbols: SymbolOptions,
        splitting: Splitting,
    ) -> Self
    where
        'd: 's,
    {
        // The machine as `uname -m` names the recorded one.
        let machine = match data.features().arch.as_deref() {
            Some(name) => UnwindMachine::of_name(name),
            None => UnwindMachine::native(),
        };
        Unwinding {
            data,
            splitting,
            memories: Memories::new(machine, symbols),
            gathered: Batch::default(),
            spare: Vec::new(),
            pool: Pool::new(scope, data, machine, splitting.threads),
            counts: UnwindCounts::default(),
        }
    }

    /// Takes a sample in, and has its stack unwound if `unwind` says so. `space` is what its process has mapped, in the
    /// state that `version` names.
    pub(crate) fn push(
        &mut self,
        task: SampledTask,
        unwind: bool,
        raw: &RawRecord<'_>,
        version: u64,
        space: &Space,
        modules: &Modules,
    ) {
        let process = task.process as usize;
        let memory = self.memories.state(process, version, space, modules);
        let lasting = self.data.lasting(raw.body);
        self.gathered.push(task, unwind, raw, lasting, memory);
        if self.gathered.is_full(&self.splitting) {
            self.send();
        }
    }

    fn send(&mut self) {
        let next = self.spare.pop().unwrap_or_default();
        self.pool.send(std::mem::replace(&mut self.gathered, next));
    }

    /// The next batch to count, in the order of the file, if as many are on their way as may be.
    pub(crate) fn next(&mut self) -> Option<Batch<'d>> {
        if self.pool.len() < self.splitting.batches {
            return None;
        }
        self.pool.receive()
    }

    /// The next batch to count when no more samples come, or before what they were taken in changes.
    pub(crate) fn last(&mut self) -> Option<Batch<'d>> {
        if !self.gathered.is_empty() {
            self.send();
        }
        self.pool.receive()
    }

    /// Takes back a batch that was counted.
    pub(crate) fn settled(&mut self, mut batch: Batch<'d>) {
        self.counts.add(batch.counts());
        batch.clear();
        self.spare.push(batch);
    }

    /// What is worth telling about the modules that were met.
    pub(crate) fn notes(&self) -> Vec<Note> {
        self.memories.notes()
    }

    /// Forgets a process that ended.
    pub(crate) fn forget(&mut self, process: usize) {
        self.memories.forget(process);
    }
}
