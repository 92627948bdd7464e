//! The second stage of a sample: its frame, or its call stack.

use crate::counts::counter::Hit;
use crate::counts::sample_keys::SampleKeyId;
use crate::loading::identify::SampledTask;
use crate::loading::losses::Losses;
use crate::loading::system::{System, locate};
use crate::processes::modules::Modules;
use crate::processes::tasks::ThreadId;
use crate::stacks::call_stacks::Stacks;
use crate::stacks::chain::{ChainMemo, Chained, Parts, innermost};
use crate::stacks::frames::{Frame, Frames};
use crate::stacks::unwinding::MemoryState;
use crate::stacks::walks::{Start, Walks};
use dioptra_perfrecords::U64s;
use dioptra_perfrecords::record::CpuMode;

/// The largest number of waiting samples, and of the frames of their stacks. More would not stay in the CPU's nearest
/// cache.
const WAITING: usize = 32;
const WAITING_FRAMES: u32 = 2048;

/// A sample that waits to be counted.
#[derive(Clone, Copy)]
pub(crate) struct WaitingSample {
    pub event: usize,
    pub sample_key: SampleKeyId,
    pub hit: Hit,
}

/// Finds the frames and call stacks of samples.
///
/// The tables of frames and stacks are large, so the entries of one sample are fetched into the cache while other samples
/// are read. [`Stacking::begin`] starts the search for a sample, and [`Stacking::finish`] ends it for all that wait.
pub(crate) struct Stacking {
    pub(crate) frames: Frames,
    pub(crate) stacks: Stacks,
    keeps_stacks: bool,
    /// By thread: its last chain.
    memos: Vec<ChainMemo>,
    parts: Parts,
    waiting: Waiting,
}

#[derive(Default)]
struct Waiting {
    samples: Vec<WaitingSample>,
    /// The frames by sample, where stacks are not kept.
    frames: Vec<Frame>,
    /// The walks by sample, where stacks are kept.
    walks: Walks,
    /// The threads whose last chains wait for the walks.
    threads: Vec<ThreadId>,
}

impl Stacking {
    /// Makes the stage. Without `keeps_stacks`, samples have a frame only.
    pub(crate) fn new(keeps_stacks: bool) -> Self {
        Stacking {
            frames: Frames::default(),
            stacks: Stacks::default(),
            keeps_stacks,
            memos: Vec::new(),
            parts: Parts::default(),
            waiting: Waiting::default(),
        }
    }

    /// Begins to look for the stack of a sample at `ip` with a call chain. `then` is the memory of the sample's process at
    /// the sample's time, where that differs from the current memory.
    #[inline]
    pub(crate) fn begin(
        &mut self,
        (system, losses): (&mut System<'_>, &mut Losses),
        task: SampledTask,
        then: Option<&MemoryState>,
        (mode, ip, chain): (CpuMode, u64, Option<U64s<'_>>),
    ) {
        if self.keeps_stacks {
            self.begin_walk((system, losses), task, then, (mode, ip, chain));
            return;
        }
        let frame = locate_own((system, losses), task, then, (mode, ip));
        self.frames.prefetch(frame);
        self.waiting.frames.push(frame);
    }

    /// Lets a sample wait whose search has begun. Returns true if so many wait that their search should be finished.
    #[inline]
    pub(crate) fn wait(&mut self, sample: WaitingSample) -> bool {
        self.waiting.samples.push(sample);
        self.waiting.samples.len() >= WAITING || self.waiting.walks.frames() >= WAITING_FRAMES
    }

    /// Finds the stacks of all samples that wait, and passes each sample with its stack, or its frame, to `count`. Returns
    /// the stack that was begun last, which may belong to a sample that doesn't wait.
    pub(crate) fn finish(&mut self, mut count: impl FnMut(WaitingSample, u32)) -> u32 {
        let mut waiting = std::mem::take(&mut self.waiting);
        let mut places = [0; WAITING];
        let mut length = waiting.frames.len();
        if self.keeps_stacks {
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
            count(*sample, place);
        }
        waiting.samples.clear();
        waiting.frames.clear();
        waiting.walks.clear();
        self.waiting = waiting;
        length.checked_sub(1).map_or(0, |last| places[last])
    }

    /// Forgets the last chain of a thread that has ended.
    pub(crate) fn forget(&mut self, thread: ThreadId) {
        if let Some(memo) = self.memos.get_mut(thread as usize) {
            memo.forget();
        }
    }

    /// Begins the walk to a sample's stack. The sample's own address ends the stack, where the chain does not end with
    /// it anyway.
    #[inline]
    fn begin_walk(
        &mut self,
        (system, losses): (&mut System<'_>, &mut Losses),
        task: SampledTask,
        then: Option<&MemoryState>,
        (mode, ip, chain): (CpuMode, u64, Option<U64s<'_>>),
    ) {
        let (chained, innermost) = match chain {
            Some(chain) => {
                let chained = self.chain(system, task, then, &chain);
                losses.bad_chains += u64::from(chained.is_none());
                (chained, innermost(&chain))
            }
            None => (None, None),
        };
        match chained {
            Some(chained) if !chained.empty && innermost == Some(ip) => {
                losses.unmapped += u64::from(chained.unmapped);
                losses.through_thunks += u64::from(chained.through);
            }
            _ => {
                if chained.is_none() {
                    self.waiting.walks.begin(Start::ROOT);
                }
                let frame = locate_own((system, losses), task, then, (mode, ip));
                self.waiting.walks.step(frame, &self.frames);
            }
        }
    }

    /// Begins the walk to the stack of a call chain; `None` for a chain with unknown marks.
    #[inline]
    fn chain(
        &mut self,
        system: &mut System<'_>,
        task: SampledTask,
        then: Option<&MemoryState>,
        chain: &U64s<'_>,
    ) -> Option<Chained> {
        let index = task.thread as usize;
        if index >= self.memos.len() {
            self.memos.resize_with(index + 1, ChainMemo::default);
        }
        let process = task.process as usize;
        let version = then.map_or(system.versions[process], |memory| memory.version);
        let (kernel, space) = (&mut system.kernel, &mut system.spaces[process]);
        let (modules, kernel_image) = (&system.modules, system.kernel_image);
        let chained = self.memos[index].walk(
            chain,
            (version, system.kernel_version),
            &mut self.parts,
            &mut self.waiting.walks,
            &self.frames,
            |mode, address| {
                let frame = locate(kernel, kernel_image, (space, then), mode, address);
                (frame, modules.holds_thunks(frame.module))
            },
        );
        if chained.is_some() && self.waiting.threads.last() != Some(&task.thread) {
            self.waiting.threads.push(task.thread);
        }
        chained
    }
}

/// Returns the frame of a sample's own address, and counts addresses in no mapping.
#[inline]
fn locate_own(
    (system, losses): (&mut System<'_>, &mut Losses),
    task: SampledTask,
    then: Option<&MemoryState>,
    (mode, ip): (CpuMode, u64),
) -> Frame {
    let frame = system.locate(task.process, then, mode, ip);
    losses.unmapped += u64::from(frame.module == Modules::UNKNOWN);
    frame
}
