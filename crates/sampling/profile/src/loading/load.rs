//! Reads a recording once, in time order, into the model.

use crate::branches::BranchFilter;
use crate::counts::counter::{Count, Counter, Keep};
use crate::counts::multiplex::Running;
use crate::counts::sample_keys::{self, PartId};
use crate::hash::FxBuildHasher;
use crate::loading::counting::Waiting;
use crate::loading::details::Collectors;
use crate::loading::losses::Losses;
use crate::loading::plan::{KernelSamples, LoadPlan};
use crate::loading::sample_fields::SampleShape;
use crate::loading::sideband::without_padding;
use crate::loading::visit::GroupVisitor;
use crate::processes::address_space::{CopyBudget, Space};
use crate::processes::jit::Jit;
use crate::processes::mappings::MappingLog;
use crate::processes::modules::{self, ModuleId, Modules};
use crate::processes::tasks::{ProcessId, Tasks, ThreadId};
use crate::profile::{EventProfile, Profile};
use crate::stacks::call_stacks::Stacks;
use crate::stacks::chain::{ChainMemo, Parts};
use crate::stacks::frames::Frames;
use crate::stacks::kernel_entry::KernelEntry;
use crate::stacks::lbr::CallStack;
use crate::stacks::unwinding::{Splitting, Unwinding};
use dioptra_perfdata::{FileRecord, PerfData};
use dioptra_perfrecords::record::{CpuMode, RawRecord, RecordLayout, RecordType};
use dioptra_perfrecords::{Attr, AttrFlags, SampleType, event_type};
use dioptra_symbols::RecordedKernel;
use hashbrown::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

/// The parts of a recording to keep; loading less is faster and needs less memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadOptions {
    /// Keep call stacks, so that totals can be computed.
    pub call_chains: bool,
    /// Keep counts apart by thread, by the image that its process ran, and by its name at the time.
    pub threads: bool,
}

impl Profile {
    /// Reads a recording. This never fails: damage and losses are counted in [`Profile::losses`].
    pub fn load(data: &PerfData, options: LoadOptions) -> Profile {
        Profile::load_with(data, &options.into())
    }

    /// Reads a recording as `plan` says. This never fails either.
    pub fn load_with(data: &PerfData, plan: &LoadPlan) -> Profile {
        Profile::load_split(data, plan, None, Splitting::for_this_machine())
    }

    /// Reads a recording as `plan` says, and passes the samples that hold the counts of a group to `visitor`.
    pub fn load_visited(
        data: &PerfData,
        plan: &LoadPlan,
        visitor: &mut dyn GroupVisitor,
    ) -> Profile {
        Profile::load_split(data, plan, Some(visitor), Splitting::for_this_machine())
    }

    /// Reads a recording. Copies of stacks are unwound as `splitting` says, which must not change the result.
    pub(crate) fn load_split<'a>(
        data: &'a PerfData,
        plan: &'a LoadPlan,
        visitor: Option<&'a mut dyn GroupVisitor>,
        splitting: Splitting,
    ) -> Profile {
        std::thread::scope(|scope| {
            let mut loader = Loader::new(data, plan, visitor);
            if loader.events.iter().any(|event| event.copies_stacks) {
                let unwinding = Unwinding::new(scope, data, plan.symbols.clone(), splitting);
                loader.unwinding = Some(Box::new(unwinding));
            }
            let summary = data.read(|record| {
                loader.record(&record);
                ControlFlow::Continue(())
            });
            loader.settle_all();
            loader.losses.summary = summary;
            loader.finish()
        })
    }
}

/// The state of one event while a recording is read.
pub(crate) struct EventState {
    pub(crate) shape: SampleShape,
    pub(crate) layout: RecordLayout,
    pub(crate) total: Count,
    pub(crate) counter: Counter,
    /// Whether samples state how long their counter ran.
    pub(crate) tells_times: bool,
    has_chains: bool,
    pub(crate) copies_stacks: bool,
    /// Whether its samples hold the CPU's stack of open calls, and chains are wanted.
    call_stack: bool,
    /// Samples before any filter.
    pub(crate) all: Count,
    /// Finds the user code that entered the kernel; `None` where kernel samples count at the kernel's code.
    pub(crate) kernel_entry: Option<KernelEntry>,
    /// The counts of the samples that were taken in the kernel and count at user code.
    pub(crate) in_kernel: Counter,
}

