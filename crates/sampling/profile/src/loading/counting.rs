//! Counting samples at their places.

use crate::counts::counter::{Count, Hit};
use crate::counts::sample_keys::PartId;
use crate::loading::load::{Loader, SampledTask};
use crate::loading::visit::GroupSample;
use crate::processes::address_space::Space;
use crate::processes::modules::{ModuleId, Modules};
use crate::processes::tasks::{ProcessId, ThreadId};
use crate::stacks::chain::{ChainMemo, Chained, innermost};
use crate::stacks::frames::{Frame, FrameId, Frames};
use crate::stacks::unwinding::{Batch, MemoryState};
use crate::stacks::walks::{Start, Walks};
use dioptra_perfdata::FileRecord;
use dioptra_perfrecords::record::{CpuMode, RawRecord};
use dioptra_perfrecords::{AttrFlags, U64s};

/// The largest number of waiting samples, and of the frames of their stacks. More would not stay in the CPU's nearest
/// cache.
const WAITING: usize = 32;
const WAITING_FRAMES: u32 = 2048;

/// A sample that waits to be counted.
#[derive(Clone, Copy)]
struct Sample {
    event: usize,
    part: PartId,
    hit: Hit,
}

/// Samples that wait to be counted. The tables of places are large, so the entries of one sample are fetched into the
/// cache while other samples are read.
#[derive(Default)]
pub(crate) struct Waiting {
    samples: Vec<Sample>,
    /// The frames by sample, where stacks are not kept.
    frames: Vec<Frame>,
    /// The walks by sample, where stacks are kept.
    walks: Walks,
    /// The threads whose last chains wait for the walks.
    threads: Vec<ThreadId>,
}

