//! One open event: a descriptor that counts or samples, closed when dropped.

use crate::errors::{EventError, NoInheritance, OpenError};
use crate::limits;
use crate::names::software;
use crate::record::ReadValues;
use crate::ring::Ring;
use crate::spec::EventSpec;
use crate::sys::{self, Request};
use crate::{Attr, AttrFlags, ReadFormat, event_type};
use crate::{ByteOrder, Cursor};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// The threads and CPUs for which an [`Event`] counts.
///
/// ```
/// use dioptra_perfevents::EventTarget;
///
/// assert_eq!(EventTarget::CALLER, EventTarget::thread(0));
/// assert_eq!(EventTarget::thread(7).on_cpu(1), EventTarget::Thread(7, Some(1)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventTarget {
    /// A thread by its tid (0: the caller), on one CPU or (`None`) on every CPU.
    Thread(u32, Option<u32>),
    /// All threads of a CPU.
    Cpu(u32),
}

impl EventTarget {
    /// The calling thread, on every CPU.
    pub const CALLER: EventTarget = EventTarget::Thread(0, None);

    /// Returns the target for thread `tid` (0: the caller) on every CPU.
    pub const fn thread(tid: u32) -> EventTarget {
        EventTarget::Thread(tid, None)
    }

    /// Returns the target for all threads of a CPU.
    pub const fn cpu(cpu: u32) -> EventTarget {
        EventTarget::Cpu(cpu)
    }

    /// Returns the same threads on one CPU only.
    #[must_use]
    pub const fn on_cpu(self, cpu: u32) -> EventTarget {
        match self {
            EventTarget::Thread(tid, _) => EventTarget::Thread(tid, Some(cpu)),
            EventTarget::Cpu(_) => EventTarget::Cpu(cpu),
        }
    }
}

/// A request to open one event, with the options that [`Event::open`] leaves out: a group and a cgroup.
///
/// ```no_run
/// use dioptra_perfevents::{EventSpec, EventTarget, OpenRequest};
///
/// let leader = OpenRequest::new(&EventSpec::task_clock().user_only(), EventTarget::CALLER).open()?;
/// let faults = EventSpec::page_faults().user_only();
/// let member = OpenRequest::new(&faults, EventTarget::CALLER).group(&leader).open()?;
/// # Ok::<(), dioptra_perfevents::OpenError>(())
/// ```
///
/// [`Group`](crate::Group) does the same for groups that count.
#[derive(Clone, Debug)]
pub struct OpenRequest<'a> {
    pub(crate) name: &'a str,
    pub(crate) attr: Attr,
    pub(crate) target: EventTarget,
    pub(crate) group: Option<BorrowedFd<'a>>,
    pub(crate) cgroup: Option<BorrowedFd<'a>>,
    /// Bytes of the attr behind those that [`Attr`] knows.
    pub(crate) tail: &'a [u8],
    filter: Option<&'a str>,
}

