//! Callers found from copies of user stacks, on all CPUs.
//!
//! The reader gathers samples in batches. Each batch is unwound by one thread, and the reader takes the batches back in
//! the order of the file. The result for a stack depends only on its sample and on the mappings of its process at that
//! time, which the batch holds unchanged. The result is therefore the same for any threads and any batches.
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

use crate::loading::identify::SampledTask;
use crate::processes::address_space::Space;
use crate::processes::modules::Modules;
use dioptra_perfdata::PerfData;
use dioptra_perfrecords::record::RawRecord;
use dioptra_symbols::{Note, SymbolOptions, UnwindMachine};
use memory::Memories;
use pool::Pool;
use std::thread::{self, Scope};

/// The outcomes of unwinding, in samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnwindCounts {
    /// Samples unwound up to the outermost function.
    pub complete: u64,
    /// Samples whose recorded stack ended before the outermost function.
    pub cut: u64,
    /// Samples whose unwinding stopped in code without unwind tables.
    pub no_table: u64,
    /// Samples whose unwinding led to something that is no stack, or deeper than is kept.
    pub broken: u64,
    /// Samples that were not unwound: their registers belong to a program of 32 bits or to an unknown machine.
    pub not_tried: u64,
}

impl UnwindCounts {
    /// Returns the number of samples without all their callers.
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

/// The distribution of samples over threads. It affects speed and memory, not the result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Splitting {
    /// Threads that unwind, beside the thread that reads and counts. Without any, that thread unwinds too.
    pub threads: usize,
    /// The number of samples in a full batch.
    pub samples: usize,
    /// Bytes of a batch's samples, before the last sample.
    pub bytes: usize,
    /// Mappings in a batch's states of memory, before the last state.
    pub mappings: usize,
    /// The largest number of batches that were gathered and not counted yet.
    pub batches: usize,
}

impl Splitting {
    /// The largest useful number of threads. One reader could not feed more.
    const MOST_THREADS: usize = 8;
    /// Bytes of waiting samples. This much of a mapped file stays in memory behind the reader's position.
    const WAITING: usize = PerfData::LASTING_IN_MEMORY;

    /// Returns the distribution for this machine's CPUs. A batch takes about a millisecond.
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
            // Beside the batches in the pool, one is being gathered and one is being counted.
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
    /// Emptied batches, kept for their memory.
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
        // The recording names its machine as `uname -m` does.
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

    /// Adds a sample, and has its stack unwound if `unwind` is set. `space` holds the mappings of its process, in the
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

    /// Returns the next batch to count, in the order of the file, if the pool holds as many batches as it may.
    pub(crate) fn next(&mut self) -> Option<Batch<'d>> {
        if self.pool.len() < self.splitting.batches {
            return None;
        }
        self.pool.receive()
    }

    /// Returns the next batch to count, without waiting for more samples. It is called at the end of the recording, and
    /// before the state changes in which samples were gathered.
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

    /// Returns the notes about the modules that unwinding used.
    pub(crate) fn notes(&self) -> Vec<Note> {
        self.memories.notes()
    }

    /// Forgets a process that ended.
    pub(crate) fn forget(&mut self, process: usize) {
        self.memories.forget(process);
    }
}