impl<'a> Loader<'a> {
    /// Counts a sample, with its address and its call chain. `then` is the memory of the sample's process at the
    /// sample's time, where that differs from the current memory.
    #[inline]
    pub(crate) fn settle(
        &mut self,
        task: SampledTask,
        raw: &RawRecord<'_>,
        (ip, chain): (u64, Option<U64s<'_>>),
        then: Option<&MemoryState>,
    ) {
        let event = task.event;
        let state = &self.events[event];
        let reads_group = state.shape.reads_group();
        let factor = if state.tells_times {
            let attr = &self.data.events()[event].attr;
            self.running.factor(event, attr, &state.layout, raw)
        } else {
            1.0
        };
        let (mode, own) = (raw.misc.cpu_mode(), (ip, chain));
        // Finds the user code that entered the kernel, for a sample taken in the kernel.
        let entry = state.kernel_entry.as_ref();
        let caller = entry
            .filter(|_| mode == CpuMode::Kernel)
            .and_then(|entry| entry.user_code(raw, chain));
        let (mode, (ip, chain)) = match caller {
            Some(code) => (CpuMode::User, (code.address, code.chain)),
            None => (mode, own),
        };
        let hit = Hit {
            weight: task.weight,
            elapsed: task.elapsed,
            factor,
            in_kernel: caller.is_some(),
        };
        if !task.passes {
            if reads_group {
                self.group(task, raw, hit, None);
                self.visit(task, raw, None);
            } else {
                self.events[event].all.add_sample(task.weight);
            }
            return;
        }
        if self.options.call_chains {
            self.begin_walk(task, then, chain, (mode, ip));
        } else {
            let frame = self.locate(task.process, then, mode, ip);
            self.frames.prefetch(frame);
            self.waiting.frames.push(frame);
        }
        if reads_group || self.events[event].tells_times {
            // The members of the group or the counter's times depend on the samples before this one.
            let place = self.count_waiting();
            if reads_group {
                self.group(task, raw, hit, Some((task.part, place)));
                self.visit(task, raw, Some(place));
            } else {
                self.count(event, task.part, place, hit);
            }
            return;
        }
        self.waiting.samples.push(Sample {
            event,
            part: task.part,
            hit,
        });
        if self.waiting.samples.len() >= WAITING || self.waiting.walks.frames() >= WAITING_FRAMES {
            self.count_waiting();
        }
    }

    /// Sends a sample's stack to be unwound, and counts earlier samples that are done. In recordings with copied stacks
    /// all samples wait, so that they are counted in the order of the file.
    pub(crate) fn settle_later(&mut self, task: SampledTask, record: &FileRecord<'_>) {
        let index = task.process as usize;
        if let Some(unwinding) = &mut self.unwinding {
            let (version, space) = (self.versions[index], &self.spaces[index]);
            let unwind = self.events[task.event].copies_stacks && task.passes;
            unwinding.push(task, unwind, &record.raw, version, space, &self.modules);
        }
        while let Some(batch) = self
            .unwinding
            .as_mut()
            .and_then(|unwinding| unwinding.next())
        {
            self.settle_batch(batch);
        }
    }

    /// Counts all samples that wait.
    pub(crate) fn settle_all(&mut self) {
        while let Some(batch) = self
            .unwinding
            .as_mut()
            .and_then(|unwinding| unwinding.last())
        {
            self.settle_batch(batch);
        }
    }

    fn settle_batch(&mut self, batch: Batch<'a>) {
        for (task, raw, memory, chain) in batch.samples() {
            let sample = self.events[task.event].shape.essence(&raw, true);
            // The record was parsed successfully before, and parses the same way here.
            if let Some(sample) = sample {
                let chain = chain.or(sample.chain);
                self.settle(task, &raw, (sample.ip, chain), Some(memory));
            }
        }
        if let Some(unwinding) = &mut self.unwinding {
            unwinding.settled(batch);
        }
    }

    /// Begins the walk to a sample's stack. The sample's own address ends the stack, where the chain does not end with
    /// it anyway.
    #[inline]
    fn begin_walk(
        &mut self,
        task: SampledTask,
        then: Option<&MemoryState>,
        chain: Option<U64s<'_>>,
        (mode, ip): (CpuMode, u64),
    ) {
        let (chained, innermost) = match chain {
            Some(chain) => (self.chain(task, then, &chain), innermost(&chain)),
            None => (None, None),
        };
        match chained {
            Some(chained) if !chained.empty && innermost == Some(ip) => {
                self.losses.unmapped += u64::from(chained.unmapped);
                self.losses.through_thunks += u64::from(chained.through);
            }
            _ => {
                if chained.is_none() {
                    self.waiting.walks.begin(Start::ROOT);
                }
                let frame = self.locate(task.process, then, mode, ip);
                self.waiting.walks.step(frame, &self.frames);
            }
        }
    }

    /// Finds the places of all waiting samples, and counts those samples. Returns the place of the last walk or frame,
    /// which may belong to a sample that is not in the list yet.
    pub(crate) fn count_waiting(&mut self) -> u32 {
        let mut waiting = std::mem::take(&mut self.waiting);
        let mut places = [0; WAITING];
        let mut length = waiting.frames.len();
        if self.options.call_chains {
            length = waiting.walks.len();
            waiting.walks.go(&mut self.stacks, &mut self.frames);
            for thread in waiting.threads.drain(..) {
                self.memos[thread as usize].learn(&waiting.walks);
            }
        }
        for (index, place) in places.iter_mut().enumerate().take(length) {
            *place = match waiting.frames.get(index) {
                Some(frame) => self.frames.intern(*frame),
                None => waiting.walks.end(index),
            };
        }
        for (sample, place) in waiting.samples.iter().zip(places) {
            self.count(sample.event, sample.part, place, sample.hit);
        }
        waiting.samples.clear();
        waiting.frames.clear();
        waiting.walks.clear();
        self.waiting = waiting;
        length.checked_sub(1).map_or(0, |last| places[last])
    }

    /// Counts a sample of a part at a place.
    #[inline]
    fn count(&mut self, event: usize, part: PartId, place: u32, hit: Hit) {
        let count = Count {
            samples: 1,
            weight: hit.weight,
        };
        let state = &mut self.events[event];
        state.all.add(count);
        state.total.add(count);
        state.counter.add(part, place, hit);
        if hit.in_kernel {
            state.in_kernel.add(part, place, hit);
        }
        if state.tells_times {
            self.running.count(event);
        }
    }

    /// Counts a sample that holds the values of its whole group (`{a,b}:S`). As in perf, the sample counts for each
    /// member whose value has grown, by the growth. A sample without a place did not pass the filter.
    fn group(
        &mut self,
        task: SampledTask,
        raw: &RawRecord<'_>,
        hit: Hit,
        place: Option<(PartId, u32)>,
    ) {
        let event = task.event;
        let is_inherited = self.data.events()[event]
            .attr
            .flags
            .contains(AttrFlags::INHERIT);
        let thread = if is_inherited { task.thread } else { 0 };
        let sample = self.events[event].layout.sample(raw);
        let Some(values) = sample.ok().and_then(|sample| sample.read) else {
            self.losses.malformed += 1;
            return;
        };
        for value in values.iter() {
            let known = value.id.and_then(|id| Some((id, *self.readings.get(&id)?)));
            let Some((id, member)) = known else {
                self.losses.unknown_event += 1;
                continue;
            };
            let before = self.last_values.entry((id, thread)).or_default();
            let grown = value.value.saturating_sub(*before);
            *before = value.value;
            match place {
                _ if grown == 0 => {}
                Some((part, place)) => {
                    let weight = grown;
                    self.count(member, part, place, Hit { weight, ..hit });
                }
                None => self.events[member].all.add_sample(grown),
            }
        }
    }

    /// Passes a sample that holds the counts of a group to the visitor.
    fn visit(&mut self, task: SampledTask, raw: &RawRecord<'_>, stack: Option<u32>) {
        if let Some(visitor) = &mut self.visitor {
            visitor.sample(&GroupSample {
                event: task.event,
                thread: task.thread,
                raw,
                layout: &self.events[task.event].layout,
                stack,
            });
        }
    }

    /// Begins the walk to the stack of a call chain; `None` for a chain with unknown marks.
    #[inline]
    fn chain(
        &mut self,
        task: SampledTask,
        then: Option<&MemoryState>,
        chain: &U64s<'_>,
    ) -> Option<Chained> {
        let index = task.thread as usize;
        if index >= self.memos.len() {
            self.memos.resize_with(index + 1, ChainMemo::default);
        }
        let process = task.process as usize;
        let version = then.map_or(self.versions[process], |memory| memory.version);
        let (kernel, space) = (&mut self.kernel, &mut self.spaces[process]);
        let modules = &self.modules;
        let kernel_image = self.kernel_image;
        let chained = self.memos[index].walk(
            chain,
            (version, self.kernel_version),
            &mut self.parts,
            &mut self.waiting.walks,
            &self.frames,
            |mode, address| {
                let frame = locate(kernel, kernel_image, (space, then), mode, address);
                (frame, modules.holds_thunks(frame.module))
            },
        );
        match chained {
            Some(_) if self.waiting.threads.last() != Some(&task.thread) => {
                self.waiting.threads.push(task.thread);
            }
            Some(_) => {}
            None => self.losses.bad_chains += 1,
        }
        chained
    }

    /// Returns the frame of a sample's own address, and counts addresses in no mapping.
    #[inline]
    fn locate(
        &mut self,
        process: ProcessId,
        then: Option<&MemoryState>,
        mode: CpuMode,
        address: u64,
    ) -> Frame {
        let frame = locate(
            &mut self.kernel,
            self.kernel_image,
            (&mut self.spaces[process as usize], then),
            mode,
            address,
        );
        self.losses.unmapped += u64::from(frame.module == Modules::UNKNOWN);
        frame
    }
}

/// Returns the interned frame of an address; see [`locate`].
#[inline]
pub(crate) fn resolve(
    kernel: &mut Space,
    kernel_image: ModuleId,
    user: (&mut Space, Option<&MemoryState>),
    frames: &mut Frames,
    mode: CpuMode,
    address: u64,
) -> FrameId {
    frames.intern(locate(kernel, kernel_image, user, mode, address))
}

/// Returns the frame of an address. Addresses in no mapping belong to the unknown module.
#[inline]
fn locate(
    kernel: &mut Space,
    kernel_image: ModuleId,
    (now, then): (&mut Space, Option<&MemoryState>),
    mode: CpuMode,
    address: u64,
) -> Frame {
    let frame = match mode {
        CpuMode::User => match then {
            Some(memory) => memory.frame(address),
            None => now.frame(address),
        },
        CpuMode::Kernel => kernel.frame(address).or_else(|| {
            // The image's recorded end leaves out its sections for starting up. A recording without kernel mappings was
            // made by a user who cannot see them.
            let in_image = kernel.start().is_none_or(|start| start <= address);
            in_image.then_some(Frame {
                address,
                module: kernel_image,
            })
        }),
        _ => None,
    };
    frame.unwrap_or(Frame {
        address,
        module: Modules::UNKNOWN,
    })
}
