//! Times of calls, by each clock, against what the program itself reads from `CLOCK_MONOTONIC`.

#![cfg(all(target_arch = "x86_64", target_env = "gnu"))]

mod traces;

use dioptra_calls::{Step, Walk};
use dioptra_recorder::trace::TraceClock;
use dioptra_testprograms::{Language, Program, or_skip};
use dioptra_tracedata::Trace;
use traces::{METHODS, alone, everything, trace};

#[test]
fn times_are_those_of_the_systems_clock() {
    let _turn = alone();
    for clock in [TraceClock::Tsc, TraceClock::Monotonic] {
        for (method, flags, plain) in METHODS {
            if method == "xray" {
                continue;
            }
            let program = or_skip!(
                Program::new(Language::C, "trace-stamps")
                    .no_flags()
                    .flags(["-O1", "-g"])
                    .flags(flags.iter().copied())
                    .build()
            );
            let folder = tempfile::tempdir().unwrap();
            let command = [program.to_str().unwrap()];
            let (outcome, output) = trace(folder.path(), &command, everything(plain), |spec| {
                spec.clock = Some(clock);
            });
            let what = format!("{clock:?} {method}");
            assert_eq!(outcome.status.map(|s| s.exit_code()), Some(0), "{what}");
            // Before, in and after each call.
            let stamps: Vec<u64> = output.lines().map(|line| line.parse().unwrap()).collect();
            let trace = Trace::open(&folder.path().join("trace")).unwrap();
            assert_eq!(trace.info().clock.source, clock.name());
            let mut calls = Vec::new();
            let mut entered = Vec::new();
            for step in trace.streams().iter().flat_map(|s| Walk::new(&trace, s)) {
                match step {
                    Step::Enter { time, .. } => entered.push(time),
                    Step::Leave { time, .. } => calls.push((entered.pop().unwrap(), time)),
                    other => panic!("{what}: {other:?}"),
                }
            }
            // The counter's line between two comparisons of the clocks is true to a microsecond, even if the system
            // adjusts its own clock meanwhile.
            const SLACK: u64 = 2_000;
            let between = |time: u64, from: u64, to: u64| {
                assert!(
                    from <= time + SLACK && time <= to + SLACK,
                    "{what}: {from} {time} {to}"
                );
            };
            assert_eq!(stamps.len(), 3 * 60, "{what}");
            for stamps in stamps.chunks(3) {
                let (before, inside, after) = (stamps[0], stamps[1], stamps[2]);
                let call = calls
                    .iter()
                    .filter(|(from, to)| *from <= inside + SLACK && inside <= to + SLACK);
                let call = call
                    .min_by_key(|(from, to)| to - from)
                    .unwrap_or_else(|| panic!("{what}"));
                between(call.0, before, inside);
                between(call.1, inside, after);
            }
        }
    }
}
