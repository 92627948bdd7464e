//! Specifications: events, groups, targets, and a session's settings.

use crate::cpus::CpuSet;
use crate::names::software;
use crate::{Attr, AttrFlags, SampleType, event_type};
use bitflags::bitflags;
use std::ffi::CStr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// One event to capture.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct EventSpec {
    /// The name as typed.
    pub name: String,
    /// The event and the fields of its samples. The session adds its ids, clock, inheritance and side-band flags.
    pub attr: Attr,
    /// The threads of the session for which the event is.
    pub thread: ThreadChoice,
    /// The filter expression of a tracepoint.
    pub filter: Option<String>,
    /// The file of a uprobe. The address of this text becomes the attr's `config1`.
    pub probed_file: Option<Arc<CStr>>,
    /// Bytes of the attr behind [`Attr::MAX_SIZE`], for fields that only some kernels know.
    pub tail: Vec<u8>,
    /// Whether the period or frequency was typed with the event.
    pub explicit_period: bool,
    /// Whether `attr` may be replaced by `cpu-clock` where the machine has no cycle counter: true of `cycles`.
    pub clock_can_replace: bool,
}

/// The threads of a session's target for which an event is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ThreadChoice {
    /// All of them.
    #[default]
    All,
    /// The thread of this tid only, which need not belong to the target.
    Only(u32),
}

impl EventSpec {
    /// Makes an event of any kind from its attr.
    pub fn new(name: impl Into<String>, attr: Attr) -> EventSpec {
        EventSpec {
            name: name.into(),
            explicit_period: attr.sample_period != 0,
            clock_can_replace: attr.kind == event_type::HARDWARE && attr.config == 0,
            attr,
            thread: ThreadChoice::All,
            filter: None,
            probed_file: None,
            tail: Vec::new(),
        }
    }

    /// Returns a software event by its number, one of the constants in [`names::software`](crate::names::software).
    /// Opening a number that the kernel does not have fails with
    /// [`Refusal::NoSoftwareEvent`](crate::Refusal::NoSoftwareEvent).
    pub fn software(config: u64) -> EventSpec {
        let name = match software::name(config) {
            Some(name) => name.to_owned(),
            None => format!("software event {config}"),
        };
        let attr = Attr {
            kind: event_type::SOFTWARE,
            config,
            ..Attr::default()
        };
        EventSpec::new(name, attr)
    }

    /// Returns the time for which the thread runs, in nanoseconds.
    pub fn task_clock() -> EventSpec {
        EventSpec::software(software::TASK_CLOCK)
    }

    /// Returns the CPU's clock, which samples while a thread runs, on every machine.
    pub fn cpu_clock() -> EventSpec {
        EventSpec::software(software::CPU_CLOCK)
    }

    /// Returns page faults, minor and major.
    pub fn page_faults() -> EventSpec {
        EventSpec::software(software::PAGE_FAULTS)
    }

    /// Samples after each `period` events.
    #[must_use]
    pub fn with_period(mut self, period: u64) -> EventSpec {
        self.attr.sample_period = period;
        self.attr.flags.remove(AttrFlags::FREQ);
        self.explicit_period = true;
        self
    }

    /// Samples `hertz` times a second of running time, as far as the kernel manages.
    #[must_use]
    pub fn with_frequency(mut self, hertz: u64) -> EventSpec {
        self.attr.sample_period = hertz;
        self.attr.flags.insert(AttrFlags::FREQ);
        self.explicit_period = true;
        self
    }

    /// Adds `fields` to the samples.
    #[must_use]
    pub fn with_sample(mut self, fields: SampleType) -> EventSpec {
        self.attr.sample_type |= fields;
        self
    }

    /// Counts user space only. Unprivileged users need this unless `kernel.perf_event_paranoid` is below 2.
    #[must_use]
    pub fn user_only(mut self) -> EventSpec {
        self.attr.flags |= AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV;
        self
    }

    /// Restricts the event to one thread, which need not belong to the session's target.
    #[must_use]
    pub fn on_thread(mut self, tid: u32) -> EventSpec {
        self.thread = ThreadChoice::Only(tid);
        self
    }

