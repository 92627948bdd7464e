//! Sources of windows: the trait, the specification, and the choice of the best one.

use super::alternate;
use super::findings::{Finding, Instead, Observation, SourceFinding};
use super::notes::WindowNote;
use super::probe;
use super::refresh::RefreshSource;
use super::schedule::{Length, Schedule};
use super::session::SessionSource;
use crate::cpus::CpuSet;
use crate::errors::{AttachError, EventError, RunError};
use crate::limits;
use crate::names::software;
use crate::record::RawRecord;
use crate::session::AttachedEvent;
use crate::spec::{EventGroup, Start, Target};
use crate::{Attr, SampleType, event_type};
use bitflags::bitflags;
use std::fmt;
use thiserror::Error;

/// A way of making windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SourceKind {
    /// Disabled groups that are armed for a number of samples.
    Refresh,
    /// Events that alternate between two periods.
    Kernel,
    /// Two clocks of nearly one period.
    Twin,
    /// One short period, for a bounded time.
    Steady,
    /// Each event sampled for itself.
    Period,
}

impl SourceKind {
    /// All, the best first.
    pub const ALL: [SourceKind; 5] = [
        SourceKind::Refresh,
        SourceKind::Kernel,
        SourceKind::Twin,
        SourceKind::Steady,
        SourceKind::Period,
    ];

    /// Its name, as users type it.
    pub fn name(self) -> &'static str {
        match self {
            SourceKind::Refresh => "refresh",
            SourceKind::Kernel => "kernel",
            SourceKind::Twin => "twin",
            SourceKind::Steady => "steady",
            SourceKind::Period => "period",
        }
    }

    /// The kind of that name.
    pub fn from_name(name: &str) -> Option<SourceKind> {
        SourceKind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl fmt::Display for SourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The bit of the instruction pointer in [`Attr::sample_regs_user`]. A sample in the kernel tells by that register which
/// user code entered it.
#[cfg(target_arch = "x86_64")]
pub const USER_INSTRUCTION_POINTER: u64 = 1 << 8;
/// The bit of the instruction pointer in [`Attr::sample_regs_user`]. A sample in the kernel tells by that register which
/// user code entered it.
#[cfg(target_arch = "aarch64")]
pub const USER_INSTRUCTION_POINTER: u64 = 1 << 32;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("the register of the instruction pointer is known for x86-64 and arm64 only");

/// The specification of a source.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WindowsSpec {
    /// The schedule of windows.
    pub schedule: Schedule,
    /// Events that are counted together, the leader first, whose samples bound the windows. They take turns.
    pub groups: Vec<EventGroup>,
    /// The target.
    pub target: Target,
    /// Whether threads and processes that the target creates are watched as well.
    pub inherit: bool,
    /// The time at which events of the target may start. Sources that arm them themselves wait for [`WindowSource::start`].
    pub start: Start,
    /// Only these CPUs, for a target of tasks; `None` for all.
    pub cpus: Option<CpuSet>,
    /// The fields of the leader's samples besides ids, address, time and counts, such as [`SampleType::CALLCHAIN`]; with
    /// [`SampleType::REGS_USER`] the instruction pointer.
    pub samples: SampleType,
    /// The most threads that may have bursts at once.
    pub most_threads: usize,
}

impl WindowsSpec {
    /// Windows by `schedule` of `groups` for `target`, and what it creates.
    pub fn new(schedule: Schedule, groups: Vec<EventGroup>, target: Target) -> WindowsSpec {
        WindowsSpec {
            schedule,
            groups,
            target,
            inherit: true,
            start: Start::Manual,
            cpus: None,
            samples: SampleType::empty(),
            most_threads: 256,
        }
    }

    /// The groups as a session or plan takes them: read together, with the leader's period.
    pub(super) fn groups_with_period(&self, period: u64) -> Vec<EventGroup> {
        let with_period = |group: &EventGroup| {
            let mut group = group.clone().sampled_together();
            if let Some(leader) = group.events.first_mut() {
                *leader = leader.clone().with_period(period);
                self.complete(&mut leader.attr);
            }
            group
        };
        self.groups.iter().map(with_period).collect()
    }

