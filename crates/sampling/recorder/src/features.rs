//! The features of a recording's file: the facts that it states beside its records.

use crate::machine::Machine;
use crate::modules::ModuleBuildId;
use crate::spec::RecordSpec;
use crate::tracing_data;
use dioptra_perfdata::{BuildId, ClockData, FeaturesToWrite, GroupDescription, PmuMapping};
use dioptra_perfevents::{AttachedEvent, SampleType, event_type};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::time::Duration;

/// CPU modes of build ids, as in a record's header.
const KERNEL: u16 = 1;
const USER: u16 = 2;
/// The process id of modules that belong to the machine.
const NO_PROCESS: i32 = -1;

/// The events' clock and the wall clock at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks {
    wall: u64,
    monotonic: u64,
}

impl Clocks {
    pub fn now() -> Clocks {
        Clocks {
            wall: time_of(ClockId::Realtime),
            monotonic: monotonic_time(),
        }
    }
}

/// Returns the time of the events' clock in nanoseconds.
pub(crate) fn monotonic_time() -> u64 {
    time_of(ClockId::Monotonic)
}

fn time_of(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let seconds = Duration::from_secs(time.tv_sec.unsigned_abs());
    u64::try_from(seconds.as_nanos())
        .unwrap_or(u64::MAX)
        .saturating_add(time.tv_nsec.unsigned_abs())
}

/// Returns the features of a recording of `events`.
pub(crate) fn to_write(
    machine: &Machine,
    spec: &RecordSpec,
    events: &[AttachedEvent],
    build_ids: Vec<ModuleBuildId>,
    clocks: &Clocks,
    tracing_data: Option<Vec<u8>>,
) -> FeaturesToWrite {
    let text = |text: &String| (!text.is_empty()).then(|| text.clone());
    FeaturesToWrite {
        hostname: text(&machine.hostname),
        os_release: text(&machine.os_release),
        version: Some(concat!("dioptra ", env!("CARGO_PKG_VERSION")).to_owned()),
        arch: text(&machine.architecture),
        cpus_online: Some(machine.cpus_online),
        cpus_available: Some(machine.cpus_available),
        cpu_description: machine.cpu_description.clone(),
        cpuid: machine.cpuid.clone(),
        total_memory: machine.total_memory,
        command_line: spec
            .command_line
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect(),
        build_ids: build_ids.into_iter().map(build_id).collect(),
        clockid: Some(1),
        clock_data: Some(ClockData {
            clockid: libc::CLOCK_MONOTONIC.unsigned_abs(),
            wall_clock: clocks.wall,
            clock: clocks.monotonic,
        }),
        group_descriptions: groups(spec, events),
        pmu_mappings: pmus(),
        branch_stack: events
            .iter()
            .any(|event| event.attr.sample_type.contains(SampleType::BRANCH_STACK)),
        tracing_data,
        ..FeaturesToWrite::default()
    }
}

/// Returns descriptions of the recording's tracepoints; `None` where there are no tracepoints.
pub(crate) fn tracing_data(events: &[AttachedEvent]) -> Option<io::Result<Vec<u8>>> {
    let tracepoints = events
        .iter()
        .filter(|event| event.attr.kind == event_type::TRACEPOINT);
    let ids: BTreeSet<u64> = tracepoints.map(|event| event.attr.config).collect();
    (!ids.is_empty()).then(|| tracing_data::describe(&ids))
}

pub(crate) fn build_id(module: ModuleBuildId) -> BuildId {
    BuildId {
        misc: if module.is_kernel { KERNEL } else { USER },
        pid: NO_PROCESS,
        build_id: module.build_id,
        path: module.path,
    }
}

/// Returns the groups of more than one event.
fn groups(spec: &RecordSpec, events: &[AttachedEvent]) -> Vec<GroupDescription> {
    let mut first = 0;
    let mut groups = Vec::new();
    for group in &spec.groups {
        let leader = events.iter().position(|event| event.spec == Some(first));
        if let (Some(leader), 2..) = (leader, group.events.len()) {
            groups.push(GroupDescription {
                name: String::new(),
                leader: u32::try_from(leader).unwrap_or(u32::MAX),
                members: u32::try_from(group.events.len()).unwrap_or(u32::MAX),
            });
        }
        first += group.events.len();
    }
    groups
}

/// Returns the machine's PMUs; none where sysfs can't be read.
fn pmus() -> Vec<PmuMapping> {
    let Ok(folder) = fs::read_dir("/sys/bus/event_source/devices") else {
        return Vec::new();
    };
    let mapping = |entry: io::Result<fs::DirEntry>| {
        let entry = entry.ok()?;
        let kind = fs::read_to_string(entry.path().join("type"))
            .ok()?
            .trim()
            .parse()
            .ok()?;
        Some(PmuMapping {
            kind,
            name: entry.file_name().into_string().ok()?,
        })
    };
    let mut pmus: Vec<PmuMapping> = folder.filter_map(mapping).collect();
    pmus.sort_by_key(|pmu| pmu.kind);
    pmus
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_software_pmu_is_known_to_every_kernel() {
        if fs::exists("/sys/bus/event_source/devices/software").unwrap_or(false) {
            assert!(
                pmus()
                    .iter()
                    .any(|pmu| pmu.kind == 1 && pmu.name == "software")
            );
        }
    }

    #[test]
    fn the_clocks_go_forward() {
        let (first, second) = (Clocks::now(), Clocks::now());
        assert!(first.monotonic > 0 && first.monotonic <= second.monotonic);
        // After 2020.
        assert!(first.wall > 1_577_836_800_000_000_000);
    }
}
