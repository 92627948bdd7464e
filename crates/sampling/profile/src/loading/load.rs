//! Reads a recording once, in time order, into the model.
//!
//! A record that is no sample changes the [`System`]. A sample passes through the stages, each of which hands a value to
//! the next one:
//!
//! ```text
//! record ─▶ Identifier ─▶ SampledTask ─▶ (Unwinding) ─▶ Stacking ─▶ stack ─▶ Counting
//!               ▲                                          ▲
//!               └───────────────── System ─────────────────┘
//! ```

use crate::branches::BranchFilter;
use crate::counts::counter::Hit;
use crate::loading::counting::Counting;
use crate::loading::details::Collectors;
use crate::loading::identify::{Identifier, SampledTask};
use crate::loading::losses::Losses;
use crate::loading::plan::{KernelSamples, LoadPlan};
use crate::loading::sample_fields::SampleShape;
use crate::loading::stacking::{Stacking, WaitingSample};
use crate::loading::system::{Effect, System, may_map_kernel};
use crate::loading::visit::{GroupSample, GroupVisitor};
use crate::loading::waits::{EndedWait, Waits, is_off_cpu};
use crate::profile::Profile;
use crate::stacks::kernel_entry::KernelEntry;
use crate::stacks::lbr::CallStack;
use crate::stacks::unwinding::{Batch, MemoryState, Splitting, Unwinding};
use crate::switches::SwitchLog;
use dioptra_perfdata::{
    EventDescription, Features, FileRecord, PerfData, file_type, read_build_id,
};
use dioptra_perfrecords::record::{
    CpuMode, RawRecord, Record, RecordLayout, RecordType, SampleId, Switch,
};
use dioptra_perfrecords::{Attr, SampleType, U64s};
use std::ops::ControlFlow;

/// The parts of a recording to keep; loading less is faster and needs less memory. A [`Profile`] remembers them, since they
/// decide what its counts stand for; the rest of a [`LoadPlan`] concerns the loading alone.
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
            if loader.copies_stacks() {
                let unwinding = Unwinding::new(scope, data, plan.symbols.clone(), splitting);
                loader.unwinding = Some(Box::new(unwinding));
            }
            if plan.log && splitting.threads > 0 {
                loader.counting.count_beside(scope);
            }
            let summary = data.read(|record| {
                loader.record(&record);
                match &plan.progress {
                    Some(progress) => {
                        progress.read(record.offset);
                        match progress.is_cancelled() {
                            true => ControlFlow::Break(()),
                            false => ControlFlow::Continue(()),
                        }
                    }
                    None => ControlFlow::Continue(()),
                }
            });
            loader.settle_all();
            loader.losses.summary = summary;
            loader.finish()
        })
    }
}

/// The reading of one event's samples.
pub(super) struct EventReader {
    pub(super) shape: SampleShape,
    layout: RecordLayout,
    pub(super) has_chains: bool,
    copies_stacks: bool,
    /// Whether its samples hold the CPU's stack of open calls, and chains are wanted.
    call_stack: bool,
    /// Whether its samples are switches away from threads, which count with the time until the thread runs again.
    pub(super) waits: bool,
    /// Finds the user code that entered the kernel; `None` where kernel samples count at the kernel's code.
    pub(super) kernel_entry: Option<KernelEntry>,
}

impl EventReader {
    fn new(data: &PerfData, plan: &LoadPlan, (index, event): (usize, &EventDescription)) -> Self {
        // The place where a thread waits is the code that called the kernel: all waits end in the kernel's scheduler.
        let waits = is_off_cpu(&event.name, &event.attr);
        let counts_at_caller = match plan.kernel {
            _ if waits => true,
            KernelSamples::Apart => false,
            KernelSamples::WithCallerOfSetAside => plan.set_aside.contains(&index),
            KernelSamples::WithCaller => true,
        };
        let fields = event.attr.sample_type;
        let call_chains = plan.options.call_chains;
        let has_call_stack = has_call_stack(&event.attr);
        EventReader {
            shape: SampleShape::new(&event.attr, &event.layout),
            layout: event.layout.clone(),
            has_chains: fields.contains(SampleType::CALLCHAIN) || has_call_stack,
            call_stack: call_chains && has_call_stack,
            waits,
            copies_stacks: call_chains
                && fields.contains(SampleType::STACK_USER | SampleType::REGS_USER),
            kernel_entry: counts_at_caller
                .then(|| KernelEntry::of(data, &event.attr, &event.layout))
                .flatten(),
        }
    }
}

