//! The plan of a session: each event's attr in full, from the session's settings and the kernel's features.

use crate::features::{self, Features};
use crate::limits;
use crate::names::software;
use crate::notes::AttachNote;
use crate::spec::{
    EventSpec, Fallbacks, Inherit, SessionSpec, SideBand, Start, Target, ThreadChoice,
};
use crate::{Attr, AttrFlags, ReadFormat, SampleType, event_type};
use std::ffi::CStr;
use std::sync::Arc;

/// Fields that every sample has, so that each record names its event, thread, time and CPU.
const BASE: SampleType = SampleType::IDENTIFIER
    .union(SampleType::TID)
    .union(SampleType::TIME)
    .union(SampleType::CPU);

/// Fields that one event's samples may have without those of the others.
const OWN: SampleType = SampleType::PERIOD
    .union(SampleType::READ)
    .union(SampleType::RAW)
    .union(SampleType::BRANCH_STACK)
    .union(SampleType::AUX)
    .union(SampleType::PHYS_ADDR);

/// The flags that an event without heirs lacks.
const NO_HEIRS: AttrFlags = AttrFlags::INHERIT.union(AttrFlags::INHERIT_THREAD);

/// One event of the session as it will be opened at each place.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) name: String,
    pub(crate) attr: Attr,
    pub(crate) thread: ThreadChoice,
    pub(crate) filter: Option<String>,
    /// The text at which the attr points, kept for as long as events are opened.
    probed_file: Option<Arc<CStr>>,
    /// As [`EventSpec::tail`].
    pub(crate) tail: Vec<u8>,
    /// The index among the session's events as given; `None` for a carrier that the session added.
    pub(crate) spec: Option<usize>,
    /// The number of members that follow in the group; `None` for a member.
    pub(crate) leads: Option<usize>,
    pub(super) clock_can_replace: bool,
    pub(crate) counted_by_kernel: bool,
}

impl Planned {
    /// Returns true if the event is for this thread. `listed` says whether the thread belongs to the session's target.
    pub(crate) fn is_for(&self, tid: u32, listed: bool) -> bool {
        match self.thread {
            ThreadChoice::All => listed,
            ThreadChoice::Only(only) => only == tid,
        }
    }

    /// Returns true for a clock, and for an event that a clock can replace.
    pub(crate) fn is_clock(&self) -> bool {
        let clock = matches!(self.attr.config, software::CPU_CLOCK | software::TASK_CLOCK);
        self.attr.samples()
            && (self.clock_can_replace || (self.attr.kind == event_type::SOFTWARE && clock))
    }

    /// Returns a clock's period in nanoseconds.
    pub(crate) fn clock_period(&self) -> u64 {
        if self.attr.flags.contains(AttrFlags::FREQ) {
            1_000_000_000 / self.attr.sample_period.max(1)
        } else if self.clock_can_replace {
            1_000_000
        } else {
            self.attr.sample_period
        }
    }

    /// Returns the number of events between two samples, nanoseconds for clocks; `None` where it varies, and for events
    /// that only count.
    pub(crate) fn fixed_period(&self) -> Option<u64> {
        let clock = matches!(self.attr.config, software::CPU_CLOCK | software::TASK_CLOCK);
        match self.attr.sample_period {
            0 => None,
            hertz if self.attr.flags.contains(AttrFlags::FREQ) => {
                let is_clock = self.attr.kind == event_type::SOFTWARE && clock;
                is_clock.then(|| 1_000_000_000 / hertz)
            }
            period => Some(period),
        }
    }

    /// Returns true if the session has to enable the leader once it is open.
    pub(crate) fn starts_late(&self) -> bool {
        self.attr.flags.contains(AttrFlags::DISABLED)
            && !self.attr.flags.contains(AttrFlags::ENABLE_ON_EXEC)
    }
}

