//! Checks that results do not depend on the splitting of samples into batches and threads.

use super::{Splitting, UnwindCounts};
use crate::loading::load::LoadOptions;
use crate::loading::plan::{LoadPlan, SampleFilter};
use crate::profile::Profile;
use crate::stacks::call_stacks::StackNode;
use crate::stacks::frames::Frame;
use dioptra_perfdata::{
    EventToWrite, FeaturesToWrite, PerfData, ReadSummary, WriteOptions, Writer,
};
use dioptra_perfrecords::{Attr, AttrFlags, SampleType, event_type};
use std::io::Cursor;
use std::ops::ControlFlow;

/// A small generator of random numbers, so that every run is the same.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn two(one: u32, other: u32) -> u64 {
    u64::from_ne_bytes(
        [one.to_ne_bytes(), other.to_ne_bytes()]
            .concat()
            .try_into()
            .unwrap(),
    )
}

fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
    let size = u16::try_from(body.len() + 8).unwrap();
    let head = [
        &kind.to_ne_bytes()[..],
        &misc.to_ne_bytes(),
        &size.to_ne_bytes(),
    ];
    [&head.concat(), body].concat()
}

/// Makes a recording. Its processes map this test's own file and the C library again and again at other places, fork,
/// exec and end. Its samples have stacks of addresses within these mappings.
fn recording(seed: u64, compressed: bool) -> PerfData {
    let mut random = Random(seed);
    let attr = Attr {
        kind: event_type::SOFTWARE,
        sample_period: 10,
        sample_type: SampleType::IDENTIFIER
            | SampleType::IP
            | SampleType::TID
            | SampleType::TIME
            | SampleType::CALLCHAIN
            | SampleType::REGS_USER
            | SampleType::STACK_USER,
        sample_regs_user: 1 << 6 | 1 << 7 | 1 << 8,
        flags: AttrFlags::SAMPLE_ID_ALL | AttrFlags::COMM_EXEC | AttrFlags::MMAP2,
        ..Attr::default()
    };
    let events = [EventToWrite {
        attr,
        name: "cpu-clock".into(),
        ids: vec![77],
    }];
    let options = WriteOptions {
        compression: compressed.then_some(1),
    };
    let mut file = Cursor::new(Vec::new());
    let mut writer = Writer::create(&mut file, &events, options).unwrap();
    let executable = std::env::current_exe().unwrap();
    let names = [
        executable.to_str().unwrap(),
        "/lib/x86_64-linux-gnu/libc.so.6",
        "//anon",
    ];
    let mut code = vec![0x5555_0000_0000];
    for time in 1..1500 {
        let pid = 5 + random.below(3) as u32;
        let trailer = words(&[two(pid, pid), time, 77]);
        let what = match random.below(40) {
            0 | 1 => 0,
            2 => 1,
            3 => 2,
            4 => 3,
            5 => 4,
            _ => 5,
        };
        let bytes = match what {
            0 => {
                let start = 0x5555_0000_0000 + (random.below(64) << 20);
                code.push(start);
                let mut body = words(&[two(pid, pid), start, 0x80_0000, random.below(4) << 16]);
                let name = names[random.below(3) as usize];
                let mut name = name.as_bytes().to_vec();
                name.resize((name.len() + 1).next_multiple_of(8), 0);
                body.extend(name);
                record(1, 2, &[body, trailer].concat())
            }
            1 => {
                let parent = 5 + random.below(3) as u32;
                record(
                    7,
                    0,
                    &[words(&[two(pid, parent), two(pid, parent), time]), trailer].concat(),
                )
            }
            2 => record(
                4,
                0,
                &[words(&[two(pid, 1), two(pid, 1), time]), trailer].concat(),
            ),
            3 => {
                let body = [words(&[two(pid, pid)]), b"another\0".to_vec(), trailer].concat();
                record(3, 1 << 13, &body)
            }
            // Code that the kernel made at run time.
            4 => {
                let start = 0xffff_ffff_c000_0000 + (random.below(16) << 12);
                let head = words(&[start]);
                let rest = [0x2000_u32.to_ne_bytes(), [1, 0, 0, 0]].concat();
                record(
                    17,
                    0,
                    &[head, rest, b"bpf_prog".to_vec(), vec![0; 8], trailer].concat(),
                )
            }
            _ => {
                let mut address = || {
                    let start = code[random.below(code.len() as u64) as usize];
                    start + random.below(0x80_0000)
                };
                let (ip, kernel) = (address(), 0xffff_ffff_c000_0000 + (time << 4));
                let stack: Vec<u64> = (0..64)
                    .map(|word| match word % 3 {
                        0 => 0x7fff_0000_0000 + 8 * (word + 2),
                        _ => address(),
                    })
                    .collect();
                let abi = if random.below(8) == 0 { 0 } else { 2 };
                let chain = [3, -128_i64 as u64, kernel, kernel + 0x900];
                let mut body = words(&[77, ip, two(pid, pid), time]);
                body.extend(words(&chain));
                body.extend(words(&[abi]));
                if abi != 0 {
                    let sp = 0x7fff_0000_0000;
                    body.extend(words(&[sp + 8 * random.below(16), sp, ip]));
                }
                body.extend(words(&[512]));
                body.extend(words(&stack));
                body.extend(words(&[512]));
                record(9, 2, &body)
            }
        };
        writer.write(&bytes).unwrap();
    }
    writer.finish(&FeaturesToWrite::default()).unwrap();
    PerfData::from_bytes(file.into_inner()).unwrap()
}