/// The stages, and the state between them.
pub(super) struct Loader<'a> {
    pub(super) data: &'a PerfData,
    pub(super) plan: &'a LoadPlan,
    pub(super) events: Vec<EventReader>,
    pub(super) system: System<'a>,
    pub(super) identifier: Identifier<'a>,
    /// Unwinds copied stacks; `None` where there are none.
    pub(super) unwinding: Option<Box<Unwinding<'a>>>,
    call_stack: CallStack,
    pub(super) stacking: Stacking,
    pub(super) counting: Counting<'a>,
    /// The collectors of branches and memory accesses; `None` unless they were asked for and recorded.
    pub(super) collectors: Option<Box<Collectors>>,
    /// Looks at the samples that hold the counts of a group.
    visitor: Option<&'a mut dyn GroupVisitor>,
    pub(super) switches: SwitchLog,
    /// The waits of an off-CPU event; `None` without one.
    pub(super) waits: Option<Box<Waits>>,
    pub(super) losses: Losses,
    /// Whether build ids come among the records: a pipe is read while it is written.
    pub(super) learns_build_ids: bool,
    /// The description of the recording at its end; `None` where `data` has all of it.
    pub(super) features: Option<Features>,
}

impl<'a> Loader<'a> {
    pub(super) fn new(
        data: &'a PerfData,
        plan: &'a LoadPlan,
        visitor: Option<&'a mut dyn GroupVisitor>,
    ) -> Self {
        let described = data.events().iter().enumerate();
        let events: Vec<EventReader> = described
            .map(|event| EventReader::new(data, plan, event))
            .collect();
        let waits = events.iter().any(|event| event.waits);
        let reads_groups = events.iter().any(|event| event.shape.reads_group());
        Loader {
            data,
            plan,
            events,
            system: System::new(data, plan),
            identifier: Identifier::new(data, plan),
            unwinding: None,
            call_stack: CallStack::default(),
            stacking: Stacking::new(plan.options.call_chains),
            counting: Counting::new(data, plan, reads_groups),
            collectors: Collectors::new(data, plan),
            visitor,
            switches: SwitchLog::default(),
            waits: waits.then(Box::default),
            losses: Losses::default(),
            learns_build_ids: false,
            features: None,
        }
    }

    /// Returns the description of the recording.
    pub(super) fn features(&self) -> &Features {
        self.features.as_ref().unwrap_or(self.data.features())
    }

    #[inline]
    pub(super) fn record(&mut self, record: &FileRecord<'_>) {
        match record.raw.kind {
            RecordType::SAMPLE => self.sample(record),
            RecordType::MMAP
            | RecordType::MMAP2
            | RecordType::COMM
            | RecordType::FORK
            | RecordType::EXIT
            | RecordType::NAMESPACES
            | RecordType::KSYMBOL => self.sideband(record),
            RecordType::LOST | RecordType::LOST_SAMPLES | RecordType::THROTTLE => {
                if let Some(collectors) = &mut self.collectors {
                    collectors.lost();
                }
                self.note_gap(&record.raw);
            }
            RecordType::SWITCH | RecordType::SWITCH_CPU_WIDE
                if self.plan.switches || self.waits.is_some() =>
            {
                self.switch(record);
            }
            file_type::BUILD_ID if self.learns_build_ids => {
                if let Some(learned) = read_build_id(&record.raw, self.data.byte_order()) {
                    self.system.learn_build_id(learned);
                }
            }
            _ => {}
        }
    }

