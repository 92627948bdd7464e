//! Random numbers, good enough to keep windows out of step with a program.

use super::{Length, Schedule};

/// A generator of random numbers (splitmix64, public domain).
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    /// A generator that another seed makes another one.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number from `least` to `most`, both included.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        let span = u128::from(most.saturating_sub(least)) + 1;
        let scaled = (u128::from(self.next()) * span) >> 64;
        least + u64::try_from(scaled).unwrap_or(0)
    }

    /// The time of a burst's successor after it, in nanoseconds.
    pub fn long(&mut self, schedule: &Schedule) -> u64 {
        self.drawn(schedule, schedule.long)
    }

    /// The windows' length in a burst, in the unit of `schedule.short`.
    pub fn short(&mut self, schedule: &Schedule) -> u64 {
        self.drawn(schedule, schedule.short)
    }

    fn drawn(&mut self, schedule: &Schedule, length: Length) -> u64 {
        let number = length.number();
        let jitter = schedule.jitter_of(length).min(number - number.min(1));
        self.between(number - jitter, number.saturating_add(jitter))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extremes(schedule: &Schedule, draw: fn(&mut Random, &Schedule) -> u64) -> (u64, u64, u64) {
        let mut random = Random::new(7);
        let drawn: Vec<u64> = (0..10_000).map(|_| draw(&mut random, schedule)).collect();
        let mean = drawn.iter().sum::<u64>() / 10_000;
        (
            *drawn.iter().min().unwrap(),
            mean,
            *drawn.iter().max().unwrap(),
        )
    }

    #[test]
    fn lengths_are_drawn_evenly_around_what_was_asked() {
        let mut schedule = Schedule {
            long: Length::Time(1_000_000),
            short: Length::Count(300),
            jitter: Length::Count(100),
            batch: 4,
        };
        let (least, mean, most) = extremes(&schedule, Random::short);
        assert_eq!((least, most), (200, 400));
        assert!((297..=303).contains(&mean), "{mean}");
        // A length of another unit varies by the same share.
        let (least, mean, most) = extremes(&schedule, Random::long);
        assert!((666_666..668_000).contains(&least), "{least}");
        assert!(most <= 1_333_334 && most > 1_332_000, "{most}");
        assert!((995_000..1_005_000).contains(&mean), "{mean}");
        schedule.jitter = Length::Time(2_000);
        schedule.short = Length::Time(50_000);
        assert_eq!(extremes(&schedule, Random::short).0, 48_000);
        assert!((1_001_900..=1_002_000).contains(&extremes(&schedule, Random::long).2));
        // Never nothing, and none is none.
        schedule.jitter = Length::Time(90_000);
        assert_eq!(extremes(&schedule, Random::short).0 / 100, 0);
        schedule.jitter = Length::Time(0);
        assert_eq!(
            extremes(&schedule, Random::long),
            (1_000_000, 1_000_000, 1_000_000)
        );
    }
}
