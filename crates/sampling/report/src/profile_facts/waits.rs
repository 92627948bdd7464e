//! Facts on the time off the CPU: switches that are no waits, and waits that the recording does not show whole.

use dioptra_profile::OffCpu;
use dioptra_tables::{Facts, Remedy, Severity};
use serde_json::json;

/// Adds facts on an off-CPU event.
pub(super) fn add_waits(facts: &mut Facts, counts: &OffCpu) {
    if counts.preempted > 0 {
        facts.add(
            Severity::Info,
            "preempted",
            format!(
                "off-cpu: {} at which threads could have run on are not counted; those threads stood in line for {:.3} s",
                switches(counts.preempted),
                counts.preempted_ns as f64 / 1e9
            ),
            json!({"switches": counts.preempted, "nanoseconds": counts.preempted_ns}),
        );
    }
    if counts.unended > 0 {
        facts.add(
            Severity::Info,
            "waits_unended",
            format!(
                "off-cpu: {} had not ended when the recording did, and count up to its last switch",
                waits(counts.unended)
            ),
            counts.unended,
        );
    }
    if counts.lost > 0 {
        facts.add(
            Severity::Loss,
            "waits_lost",
            format!(
                "off-cpu: {} without a known end are not counted, since the switch back was not recorded",
                waits(counts.lost)
            ),
            counts.lost,
        );
        facts.propose(Remedy::RecordWithLargerBuffer);
    }
}

fn switches(count: u64) -> String {
    match count {
        1 => "1 switch".to_owned(),
        count => format!("{count} switches"),
    }
}

fn waits(count: u64) -> String {
    match count {
        1 => "1 wait".to_owned(),
        count => format!("{count} waits"),
    }
}