    /// Sets a frequency in Hz unless a period was typed with the event. An event for which each occurrence matters
    /// (tracepoint, breakpoint) gets a period of 1 instead.
    pub fn set_default_frequency(&mut self, hertz: u64) {
        if self.explicit_period {
            return;
        }
        if self.each_counts() {
            self.attr.sample_period = 1;
        } else {
            self.attr.sample_period = hertz;
            self.attr.flags.insert(AttrFlags::FREQ);
        }
    }

    /// Sets a period in events unless one was typed with the event.
    pub fn set_default_period(&mut self, period: u64) {
        if !self.explicit_period {
            self.attr.sample_period = period;
            self.attr.flags.remove(AttrFlags::FREQ);
        }
    }

    /// Returns true if every occurrence is worth a sample: for tracepoints, uprobes and breakpoints.
    pub fn each_counts(&self) -> bool {
        matches!(
            self.attr.kind,
            event_type::TRACEPOINT | event_type::BREAKPOINT
        ) || crate::names::pmu::is_probe(self.attr.kind)
    }

    /// Returns true if the kernel itself counts the event, rather than a counter of the CPU or a timer.
    pub(crate) fn is_counted_by_kernel(&self) -> bool {
        let clock =
            self.attr.config == software::CPU_CLOCK || self.attr.config == software::TASK_CLOCK;
        (self.attr.kind == event_type::SOFTWARE && !clock) || self.each_counts()
    }
}

/// Events that count together, the leader first; most groups have one.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct EventGroup {
    /// The events.
    pub events: Vec<EventSpec>,
    /// `:S`: only the leader samples, and its samples hold the counts of all.
    pub sample_group: bool,
    /// With `sample_group`: the second event samples as well, in the same way.
    pub twin: bool,
}

impl EventGroup {
    /// Makes a group of `events`, leader first.
    pub fn new(events: impl IntoIterator<Item = EventSpec>) -> EventGroup {
        EventGroup {
            events: events.into_iter().collect(),
            sample_group: false,
            twin: false,
        }
    }

    /// Lets only the leader sample, with the counts of all events in its samples (`:S`).
    #[must_use]
    pub fn sampled_together(mut self) -> EventGroup {
        self.sample_group = true;
        self
    }
}

impl From<EventSpec> for EventGroup {
    fn from(event: EventSpec) -> EventGroup {
        EventGroup::new([event])
    }
}

/// The threads or CPUs that a session watches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Target {
    /// Every thread of this process but the one that attaches, which is taken for the reader.
    #[default]
    SelfProcess,
    /// All threads of these processes.
    Processes(Vec<u32>),
    /// These threads.
    Threads(Vec<u32>),
    /// A child, held before its exec.
    Command(u32),
    /// All threads of these CPUs; `None` for all CPUs.
    Cpus(Option<CpuSet>),
    /// The threads of a cgroup.
    Cgroup {
        /// The path of the cgroup, absolute or below the root of the cgroup file system.
        path: PathBuf,
        /// The CPUs; `None` for all.
        cpus: Option<CpuSet>,
    },
}

impl Target {
    /// Returns true if events count for CPUs rather than threads.
    pub fn is_cpu_wide(&self) -> bool {
        matches!(self, Target::Cpus(_) | Target::Cgroup { .. })
    }
}

/// The heirs of a thread's events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Inherit {
    /// Nobody.
    No,
    /// Threads it creates, not processes it forks.
    #[default]
    Threads,
    /// Both.
    ThreadsAndChildren,
}

/// The moment at which events start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Start {
    /// At the target's next exec.
    OnExec,
    /// As soon as they are attached.
    #[default]
    AtAttach,
    /// With [`AttachedSession::enable`](crate::AttachedSession::enable). Records of mappings and names come from the start.
    Manual,
}

