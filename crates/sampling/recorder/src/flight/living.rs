//! Records about threads and mappings without those of processes that have ended.

use dioptra_perfevents::record::{CpuMode, Misc, RawRecord, Record, RecordLayout, RecordType};
use std::collections::HashMap;

/// Bytes of a record's header.
const HEADER: usize = 8;

/// A process between its first record and its end.
#[derive(Default)]
struct Process {
    /// The places of its records among all.
    records: Vec<usize>,
    /// Whether its last thread has ended.
    has_ended: bool,
    /// The processes, by index, that have its mappings since they were forked off.
    heirs: Vec<usize>,
    /// Whether it has executed a program, so that it has no mappings of its parent.
    has_executed: bool,
}

/// Returns the records without those of processes that have ended, unless a process that was forked off and lives still has their
/// mappings. The order stays.
pub(super) fn without_ended(bytes: &[u8], layout: &RecordLayout) -> Vec<u8> {
    let mut records: Vec<&[u8]> = Vec::new();
    let mut processes: Vec<Process> = Vec::new();
    // By number: the process that has it now.
    let mut now: HashMap<u32, usize> = HashMap::new();
    let mut rest = bytes;
    while let Some((record, behind)) = split(rest) {
        rest = behind;
        let place = records.len();
        records.push(record);
        let raw = RawRecord {
            kind: RecordType(u32::from_ne_bytes([
                record[0], record[1], record[2], record[3],
            ])),
            misc: Misc(u16::from_ne_bytes([record[4], record[5]])),
            body: &record[HEADER..],
        };
        let mut of = |pid: u32, processes: &mut Vec<Process>| {
            *now.entry(pid).or_insert_with(|| {
                processes.push(Process::default());
                processes.len() - 1
            })
        };
        match layout.parse(&raw) {
            Ok(Record::Mmap(mmap, _)) if is_user(&raw) => {
                let process = of(mmap.pid, &mut processes);
                processes[process].records.push(place);
            }
            Ok(Record::Comm(comm, _)) => {
                let process = of(comm.pid, &mut processes);
                processes[process].records.push(place);
                processes[process].has_executed |= comm.exec;
            }
            Ok(Record::Fork(fork, _)) => {
                if fork.pid != fork.parent_pid {
                    let parent = of(fork.parent_pid, &mut processes);
                    // The number belongs to a new process.
                    processes.push(Process::default());
                    let child = processes.len() - 1;
                    processes[parent].heirs.push(child);
                    now.insert(fork.pid, child);
                    processes[child].records.push(place);
                } else {
                    let process = of(fork.pid, &mut processes);
                    processes[process].records.push(place);
                }
            }
            Ok(Record::Exit(exit, _)) => {
                let process = of(exit.pid, &mut processes);
                processes[process].records.push(place);
                processes[process].has_ended |= exit.pid == exit.tid;
            }
            _ => {}
        }
    }
    let mut needed = vec![true; processes.len()];
    let mut dropped = vec![false; records.len()];
    // Children come behind their parents.
    for (index, process) in processes.iter().enumerate().rev() {
        let has_mappings = |heir: &usize| needed[*heir] && !processes[*heir].has_executed;
        needed[index] = !process.has_ended || process.heirs.iter().any(has_mappings);
        if !needed[index] {
            for place in &process.records {
                dropped[*place] = true;
            }
        }
    }
    let kept = records
        .iter()
        .zip(&dropped)
        .filter(|(_, dropped)| !**dropped);
    kept.flat_map(|(record, _)| record.iter().copied())
        .collect()
}

fn is_user(raw: &RawRecord<'_>) -> bool {
    raw.misc.cpu_mode() != CpuMode::Kernel
}

/// Splits the first record off; `None` at the end.
fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let size = bytes.get(6..HEADER)?;
    let size = usize::from(u16::from_ne_bytes([size[0], size[1]]));
    (size >= HEADER && size <= bytes.len()).then(|| bytes.split_at(size))
}

#[cfg(test)]
mod tests {
    use super::*;
    use dioptra_perfevents::{Attr, AttrFlags, ByteOrder, SampleType};

    /// `PERF_RECORD_MISC_COMM_EXEC` and `PERF_RECORD_MISC_USER`.
    const EXEC: u16 = 1 << 13;
    const USER: u16 = 2;

    fn record(kind: RecordType, misc: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = kind.0.to_ne_bytes().to_vec();
        bytes.extend(misc.to_ne_bytes());
        bytes.extend(((HEADER + body.len()) as u16).to_ne_bytes());
        bytes.extend(body);
        bytes
    }

    fn task(kind: RecordType, pid: u32, parent: u32, tid: u32) -> Vec<u8> {
        let mut body: Vec<u8> = [pid, parent, tid, parent]
            .iter()
            .flat_map(|number| number.to_ne_bytes())
            .collect();
        body.extend(1_u64.to_ne_bytes());
        record(kind, 0, &body)
    }

    fn mapping(pid: u32, misc: u16) -> Vec<u8> {
        let mut body = pid.to_ne_bytes().to_vec();
        body.extend(pid.to_ne_bytes());
        body.extend(
            [0x1000_u64, 0x1000, 0]
                .iter()
                .flat_map(|word| word.to_ne_bytes()),
        );
        body.extend(b"/bin/x\0\0");
        record(RecordType::MMAP, misc, &body)
    }

    fn comm(pid: u32, misc: u16) -> Vec<u8> {
        let mut body = pid.to_ne_bytes().to_vec();
        body.extend(pid.to_ne_bytes());
        body.extend(b"name\0\0\0\0");
        record(RecordType::COMM, misc, &body)
    }

    fn living(records: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let attr = Attr {
            sample_type: SampleType::IP,
            flags: AttrFlags::COMM_EXEC,
            ..Attr::default()
        };
        let layout = RecordLayout::new(&attr, ByteOrder::NATIVE);
        let left = without_ended(&records.concat(), &layout);
        let mut rest = &left[..];
        let mut list = Vec::new();
        while let Some((record, behind)) = split(rest) {
            list.push(record.to_vec());
            rest = behind;
        }
        assert!(rest.is_empty());
        list
    }

    #[test]
    fn ended_processes_go_and_the_kernel_stays() {
        let kernel = mapping(u32::MAX, 1);
        let lives = [mapping(9, USER), task(RecordType::EXIT, 9, 1, 10)];
        let ended = [
            task(RecordType::FORK, 8, 9, 8),
            comm(8, EXEC),
            mapping(8, USER),
            task(RecordType::EXIT, 8, 9, 8),
        ];
        let all = [&[kernel.clone()][..], &lives, &ended].concat();
        assert_eq!(living(&all), [&[kernel][..], &lives].concat());
    }

    #[test]
    fn mappings_stay_while_a_child_has_them() {
        let parent = [mapping(8, USER), task(RecordType::EXIT, 8, 1, 8)];
        let child = [task(RecordType::FORK, 9, 8, 9)];
        let all = [&parent[..1], &child, &parent[1..]].concat();
        assert_eq!(living(&all), all);
        // A child that executes a program has mappings of its own.
        let all = [&all[..], &[comm(9, EXEC)]].concat();
        assert_eq!(living(&all), [&child[..], &[comm(9, EXEC)]].concat());
    }

    #[test]
    fn a_number_that_is_used_again_belongs_to_another_process() {
        let first = [mapping(8, USER), task(RecordType::EXIT, 8, 1, 8)];
        let second = [task(RecordType::FORK, 8, 1, 8), mapping(8, USER)];
        let all = [&first[..], &second].concat();
        assert_eq!(living(&all), second);
    }
}
