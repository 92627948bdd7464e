//! The description of a recording in `info.json`.

use super::host::host;
use super::spec::TraceSpec;
use crate::collecting::clock::TraceClock;
use dioptra_tracedata::{ClockInfo, ClockPair, TraceInfo};
use std::time::{SystemTime, UNIX_EPOCH};

/// Describes a recording that begins.
pub fn describe(spec: &TraceSpec, clock: TraceClock, start: ClockPair) -> TraceInfo {
    TraceInfo {
        schema: 1,
        layout: dioptra_tracelayout::VERSION,
        recorder: format!("dioptra {}", env!("CARGO_PKG_VERSION")),
        command: spec
            .command
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect(),
        folder: std::env::current_dir()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
        options: spec.options.clone(),
        started_realtime: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_nanos() as u64),
        clock: ClockInfo {
            source: clock.name().to_owned(),
            shift: clock.shift() as u8,
            start,
        },
        host: host(),
        pending: spec.pending.clone(),
        seed: Some(spec.seed),
        ending: None,
    }
}