    fn switch(&mut self, record: &FileRecord<'_>) {
        let event = self.events.get(record.event.unwrap_or(0));
        let parsed = event.map(|event| event.layout.parse(&record.raw));
        match (parsed, record.time) {
            (Some(Ok(Record::Switch(switch, ids))), Some(time)) => {
                if self.plan.switches {
                    self.switches.note(&switch, &ids, time);
                }
                self.end_wait(&switch, &ids, time);
            }
            (Some(Err(_)), _) => self.losses.malformed += 1,
            _ => {}
        }
    }

    /// Counts the wait that a switch ends, if it ends one.
    fn end_wait(&mut self, switch: &Switch, ids: &SampleId, time: u64) {
        let (Some(waits), Some(tid)) = (&mut self.waits, ids.tid) else {
            return;
        };
        if switch.out {
            waits.switch_away(tid, switch.preempted, time);
            return;
        }
        // The sample of the wait may still be with the threads that unwind.
        self.settle_all();
        let waits = self.waits.as_mut();
        if let Some(wait) = waits.and_then(|waits| waits.switch_back(tid, time)) {
            self.count_wait(wait);
        }
    }

    pub(super) fn count_wait(&mut self, wait: EndedWait) {
        match wait.place {
            Some(place) => self.counting.count(wait.sample, place),
            None => {
                let sums = &mut self.counting.events[wait.sample.event];
                sums.all.add_sample(wait.sample.hit.weight);
            }
        }
    }

    fn sideband(&mut self, record: &FileRecord<'_>) {
        if may_map_kernel(&record.raw) {
            // Waiting samples belong to the kernel's mappings before this record.
            self.settle_all();
        }
        let Some(event) = self.events.get(record.event.unwrap_or(0)) else {
            return;
        };
        match self.system.apply(record, &event.layout) {
            Effect::Inside => {}
            Effect::Malformed => self.losses.malformed += 1,
            Effect::ThreadEnded { thread, process } => {
                self.stacking.forget(thread);
                if let (Some(process), Some(unwinding)) = (process, &mut self.unwinding) {
                    unwinding.forget(process as usize);
                }
            }
        }
    }

