//! The ladder of fallbacks for a single event: trying it, and asking for less where it is refused.

use super::plan::Plan;
use crate::errors::{OpenError, Refusal};
use crate::event::{EventTarget, OpenRequest};
use crate::names::software;
use crate::notes::AttachNote;
use crate::spec::Fallbacks;
use crate::{AttrFlags, SampleType, event_type};
use std::os::fd::BorrowedFd;

impl Plan {
    /// Tries every event at `target`, taking fallbacks until it opens or none is left.
    ///
    /// # Errors
    /// The refusal that no fallback helps against; [`OpenError::is_gone`] where the target's thread has ended.
    pub(crate) fn resolve(
        &mut self,
        target: EventTarget,
        cgroup: Option<BorrowedFd<'_>>,
        fallbacks: Fallbacks,
    ) -> Result<(), OpenError> {
        for index in 0..self.events.len() {
            if Some(index) == self.owner_event {
                continue;
            }
            loop {
                let event = &self.events[index];
                // This event is opened for a trial and must not count.
                let mut attr = event.attr.clone();
                attr.flags |= AttrFlags::DISABLED;
                let request = OpenRequest::with_attr(&event.name, attr, target)
                    .cgroup(cgroup)
                    .tail(&event.tail);
                let Err(error) = request.open() else {
                    break;
                };
                if !self.fall_back(index, &error, fallbacks) {
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Takes the next fallback for an event that was refused, and returns true if there was one.
    fn fall_back(&mut self, index: usize, error: &OpenError, allowed: Fallbacks) -> bool {
        let event = &mut self.events[index];
        let attr = &mut event.attr;
        let precise = attr.precise_ip();
        let unsupported = matches!(
            error.refusal,
            Refusal::NotSupported
                | Refusal::CannotSample
                | Refusal::NoBranchStacks
                | Refusal::Invalid { .. }
                | Refusal::NoInheritance(_)
                | Refusal::CpuOffline
        );
        if unsupported && precise > 0 && allowed.contains(Fallbacks::LESS_PRECISE) {
            attr.set_precise_ip(precise - 1);
            if precise == 1 {
                let event = event.name.clone();
                let note = AttachNote::NotPrecise { event };
                self.note(note);
            }
            return true;
        }
        let no_counter = matches!(
            error.refusal,
            Refusal::NotSupported
                | Refusal::CannotSample
                | Refusal::NoBranchStacks
                | Refusal::CpuOffline
        );
        if no_counter && event.clock_can_replace && allowed.contains(Fallbacks::CPU_CLOCK) {
            if !attr.flags.contains(AttrFlags::FREQ) && attr.sample_period > 0 {
                // A period in cycles means nothing to a clock of nanoseconds; a thousand samples a second do.
                attr.sample_period = 1_000_000;
            }
            attr.kind = event_type::SOFTWARE;
            attr.config = software::CPU_CLOCK;
            (attr.config1, attr.config2, attr.config3) = (0, 0, 0);
            event.clock_can_replace = false;
            let from = std::mem::replace(&mut event.name, "cpu-clock".to_owned());
            let modifiers = from
                .split_once(':')
                .map(|(_, modifiers)| modifiers.to_owned());
            if let Some(modifiers) = modifiers {
                let kept: String = modifiers.chars().filter(|c| *c != 'p').collect();
                if !kept.is_empty() {
                    event.name = format!("cpu-clock:{kept}");
                }
            }
            let note = AttachNote::CpuClock { event: from };
            self.note(note);
            return true;
        }
        let denied = matches!(
            error.refusal,
            Refusal::Permission {
                needs_kernel: true,
                ..
            }
        );
        if denied
            && allowed.contains(Fallbacks::EXCLUDE_KERNEL)
            && !attr.flags.contains(AttrFlags::EXCLUDE_USER)
        {
            attr.flags |= AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV;
            if attr.sample_type.contains(SampleType::CALLCHAIN) {
                attr.flags |= AttrFlags::EXCLUDE_CALLCHAIN_KERNEL;
            }
            let counts_nothing = event.counted_by_kernel
                && matches!(
                    event.attr.config,
                    software::CONTEXT_SWITCHES
                        | software::CPU_MIGRATIONS
                        | software::CGROUP_SWITCHES
                )
                && event.attr.kind == event_type::SOFTWARE;
            let event = event.name.clone();
            let note = if counts_nothing {
                AttachNote::NeverInUserSpace { event }
            } else {
                AttachNote::UserOnly { event }
            };
            self.note(note);
            return true;
        }
        false
    }
}
