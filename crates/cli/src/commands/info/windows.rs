//! The section of a recording about its windows, for `dioptra info`.

use dioptra_perfdata::PerfData;
use dioptra_windows::section::{BurstOutcome, WindowsSection};
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Serialize)]
pub struct Windows {
    pub source: String,
    pub findings: Vec<String>,
    /// The reason why a better source could not make the windows.
    pub instead: Option<String>,
    /// The schedule, in the form that `--windows` reads.
    pub schedule: Option<String>,
    /// `[period_long, period_short, period_jitter, batch_count]`.
    pub schedule_numbers: Option<[u64; 4]>,
    pub warm_up: u32,
    pub groups: Vec<Group>,
    pub bursts: u64,
    /// The number of bursts with each outcome.
    pub outcomes: BTreeMap<&'static str, u64>,
    pub windows_expected: u64,
    pub windows_seen: u64,
    pub totals: Vec<Total>,
    pub losses: Vec<Loss>,
}

#[derive(Serialize)]
pub struct Group {
    /// The leader first.
    pub events: Vec<String>,
    pub drop_last: bool,
    pub bursts: u64,
}

#[derive(Serialize)]
pub struct Total {
    pub event: String,
    pub value: u64,
    /// The time in nanoseconds.
    pub enabled: u64,
    pub running: u64,
}

#[derive(Serialize)]
pub struct Loss {
    pub what: String,
    pub count: u64,
}

impl Windows {
    pub fn of(windows: &WindowsSection, recording: &PerfData) -> Windows {
        let name = |event: &u32| match recording.events().get(*event as usize) {
            Some(event) => event.name.clone(),
            None => format!("no event {event}"),
        };
        let mut bursts = vec![0; windows.groups.len()];
        for burst in &windows.bursts {
            if let Some(count) = bursts.get_mut(usize::from(burst.group)) {
                *count += 1;
            }
        }
        let groups = windows.groups.iter().zip(bursts);
        Windows {
            source: windows.source.clone(),
            findings: windows.findings.clone(),
            instead: windows.instead.clone(),
            schedule: windows.schedule.as_ref().map(ToString::to_string),
            schedule_numbers: windows.schedule.as_ref().map(|schedule| schedule.numbers()),
            warm_up: windows.warm_up,
            groups: groups
                .map(|(group, bursts)| Group {
                    events: std::iter::once(&group.leader)
                        .chain(&group.members)
                        .map(name)
                        .collect(),
                    drop_last: group.drop_last,
                    bursts,
                })
                .collect(),
            bursts: windows.bursts.len() as u64,
            outcomes: BurstOutcome::NAMES
                .iter()
                .map(|(outcome, name)| (*name, windows.bursts_with(*outcome)))
                .collect(),
            windows_expected: windows
                .bursts
                .iter()
                .map(|burst| u64::from(burst.expected))
                .sum(),
            windows_seen: windows.windows_seen(),
            totals: windows
                .totals
                .iter()
                .map(|total| Total {
                    event: total.event.clone(),
                    value: total.value,
                    enabled: total.enabled,
                    running: total.running,
                })
                .collect(),
            losses: windows
                .losses
                .iter()
                .map(|loss| Loss {
                    what: loss.what.clone(),
                    count: loss.count,
                })
                .collect(),
        }
    }
}