    /// Adds the fields that windows' samples hold to an event's attributes.
    pub(super) fn complete(&self, attr: &mut Attr) {
        attr.sample_type |= self.samples | SampleType::IP;
        if attr.sample_type.contains(SampleType::REGS_USER) {
            attr.sample_regs_user |= USER_INSTRUCTION_POINTER;
        }
    }

    /// Whether every group's leader measures time.
    pub(super) fn clocks_lead(&self) -> bool {
        let mut leaders = self.groups.iter().filter_map(|group| group.events.first());
        leaders.all(|leader| is_clock(&leader.attr))
    }
}

/// Whether an event is `cpu-clock` or `task-clock`: its counts are nanoseconds.
pub(super) fn is_clock(attr: &Attr) -> bool {
    attr.kind == event_type::SOFTWARE
        && matches!(attr.config, software::CPU_CLOCK | software::TASK_CLOCK)
}

/// Counters that are read together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WindowGroup {
    /// The index of the event whose samples bound the windows: among [`WindowSource::events`], or among the events of a
    /// file.
    pub leader: u32,
    /// The indices of the other events, in the order of their values in the leader's samples.
    pub members: Vec<u32>,
    /// Whether the last window of each burst is longer than the others, and must be left out.
    pub drop_last: bool,
}

impl WindowGroup {
    /// Returns the group with its events behind `first` others.
    pub fn behind(&self, first: u32) -> WindowGroup {
        let index = |event: u32| event.saturating_add(first);
        WindowGroup {
            leader: index(self.leader),
            members: self.members.iter().copied().map(index).collect(),
            drop_last: self.drop_last,
        }
    }
}

bitflags! {
    /// The outcome of a burst.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct BurstOutcome: u8 {
        /// All windows came.
        const COMPLETE = 1;
        /// The first sample came late: the thread did not run when the burst was armed.
        const LATE = 2;
        /// The burst was given up before all windows came.
        const CUT = 4;
        /// The kernel throttled its events.
        const THROTTLED = 8;
    }
}

impl BurstOutcome {
    /// The words for each outcome.
    pub const NAMES: [(BurstOutcome, &'static str); 4] = [
        (BurstOutcome::COMPLETE, "complete"),
        (BurstOutcome::LATE, "late"),
        (BurstOutcome::CUT, "cut"),
        (BurstOutcome::THROTTLED, "throttled"),
    ];
}

/// One burst: a sample that marks the start, and windows back to back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Burst {
    /// Index of its group.
    pub group: u16,
    /// The CPU to which it was bound, if it was.
    pub cpu: Option<u32>,
    /// The thread to which it was bound, if it was.
    pub tid: Option<u32>,
    /// The time at which the events were armed, in nanoseconds of `CLOCK_MONOTONIC`.
    pub armed: u64,
    /// The time at which the last window ended, or the burst was given up, in nanoseconds of `CLOCK_MONOTONIC`.
    pub ended: u64,
    /// The leader's period: the length of each window.
    pub period: u64,
    /// Windows that were asked for, the last one that is left out among them.
    pub expected: u16,
    /// Windows that came.
    pub seen: u16,
    /// Its outcome.
    pub outcome: BurstOutcome,
}

/// News about a thread of the target, which a source learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadNews {
    /// A thread was created.
    Created {
        /// Its tid.
        tid: u32,
    },
    /// A thread ran on a CPU.
    Ran {
        /// Its tid.
        tid: u32,
        /// The CPU.
        cpu: u32,
    },
}

