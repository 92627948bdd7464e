//! A recording with hostile names, whose counts are known.

use crate::records::{ID, Records, SECOND, USER, attr, event, text, two, word};
use dioptra_perfrecords::SampleType;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A function's name that a careless page would run.
pub const SCRIPT: &str = "<script>alert(1)</script>";
/// A thread's name that is no UTF-8.
const NOT_UTF8: &[u8] = b"\xff<b>&\"";

/// The recording and its process's map of functions.
pub struct Made {
    pub folder: TempDir,
    pub file: PathBuf,
}

/// The addresses of the functions `main`, [`SCRIPT`], `leaf`, and of one with a name of a megabyte.
pub const MAIN: u64 = 0x10000;
pub const EVIL: u64 = 0x10100;
pub const LEAF: u64 = 0x10200;
pub const LONG: u64 = 0x10300;

/// The samples of `cpu-clock` that [`made`] writes: 20 in `leaf`, which the hostile function called 15 times and `main` 5
/// times, 10 in the hostile function, 1 in the long one; then 4 in `leaf` of a second process of the same number.
pub const SAMPLES: u64 = 20 + 10 + 1 + 4;

pub fn made() -> Made {
    let made = Made::empty();
    std::fs::write(&made.file, recording(SAMPLES as usize)).expect("the recording");
    made
}

impl Made {
    fn empty() -> Made {
        let folder = tempfile::tempdir().expect("a folder");
        let maps = folder.path().join("tmp");
        std::fs::create_dir(&maps).expect("a folder");
        let long = "x".repeat(1 << 20);
        let map = format!("10000 100 main\n10100 100 {SCRIPT}\n10200 100 leaf\n10300 100 {long}\n");
        std::fs::write(maps.join("perf-42.map"), map).expect("a map");
        Made {
            file: folder.path().join("perf.data"),
            folder,
        }
    }

    pub fn symfs(&self) -> &Path {
        self.folder.path()
    }
}

/// Adds a record that is no sample. The ids at its end have the CPU, as the events' samples do.
fn add(records: &mut Records, kind: u32, misc: u16, pid: u32, parts: &[Vec<u8>]) {
    records.time += 1;
    let ids = [two(pid, pid), word(records.time), two(0, 0), word(ID)].concat();
    let body = parts.concat();
    records.push(kind, misc, &[&body, &ids]);
}

fn comm(records: &mut Records, pid: u32, tid: u32, is_exec: bool, name: &[u8]) {
    let misc = u16::from(is_exec) << 13;
    let mut name = name.to_vec();
    name.resize((name.len() + 1).next_multiple_of(8), 0);
    add(records, 3, misc, pid, &[two(pid, tid), name]);
}

/// Maps memory without a file, which a map of functions describes.
fn map(records: &mut Records, pid: u32) {
    let range = [word(0x10000), word(0x10000), word(0)].concat();
    let parts = [two(pid, pid), range, text("//anon")];
    add(records, 1, 2, pid, &parts);
}

fn fork(records: &mut Records, child: (u32, u32), parent: (u32, u32)) {
    let pids = [two(child.0, parent.0), two(child.1, parent.1)].concat();
    let time = word(records.time + 1);
    add(records, 7, 0, parent.0, &[pids, time]);
}

fn exit(records: &mut Records, pid: u32) {
    let pids = [two(pid, 1), two(pid, 1)].concat();
    let time = word(records.time + 1);
    add(records, 4, 0, pid, &[pids, time]);
}

/// The recording with so many of its samples.
pub fn recording(samples: usize) -> Vec<u8> {
    let mut records = Records::default();
    comm(&mut records, 42, 42, true, b"program");
    map(&mut records, 42);
    fork(&mut records, (42, 43), (42, 42));
    comm(&mut records, 42, 43, false, NOT_UTF8);
    let mut stacks: Vec<(u32, &[u64])> = Vec::new();
    stacks.extend([(42, &[LEAF, EVIL, MAIN][..]); 15]);
    stacks.extend([(42, &[LEAF, MAIN][..]); 5]);
    stacks.extend([(43, &[EVIL, MAIN][..]); 10]);
    stacks.push((43, &[LONG, EVIL, MAIN]));
    for (number, (tid, stack)) in stacks.iter().enumerate().take(samples) {
        sample(&mut records, (42, *tid), stack, number as u32 % 2);
    }
    if samples > stacks.len() {
        // One fault, and a second process with the number of the first.
        records.sample_on(SECOND, (42, 42), LEAF, 1, 0, &[2, USER, LEAF]);
        exit(&mut records, 42);
        fork(&mut records, (42, 42), (1, 1));
        comm(&mut records, 42, 42, true, b"again");
        map(&mut records, 42);
        for _ in stacks.len()..samples {
            sample(&mut records, (42, 42), &[LEAF], 3);
        }
    }
    let mut faults = attr(SampleType::CALLCHAIN | SampleType::CPU);
    faults.config = 2;
    let clock = attr(SampleType::CALLCHAIN | SampleType::CPU);
    let events = [
        event("cpu-clock", clock, &[ID]),
        event("page-faults", faults, &[SECOND]),
    ];
    records.file(&events)
}

fn sample(records: &mut Records, task: (u32, u32), stack: &[u64], cpu: u32) {
    let mut chain = vec![stack.len() as u64 + 1, USER];
    chain.extend(stack);
    records.sample_on(ID, task, stack[0], 10, cpu, &chain);
}
