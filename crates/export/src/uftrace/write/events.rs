//! The files of context switches, and of beginnings, ends and names of threads.

use super::super::perf_events::{ThreadChange, ThreadEvent};
use super::UftraceExportError;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The largest number of CPUs whose events have files of their own. Those of higher CPUs go to the first one.
const MOST_CPUS: u32 = 4096;

/// The events of all CPUs.
#[derive(Debug, Default)]
pub(super) struct CpuEvents {
    cpus: BTreeMap<u32, Vec<ThreadEvent>>,
}

impl CpuEvents {
    /// Adds an event that happened on a CPU; on the first one if the CPU is not known.
    pub fn add(&mut self, cpu: Option<u32>, event: ThreadEvent) {
        let cpu = cpu.filter(|cpu| *cpu < MOST_CPUS).unwrap_or(0);
        self.cpus.entry(cpu).or_default().push(event);
    }

    /// Returns the number of CPUs that have files, counted from the first.
    pub fn cpu_count(&self) -> u32 {
        self.cpus.keys().next_back().map_or(0, |last| last + 1)
    }

    /// Writes the files. Each CPU up to the last one has one.
    pub fn write(mut self, folder: &Path) -> Result<(), UftraceExportError> {
        for cpu in 0..self.cpu_count() {
            let mut events = self.cpus.remove(&cpu).unwrap_or_default();
            // A thread that gets a CPU at the time at which another one leaves it comes second.
            events.sort_by_key(|event| (event.time, event.change == ThreadChange::Runs));
            let mut bytes = Vec::new();
            for event in &events {
                event.write(&mut bytes);
            }
            let path = folder.join(format!("perf-cpu{cpu}.dat"));
            fs::write(&path, bytes).map_err(|source| UftraceExportError::write(&path, source))?;
        }
        Ok(())
    }
}
