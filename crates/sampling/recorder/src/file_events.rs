//! The events of a session that the file describes: all that sample, but no events that only count for an extension.

use crate::spec::RecordSpec;
use dioptra_perfevents::{AttachedEvent, Attr, event_type};

/// Returns whether an event of the session only counts, for an extension. The file does not describe such events.
pub(crate) fn is_counting(spec: &RecordSpec, event: &AttachedEvent) -> bool {
    let sampling: usize = spec.groups.iter().map(|group| group.events.len()).sum();
    event.spec.is_some_and(|index| index >= sampling)
}

/// Returns the leader of an event's group, if the event takes no samples itself: the leader's samples hold its counts.
pub(crate) fn counted_with<'e>(
    spec: &RecordSpec,
    events: &'e [AttachedEvent],
    event: &AttachedEvent,
) -> Option<&'e AttachedEvent> {
    let index = event.spec.filter(|_| !event.attr.samples())?;
    let mut first = 0;
    for group in &spec.groups {
        let end = first + group.events.len();
        if (first + 1..end).contains(&index) {
            return events.iter().find(|event| event.spec == Some(first));
        }
        first = end;
    }
    None
}

/// Returns the session's events that the file has.
pub(crate) fn recorded(spec: &RecordSpec, events: &[AttachedEvent]) -> Vec<AttachedEvent> {
    let has = |event: &&AttachedEvent| !is_counting(spec, event);
    events.iter().filter(has).cloned().collect()
}

/// Returns the index in the file of each of the session's events; `None` where the file lacks it.
pub(crate) fn file_indices(spec: &RecordSpec, events: &[AttachedEvent]) -> Vec<Option<usize>> {
    let mut next = 0..;
    events
        .iter()
        .map(|event| {
            if is_counting(spec, event) {
                None
            } else {
                next.next()
            }
        })
        .collect()
}

/// Returns whether an event occurs whenever its target runs.
pub(crate) fn passes_with_time(attr: &Attr) -> bool {
    // PERF_COUNT_HW_CPU_CYCLES; PERF_COUNT_SW_CPU_CLOCK and _TASK_CLOCK.
    (attr.kind == event_type::HARDWARE && attr.config == 0)
        || (attr.kind == event_type::SOFTWARE && attr.config <= 1)
}
