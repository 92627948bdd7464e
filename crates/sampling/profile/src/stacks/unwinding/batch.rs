//! Samples that are unwound and counted together.

use super::{MemoryState, Splitting, UnwindCounts};
use crate::loading::identify::SampledTask;
use dioptra_perfdata::PerfData;
use dioptra_perfrecords::record::{Misc, RawRecord, RecordType, Sample};
use dioptra_perfrecords::{ByteOrder, U64s};
use dioptra_symbols::{MemoryAddress, StackEnd, UnwindCache, UnwindMachine, UserRegisters};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Entries from this value on are marks, not addresses (`PERF_CONTEXT_MAX` in `linux/perf_event.h`).
const FIRST_MARK: u64 = -4095_i64 as u64;
/// `PERF_CONTEXT_USER`: the entries after it are addresses of the program.
const USER: u64 = -512_i64 as u64;
/// `PERF_SAMPLE_REGS_ABI_64`.
const ABI_64: u64 = 2;

/// A sample's bytes.
enum Body<'d> {
    /// In the recording's file.
    Lasting(&'d [u8]),
    /// A range of the batch's copies.
    Copied(Range<usize>),
}

struct Waiting<'d> {
    task: SampledTask,
    unwind: bool,
    misc: Misc,
    body: Body<'d>,
    memory: Arc<MemoryState>,
    /// The range of its chain in the batch's chains, if its stack was copied.
    chain: Option<Range<usize>>,
}

/// Samples that are unwound and counted together.
#[derive(Default)]
pub(crate) struct Batch<'d> {
    samples: Vec<Waiting<'d>>,
    copies: Vec<u8>,
    /// The size of all samples, in bytes.
    bytes: usize,
    /// The number of mappings in the states of memory. A state counts again wherever consecutive samples change to it.
    mappings: usize,
    /// The chains that unwinding found, as bytes in this machine's order, one after the other.
    chains: Vec<u8>,
    counts: UnwindCounts,
}

impl<'d> Batch<'d> {
    pub(super) fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    pub(super) fn is_full(&self, splitting: &Splitting) -> bool {
        self.samples.len() >= splitting.samples
            || self.bytes >= splitting.bytes
            || self.mappings >= splitting.mappings
    }

    /// Adds a sample. Its bytes are copied unless they are `lasting`.
    pub(super) fn push(
        &mut self,
        task: SampledTask,
        unwind: bool,
        raw: &RawRecord<'_>,
        lasting: Option<&'d [u8]>,
        memory: Arc<MemoryState>,
    ) {
        let same = self
            .samples
            .last()
            .is_some_and(|last| Arc::ptr_eq(&last.memory, &memory));
        if !same {
            self.mappings += memory.len();
        }
        self.bytes += raw.body.len();
        let body = match lasting {
            Some(bytes) => Body::Lasting(bytes),
            None => {
                let start = self.copies.len();
                self.copies.extend_from_slice(raw.body);
                Body::Copied(start..self.copies.len())
            }
        };
        self.samples.push(Waiting {
            task,
            unwind,
            misc: raw.misc,
            body,
            memory,
            chain: None,
        });
    }

    /// Unwinds all stacks. Each result depends only on its sample, not on the contents of the cache.
    pub(super) fn unwind(
        &mut self,
        data: &PerfData,
        machine: Option<UnwindMachine>,
        work: &mut Work,
    ) {
        for sample in &mut self.samples {
            if !sample.unwind {
                continue;
            }
            let body = sample.body.bytes(&self.copies);
            let raw = record(sample.misc, body);
            let start = self.chains.len();
            let memory = &*sample.memory;
            let layout = data.layout(Some(sample.task.event));
            let Some(parsed) = layout.and_then(|layout| layout.sample(&raw).ok()) else {
                continue;
            };
            let counts = &mut self.counts;
            let chains = &mut self.chains;
            // Tables and stacks may hold anything. If a crate that reads them panics, one sample has no callers.
            let end = catch_unwind(AssertUnwindSafe(|| {
                find_callers(&parsed, memory, machine, work)
            }))
            .unwrap_or_else(|_| {
                work.cache = UnwindCache::default();
                work.frames.clear();
                Outcome::Ended(StackEnd::Broken)
            });
            let end = match end {
                Outcome::NoStack => continue,
                Outcome::NotTried => {
                    counts.not_tried += 1;
                    continue;
                }
                Outcome::Ended(end) => end,
            };
            *match end {
                StackEnd::Complete => &mut counts.complete,
                StackEnd::DumpExhausted => &mut counts.cut,
                StackEnd::NoUnwindTable => &mut counts.no_table,
                StackEnd::WrongMachine => &mut counts.not_tried,
                _ => &mut counts.broken,
            } += 1;
            push_chain(chains, parsed.callchain, &work.frames);
            sample.chain = Some(start..chains.len());
        }
    }

