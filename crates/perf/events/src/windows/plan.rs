//! The events that windows need, the threads or CPUs where they are opened, and the size of their rings.

use super::slot::samples_of_burst;
use super::source::{WindowGroup, WindowsSpec};
use crate::SampleType;
use crate::attach::plan::Plan;
use crate::attach::{Arrangement, list_threads, wanted_cpus};
use crate::cpus::CpuSet;
use crate::errors::{AttachError, OpenError, Refusal};
use crate::event::EventTarget;
use crate::features::Features;
use crate::spec::{EventGroup, Fallbacks, Inherit, SessionSpec, SideBand, Start};
use crate::sys;
use std::fs::File;
use std::os::fd::AsFd;

/// Bytes of a sample without its counts and chain, at most.
const SAMPLE: usize = 120;

/// Bytes of a call chain, as long as kernels make them by default.
const CHAIN: usize = 8 * 140;

/// Plans the events for the windows of `spec`: nothing is inherited, nothing starts by itself.
pub(super) fn plan_of(spec: &WindowsSpec) -> (SessionSpec, Plan) {
    plan_with(spec, spec.groups_with_period(spec.schedule.short.number()))
}

/// The same of groups whose periods are set.
pub(super) fn plan_with(spec: &WindowsSpec, groups: Vec<EventGroup>) -> (SessionSpec, Plan) {
    let session = SessionSpec::new()
        .groups(groups)
        .target(spec.target.clone())
        .cpus(spec.cpus.clone())
        .inherit(Inherit::No)
        .start(Start::Manual)
        .side_band(SideBand::NONE);
    let plan = Plan::new(&session, &Features::get(), Arrangement::PerCore);
    (session, plan)
}

/// Returns the fallbacks for refused events. No clock replaces cycles, because its counts are nanoseconds.
pub(super) fn fallbacks() -> Fallbacks {
    Fallbacks::default().difference(Fallbacks::CPU_CLOCK)
}

/// The plan's groups.
pub(super) fn groups_of(plan: &Plan) -> Vec<WindowGroup> {
    let mut groups: Vec<WindowGroup> = Vec::new();
    for (index, planned) in (0_u32..).zip(&plan.events) {
        match groups.last_mut().filter(|_| planned.leads.is_none()) {
            Some(group) => group.members.push(index),
            None => groups.push(WindowGroup {
                leader: index,
                members: Vec::new(),
                drop_last: planned.counted_by_kernel,
            }),
        }
    }
    groups
}

/// Pages that hold two bursts.
pub(super) fn ring_pages(plan: &Plan, windows: u32) -> usize {
    let members = plan.events.len();
    let chained = plan
        .events
        .iter()
        .any(|event| event.attr.sample_type.contains(SampleType::CALLCHAIN));
    let sample = SAMPLE + 16 * members + if chained { CHAIN } else { 0 };
    let samples = samples_of_burst(windows, true) as usize;
    (2 * sample * samples)
        .div_ceil(sys::page_size())
        .next_power_of_two()
}

/// Where the target's events belong: its threads, or its CPUs.
pub(super) fn places(session: &SessionSpec) -> Result<Vec<EventTarget>, AttachError> {
    if session.target.is_cpu_wide() {
        let cpus = wanted_cpus(session, &CpuSet::online());
        return Ok(cpus.iter().map(EventTarget::Cpu).collect());
    }
    let threads = list_threads(session, sys::thread_id())?;
    Ok(threads
        .into_iter()
        .map(|tid| EventTarget::Thread(tid, None))
        .collect())
}

/// Finds attrs that open at one of the places.
pub(super) fn resolve(
    plan: &mut Plan,
    places: &[EventTarget],
    cgroup: Option<&File>,
) -> Result<(), AttachError> {
    for place in places {
        match plan.resolve(*place, cgroup.map(AsFd::as_fd), fallbacks()) {
            Err(error) if is_gone(&error) => {}
            other => return other.map_err(AttachError::Open),
        }
    }
    Err(AttachError::AllEnded)
}

fn is_gone(error: &OpenError) -> bool {
    error.is_gone() || matches!(error.refusal, Refusal::CpuOffline)
}

/// Whether a thread or CPU just went away.
pub(super) fn is_passing(error: &AttachError) -> bool {
    matches!(error, AttachError::Open(error) if is_gone(error))
}
