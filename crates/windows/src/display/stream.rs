//! From a profile's windows to the stream that is analyzed.

use super::rows::{Rows, WindowRows};
use crate::collect::CollectedWindows;
use crate::estimate::{CountedGroup, WindowEnd, Windows};
use dioptra_metrics::RecordedEvent;
use dioptra_perfrecords::names::software;
use dioptra_perfrecords::{Attr, event_type};
use dioptra_report::Input;

/// The windows, and the row of each.
pub(super) struct Stream {
    pub windows: Windows,
    /// The events of all groups, each name once: groups that rotate have their leader in common.
    pub events: Vec<RecordedEvent>,
    /// By window; `None` where a filter of places took it away.
    keys: Vec<Option<u32>>,
}

impl Stream {
    pub fn new(input: &Input<'_>, of: &CollectedWindows, rows: &Rows) -> Stream {
        let mut events: Vec<RecordedEvent> = Vec::new();
        let mut groups = Vec::new();
        // By group: which of its values are used. Of events of one name the first: twins are one event sampled twice.
        let mut used: Vec<Vec<usize>> = Vec::new();
        for group in &of.plan().groups {
            let mut group_events = Vec::new();
            let mut places = Vec::new();
            for (place, event) in group.events.iter().enumerate() {
                let name = input.profile.events()[*event as usize].name();
                let known = events.iter().position(|known| known.name == name);
                let event = known.unwrap_or_else(|| {
                    events.push(RecordedEvent::named(name));
                    events.len() - 1
                }) as u32;
                if !group_events.contains(&event) {
                    group_events.push(event);
                    places.push(place);
                }
            }
            used.push(places);
            groups.push(CountedGroup {
                events: group_events,
                drop_last: group.drop_last,
            });
        }
        let mut stream = Stream {
            windows: Windows::new(groups),
            events,
            keys: Vec::with_capacity(of.len()),
        };
        for (number, event) in (0_u32..).zip(&stream.events) {
            let mut recorded = input.profile.events().iter();
            let recorded = recorded.find(|recorded| recorded.name() == event.name);
            let Some(recorded) = recorded else { continue };
            if counts_by_software(recorded.attr()) {
                stream.windows.set_borderless(number);
            }
            if is_clock(recorded.attr()) {
                stream.windows.set_clock(number);
            }
        }
        // A thread goes on through functions, unless a filter left some of them only.
        let whole_threads = rows.by.is_of_task() && !hides_some(of);
        let mut counts = Vec::new();
        for (number, burst) in of.bursts().iter().enumerate() {
            stream.windows.push_burst(*burst);
            for window in of.windows(number) {
                let place = |place| match whole_threads {
                    true => WindowEnd {
                        function: Some(0),
                        path: None,
                    },
                    false => place_of(input, rows, place),
                };
                counts.clear();
                let used = &used[usize::from(burst.group)];
                counts.extend(used.iter().map(|place| window.counts[*place]));
                let (start, end) = (place(window.start), place(window.end));
                stream
                    .windows
                    .push_window(window.index, window.flags, start, end, &counts);
                let shown = (!window.hidden).then_some(());
                stream
                    .keys
                    .push(shown.and_then(|()| rows.key(input, window.end, window.thread)));
            }
        }
        stream
    }

    /// The row of a window.
    pub fn key(&self, window: usize) -> Option<u32> {
        self.keys[window]
    }
}

/// Whether a filter of places took windows away.
fn hides_some(windows: &CollectedWindows) -> bool {
    let mut bursts = 0..windows.bursts().len();
    bursts.any(|burst| windows.windows(burst).any(|window| window.hidden))
}

/// Whether software counts an event, when it happens: the interrupts that end windows add nothing to it. Clocks go on
/// in them.
fn counts_by_software(attr: &Attr) -> bool {
    attr.kind == event_type::SOFTWARE && !is_clock(attr)
}

/// Whether an event is a clock.
fn is_clock(attr: &Attr) -> bool {
    attr.kind == event_type::SOFTWARE
        && matches!(attr.config, software::CPU_CLOCK | software::TASK_CLOCK)
}

/// The function of a place and the path of its callers, as far as they are known; where rows are modules, its module.
fn place_of(input: &Input<'_>, rows: &Rows, place: u32) -> WindowEnd {
    if rows.by == WindowRows::Module {
        return WindowEnd {
            function: Some(Rows::module(input, place)),
            path: None,
        };
    }
    let function = input.names.of_frame(input.profile.innermost_frame(place));
    let known = input.names.functions().get(function as usize);
    WindowEnd {
        // All places of a module without a name are no one function.
        function: known.filter(|known| !known.is_unknown()).map(|_| function),
        path: rows
            .paths
            .as_ref()
            .map(|paths| paths.callers(paths.of(place))),
    }
}