    /// Returns the samples in their order: the task, the record, the memory of the process, and the chain that
    /// unwinding found.
    pub(crate) fn samples(
        &self,
    ) -> impl Iterator<Item = (SampledTask, RawRecord<'_>, &MemoryState, Option<U64s<'_>>)> {
        self.samples.iter().map(|sample| {
            let raw = record(sample.misc, sample.body.bytes(&self.copies));
            let bytes = sample.chain.clone().and_then(|at| self.chains.get(at));
            let chain = bytes.map(|bytes| U64s::new(bytes, ByteOrder::NATIVE));
            (sample.task, raw, &*sample.memory, chain)
        })
    }

    pub(super) fn counts(&self) -> UnwindCounts {
        self.counts
    }

    /// Empties the batch, but keeps its allocated memory.
    pub(super) fn clear(&mut self) {
        self.samples.clear();
        self.copies.clear();
        self.bytes = 0;
        self.mappings = 0;
        self.chains.clear();
        self.counts = UnwindCounts::default();
    }
}

impl<'d> Body<'d> {
    fn bytes<'b>(&'b self, copies: &'b [u8]) -> &'b [u8] {
        match self {
            Body::Lasting(bytes) => bytes,
            Body::Copied(at) => copies.get(at.clone()).unwrap_or_default(),
        }
    }
}

fn record(misc: Misc, body: &[u8]) -> RawRecord<'_> {
    RawRecord {
        kind: RecordType::SAMPLE,
        misc,
        body,
    }
}

/// The state that a thread needs to unwind.
#[derive(Default)]
pub(super) struct Work {
    cache: UnwindCache,
    /// The frames of the last stack, innermost first.
    frames: Vec<MemoryAddress>,
}

enum Outcome {
    /// There are no user registers, so only the recorded chain remains.
    NoStack,
    /// The registers belong to an unknown machine.
    NotTried,
    Ended(StackEnd),
}

/// Finds the program's callers in a sample's copy of the stack, and stores them in `work.frames`.
fn find_callers(
    sample: &Sample<'_>,
    memory: &MemoryState,
    machine: Option<UnwindMachine>,
    work: &mut Work,
) -> Outcome {
    let registers = sample.regs_user.filter(|registers| registers.abi != 0);
    let (Some(registers), Some(stack)) = (registers, sample.stack_user) else {
        return Outcome::NoStack;
    };
    let start = machine
        .filter(|_| registers.abi == ABI_64)
        .and_then(|machine| UserRegisters::of_sample(machine, |number| registers.get(number)));
    let (Some(start), Some(space)) = (start, &memory.space) else {
        return Outcome::NotTried;
    };
    Outcome::Ended(space.unwind(&start, stack.bytes, &mut work.cache, &mut work.frames))
}

/// Appends a chain: the kernel's part as recorded, then the program's callers.
fn push_chain(chains: &mut Vec<u8>, recorded: Option<U64s<'_>>, frames: &[MemoryAddress]) {
    let mut push = |address: u64| chains.extend_from_slice(&address.to_ne_bytes());
    let recorded = recorded.iter().flat_map(U64s::iter);
    for address in recorded.take_while(|address| *address != USER) {
        push(address);
    }
    push(USER);
    for (index, address) in frames.iter().enumerate() {
        // A return address lies behind the call, perhaps in the next function. The chain needs the call itself.
        let address = address.0.wrapping_sub(u64::from(index > 0));
        if address < FIRST_MARK {
            push(address);
        }
    }
}
