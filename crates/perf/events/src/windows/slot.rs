//! The windows' events of one thread or CPU: armed for one burst after the other.

use super::ids::{own_id, set_id};
use super::random::Random;
use super::schedule::Schedule;
use super::source::{Burst, BurstOutcome, WindowStats};
use super::trigger::Trigger;
use crate::AttrFlags;
use crate::attach::plan::Plan;
use crate::errors::{AttachError, EventError};
use crate::event::{Event, EventTarget, OpenRequest};
use crate::limits;
use crate::procfs::Whereabouts;
use crate::record::{RawRecord, RecordLayout, RecordType};
use crate::ring::Ring;
use crate::sys;
use crate::{ByteOrder, Cursor};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// A thread of which nobody can say that it ran when it was armed, and that took longer than this, in nanoseconds,
/// until its first sample without running, slept: what comes after a sleep stands for nothing else.
const LATE: u64 = 200_000;

/// A burst without another sample for so long, in nanoseconds, is given up, so that the next one may come.
const GIVEN_UP: u64 = 1_000_000_000;

/// The number of windows' lengths that are kept for the medians.
pub(super) const LENGTHS: usize = 4096;

/// The records and bursts of slots that were not handed over yet.
#[derive(Debug, Default)]
pub(super) struct SlotOutput {
    /// Whole records, one after the other.
    pub bytes: Vec<u8>,
    pub bursts: Vec<Burst>,
    pub stats: WindowStats,
    /// The leader's count and the nanoseconds of windows.
    pub lengths: Vec<(u64, u64)>,
}

/// A group of a slot.
#[derive(Debug)]
struct SlotGroup {
    /// The leader first.
    events: Vec<Event>,
    layout: RecordLayout,
    /// Samples of a burst.
    samples: u32,
    /// Samples that the kernel still lets it take, of a burst that was given up.
    owed: u32,
    /// Nanoseconds for which it was enabled, at its last sample.
    enabled: u64,
}

/// The burst that is armed.
#[derive(Debug)]
struct Pending {
    group: usize,
    armed: u64,
    period: u64,
    samples: u32,
    seen: u32,
    lost: u32,
    /// Whether it was seen to run, or to wait for a CPU, when it was armed.
    ran: bool,
    late: bool,
    throttled: bool,
    /// Time and leader's count of the last sample.
    last: Option<(u64, u64)>,
    /// Since when no sample came.
    quiet_since: u64,
}

/// The events of a thread or a CPU, and their ring.
#[derive(Debug)]
pub(super) struct Slot {
    pub place: EventTarget,
    whereabouts: Option<Whereabouts>,
    groups: Vec<SlotGroup>,
    ring: Ring,
    turn: usize,
    pending: Option<Pending>,
    /// The time (`CLOCK_MONOTONIC`, nanoseconds) before which no burst is armed.
    rests_until: u64,
    /// The trigger that decides when it is armed; `None` if its lane's timer decides.
    pub trigger: Option<Trigger>,
}

/// Samples of a burst of `windows`, the one that marks its start among them. The kernel stops a software event's group
/// before the last sample reads its counts: one more is taken, to be left out.
pub(super) fn samples_of_burst(windows: u32, inflates_last: bool) -> u32 {
    windows.saturating_add(1 + u32::from(inflates_last))
}