/// Takes in what a source made.
pub trait WindowListener {
    /// A record of the windows' events, as the kernel wrote it, and its parts.
    fn record(&mut self, bytes: &[u8], record: &RawRecord<'_>);
    /// A burst that is over.
    fn burst(&mut self, burst: &Burst);
}

/// The numbers of bursts and windows that a source has made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WindowStats {
    /// Bursts that were armed.
    pub armed: u64,
    /// Bursts of which all windows came.
    pub complete: u64,
    /// Bursts whose first sample came late.
    pub late: u64,
    /// Bursts given up before all windows came.
    pub cut: u64,
    /// Bursts whose events the kernel throttled.
    pub throttled: u64,
    /// Windows that came.
    pub windows: u64,
    /// Bursts that were due but not armed, since the one before was not over.
    pub busy: u64,
    /// Bursts that were due but not armed, since nobody took in what was there.
    pub held_back: u64,
    /// Bursts that the kernel refused to arm.
    pub refused: u64,
    /// Records that found a ring full.
    pub lost: u64,
    /// Samples of the windows' events, those that mark starts among them.
    pub samples: u64,
    /// Threads, or CPUs, that had bursts.
    pub watched: u64,
    /// Threads that had none: too many at once, or ended too soon.
    pub unwatched: u64,
    /// Median of the leader's counts over a window, of the first some thousand.
    pub median_count: Option<u64>,
    /// The same of the time, in nanoseconds.
    pub median_time: Option<u64>,
}

/// A failure to make windows.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WindowError {
    /// No groups, or an empty one.
    #[error("there is nothing to count over windows: no group of events is named")]
    NoEvents,
    /// The unit of `short` is not the leader's.
    #[error("windows of {leader} cannot be {short} long: {remedy}")]
    Unit {
        /// The leader.
        leader: String,
        /// The length asked for.
        short: Length,
        /// The remedy.
        remedy: &'static str,
    },
    /// The source that was asked for cannot make windows here.
    #[error("the source {kind} makes no windows here: {why}; leave source= out")]
    Forced {
        /// The source.
        kind: SourceKind,
        /// The observation that rules the source out.
        why: Observation,
    },
    /// The events were refused.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The events could not be started.
    #[error(transparent)]
    Event(#[from] EventError),
    /// Reading failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A thread that arms the events could not be started.
    #[error("starting the thread that arms the events: {0}")]
    Thread(std::io::Error),
}

/// A source of windows. It makes windows from [`WindowSource::start`] to [`WindowSource::stop`]; dropping it closes its
/// events.
pub trait WindowSource: fmt::Debug {
    /// Returns the kind of the source.
    fn kind(&self) -> SourceKind;

    /// The windows' events as they were opened, all groups one after the other, with the ids known until now.
    fn events(&self) -> &[AttachedEvent];

    /// The groups, by indices into [`WindowSource::events`].
    fn groups(&self) -> &[WindowGroup];

    /// Lets windows be made.
    ///
    /// # Errors
    /// The kernel's refusal.
    fn start(&mut self) -> Result<(), WindowError>;

    /// Makes no more windows. What is open is cut.
    ///
    /// # Errors
    /// The kernel's refusal.
    fn stop(&mut self) -> Result<(), WindowError>;

    /// Learns news about a thread.
    fn see(&mut self, seen: ThreadNews);

    /// Hands over all that was made since the last call: at least ten times a second.
    ///
    /// # Errors
    /// Reading failed.
    fn round(&mut self, listener: &mut dyn WindowListener) -> Result<(), WindowError>;

    /// Returns the numbers of bursts and windows so far; exact after [`WindowSource::stop`] and a last round.
    fn stats(&self) -> WindowStats;

    /// Returns diagnostics about things that were done otherwise than asked; more may come.
    fn notes(&self) -> &[WindowNote];
}

/// A source, and why it was taken.
#[derive(Debug)]
pub struct FoundSource {
    /// The source, attached.
    pub source: Box<dyn WindowSource>,
    /// The findings about the source and about better ones.
    pub findings: Vec<SourceFinding>,
    /// The reason why a better source was not taken; `None` where this one was asked for or is the best.
    pub instead: Option<Instead>,
}