impl<'a> OpenRequest<'a> {
    /// Returns a request for the event that `spec` describes, its filter included.
    pub fn new(spec: &'a EventSpec, target: EventTarget) -> OpenRequest<'a> {
        let mut attr = spec.attr.clone();
        if let Some(file) = &spec.probed_file {
            attr.config1 = file.as_ptr() as u64;
        }
        OpenRequest {
            tail: &spec.tail,
            filter: spec.filter.as_deref(),
            ..OpenRequest::with_attr(&spec.name, attr, target)
        }
    }

    /// Returns a request for the event that `attr` describes. Errors call it `name`.
    pub fn with_attr(name: &'a str, attr: Attr, target: EventTarget) -> OpenRequest<'a> {
        OpenRequest {
            name,
            attr,
            target,
            group: None,
            cgroup: None,
            tail: &[],
            filter: None,
        }
    }

    /// Makes the event a member of the group of `leader`; `None` makes it a leader.
    #[must_use]
    pub fn group(mut self, leader: impl Into<Option<&'a Event>>) -> OpenRequest<'a> {
        self.group = leader.into().map(AsFd::as_fd);
        self
    }

    /// Counts the threads of a cgroup only, given the open directory of the cgroup. The target must be a CPU.
    #[must_use]
    pub fn cgroup(mut self, directory: impl Into<Option<BorrowedFd<'a>>>) -> OpenRequest<'a> {
        self.cgroup = directory.into();
        self
    }

    /// Appends bytes to the attr, for fields of kernels that are newer than [`Attr`].
    #[must_use]
    pub fn tail(mut self, tail: &'a [u8]) -> OpenRequest<'a> {
        self.tail = tail;
        self
    }

    /// Opens the event.
    ///
    /// # Errors
    /// [`OpenError`], which names the cause and the remedy.
    pub fn open(&self) -> Result<Event, OpenError> {
        let fd = self.call().map_err(|error| OpenError::new(self, error))?;
        let event = Event {
            name: self.name.into(),
            attr: self.attr.clone(),
            target: self.target,
            fd,
        };
        if let Some(expression) = self.filter {
            event
                .filter(expression)
                .map_err(|error| OpenError::of_filter(self, expression, error.source))?;
        }
        Ok(event)
    }

    pub(crate) fn counts_kernel(&self) -> bool {
        !self.attr.flags.contains(AttrFlags::EXCLUDE_KERNEL)
    }

    /// Returns true for a software event whose number has no name, as opposed to one that a sandbox lacks.
    pub(crate) fn is_unknown_software_event(&self) -> bool {
        self.attr.kind == event_type::SOFTWARE && software::name(self.attr.config).is_none()
    }

    pub(crate) fn is_cpu_wide(&self) -> bool {
        matches!(self.target, EventTarget::Cpu(_))
    }

    /// Returns the part of the request that older kernels can't inherit, unless another reason for `EINVAL` is likelier.
    pub(crate) fn inheritance_fault(&self) -> Option<NoInheritance> {
        let attr = &self.attr;
        if !attr.flags.contains(AttrFlags::INHERIT) || self.group.is_some() || self.has_bad_pace() {
            None
        } else if attr.read_format.contains(ReadFormat::GROUP) {
            Some(NoInheritance::Groups)
        } else if attr.sample_type.contains(crate::SampleType::READ) {
            Some(NoInheritance::Values)
        } else {
            None
        }
    }

    /// Returns true if the frequency or period is beyond the kernel's limits.
    fn has_bad_pace(&self) -> bool {
        let attr = &self.attr;
        match attr.flags.contains(AttrFlags::FREQ) {
            true => limits::max_sample_rate().is_some_and(|most| attr.sample_period > most),
            false => attr.sample_period > i64::MAX.cast_unsigned(),
        }
    }

    /// Returns the likeliest of the known reasons for which kernels answer `EINVAL`; empty if none applies.
    pub(crate) fn hint(&self) -> &'static str {
        let attr = &self.attr;
        if self.has_bad_pace() {
            match attr.flags.contains(AttrFlags::FREQ) {
                true => "the frequency is above kernel.perf_event_max_sample_rate",
                false => "a period is at most 9223372036854775807 events",
            }
        } else if self.group.is_some() {
            // The leader, which has the same options, did open.
            "a group holds as many events as the PMU has counters, of one PMU besides software events"
        } else if attr.precise_ip() > 0 {
            "precise addresses"
        } else if attr.branch_sample_type != 0 {
            "branch records"
        } else if attr.kind == event_type::BREAKPOINT {
            "a breakpoint's length must be 1, 2, 4 or 8 and its address a multiple of it"
        } else {
            ""
        }
    }

    /// Makes the system call.
    pub(crate) fn call(&self) -> Result<OwnedFd, io::Error> {
        let id = |number: u32| {
            i32::try_from(number).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
        };
        let (pid, cpu) = match (self.target, self.cgroup) {
            (EventTarget::Thread(tid, cpu), _) => (id(tid)?, cpu.map_or(Ok(-1), id)?),
            (EventTarget::Cpu(cpu), Some(cgroup)) => (cgroup.as_raw_fd(), id(cpu)?),
            (EventTarget::Cpu(cpu), None) => (-1, id(cpu)?),
        };
        let size = u32::try_from(Attr::MAX_SIZE).unwrap_or(u32::MAX);
        let cgroup = self.cgroup.is_some();
        sys::perf_event_open(&self.attr, size, self.tail, pid, cpu, self.group, cgroup)
    }
}

impl fmt::Display for OpenRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the event {}", self.name)?;
        match self.target {
            EventTarget::Thread(0, _) => write!(f, " on the calling thread"),
            EventTarget::Thread(tid, None) => write!(f, " on thread {tid}"),
            EventTarget::Thread(tid, Some(cpu)) => write!(f, " on thread {tid}, CPU {cpu}"),
            EventTarget::Cpu(cpu) if self.cgroup.is_some() => {
                write!(f, " for the cgroup, CPU {cpu}")
            }
            EventTarget::Cpu(cpu) => write!(f, " on CPU {cpu}"),
        }
    }
}

/// An open event. Dropping it closes the descriptor, which ends the event here and in every thread that inherited it.
#[derive(Debug)]
pub struct Event {
    name: Box<str>,
    attr: Attr,
    target: EventTarget,
    fd: OwnedFd,
}

/// A count as [`Event::read`] returns it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Count {
    /// Events counted, those of ended and living threads that inherited the event included.
    pub value: u64,
    /// Nanoseconds for which the event was enabled; `None` without [`ReadFormat::TOTAL_TIME_ENABLED`].
    pub time_enabled: Option<u64>,
    /// Nanoseconds for which it counted; less than enabled where counters were shared.
    pub time_running: Option<u64>,
    /// The event's id, with [`ReadFormat::ID`].
    pub id: Option<u64>,
    /// Records that found its ring full, with [`ReadFormat::LOST`].
    pub lost: Option<u64>,
}

impl Event {
    /// Opens the event that `spec` describes, for `target`. It counts from now on, unless the attr says
    /// [`AttrFlags::DISABLED`].
    ///
    /// [`OpenRequest`] opens members of groups and events of cgroups; [`Counter`](crate::Counter) and
    /// [`Group`](crate::Group) are simpler for counting.
    ///
    /// # Errors
    /// [`OpenError`], which names the cause and the remedy.
    pub fn open(spec: &EventSpec, target: EventTarget) -> Result<Event, OpenError> {
        OpenRequest::new(spec, target).open()
    }

