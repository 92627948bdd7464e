//! Probes of the sources: they make windows on the calling thread, because no version and no size of a struct shows which
//! sources work.

use super::findings::{Finding, Observation};
use super::plan::{fallbacks, plan_of, plan_with, ring_pages};
use super::random::Random;
use super::schedule::{Length, SHORTEST_LONG_OF_TWINS, Schedule};
use super::slot::{self, Slot, SlotOutput};
use super::source::{WindowsSpec, is_clock};
use crate::ByteOrder;
use crate::attach::plan::Plan;
use crate::errors::AttachError;
use crate::event::{Event, EventTarget, OpenRequest};
use crate::features::Features;
use crate::limits;
use crate::names::software;
use crate::record::{RecordLayout, RecordType};
use crate::ring::Ring;
use crate::spec::{EventGroup, EventSpec};
use crate::sys;
use crate::{Attr, SampleType, event_type};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// CPU time that a probe spends waiting for the samples that it armed, in nanoseconds. Elapsed time does not count: on a
/// loaded machine the thread may get none of the CPU for longer than any sensible limit.
const PATIENCE: u64 = 50_000_000;

/// CPU time that it spends looking for more samples than it armed, in nanoseconds.
const AFTER: u64 = 2_000_000;

/// Elapsed time after which a probe gives up however little CPU time it had.
const GIVEN_UP: Duration = Duration::from_secs(5);

/// Attempts that a probe gets. One burst may be spoilt by others' load; a kernel that makes no bursts spoils all of them.
const ATTEMPTS: usize = 3;

/// The longest window that a probe makes, in nanoseconds. Longer ones work as this one does, and would outlast the patience.
const LONGEST: u64 = 1_000_000;

/// The most windows that a probe makes in one burst.
const MOST_WINDOWS: u32 = 8;

/// A burst that was armed on the calling thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Armed {
    /// Samples that were asked for.
    asked: u64,
    /// Samples that came.
    came: u64,
    /// The leader's counts, and nanoseconds, over the windows.
    windows: Vec<(u64, u64)>,
    /// The leader's period.
    period: u64,
    /// Whether the leader's counts are nanoseconds.
    clock: bool,
}

/// Tries to arm the first group on the calling thread.
pub(super) fn refresh(spec: &WindowsSpec) -> Finding {
    if limits::refresh_of_clocks_is_unsafe() && has_clock_leader(spec) {
        return Finding::fails(Observation::NotTried);
    }
    attempts(ATTEMPTS, || try_refresh(spec))
}

/// Returns the first finding that works, else the last one.
fn attempts(most: usize, mut attempt: impl FnMut() -> Finding) -> Finding {
    let mut finding = attempt();
    for _ in 1..most {
        if finding.works {
            break;
        }
        finding = attempt();
    }
    finding
}

/// Arms one burst of the first group.
fn try_refresh(spec: &WindowsSpec) -> Finding {
    match arm_one(spec) {
        Ok(armed) if armed.came == 0 && !armed.clock => {
            // The event may not occur here. Another event shows whether the kernel is at fault.
            let mut other = spec.clone();
            other.groups = vec![EventSpec::page_faults().into()];
            other.schedule.short = Length::Count(1);
            match arm_one(&other) {
                Ok(armed) => {
                    let Finding { works, observation } = judge(&armed);
                    let observation = Observation::ByPageFaults(Box::new(observation));
                    Finding { works, observation }
                }
                Err(error) => Finding::refused(error),
            }
        }
        Ok(armed) => judge(&armed),
        Err(error) => Finding::refused(error),
    }
}

fn has_clock_leader(spec: &WindowsSpec) -> bool {
    let mut leaders = spec.groups.iter().filter_map(|group| group.events.first());
    leaders.any(|leader| is_clock(&leader.attr))
}

/// Whether a burst came as it was asked for.
fn judge(armed: &Armed) -> Finding {
    let Armed {
        asked,
        came,
        ref windows,
        period,
        clock,
    } = *armed;
    if came < asked {
        return Finding::fails(Observation::TooFew { came, asked });
    }
    if came > asked {
        return Finding::fails(Observation::DoesNotStop { came, asked });
    }
    let mut lengths: Vec<u64> = windows.iter().map(|window| window.0).collect();
    lengths.sort_unstable();
    let Some(median) = lengths.get(lengths.len() / 2).copied() else {
        return Finding::fails(Observation::NoWindow);
    };
    // A counter's windows are exact but for its skid; a clock's wait for timers.
    let most = if clock {
        period.saturating_mul(4).saturating_add(100_000)
    } else {
        period.saturating_mul(2).saturating_add(1000)
    };
    let observation = Observation::Windows {
        came,
        asked,
        median,
        period,
        clock,
    };
    if median > most || median < period / 2 {
        return Finding::fails(observation);
    }
    Finding::works(observation)
}

