//! The events that a machine's counters can count, alone and at once, found out by counting for a moment.
//!
//! The kernel takes a group whose events each have a counter, and refuses a group that can never have them all. A
//! group that only misses the counter of a watchdog or of another profiler is taken and never counts. So a group is
//! tried: opened where the target will be watched, and run until it has counted.

use dioptra_perfevents::names::software;
use dioptra_perfevents::{
    Attr, AttrFlags, Event, EventError, EventGroup, EventSpec, EventTarget, Features, OpenRequest,
    ReadFormat, Refusal, SampleType, event_type,
};
use std::time::{Duration, Instant};
use thiserror::Error;

/// The time that a group may take until it has counted. Other users of the counters have their turn meanwhile.
const PATIENCE: Duration = Duration::from_millis(30);

/// The period of events that are tried, in events or nanoseconds.
const RARELY: u64 = 1 << 30;

/// The most general counters that are tried; no CPU has more.
const MOST_COUNTERS: usize = 64;

/// `PERF_COUNT_HW_BRANCH_INSTRUCTIONS` and `PERF_COUNT_HW_CACHE_REFERENCES`: events that any general counter of most
/// CPUs counts, and no fixed one.
const GENERAL_EVENTS: [u64; 2] = [4, 2];

/// The number of other events with which counters are counted; several, because some events are for one counter only.
const OTHERS_TRIED: usize = 3;

/// The result of trying to count events as one group.
#[derive(Debug)]
pub enum Trial {
    /// The events were counted.
    Counted,
    /// The events cannot be counted at once; a single event's counter was in use all the time.
    NotAtOnce,
    /// A single event cannot be counted, for this reason.
    Refused(Uncountable),
}

impl Trial {
    /// Returns whether the events were counted.
    pub fn is_counted(&self) -> bool {
        matches!(self, Trial::Counted)
    }
}

/// The reason why an event cannot be counted.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Uncountable {
    /// The kernel refused to open the event.
    #[error(transparent)]
    Open(#[from] Refusal),
    /// The event opened, and could not be enabled or read.
    #[error(transparent)]
    Control(#[from] EventError),
    /// The counter of the event was in use all the time.
    #[error(
        "no counter was free for it: another profiler or the watchdog (kernel.nmi_watchdog) has them"
    )]
    NoFreeCounter,
}

/// Counters that can be tried.
pub trait Counters {
    /// Tries to count events as one group, the leader first.
    fn try_group(&mut self, events: &[&EventSpec]) -> Trial;
}

/// The counters of this machine.
#[derive(Clone, Copy, Debug)]
pub struct MachineCounters {
    target: EventTarget,
}

impl MachineCounters {
    /// Returns the counters as they count for single threads.
    pub fn of_threads() -> MachineCounters {
        MachineCounters {
            target: EventTarget::CALLER,
        }
    }

    /// Returns the counters as they count for all that runs on a CPU.
    pub fn of_cpu(cpu: u32) -> MachineCounters {
        MachineCounters {
            target: EventTarget::Cpu(cpu),
        }
    }

    /// Opens an event as a session would: without the kernel's part, or with less precision, where it must.
    fn open(&self, spec: &EventSpec, leader: Option<&Event>) -> Result<Event, Refusal> {
        let mut attr = Attr {
            read_format: ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING,
            sample_type: SampleType::IP,
            ..spec.attr.clone()
        };
        attr.flags.set(AttrFlags::DISABLED, leader.is_none());
        // Whether the event samples matters to the counters that it needs. The rate does not, and sampling would
        // cost.
        attr.branch_sample_type = 0;
        attr.flags.remove(AttrFlags::FREQ);
        if attr.sample_period > 0 {
            attr.sample_period = RARELY;
        }
        loop {
            let refusal = match OpenRequest::with_attr(&spec.name, attr.clone(), self.target)
                .group(leader)
                .open()
            {
                Ok(event) => return Ok(event),
                Err(error) => error.refusal,
            };
            match refusal {
                Refusal::Permission {
                    needs_kernel: true,
                    cpu_wide: false,
                    ..
                } if !attr.flags.contains(AttrFlags::EXCLUDE_USER) => {
                    if happens_in_the_kernel_only(&attr) {
                        return Err(refusal);
                    }
                    attr.flags |= AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV;
                }
                Refusal::NotSupported
                | Refusal::CannotSample
                | Refusal::Invalid { .. }
                | Refusal::CpuOffline
                    if attr.precise_ip() > 0 =>
                {
                    attr.set_precise_ip(attr.precise_ip() - 1);
                }
                refusal => return Err(refusal),
            }
        }
    }
}