impl Slot {
    /// Opens the plan's events at a place, disabled, with a ring of `pages`. Returns the ids of the plan's events.
    ///
    /// # Errors
    /// Refusals, of events and of the ring.
    pub fn open(
        plan: &Plan,
        place: EventTarget,
        cgroup: Option<BorrowedFd<'_>>,
        pages: usize,
        windows: u32,
    ) -> Result<(Slot, Vec<u64>), AttachError> {
        let mut groups: Vec<SlotGroup> = Vec::new();
        let mut ids = Vec::with_capacity(plan.events.len());
        for planned in &plan.events {
            let leads = planned.leads.is_some();
            let leader = groups.last().and_then(|group| group.events.first());
            let event = OpenRequest::with_attr(&planned.name, planned.attr.clone(), place)
                .group(leader.filter(|_| !leads))
                .cgroup(cgroup)
                .tail(&planned.tail)
                .open()?;
            if let Some(filter) = &planned.filter {
                event.filter(filter)?;
            }
            ids.push(event.id()?);
            match groups.last_mut().filter(|_| !leads) {
                Some(group) => group.events.push(event),
                None => groups.push(SlotGroup {
                    layout: RecordLayout::new(&planned.attr, ByteOrder::NATIVE),
                    samples: samples_of_burst(windows, planned.counted_by_kernel),
                    events: vec![event],
                    owed: 0,
                    enabled: 0,
                }),
            }
        }
        let leaders: Vec<&Event> = groups
            .iter()
            .filter_map(|group| group.events.first())
            .collect();
        let (Some(owner), rest) = (leaders.first(), leaders.get(1..).unwrap_or_default()) else {
            return Err(AttachError::NoEvents);
        };
        let ring = Ring::new(owner.as_fd(), pages).map_err(|source| AttachError::Ring {
            cpu: match place {
                EventTarget::Cpu(cpu) => cpu,
                EventTarget::Thread(..) => u32::MAX,
            },
            pages,
            mlock_kb: limits::mlock_kb().unwrap_or(0),
            source,
        })?;
        for leader in rest {
            leader.set_output(Some(owner))?;
        }
        // Members of a group need not write into a ring: they do not sample.
        let slot = Slot {
            place,
            whereabouts: match place {
                EventTarget::Thread(tid, _) if tid != 0 => Whereabouts::of(tid),
                _ => None,
            },
            groups,
            ring,
            turn: 0,
            pending: None,
            rests_until: 0,
            trigger: None,
        };
        Ok((slot, ids))
    }

    /// Whether a burst is under way.
    pub fn is_busy(&self) -> bool {
        self.pending.is_some()
    }

    /// Whether the last burst ended so recently that another one would take too much of the program's time.
    ///
    /// A sample of a clock may take longer than the window that it bounds, on a loaded virtual machine for instance. The
    /// program then makes no progress within bursts. So it gets as much time between two bursts as the first one took.
    pub fn rests(&self) -> bool {
        self.rests_until > sys::clock_now(libc::CLOCK_MONOTONIC)
    }

    /// Where its thread is: whether it runs, and the CPU. `None` where that is not known, and for CPUs.
    pub fn whereabouts(&self) -> Option<(bool, u32)> {
        self.whereabouts.as_ref()?.now()
    }