bitflags! {
    /// Steps that a session may take where something is refused. Each step taken is a note in the summary.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Fallbacks: u32 {
        /// Raise the limit of open descriptors.
        const RAISE_DESCRIPTORS = 1 << 0;
        /// Map smaller rings.
        const SMALLER_RINGS = 1 << 1;
        /// Leave the kernel out where only user space may be counted.
        const EXCLUDE_KERNEL = 1 << 2;
        /// Sample `cpu-clock` where there is no cycle counter.
        const CPU_CLOCK = 1 << 3;
        /// Ask for less precise addresses.
        const LESS_PRECISE = 1 << 4;
        /// Lower the frequency to what the kernel allows.
        const LOWER_FREQUENCY = 1 << 5;
        /// Take one event per thread instead of one per thread and CPU, where descriptors run out: inherits nothing.
        const PER_THREAD = 1 << 6;
        /// Let the kernel send signals instead of writing into rings, where descriptors or memory for rings run out:
        /// for [`Target::SelfProcess`] only. Takes the process's SIGTRAP, so it is off unless asked for.
        const SIGNALS = 1 << 7;
        /// Sample by a timer of the process where there are no events at all: for [`Target::SelfProcess`] only. Takes
        /// the process's SIGPROF, so it is off unless asked for.
        const TIMER = 1 << 8;
    }
}

impl Default for Fallbacks {
    /// Allows all fallbacks that take nothing from the process: no signals.
    fn default() -> Fallbacks {
        Fallbacks::all().difference(Fallbacks::SIGNALS | Fallbacks::TIMER)
    }
}

bitflags! {
    /// Records beside samples. The session leaves out those that the kernel does not know, and adds a note.
    ///
    /// The default is [`SideBand::MMAP`], [`SideBand::COMM`] and [`SideBand::TASK`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct SideBand: u32 {
        /// Executable mappings.
        const MMAP = 1 << 0;
        /// Data mappings.
        const MMAP_DATA = 1 << 1;
        /// Thread names.
        const COMM = 1 << 2;
        /// Thread creation and exit.
        const TASK = 1 << 3;
        /// Context switches.
        const SWITCH = 1 << 4;
        /// Kernel symbols that come and go.
        const KSYMBOL = 1 << 5;
        /// BPF programs.
        const BPF = 1 << 6;
        /// Cgroup paths.
        const CGROUP = 1 << 7;
        /// Namespaces.
        const NAMESPACES = 1 << 8;
        /// Build ids in place of the inodes in executable mappings.
        const BUILD_ID = 1 << 9;
    }
}

impl Default for SideBand {
    fn default() -> SideBand {
        SideBand::MMAP | SideBand::COMM | SideBand::TASK
    }
}

impl SideBand {
    /// Samples only.
    pub const NONE: SideBand = SideBand::empty();

    /// Returns the attr's flags that ask for these records.
    pub(crate) fn attr_flags(self) -> AttrFlags {
        [
            (SideBand::MMAP, AttrFlags::MMAP | AttrFlags::MMAP2),
            (SideBand::MMAP_DATA, AttrFlags::MMAP_DATA),
            (SideBand::COMM, AttrFlags::COMM | AttrFlags::COMM_EXEC),
            (SideBand::TASK, AttrFlags::TASK),
            (SideBand::SWITCH, AttrFlags::CONTEXT_SWITCH),
            (SideBand::KSYMBOL, AttrFlags::KSYMBOL),
            (SideBand::BPF, AttrFlags::BPF_EVENT),
            (SideBand::CGROUP, AttrFlags::CGROUP),
            (SideBand::NAMESPACES, AttrFlags::NAMESPACES),
            (SideBand::MMAP | SideBand::BUILD_ID, AttrFlags::BUILD_ID),
        ]
        .into_iter()
        .filter(|(records, _)| self.contains(*records))
        .fold(AttrFlags::empty(), |flags, (_, more)| flags | more)
    }
}

/// A way of waiting for records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reader {
    /// Wakes when a ring passes its watermark (`poll(2)`), and at the latest after [`SessionSpec::poll_timeout`].
    #[default]
    FdPoll,
    /// Looks at the rings each [`SessionSpec::poll_timeout`] and at no other time. Use this where a session must not
    /// wake between two looks; rings must then hold the records of a whole interval.
    Interval,
}

