//! The cost of bursts for the program, and the rate that it allows.

use super::probe;
use super::refresh::RefreshSource;
use super::schedule::{Length, Schedule};
use super::source::{Burst, WindowListener, WindowSource, WindowsSpec, is_clock};
use crate::SampleType;
use crate::record::RawRecord;
use crate::spec::{EventGroup, Target};
use crate::sys;

/// Windows of the bursts that are measured; longer bursts are so many times as dear.
const MEASURED_WINDOWS: u32 = 4;

/// The greatest length of these windows in nanoseconds: the time between their samples costs nothing.
const MEASURED_SHORT: u64 = 100_000;

/// From one of these bursts to the next, in nanoseconds.
const MEASURED_LONG: u64 = 700_000;

/// The time for which the program computes and faults in a round of the measurement, in nanoseconds.
const ROUND: u64 = 5_000_000;

/// Fresh pages that it touches each time, so that software's events happen; what faults take varies more than what
/// computing takes, so that there are few where a clock leads.
const MANY_PAGES: usize = 64;
const FEW_PAGES: usize = 4;

/// Rounds with bursts, and without.
const ROUNDS: usize = 8;

/// The share of a program's time that is left to bursts whatever ordinary samples take, of what both may take.
const LEAST_FOR_BURSTS: f64 = 0.25;

/// The step in which the time from burst to burst is chosen, in nanoseconds.
const STEP: u64 = 100_000;

/// The time that a burst takes from the program: by its samples, and by the thread that arms it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BurstCost {
    /// Nanoseconds of a burst.
    pub burst: u64,
    /// Nanoseconds of one of its samples, or of an ordinary one, at most.
    pub sample: u64,
}

impl BurstCost {
    /// Returns the cost of a burst of `windows` that takes `burst` nanoseconds.
    pub fn new(burst: u64, windows: u32) -> BurstCost {
        BurstCost {
            burst,
            sample: burst / (u64::from(windows) + 1),
        }
    }

    /// Measures bursts of `groups` by `schedule`, whose samples hold `samples` as well, on the calling thread, which
    /// computes for some 0.1 s meanwhile, and faults. `None` where no bursts can be armed, or do not come while it does.
    pub fn measure(
        groups: &[EventGroup],
        schedule: &Schedule,
        samples: SampleType,
    ) -> Option<BurstCost> {
        let windows = schedule.batch.min(MEASURED_WINDOWS);
        let measured = Schedule {
            long: Length::Time(MEASURED_LONG),
            short: match schedule.short {
                Length::Time(time) => Length::Time(time.min(MEASURED_SHORT)),
                count @ Length::Count(_) => count,
            },
            jitter: Length::Count(0),
            batch: windows,
        };
        let target = Target::Threads(vec![sys::thread_id()]);
        let mut spec = WindowsSpec::new(measured, groups.to_vec(), target);
        spec.inherit = false;
        spec.samples = samples;
        if !probe::refresh(&spec).works {
            return None;
        }
        let mut source = RefreshSource::attach(&spec).ok()?;
        let leaders = groups.iter().filter_map(|group| group.events.first());
        let clocks = leaders.into_iter().all(|leader| is_clock(&leader.attr));
        let pages = if clocks { FEW_PAGES } else { MANY_PAGES };
        let burst = measure_source(&mut source, pages)?;
        let all = u128::from(burst) * (u128::from(schedule.batch) + 1) / u128::from(windows + 1);
        let burst = u64::try_from(all).unwrap_or(u64::MAX);
        Some(BurstCost::new(burst, schedule.batch))
    }

    /// Returns the factor by which the program is slowed, with a burst each `long` nanoseconds and so many ordinary samples a
    /// second; infinite if the program would not get on at all.
    pub fn slowdown(&self, long: u64, samples_a_second: u64) -> f64 {
        let taken = self.burst as f64 / long.max(1) as f64 + self.sampling(samples_a_second);
        if taken < 1.0 {
            1.0 / (1.0 - taken)
        } else {
            f64::INFINITY
        }
    }