/// The arrangement of a session's events and rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Arrangement {
    /// Events for each thread and core, inherited; a ring for each core, owned by the reader.
    PerCore,
    /// Events and a ring for each CPU.
    PerCpu,
    /// Events and a ring for each thread.
    PerThread,
    /// Events for each thread, inherited; no rings, but signals.
    Signals,
}

impl Arrangement {
    /// Returns true if the ring owners carry the side band, and so are events of the session.
    fn owners_carry(self) -> bool {
        matches!(self, Arrangement::PerCpu | Arrangement::PerThread)
    }

    /// Returns true if threads inherit events.
    pub(crate) fn inherits(self) -> bool {
        matches!(self, Arrangement::PerCore | Arrangement::Signals)
    }
}

/// All events of a session, in the order in which they are opened at each place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    pub(crate) events: Vec<Planned>,
    /// The ring owner's attr.
    pub(crate) owner: Attr,
    /// The index of the ring owners' event, where they carry the side band and so are events of the session.
    pub(crate) owner_event: Option<usize>,
    pub(crate) notes: Vec<AttachNote>,
}

impl Plan {
    /// Plans a session's events from its settings and the kernel's features, without opening any.
    pub(crate) fn new(spec: &SessionSpec, features: &Features, shape: Arrangement) -> Plan {
        let mut plan = Plan::default();
        let common = spec
            .groups
            .iter()
            .flat_map(|group| &group.events)
            .fold(BASE, |fields, event| {
                fields | event.attr.sample_type.difference(OWN)
            });
        let mut index = 0;
        for group in &spec.groups {
            for (position, event) in group.events.iter().enumerate() {
                let mut planned = Planned {
                    name: event.name.clone(),
                    attr: event.attr.clone(),
                    thread: event.thread,
                    filter: event.filter.clone(),
                    probed_file: event.probed_file.clone(),
                    tail: event.tail.clone(),
                    spec: Some(index),
                    leads: (position == 0).then(|| group.events.len() - 1),
                    clock_can_replace: event.clock_can_replace,
                    counted_by_kernel: event.is_counted_by_kernel(),
                };
                if let Some(file) = &planned.probed_file {
                    planned.attr.config1 = file.as_ptr() as u64;
                }
                if group.sample_group {
                    let samples = position == 0 || (group.twin && position == 1);
                    read_together(&mut planned.attr, samples);
                }
                plan.finish_attr(&mut planned, event, common, spec, features);
                plan.events.push(planned);
                index += 1;
            }
        }
        if !shape.inherits() {
            plan.events
                .iter_mut()
                .for_each(|event| event.attr.flags.remove(NO_HEIRS));
        }
        if shape == Arrangement::Signals {
            plan.take_signals();
        } else {
            plan.place_side_band(spec, features, common, shape);
        }
        plan
    }

