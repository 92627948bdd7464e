//! Reading a recording once, in time order, into the model.

use crate::chain::{ChainMemo, Parts, innermost};
use crate::counts::{Count, Dense, Pairs};
use crate::frames::{Frame, FrameId, Frames};
use crate::losses::Losses;
use crate::modules::{self, ModuleId, Modules};
use crate::profile::{EventProfile, Profile};
use crate::shape::SampleShape;
use crate::space::{CopyBudget, Mapping, Space};
use crate::stacks::{StackId, Stacks};
use crate::tasks::{ProcessId, Tasks, ThreadId};
use dioptra_perfdata::{FileRecord, PerfData};
use dioptra_perfevents::SampleType;
use dioptra_perfevents::record::{
    CpuMode, Ksymbol, MappedFile, Mmap, Record, RecordLayout, RecordType, Task,
};
use dioptra_symbols::RecordedKernel;
use hashbrown::HashMap;
use std::ops::ControlFlow;

/// What to keep of a recording; the less, the faster and smaller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadOptions {
    /// Keep call stacks, so that totals can be computed.
    pub call_chains: bool,
    /// Keep counts apart by thread.
    pub threads: bool,
}

/// FORK: written by perf for a process that was there before; its mappings follow and are not its parent's.
const FORK_EXEC: u16 = 1 << 13;

/// The pid of the kernel's mappings.
const KERNEL_PID: u32 = u32::MAX;

impl Profile {
    /// Reads a recording. This never fails: what is damaged or lost is counted in [`Profile::losses`].
    pub fn load(data: &PerfData, options: LoadOptions) -> Profile {
        let mut loader = Loader::new(data, options);
        let summary = data.read(|record| {
            loader.record(&record);
            ControlFlow::Continue(())
        });
        loader.losses.summary = summary;
        loader.finish()
    }
}

/// What is known of one event while reading.
struct EventState {
    shape: SampleShape,
    layout: RecordLayout,
    total: Count,
    places: Dense,
    threads: Pairs,
    has_chains: bool,
    copies_stacks: bool,
}

struct Loader<'a> {
    data: &'a PerfData,
    options: LoadOptions,
    events: Vec<EventState>,
    /// The only event that samples, to which samples of unknown ids belong.
    only_sampler: Option<usize>,
    modules: Modules,
    frames: Frames,
    stacks: Stacks,
    tasks: Tasks,
    /// By process.
    spaces: Vec<Space>,
    /// By process: when its space changed last, as a value of `changes`.
    versions: Vec<u64>,
    changes: u64,
    kernel: Space,
    kernel_version: u64,
    kernel_image: ModuleId,
    reference_symbol: Option<(String, u64)>,
    /// Build ids of the file's table, by path.
    build_ids: HashMap<&'a [u8], &'a [u8], crate::hash::FxBuildHasher>,
    /// By thread.
    memos: Vec<ChainMemo>,
    parts: Parts,
    budget: CopyBudget,
    losses: Losses,
}

impl<'a> Loader<'a> {
    fn new(data: &'a PerfData, options: LoadOptions) -> Self {
        let events: Vec<EventState> = data
            .events()
            .iter()
            .map(|event| EventState {
                shape: SampleShape::new(&event.attr, &event.layout),
                layout: event.layout.clone(),
                total: Count::default(),
                places: Dense::default(),
                threads: Pairs::default(),
                has_chains: event.attr.sample_type.contains(SampleType::CALLCHAIN),
                copies_stacks: event.attr.sample_type.contains(SampleType::STACK_USER),
            })
            .collect();
        let mut samplers = data
            .events()
            .iter()
            .enumerate()
            .filter(|(_, event)| event.attr.samples() && !crate::profile::is_dummy(&event.attr))
            .map(|(index, _)| index);
        let only_sampler = samplers.next().filter(|_| samplers.next().is_none());
        let mut build_ids = HashMap::default();
        for entry in &data.features().build_ids {
            build_ids.insert(entry.path.as_slice(), entry.build_id.as_slice());
        }
        let mut modules = Modules::default();
        let kernel_image = modules.intern(modules::kernel_module(
            modules::KERNEL.as_bytes(),
            build_ids.get(modules::KERNEL.as_bytes()).copied(),
        ));
        Loader {
            data,
            options,
            events,
            only_sampler,
            modules,
            frames: Frames::default(),
            stacks: Stacks::default(),
            tasks: Tasks::default(),
            spaces: Vec::new(),
            versions: Vec::new(),
            changes: 0,
            kernel: Space::default(),
            kernel_version: 0,
            kernel_image,
            reference_symbol: None,
            build_ids,
            memos: Vec::new(),
            parts: Parts::default(),
            budget: CopyBudget::default(),
            losses: Losses::default(),
        }
    }

