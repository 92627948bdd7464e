//! `sample=auto`: functions are sampled as densely as a share of the program's time allows.

use crate::analysis::prepare::Passing;
use crate::recording::shared::Shared;
use dioptra_filters::{Controller, Spent};
use std::time::{Duration, Instant};

/// How often it looks.
const EVERY: Duration = Duration::from_millis(50);
/// Nanoseconds for a byte of a record, as the benchmark of traced calls has them.
const BYTE: f64 = 4.0;
/// Nanoseconds for the runtime's choice of an execution.
const CHOICE: f64 = 500.0;
/// Bytes of a call that is recorded alone.
const CALL: f64 = 6.0;

/// Nanoseconds for an execution that is not chosen, about, as measured in loops.
fn passed(passing: Passing) -> f64 {
    match passing {
        Passing::Counted => 1.0,
        Passing::Hidden => 4.0,
        Passing::Runtime => 10.0,
    }
}

/// Keeps the cost of sampled functions within a budget.
#[derive(Debug)]
pub struct Overhead {
    budget: f64,
    controller: Controller,
    /// Of the functions at the last look: executions seen and chosen, and the bytes of their records.
    before: Vec<Totals>,
    /// The traced processes' CPU time at the last look, in nanoseconds.
    time: u64,
    last: Instant,
    /// Nanoseconds for executions that were not chosen since the first look, and the CPU time since.
    passed: f64,
    elapsed: u64,
}

/// Sums over all threads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Executions counted.
    pub seen: u64,
    /// Executions chosen.
    pub shown: u64,
    /// Bytes of their records; of a trigger none are known.
    pub bytes: u64,
}

impl Overhead {
    /// With a share of the program's time.
    pub fn new(budget: f64) -> Overhead {
        Overhead {
            budget,
            controller: Controller::new(0, budget),
            before: Vec::new(),
            time: 0,
            last: Instant::now(),
            passed: 0.0,
            elapsed: 0,
        }
    }

    /// What is to be said at the end: choosing fewer executions does not make counting them cheaper.
    pub fn note(&self) -> Option<String> {
        let share = self.passed / self.elapsed.max(1) as f64;
        (share > self.budget).then(|| {
            format!(
                "functions with sample=auto are called so often that counting their calls alone took about {:.0}% of the program's time, more than --overhead {}%; choose functions that are called less often (`dioptra trace info` tells how often they were)",
                share.min(1.0) * 100.0,
                self.budget * 100.0
            )
        })
    }

    /// Looks at what was counted, if it is time.
    pub fn look(&mut self, shared: &Shared) {
        if self.last.elapsed() < EVERY {
            return;
        }
        self.last = Instant::now();
        let state = shared.state();
        let functions = state.counters.adapting(&shared.arena);
        if functions.is_empty() {
            return;
        }
        if functions.len() != self.before.len() {
            self.controller = Controller::new(functions.len(), self.budget);
            self.before.resize(functions.len(), Totals::default());
        }
        let time: u64 = state
            .processes
            .iter()
            .filter_map(|pid| cpu_time(*pid))
            .sum();
        let elapsed = time.saturating_sub(std::mem::replace(&mut self.time, time));
        self.elapsed = self.elapsed.saturating_add(elapsed);
        let spent: Vec<Spent> = functions
            .iter()
            .zip(&mut self.before)
            .map(|((_, passing, totals), before)| {
                let since = totals.since(before);
                *before = *totals;
                let others = since.seen.saturating_sub(since.shown);
                self.passed += others as f64 * passed(*passing);
                let bytes = (since.bytes as f64).max(since.shown as f64 * CALL);
                Spent {
                    seen: since.seen,
                    shown: since.shown,
                    cost: bytes * BYTE + since.shown as f64 * CHOICE,
                }
            })
            .collect();
        self.controller.update(elapsed as f64, &spent);
        // Of a function that was not chosen yet nothing is known: it stays at its first pace.
        let known = |(_, (_, _, totals)): &(usize, &(u32, Passing, Totals))| totals.shown > 0;
        for (at, (slot, _, _)) in functions.iter().enumerate().filter(known) {
            state
                .counters
                .set_pace(&shared.arena, *slot, self.controller.pace(at));
        }
    }
}

impl Totals {
    /// Adds another thread's.
    pub fn add(&mut self, other: &Totals) {
        self.seen = self.seen.saturating_add(other.seen);
        self.shown = self.shown.saturating_add(other.shown);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }

    fn since(&self, before: &Totals) -> Totals {
        Totals {
            seen: self.seen.saturating_sub(before.seen),
            shown: self.shown.saturating_sub(before.shown),
            bytes: self.bytes.saturating_sub(before.bytes),
        }
    }
}

/// The CPU time of a process, in nanoseconds.
fn cpu_time(pid: u32) -> Option<u64> {
    let mut clock = 0;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: both outlive the calls.
    let known = unsafe {
        libc::clock_getcpuclockid(pid.cast_signed(), &raw mut clock) == 0
            && libc::clock_gettime(clock, &raw mut time) == 0
    };
    known.then(|| time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs())
}