impl Counters for MachineCounters {
    fn try_group(&mut self, events: &[&EventSpec]) -> Trial {
        let mut open: Vec<Event> = Vec::with_capacity(events.len());
        for spec in events {
            match self.open(spec, open.first()) {
                Ok(event) => open.push(event),
                Err(refusal) if events.len() == 1 => return Trial::Refused(refusal.into()),
                Err(_) => return Trial::NotAtOnce,
            }
        }
        let Some(leader) = open.first() else {
            return Trial::Counted;
        };
        let ran = leader.enable_group().and_then(|()| {
            let end = Instant::now() + PATIENCE;
            loop {
                // Reading is work of this thread, so it is counted.
                let count = leader.read()?;
                if count.time_running.is_none_or(|time| time > 0) {
                    return Ok(true);
                }
                if Instant::now() > end {
                    return Ok(false);
                }
            }
        });
        match ran {
            Ok(true) => Trial::Counted,
            Ok(false) => Trial::NotAtOnce,
            Err(error) if events.len() == 1 => Trial::Refused(error.into()),
            Err(_) => Trial::NotAtOnce,
        }
    }
}

/// Returns whether the event takes one of the CPU's counters. All other events are counted by the kernel itself, as
/// many as are asked for.
pub fn takes_a_counter(attr: &Attr) -> bool {
    !matches!(
        attr.kind,
        event_type::SOFTWARE | event_type::TRACEPOINT | event_type::BREAKPOINT
    ) && !dioptra_perfevents::names::pmu::is_probe(attr.kind)
}

/// Returns whether a count without the kernel's part would always be zero.
fn happens_in_the_kernel_only(attr: &Attr) -> bool {
    attr.kind == event_type::SOFTWARE
        && matches!(
            attr.config,
            software::CONTEXT_SWITCHES | software::CPU_MIGRATIONS | software::CGROUP_SWITCHES
        )
}

/// Returns why an event cannot be counted; `None` if it can.
pub fn refusal(event: &EventSpec, counters: &mut dyn Counters) -> Option<Uncountable> {
    match counters.try_group(&[event]) {
        Trial::Counted => None,
        Trial::Refused(reason) => Some(reason),
        Trial::NotAtOnce => Some(Uncountable::NoFreeCounter),
    }
}

/// Returns the number of general counters that are free: so many events of any kind can be counted at once. Two
/// events that the kernel defines are tried, and the first ones of `others`, which should need a general counter.
/// Returns `None` if none of them can be counted.
pub fn general_counters(others: &[&EventSpec], counters: &mut dyn Counters) -> Option<usize> {
    let generic = GENERAL_EVENTS.map(|config| {
        let attr = Attr {
            kind: event_type::HARDWARE,
            config,
            ..Attr::default()
        };
        EventSpec::new("counter", attr)
    });
    let mut most = 0;
    for event in generic
        .iter()
        .chain(others.iter().copied().take(OTHERS_TRIED))
    {
        let at_once = |n: &usize| counters.try_group(&vec![event; *n]).is_counted();
        most = most.max((1..=MOST_COUNTERS).take_while(at_once).count());
    }
    (most > 0).then_some(most)
}

/// Splits groups, of indices into `events`, where they cannot be counted at once. Events of one group stay together
/// as far as they can. Events that need no counter stand alone, since in a group they would wait for its turn.
pub fn schedulable(
    events: &[EventSpec],
    groups: &[Vec<usize>],
    counters: &mut dyn Counters,
) -> Vec<Vec<usize>> {
    let (mut alone, mut at_once) = (Vec::new(), Vec::new());
    for group in groups {
        let (counted, free): (Vec<usize>, Vec<usize>) = group
            .iter()
            .partition(|&&event| takes_a_counter(&events[event].attr));
        for event in free {
            if !alone.contains(&vec![event]) {
                alone.push(vec![event]);
            }
        }
        let first_part = at_once.len();
        if can_count(events, &counted, counters) {
            at_once.extend((!counted.is_empty()).then_some(counted));
            continue;
        }
        for event in counted {
            let taken_in = at_once[first_part..]
                .iter_mut()
                .any(|part: &mut Vec<usize>| {
                    part.push(event);
                    let fits = can_count(events, part, counters);
                    if !fits {
                        part.pop();
                    }
                    fits
                });
            if !taken_in {
                at_once.push(vec![event]);
            }
        }
    }
    // A group that is part of another one needs no turn of its own.
    let mut kept: Vec<Vec<usize>> = Vec::new();
    at_once.sort_by_key(|group| std::cmp::Reverse(group.len()));
    for group in at_once {
        let is_in = |other: &Vec<usize>| group.iter().all(|event| other.contains(event));
        if !kept.iter().any(is_in) {
            kept.push(group);
        }
    }
    alone.extend(kept);
    alone
}