    /// The time from burst to burst that slows the program `most` times (more than 1) at most: `usual`, in nanoseconds,
    /// or longer.
    pub fn affordable_long(&self, usual: u64, samples_a_second: u64, most: f64) -> u64 {
        let all = 1.0 - 1.0 / most;
        let for_bursts = (all - self.sampling(samples_a_second)).max(all * LEAST_FOR_BURSTS);
        // A quotient of nanoseconds; too large ones become the largest number.
        let least = (self.burst as f64 / for_bursts).ceil() as u64;
        if least <= usual {
            return usual;
        }
        least.div_ceil(STEP).saturating_mul(STEP)
    }

    /// The ordinary samples a second that take `share` of the program's time at most: `usual`, or fewer, but some.
    pub fn affordable_rate(&self, usual: u64, share: f64) -> u64 {
        let most = (share * 1e9 / self.sample.max(1) as f64) as u64;
        usual.min(most.max(1))
    }

    /// The share of time that ordinary samples take.
    fn sampling(&self, samples_a_second: u64) -> f64 {
        self.sample as f64 * samples_a_second as f64 / 1e9
    }
}

/// Takes in nothing.
struct Nobody;

impl WindowListener for Nobody {
    fn record(&mut self, _bytes: &[u8], _record: &RawRecord<'_>) {}
    fn burst(&mut self, _burst: &Burst) {}
}

/// The CPU time of a round, and its bursts.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    /// The calling thread's CPU time: other programs' turns are no part of it.
    program: u64,
    /// The CPU time of the threads that arm events.
    arming: u64,
    /// Halves of bursts: one that was cut at the end is half of one.
    halves: u64,
    /// The number of times that a burst was due.
    due: u64,
}

impl Round {
    fn of(turns: u64, pages: usize) -> Round {
        let clocks = || {
            let thread = sys::clock_now(libc::CLOCK_THREAD_CPUTIME_ID);
            (thread, sys::clock_now(libc::CLOCK_PROCESS_CPUTIME_ID))
        };
        let (thread, process) = clocks();
        for _ in 0..turns {
            probe::compute_and_fault(pages);
        }
        let (after, all) = clocks();
        let program = after.saturating_sub(thread);
        Round {
            program,
            arming: all.saturating_sub(process).saturating_sub(program),
            ..Round::default()
        }
    }
}

fn measure_source(source: &mut RefreshSource, pages: usize) -> Option<u64> {
    const TRIED: u64 = 16;
    let turns = (ROUND * TRIED).div_ceil(Round::of(TRIED, pages).program.max(1));
    let mut alone = Vec::new();
    let mut with_bursts = Vec::new();
    for _ in 0..ROUNDS {
        alone.push(Round::of(turns, pages).program);
        let before = source.stats();
        source.start().ok()?;
        let round = Round::of(turns, pages);
        source.stop().ok()?;
        source.round(&mut Nobody).ok()?;
        let after = source.stats();
        with_bursts.push(Round {
            halves: 2 * (after.complete - before.complete) + (after.cut - before.cut),
            due: (after.armed - before.armed) + (after.busy - before.busy),
            ..round
        });
    }
    burst_of(&mut alone, &with_bursts)
}

/// Returns the time that a burst takes from the program and for the thread that arms it, by comparing rounds with bursts
/// and without. The arming thread also runs for bursts that are due while others have their turn, which cost the program
/// nothing.
fn burst_of(alone: &mut [u64], with_bursts: &[Round]) -> Option<u64> {
    let alone = median(alone)?;
    let mut costs: Vec<u64> = with_bursts
        .iter()
        .filter(|round| round.halves > 1)
        .map(|round| 2 * round.program.saturating_sub(alone) / round.halves)
        .collect();
    let arming: u64 = with_bursts.iter().map(|round| round.arming).sum();
    let due: u64 = with_bursts.iter().map(|round| round.due).sum();
    Some(median(&mut costs)? + arming / due.max(1))
}

