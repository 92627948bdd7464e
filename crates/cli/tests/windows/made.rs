//! A recording of windows made from known rates: three functions of the program `shares`, two threads.

use dioptra_perfdata::{EventToWrite, Feature, FeaturesToWrite, WriteOptions, Writer};
use dioptra_perfevents::windows::{Length, Schedule};
use dioptra_perfevents::{Attr, AttrFlags, ReadFormat, SampleType, event_type};
use dioptra_testprograms::{self as programs, Skip};
use dioptra_windows::section::{
    Burst, BurstOutcome, EventTotal, WindowGroup, WindowLoss, WindowsSection,
};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// The known properties of a made recording.
pub struct Truth {
    pub seed: u64,
    /// Instructions per cycle of each function.
    pub ipc: [f64; 3],
    /// The additional work that `thirty` does per cycle in the longest windows, compared with the shortest: 1.0 doubles
    /// it.
    pub bend: f64,
    /// The number of instructions that each window's borders add.
    pub border: i64,
    /// Whether the section of windows is there.
    pub section: bool,
    /// Whether the samples of windows are there.
    pub groups: bool,
    /// The probability that a function still runs after a window, by function.
    pub stays: [f64; 3],
    /// Whether every other sample of windows, and of the ranking, lies in the kernel.
    pub kernel: bool,
    /// Whether windows count user code alone, while `sixty` has the kernel work for it as long again.
    pub user_only: bool,
    /// The reason why a better source did not make the windows.
    pub instead: Option<String>,
}

impl Default for Truth {
    fn default() -> Self {
        Truth {
            seed: 1,
            ipc: [2.0, 1.0, 1.5],
            bend: 0.0,
            border: 0,
            section: true,
            groups: true,
            stays: STAYS,
            kernel: false,
            user_only: false,
            instead: None,
        }
    }
}

/// The known counts of a function, which its windows must show.
#[derive(Default)]
pub struct Function {
    pub name: &'static str,
    pub share: f64,
    pub ipc: f64,
    /// The number of ordinary samples.
    pub samples: u64,
    /// The number of windows that end in the function.
    pub windows: u64,
    /// The number of windows that were made to be kept; the counts below are of these windows.
    pub kept: u64,
    pub cycles: u64,
    pub instructions: u64,
    pub misses: u64,
    /// The number of windows that begin in another function.
    pub crossing: u64,
}

/// A recording in a folder of its own.
pub struct Made {
    _folder: TempDir,
    pub file: PathBuf,
    pub functions: [Function; 3],
    pub bursts: u64,
    /// The number of windows in bursts that began late.
    pub late: u64,
    /// The number of windows that are their burst's last.
    pub last: u64,
}

const NAMES: [&str; 3] = ["sixty", "thirty", "ten"];
const SHARES: [f64; 3] = [0.6, 0.3, 0.1];
/// The probability that a function still runs after a window, by function.
pub const STAYS: [f64; 3] = [0.95, 0.9, 0.3];
/// The mark of a chain's part in user mode.
const USER: u64 = -512_i64 as u64;
/// The mark of a chain's part in the kernel.
const KERNEL: u64 = -128_i64 as u64;
/// An address of the kernel.
const IN_KERNEL: u64 = 0xffff_ffff_8100_0010;
/// Misses in a thousand instructions, by function.
const MISSES: [f64; 3] = [5.0, 20.0, 10.0];
const BURSTS: u64 = 3000;
const WINDOWS: u64 = 4;
/// The address at which the program is mapped.
const BASE: u64 = 0x1000_0000;
const TIDS: [u32; 2] = [101, 102];
const CLOCK: u64 = 9;
/// The ids of cycles, instructions and misses, by thread.
const IDS: [[u64; 3]; 2] = [[1, 2, 3], [4, 5, 6]];

/// Numbers that look random, the same each time (xorshift).
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a function by chance, according to the shares.
    fn function(&mut self) -> usize {
        let at = self.next();
        if at < SHARES[0] {
            0
        } else {
            1 + usize::from(at >= SHARES[0] + SHARES[1])
        }
    }

    /// Returns an address in a function.
    fn address(&mut self, places: &[u64; 4], function: usize) -> u64 {
        BASE + places[function] + 4 + (8.0 * self.next()) as u64
    }

    /// Returns a Poisson number with this mean.
    fn poisson(&mut self, mean: f64) -> u64 {
        let least = (-mean).exp();
        let mut product = self.next();
        let mut count = 0;
        while product > least {
            product *= self.next();
            count += 1;
        }
        count
    }
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn two(one: u32, other: u32) -> u64 {
    u64::from(one) | u64::from(other) << 32
}

fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
    let mut record = kind.to_ne_bytes().to_vec();
    record.extend(misc.to_ne_bytes());
    record.extend(
        u16::try_from(body.len() + 8)
            .expect("a record")
            .to_ne_bytes(),
    );
    record.extend(body);
    record
}

