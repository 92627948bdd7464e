//! The growing counts of all events, on a thread of their own where that pays.
//!
//! Counts kept apart by thread and CPU, with a log and errors, cost about as much time as reading and stacking do. A second
//! thread therefore takes the samples in batches, in the order of the file, so the counts do not depend on the thread.
//!
//! ```text
//!   reader: identify, find stacks ──► batch ──► counting thread: add ──► empty batch ──► reader
//! ```

use crate::counts::counter::{Counter, Counts, Keep};
use crate::loading::stacking::WaitingSample;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Scope;

/// Samples of a batch: one batch is small enough for the CPU's second cache.
const BATCH: usize = 2048;
/// The largest number of batches that wait for the counting thread.
const WAITING_BATCHES: usize = 8;

/// A sample with the stack, or the frame, at which it counts.
type Placed = (WaitingSample, u32);

/// The counts of one event while they grow.
pub(crate) struct EventCounter {
    all: Counter,
    /// The counts of the samples that were taken in the kernel and count at user code.
    in_kernel: Counter,
}

impl EventCounter {
    /// Makes the counter of an event; `keep` says which data it keeps beside the sums.
    pub(crate) fn new(keep: Keep) -> Self {
        EventCounter {
            all: Counter::new(keep),
            in_kernel: Counter::new(Keep {
                sample_keys: keep.sample_keys,
                ..Keep::default()
            }),
        }
    }

    #[inline]
    fn add(&mut self, sample: &WaitingSample, stack: u32) {
        self.all.add(sample.sample_key, stack, sample.hit);
        if sample.hit.in_kernel {
            self.in_kernel.add(sample.sample_key, stack, sample.hit);
        }
    }

    fn freeze(self) -> FrozenCounts {
        FrozenCounts {
            all: self.all.freeze(),
            in_kernel: self.in_kernel.freeze(),
        }
    }
}

/// The counts of one event after the last sample.
pub(crate) struct FrozenCounts {
    pub(crate) all: Counts,
    /// The counts of the samples that were taken in the kernel and count at user code.
    pub(crate) in_kernel: Counts,
}

/// The counters of all events, and the thread that they grow on.
pub(crate) enum Counters {
    /// They grow on the reader's thread.
    Inline(Vec<EventCounter>),
    /// They grow on a thread of their own.
    Beside(Beside),
}

impl Default for Counters {
    fn default() -> Self {
        Counters::Inline(Vec::new())
    }
}

impl Counters {
    /// Lets counters grow on a thread of their own in `scope`. If the system refuses a thread, they grow on the reader's.
    pub(crate) fn beside<'s>(scope: &'s Scope<'s, '_>, counters: Vec<EventCounter>) -> Self {
        Beside::new(scope, counters).map_or_else(Counters::Inline, Counters::Beside)
    }

    /// Counts a sample at a stack.
    #[inline]
    pub(crate) fn add(&mut self, sample: WaitingSample, stack: u32) {
        match self {
            Counters::Inline(counters) => counters[sample.event].add(&sample, stack),
            Counters::Beside(beside) => beside.add((sample, stack)),
        }
    }

    /// Returns the counters that grow on the reader's thread; none if they grow on their own. Those of a live profile, which is
    /// asked while it grows, are always on the reader's.
    fn inline(&self) -> &[EventCounter] {
        match self {
            Counters::Inline(counters) => counters,
            Counters::Beside(_) => &[],
        }
    }

    /// Returns the counts so far by event, of counters on the reader's thread.
    pub(crate) fn frozen(&self) -> Vec<FrozenCounts> {
        let frozen = |counter: &EventCounter| FrozenCounts {
            all: counter.all.frozen(),
            in_kernel: counter.in_kernel.frozen(),
        };
        self.inline().iter().map(frozen).collect()
    }

    /// Returns the number of cells of all events, of counters on the reader's thread.
    pub(crate) fn cells(&self) -> usize {
        self.inline()
            .iter()
            .map(|counter| counter.all.cells())
            .sum()
    }

    /// Forgets the times of old samples, of counters on the reader's thread; see [`crate::LiveProfile::forget_samples`].
    pub(crate) fn forget_samples(&mut self, elapsed: u64, most: usize) -> u64 {
        match self {
            Counters::Inline(counters) => counters
                .iter_mut()
                .map(|counter| counter.all.forget_samples(elapsed, most))
                .sum(),
            Counters::Beside(_) => 0,
        }
    }

    /// Returns the counts by event.
    pub(crate) fn finish(self) -> Vec<FrozenCounts> {
        match self {
            Counters::Inline(counters) => freeze(counters),
            Counters::Beside(beside) => beside.finish(),
        }
    }
}

