//! Which events to count together.

use crate::set::{ColumnKind, MetricSet, NeededEvent};

/// Events that one group of counters takes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EventGroup {
    /// Fixed ones first.
    pub events: Vec<NeededEvent>,
}

impl EventGroup {
    fn has(&self, name: &str) -> bool {
        self.events.iter().any(|e| e.name == name)
    }

    fn taken(&self) -> usize {
        self.events.iter().filter(|e| !e.fixed).count()
    }
}

/// A set's events in groups that a CPU can count at once.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SplitGroups {
    /// The groups. An event that several formulas need may stand in several of them.
    pub groups: Vec<EventGroup>,
    /// Columns with more inputs than counters: theirs are spread, and were not counted at the same time.
    pub apart: Vec<String>,
}

impl MetricSet {
    /// Splits the needed events into groups of at most `counters` general counters (at least 1), so that the events of
    /// a formula stand in one group where they fit. The terms of a sum need not be together.
    pub fn split_groups(&self, counters: usize) -> SplitGroups {
        let all: Vec<usize> = (0..self.columns.len()).collect();
        self.split_groups_of(&all, counters, |_| true)
    }

    /// The same for some columns, and without the events that are not `wanted`, such as those that a machine cannot
    /// count.
    pub fn split_groups_of(
        &self,
        columns: &[usize],
        counters: usize,
        wanted: impl Fn(&NeededEvent) -> bool,
    ) -> SplitGroups {
        let counters = counters.max(1);
        let needed = |column| {
            let mut events = self.needed_events_of(&[column]);
            events.retain(&wanted);
            events
        };
        let mut split = SplitGroups::default();
        let mut together: Vec<(usize, Vec<NeededEvent>)> = Vec::new();
        for &column in columns {
            match self.columns.get(column).map(|c| c.kind) {
                None => {}
                Some(ColumnKind::Formula) => {
                    let events = needed(column);
                    if !events.is_empty() {
                        together.push((column, events));
                    }
                }
                Some(_) => {
                    let events = needed(column);
                    together.extend(events.into_iter().map(|e| (column, vec![e])));
                }
            }
        }
        // Large ones first: small ones fill what is left.
        together.sort_by_key(|(_, events)| {
            std::cmp::Reverse(events.iter().filter(|e| !e.fixed).count())
        });
        for (column, events) in together {
            let size = events.iter().filter(|e| !e.fixed).count();
            if size > counters {
                split.apart.push(self.columns[column].name.clone());
                for event in events {
                    split.place(vec![event], counters);
                }
            } else {
                split.place(events, counters);
            }
        }
        for group in &mut split.groups {
            group.events.sort_by_key(|e| !e.fixed);
        }
        split
    }
}

impl SplitGroups {
    /// Puts events that fit a group into the one that grows least.
    fn place(&mut self, events: Vec<NeededEvent>, counters: usize) {
        let new_in = |group: &EventGroup, fixed: bool| {
            let new = events
                .iter()
                .filter(|e| e.fixed == fixed && !group.has(&e.name));
            new.count()
        };
        let best = self
            .groups
            .iter()
            .enumerate()
            .map(|(i, group)| (new_in(group, false), new_in(group, true), i))
            .filter(|&(new, _, i)| self.groups[i].taken() + new <= counters)
            .min();
        let group = match best {
            Some((_, _, i)) => &mut self.groups[i],
            None => {
                self.groups.push(EventGroup::default());
                let last = self.groups.len() - 1;
                &mut self.groups[last]
            }
        };
        for event in events {
            if !group.has(&event.name) {
                group.events.push(event);
            }
        }
    }
}
