//! What tests of reader and writer begin with.

use crate::{Clock, ClockPair, Info};

/// Of a trace whose clock is at 1000 ticks when `CLOCK_MONOTONIC` is at 2000.
pub(crate) fn info() -> Info {
    Info::new(Clock {
        source: "tsc".into(),
        shift: 2,
        start: ClockPair {
            ticks: 1000,
            monotonic: 2000,
        },
    })
}
