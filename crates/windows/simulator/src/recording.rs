//! A profiler that watches a program in bursts of windows.

use dioptra_windows::estimate::{CountedGroup, WindowBurst, WindowEnd, WindowFlags, Windows};
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp, Poisson};
use rand_pcg::Pcg64Mcg;

use crate::program::Program;
use crate::walk::{Run, choose, gamma, walk};

/// What goes wrong, as probabilities of a window unless said otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Spoiling {
    /// The leader stops while its siblings go on; the burst's later windows are missing.
    pub throttled: f64,
    /// A reading is lost: the window's counts are of two.
    pub lost: f64,
    /// The thread is off the CPU for a while.
    pub switched: f64,
    /// Of a burst: it starts late.
    pub late: f64,
    /// The group counts half of the time.
    pub partly: f64,
}

/// Where in the program bursts begin.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Begin {
    /// Anywhere, each cycle of the program being as probable.
    Anywhere,
    /// This share of them just after a [regular](crate::Event::regular) event, the others anywhere: a timer fired while
    /// the kernel served it.
    AfterEvents(f64),
}

/// How the program is watched.
#[derive(Debug, Clone, PartialEq)]
pub struct Recording {
    /// How many bursts.
    pub bursts: u32,
    /// Windows of a burst.
    pub batch: u16,
    /// The least and the greatest period in cycles; one of these is drawn for each burst.
    pub period: (u64, u64),
    /// The groups, as events of the program; bursts take them in turn. The leader, cycles, stands before each.
    pub groups: Vec<Vec<u32>>,
    /// Where bursts begin.
    pub begin: Begin,
    /// Mean cycles of each window in which an interrupt works, and not the program: the leader is a clock then, which
    /// counts them. 0 for leaders that do not.
    pub interrupt: f64,
    /// Mean cycles from a counter's overflow to the place that is recorded.
    pub skid: f64,
    /// A burst's last window is this many times as long as the others; 1 where it is not.
    pub last: f64,
    /// What goes wrong.
    pub spoiling: Spoiling,
    /// Samples of the ordinary event.
    pub samples: u32,
    /// Cycles of the whole run, without interrupts.
    pub cycles: f64,
}

/// How much interrupts vary in length: standard deviation ÷ mean.
const INTERRUPT_VARIATION: f64 = 0.3;

impl Recording {
    /// Bursts of five windows of 200 to 400 cycles, in which all events of a program are read and nothing goes wrong.
    pub fn new(program: &Program, bursts: u32) -> Self {
        Self {
            bursts,
            batch: 5,
            period: (200, 400),
            groups: vec![(0..program.events.len() as u32).collect()],
            begin: Begin::Anywhere,
            interrupt: 0.0,
            skid: 0.0,
            last: 1.0,
            spoiling: Spoiling::default(),
            samples: 1000,
            cycles: 1e9,
        }
    }
}

/// What the analysis gets. Event 0 is cycles, event 1 the program's first, and so on; functions are by number.
#[derive(Debug)]
pub struct Recorded {
    /// The bursts.
    pub windows: Windows,
    /// Samples of each function.
    pub samples: Vec<u64>,
    /// What plain counters counted of each event, cycles first; interrupts count there.
    pub totals: Vec<f64>,
    /// How often the program was interrupted.
    pub interrupts: u64,
}

impl Recording {
    /// One recording; another seed gives another.
    pub fn run(&self, program: &Program, seed: u64) -> Recorded {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let shares = program.shares();
        self.run_with(program, &shares, &mut random)
    }

