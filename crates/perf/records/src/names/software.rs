//! Software events: counted by the kernel itself, on every machine.

#![allow(missing_docs)]

use super::{NamedEvent, event};

pub const CPU_CLOCK: u64 = 0;
pub const TASK_CLOCK: u64 = 1;
pub const PAGE_FAULTS: u64 = 2;
pub const CONTEXT_SWITCHES: u64 = 3;
pub const CPU_MIGRATIONS: u64 = 4;
pub const MINOR_FAULTS: u64 = 5;
pub const MAJOR_FAULTS: u64 = 6;
pub const ALIGNMENT_FAULTS: u64 = 7;
pub const EMULATION_FAULTS: u64 = 8;
pub const DUMMY: u64 = 9;
pub const BPF_OUTPUT: u64 = 10;
pub const CGROUP_SWITCHES: u64 = 11;

/// Every event of this kind, in the order of the kernel's numbers.
pub const EVENTS: &[NamedEvent] = &[
    event(
        CPU_CLOCK,
        &["cpu-clock"],
        "time on a CPU, by a timer of the kernel",
    ),
    event(
        TASK_CLOCK,
        &["task-clock"],
        "time for which the thread runs",
    ),
    event(
        PAGE_FAULTS,
        &["page-faults", "faults"],
        "page faults, minor and major",
    ),
    event(
        CONTEXT_SWITCHES,
        &["context-switches", "cs"],
        "switches to another thread",
    ),
    event(
        CPU_MIGRATIONS,
        &["cpu-migrations", "migrations"],
        "moves to another CPU",
    ),
    event(
        MINOR_FAULTS,
        &["minor-faults"],
        "page faults served from memory",
    ),
    event(
        MAJOR_FAULTS,
        &["major-faults"],
        "page faults that had to wait for a disk",
    ),
    event(
        ALIGNMENT_FAULTS,
        &["alignment-faults"],
        "unaligned accesses that the kernel mends",
    ),
    event(
        EMULATION_FAULTS,
        &["emulation-faults"],
        "instructions that the kernel emulates",
    ),
    event(
        DUMMY,
        &["dummy"],
        "nothing; carries mappings, names and threads",
    ),
    event(BPF_OUTPUT, &["bpf-output"], "output of BPF programs"),
    event(
        CGROUP_SWITCHES,
        &["cgroup-switches"],
        "switches to a thread of another cgroup",
    ),
];

/// Returns the canonical name of a software event.
pub fn name(config: u64) -> Option<&'static str> {
    let event = EVENTS.iter().find(|event| event.config == config)?;
    event.names.first().copied()
}

/// Returns the number of the software event called `name`.
pub fn config(name: &str) -> Option<u64> {
    let event = EVENTS.iter().find(|event| event.names.contains(&name))?;
    Some(event.config)
}