    #[inline]
    fn record(&mut self, record: &FileRecord<'_>) {
        match record.raw.kind {
            RecordType::SAMPLE => self.sample(record),
            RecordType::MMAP
            | RecordType::MMAP2
            | RecordType::COMM
            | RecordType::FORK
            | RecordType::EXIT
            | RecordType::KSYMBOL => self.sideband(record),
            _ => {}
        }
    }

    #[inline]
    fn sample(&mut self, record: &FileRecord<'_>) {
        let Some(event) = record.event.or(self.only_sampler) else {
            self.losses.unknown_event += 1;
            return;
        };
        if record.event.is_none() {
            self.losses.adopted += 1;
        }
        let Some(state) = self.events.get(event) else {
            self.losses.unknown_event += 1;
            return;
        };
        let Some(sample) = state.shape.essence(&record.raw, self.options.call_chains) else {
            self.losses.malformed += 1;
            return;
        };
        let thread = self.tasks.thread(sample.pid, sample.tid);
        let mode = record.raw.misc.cpu_mode();
        let process = self.tasks.threads()[thread as usize].process;
        self.grow(process);
        let place = match sample.chain {
            None => {
                let frame = self.resolve(process, mode, sample.ip);
                self.count_unmapped(frame);
                if self.options.call_chains {
                    self.stacks.child(Stacks::ROOT, frame)
                } else {
                    frame
                }
            }
            Some(chain) => {
                let caller = self.chain(process, thread, &chain);
                if caller != Stacks::ROOT && innermost(&chain) == Some(sample.ip) {
                    let leaf = self.stacks.get(caller).frame;
                    self.count_unmapped(leaf);
                    caller
                } else {
                    let frame = self.resolve(process, mode, sample.ip);
                    self.count_unmapped(frame);
                    self.stacks.child(caller, frame)
                }
            }
        };
        let count = Count {
            samples: 1,
            weight: sample.weight,
        };
        let state = &mut self.events[event];
        state.total.add(count);
        if self.options.threads {
            state.threads.add((thread, place), count);
        } else {
            state.places.add(place, count);
        }
    }

    fn count_unmapped(&mut self, frame: FrameId) {
        if self.frames.get(frame).module == Modules::UNKNOWN {
            self.losses.unmapped += 1;
        }
    }

    /// The stack of a call chain; the empty one for a chain that makes no sense.
    #[inline]
    fn chain(
        &mut self,
        process: ProcessId,
        thread: ThreadId,
        chain: &dioptra_perfevents::U64s<'_>,
    ) -> StackId {
        let index = thread as usize;
        if index >= self.memos.len() {
            self.memos.resize_with(index + 1, ChainMemo::default);
        }
        let version = (self.versions[process as usize], self.kernel_version);
        let (kernel, space, frames) = (
            &mut self.kernel,
            &mut self.spaces[process as usize],
            &mut self.frames,
        );
        let kernel_image = self.kernel_image;
        let stack = self.memos[index].stack(
            chain,
            version,
            &mut self.parts,
            &mut self.stacks,
            |mode, address| resolve(kernel, kernel_image, space, frames, mode, address),
        );
        stack.unwrap_or_else(|| {
            self.losses.bad_chains += 1;
            Stacks::ROOT
        })
    }