    /// Arms the group whose turn it is for one burst; `ran` says whether the thread was seen to run.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn arm(
        &mut self,
        schedule: &Schedule,
        random: &mut Random,
        ran: bool,
    ) -> Result<(), EventError> {
        let number = self.turn;
        self.turn = (number + 1) % self.groups.len();
        let group = match self.groups.get_mut(number) {
            Some(group) => group,
            None => return Ok(()),
        };
        let Some(leader) = group.events.first() else {
            return Ok(());
        };
        let period = random.short(schedule);
        // Another length each time: windows of one length fall into step with loops.
        leader.period(period)?;
        let armed = sys::clock_now(libc::CLOCK_MONOTONIC);
        match group.samples.checked_sub(group.owed) {
            Some(more) if more > 0 => leader.refresh(more)?,
            _ => leader.enable()?,
        }
        group.owed = 0;
        self.pending = Some(Pending {
            group: number,
            armed,
            period,
            samples: group.samples,
            seen: 0,
            lost: 0,
            ran: ran || matches!(self.place, EventTarget::Cpu(_)),
            late: false,
            throttled: false,
            last: None,
            quiet_since: armed,
        });
        Ok(())
    }

    /// Takes what is in the ring, and ends the burst if it is complete.
    pub fn drain(&mut self, made: &mut SlotOutput) {
        let Slot {
            groups,
            ring,
            pending,
            ..
        } = self;
        ring.drain(|bytes, record| {
            let start = made.bytes.len();
            made.bytes.extend_from_slice(bytes);
            match record.kind {
                RecordType::SAMPLE => {
                    made.stats.samples += 1;
                    let number = pending.as_ref().map_or(0, |pending| pending.group);
                    let layout = groups.get(number).map(|group| &group.layout);
                    if let Some(id) = layout.and_then(|layout| own_id(layout, record)) {
                        set_id(id, &mut made.bytes[start..]);
                    }
                    if let Some(pending) = pending
                        && let Some(group) = groups.get_mut(pending.group)
                    {
                        pending.sample(group, record, &mut made.lengths);
                    }
                }
                RecordType::LOST => {
                    let lost = lost_count(record);
                    made.stats.lost += lost;
                    if let Some(pending) = pending {
                        pending.lost = pending
                            .lost
                            .saturating_add(u32::try_from(lost).unwrap_or(u32::MAX));
                    }
                }
                RecordType::THROTTLE => {
                    if let Some(pending) = pending {
                        pending.throttled = true;
                    }
                }
                _ => {}
            }
        });
        let complete = |pending: &Pending| pending.seen + pending.lost >= pending.samples;
        if self.pending.as_ref().is_some_and(complete) {
            self.end(made, BurstOutcome::empty());
        }
    }

    /// Gives the burst up if it gets nowhere.
    pub fn give_up_if_stuck(&mut self, now: u64, made: &mut SlotOutput) {
        let stuck = |pending: &Pending| now.saturating_sub(pending.quiet_since) > GIVEN_UP;
        if self.pending.as_ref().is_some_and(stuck) {
            self.cut(made);
        }
    }

    /// Stops the burst where it is.
    pub fn cut(&mut self, made: &mut SlotOutput) {
        let Some(group) = self.pending.as_ref().map(|pending| pending.group) else {
            return;
        };
        // A thread that has ended is not there to be disabled.
        let _ = self.groups[group].events[0].disable();
        self.drain(made);
        if let Some(pending) = &self.pending {
            self.groups[group].owed = pending.samples.saturating_sub(pending.seen + pending.lost);
            self.end(made, BurstOutcome::CUT);
        }
    }

    fn end(&mut self, made: &mut SlotOutput, mut outcome: BurstOutcome) {
        let Some(pending) = self.pending.take() else {
            return;
        };
        let now = sys::clock_now(libc::CLOCK_MONOTONIC);
        let last = pending.last.map_or(now, |(time, _)| time);
        self.rests_until = last.saturating_add(last.saturating_sub(pending.armed));
        let windows = |samples: u32| u16::try_from(samples.saturating_sub(1)).unwrap_or(u16::MAX);
        let (expected, seen) = (windows(pending.samples), windows(pending.seen));
        if seen >= expected {
            outcome |= BurstOutcome::COMPLETE;
        } else {
            // Samples that were lost leave a hole.
            outcome |= BurstOutcome::CUT;
        }
        outcome.set(BurstOutcome::LATE, pending.late);
        outcome.set(BurstOutcome::THROTTLED, pending.throttled);
        let stats = &mut made.stats;
        for (of, count) in [
            (BurstOutcome::COMPLETE, &mut stats.complete),
            (BurstOutcome::LATE, &mut stats.late),
            (BurstOutcome::CUT, &mut stats.cut),
            (BurstOutcome::THROTTLED, &mut stats.throttled),
        ] {
            *count += u64::from(outcome.contains(of));
        }
        stats.armed += 1;
        stats.windows += u64::from(seen);
        let (cpu, tid) = match self.place {
            EventTarget::Cpu(cpu) => (Some(cpu), None),
            EventTarget::Thread(tid, cpu) => (cpu, Some(tid)),
        };
        made.bursts.push(Burst {
            group: u16::try_from(pending.group).unwrap_or(u16::MAX),
            cpu,
            tid,
            armed: pending.armed,
            ended: match pending.last {
                Some((time, _)) if outcome.contains(BurstOutcome::COMPLETE) => time,
                _ => now,
            },
            period: pending.period,
            expected,
            seen,
            outcome,
        });
    }

    /// The descriptor that hangs up when the thread has ended.
    pub fn fd(&self) -> i32 {
        self.groups
            .first()
            .and_then(|group| group.events.first())
            .map_or(-1, |event| event.as_fd().as_raw_fd())
    }
}

impl Pending {
    fn sample(
        &mut self,
        group: &mut SlotGroup,
        record: &RawRecord<'_>,
        lengths: &mut Vec<(u64, u64)>,
    ) {
        self.seen += 1;
        let Ok(sample) = group.layout.sample(record) else {
            return;
        };
        let (Some(time), Some(read)) = (sample.time, sample.read) else {
            return;
        };
        let enabled = read.time_enabled.unwrap_or(0);
        let count = read.get(0).map_or(0, |leader| leader.value);
        match self.last {
            None => {
                let passed = time.saturating_sub(self.armed);
                let ran = enabled.saturating_sub(group.enabled);
                self.late = !self.ran && passed.saturating_sub(ran) > LATE;
            }
            Some((before, counted)) if self.seen < self.samples && lengths.len() < LENGTHS => {
                lengths.push((count.saturating_sub(counted), time.saturating_sub(before)));
            }
            Some(_) => {}
        }
        group.enabled = enabled;
        self.quiet_since = time;
        self.last = Some((time, count));
    }
}

