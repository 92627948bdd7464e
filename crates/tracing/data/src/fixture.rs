//! The data that tests of reader and writer begin with.

use crate::{ClockInfo, ClockPair, TraceInfo};

/// Returns the facts of a trace whose clock is at 1000 ticks when `CLOCK_MONOTONIC` is at 2000.
pub(crate) fn info() -> TraceInfo {
    TraceInfo::new(ClockInfo {
        source: "tsc".into(),
        shift: 2,
        start: ClockPair {
            ticks: 1000,
            monotonic: 2000,
        },
    })
}
