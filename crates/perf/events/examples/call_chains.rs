//! Samples the call chains of this process's threads and prints the five most frequent ones.
//!
//! The kernel follows frame pointers. Build with `RUSTFLAGS=-Cforce-frame-pointers=yes` for whole chains.

use dioptra_perfevents::record::Sample;
use dioptra_perfevents::{
    AttachedEvent, EventSpec, RecordListener, SampleType, Session, SessionSpec,
};
use std::collections::BTreeMap;
use std::hint::black_box;

/// The number of samples of each call chain, innermost address first.
#[derive(Default)]
struct Chains(BTreeMap<Vec<u64>, u64>);

impl RecordListener for Chains {
    fn sample(&mut self, _: Option<&AttachedEvent>, sample: &Sample<'_>) {
        let Some(chain) = sample.callchain else {
            return;
        };
        // Marks between the parts of a chain (`PERF_CONTEXT_USER` and the like) are the last 4,095 numbers.
        let addresses = chain.iter().filter(|address| *address < -4095_i64 as u64);
        *self.0.entry(addresses.collect()).or_default() += 1;
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let clock = EventSpec::cpu_clock()
        .with_frequency(1000)
        .with_sample(SampleType::CALLCHAIN)
        .user_only();
    let session = Session::spawn(SessionSpec::new().event(clock), Chains::default())?;
    std::thread::scope(|scope| {
        scope.spawn(|| black_box(fibonacci(black_box(34))));
    });
    let (Chains(chains), summary) = session.stop()?;
    let mut chains: Vec<(Vec<u64>, u64)> = chains.into_iter().collect();
    chains.sort_by_key(|(_, samples)| std::cmp::Reverse(*samples));
    for (chain, samples) in chains.iter().take(5) {
        let addresses: Vec<String> = chain.iter().map(|address| format!("{address:x}")).collect();
        println!("{samples} samples: {}", addresses.join(" < "));
    }
    println!("{} samples, {} lost", summary.samples, summary.lost);
    Ok(())
}

/// A function with deep and varied call chains.
#[inline(never)]
fn fibonacci(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    black_box(fibonacci(n - 1)) + black_box(fibonacci(n - 2))
}