/// A session's events, target and settings. The default watches this process and has no events.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SessionSpec {
    /// The events, in groups.
    pub groups: Vec<EventGroup>,
    /// The threads or CPUs to watch.
    pub target: Target,
    /// The heirs of a thread's events.
    pub inherit: Inherit,
    /// The moment at which events start.
    pub start: Start,
    /// Data pages of each CPU's ring; `None` for 512 KiB, or 2 MiB where memory may be locked freely. Rounded up to
    /// a power of two, halved as often as the kernel refuses.
    pub ring_pages: Option<usize>,
    /// The CPUs on which threads are watched; `None` for all that are online.
    pub cpus: Option<CpuSet>,
    /// Bytes in a ring before the reader is woken; `None` for a quarter of it.
    pub watermark: Option<u32>,
    /// The longest wait of [`AttachedSession::run`](crate::AttachedSession::run) before it looks at the rings anyway.
    pub poll_timeout: Duration,
    /// The number of times that the list of threads is read at most until all are covered.
    pub attach_iterations: u32,
    /// The share of the descriptor limit that may be in use after attaching, 0 to 1.
    pub fd_ratio: f64,
    /// The steps that the session may take where something is refused.
    pub fallbacks: Fallbacks,
    /// Records besides samples.
    pub side_band: SideBand,
    /// Clock of all times, a `CLOCK_*` number; `None` for the kernel's own.
    pub clock: Option<i32>,
    /// Whether the thread that attaches is watched too, with [`Target::SelfProcess`].
    pub watch_reader: bool,
    /// The way of waiting for records.
    pub reader: Reader,
}

impl Default for SessionSpec {
    fn default() -> SessionSpec {
        SessionSpec {
            groups: Vec::new(),
            target: Target::SelfProcess,
            inherit: Inherit::Threads,
            start: Start::AtAttach,
            ring_pages: None,
            cpus: None,
            watermark: None,
            poll_timeout: Duration::from_millis(100),
            attach_iterations: 16,
            fd_ratio: 1.0,
            fallbacks: Fallbacks::default(),
            side_band: SideBand::default(),
            clock: Some(libc::CLOCK_MONOTONIC),
            watch_reader: false,
            reader: Reader::FdPoll,
        }
    }
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $type:ty,)*) => {
        $($(#[$doc])* #[must_use] pub fn $name(mut self, $name: $type) -> SessionSpec {
            self.$name = $name;
            self
        })*
    };
}

impl SessionSpec {
    /// Returns the default settings without events.
    pub fn new() -> SessionSpec {
        SessionSpec::default()
    }

    /// Adds an event, or a group of them.
    #[must_use]
    pub fn event(mut self, event: impl Into<EventGroup>) -> SessionSpec {
        self.groups.push(event.into());
        self
    }

    /// Sets [`SessionSpec::ring_pages`], to a number of pages or to `None` for the default.
    #[must_use]
    pub fn ring_pages(mut self, ring_pages: impl Into<Option<usize>>) -> SessionSpec {
        self.ring_pages = ring_pages.into();
        self
    }

    /// Sets [`SessionSpec::cpus`], to a set or to `None` for all that are online.
    #[must_use]
    pub fn cpus(mut self, cpus: impl Into<Option<CpuSet>>) -> SessionSpec {
        self.cpus = cpus.into();
        self
    }

    /// Sets [`SessionSpec::watermark`], to a number of bytes or to `None` for the default.
    #[must_use]
    pub fn watermark(mut self, watermark: impl Into<Option<u32>>) -> SessionSpec {
        self.watermark = watermark.into();
        self
    }

    /// Sets [`SessionSpec::clock`], to a `CLOCK_*` number or to `None` for the kernel's own.
    #[must_use]
    pub fn clock(mut self, clock: impl Into<Option<i32>>) -> SessionSpec {
        self.clock = clock.into();
        self
    }

    setters! {
        /// Sets [`SessionSpec::groups`], such as from [`parse_events`](crate::parse_events).
        groups: Vec<EventGroup>,
        /// Sets [`SessionSpec::target`].
        target: Target,
        /// Sets [`SessionSpec::inherit`].
        inherit: Inherit,
        /// Sets [`SessionSpec::start`].
        start: Start,
        /// Sets [`SessionSpec::poll_timeout`].
        poll_timeout: Duration,
        /// Sets [`SessionSpec::attach_iterations`].
        attach_iterations: u32,
        /// Sets [`SessionSpec::fd_ratio`].
        fd_ratio: f64,
        /// Sets [`SessionSpec::fallbacks`].
        fallbacks: Fallbacks,
        /// Sets [`SessionSpec::side_band`].
        side_band: SideBand,
        /// Sets [`SessionSpec::watch_reader`].
        watch_reader: bool,
        /// Sets [`SessionSpec::reader`].
        reader: Reader,
    }
}