/// The fields with which samples of both kinds begin; other records end in these fields without IP.
const FIELDS: SampleType = SampleType::IDENTIFIER
    .union(SampleType::IP)
    .union(SampleType::TID)
    .union(SampleType::TIME);

fn events(user_only: bool) -> Vec<EventToWrite> {
    let attr = |kind, config, period, more| Attr {
        kind,
        config,
        sample_period: period,
        sample_type: FIELDS | more,
        read_format: ReadFormat::GROUP
            | ReadFormat::ID
            | ReadFormat::TOTAL_TIME_ENABLED
            | ReadFormat::TOTAL_TIME_RUNNING,
        flags: AttrFlags::SAMPLE_ID_ALL,
        ..Attr::default()
    };
    let group = SampleType::READ | SampleType::CALLCHAIN;
    let of_group = |name: &str, config, place: usize| {
        let mut event = EventToWrite {
            attr: attr(
                event_type::HARDWARE,
                config,
                if place == 0 { 300 } else { 0 },
                group,
            ),
            name: name.into(),
            ids: IDS.iter().map(|ids| ids[place]).collect(),
        };
        event.attr.flags.set(AttrFlags::EXCLUDE_KERNEL, user_only);
        event
    };
    vec![
        EventToWrite {
            attr: attr(event_type::SOFTWARE, 0, 1_000_000, SampleType::CALLCHAIN),
            name: "cpu-clock".into(),
            ids: vec![CLOCK],
        },
        of_group("cycles", 0, 0),
        of_group("instructions", 1, 1),
        of_group("branch-misses", 5, 2),
    ]
}

/// Returns the offsets in the file of the three functions and of their caller.
fn places(program: &Path) -> Result<[u64; 4], Skip> {
    programs::need_tool("nm")?;
    let output = Command::new("nm").arg(program).output().expect("nm runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let place = |name: &str| {
        let line = text
            .lines()
            .find(|line| line.ends_with(&format!(" {name}")));
        let address = line
            .and_then(|line| line.split(' ').next())
            .expect("a symbol");
        // The addresses of such a program's code equal the offsets.
        u64::from_str_radix(address, 16).expect("an address")
    };
    Ok([
        place("sixty"),
        place("thirty"),
        place("ten"),
        place("rounds"),
    ])
}

impl Made {
    pub fn new(truth: &Truth) -> Result<Made, Skip> {
        let program = programs::c("shares", &["-fPIE", "-pie"])?;
        let places = places(&program)?;
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("perf.data");
        let mut made = Made {
            _folder: folder,
            file,
            functions: Default::default(),
            bursts: BURSTS,
            late: 0,
            last: 0,
        };
        for (index, function) in made.functions.iter_mut().enumerate() {
            function.name = NAMES[index];
            function.share = SHARES[index];
            function.ipc = truth.ipc[index];
        }
        made.write(truth, &program, places);
        Ok(made)
    }