    fn error(&self, operation: &'static str) -> impl FnOnce(io::Error) -> EventError + '_ {
        move |source| EventError {
            operation,
            event: self.name.to_string(),
            source,
        }
    }

    /// Returns the name under which the event was opened.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the attr with which the event was opened.
    pub fn attr(&self) -> &Attr {
        &self.attr
    }

    /// Returns the threads and CPUs for which the event counts.
    pub fn target(&self) -> EventTarget {
        self.target
    }

    /// Starts counting, in every thread that inherited the event as well.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn enable(&self) -> Result<(), EventError> {
        sys::control(self.as_fd(), Request::Enable, false).map_err(self.error("enable"))
    }

    /// Stops counting, in every thread that inherited the event as well. Wakes no poll.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn disable(&self) -> Result<(), EventError> {
        sys::control(self.as_fd(), Request::Disable, false).map_err(self.error("disable"))
    }

    /// Enables a leader's whole group at once.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn enable_group(&self) -> Result<(), EventError> {
        sys::control(self.as_fd(), Request::Enable, true).map_err(self.error("enable"))
    }

    /// Disables a leader's whole group at once.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn disable_group(&self) -> Result<(), EventError> {
        sys::control(self.as_fd(), Request::Disable, true).map_err(self.error("disable"))
    }

    /// Sets the count to zero; times go on.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn reset(&self) -> Result<(), EventError> {
        sys::control(self.as_fd(), Request::Reset, false).map_err(self.error("reset"))
    }

    /// Sets a new period (or frequency, for an event opened with one). Threads that inherited the event already keep
    /// theirs; threads created afterwards take the new one.
    ///
    /// # Errors
    /// The kernel's refusal: `EINVAL` for zero.
    pub fn period(&self, period: u64) -> Result<(), EventError> {
        sys::set_period(self.as_fd(), period).map_err(self.error("set the period of"))
    }

    /// Lets `count` more samples be taken and enables the event; after them it disables itself, with its group.
    ///
    /// # Errors
    /// The kernel's refusal: `EINVAL` for inherited events and for events that do not sample. `EOPNOTSUPP`, without
    /// asking the kernel, for a clock event on the kernels that would hang
    /// ([`limits::refresh_of_clocks_is_unsafe`](crate::limits::refresh_of_clocks_is_unsafe)), and `EINVAL` for a
    /// count of zero, which the kernel takes for no limit.
    pub fn refresh(&self, count: u32) -> Result<(), EventError> {
        // cpu-clock and task-clock are the software events 0 and 1.
        let clock = self.attr.kind == event_type::SOFTWARE && self.attr.config <= 1;
        let result = if clock && limits::refresh_of_clocks_is_unsafe() {
            Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
        } else {
            match i32::try_from(count) {
                Ok(count) if count > 0 => sys::refresh(self.as_fd(), count),
                _ => Err(io::Error::from_raw_os_error(libc::EINVAL)),
            }
        };
        result.map_err(self.error("refresh"))
    }

    /// Reads the event's own count, of a leader or of a member.
    ///
    /// With [`ReadFormat::GROUP`] the kernel answers every member with its whole group, leader first; the own count is
    /// found by its id, which needs [`ReadFormat::ID`]. Without ids it is the leader's.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn read(&self) -> Result<Count, EventError> {
        let mut buffer = [0; 40];
        if self.attr.read_format.contains(ReadFormat::GROUP) {
            let counts = self.read_group()?;
            let own = match counts.as_slice() {
                [count] => Some(count),
                counts if self.attr.read_format.contains(ReadFormat::ID) => {
                    let id = self.id()?;
                    counts.iter().find(|count| count.id == Some(id))
                }
                counts => counts.first(),
            };
            return own
                .copied()
                .ok_or_else(|| self.error("read")(io::ErrorKind::UnexpectedEof.into()));
        }
        let length = sys::read(self.as_fd(), &mut buffer).map_err(self.error("read"))?;
        let counts = self.counts(buffer.get(..length).unwrap_or_default());
        counts
            .first()
            .copied()
            .ok_or_else(|| self.error("read")(io::ErrorKind::UnexpectedEof.into()))
    }

    /// Reads the counts of a leader's group, leader first; of the event alone without [`ReadFormat::GROUP`].
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn read_group(&self) -> Result<Vec<Count>, EventError> {
        // A group has far fewer members than counters fit here; the kernel answers ENOSPC otherwise.
        let mut buffer = vec![0; 4096];
        loop {
            match sys::read(self.as_fd(), &mut buffer) {
                Ok(length) => return Ok(self.counts(buffer.get(..length).unwrap_or_default())),
                Err(error)
                    if error.raw_os_error() == Some(libc::ENOSPC) && buffer.len() < 1 << 20 =>
                {
                    buffer.resize(buffer.len() * 4, 0);
                }
                Err(error) => return Err(self.error("read")(error)),
            }
        }
    }

    fn counts(&self, bytes: &[u8]) -> Vec<Count> {
        let mut at = Cursor::new(bytes, ByteOrder::NATIVE);
        let Some(values) = ReadValues::parse(&mut at, self.attr.read_format) else {
            return Vec::new();
        };
        let count = |value: crate::record::ReadValue| Count {
            value: value.value,
            time_enabled: values.time_enabled,
            time_running: values.time_running,
            id: value.id,
            lost: value.lost,
        };
        values.iter().map(count).collect()
    }

    /// Sends the event's records to the ring of `target`, or with `None` nowhere.
    ///
    /// # Errors
    /// The kernel's refusal: `EINVAL` where the two count on different CPUs or clocks, or `target` has no ring.
    pub fn set_output(&self, target: Option<&Event>) -> Result<(), EventError> {
        sys::set_output(self.as_fd(), target.map(AsFd::as_fd))
            .map_err(self.error("redirect the output of"))
    }

    /// Stops (`true`), or goes on, writing into the event's ring; what is written meanwhile counts as lost.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn pause(&self, pause: bool) -> Result<(), EventError> {
        sys::pause_output(self.as_fd(), pause).map_err(self.error("pause the output of"))
    }

    /// Sets a tracepoint's filter, in the language of `/sys/kernel/tracing/events/…/filter`.
    ///
    /// # Errors
    /// The kernel's refusal; `EINVAL` for an expression that it can't read or that holds a NUL.
    pub fn filter(&self, expression: &str) -> Result<(), EventError> {
        let text = std::ffi::CString::new(expression)
            .map_err(|_| self.error("filter")(io::Error::from_raw_os_error(libc::EINVAL)))?;
        sys::set_filter(self.as_fd(), &text).map_err(self.error("filter"))
    }

    /// Maps a ring of `pages` data pages, a power of two.
    ///
    /// # Errors
    /// The kernel's refusal; see [`Ring::new`].
    pub fn mmap(&self, pages: usize) -> Result<Ring, EventError> {
        Ring::new(self.as_fd(), pages).map_err(self.error("map the ring of"))
    }

    /// Returns the event's id, as records carry it; clones in threads that inherit the event write the same.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn id(&self) -> Result<u64, EventError> {
        sys::event_id(self.as_fd()).map_err(self.error("ask for the id of"))
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Event {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}
