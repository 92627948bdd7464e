//! From what is to be recorded to what the session is asked for.

use crate::error::RecordError;
use crate::spec::{RecordSpec, RecordTarget};
use dioptra_perfevents::{EventGroup, Inherit, SessionSpec, SideBand, Start, Target};
use dioptra_processes::command::HeldCommand;

/// Targets of more threads than this are sampled only when the events of all are open.
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
        _ if !spec.delay.is_zero() => Start::Manual,
        RecordTarget::Command => Start::OnExec,
        // Opening the events of many threads takes long, and longer with each thread that is sampled meanwhile: all
        // start together, at the cost of one more event for each, which tells of new threads until then.
        RecordTarget::Processes(pids) if threads_of(pids) > MANY_THREADS => Start::Manual,
        RecordTarget::Threads(tids) if tids.len() > MANY_THREADS => Start::Manual,
        RecordTarget::Processes(_) | RecordTarget::Threads(_) => Start::AtAttach,
        // Or the description of all that runs would be a large part of the recording.
        RecordTarget::Machine(_) | RecordTarget::Cgroup { .. } => Start::Manual,
    };
    let mut groups = spec.groups.clone();
    for event in groups.iter_mut().flat_map(|group| &mut group.events) {
        spec.samples.apply(event);
    }
    groups.extend_from_slice(counted);
    let mut side_band = SideBand::default();
    side_band.ksymbol = true;
    side_band.bpf = true;
    // perf unwinds copied stacks by the tables that a module maps as data, and finds them by these mappings only.
    side_band.mmap_data = spec.samples.copies_stacks();
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

/// Threads of these processes.
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
