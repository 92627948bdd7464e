//! The agent's use of CPUs, and the sampling frequency that keeps it within its limit.

use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// The lowest sampling frequency, in Hz.
const LOWEST: u64 = 1;
/// The longest pause between two segments.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);
/// The part of the limit that uploads may use.
const UPLOADS: f64 = 0.5;

/// The CPU time that the agent may use, and has used.
#[derive(Clone, Debug)]
pub struct Budget {
    /// The frequency that the user wants, in Hz.
    wanted: u64,
    /// The frequency of the next segment, in Hz.
    frequency: u64,
    /// The part of the machine's CPU time that may be used.
    limit: f64,
    /// The number of CPUs.
    cpus: f64,
    measured: Instant,
    used: Duration,
}

/// The result of a look at the use of CPUs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usage {
    /// The part of the machine's CPU time that the recorder has used since the last look.
    pub part: f64,
    /// The time to wait before the next segment.
    pub pause: Duration,
}

impl Budget {
    pub fn new(wanted: u64, limit: f64) -> Budget {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Budget {
            wanted,
            frequency: wanted,
            limit,
            cpus: cpus as f64,
            measured: Instant::now(),
            used: own_time(),
        }
    }

    /// Returns the frequency of the next segment, in Hz.
    pub fn frequency(&self) -> u64 {
        self.frequency
    }

    /// Returns the time to wait after an upload, for each second of CPU time that it used.
    pub fn upload_pace(&self) -> f64 {
        1.0 / (self.limit * UPLOADS * self.cpus)
    }

    /// Measures what the recorder has used since the last look, and adapts the frequency.
    pub fn look(&mut self) -> Usage {
        let (now, used) = (Instant::now(), own_time());
        let elapsed = now - self.measured;
        let part = used.saturating_sub(self.used).as_secs_f64()
            / (elapsed.as_secs_f64().max(1e-9) * self.cpus);
        (self.measured, self.used) = (now, used);
        let pause = self.adapt(part, elapsed);
        Usage { part, pause }
    }

    /// Adapts the frequency to the part that was used over `elapsed`. Returns the time to wait, for a recorder that uses too
    /// much at the lowest frequency.
    fn adapt(&mut self, part: f64, elapsed: Duration) -> Duration {
        let excess = part / self.limit;
        if excess > 1.0 {
            let lower = (self.frequency as f64 / excess * 0.9) as u64;
            let was_lowest = self.frequency == LOWEST;
            self.frequency = lower.max(LOWEST);
            if was_lowest {
                return elapsed.mul_f64(excess - 1.0).min(LONGEST_PAUSE);
            }
        } else if excess < 0.5 {
            self.frequency = (self.frequency + self.frequency / 4 + 1).min(self.wanted);
        }
        Duration::ZERO
    }
}

/// Returns the CPU time that this process has used.
fn own_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn the_frequency_falls_with_the_use_and_comes_back() {
        let mut budget = Budget::new(100, 0.01);
        assert_eq!(budget.adapt(0.009, MINUTE), Duration::ZERO);
        assert_eq!(budget.frequency(), 100);
        // Twice the limit: less than half the frequency.
        assert_eq!(budget.adapt(0.02, MINUTE), Duration::ZERO);
        assert_eq!(budget.frequency(), 45);
        assert_eq!(budget.adapt(0.004, MINUTE), Duration::ZERO);
        assert_eq!(budget.frequency(), 57);
        for _ in 0..10 {
            budget.adapt(0.001, MINUTE);
        }
        assert_eq!(budget.frequency(), 100);
    }

    #[test]
    fn a_recorder_that_uses_too_much_anyway_pauses() {
        let mut budget = Budget::new(100, 0.01);
        budget.adapt(10.0, MINUTE);
        assert_eq!(budget.frequency(), LOWEST);
        // Three times the limit over a minute: two minutes of rest.
        let pause = budget.adapt(0.03, MINUTE);
        assert!((pause.as_secs_f64() - 120.0).abs() < 0.001, "{pause:?}");
        assert_eq!(budget.adapt(1.0, MINUTE), LONGEST_PAUSE);
    }

    #[test]
    fn uploads_have_half_of_the_limit() {
        let mut budget = Budget::new(100, 0.01);
        budget.cpus = 2.0;
        assert!((budget.upload_pace() - 100.0).abs() < 1e-9);
    }
}
