//! What tests of reader and writer begin with.

use crate::{Clock, ClockPair, Host, Info};
use dioptra_tracelayout::VERSION;

/// Of a trace whose clock is at 1000 ticks when `CLOCK_MONOTONIC` is at 2000.
pub(crate) fn info() -> Info {
    Info {
        schema: 1,
        layout: VERSION,
        recorder: "dioptra 0".into(),
        command: vec!["true".into()],
        folder: "/".into(),
        options: Vec::new(),
        started_realtime: 1,
        clock: Clock {
            source: "tsc".into(),
            shift: 2,
            start: ClockPair {
                ticks: 1000,
                monotonic: 2000,
            },
        },
        host: Host::default(),
        pending: None,
        seed: None,
        ending: None,
    }
}
