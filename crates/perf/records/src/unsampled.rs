//! Events that were counted but not sampled, since the threads ended before their first period.
//!
//! A thread inherits an event with a whole period ahead of it: the kernel has no way to begin it elsewhere. A program whose
//! threads each run for less than a period is counted in full and hardly sampled.

use std::fmt;

/// The least share of the count that has to be missing, in percent: threads that live for a few periods lose less.
const LEAST_SHARE: u64 = 20;

/// The least number of periods that have to be missing: fewer are chance.
const LEAST_PERIODS: u64 = 10;

/// One event of which a good part was counted in threads too short to be sampled.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unsampled {
    /// The event's name.
    pub event: String,
    /// Events counted, nanoseconds for clocks.
    pub counted: u64,
    /// Events that the samples stand for, those of lost samples included.
    pub sampled: u64,
    /// Events between two samples of a thread.
    pub period: u64,
    /// Threads that were counted.
    pub threads: u64,
    /// Whether the event is a clock, which counts nanoseconds.
    pub is_time: bool,
}

impl Unsampled {
    /// Takes an event's figures as [`Unsampled::find`] judged them before.
    pub fn new(
        event: impl Into<String>,
        (counted, sampled): (u64, u64),
        period: u64,
        threads: u64,
        is_time: bool,
    ) -> Unsampled {
        Unsampled {
            event: event.into(),
            counted,
            sampled,
            period,
            threads,
            is_time,
        }
    }

    /// Returns the verdict on an event's figures: `None` where too little is missing to speak of, or where the threads
    /// lived too long for their ends to be the cause.
    pub fn find(
        event: &str,
        (counted, sampled): (u64, u64),
        period: u64,
        threads: u64,
        is_time: bool,
    ) -> Option<Unsampled> {
        let missing = counted.saturating_sub(sampled);
        // Each thread ends with events counted since its last sample, at most a period: this explains that much.
        let explained = u128::from(threads) * u128::from(period);
        let is_told = u128::from(missing) * 100 >= u128::from(counted) * u128::from(LEAST_SHARE)
            && missing >= period.saturating_mul(LEAST_PERIODS)
            && explained * 2 >= u128::from(missing)
            && period > 0;
        is_told.then(|| Unsampled::new(event, (counted, sampled), period, threads, is_time))
    }

    fn amount(&self, count: u64) -> String {
        match count {
            _ if !self.is_time => format!("{count} events"),
            count if count < 10_000_000 => format!("{:.3} ms", count as f64 / 1e6),
            count => format!("{:.2} s", count as f64 / 1e9),
        }
    }
}

impl fmt::Display for Unsampled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: counted {} in {} threads, sampled {}: threads that end before their first period ({}) leave no sample",
            self.event,
            self.amount(self.counted),
            self.threads,
            self.amount(self.sampled),
            self.amount(self.period)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const PERIOD: u64 = 1_000_000;

    #[test]
    fn short_threads_are_told_and_others_are_not() {
        let find = |figures, threads| Unsampled::find("cpu-clock", figures, PERIOD, threads, true);
        let told = find((1_175_000_000, 8 * PERIOD), 2000).expect("hardly anything was sampled");
        assert_eq!(
            told.to_string(),
            "cpu-clock: counted 1.18 s in 2000 threads, sampled 8.000 ms: threads that end before their first period \
             (1.000 ms) leave no sample"
        );
        assert_eq!(find((SECOND, SECOND - 5 * PERIOD), 3), None);
        // Two threads can't hide half a second: the samples fell into what was not to be watched.
        assert_eq!(find((SECOND, SECOND / 2), 2), None);
        // Half a period for each of a few threads.
        assert_eq!(find((SECOND, SECOND - 50 * PERIOD), 100), None);
        assert_eq!(find((5 * PERIOD, 0), 100), None, "chance");
    }
}