    /// Adds to an event's attr what the session decides.
    fn finish_attr(
        &mut self,
        planned: &mut Planned,
        event: &EventSpec,
        common: SampleType,
        spec: &SessionSpec,
        features: &Features,
    ) {
        let attr = &mut planned.attr;
        attr.sample_type |= common;
        // An event that was given no mask and no size of its own would be refused with these fields.
        for (field, is_given) in [
            (SampleType::REGS_USER, attr.sample_regs_user != 0),
            (SampleType::REGS_INTR, attr.sample_regs_intr != 0),
            (SampleType::STACK_USER, attr.sample_stack_user != 0),
        ] {
            if !is_given {
                attr.sample_type.remove(field);
            }
        }
        if attr.flags.contains(AttrFlags::FREQ) {
            // A frequency's periods vary: without them samples can't be weighted.
            attr.sample_type |= SampleType::PERIOD;
            self.lower_frequency(attr, &event.name, spec.fallbacks);
        } else if event.is_counted_by_kernel() && attr.sample_period > 1 {
            // With the period in its samples the kernel writes one for every occurrence.
            attr.sample_type.remove(SampleType::PERIOD);
        }
        attr.read_format |=
            ReadFormat::ID | ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING;
        if features.read_lost {
            attr.read_format |= ReadFormat::LOST;
        }
        if attr.flags.contains(AttrFlags::EXCLUDE_KERNEL)
            && attr.sample_type.contains(SampleType::CALLCHAIN)
        {
            // Older kernels ask for the right to see the kernel otherwise.
            attr.flags |= AttrFlags::EXCLUDE_CALLCHAIN_KERNEL;
        }
        common_flags(attr, spec, features);
        let reads = attr.sample_type.contains(SampleType::READ);
        let group_reads = reads && attr.read_format.contains(ReadFormat::GROUP);
        let can = if group_reads {
            features.inherit_group_read
        } else {
            features.inherit_read
        };
        if reads && !can && attr.flags.contains(AttrFlags::INHERIT) {
            attr.flags
                .remove(AttrFlags::INHERIT | AttrFlags::INHERIT_THREAD);
            self.note(AttachNote::ReadNotInherited {
                event: event.name.clone(),
            });
        }
        let leader = planned.leads.is_some();
        let alone = planned.leads == Some(0);
        match spec.start {
            // Members follow their leader.
            _ if !leader => attr.flags.remove(AttrFlags::DISABLED),
            Start::OnExec => attr.flags |= AttrFlags::DISABLED | AttrFlags::ENABLE_ON_EXEC,
            Start::Manual => attr.flags |= AttrFlags::DISABLED,
            // On a thread, an event alone starts as it is opened, which spares a call each; a group must be complete.
            Start::AtAttach => attr
                .flags
                .set(AttrFlags::DISABLED, !alone || spec.target.is_cpu_wide()),
        }
        if attr.flags.contains(AttrFlags::ENABLE_ON_EXEC) {
            // The two exclude each other.
            attr.flags.remove(AttrFlags::REMOVE_ON_EXEC);
        }
    }

    fn lower_frequency(&mut self, attr: &mut Attr, name: &str, fallbacks: Fallbacks) {
        let Some(most) = limits::max_sample_rate() else {
            return;
        };
        if attr.sample_period > most && fallbacks.contains(Fallbacks::LOWER_FREQUENCY) {
            self.note(AttachNote::Frequency {
                event: name.to_owned(),
                asked: attr.sample_period,
                hertz: most,
            });
            attr.sample_period = most;
        }
    }