fn arm_one(spec: &WindowsSpec) -> Result<Armed, AttachError> {
    let mut one = spec.clone();
    one.groups.truncate(1);
    if let Length::Time(short) = one.schedule.short {
        one.schedule.short = Length::Time(short.min(LONGEST));
    }
    one.schedule.batch = one.schedule.batch.min(MOST_WINDOWS);
    let (_, mut plan) = plan_of(&one);
    resolve_here(&mut plan)?;
    slot::prepare(&mut plan);
    let mut steady = one.schedule;
    steady.jitter = Length::Count(0);
    let pages = ring_pages(&plan, steady.batch);
    let (mut slot, _) = Slot::open(
        &plan,
        EventTarget::Thread(0, None),
        None,
        pages,
        steady.batch,
    )?;
    let leader = plan.events.first().map(|event| &event.attr);
    let clock = leader.is_some_and(is_clock);
    let drop_last = plan
        .events
        .first()
        .is_some_and(|event| event.counted_by_kernel);
    let mut made = SlotOutput::default();
    slot.arm(&steady, &mut Random::new(0), true)?;
    let given_up = Instant::now() + GIVEN_UP;
    let mut work_until = |end: u64, slot: &mut Slot, only_busy: bool| {
        while (slot.is_busy() || !only_busy) && cpu_time() < end && Instant::now() < given_up {
            work(leader);
            slot.drain(&mut made);
        }
    };
    work_until(cpu_time() + PATIENCE, &mut slot, true);
    work_until(cpu_time() + AFTER, &mut slot, false);
    Ok(Armed {
        asked: u64::from(slot::samples_of_burst(steady.batch, drop_last)),
        came: made.stats.samples,
        windows: made.lengths,
        period: steady.short.number(),
        clock,
    })
}