    #[inline]
    fn sample(&mut self, record: &FileRecord<'_>) {
        let Some(event) = record.event.or(self.identifier.only_sampler) else {
            self.losses.unknown_event += 1;
            return;
        };
        if record.event.is_none() {
            self.losses.adopted += 1;
        }
        let Some(reader) = self.events.get(event) else {
            self.losses.unknown_event += 1;
            return;
        };
        let Some(sample) = reader
            .shape
            .essence(&record.raw, self.plan.options.call_chains)
        else {
            self.losses.malformed += 1;
            return;
        };
        let system = &mut self.system;
        if record.time.is_some_and(|time| system.jit.next <= time) {
            system.place_jit_code(record.time.unwrap_or(0));
        }
        let task = self
            .identifier
            .identify(system, (event, &sample), record.time);
        system.grow(task.process);
        if task.passes
            && let Some(collectors) = &mut self.collectors
        {
            let tables = (&mut *system, &mut self.stacking.frames);
            let collected = collectors.collect(task, &record.raw, &reader.layout, tables);
            self.losses.malformed += u64::from(collected.is_err());
        }
        if reader.call_stack && task.passes {
            let Ok(whole) = reader.layout.sample(&record.raw) else {
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

    /// Sends a sample's stack to be unwound, and counts earlier samples that are done. In recordings with copied stacks
    /// all samples wait, so that they are counted in the order of the file.
    fn settle_later(&mut self, task: SampledTask, record: &FileRecord<'_>) {
        let index = task.process as usize;
        if let Some(unwinding) = &mut self.unwinding {
            let (version, space) = (self.system.versions[index], &self.system.spaces[index]);
            let unwind = self.events[task.event].copies_stacks && task.passes;
            let modules = &self.system.modules;
            unwinding.push(task, unwind, &record.raw, version, space, modules);
        }
        while let Some(batch) = self
            .unwinding
            .as_mut()
            .and_then(|unwinding| unwinding.next())
        {
            self.settle_batch(batch);
        }
    }

    /// Counts all samples whose stacks are being unwound.
    pub(super) fn settle_all(&mut self) {
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

    /// Counts a sample, with its address and its call chain. `then` is the memory of the sample's process at the
    /// sample's time, where that differs from the current memory.
    #[inline]
    fn settle(
        &mut self,
        task: SampledTask,
        raw: &RawRecord<'_>,
        (ip, chain): (u64, Option<U64s<'_>>),
        then: Option<&MemoryState>,
    ) {
        let reader = &self.events[task.event];
        let factor = self.counting.factor(task.event, &reader.layout, raw);
        let (mode, own) = (raw.misc.cpu_mode(), (ip, chain));
        // Finds the user code that entered the kernel, for a sample taken in the kernel.
        let entry = reader.kernel_entry.as_ref();
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
        let reads_group = reader.shape.reads_group();
        let waits = reader.waits;
        if !task.passes {
            match reads_group {
                _ if waits => self.begin_wait(task, hit, None),
                true => self.count_group(task, raw, hit, None),
                false => self.counting.events[task.event].all.add_sample(task.weight),
            }
            return;
        }
        let system = (&mut self.system, &mut self.losses);
        self.stacking.begin(system, task, then, (mode, ip, chain));
        let sample = WaitingSample {
            event: task.event,
            sample_key: task.sample_key,
            hit,
        };
        // The members of the group, or the counter's times, depend on the samples before this one.
        if reads_group {
            let stack = self.count_waiting();
            self.count_group(task, raw, hit, Some(stack));
        } else if waits {
            let stack = self.count_waiting();
            self.begin_wait(task, hit, Some(stack));
        } else if self.counting.events[task.event].tells_times {
            let stack = self.count_waiting();
            self.counting.count(sample, stack);
        } else if self.stacking.wait(sample) {
            self.count_waiting();
        }
    }

    /// Lets a switch away from a thread wait for the switch back.
    fn begin_wait(&mut self, task: SampledTask, hit: Hit, place: Option<u32>) {
        let tid = self.system.tasks.threads()[task.thread as usize].tid;
        let sample = WaitingSample {
            event: task.event,
            sample_key: task.sample_key,
            hit,
        };
        let elapsed = hit.elapsed.unwrap_or(0);
        let since = self
            .identifier
            .first_time
            .unwrap_or(0)
            .saturating_add(elapsed);
        if let Some(waits) = &mut self.waits {
            waits.begin((tid, task.thread), sample, place, since);
        }
    }

    /// Counts all samples whose stacks are being looked for. Returns the stack that was begun last.
    pub(super) fn count_waiting(&mut self) -> u32 {
        let counting = &mut self.counting;
        self.stacking
            .finish(|sample, stack| counting.count(sample, stack))
    }

    /// Counts a sample that holds the counts of a group, and shows it to the visitor.
    fn count_group(
        &mut self,
        task: SampledTask,
        raw: &RawRecord<'_>,
        hit: Hit,
        stack: Option<u32>,
    ) {
        let layout = &self.events[task.event].layout;
        let place = stack.map(|stack| (task.sample_key, stack));
        let losses = &mut self.losses;
        self.counting
            .count_group(task, (layout, raw), hit, place, losses);
        if let Some(visitor) = &mut self.visitor {
            visitor.sample(&GroupSample {
                event: task.event,
                thread: task.thread,
                raw,
                layout,
                stack,
            });
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

    /// Returns whether samples hold copies of stacks, which are wanted.
    pub(super) fn copies_stacks(&self) -> bool {
        self.events.iter().any(|event| event.copies_stacks)
    }
}

/// Returns whether an event's samples hold the CPU's stack of open calls.
fn has_call_stack(attr: &Attr) -> bool {
    attr.sample_type.contains(SampleType::BRANCH_STACK)
        && BranchFilter(attr.branch_sample_type).is_call_stack()
}
