//! Which events of a recording make windows, and what is a window of them.

use crate::profile::is_dummy;
use dioptra_perfdata::{PerfData, Windows};
use dioptra_perfevents::windows::{Length, Schedule};
use dioptra_perfrecords::{Attr, ReadFormat, SampleType, event_type};

/// What made the windows of a recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum WindowSource {
    /// Bursts that were armed, each of them known.
    Bursts,
    /// Samples at two distances: pairs at the short one are windows.
    Pairs {
        /// The least that lies between the two samples of a pair.
        least: Length,
        /// The most.
        most: Length,
    },
    /// Steady sampling: all samples bound windows.
    #[default]
    Steady,
}

/// A group of counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlannedGroup {
    /// Its events, as indices of [`crate::Profile::events`], the leader first.
    pub events: Vec<u32>,
    /// The last window of each burst is longer than the others.
    pub drop_last: bool,
    /// Whether it counts context switches: then a window with one is what is looked for.
    pub counts_switches: bool,
    /// Whether it counts migrations between CPUs.
    pub counts_migrations: bool,
}

/// How windows are found in a recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WindowPlan {
    /// What made them.
    pub source: WindowSource,
    /// The groups.
    pub groups: Vec<PlannedGroup>,
    /// What the recording itself tells of its windows, without the bursts; `None` where it was not made for windows.
    pub recorded: Option<Windows>,
}

/// `PERF_COUNT_SW_CONTEXT_SWITCHES`.
const CONTEXT_SWITCHES: u64 = 3;
/// `PERF_COUNT_SW_CPU_MIGRATIONS`.
const CPU_MIGRATIONS: u64 = 4;

impl WindowPlan {
    /// For a recording; `None` where it was not made for windows and no event's samples read a group.
    pub(crate) fn of(data: &PerfData) -> Option<WindowPlan> {
        let recorded = data.features().windows.as_ref();
        let mut plan = match recorded {
            Some(windows) => WindowPlan {
                source: source_of(windows),
                groups: recorded_groups(data, windows),
                recorded: Some(windows.without_bursts()),
            },
            None => WindowPlan {
                groups: groups_of_attrs(data),
                ..WindowPlan::default()
            },
        };
        for group in &mut plan.groups {
            let counts = |config| {
                let mut events = group
                    .events
                    .iter()
                    .filter_map(|event| data.events().get(*event as usize));
                events.any(|event| {
                    event.attr.kind == event_type::SOFTWARE && event.attr.config == config
                })
            };
            (group.counts_switches, group.counts_migrations) =
                (counts(CONTEXT_SWITCHES), counts(CPU_MIGRATIONS));
        }
        let reads = |group: &PlannedGroup| {
            let leader = group
                .events
                .first()
                .and_then(|leader| data.events().get(*leader as usize));
            leader.is_some_and(|leader| reads_group(&leader.attr))
        };
        // Groups keep their numbers, since bursts name them. A recording made for windows tells of them even where no source
        // could make any.
        (plan.recorded.is_some() || plan.groups.iter().any(reads)).then_some(plan)
    }
}

/// The events that exist for windows only: they are none of the recording's ordinary sampling.
pub(crate) fn of_windows(data: &PerfData) -> Vec<bool> {
    let mut found = vec![false; data.events().len()];
    let windows = data.features().windows.iter();
    for group in windows.flat_map(|windows| &windows.groups) {
        for event in std::iter::once(&group.leader).chain(&group.members) {
            if let Some(found) = found.get_mut(*event as usize) {
                *found = true;
            }
        }
    }
    found
}

/// Whether samples tell the values of all counters of their group.
fn reads_group(attr: &Attr) -> bool {
    attr.samples()
        && attr.sample_type.contains(SampleType::READ)
        && attr
            .read_format
            .contains(ReadFormat::GROUP | ReadFormat::ID)
}

fn source_of(windows: &Windows) -> WindowSource {
    if !windows.bursts.is_empty() {
        return WindowSource::Bursts;
    }
    match windows.schedule {
        Some(schedule) if ["twin", "kernel"].contains(&windows.source.as_str()) => pairs(&schedule),
        _ => WindowSource::Steady,
    }
}

/// From half of the short period to one and a half of it, and as much to either side as it varies.
fn pairs(schedule: &Schedule) -> WindowSource {
    let jitter = match (schedule.short, schedule.jitter) {
        (Length::Time(_), Length::Time(jitter)) | (Length::Count(_), Length::Count(jitter)) => {
            jitter
        }
        _ => 0,
    };
    let short = schedule.short.number();
    let least = (short / 2).saturating_sub(jitter);
    let most = short.saturating_add(short / 2).saturating_add(jitter);
    match schedule.short {
        Length::Time(_) => WindowSource::Pairs {
            least: Length::Time(least),
            most: Length::Time(most),
        },
        Length::Count(_) => WindowSource::Pairs {
            least: Length::Count(least),
            most: Length::Count(most),
        },
    }
}

fn recorded_groups(data: &PerfData, windows: &Windows) -> Vec<PlannedGroup> {
    let known = |event: &&u32| (**event as usize) < data.events().len();
    let groups = windows.groups.iter();
    groups
        .map(|group| {
            let events = std::iter::once(&group.leader).chain(&group.members);
            PlannedGroup {
                events: events.filter(known).copied().collect(),
                drop_last: group.drop_last,
                ..PlannedGroup::default()
            }
        })
        .collect()
}

/// Groups of a recording that does not list them: by its descriptions of groups where it has some, else a leader is an
/// event that samples, and its members the events behind it that do not.
fn groups_of_attrs(data: &PerfData) -> Vec<PlannedGroup> {
    let events = data.events();
    let mut groups: Vec<PlannedGroup> = Vec::new();
    let described = &data.features().group_descriptions;
    if !described.is_empty() {
        for group in described {
            let end = group.leader.saturating_add(group.members);
            let members: Vec<u32> = (group.leader..end.min(events.len() as u32)).collect();
            if members.len() > 1 {
                groups.push(PlannedGroup {
                    events: members,
                    ..PlannedGroup::default()
                });
            }
        }
        return groups;
    }
    for (index, event) in (0_u32..).zip(events) {
        if is_dummy(&event.attr) {
            continue;
        }
        if reads_group(&event.attr) {
            groups.push(PlannedGroup {
                events: vec![index],
                ..PlannedGroup::default()
            });
        } else if !event.attr.samples()
            && let Some(group) = groups.last_mut()
        {
            group.events.push(index);
        }
    }
    groups.retain(|group| group.events.len() > 1);
    groups
}
