//! The plan by which windows are found in a recording: the groups of events, and which stretches are windows.

use crate::section::WindowsSection;
use dioptra_perfdata::PerfData;
use dioptra_perfevents::windows::{Length, Schedule};
use dioptra_perfrecords::names::software;
use dioptra_perfrecords::{Attr, ReadFormat, SampleType, event_type};

/// The kind of samples that bound windows.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum WindowSource {
    /// Bursts that were armed, each of them known.
    Bursts,
    /// Samples at two distances: pairs at the short one are windows.
    Pairs {
        /// The shortest distance between the two samples of a pair.
        least: Length,
        /// The longest distance.
        most: Length,
    },
    /// Steady sampling: all samples bound windows.
    #[default]
    Steady,
}

/// A group of events that are read together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlannedGroup {
    /// Its events, as indices of [`dioptra_profile::Profile::events`], the leader first.
    pub events: Vec<u32>,
    /// The last window of each burst is longer than the others.
    pub drop_last: bool,
    /// Whether it counts context switches: windows with one must be kept then.
    pub counts_switches: bool,
    /// Whether it counts migrations between CPUs.
    pub counts_migrations: bool,
}

/// The plan by which windows are found in a recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WindowPlan {
    /// The samples that bound windows.
    pub source: WindowSource,
    /// The groups.
    pub groups: Vec<PlannedGroup>,
    /// The recording's section, without the bursts; `None` where the recording was not made for windows.
    pub recorded: Option<WindowsSection>,
}

impl WindowPlan {
    /// Plans for a recording with this section. Returns `None` if it was not made for windows and no event's samples read a
    /// group.
    pub(super) fn of(data: &PerfData, section: Option<&WindowsSection>) -> Option<WindowPlan> {
        let mut plan = match section {
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
            (group.counts_switches, group.counts_migrations) = (
                counts(software::CONTEXT_SWITCHES),
                counts(software::CPU_MIGRATIONS),
            );
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

/// Whether samples hold the counts of all events of their group.
fn reads_group(attr: &Attr) -> bool {
    attr.samples()
        && attr.sample_type.contains(SampleType::READ)
        && attr
            .read_format
            .contains(ReadFormat::GROUP | ReadFormat::ID)
}

fn source_of(windows: &WindowsSection) -> WindowSource {
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

fn recorded_groups(data: &PerfData, windows: &WindowsSection) -> Vec<PlannedGroup> {
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

/// Whether an event counts nothing and is there only to carry records of mappings and threads.
fn is_dummy(attr: &Attr) -> bool {
    attr.kind == event_type::SOFTWARE && attr.config == software::DUMMY
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