fn freeze(counters: Vec<EventCounter>) -> Vec<FrozenCounts> {
    counters.into_iter().map(EventCounter::freeze).collect()
}

/// The reader's end of the counting thread.
pub(crate) struct Beside {
    batch: Vec<Placed>,
    full: SyncSender<Vec<Placed>>,
    empty: Receiver<Vec<Placed>>,
    counts: Receiver<Vec<FrozenCounts>>,
}

impl Beside {
    /// Starts the thread; gives the counters back if the system refuses one.
    fn new<'s>(
        scope: &'s Scope<'s, '_>,
        counters: Vec<EventCounter>,
    ) -> Result<Self, Vec<EventCounter>> {
        let (full, received) = sync_channel::<Vec<Placed>>(WAITING_BATCHES);
        let (emptied, empty) = sync_channel(WAITING_BATCHES + 2);
        let (counted, counts) = sync_channel(1);
        // The counters travel by a channel, so that they come back if there is no thread.
        let (hand_over, take) = sync_channel::<Vec<EventCounter>>(1);
        let work = move || {
            let mut counters = take.recv().unwrap_or_default();
            for mut batch in received {
                for (sample, stack) in batch.drain(..) {
                    counters[sample.event].add(&sample, stack);
                }
                // The reader drops its end once it has read everything.
                let _ = emptied.try_send(batch);
            }
            let _ = counted.send(freeze(counters));
        };
        let named = std::thread::Builder::new().name("counting".to_owned());
        if named.spawn_scoped(scope, work).is_err() {
            return Err(counters);
        }
        // The channel has room for one message, and the thread waits for it.
        let _ = hand_over.send(counters);
        Ok(Beside {
            batch: Vec::with_capacity(BATCH),
            full,
            empty,
            counts,
        })
    }

    #[inline]
    fn add(&mut self, placed: Placed) {
        self.batch.push(placed);
        if self.batch.len() >= BATCH {
            self.send();
        }
    }

    fn send(&mut self) {
        let next = self.empty.try_recv();
        let next = next.unwrap_or_else(|_| Vec::with_capacity(BATCH));
        let batch = std::mem::replace(&mut self.batch, next);
        // Sending fails only if the thread has panicked, which the scope passes on.
        let _ = self.full.send(batch);
    }

    fn finish(mut self) -> Vec<FrozenCounts> {
        self.send();
        drop(self.full);
        // Without counts the thread has panicked, and the scope passes the panic on.
        self.counts.recv().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::counter::Hit;

    /// Counts of samples that repeat after a while, by event: places, samples, weights and the order of the log.
    fn counted(mut counters: Counters, samples: u64) -> Vec<Vec<(u32, u32, u64, u64)>> {
        for number in 0..samples {
            let hit = Hit {
                weight: number % 7,
                elapsed: Some(number),
                factor: 1.0,
                in_kernel: number % 5 == 0,
            };
            let sample = WaitingSample {
                event: (number % 2) as usize,
                sample_key: (number % 3) as u32,
                hit,
            };
            counters.add(sample, (number % 1000) as u32);
        }
        let of = |counts: &Counts| {
            let cells = counts.iter();
            let mut all: Vec<_> = cells
                .map(|(cell, count)| (cell.sample_key, cell.place, count.samples, count.weight))
                .collect();
            counts.samples(|cell, hit| all.push((cell, 0, hit.weight, hit.elapsed.unwrap_or(0))));
            all
        };
        let frozen = counters.finish();
        let both = frozen
            .iter()
            .flat_map(|event| [&event.all, &event.in_kernel]);
        both.map(of).collect()
    }

    #[test]
    fn a_thread_counts_as_the_reader_does() {
        let counters = || {
            let keep = Keep {
                sample_keys: true,
                spread: true,
                log: true,
            };
            vec![EventCounter::new(keep), EventCounter::new(keep)]
        };
        // No sample, less than a batch, whole batches, and a rest.
        for samples in [0, 1, 2048, 4096, 100_001] {
            let here = counted(Counters::Inline(counters()), samples);
            let beside =
                std::thread::scope(|scope| counted(Counters::beside(scope, counters()), samples));
            assert_eq!(here, beside, "{samples} samples");
            let rows = here[0].len() + here[1].len();
            assert_eq!(rows == 0, samples == 0);
        }
    }
}
