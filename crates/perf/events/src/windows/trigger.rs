//! The trigger of bursts that count a program's own code only, without the kernel's: a clock that samples only that code.
//!
//! A timer that fires while a thread is in the kernel starts the burst where it returns, just after the system call or
//! the page fault: the longer these take, the more bursts begin there, and what comes next after some time is met too
//! rarely. A task's clock with `exclude_kernel` expires there too, but makes a sample, and wakes who waits for it, only
//! where the thread runs its own code. So bursts begin anywhere in that code, each cycle of it being as probable.

use super::source::is_clock;
use crate::attach::plan::Plan;
use crate::errors::{AttachError, EventError};
use crate::event::{Event, EventTarget, OpenRequest};
use crate::names::software;
use crate::ring::Ring;
use crate::{Attr, AttrFlags, SampleType, event_type};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// The clock of a thread or CPU.
#[derive(Debug)]
pub(super) struct Trigger {
    event: Event,
    ring: Ring,
    runs: bool,
    /// Whether its thread has ended: from then on the descriptor is always ready.
    ended: bool,
}

/// Whether the windows of a plan count only what the program does itself, by hardware: windows of clocks, and of what the
/// kernel counts, are much longer than stays in the kernel, or none without them.
pub(super) fn is_for(plan: &Plan) -> bool {
    let mut leaders = plan.events.iter().filter(|event| event.leads.is_some());
    leaders.all(|leader| {
        let attr = &leader.attr;
        attr.flags.contains(AttrFlags::EXCLUDE_KERNEL)
            && !leader.counted_by_kernel
            && !is_clock(attr)
    })
}

impl Trigger {
    /// Opens the clock of a place; it does not run yet.
    ///
    /// # Errors
    /// Refusals, of the event and of its ring.
    pub fn open(
        place: EventTarget,
        cgroup: Option<BorrowedFd<'_>>,
    ) -> Result<Trigger, AttachError> {
        let (name, config) = match place {
            EventTarget::Cpu(_) => ("cpu-clock", software::CPU_CLOCK),
            EventTarget::Thread(..) => ("task-clock", software::TASK_CLOCK),
        };
        let attr = Attr {
            kind: event_type::SOFTWARE,
            config,
            sample_period: 1_000_000,
            sample_type: SampleType::IP,
            flags: AttrFlags::DISABLED | AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV,
            wakeup: 1,
            ..Attr::default()
        };
        let event = OpenRequest::with_attr(name, attr, place)
            .cgroup(cgroup)
            .open()?;
        let ring = event.mmap(1)?;
        Ok(Trigger {
            event,
            ring,
            runs: false,
            ended: false,
        })
    }

    /// The descriptor to wait for, as long as something can come.
    pub fn fd(&self) -> Option<i32> {
        (self.runs && !self.ended).then(|| self.event.as_fd().as_raw_fd())
    }

    /// Lets it expire after `long` nanoseconds of the thread, unless it runs already.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn start(&mut self, long: u64) -> Result<(), EventError> {
        if !self.runs {
            self.event.period(long)?;
            self.event.enable()?;
            self.runs = true;
        }
        Ok(())
    }

    /// Lets it expire no more.
    pub fn stop(&mut self) {
        self.runs = false;
        // A thread that has ended is not there to be disabled.
        let _ = self.event.disable();
    }

    /// Whether it expired since the last time; then it does again after `long`.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn expired(&mut self, long: u64) -> Result<bool, EventError> {
        let expired = self.ring.drain(|_, _| {}).records > 0;
        if expired {
            self.event.period(long)?;
        }
        Ok(expired)
    }

    /// Takes note that its thread has ended.
    pub fn end(&mut self) {
        self.ended = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;

    /// Runs code of its own until the trigger expires; whether it did within so many turns.
    fn expires(trigger: &mut Trigger, turns: u64) -> bool {
        let mut word = 1_u64;
        (0..turns).any(|_| {
            for _ in 0..10_000 {
                word = black_box(word.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (word >> 7));
            }
            trigger.expired(100_000).expect("it can be set anew")
        })
    }

    #[test]
    fn it_expires_while_it_runs_and_its_thread_does() {
        let Ok(mut trigger) = Trigger::open(EventTarget::Thread(0, None), None) else {
            return dioptra_testprograms::skip("task-clock cannot be sampled here");
        };
        // Many seconds, where it comes after a tenth of a millisecond.
        const PATIENCE: u64 = 1_000_000;
        assert_eq!(trigger.fd(), None);
        assert!(!expires(&mut trigger, 100));
        trigger.start(100_000).expect("it starts");
        assert!(trigger.fd().is_some());
        assert!(expires(&mut trigger, PATIENCE));
        assert!(expires(&mut trigger, PATIENCE), "again");
        trigger.stop();
        let _ = trigger.expired(100_000);
        assert!(!expires(&mut trigger, 100));
        trigger.start(100_000).expect("it starts");
        assert!(expires(&mut trigger, PATIENCE));
        trigger.end();
        assert_eq!(trigger.fd(), None);
    }

    #[test]
    fn it_is_for_hardware_that_counts_the_programs_own_code() {
        use super::super::plan::plan_of;
        use super::super::schedule::{Length, Schedule};
        use super::super::source::WindowsSpec;
        use crate::spec::{EventGroup, EventSpec, Target};
        let is_for_led_by = |leader: EventSpec| {
            let schedule = Schedule::steady(Length::Count(300));
            let groups = vec![EventGroup::new([leader, EventSpec::page_faults()])];
            is_for(&plan_of(&WindowsSpec::new(schedule, groups, Target::SelfProcess)).1)
        };
        let cycles = || {
            let parsed = crate::parse_events("cycles").expect("an event");
            parsed[0].events[0].clone()
        };
        assert!(is_for_led_by(cycles().user_only()));
        assert!(!is_for_led_by(cycles()));
        assert!(!is_for_led_by(EventSpec::page_faults().user_only()));
        assert!(!is_for_led_by(
            EventSpec::software(software::TASK_CLOCK).user_only()
        ));
    }
}