/// The task and event of a sample, as far as they depend on the records before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SampledTask {
    pub event: usize,
    pub process: ProcessId,
    pub thread: ThreadId,
    /// Whether the sample passed the filter.
    pub passes: bool,
    /// The part of the counts that it belongs to.
    pub part: PartId,
    pub weight: u64,
    /// Nanoseconds since the first sample.
    pub elapsed: Option<u64>,
}

pub(crate) struct Loader<'a> {
    pub(crate) data: &'a PerfData,
    pub(crate) plan: &'a LoadPlan,
    pub(crate) options: LoadOptions,
    /// Whether there is a filter at all.
    filtered: bool,
    /// The time of the first sample.
    first_time: Option<u64>,
    /// Unwinds copied stacks; `None` where there are none.
    pub(crate) unwinding: Option<Box<Unwinding<'a>>>,
    /// The log of mappings; `None` unless it was asked for.
    pub(crate) mapping_log: Option<Box<MappingLog>>,
    /// The time that each counter ran, as its samples state it.
    pub(crate) running: Running,
    /// The parts of the samples, where counts are kept apart by part.
    who: sample_keys::Parts,
    pub(crate) events: Vec<EventState>,
    /// The event of samples with unknown ids. It is the only event that samples, or the only one whose samples may
    /// carry the id of another recorder's event.
    pub(crate) only_sampler: Option<usize>,
    pub(crate) modules: Modules,
    pub(crate) frames: Frames,
    pub(crate) stacks: Stacks,
    pub(crate) tasks: Tasks,
    /// By process.
    pub(crate) spaces: Vec<Space>,
    /// By process: the value of `changes` when its space last changed.
    pub(crate) versions: Vec<u64>,
    pub(crate) changes: u64,
    pub(crate) kernel: Space,
    pub(crate) kernel_version: u64,
    pub(crate) kernel_image: ModuleId,
    pub(crate) reference_symbol: Option<(String, u64)>,
    /// Build ids of the file's table, by path.
    pub(crate) build_ids: HashMap<&'a [u8], &'a [u8], FxBuildHasher>,
    /// The event of each id that samples of groups read; empty where no samples do.
    pub(crate) readings: HashMap<u64, usize, FxBuildHasher>,
    /// The value of an id in the last sample of its group, by id and thread. Inherited counters share an id, and each
    /// thread has values of its own. For counters that are not inherited the thread is 0.
    pub(crate) last_values: HashMap<(u64, ThreadId), u64, FxBuildHasher>,
    /// By thread.
    pub(crate) memos: Vec<ChainMemo>,
    pub(crate) parts: Parts,
    call_stack: CallStack,
    /// Samples that wait to be counted.
    pub(crate) waiting: Waiting,
    pub(crate) budget: CopyBudget,
    /// The collectors of branches and memory accesses; `None` unless they were asked for and recorded.
    pub(crate) collectors: Option<Box<Collectors>>,
    /// Looks at the samples that hold the counts of a group.
    pub(crate) visitor: Option<&'a mut dyn GroupVisitor>,
    pub(crate) jit: Jit,
    pub(crate) losses: Losses,
}

/// Returns whether an event's samples may carry ids of events that the recording does not describe.
fn may_have_foreign_ids(attr: &Attr) -> bool {
    // PERF_COUNT_SW_CPU_CLOCK, _TASK_CLOCK and _DUMMY.
    attr.kind == event_type::SOFTWARE && attr.samples() && !matches!(attr.config, 0 | 1 | 9)
}

