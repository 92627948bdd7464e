//! The clock of the records.

use crate::processor;
use crate::recording::notes::TraceNote;
use crate::recording::shared::monotonic;
use dioptra_tracedata::ClockPair;
use dioptra_tracelayout::arena as layout;
use memchr::memmem::find as memmem;
use std::fs::{self, File};
use std::io::Read;
use std::time::Duration;

/// The clock that times in records are read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceClock {
    /// The processor's counter: on x86-64 the time stamp counter, on 64-bit Arm that of the system's timer.
    Tsc,
    /// `CLOCK_MONOTONIC`, in nanoseconds: runs evenly on all machines, but each reading is a system call.
    Monotonic,
}

/// Clocks that the kernel uses where the counter can't be trusted.
const UNTRUSTED: [&str; 4] = ["hpet", "acpi_pm", "jiffies", "refined-jiffies"];

impl TraceClock {
    /// Returns the processor's counter if it ticks evenly, on all CPUs alike, whatever they do, and the kernel has not
    /// found otherwise. Returns `CLOCK_MONOTONIC` if not.
    pub fn best() -> TraceClock {
        if cfg!(target_arch = "aarch64") {
            // The architecture demands that the counter ticks evenly, on all CPUs alike.
            return TraceClock::Tsc;
        }
        let cpus = first_processor();
        let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
        let source = fs::read_to_string(source).unwrap_or_default();
        TraceClock::best_of(&cpus, source.trim())
    }

    fn best_of(cpus: &str, source: &str) -> TraceClock {
        let flags = cpus.lines().find(|line| line.starts_with("flags"));
        let is_even = flags.is_some_and(|line| {
            let has = |flag| line.split_whitespace().any(|word| word == flag);
            has("constant_tsc") && has("nonstop_tsc")
        });
        match is_even && !UNTRUSTED.contains(&source) {
            true => TraceClock::Tsc,
            false => TraceClock::Monotonic,
        }
    }

    /// Returns its name, as in `info.json`.
    pub fn name(self) -> &'static str {
        match self {
            TraceClock::Tsc if cfg!(target_arch = "aarch64") => "cntvct",
            TraceClock::Tsc => "tsc",
            TraceClock::Monotonic => "monotonic",
        }
    }

    /// Returns the number of low bits of its readings that records leave out. The ticks of a time stamp counter become
    /// 1 to 2 ns long.
    pub fn shift(self) -> u32 {
        match self {
            // Arm's counter is slow enough.
            TraceClock::Tsc if cfg!(target_arch = "aarch64") => 0,
            TraceClock::Tsc => 2,
            TraceClock::Monotonic => 0,
        }
    }

    /// Returns its number in the arena's header.
    pub(crate) fn in_arena(self) -> u32 {
        match self {
            TraceClock::Tsc => layout::TSC,
            TraceClock::Monotonic => layout::MONOTONIC,
        }
    }

    /// Reads the clock.
    pub(crate) fn ticks(self) -> u64 {
        match self {
            TraceClock::Tsc => processor::ticks(),
            TraceClock::Monotonic => monotonic(),
        }
    }

    /// Returns the note about coarse times, if the counter is slow.
    pub(crate) fn note(self) -> Option<TraceNote> {
        match self {
            TraceClock::Tsc => processor::frequency().and_then(coarse),
            TraceClock::Monotonic => None,
        }
    }

    /// Reads both clocks at one moment.
    pub(crate) fn pair(self) -> ClockPair {
        let read = || {
            let before = self.ticks();
            let monotonic = monotonic();
            let after = self.ticks();
            let pair = ClockPair {
                ticks: match self {
                    TraceClock::Tsc => before + (after - before) / 2,
                    TraceClock::Monotonic => monotonic,
                },
                monotonic,
            };
            (after - before, pair)
        };
        // The reading with the least time between two readings of the counter is the truest.
        let mut best = read();
        for _ in 0..4 {
            let next = read();
            if next.0 < best.0 {
                best = next;
            }
        }
        best.1
    }
}

/// Returns the time in nanoseconds that a number of ticks takes, by two readings of the clocks.
pub fn time_of(start: ClockPair, end: ClockPair, ticks: u64) -> u64 {
    let passed = u128::from(end.ticks.saturating_sub(start.ticks).max(1));
    let nanoseconds = u128::from(end.monotonic.saturating_sub(start.monotonic));
    u64::try_from(u128::from(ticks) * nanoseconds / passed).unwrap_or(u64::MAX)
}

/// Returns the number of shifted ticks in a stretch of time, measured over a moment.
pub fn ticks_in(clock: TraceClock, time: Duration) -> u64 {
    let first = clock.pair();
    std::thread::sleep(Duration::from_millis(10));
    let second = clock.pair();
    let nanoseconds = (second.monotonic - first.monotonic).max(1);
    let ticks = (second.ticks - first.ticks) as u128;
    let all = time.as_nanos() * ticks / u128::from(nanoseconds);
    u64::try_from(all >> clock.shift()).unwrap_or(u64::MAX)
}

/// Returns the part of `/proc/cpuinfo` about the first processor. On large machines reading all of the file takes long.
pub fn first_processor() -> String {
    let mut text = Vec::new();
    let mut block = [0; 4096];
    let mut file = File::open("/proc/cpuinfo");
    while let Ok(Ok(size @ 1..)) = file.as_mut().map(|file| file.read(&mut block)) {
        text.extend(block.get(..size).unwrap_or_default());
        // Empty lines separate the processors.
        if let Some(end) = memmem(&text, b"\n\n") {
            text.truncate(end);
            break;
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Returns the note about a counter with so many ticks a second, if its ticks are long.
fn coarse(frequency: u64) -> Option<TraceNote> {
    // From this frequency on, ticks are so short that nobody takes one for a measurement.
    const FINE: u64 = 500_000_000;
    (0 < frequency && frequency < FINE).then_some(TraceNote::CoarseClock { frequency })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_is_used_where_it_can_be_trusted() {
        let cpus = "processor\t: 0\nflags\t\t: fpu tsc constant_tsc nonstop_tsc\n";
        assert_eq!(TraceClock::best_of(cpus, "tsc"), TraceClock::Tsc);
        assert_eq!(TraceClock::best_of(cpus, "kvm-clock"), TraceClock::Tsc);
        assert_eq!(TraceClock::best_of(cpus, "hpet"), TraceClock::Monotonic);
        let uneven = "flags\t\t: fpu tsc constant_tsc\n";
        assert_eq!(TraceClock::best_of(uneven, "tsc"), TraceClock::Monotonic);
        assert_eq!(TraceClock::best_of("", ""), TraceClock::Monotonic);
    }

    #[test]
    fn the_first_processor_is_the_first() {
        let all = fs::read_to_string("/proc/cpuinfo").unwrap();
        let first = first_processor();
        assert!(!first.is_empty() && !first.contains("\n\n"));
        let names = |text: &str| -> Vec<String> {
            let words = text.lines().filter_map(|line| line.split(':').next());
            words.map(|word| word.trim().to_owned()).collect()
        };
        assert!(names(&all).starts_with(&names(&first)));
    }

    #[test]
    fn slow_counters_are_told_of() {
        let note = coarse(62_500_000).unwrap().to_string();
        assert!(note.starts_with("times are multiples of 16.0 ns"), "{note}");
        assert_eq!(coarse(1_000_000_000), None);
        assert_eq!(coarse(0), None);
    }
}