    fn resolve(&mut self, process: ProcessId, mode: CpuMode, address: u64) -> FrameId {
        resolve(
            &mut self.kernel,
            self.kernel_image,
            &mut self.spaces[process as usize],
            &mut self.frames,
            mode,
            address,
        )
    }

    /// Makes room for a process's space.
    fn grow(&mut self, process: ProcessId) {
        let length = process as usize + 1;
        if self.spaces.len() < length {
            self.spaces.resize_with(length, Space::default);
            self.versions.resize(length, 0);
        }
    }

    fn change(&mut self, process: ProcessId) {
        self.changes += 1;
        self.versions[process as usize] = self.changes;
    }

    fn sideband(&mut self, record: &FileRecord<'_>) {
        let layout = match self.events.get(record.event.unwrap_or(0)) {
            Some(state) => &state.layout,
            None => return,
        };
        match layout.parse(&record.raw) {
            Ok(Record::Mmap(mmap, _)) => self.mapping(&mmap),
            Ok(Record::Comm(comm, _)) => {
                let thread = self.tasks.thread(comm.pid, comm.tid);
                self.tasks.rename(thread, comm.name);
                if comm.exec {
                    let process = self.tasks.threads()[thread as usize].process;
                    self.grow(process);
                    self.spaces[process as usize].exec(&self.budget);
                    self.change(process);
                }
            }
            Ok(Record::Fork(task, _)) => self.fork(&task, record.raw.misc.has(FORK_EXEC)),
            Ok(Record::Exit(task, _)) => {
                let thread = self.tasks.thread(task.pid, task.tid);
                self.tasks.end(task.pid, task.tid, task.time);
                if let Some(memo) = self.memos.get_mut(thread as usize) {
                    memo.forget();
                }
            }
            Ok(Record::Ksymbol(symbol, _)) => self.kernel_symbol(&symbol),
            Ok(_) => {}
            Err(_) => self.losses.malformed += 1,
        }
    }

    fn fork(&mut self, task: &Task, existed_before: bool) {
        let start = (!existed_before && task.time != 0).then_some(task.time);
        if task.pid == task.parent_pid && task.tid != task.pid {
            let process = self.tasks.process(task.pid);
            self.tasks.start_thread(process, task.tid, start);
            return;
        }
        let parent = self.tasks.thread(task.parent_pid, task.parent_tid);
        let parent_process = self.tasks.threads()[parent as usize].process;
        self.grow(parent_process);
        let space = if existed_before || task.pid == task.parent_pid {
            Space::default()
        } else {
            self.spaces[parent_process as usize].clone()
        };
        let process = self.tasks.start_process(task.pid, start);
        self.tasks.inherit_name(process, parent);
        self.tasks.start_thread(process, task.tid, start);
        self.grow(process);
        self.spaces[process as usize] = space;
        self.change(process);
    }

    fn mapping(&mut self, mmap: &Mmap<'_>) {
        let end = mmap.start.saturating_add(mmap.length);
        let recorded = match mmap.file {
            MappedFile::BuildId(id) => Some(id),
            _ => None,
        };
        let build_id = recorded
            .or_else(|| self.build_ids.get(mmap.name).copied())
            .map(without_padding)
            .filter(|id| !id.is_empty());
        if mmap.pid == KERNEL_PID || mmap.misc.cpu_mode() == CpuMode::Kernel {
            let module = if modules::is_kernel_image(mmap.name) {
                self.reference(mmap);
                self.kernel_image
            } else {
                self.modules
                    .intern(modules::kernel_module(mmap.name, build_id))
            };
            let mapping = Mapping {
                start: mmap.start,
                end,
                bias: 0,
                module,
                image: 0,
            };
            self.kernel.insert(mapping, &self.budget);
            self.changes += 1;
            self.kernel_version = self.changes;
            return;
        }
        if matches!(
            mmap.misc.cpu_mode(),
            CpuMode::GuestKernel | CpuMode::GuestUser
        ) {
            return;
        }
        let module = modules::user_module(mmap.name, build_id, mmap.pid);
        let bias = match module.kind {
            dioptra_symbols::ModuleKind::NotAFile if module.label.starts_with("[JIT]") => 0,
            _ => mmap.start.wrapping_sub(mmap.page_offset),
        };
        let module = self.modules.intern(module);
        let process = self.tasks.process(mmap.pid);
        self.grow(process);
        let mapping = Mapping {
            start: mmap.start,
            end,
            bias,
            module,
            image: 0,
        };
        self.spaces[process as usize].insert(mapping, &self.budget);
        self.change(process);
    }

