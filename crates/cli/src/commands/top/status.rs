//! The rate of samples, and the view's own cost.

use super::follow::Snapshot;
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// The figures of the last interval.
#[derive(Clone, Copy, Debug, Default)]
pub struct Status {
    pub samples_per_second: f64,
    /// The share of one CPU that this process took, the recorder included.
    pub own_cpu_percent: f64,
}

/// The state at the last snapshot.
pub struct Meter {
    at: Instant,
    samples: u64,
    cpu: Duration,
    status: Status,
}

impl Meter {
    pub fn new() -> Meter {
        Meter {
            at: Instant::now(),
            samples: 0,
            cpu: own_cpu(),
            status: Status::default(),
        }
    }

    /// Returns the figures since the last call.
    pub fn measure(&mut self, snapshot: &Snapshot) -> Status {
        /// The shortest interval over which rates mean anything.
        const LEAST: Duration = Duration::from_millis(10);
        let passed = self.at.elapsed();
        if passed < LEAST {
            return self.status;
        }
        let cpu = own_cpu();
        let seconds = passed.as_secs_f64();
        self.status = Status {
            samples_per_second: snapshot.samples.saturating_sub(self.samples) as f64 / seconds,
            own_cpu_percent: 100.0 * cpu.saturating_sub(self.cpu).as_secs_f64() / seconds,
        };
        self.at += passed;
        self.samples = snapshot.samples;
        self.cpu = cpu;
        self.status
    }
}

/// Returns the time that all threads of this process have run.
fn own_cpu() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}