fn median(values: &mut [u64]) -> Option<u64> {
    let middle = values.len() / 2;
    (!values.is_empty()).then(|| *values.select_nth_unstable(middle).1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::software;
    use crate::spec::EventSpec;

    const MS: u64 = 1_000_000;

    #[test]
    fn cheap_bursts_come_as_often_as_usual() {
        // 10 us each ms, and 500 samples of 2 us: 1.1 %.
        let cost = BurstCost::new(10_000, 4);
        assert_eq!(cost.sample, 2000);
        assert_eq!(cost.affordable_long(MS, 500, 1.15), MS);
        assert_eq!(cost.affordable_rate(500, 0.02), 500);
        assert!((cost.slowdown(MS, 500) - 1.0 / 0.989).abs() < 1e-9);
    }

    #[test]
    fn dear_ones_come_as_seldom_as_they_must() {
        for (burst, rate) in [
            (120_000, 500),
            (150_000, 500),
            (150_000, 0),
            (333_333, 300),
            (7 * MS, 20),
        ] {
            let cost = BurstCost::new(burst, 4);
            let long = cost.affordable_long(MS, rate, 1.15);
            assert!(
                long >= MS && (long == MS || long.is_multiple_of(STEP)),
                "{long}"
            );
            assert!(cost.slowdown(long, rate) <= 1.15, "{burst} {rate}: {long}");
            if long > MS {
                // No more seldom than they must.
                assert!(cost.slowdown(long - STEP, rate) > 1.15);
            }
        }
        // 150 us of each ms and 15 ms of 500 samples a second are 16.5 %; 13.04 % may be: 11.54 % for bursts.
        assert_eq!(
            BurstCost::new(150_000, 4).affordable_long(MS, 500, 1.15),
            1_300_000
        );
    }

    #[test]
    fn samples_that_take_all_there_is_leave_a_quarter_to_bursts() {
        let cost = BurstCost::new(150_000, 4);
        let long = cost.affordable_long(MS, 10_000, 1.25);
        // A quarter of a fifth of the time.
        assert!((3 * MS..=3 * MS + STEP).contains(&long), "{long}");
        assert!(cost.slowdown(long, 10_000) > 1.25);
        assert_eq!(cost.slowdown(long, 1_000_000), f64::INFINITY);
        assert_eq!(cost.slowdown(0, 0), f64::INFINITY);
        assert_eq!(cost.affordable_rate(500, 0.02), 500);
        assert_eq!(BurstCost::new(500_000, 4).affordable_rate(500, 0.02), 200);
        assert_eq!(BurstCost::new(u64::MAX, 4).affordable_rate(500, 0.02), 1);
        assert_eq!(BurstCost::new(0, 4).affordable_rate(500, 0.02), 500);
        assert!(BurstCost::new(u64::MAX, 0).affordable_long(MS, 500, 1.15) > MS);
    }

    #[test]
    fn rounds_that_others_disturbed_do_not_matter() {
        let round = |program, halves, arming, due| Round {
            program,
            arming,
            halves,
            due,
        };
        let mut alone = [1000, 1010, 990, 5000, 1005];
        // 50 for each burst, of which one in the second round was cut; another program had its turn in the fourth.
        let with = [
            round(1505, 20, 100, 10),
            round(1480, 19, 100, 10),
            round(9000, 20, 100, 10),
            round(1500, 20, 700, 70),
            round(1005, 0, 0, 0),
        ];
        assert_eq!(burst_of(&mut alone, &with), Some(60));
        let none = [round(1505, 0, 1, 1), round(1505, 1, 1, 1)];
        assert_eq!(burst_of(&mut alone, &none), None);
        assert_eq!(burst_of(&mut [], &with), None);
    }

    #[test]
    fn a_burst_of_a_clock_takes_some_time() {
        let clock = EventSpec::software(software::TASK_CLOCK);
        let schedule = Schedule {
            long: Length::Time(MS),
            short: Length::Time(60_000),
            jitter: Length::Count(0),
            batch: 8,
        };
        match BurstCost::measure(&[clock.into()], &schedule, SampleType::empty()) {
            Some(cost) => assert_eq!(cost, BurstCost::new(cost.burst, 8)),
            None => dioptra_testprograms::skip("clocks cannot be armed here"),
        }
    }
}