/// The parts of a profile that depend on samples: frames, stacks, events, counts of unwinding, and unmapped samples.
type Result = (Vec<Frame>, Vec<StackNode>, String, UnwindCounts, u64);

fn load(data: &PerfData, splitting: Splitting, filter: SampleFilter) -> Result {
    let plan = LoadPlan {
        options: LoadOptions {
            call_chains: true,
            threads: true,
        },
        filter,
        ..LoadPlan::default()
    };
    result(&Profile::load_split(data, &plan, None, splitting))
}

/// Follows a recording. With `looks` it takes snapshots meanwhile, which may change the numbers of stacks and nothing else.
fn follow(data: &PerfData, looks: bool) -> Result {
    let plan = LoadPlan {
        options: LoadOptions {
            call_chains: true,
            threads: true,
        },
        ..LoadPlan::default()
    };
    Profile::follow(data, &plan, |live| {
        let mut read = 0;
        let summary = data.read(|record| {
            live.record(&record);
            read += 1;
            if looks && read % 301 == 0 {
                live.snapshot(&ReadSummary::default());
            }
            ControlFlow::Continue(())
        });
        result(&live.snapshot(&summary))
    })
}

fn result(profile: &Profile) -> Result {
    let stacks = profile.stacks();
    let nodes = 1..stacks.len() as u32;
    (
        profile.frames().iter().collect(),
        nodes.map(|id| stacks.get(id)).collect(),
        format!("{:?}", profile.events()),
        profile.losses().unwinding,
        profile.losses().unmapped,
    )
}

#[test]
fn threads_and_batches_do_not_show() {
    let serial = Splitting {
        threads: 0,
        samples: 1,
        bytes: 1,
        mappings: 1,
        batches: 1,
    };
    for seed in 1..7 {
        let data = recording(seed, seed % 2 == 0);
        let all = load(&data, serial, SampleFilter::default());
        let (frames, nodes, _, counts, _) = &all;
        assert!(frames.len() > 500 && nodes.len() > 1000, "{}", nodes.len());
        assert!(counts.incomplete() > 100, "{counts:?}");
        assert!(follow(&data, false) == all, "{seed}: followed");
        let looked = follow(&data, true);
        let sizes = |result: &Result| (result.0.len(), result.1.len(), result.3, result.4);
        assert_eq!(sizes(&looked), sizes(&all), "{seed}: looked at");
        let filter = SampleFilter {
            tids: vec![6],
            ..SampleFilter::default()
        };
        let some = load(&data, serial, filter.clone());
        assert_ne!(some, all);
        let mut random = Random(seed);
        for _ in 0..6 {
            let splitting = Splitting {
                threads: random.below(5) as usize,
                samples: 1 + random.below(300) as usize,
                bytes: 1 + random.below(100_000) as usize,
                mappings: 1 + random.below(300) as usize,
                batches: 1 + random.below(9) as usize,
            };
            let split = load(&data, splitting, SampleFilter::default());
            assert!(split == all, "{seed} {splitting:?}");
            assert!(load(&data, splitting, filter.clone()) == some);
        }
    }
}
