//! Decoding ahead in another thread.

use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

/// The number of items in a batch: about as many as a CPU's second cache holds.
const BATCH: usize = 2048;
/// The number of batches that may wait.
const BATCHES: usize = 4;

/// An iterator over items that another thread makes ahead.
pub struct Ahead<T> {
    ready: Receiver<Vec<T>>,
    /// The channel that returns used batches to be filled again.
    empty: Sender<Vec<T>>,
    batch: Vec<T>,
    next: usize,
}

/// Runs `consume` on the items of an iterator that runs in a thread of its own. Returns the result and the iterator.
/// If `consume` takes fewer items than there are, the iterator stops somewhere behind them.
pub fn ahead<I, R>(mut items: I, consume: impl FnOnce(&mut Ahead<I::Item>) -> R) -> (R, I)
where
    I: Iterator + Send,
    I::Item: Copy + Send,
{
    std::thread::scope(|scope| {
        let (filled, ready) = sync_channel(BATCHES);
        let (empty, used) = channel();
        let work = scope.spawn(move || {
            fill(&mut items, &filled, &used);
            drop(filled);
            items
        });
        let mut ahead = Ahead {
            ready,
            empty,
            batch: Vec::new(),
            next: 0,
        };
        let result = consume(&mut ahead);
        // A producer that waits to hand over a batch learns that nobody takes it.
        drop(ahead);
        match work.join() {
            Ok(items) => (result, items),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

fn fill<T>(
    items: &mut impl Iterator<Item = T>,
    filled: &SyncSender<Vec<T>>,
    used: &Receiver<Vec<T>>,
) {
    loop {
        let mut batch = used.try_recv().unwrap_or_default();
        batch.clear();
        batch.extend(items.by_ref().take(BATCH));
        if batch.is_empty() || filled.send(batch).is_err() {
            return;
        }
    }
}

impl<T: Copy> Ahead<T> {
    /// Returns the next item without taking it.
    #[inline]
    pub fn peek(&mut self) -> Option<&T> {
        if self.next == self.batch.len() && !self.receive() {
            return None;
        }
        self.batch.get(self.next)
    }

    #[cold]
    fn receive(&mut self) -> bool {
        let Ok(batch) = self.ready.recv() else {
            return false;
        };
        let used = std::mem::replace(&mut self.batch, batch);
        self.next = 0;
        // At the end nobody fills the batch again.
        let _ = self.empty.send(used);
        !self.batch.is_empty()
    }
}

impl<T: Copy> Iterator for Ahead<T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        let item = *self.peek()?;
        self.next += 1;
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_come_in_order_and_the_iterator_comes_back() {
        for count in [0, 1, BATCH, BATCH + 1, 20 * BATCH + 7] {
            let (sum, mut rest) = ahead(0..count, |items| {
                let mut expected = 0;
                while let Some(item) = items.next() {
                    assert_eq!(item, expected);
                    expected += 1;
                    assert_eq!(
                        items.peek().copied(),
                        (expected < count).then_some(expected)
                    );
                }
                assert_eq!(items.next(), None);
                expected
            });
            assert_eq!(sum, count);
            assert_eq!(rest.next(), None);
        }
    }

    #[test]
    fn who_stops_early_ends_the_work() {
        let (taken, mut rest) = ahead(0_u64.., |items| items.take(3).collect::<Vec<_>>());
        assert_eq!(taken, [0, 1, 2]);
        assert!(rest.next().is_some_and(|next| next < 100 * BATCH as u64));
    }
}