fn can_count(events: &[EventSpec], group: &[usize], counters: &mut dyn Counters) -> bool {
    let group: Vec<&EventSpec> = group.iter().map(|&event| &events[event]).collect();
    // A single event was tried before.
    group.len() < 2 || counters.try_group(&group).is_counted()
}

/// The need of groups to take turns on the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turns {
    /// One group at most needs counters.
    None,
    /// Several groups need counters. Samples say for how long their counter ran, so that counts can be scaled.
    Told,
    /// Several groups need counters, and samples cannot say for how long their counter ran.
    Untold(WhyUntold),
}

/// The reason why samples cannot say for how long their counter ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyUntold {
    /// This kernel (before Linux 6.12) cannot say it where threads inherit events.
    Kernel,
    /// A thread has a counter for each CPU, all enabled wherever it runs, and only inheritance marks such events in a
    /// file.
    NotInherited,
}

/// The target whose counters take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched {
    /// All that runs on CPUs.
    Cpus,
    /// Threads, and the threads that they create.
    Threads {
        /// Whether created threads inherit the events.
        inherit: bool,
    },
}

/// Makes samples say for how long their event was enabled and for how long it ran, where several groups need
/// counters.
pub fn tell_turns(groups: &mut [EventGroup], watched: Watched) -> Turns {
    let needs_counters = |group: &EventGroup| {
        group
            .events
            .iter()
            .any(|event| takes_a_counter(&event.attr))
    };
    if groups.iter().filter(|group| needs_counters(group)).count() < 2 {
        return Turns::None;
    }
    match watched {
        Watched::Threads { inherit: false } => return Turns::Untold(WhyUntold::NotInherited),
        Watched::Threads { inherit: true } if !Features::get().inherit_read => {
            return Turns::Untold(WhyUntold::Kernel);
        }
        _ => {}
    }
    let counted = groups.iter_mut().flat_map(|group| &mut group.events);
    for event in counted.filter(|event| takes_a_counter(&event.attr)) {
        event.attr.sample_type |= SampleType::READ;
    }
    Turns::Told
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// A machine with this many counters, on which some events cannot be counted, and others only on its counter 0.
    struct Machine {
        counters: usize,
        unknown: BTreeSet<u64>,
        picky: BTreeSet<u64>,
    }

    impl Counters for Machine {
        fn try_group(&mut self, events: &[&EventSpec]) -> Trial {
            let counted: Vec<u64> = events
                .iter()
                .filter(|event| takes_a_counter(&event.attr))
                .map(|event| event.attr.config)
                .collect();
            if counted.iter().any(|config| self.unknown.contains(config)) {
                return Trial::Refused(Refusal::NotSupported.into());
            }
            let picky = counted.iter().filter(|config| self.picky.contains(config));
            if counted.len() > self.counters || picky.count() > 1 {
                Trial::NotAtOnce
            } else {
                Trial::Counted
            }
        }
    }

    fn machine(counters: usize, picky: &[u64]) -> Machine {
        Machine {
            counters,
            unknown: BTreeSet::new(),
            picky: picky.iter().copied().collect(),
        }
    }

    fn event(kind: u32, config: u64) -> EventSpec {
        let attr = Attr {
            kind,
            config,
            sample_period: 1000,
            ..Attr::default()
        };
        EventSpec::new("event", attr)
    }

    fn raw(count: u64) -> Vec<EventSpec> {
        (0..count)
            .map(|config| event(event_type::RAW, config))
            .collect()
    }

    #[test]
    fn counters_are_counted() {
        for counters in [1, 4, 6] {
            assert_eq!(
                general_counters(&[], &mut machine(counters, &[])),
                Some(counters)
            );
        }
        assert_eq!(general_counters(&[], &mut machine(0, &[])), None);
        // One of the two events may have a counter of its own kind.
        assert_eq!(general_counters(&[], &mut machine(4, &[4])), Some(4));
        // A machine may have neither.
        let mut odd = machine(6, &[7]);
        odd.unknown = GENERAL_EVENTS.into();
        assert_eq!(general_counters(&[], &mut odd), None);
        let others = [event(event_type::RAW, 7), event(event_type::RAW, 8)];
        assert_eq!(general_counters(&[&others[0]], &mut odd), Some(1));
        assert_eq!(general_counters(&others.each_ref(), &mut odd), Some(6));
    }

    #[test]
    fn a_group_that_fits_stays_and_others_are_split() {
        let events = raw(6);
        let groups = [vec![0, 1, 2, 3], vec![4, 5]];
        let split =
            |counters, picky: &[u64]| schedulable(&events, &groups, &mut machine(counters, picky));
        assert_eq!(split(4, &[]), [vec![0, 1, 2, 3], vec![4, 5]]);
        assert_eq!(split(3, &[]), [vec![0, 1, 2], vec![4, 5], vec![3]]);
        assert_eq!(split(4, &[1, 2]), [vec![0, 1, 3], vec![4, 5], vec![2]]);
        assert_eq!(split(1, &[]).len(), 6);
    }

    #[test]
    fn what_needs_no_counter_stands_alone_and_once() {
        let mut events = raw(2);
        events.push(event(event_type::SOFTWARE, software::TASK_CLOCK));
        let groups = [vec![2, 0], vec![2, 1], vec![2], vec![0]];
        assert_eq!(
            schedulable(&events, &groups, &mut machine(4, &[])),
            [vec![2], vec![0], vec![1]]
        );
    }

    #[test]
    fn turns_are_told_where_there_are_turns() {
        let group = |events: Vec<EventSpec>| EventGroup::new(events);
        let clock = || event(event_type::SOFTWARE, software::CPU_CLOCK);
        let reads = |groups: &[EventGroup]| -> Vec<bool> {
            let events = groups.iter().flat_map(|group| &group.events);
            events
                .map(|event| event.attr.sample_type.contains(SampleType::READ))
                .collect()
        };
        let mut one = [group(vec![clock()]), group(raw(3))];
        assert_eq!(tell_turns(&mut one, Watched::Cpus), Turns::None);
        assert_eq!(reads(&one), [false; 4]);
        let mut two = [group(vec![clock()]), group(raw(2)), group(raw(1))];
        assert_eq!(tell_turns(&mut two, Watched::Cpus), Turns::Told);
        assert_eq!(reads(&two), [false, true, true, true]);
        let mut inherited = [group(raw(1)), group(raw(1))];
        let turns = tell_turns(&mut inherited, Watched::Threads { inherit: true });
        if Features::get().inherit_read {
            assert_eq!((turns, reads(&inherited)), (Turns::Told, vec![true; 2]));
        } else {
            let untold = Turns::Untold(WhyUntold::Kernel);
            assert_eq!((turns, reads(&inherited)), (untold, vec![false; 2]));
        }
        let mut alone = [group(raw(1)), group(raw(1))];
        assert_eq!(
            tell_turns(&mut alone, Watched::Threads { inherit: false }),
            Turns::Untold(WhyUntold::NotInherited)
        );
        assert_eq!(reads(&alone), [false; 2]);
    }

    #[test]
    fn this_machines_answers_are_those_of_its_kernel() {
        let clock = event(event_type::SOFTWARE, software::TASK_CLOCK);
        let mut own = MachineCounters::of_threads();
        let alone = own.try_group(&[&clock]);
        let mut attr = clock.attr.clone();
        attr.flags |= AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV;
        let opens = OpenRequest::with_attr("task-clock", attr, EventTarget::CALLER)
            .open()
            .is_ok();
        assert_eq!(alone.is_counted(), opens, "{alone:?}");
        // No machine has this event.
        let none = event(event_type::HARDWARE, 99);
        assert!(refusal(&none, &mut own).is_some());
        if opens {
            assert!(matches!(own.try_group(&[&clock, &none]), Trial::NotAtOnce));
            assert!(own.try_group(&[&clock, &clock]).is_counted());
        }
    }
}
