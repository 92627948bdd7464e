//! The session that a recording asks for.

use crate::error::RecordError;
use crate::spec::{RecordSpec, RecordTarget};
use dioptra_perfevents::{EventGroup, Inherit, SessionSpec, SideBand, Start, Target};
use dioptra_processes::command::HeldCommand;

/// The number of threads above which a target is sampled only when the events of all its threads are open.
const MANY_THREADS: usize = 16;

/// Returns the session that records `spec`, and counts the groups `counted` over the whole run.
pub(crate) fn session_spec(
    spec: &RecordSpec,
    command: Option<&HeldCommand>,
    counted: &[EventGroup],
) -> Result<SessionSpec, RecordError> {
    let target = match &spec.target {
        RecordTarget::Command => Target::Command(command.ok_or(RecordError::NoCommand)?.pid()),
        RecordTarget::Processes(pids) => Target::Processes(pids.clone()),
        RecordTarget::Threads(tids) => Target::Threads(tids.clone()),
        RecordTarget::Machine(cpus) => Target::Cpus(cpus.clone()),
        RecordTarget::Cgroup { path, cpus } => Target::Cgroup {
            path: path.clone(),
            cpus: cpus.clone(),
        },
    };
    let start = match &spec.target {
        _ if !spec.delay.is_zero() || spec.waits_to_begin => Start::Manual,
        RecordTarget::Command => Start::OnExec,
        // Opening the events of many threads takes long, and longer with each thread that is sampled meanwhile. So
        // all start together, at the cost of one more event for each thread, which reports new threads until then.
        RecordTarget::Processes(pids) if threads_of(pids) > MANY_THREADS => Start::Manual,
        RecordTarget::Threads(tids) if tids.len() > MANY_THREADS => Start::Manual,
        RecordTarget::Processes(_) | RecordTarget::Threads(_) => Start::AtAttach,
        // Otherwise the description of all that runs would be a large part of the recording.
        RecordTarget::Machine(_) | RecordTarget::Cgroup { .. } => Start::Manual,
    };
    let mut groups = spec.groups.clone();
    for event in groups.iter_mut().flat_map(|group| &mut group.events) {
        spec.samples.apply(event);
    }
    groups.extend_from_slice(counted);
    let mut side_band = SideBand::default() | SideBand::KSYMBOL | SideBand::BPF;
    // perf unwinds copied stacks by the tables that a module maps as data, and finds these by such mappings only.
    side_band.set(SideBand::MMAP_DATA, spec.samples.copies_stacks());
    side_band.set(SideBand::SWITCH, spec.switches);
    Ok(SessionSpec::new()
        .groups(groups)
        .target(target)
        .start(start)
        .inherit(if spec.inherit {
            Inherit::ThreadsAndChildren
        } else {
            Inherit::No
        })
        .cpus(if target_has_cpus(&spec.target) {
            None
        } else {
            spec.cpus.clone()
        })
        .ring_pages(spec.ring_pages)
        .side_band(side_band))
}

/// Returns the number of threads of these processes.
fn threads_of(pids: &[u32]) -> usize {
    let count = |pid: &u32| {
        std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, |threads| threads.count())
    };
    pids.iter().map(count).sum()
}

fn target_has_cpus(target: &RecordTarget) -> bool {
    matches!(
        target,
        RecordTarget::Machine(_) | RecordTarget::Cgroup { .. }
    )
}