/// Returns the CPU time of the calling thread in nanoseconds.
fn cpu_time() -> u64 {
    sys::clock_now(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn resolve_here(plan: &mut Plan) -> Result<(), AttachError> {
    plan.resolve(EventTarget::Thread(0, None), None, fallbacks())
        .map_err(AttachError::Open)
}

/// Work in which most events happen.
fn work(leader: Option<&Attr>) {
    compute_and_fault(64);
    let switches = leader.is_some_and(|attr| {
        attr.kind == event_type::TRACEPOINT
            || (attr.kind == event_type::SOFTWARE && attr.config == software::CONTEXT_SWITCHES)
    });
    if switches {
        std::thread::sleep(Duration::from_micros(10));
    }
}

/// Computes for some 50 us, and touches so many fresh pages.
pub(super) fn compute_and_fault(pages: usize) {
    sys::touch_fresh_pages(pages);
    spin(20_000);
}

fn spin(turns: u64) -> u64 {
    let mut word = 1_u64;
    for _ in 0..turns {
        word = black_box(word.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (word >> 7));
    }
    word
}

/// A sample of the calling thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnSample {
    /// The leader's count.
    pub count: u64,
    /// Where the thread was.
    pub ip: u64,
}

/// A group on the calling thread, and its ring.
pub(super) struct Own {
    events: Vec<Event>,
    layout: RecordLayout,
    ring: Ring,
}

impl Own {
    /// Opens the first group of a plan whose events wait to be enabled.
    ///
    /// # Errors
    /// Refusals.
    pub fn open(plan: &Plan, pages: usize) -> Result<Own, AttachError> {
        let mut events: Vec<Event> = Vec::new();
        for planned in &plan.events {
            if planned.leads.is_some() && !events.is_empty() {
                break;
            }
            let event =
                OpenRequest::with_attr(&planned.name, planned.attr.clone(), EventTarget::CALLER)
                    .group(events.first())
                    .tail(&planned.tail)
                    .open()?;
            events.push(event);
        }
        let (Some(leader), Some(planned)) = (events.first(), plan.events.first()) else {
            return Err(AttachError::NoEvents);
        };
        let ring = leader.mmap(pages)?;
        for member in &events[1..] {
            member.set_output(Some(leader))?;
        }
        Ok(Own {
            layout: RecordLayout::new(&planned.attr, ByteOrder::NATIVE),
            events,
            ring,
        })
    }

    /// Runs for a while with the group enabled: what each sample tells.
    ///
    /// # Errors
    /// Refusals.
    pub fn run(&mut self, time: Duration) -> Result<Vec<OwnSample>, AttachError> {
        self.events[0].enable()?;
        let end = Instant::now() + time;
        while Instant::now() < end {
            work(None);
        }
        self.events[0].disable()?;
        let mut samples = Vec::new();
        let layout = &self.layout;
        self.ring.drain(|_, record| {
            if record.kind != RecordType::SAMPLE {
                return;
            }
            if let Ok(sample) = layout.sample(record) {
                let count = sample.read.and_then(|read| read.get(0));
                samples.push(OwnSample {
                    count: count.map_or(0, |leader| leader.value),
                    ip: sample.ip.unwrap_or(0),
                });
            }
        });
        Ok(samples)
    }
}

/// Tries two clocks on the calling thread.
pub(super) fn twin(spec: &WindowsSpec) -> Finding {
    if !spec.clocks_lead() {
        return Finding::fails(Observation::NotClocks);
    }
    if !Features::get().inherit_group_read {
        return Finding::fails(Observation::NotInherited);
    }
    // So far apart that pairs soon are a window apart: the recording's own grow apart slowly.
    let short = spec.schedule.short.number().max(1);
    let long = short.saturating_mul(8);
    let near = long.saturating_add((short / 4).max(1));
    let groups = spec.groups_with_period(short);
    let twins = groups.iter().take(1).map(twins_at(long, near)).collect();
    let (_, mut plan) = plan_with(spec, twins);
    let ran = resolve_here(&mut plan)
        .and_then(|()| Own::open(&plan, 16))
        .and_then(|mut own| own.run(Duration::from_millis(20)));
    match ran {
        Ok(samples) => judge_pairs(&samples, short),
        Err(error) => Finding::refused(error),
    }
}

/// Makes twins of a group's leader.
pub(super) fn twins_of(schedule: &Schedule) -> impl Fn(&EventGroup) -> EventGroup {
    let long = schedule.long.number().max(SHORTEST_LONG_OF_TWINS);
    // So near that their distance changes slowly, and yet it does.
    twins_at(long, long + (schedule.short.number() / 64).max(1))
}

/// The same with these two periods.
fn twins_at(long: u64, near: u64) -> impl Fn(&EventGroup) -> EventGroup {
    move |group: &EventGroup| {
        let mut group = group.clone();
        if let Some(leader) = group.events.first().cloned() {
            group.events[0] = leader.clone().with_period(long);
            let mut second = leader.with_period(near);
            second.attr.sample_type |= SampleType::IP;
            group.events.insert(1, second);
            group.twin = true;
        }
        group
    }
}

/// So many pairs a window apart are enough.
const LEAST_PAIRS: usize = 3;

/// Whether samples come in pairs at the distance of a window, in which the program got on: both clocks may expire in one
/// interrupt, or the second as soon as the first one's is over, and then nothing lies between them.
fn judge_pairs(samples: &[OwnSample], short: u64) -> Finding {
    let (mut near, mut moved) = (0, 0);
    for pair in samples.windows(2) {
        let gap = pair[1].count.saturating_sub(pair[0].count);
        if (short / 2..=short.saturating_mul(2)).contains(&gap) {
            near += 1;
            moved += usize::from(pair[0].ip != pair[1].ip);
        }
    }
    let observation = Observation::Pairs {
        near,
        distances: samples.len().saturating_sub(1),
        moved,
    };
    if near < LEAST_PAIRS || 2 * moved < near {
        return Finding::fails(observation);
    }
    Finding::works(observation)
}

/// The number of measurements of a sample's cost.
const MEASURED: usize = 8;

/// The length of the shortest windows of a clock that are useful, four times what the samples that bound them take, and
/// what one takes: both in nanoseconds, measured on the calling thread. 50 to 100 µs, since timers are not finer; `None`
/// where clocks cannot be sampled.
pub fn shortest_useful_window() -> Option<(u64, u64)> {
    const PERIOD: u64 = 100_000;
    let clock = EventSpec::software(software::TASK_CLOCK).with_period(PERIOD);
    let mut attr = clock.attr;
    attr.sample_type = SampleType::IP | SampleType::TID | SampleType::TIME | SampleType::READ;
    attr.flags |= crate::AttrFlags::DISABLED | crate::AttrFlags::EXCLUDE_HV;
    let open = |attr: &Attr| {
        OpenRequest::with_attr("task-clock", attr.clone(), EventTarget::CALLER).open()
    };
    let event = open(&attr)
        .or_else(|_| {
            attr.flags |= crate::AttrFlags::EXCLUDE_KERNEL;
            open(&attr)
        })
        .ok()?;
    let _ring = event.mmap(16).ok()?;
    let turns = {
        let begin = Instant::now();
        spin(1_000_000);
        let each = begin.elapsed().as_nanos().max(1);
        u64::try_from(1_500_000_u128 * 1_000_000 / each).unwrap_or(1_000_000)
    };
    let time = || {
        let begin = Instant::now();
        black_box(spin(turns));
        u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    };
    let (mut without, mut with) = (u64::MAX, u64::MAX);
    for _ in 0..MEASURED {
        without = without.min(time());
        event.enable().ok()?;
        with = with.min(time());
        event.disable().ok()?;
    }
    let samples = (with / PERIOD).max(1);
    let cost = with.saturating_sub(without) / samples;
    let window = (4 * cost).div_ceil(10_000) * 10_000;
    Some((window.clamp(50_000, 100_000), cost))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn armed(asked: u64, came: u64, lengths: &[u64], clock: bool) -> Armed {
        Armed {
            asked,
            came,
            windows: lengths.iter().map(|length| (*length, 1000)).collect(),
            period: if clock { 50_000 } else { 300 },
            clock,
        }
    }

    #[test]
    fn a_burst_that_came_as_asked_works() {
        let finding = judge(&armed(5, 5, &[300, 301, 300, 299], false));
        assert!(finding.works, "{finding:?}");
        let text = finding.observation.to_string();
        assert!(text.contains("5 of 5") && text.contains("windows of 300"));
        assert!(judge(&armed(5, 5, &[63_000, 71_000, 52_000, 50_100], true)).works);
    }

    #[test]
    fn a_burst_that_did_not_does_not() {
        for (armed, told) in [
            (armed(5, 3, &[300, 300], false), "3 of 5"),
            (armed(5, 0, &[], false), "0 of 5"),
            (armed(5, 9, &[300; 8], false), "does not stop"),
            (
                armed(5, 5, &[4930, 300, 4800, 5000], false),
                "windows of 4930",
            ),
            (armed(5, 5, &[10, 12, 9, 10], false), "windows of 10"),
            (armed(5, 5, &[4_000_000; 4], true), "windows of 4000000 ns"),
            (armed(1, 1, &[], true), "no window"),
        ] {
            let finding = judge(&armed);
            let text = finding.observation.to_string();
            assert!(!finding.works && text.contains(told), "{finding:?}");
        }
    }

    /// An attempt that others' load spoilt says nothing about the kernel.
    #[test]
    fn a_spoilt_attempt_is_made_again() {
        let bursts = [armed(5, 3, &[300; 2], false), armed(5, 5, &[300; 4], false)];
        let mut made = bursts.iter();
        let finding = attempts(3, || judge(made.next().expect("no third attempt")));
        assert!(finding.works, "{finding:?}");
        let mut made = 0;
        let finding = attempts(3, || {
            made += 1;
            judge(&armed(5, 0, &[], false))
        });
        assert!(!finding.works && made == 3, "{finding:?}");
    }

    #[test]
    fn pairs_are_told_by_their_distance_and_by_what_lies_between() {
        let pairs = |distance: u64, moves: u64| -> Vec<OwnSample> {
            let sample = |count, ip| OwnSample { count, ip };
            (0..10)
                .flat_map(|n| {
                    let (count, ip) = (n * 1_000_000, n * 100);
                    [sample(count, ip), sample(count + distance, ip + moves)]
                })
                .collect()
        };
        let finding = judge_pairs(&pairs(60_000, 8), 50_000);
        assert!(
            finding.works && finding.observation.to_string().starts_with("10 of 19"),
            "{finding:?}"
        );
        assert!(!judge_pairs(&pairs(60_000, 8)[..3], 50_000).works);
        // Both expire in one interrupt.
        assert!(!judge_pairs(&pairs(2_000, 0), 50_000).works);
        // The interrupt lasts as long as a window.
        let stuck = judge_pairs(&pairs(60_000, 0), 50_000);
        assert!(
            !stuck.works && stuck.observation.to_string().ends_with("in 0 of them"),
            "{stuck:?}"
        );
    }

    #[test]
    fn a_window_has_a_length_that_can_be_told() {
        if let Some((window, cost)) = shortest_useful_window() {
            assert!((50_000..=100_000).contains(&window), "{window} {cost}");
            assert_eq!(window % 10_000, 0);
        }
    }
}