/// Attaches the source `wanted`, or else the best that makes windows here as tried out on the calling thread.
///
/// # Errors
/// [`WindowError`], where none does.
pub fn find_source(
    spec: &WindowsSpec,
    wanted: Option<SourceKind>,
) -> Result<FoundSource, WindowError> {
    check(spec)?;
    let mut findings = vec![SourceFinding::Version {
        release: limits::kernel_release(),
        is_unsafe: limits::refresh_of_clocks_is_unsafe(),
        clocks_lead: spec.clocks_lead(),
    }];
    let kinds: Vec<SourceKind> = match wanted {
        Some(kind) => vec![kind],
        None if spec.schedule.is_steady() => vec![SourceKind::Steady, SourceKind::Period],
        // Steady sampling is throttled and slows the program down: by request only.
        None => SourceKind::ALL
            .into_iter()
            .filter(|kind| *kind != SourceKind::Steady)
            .collect(),
    };
    let forced = wanted.is_some();
    let best = kinds.first().copied();
    let mut refusals: Vec<SourceFinding> = Vec::new();
    for kind in kinds {
        let last = forced || kind == SourceKind::Period;
        let finding = match kind {
            SourceKind::Refresh => probe::refresh(spec),
            SourceKind::Kernel => alternate::probe(spec),
            SourceKind::Twin => probe::twin(spec),
            SourceKind::Steady | SourceKind::Period => Finding::works(Observation::AnyKernel),
        };
        let Finding { works, observation } = finding;
        let tried = SourceFinding::Tried {
            kind,
            observation: observation.clone(),
        };
        findings.push(tried.clone());
        if !works {
            if forced {
                let why = observation;
                return Err(WindowError::Forced { kind, why });
            }
            refusals.push(tried);
            continue;
        }
        let attached: Result<Box<dyn WindowSource>, WindowError> = match kind {
            SourceKind::Refresh => RefreshSource::attach(spec).map(|source| Box::new(source) as _),
            _ => SessionSource::attach(spec, kind).map(|source| Box::new(source) as _),
        };
        match attached {
            Ok(source) => {
                return Ok(FoundSource {
                    source,
                    findings,
                    instead: best.and_then(|best| Instead::new(best, kind, refusals)),
                });
            }
            Err(error) if last => return Err(error),
            Err(error) => {
                let because = error.to_string();
                let refusal = SourceFinding::NotAttached { kind, because };
                refusals.push(refusal.clone());
                findings.push(refusal);
            }
        }
    }
    Err(WindowError::NoEvents)
}

/// Checks that the specification makes sense.
fn check(spec: &WindowsSpec) -> Result<(), WindowError> {
    let empty = |group: &EventGroup| group.events.is_empty();
    if spec.groups.is_empty() || spec.groups.iter().any(empty) {
        return Err(WindowError::NoEvents);
    }
    for leader in spec.groups.iter().filter_map(|group| group.events.first()) {
        let time = is_clock(&leader.attr);
        let remedy = match (time, spec.schedule.short) {
            (true, Length::Count(_)) => "a clock counts time, write short=50us",
            (false, Length::Time(_)) => "it is counted, write a count such as short=300",
            _ => continue,
        };
        return Err(WindowError::Unit {
            leader: leader.name.clone(),
            short: spec.schedule.short,
            remedy,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::EventSpec;

    #[test]
    fn units_are_those_of_the_leaders() {
        let schedule = |short| Schedule {
            long: Length::Time(1_000_000),
            short,
            jitter: Length::Count(0),
            batch: 4,
        };
        let spec = |leader: EventSpec, short| {
            let groups = vec![EventGroup::new([leader, EventSpec::page_faults()])];
            WindowsSpec::new(schedule(short), groups, Target::SelfProcess)
        };
        let clock = || EventSpec::software(software::TASK_CLOCK);
        assert!(check(&spec(clock(), Length::Time(50_000))).is_ok());
        assert!(check(&spec(EventSpec::page_faults(), Length::Count(10))).is_ok());
        let wrong = check(&spec(clock(), Length::Count(300))).unwrap_err();
        assert!(wrong.to_string().contains("short=50us"), "{wrong}");
        let wrong = check(&spec(EventSpec::page_faults(), Length::Time(300))).unwrap_err();
        assert!(wrong.to_string().contains("short=300"), "{wrong}");
        let none = WindowsSpec::new(schedule(Length::Count(1)), vec![], Target::SelfProcess);
        assert!(matches!(check(&none), Err(WindowError::NoEvents)));
    }

    #[test]
    fn sources_have_names() {
        for kind in SourceKind::ALL {
            assert_eq!(SourceKind::from_name(kind.name()), Some(kind));
        }
        assert_eq!(SourceKind::from_name("magic"), None);
    }
}