impl<'a> Loader<'a> {
    fn new(
        data: &'a PerfData,
        plan: &'a LoadPlan,
        visitor: Option<&'a mut dyn GroupVisitor>,
    ) -> Self {
        let counts_at_caller = |index: usize| match plan.kernel {
            KernelSamples::Apart => false,
            KernelSamples::WithCallerOfSetAside => plan.set_aside.contains(&index),
            KernelSamples::WithCaller => true,
        };
        let events: Vec<EventState> = data
            .events()
            .iter()
            .enumerate()
            .map(|(index, event)| {
                (
                    index,
                    event,
                    crate::counts::multiplex::tells_times(&event.attr),
                )
            })
            .map(|(index, event, tells_times)| EventState {
                shape: SampleShape::new(&event.attr, &event.layout),
                layout: event.layout.clone(),
                total: Count::default(),
                counter: Counter::new(Keep {
                    parts: plan.options.threads || plan.cpus,
                    spread: plan.errors || tells_times,
                    log: plan.log,
                }),
                tells_times,
                has_chains: event.attr.sample_type.contains(SampleType::CALLCHAIN)
                    || has_call_stack(&event.attr),
                call_stack: plan.options.call_chains && has_call_stack(&event.attr),
                copies_stacks: plan.options.call_chains
                    && event
                        .attr
                        .sample_type
                        .contains(SampleType::STACK_USER | SampleType::REGS_USER),
                all: Count::default(),
                kernel_entry: counts_at_caller(index)
                    .then(|| KernelEntry::of(data, &event.attr, &event.layout))
                    .flatten(),
                in_kernel: Counter::new(Keep {
                    parts: plan.options.threads || plan.cpus,
                    ..Keep::default()
                }),
            })
            .collect();
        let mut samplers = data
            .events()
            .iter()
            .enumerate()
            .filter(|(_, event)| event.attr.samples() && !crate::profile::is_dummy(&event.attr))
            .map(|(index, _)| index);
        let only_sampler = samplers.next().filter(|_| samplers.next().is_none());
        // The kernel may write an id of another recorder's event into the sample of a software event other than a
        // clock, where both watch one thread.
        let recorded = data.events().iter().enumerate();
        let mut sharing = recorded
            .filter(|(_, event)| may_have_foreign_ids(&event.attr))
            .map(|(index, _)| index);
        let only_sharing = sharing.next().filter(|_| sharing.next().is_none());
        let only_sampler = only_sampler.or(only_sharing);
        let mut build_ids = HashMap::default();
        for entry in &data.features().build_ids {
            build_ids.insert(entry.path.as_slice(), entry.build_id.as_slice());
        }
        let mut readings = HashMap::default();
        if events.iter().any(|event| event.shape.reads_group()) {
            for (index, event) in data.events().iter().enumerate() {
                readings.extend(event.ids.iter().map(|id| (*id, index)));
            }
        }
        let mut modules = Modules::default();
        let kernel_image = modules.intern(modules::kernel_module(
            modules::KERNEL.as_bytes(),
            build_ids.get(modules::KERNEL.as_bytes()).copied(),
        ));
        Loader {
            data,
            plan,
            options: plan.options,
            filtered: !plan.filter.is_empty(),
            first_time: None,
            unwinding: None,
            mapping_log: plan.mappings.then(Box::default),
            running: Running::default(),
            who: sample_keys::Parts::default(),
            events,
            only_sampler,
            modules,
            frames: Frames::default(),
            stacks: Stacks::default(),
            tasks: Tasks::new(
                data.events()
                    .iter()
                    .any(|event| event.attr.flags.contains(AttrFlags::COMM_EXEC)),
            ),
            spaces: Vec::new(),
            versions: Vec::new(),
            changes: 0,
            kernel: Space::default(),
            kernel_version: 0,
            kernel_image,
            reference_symbol: None,
            build_ids,
            readings,
            last_values: HashMap::default(),
            memos: Vec::new(),
            parts: Parts::default(),
            call_stack: CallStack::default(),
            waiting: Waiting::default(),
            budget: CopyBudget::default(),
            collectors: Collectors::new(data, plan),
            visitor,
            jit: Jit::new(data, plan.symbols.clone()),
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
            | RecordType::NAMESPACES
            | RecordType::KSYMBOL => {
                if may_map_kernel(&record.raw) {
                    // Waiting samples belong to the kernel's mappings before this record.
                    self.settle_all();
                }
                self.sideband(record);
            }
            RecordType::LOST | RecordType::LOST_SAMPLES | RecordType::THROTTLE => {
                if let Some(collectors) = &mut self.collectors {
                    collectors.lost();
                }
                self.note_gap(&record.raw);
            }
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
        let first = *self.first_time.get_or_insert(record.time.unwrap_or(0));
        let elapsed = record.time.map(|time| time.saturating_sub(first));
        let filter = &self.plan.filter;
        let passes = !self.filtered || filter.passes(&self.tasks, thread, sample.cpu, elapsed);
        if record.time.is_some_and(|time| self.jit.next <= time) {
            self.place_jit_code(record.time.unwrap_or(0));
        }
        let process = self.tasks.threads()[thread as usize].process;
        self.grow(process);
        if passes && self.collectors.is_some() {
            self.detail(event, record, (process, thread), sample.weight);
        }
        let part = if !passes {
            sample_keys::WHOLE
        } else if self.options.threads {
            let cpu = sample.cpu.filter(|_| self.plan.cpus);
            self.who.of_thread(&self.tasks, thread, cpu)
        } else if self.plan.cpus {
            self.who.of_cpu(sample.cpu)
        } else {
            sample_keys::WHOLE
        };
        let task = SampledTask {
            event,
            process,
            thread,
            passes,
            part,
            weight: sample.weight,
            elapsed,
        };
        if self.events[event].call_stack && passes {
            let Ok(whole) = self.events[event].layout.sample(&record.raw) else {
                self.losses.malformed += 1;
                return;
            };
            // Waiting samples came before this one.
            self.settle_all();
            let mut call_stack = std::mem::take(&mut self.call_stack);
            call_stack.of(&whole, record.raw.misc.cpu_mode());
            let chain = Some(call_stack.chain());
            self.settle(task, &record.raw, (whole.ip.unwrap_or(0), chain), None);
            self.call_stack = call_stack;
        } else if self.unwinding.is_some() {
            self.settle_later(task, record);
        } else {
            self.settle(task, &record.raw, (sample.ip, sample.chain), None);
        }
    }

    /// Passes a gap in the samples to the visitor.
    fn note_gap(&mut self, raw: &RawRecord<'_>) {
        if self.visitor.is_none() {
            return;
        }
        // Waiting samples came before the gap.
        self.settle_all();
        if let Some(visitor) = &mut self.visitor {
            match raw.kind {
                RecordType::THROTTLE => visitor.throttled(raw),
                _ => visitor.lost(),
            }
        }
    }

    fn finish(mut self) -> Profile {
        self.count_waiting();
        let details = self.collectors.take();
        let details = details.map(|all| all.finish()).unwrap_or_default();
        self.frames.freeze();
        self.stacks.freeze();
        self.tasks.freeze(&self.modules);
        self.who.freeze();
        if let Some(unwinding) = &self.unwinding {
            self.losses.unwinding = unwinding.counts;
            self.losses.unwinding_notes = unwinding.notes();
        }
        self.losses
            .unsampled
            .clone_from(&self.data.features().unsampled);
        self.losses.spaces_not_copied = self.budget.refused();
        self.losses.jit_dumps_without_times = self.jit.untimed;
        self.losses.jit_dumps_refused = self.jit.refused;
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
            .enumerate()
            .map(|(index, (state, description))| EventProfile {
                name: description.name.clone(),
                attr: description.attr.clone(),
                all: state.all,
                total: state.total,
                has_chains: state.has_chains,
                weighs_events: state.shape.weighs_events(&description.attr),
                is_set_aside: self.plan.set_aside.contains(&index),
                running: self.running.of_event(index),
                counts: state.counter.freeze(),
                in_kernel: state.kernel_entry.map(|_| state.in_kernel.freeze()),
            })
            .collect();
        Profile {
            options: self.options,
            by_cpu: self.plan.cpus,
            events,
            modules: Arc::new(self.modules),
            frames: Arc::new(self.frames),
            stacks: Arc::new(self.stacks),
            tasks: Arc::new(self.tasks),
            parts: Arc::new(self.who),
            sockets: sockets(self.data),
            start: self.first_time,
            stack_order: Arc::default(),
            mapping_log: Arc::new(self.mapping_log.map(|log| *log).unwrap_or_default()),
            recorded_kernel,
            details: Arc::new(details),
            losses: self.losses,
        }
    }
}

/// Returns whether an event's samples hold the CPU's stack of open calls.
fn has_call_stack(attr: &Attr) -> bool {
    attr.sample_type.contains(SampleType::BRANCH_STACK)
        && BranchFilter(attr.branch_sample_type).is_call_stack()
}

/// Returns the socket of each CPU, where the recording states it.
fn sockets(data: &PerfData) -> Arc<[u32]> {
    let topology = data.features().cpu_topology.as_ref();
    let cpus = topology.map_or(&[][..], |topology| &topology.cpus);
    cpus.iter().map(|(_, socket)| *socket).collect()
}

/// Returns whether a record that is no sample may change the kernel's mappings.
fn may_map_kernel(raw: &RawRecord<'_>) -> bool {
    match raw.kind {
        RecordType::KSYMBOL => true,
        RecordType::MMAP | RecordType::MMAP2 => {
            // The kernel's pid is all ones in either byte order.
            raw.misc.cpu_mode() == CpuMode::Kernel || raw.body.starts_with(&[u8::MAX; 4])
        }
        _ => false,
    }
}
