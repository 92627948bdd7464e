//! Times of calls, by each clock, against what the program itself reads from `CLOCK_MONOTONIC`.

#![cfg(all(target_arch = "x86_64", target_env = "gnu"))]

mod traces;

use dioptra_calls::{StreamWalk, WalkStep};
use dioptra_testprograms::{Language, or_skip};
use dioptra_trace_recorder::TraceClock;
use dioptra_tracedata::Trace;
use std::collections::HashMap;
use std::path::Path;
use traces::{METHODS, alone, built, everything, trace};

/// The tolerance in nanoseconds. The counter's line between two comparisons of the clocks is true to a microsecond,
/// even if the system adjusts its own clock meanwhile.
const SLACK: u64 = 2_000;

/// Traces `trace-stamps` with these arguments, so many rounds, and returns how far the times of each call of `stamped`
/// are from where the program's readings allow them to be, in nanoseconds.
fn deviations(
    program: &Path,
    rounds: usize,
    rest: &[&str],
    plain: bool,
    clock: TraceClock,
) -> Vec<u64> {
    let folder = tempfile::tempdir().unwrap();
    let count = rounds.to_string();
    let mut command = vec![program.to_str().unwrap(), &count];
    command.extend(rest);
    let (outcome, output) = trace(folder.path(), &command, everything(plain), |spec| {
        spec.clock = Some(clock);
    });
    let what = format!("{clock:?} {command:?}");
    assert_eq!(outcome.status.map(|s| s.exit_code()), Some(0), "{what}");
    // Each call has three stamps: before, in and after it.
    let stamps: Vec<u64> = output.lines().map(|line| line.parse().unwrap()).collect();
    let trace = Trace::open(&folder.path().join("trace")).unwrap();
    assert_eq!(trace.info().clock.source, clock.name());
    let mut functions: HashMap<u32, Vec<(u64, u64)>> = HashMap::new();
    let mut entered = Vec::new();
    for step in trace
        .streams()
        .iter()
        .flat_map(|s| StreamWalk::new(&trace, s))
    {
        match step {
            WalkStep::Enter { time, .. } => entered.push(time),
            WalkStep::Leave { time, call, .. } => {
                let calls = functions.entry(call.function).or_default();
                calls.push((entered.pop().unwrap(), time));
            }
            other => panic!("{what}: {other:?}"),
        }
    }
    assert_eq!(stamps.len(), 3 * rounds, "{what}");
    // No other function is called as often.
    let calls = functions.values().find(|calls| calls.len() == rounds);
    let calls = calls.unwrap_or_else(|| panic!("{what}"));
    let outside =
        |time: u64, from: u64, to: u64| from.saturating_sub(time).max(time.saturating_sub(to));
    stamps
        .chunks(3)
        .zip(calls)
        .map(|(stamps, (from, to))| {
            let (before, inside, after) = (stamps[0], stamps[1], stamps[2]);
            outside(*from, before, inside).max(outside(*to, inside, after))
        })
        .collect()
}

#[test]
fn times_are_those_of_the_systems_clock() {
    let _turn = alone();
    for clock in [TraceClock::Tsc, TraceClock::Monotonic] {
        for (method, flags, plain) in METHODS {
            if method == "xray" {
                continue;
            }
            let program = or_skip!(built(Language::C, "trace-stamps", &[&["-O1"], flags]));
            let largest = deviations(&program, 60, &[], plain, clock)
                .into_iter()
                .max();
            assert!(largest <= Some(SLACK), "{clock:?} {method}: {largest:?} ns");
        }
    }
}

/// Times do not drift in a program that waits most of the time. It runs for `DIOPTRA_SOAK_SECONDS` seconds, or for one.
#[test]
fn times_do_not_drift() {
    let _turn = alone();
    let program = or_skip!(built(
        Language::C,
        "trace-stamps",
        &[&["-O1", "-pg", "-mfentry"]]
    ));
    let seconds = std::env::var("DIOPTRA_SOAK_SECONDS").map_or(1, |text| text.parse().unwrap());
    let all = deviations(
        &program,
        4 * seconds,
        &["250", "100"],
        false,
        TraceClock::best(),
    );
    let tenth = all.len().div_ceil(10);
    let most = |some: &[u64]| some.iter().max().copied().unwrap_or(0) as f64 / 1e3;
    println!(
        "{seconds} s by {}: times are off by at most {:.3} µs in the first tenth, {:.3} µs in the last, {:.3} µs in all",
        TraceClock::best().name(),
        most(&all[..tenth]),
        most(&all[all.len() - tenth..]),
        most(&all),
    );
    assert!(all.iter().all(|deviation| *deviation <= SLACK), "{all:?}");
}
