//! A recording with hostile names, whose counts are known.

use crate::records::{ID, Records, SECOND, USER, attr, event, two};
use dioptra_perfrecords::SampleType;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A function's name that a careless page would run.
pub const SCRIPT: &str = "<script>alert(1)</script>";
/// A thread's name that is no UTF-8.
const NOT_UTF8: &[u8] = b"\xff<b>&\"\0\0\0\0\0\0\0\0\0";

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

/// The recording with so many of its samples.
pub fn recording(samples: usize) -> Vec<u8> {
    let mut records = Records::default();
    records.comm(42, 42, true, "program");
    records.map(42, 0x10000, 0x10000, 0, "//anon");
    records.fork((42, 43), (42, 42));
    let trailer = records.trailer(42);
    records.push(3, 0, &[&two(42, 43), NOT_UTF8, &trailer]);
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
        let rest = [1, USER, LEAF];
        records.sample_on(SECOND, (42, 42), LEAF, 1, 0, &[2, rest[1], rest[2]]);
        records.exit(42);
        records.fork((42, 42), (1, 1));
        records.comm(42, 42, true, "again");
        records.map(42, 0x10000, 0x10000, 0, "//anon");
        for _ in stacks.len()..samples {
            sample(&mut records, (42, 42), &[LEAF], 3);
        }
    }
    let events = [
        event(
            "cpu-clock",
            attr(SampleType::CALLCHAIN | SampleType::CPU),
            &[ID],
        ),
        event(
            "page-faults",
            {
                let mut attr = attr(SampleType::CALLCHAIN | SampleType::CPU);
                attr.config = 2;
                attr
            },
            &[SECOND],
        ),
    ];
    records.file(&events)
}

fn sample(records: &mut Records, task: (u32, u32), stack: &[u64], cpu: u32) {
    let mut chain = vec![stack.len() as u64 + 1, USER];
    chain.extend(stack);
    records.sample_on(ID, task, stack[0], 10, cpu, &chain);
}