    pub(crate) fn run_with(
        &self,
        program: &Program,
        shares: &[f64],
        random: &mut Pcg64Mcg,
    ) -> Recorded {
        let groups = self.groups.iter().map(|events| CountedGroup {
            events: std::iter::once(0)
                .chain(events.iter().map(|e| e + 1))
                .collect(),
            drop_last: self.last != 1.0,
        });
        let mut windows = Windows::new(groups.collect());
        if self.interrupt > 0.0 {
            windows.set_clock(0);
            (1..=program.events.len() as u32).for_each(|event| windows.set_borderless(event));
        }
        for number in 0..self.bursts {
            self.burst(program, shares, number, &mut windows, random);
        }
        let mut samples = vec![0; program.functions.len()];
        for _ in 0..self.samples {
            samples[program.counted_at(choose(shares, random))] += 1;
        }
        let total = |event| {
            let functions = shares.iter().enumerate();
            self.cycles
                * functions
                    .map(|(f, share)| share * program.own_rate(f, event))
                    .sum::<f64>()
        };
        let interrupts =
            u64::from(self.bursts) * (u64::from(self.batch) + 1) + u64::from(self.samples);
        let clock = self.cycles + interrupts as f64 * self.interrupt;
        let totals = std::iter::once(clock).chain((0..program.events.len()).map(total));
        Recorded {
            interrupts,
            windows,
            samples,
            totals: totals.collect(),
        }
    }

    fn burst(
        &self,
        program: &Program,
        shares: &[f64],
        number: u32,
        windows: &mut Windows,
        random: &mut Pcg64Mcg,
    ) {
        let period = random.random_range(self.period.0..=self.period.1);
        let group = number as usize % self.groups.len();
        windows.push_burst(WindowBurst {
            time: u64::from(number) * 1_000_000,
            period,
            group: group as u16,
            ..WindowBurst::default()
        });
        let last = (period as f64 * self.last).round();
        let cycles = period as f64 * f64::from(self.batch - 1) + last;
        let slack = 20.0 * self.skid + 1.0;
        let runs = walk(program, shares, cycles + slack, random);
        let mut places = Places {
            runs: &runs,
            at: 0,
            skid: self.skid,
        };
        let pace = Pace::new(program, random);
        let regular = self.first_events(program, random);
        let late = random.random::<f64>() < self.spoiling.late;
        let mut start = places.at_time(0.0, program, random);
        let mut begin = 0.0;
        for index in 0..self.batch {
            let length = if index + 1 == self.batch {
                last
            } else {
                period as f64
            };
            let time = begin + self.own_time(length, random);
            let end = places.at_time(time, program, random);
            let mut counts = vec![length as u64];
            let means = pace.means(program, &runs, begin..time, random);
            for event in &self.groups[group] {
                let event = *event as usize;
                counts.push(match regular[event] {
                    Some((first, distance)) => {
                        let until = |time: f64| ((time - first) / distance).ceil().max(0.0);
                        (until(time) - until(begin)) as u64
                    }
                    None => count(&program.events[event], means[event], random),
                });
            }
            let mut flags = if late {
                WindowFlags::LATE
            } else {
                WindowFlags::empty()
            };
            flags |= self.spoil(&mut counts, random);
            windows.push_window(index, flags, start, end, &counts);
            if flags.contains(WindowFlags::THROTTLED) {
                break;
            }
            (start, begin) = (end, time);
        }
    }

    /// Of a window's length what is left to the program.
    fn own_time(&self, length: f64, random: &mut Pcg64Mcg) -> f64 {
        if self.interrupt <= 0.0 {
            return length;
        }
        let interrupt = self.interrupt * varied(INTERRUPT_VARIATION, random);
        length - interrupt.min(length)
    }

    /// For each event that is regular: when in a burst the first comes, and the distance between two.
    fn first_events(&self, program: &Program, random: &mut Pcg64Mcg) -> Vec<Option<(f64, f64)>> {
        let events = program.events.iter().enumerate();
        let first = |(event, of): (usize, &crate::Event)| {
            let distance = 1.0 / program.functions[0].rates[event];
            of.regular.then(|| {
                let just_after = match self.begin {
                    Begin::Anywhere => false,
                    Begin::AfterEvents(share) => random.random::<f64>() < share,
                };
                let passed = if just_after { 1.0 } else { random.random() };
                (distance * passed, distance)
            })
        };
        events.map(first).collect()
    }

