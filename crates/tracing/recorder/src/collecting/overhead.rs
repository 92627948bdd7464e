//! `sample=auto`: functions are sampled as densely as a share of the program's time allows.

use crate::analysis::prepare::Passing;
use crate::recording::notes::TraceNote;
use crate::recording::shared::Shared;
use dioptra_filters::{Controller, Spent};
use std::time::{Duration, Instant};

/// The time between two looks at the counts.
const EVERY: Duration = Duration::from_millis(50);
/// The cost of a byte of a record in nanoseconds, as measured by the benchmark of traced calls.
const BYTE: f64 = 4.0;
/// The cost of the runtime's choice of an execution, in nanoseconds.
const CHOICE: f64 = 500.0;
/// The size of the records of a call that is recorded alone, in bytes.
const CALL: f64 = 6.0;

/// Returns the approximate cost of an execution that is not chosen, in nanoseconds, as measured in loops.
fn passed(passing: Passing) -> f64 {
    match passing {
        Passing::Counted => 1.0,
        Passing::Hidden => 4.0,
        Passing::Runtime => 10.0,
    }
}

/// The control that keeps the cost of sampled functions within a budget.
#[derive(Debug)]
pub struct Overhead {
    budget: f64,
    controller: Controller,
    /// The functions' sums at the last look.
    before: Vec<Totals>,
    /// The traced processes' CPU time at the last look, in nanoseconds.
    time: u64,
    last: Instant,
    /// The nanoseconds spent since the first look on executions that were not chosen.
    passed: f64,
    /// The CPU time since the first look, in nanoseconds.
    elapsed: u64,
}

/// The counts of a function, summed over all threads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// The number of executions that were counted.
    pub seen: u64,
    /// The number of executions that were chosen.
    pub shown: u64,
    /// The size of the chosen executions' records in bytes; not known for triggers.
    pub bytes: u64,
}

impl Overhead {
    /// Makes a control with a budget: a share of the program's time.
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

    /// Returns the note for the end if counting alone costs more than the budget. Choosing fewer executions does not
    /// make counting cheaper.
    pub fn note(&self) -> Option<TraceNote> {
        let share = self.passed / self.elapsed.max(1) as f64;
        (share > self.budget).then_some(TraceNote::CountingIsDear {
            share,
            budget: self.budget,
        })
    }

    /// Adapts the choice to the costs since the last look, if it is time for another one.
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
        // Nothing is known of the costs of a function of which no execution was chosen yet. Such a function keeps its
        // first pace.
        let known = |(_, (_, _, totals)): &(usize, &(u32, Passing, Totals))| totals.shown > 0;
        for (at, (slot, _, _)) in functions.iter().enumerate().filter(known) {
            state
                .counters
                .set_pace(&shared.arena, *slot, self.controller.pace(at));
        }
    }
}

impl Totals {
    /// Adds the counts of another thread.
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

/// Returns the CPU time of a process, in nanoseconds.
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
