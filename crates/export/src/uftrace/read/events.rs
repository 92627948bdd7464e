//! Context switches, beginnings, ends and names of threads.

use super::super::loss::{Losses, UftraceLossKind};
use super::super::perf_events::{EventReader, ThreadChange, ThreadEvent};
use super::{UftraceImportError, entries, open};
use dioptra_tracedata::{JournalEntry, TaskChange, TraceWriter};
use dioptra_tracelayout::{ContextSwitch, SwitchKind};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Imports the events of the threads that are known, by thread id with their processes. Returns the ids of the threads
/// that got names.
pub(super) fn import(
    folder: &Path,
    threads: &BTreeMap<u32, u32>,
    writer: &mut TraceWriter,
    losses: &mut Losses,
) -> Result<BTreeSet<u32>, UftraceImportError> {
    let mut named = BTreeSet::new();
    let mut by_thread: BTreeMap<u32, Vec<(u32, ThreadEvent)>> = BTreeMap::new();
    for (name, path) in entries(folder)? {
        let cpu = name
            .strip_prefix("perf-cpu")
            .and_then(|name| name.strip_suffix(".dat"));
        let Some(cpu) = cpu.and_then(|cpu| cpu.parse::<u32>().ok()) else {
            continue;
        };
        let map = open(&path)?;
        let mut reader = EventReader::new(map.as_deref().unwrap_or_default());
        for event in reader
            .by_ref()
            .filter(|event| threads.contains_key(&event.tid))
        {
            by_thread.entry(event.tid).or_default().push((cpu, event));
        }
        losses.add_many(UftraceLossKind::DamagedBytes, reader.left() as u64);
    }
    for (tid, mut events) in by_thread {
        events.sort_by_key(|(_, event)| event.time);
        let pid = threads.get(&tid).copied().unwrap_or(tid);
        let mut switches = Vec::new();
        for (cpu, event) in events {
            let time = event.time;
            let mut switch = |kind| switches.push(ContextSwitch { time, cpu, kind });
            let change = match event.change {
                ThreadChange::Runs => {
                    switch(SwitchKind::In);
                    continue;
                }
                ThreadChange::Waits => {
                    switch(SwitchKind::Wait);
                    continue;
                }
                ThreadChange::Preempted => {
                    switch(SwitchKind::Preempted);
                    continue;
                }
                ThreadChange::New => TaskChange::New,
                ThreadChange::Ended => TaskChange::Exit,
                ThreadChange::Named(name) => {
                    named.insert(tid);
                    TaskChange::Name(name)
                }
            };
            writer.journal(&JournalEntry::Task {
                time,
                pid,
                tid,
                change,
            })?;
        }
        if !switches.is_empty() {
            writer.switches((pid, tid), &switches)?;
        }
    }
    Ok(named)
}
