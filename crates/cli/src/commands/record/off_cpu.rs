//! The event of `dioptra record --off-cpu`.

use super::arguments::ArgumentError;
use dioptra_perfevents::names::software;
use dioptra_perfevents::{EventGroup, EventSpec, SampleType, event_type};
use dioptra_profile::OFF_CPU_EVENT;
use dioptra_recorder::sample_options::CallGraph;

/// Returns the group of the event that samples every context switch, with a call chain: by frame pointers unless another
/// method is asked for.
pub(super) fn group(
    others: &[EventGroup],
    call_graph: Option<CallGraph>,
) -> Result<EventGroup, ArgumentError> {
    let all = others.iter().flat_map(|group| &group.events);
    let mut switches = all.filter(|event| {
        let attr = &event.attr;
        (attr.kind, attr.config) == (event_type::SOFTWARE, software::CONTEXT_SWITCHES)
    });
    if let Some(event) = switches.next() {
        return Err(ArgumentError::SwitchesTwice(event.name.clone()));
    }
    let mut event = EventSpec::software(software::CONTEXT_SWITCHES).with_period(1);
    event.name = OFF_CPU_EVENT.to_owned();
    if call_graph.is_none() {
        event = event.with_sample(SampleType::CALLCHAIN);
    }
    Ok(EventGroup::from(event))
}