    fn write(&mut self, truth: &Truth, program: &Path, places: [u64; 4]) {
        let out = File::create(&self.file).expect("a file");
        let mut writer = Writer::create(out, &events(truth.user_only), WriteOptions::default())
            .expect("a writer");
        let mut write = |record: Vec<u8>| writer.write(&record).expect("a record");
        let mut name = program.to_str().expect("a path").as_bytes().to_vec();
        name.resize((name.len() + 1).next_multiple_of(8), 0);
        let mut map = words(&[two(100, 100), BASE, 1 << 20, 0]);
        map.extend(name);
        map.extend(words(&[two(100, 100), 1, CLOCK]));
        write(record(1, 2, &map));
        let mut random =
            Random(0x9e37_79b9_7f4a_7c15 ^ truth.seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let mut threads = [Thread::default(), Thread::default()];
        let mut bursts = Vec::new();
        for number in 0..BURSTS {
            let thread = (number % 2) as usize;
            let armed = 1_000_000_000 + 1_000_000 * number;
            let mut function = random.function();
            self.functions[function].samples += 1;
            let ip = random.address(&places, function);
            let (mode, own, chain) =
                stack(truth.kernel && number % 2 == 1, ip, BASE + places[3] + 8);
            let head = words(&[CLOCK, own, two(100, TIDS[thread]), armed]);
            write(record(9, mode, &[head, chain].concat()));
            if truth.user_only && function == 0 {
                let (mode, own, chain) = stack(true, ip, BASE + places[3] + 8);
                let head = words(&[CLOCK, own, two(100, TIDS[thread]), armed + 1]);
                write(record(9, mode, &[head, chain].concat()));
            }
            let period = 200 + (200.0 * random.next()) as u64;
            let late = number % 50 == 7;
            // The windows of a burst share this factor.
            let own = 0.8 + 0.4 * random.next();
            for index in 0..=WINDOWS {
                let start = function;
                if index > 0 {
                    if random.next() > truth.stays[function] {
                        function = (function + 1 + usize::from(random.next() < 0.5)) % 3;
                    }
                    let bend = match function {
                        1 => 1.0 + truth.bend * (period as f64 - 200.0) / 200.0,
                        _ => 1.0,
                    };
                    let ipc = truth.ipc[function] * own * bend;
                    let instructions = (ipc * period as f64) as i64 + truth.border;
                    let instructions =
                        u64::try_from(instructions).expect("more than the borders take");
                    let misses = random.poisson(instructions as f64 * MISSES[function] / 1000.0);
                    let counts = [period, instructions, misses];
                    threads[thread].add(counts);
                    let is_last = index == WINDOWS;
                    self.late += u64::from(late);
                    self.last += u64::from(!late && is_last);
                    let of = &mut self.functions[function];
                    of.windows += 1;
                    if !late && !is_last {
                        of.take(start == function, counts);
                    }
                }
                if truth.groups {
                    let time = armed + 20_000 + 100 * index;
                    let ip = random.address(&places, function);
                    let in_kernel = truth.kernel && index % 2 == 1;
                    let stack = stack(in_kernel, ip, BASE + places[3] + 8);
                    write(threads[thread].sample(thread, time, stack));
                }
            }
            bursts.push(Burst {
                tid: Some(TIDS[thread]),
                armed: armed + 10_000,
                ended: armed + 20_500,
                period,
                expected: WINDOWS as u16,
                seen: WINDOWS as u16,
                outcome: if late {
                    BurstOutcome::COMPLETE | BurstOutcome::LATE
                } else {
                    BurstOutcome::COMPLETE
                },
                ..Burst::default()
            });
        }
        let features = FeaturesToWrite {
            sections: truth
                .section
                .then(|| (Feature::WINDOWS, section(truth, bursts).encode()))
                .into_iter()
                .collect(),
            ..FeaturesToWrite::default()
        };
        writer.finish(&features).expect("an end");
    }
}

/// Returns the mode of a sample, its address and its chain, in the kernel or not. `ip` is the user's.
fn stack(in_kernel: bool, ip: u64, caller: u64) -> (u16, u64, Vec<u8>) {
    match in_kernel {
        true => (
            1,
            IN_KERNEL,
            words(&[5, KERNEL, IN_KERNEL, USER, ip, caller]),
        ),
        false => (2, ip, words(&[3, USER, ip, caller])),
    }
}

/// A thread's counters.
#[derive(Default)]
struct Thread {
    values: [u64; 3],
    enabled: u64,
}

impl Thread {
    fn add(&mut self, counts: [u64; 3]) {
        for (value, count) in self.values.iter_mut().zip(counts) {
            *value += count;
        }
        self.enabled += 100;
    }

    fn sample(&self, thread: usize, time: u64, (mode, ip, chain): (u16, u64, Vec<u8>)) -> Vec<u8> {
        let ids = IDS[thread];
        let mut body = words(&[ids[0], ip, two(100, TIDS[thread]), time]);
        body.extend(words(&[3, self.enabled, self.enabled]));
        for (value, id) in self.values.iter().zip(ids) {
            body.extend(words(&[*value, id]));
        }
        body.extend(chain);
        record(9, mode, &body)
    }
}

impl Function {
    fn take(&mut self, stayed: bool, [cycles, instructions, misses]: [u64; 3]) {
        if stayed {
            self.kept += 1;
            self.cycles += cycles;
            self.instructions += instructions;
            self.misses += misses;
        } else {
            self.crossing += 1;
        }
    }
}

fn section(truth: &Truth, bursts: Vec<Burst>) -> WindowsSection {
    let cycles = 10_000_000_000_u64;
    let rate = |of: fn(f64, f64) -> f64| -> f64 {
        let functions = SHARES.iter().zip(truth.ipc).zip(MISSES);
        functions
            .map(|((share, ipc), misses)| share * of(ipc, misses))
            .sum()
    };
    let total = |event: &str, per_cycle: f64| EventTotal {
        event: event.into(),
        value: (cycles as f64 * per_cycle) as u64,
        enabled: 3_000_000_000,
        running: 3_000_000_000,
    };
    let mut windows = WindowsSection::default();
    windows.source = "refresh".into();
    windows.findings = vec!["probe: as it was made".into()];
    windows.instead = truth.instead.clone();
    windows.schedule = Some(Schedule {
        long: Length::Time(1_000_000),
        short: Length::Count(300),
        jitter: Length::Count(100),
        batch: WINDOWS as u32,
    });
    windows.groups = vec![WindowGroup {
        leader: 1,
        members: vec![2, 3],
        drop_last: true,
    }];
    windows.totals = vec![
        total("cycles", 1.0),
        total("instructions", rate(|ipc, _| ipc)),
        total("branch-misses", rate(|ipc, misses| ipc * misses / 1000.0)),
    ];
    windows.span = Some((1_000_000_000, 1_000_000_000 + 1_000_000 * BURSTS));
    windows.losses = vec![WindowLoss {
        what: "threads without windows".into(),
        count: 2,
    }];
    windows.bursts = bursts;
    windows
}
