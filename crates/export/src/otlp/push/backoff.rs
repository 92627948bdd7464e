//! The times between tries.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// The first wait.
const FIRST: Duration = Duration::from_millis(250);
/// The longest wait that the collector did not ask for.
const LONGEST: Duration = Duration::from_secs(30);

/// Waits that double, with a part that is random, so that many senders do not come back at once.
#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff { next: FIRST }
    }
}

impl Backoff {
    /// Returns the next wait, which is not shorter than `after`.
    pub(super) fn next(&mut self, after: Option<Duration>) -> Duration {
        self.wait(after, random())
    }

    /// `random` is at least 0 and less than 1.
    fn wait(&mut self, after: Option<Duration>, random: f64) -> Duration {
        // From half of the wait to one and a half.
        let wait = self.next.mul_f64(0.5 + random);
        self.next = self.next.saturating_mul(2).min(LONGEST);
        match after {
            // A day more than that is no shorter for any caller.
            Some(after) => after.saturating_add(wait.mul_f64(0.5)),
            None => wait,
        }
    }
}

/// Returns a random number of at least 0 and less than 1.
fn random() -> f64 {
    // Each state has keys of its own.
    let bits = RandomState::new().build_hasher().finish() >> 11;
    bits as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest() {
        let mut backoff = Backoff::default();
        let waits: Vec<u128> = (0..10)
            .map(|_| backoff.wait(None, 0.5).as_millis())
            .collect();
        assert_eq!(
            waits,
            [
                250, 500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000
            ]
        );
    }

    #[test]
    fn no_wait_is_shorter_than_asked_for() {
        let mut backoff = Backoff::default();
        let asked = Duration::from_secs(5);
        for random in [0.0, 0.999] {
            assert!(backoff.wait(Some(asked), random) >= asked);
        }
        assert!(backoff.wait(Some(Duration::MAX), 0.5) == Duration::MAX);
        assert!((0..100).all(|_| (0.0..1.0).contains(&random())));
    }
}