    /// `[kernel.kallsyms]_text` at a page offset: where the symbol `_text` was.
    fn reference(&mut self, mmap: &Mmap<'_>) {
        let Some(end) = mmap.name.iter().position(|byte| *byte == b']') else {
            return;
        };
        let symbol = String::from_utf8_lossy(&mmap.name[end + 1..]);
        if !symbol.is_empty() && mmap.page_offset != 0 {
            self.reference_symbol = Some((symbol.into_owned(), mmap.page_offset));
        }
    }

    /// Code that the kernel made at run time, such as a BPF program, is a module of its own name.
    fn kernel_symbol(&mut self, symbol: &Ksymbol<'_>) {
        const GONE: u16 = 1;
        if symbol.flags & GONE != 0 || symbol.length == 0 {
            return;
        }
        let module = self
            .modules
            .intern(modules::kernel_module(symbol.name, None));
        let mapping = Mapping {
            start: symbol.address,
            end: symbol.address.saturating_add(u64::from(symbol.length)),
            bias: 0,
            module,
            image: 0,
        };
        self.kernel.insert(mapping, &self.budget);
        self.changes += 1;
        self.kernel_version = self.changes;
    }

    fn finish(mut self) -> Profile {
        self.frames.freeze();
        self.stacks.freeze();
        self.tasks.freeze();
        self.losses.spaces_not_copied = self.budget.refused();
        let features = self.data.features();
        let recorded_kernel = RecordedKernel {
            release: features.os_release.clone(),
            build_id: self
                .build_ids
                .get(modules::KERNEL.as_bytes())
                .map(|id| without_padding(id).to_vec()),
            reference_symbol: self.reference_symbol,
        };
        let events = self
            .events
            .into_iter()
            .zip(self.data.events())
            .map(|(state, description)| {
                if state.copies_stacks {
                    self.losses.stacks_not_unwound += state.total.samples;
                }
                EventProfile {
                    name: description.name.clone(),
                    attr: description.attr.clone(),
                    total: state.total,
                    has_chains: state.has_chains,
                    weighs_events: state.shape.weighs_events(&description.attr),
                    places: state.places,
                    threads: state.threads,
                }
            })
            .collect();
        Profile {
            options: self.options,
            events,
            modules: self.modules,
            frames: self.frames,
            stacks: self.stacks,
            tasks: self.tasks,
            recorded_kernel,
            losses: self.losses,
        }
    }
}

/// The frame of an address. What lies in no mapping belongs to the unknown module.
#[inline]
fn resolve(
    kernel: &mut Space,
    kernel_image: ModuleId,
    user: &mut Space,
    frames: &mut Frames,
    mode: CpuMode,
    address: u64,
) -> FrameId {
    let frame = match mode {
        CpuMode::User => user.frame(address),
        CpuMode::Kernel => kernel.frame(address).or_else(|| {
            // The image's recorded end leaves out its sections for starting up. A recording without kernel mappings
            // was made by a user from whom they are hidden.
            let in_image = kernel.start().is_none_or(|start| start <= address);
            in_image.then_some(Frame {
                address,
                module: kernel_image,
            })
        }),
        _ => None,
    };
    frames.intern(frame.unwrap_or(Frame {
        address,
        module: Modules::UNKNOWN,
    }))
}

/// Build ids are padded with zeros to 20 bytes in recordings.
fn without_padding(id: &[u8]) -> &[u8] {
    let end = id
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |last| last + 1);
    // Ids of 16 bytes may end with a zero byte of their own.
    &id[..end.next_multiple_of(4).min(id.len())]
}