    /// Decides which event reports mappings, names and threads: one per thread and CPU, for each copy costs a record.
    fn place_side_band(
        &mut self,
        spec: &SessionSpec,
        features: &Features,
        common: SampleType,
        shape: Arrangement,
    ) {
        let mut flags = spec.side_band.attr_flags();
        if spec.inherit != Inherit::No && shape.inherits() {
            // Attaching decides by fork records which threads are covered already.
            flags |= AttrFlags::TASK;
        }
        for (flag, kind) in [
            (AttrFlags::BUILD_ID, "build ids of mappings"),
            (AttrFlags::CONTEXT_SWITCH, "context switches"),
            (AttrFlags::NAMESPACES, "namespaces"),
            (AttrFlags::KSYMBOL, "kernel symbols"),
            (AttrFlags::BPF_EVENT, "BPF programs"),
            (AttrFlags::CGROUP, "cgroup paths"),
        ] {
            if flags.contains(flag) && !features.flags.contains(flag) {
                self.note(AttachNote::NoRecords { kind });
            }
        }
        flags = flags.difference(Features::OPTIONAL.difference(features.flags));
        self.owner = features::dummy();
        self.owner.flags |= AttrFlags::WATERMARK;
        let mut carrier = features::dummy();
        carrier.flags = AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV | flags;
        // The carrier takes no samples, and the kernel refuses registers and stacks without their masks and sizes.
        carrier.sample_type = common
            .difference(SampleType::REGS_USER | SampleType::REGS_INTR | SampleType::STACK_USER);
        carrier.read_format = ReadFormat::ID;
        if features.read_lost {
            carrier.read_format |= ReadFormat::LOST;
        }
        common_flags(&mut carrier, spec, features);
        carrier.flags.remove(AttrFlags::REMOVE_ON_EXEC);
        let planned = |attr| Planned {
            name: "dummy".to_owned(),
            attr,
            thread: ThreadChoice::All,
            filter: None,
            probed_file: None,
            tail: Vec::new(),
            spec: None,
            leads: Some(0),
            clock_can_replace: false,
            counted_by_kernel: true,
        };
        if shape.owners_carry() {
            carrier.flags.remove(NO_HEIRS);
            // The owner watches the whole CPU already, from the start and at no cost to threads.
            carrier.flags |= AttrFlags::WATERMARK;
            self.owner = carrier.clone();
            self.owner_event = Some(self.events.len());
            self.events.push(planned(carrier));
        } else if let (false, Some(first)) = (
            spec.start == Start::Manual,
            self.events
                .iter_mut()
                .find(|event| event.leads.is_some() && event.thread == ThreadChoice::All),
        ) {
            // An event more per thread would make creating threads dearer.
            first.attr.flags |= flags;
        } else if spec.side_band != SideBand::NONE {
            // Events that wait to be enabled report nothing meanwhile.
            self.events.insert(0, planned(carrier));
        }
        self.owner.wakeup = 0;
        self.owner.clockid = spec.clock.unwrap_or(0);
        self.owner.flags.set(
            AttrFlags::USE_CLOCKID,
            spec.clock.is_some() && features.flags.contains(AttrFlags::USE_CLOCKID),
        );
    }

    /// Makes every event send signals, and leaves out the fields that a signal can't carry.
    fn take_signals(&mut self) {
        for event in &mut self.events {
            let attr = &mut event.attr;
            attr.sample_type = crate::signals::FIELDS;
            attr.flags |= AttrFlags::SIGTRAP
                | AttrFlags::REMOVE_ON_EXEC
                | AttrFlags::EXCLUDE_KERNEL
                | AttrFlags::EXCLUDE_HV;
            // Signals come from sampling events only, and from each alone.
            attr.flags.remove(AttrFlags::ENABLE_ON_EXEC);
            attr.read_format
                .remove(ReadFormat::GROUP | ReadFormat::LOST);
        }
    }

    pub(super) fn note(&mut self, note: AttachNote) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}

/// Makes an event's samples hold the counts of its group, or makes it count only.
fn read_together(attr: &mut Attr, samples: bool) {
    attr.read_format |= ReadFormat::GROUP;
    if samples {
        attr.sample_type |= SampleType::READ;
    } else {
        attr.sample_period = 0;
        attr.flags.remove(AttrFlags::FREQ);
        // Inheriting a group that is read in samples asks the same format of every member.
        attr.sample_type |= SampleType::READ;
    }
}

/// Flags that all of a session's events share.
fn common_flags(attr: &mut Attr, spec: &SessionSpec, features: &Features) {
    attr.flags |= AttrFlags::SAMPLE_ID_ALL;
    if let Some(clock) = spec.clock
        && features.flags.contains(AttrFlags::USE_CLOCKID)
    {
        attr.flags |= AttrFlags::USE_CLOCKID;
        attr.clockid = clock;
    }
    if spec.target.is_cpu_wide() {
        attr.flags.remove(AttrFlags::INHERIT);
        return;
    }
    if spec.inherit != Inherit::No {
        attr.flags |= AttrFlags::INHERIT;
    }
    if spec.inherit == Inherit::Threads {
        attr.flags |= AttrFlags::INHERIT_THREAD & features.flags;
    }
    if spec.target == Target::SelfProcess && spec.inherit != Inherit::ThreadsAndChildren {
        // The program that an exec makes of this one was not to be watched.
        attr.flags |= AttrFlags::REMOVE_ON_EXEC & features.flags;
    }
}
