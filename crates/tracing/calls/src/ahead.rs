//! Decoding ahead, on another CPU.

use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

/// How many items are handed over at a time: about as many as a CPU's second cache holds.
const BATCH: usize = 2048;
/// How many batches may wait.
const BATCHES: usize = 4;

/// Items that another thread makes ahead: an iterator.
pub struct Ahead<T> {
    ready: Receiver<Vec<T>>,
    /// Where batches go that are to be filled again.
    empty: Sender<Vec<T>>,
    batch: Vec<T>,
    next: usize,
}

/// Lets `consume` have the items of an iterator that runs in a thread of its own; returns what it returned, and the
/// iterator. If it takes fewer items than there are, the iterator stops somewhere behind them.
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
        // Who waits to hand over a batch learns that nobody takes it.
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
    /// What comes next, without taking it.
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
        // At the end nobody fills it again.
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