/// Returns the number of records that a LOST record states: an id, then the count.
fn lost_count(record: &RawRecord<'_>) -> u64 {
    let mut at = Cursor::new(record.body, ByteOrder::NATIVE);
    at.u64().and_then(|_id| at.u64()).unwrap_or(0)
}

/// Readies a plan's events for being armed.
pub(super) fn prepare(plan: &mut Plan) {
    for planned in &mut plan.events {
        let attr = &mut planned.attr;
        // The ring's own records state its losses, which are counted by burst.
        attr.read_format.remove(crate::ReadFormat::LOST);
        if planned.leads.is_some() {
            // Nobody waits for these rings, and a wakeup is one more interrupt of the thread.
            attr.flags |= AttrFlags::WATERMARK;
            attr.wakeup = i32::MAX as u32;
            // Others that count take turns with each other: a burst cannot wait for its turn.
            let takes_counter = !planned.counted_by_kernel && !super::source::is_clock(attr);
            attr.flags.set(AttrFlags::PINNED, takes_counter);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::{fallbacks, plan_of};
    use super::super::schedule::Length;
    use super::super::source::WindowsSpec;
    use super::*;
    use crate::spec::{EventGroup, EventSpec, Target};

    /// A slot of page faults, four windows of five, on the calling thread.
    fn own_slot(schedule: &Schedule) -> Option<Slot> {
        let groups = vec![EventGroup::new([EventSpec::page_faults().user_only()])];
        let spec = WindowsSpec::new(*schedule, groups, Target::SelfProcess);
        let (_, mut plan) = plan_of(&spec);
        let here = EventTarget::Thread(0, None);
        plan.resolve(here, None, fallbacks()).ok()?;
        prepare(&mut plan);
        Slot::open(&plan, here, None, 8, schedule.batch)
            .ok()
            .map(|(slot, _)| slot)
    }

    #[test]
    fn what_a_burst_that_was_cut_left_is_not_taken_by_the_next() {
        let schedule = Schedule {
            long: Length::Time(1),
            short: Length::Count(5),
            jitter: Length::Count(0),
            batch: 4,
        };
        let Some(mut slot) = own_slot(&schedule) else {
            return dioptra_testprograms::skip("page faults cannot be armed here");
        };
        let mut random = Random::new(1);
        let mut made = SlotOutput::default();
        let mut faults = [12, 0, 200, 7, 200].into_iter();
        // Cut after two samples, at once, not at all, after one, not at all.
        for (samples, outcome) in [
            (2, BurstOutcome::CUT),
            (0, BurstOutcome::CUT),
            (6, BurstOutcome::COMPLETE),
            (1, BurstOutcome::CUT),
            (6, BurstOutcome::COMPLETE),
        ] {
            let before = made.stats.samples;
            slot.arm(&schedule, &mut random, true).expect("armed");
            assert!(slot.is_busy());
            sys::touch_fresh_pages(faults.next().unwrap_or(0));
            slot.drain(&mut made);
            assert_eq!(slot.is_busy(), outcome == BurstOutcome::CUT);
            slot.cut(&mut made);
            // Nothing goes on after a burst.
            sys::touch_fresh_pages(50);
            slot.drain(&mut made);
            assert_eq!(made.stats.samples - before, samples);
            let burst = made.bursts.last().expect("a burst");
            assert_eq!((burst.outcome, burst.expected), (outcome, 5));
            assert_eq!(u64::from(burst.seen), samples.saturating_sub(1));
        }
        assert_eq!(
            (made.stats.armed, made.stats.complete, made.stats.cut),
            (5, 2, 3)
        );
    }

    #[test]
    fn losses_are_counted_from_their_records() {
        let mut body = [0; 16];
        body[8..].copy_from_slice(&7_u64.to_ne_bytes());
        let record = |body| RawRecord {
            kind: RecordType::LOST,
            misc: crate::record::Misc(0),
            body,
        };
        assert_eq!(lost_count(&record(&body)), 7);
        assert_eq!(lost_count(&record(&body[..12])), 0);
    }
}
