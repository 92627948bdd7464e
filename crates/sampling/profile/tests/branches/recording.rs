//! Branch stacks as a CPU would have recorded them, made of an exact trace.

use crate::support::{ID, Records, two, word};
use crate::trace::{Listed, Trace};
use dioptra_perfdata::{EventToWrite, FeaturesToWrite, WriteOptions, Writer};
use dioptra_perfrecords::{Attr, AttrFlags, SampleType, event_type};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// `PERF_SAMPLE_BRANCH_USER | ANY`.
const ANY: u64 = 1 | 1 << 3;
/// `PERF_SAMPLE_BRANCH_TYPE_SAVE`.
const TYPES: u64 = 1 << 16;

/// A taken branch of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The index of its step.
    pub step: usize,
    /// Addresses in the file.
    pub from: u64,
    pub to: u64,
    pub mispredicted: bool,
    /// Cycles since the branch before it.
    pub cycles: u64,
    pub kind: u64,
}

/// All taken branches of a trace. A branch is mispredicted when it does not go where it went last; straight code takes
/// two cycles and another for each instruction.
pub fn taken(trace: &Trace, listing: &BTreeMap<u64, Listed>) -> Vec<Taken> {
    let mut list: Vec<Taken> = Vec::new();
    let mut went: HashMap<u64, u64> = HashMap::new();
    let mut since = 0;
    for (step, pair) in trace.steps.windows(2).enumerate() {
        let (from, to) = (pair[0], pair[1]);
        let listed = &listing[&from];
        since += 1;
        let next = from + listed.length;
        let before = went.insert(from, to);
        // An indirect jump may lead to the next instruction, and is taken all the same.
        if to == next && !["jmp", "call", "ret"].contains(&listed.mnemonic.as_str()) {
            continue;
        }
        list.push(Taken {
            step,
            from,
            to,
            mispredicted: before != Some(to),
            cycles: since + 2,
            kind: kind(listed),
        });
        since = 0;
    }
    list
}

/// `PERF_BR_*`.
fn kind(listed: &Listed) -> u64 {
    let computed = listed.operands.starts_with('*');
    match (listed.mnemonic.as_str(), computed) {
        ("call", false) => 4,
        ("call", true) => 5,
        ("ret", _) => 6,
        ("jmp", false) => 2,
        ("jmp", true) => 3,
        _ => 1,
    }
}

/// The way in which stacks are sampled.
#[derive(Clone, Copy)]
pub struct Sampling {
    pub depth: usize,
    /// The number of taken branches, or cycles, between two samples; with `jitter` only on average.
    pub period: u64,
    pub jitter: bool,
    /// Samples cycles, not branches.
    pub cycles: bool,
    /// Records the type of branches.
    pub types: bool,
}

/// Returns the samples: the number of branches before each, and its period.
pub fn samples(branches: &[Taken], sampling: Sampling) -> Vec<(usize, u64)> {
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut period = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        if sampling.jitter {
            sampling.period / 2 + random % sampling.period
        } else {
            sampling.period
        }
    };
    let mut list = Vec::new();
    let mut next = period();
    let mut left = next;
    for (index, branch) in branches.iter().enumerate() {
        let mut weight = if sampling.cycles { branch.cycles } else { 1 };
        while weight >= left {
            weight -= left;
            // The first stacks are not full yet.
            if index + 1 >= sampling.depth {
                list.push((index + 1, next));
            }
            next = period();
            left = next;
        }
        left -= weight;
    }
    list
}

/// Writes a recording of a trace.
pub fn write(trace: &Trace, branches: &[Taken], sampling: Sampling, to: &Path) {
    let (name, kind, config) = if sampling.cycles {
        ("cycles:u", event_type::HARDWARE, 0)
    } else {
        ("br_inst_retired.near_taken:u", event_type::RAW, 0x20c4)
    };
    let attr = Attr {
        kind,
        config,
        sample_period: sampling.period,
        sample_type: SampleType::IDENTIFIER
            | SampleType::IP
            | SampleType::TID
            | SampleType::TIME
            | SampleType::PERIOD
            | SampleType::BRANCH_STACK,
        branch_sample_type: ANY | if sampling.types { TYPES } else { 0 },
        flags: AttrFlags::SAMPLE_ID_ALL
            | AttrFlags::EXCLUDE_KERNEL
            | AttrFlags::EXCLUDE_HV
            | AttrFlags::MMAP
            | AttrFlags::COMM,
        ..Attr::default()
    };
    let (start, length, offset) = trace.mapping;
    let mut records = Records::default();
    records.comm(trace.pid, trace.pid, false, "branches");
    records.map(
        trace.pid,
        start,
        length,
        offset,
        trace.path.to_str().unwrap(),
    );
    let absolute = |address: u64| address - offset + start;
    for (count, period) in samples(branches, sampling) {
        let stack = &branches[count - sampling.depth..count];
        records.time += 1;
        let newest = stack.last().unwrap();
        let mut body = vec![
            word(ID),
            word(absolute(newest.to)),
            two(trace.pid, trace.pid),
            word(records.time),
            word(period),
            word(stack.len() as u64),
        ];
        for branch in stack.iter().rev() {
            let mut flags = if branch.mispredicted { 1 } else { 2 } | branch.cycles << 4;
            if sampling.types {
                flags |= branch.kind << 20;
            }
            body.push(word(absolute(branch.from)));
            body.push(word(absolute(branch.to)));
            body.push(word(flags));
        }
        records.push(9, 2, &[&body.concat()]);
    }
    let event = EventToWrite {
        attr,
        name: name.to_owned(),
        ids: vec![ID],
    };
    let file = std::fs::File::create(to).unwrap();
    let mut writer = Writer::create(file, &[event], WriteOptions::default()).unwrap();
    for record in &records.list {
        writer.write(record).unwrap();
    }
    let features = FeaturesToWrite {
        arch: Some("x86_64".to_owned()),
        branch_stack: true,
        ..FeaturesToWrite::default()
    };
    writer.finish(&features).unwrap();
}
