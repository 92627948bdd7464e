//! Work on streams in parallel.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs workers, as many as there are CPUs, which take the numbers below `count` one after the other. Each worker has
/// a state of its own; returns all of them.
pub(crate) fn each<S: Send>(
    count: usize,
    most: usize,
    new: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, usize) + Sync,
) -> Vec<S> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = cpus.min(count).min(most).max(1);
    let next = AtomicUsize::new(0);
    let run = || {
        let mut state = new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return state;
            }
            work(&mut state, number);
        }
    };
    if workers == 1 {
        return vec![run()];
    }
    let states = Mutex::new(Vec::with_capacity(workers));
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                let state = run();
                states.lock().unwrap_or_else(|e| e.into_inner()).push(state);
            });
        }
    });
    states.into_inner().unwrap_or_else(|e| e.into_inner())
}