    /// Makes some windows useless, with counts that would be seen if they were used.
    fn spoil(&self, counts: &mut [u64], random: &mut Pcg64Mcg) -> WindowFlags {
        let mut flags = WindowFlags::empty();
        let mut happens = |probability: f64| random.random::<f64>() < probability;
        if happens(self.spoiling.throttled) {
            flags |= WindowFlags::THROTTLED;
            counts[1..].iter_mut().for_each(|c| *c *= 16);
        }
        if happens(self.spoiling.lost) {
            flags |= WindowFlags::LOST;
            counts.iter_mut().for_each(|c| *c *= 2);
        }
        if happens(self.spoiling.switched) {
            flags |= WindowFlags::SWITCHED;
            counts[1..].iter_mut().for_each(|c| *c = *c * 2 + 50);
        }
        if happens(self.spoiling.partly) {
            flags |= WindowFlags::PARTLY_COUNTED;
            counts[1..].iter_mut().for_each(|c| *c /= 2);
        }
        flags
    }
}

/// Where the thread is seen to be.
struct Places<'r> {
    runs: &'r [Run],
    at: usize,
    skid: f64,
}

impl Places<'_> {
    fn at_time(&mut self, time: f64, program: &Program, random: &mut Pcg64Mcg) -> WindowEnd {
        let skid = Exp::new(1.0 / self.skid).map_or(0.0, |skid| skid.sample(random));
        let time = time
            + if self.skid > 0.0 {
                skid.min(20.0 * self.skid)
            } else {
                0.0
            };
        // A later overflow may be seen earlier in the program than the one before: start over.
        if self.runs[self.at].start > time {
            self.at = 0;
        }
        while self.at + 1 < self.runs.len() && self.runs[self.at].end <= time {
            self.at += 1;
        }
        let run = self.runs[self.at];
        let function = program.counted_at(run.function) as u32;
        let sites = program.functions[run.function].call_sites;
        WindowEnd {
            function: Some(function),
            path: (sites > 0).then(|| function * 1000 + run.site),
        }
    }
}

/// How fast each function does what in one burst, beside its mean.
struct Pace(Vec<Vec<f64>>);

impl Pace {
    fn new(program: &Program, random: &mut Pcg64Mcg) -> Self {
        let mut of_function = || {
            let events = program.events.iter();
            events.map(|event| varied(event.between, random)).collect()
        };
        Self(
            (0..program.functions.len())
                .map(|_| of_function())
                .collect(),
        )
    }

    /// The expected count of each event in a stretch of time.
    fn means(
        &self,
        program: &Program,
        runs: &[Run],
        time: std::ops::Range<f64>,
        random: &mut Pcg64Mcg,
    ) -> Vec<f64> {
        let mut means = vec![0.0; program.events.len()];
        let within: Vec<f64> = program
            .events
            .iter()
            .map(|e| varied(e.within, random))
            .collect();
        for run in runs
            .iter()
            .filter(|r| r.start < time.end && time.start < r.end)
        {
            let f = &program.functions[run.function];
            let cycles = (run.end.min(time.end) - run.body.max(time.start)).max(0.0);
            // An entry's events are there when it is over.
            let entered = time.start <= run.body && run.body < time.end;
            for (event, mean) in means.iter_mut().enumerate() {
                let pace = self.0[run.function][event] * within[event];
                *mean += f.rates[event] * cycles * pace;
                if entered {
                    *mean += f.entry_events[event];
                }
            }
        }
        let last = runs.iter().rfind(|r| r.start < time.end);
        for (event, mean) in means.iter_mut().enumerate() {
            *mean += last.map_or(0.0, |run| program.functions[run.function].borders[event]);
        }
        means
    }
}

/// A factor of mean 1.
fn varied(variation: f64, random: &mut Pcg64Mcg) -> f64 {
    if variation > 0.0 {
        gamma(1.0, 1.0 / (variation * variation), random)
    } else {
        1.0
    }
}

fn count(event: &crate::Event, mean: f64, random: &mut Pcg64Mcg) -> u64 {
    let mean = mean + event.border;
    if mean <= 0.0 {
        return 0;
    }
    if event.rare {
        return Poisson::new(mean).map_or(0.0, |p| p.sample(random)) as u64;
    }
    // Up or down at random, so that the mean stays.
    let whole = mean.floor();
    whole as u64 + u64::from(random.random::<f64>() < mean - whole)
}
