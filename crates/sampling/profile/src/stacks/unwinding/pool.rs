//! Threads that unwind batches.

use super::batch::{Batch, Work};
use dioptra_perfdata::PerfData;
use dioptra_symbols::UnwindMachine;
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, Scope};

/// A batch and its number in the order of sending.
type Numbered<'d> = (u64, Batch<'d>);

/// Threads that unwind batches, and return them in the order in which they got them.
pub(super) struct Pool<'d> {
    /// The channel to the threads. The threads end when it is dropped.
    to_do: Sender<Numbered<'d>>,
    done: Receiver<Numbered<'d>>,
    /// The reader's own state for unwinding, where there are no threads.
    alone: Option<Alone<'d>>,
    /// Batches that were sent and not received, oldest first; `None` where the batch is not done yet.
    sent: VecDeque<Option<Batch<'d>>>,
    /// The number of the oldest batch in `sent`.
    first: u64,
}

struct Alone<'d> {
    data: &'d PerfData,
    machine: Option<UnwindMachine>,
    work: Work,
}

impl<'d> Pool<'d> {
    pub(super) fn new<'s>(
        scope: &'s Scope<'s, '_>,
        data: &'d PerfData,
        machine: Option<UnwindMachine>,
        threads: usize,
    ) -> Self
    where
        'd: 's,
    {
        let (to_do, tasks) = channel::<Numbered<'d>>();
        let (finished, done) = channel();
        let tasks = Arc::new(Mutex::new(tasks));
        let mut started = 0;
        for _ in 0..threads {
            let (tasks, finished) = (tasks.clone(), finished.clone());
            let run = move || {
                let mut work = Work::default();
                loop {
                    let next = tasks.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok((number, mut batch)) = next else {
                        return;
                    };
                    batch.unwind(data, machine, &mut work);
                    if finished.send((number, batch)).is_err() {
                        return;
                    }
                }
            };
            let thread = Builder::new().name("unwind".into());
            // On a system that allows no more threads, the pool uses fewer.
            started += usize::from(thread.spawn_scoped(scope, run).is_ok());
        }
        Pool {
            to_do,
            done,
            alone: (started == 0).then(|| Alone {
                data,
                machine,
                work: Work::default(),
            }),
            sent: VecDeque::new(),
            first: 0,
        }
    }

    /// Sends a batch to be unwound.
    pub(super) fn send(&mut self, mut batch: Batch<'d>) {
        if let Some(alone) = &mut self.alone {
            batch.unwind(alone.data, alone.machine, &mut alone.work);
            self.sent.push_back(Some(batch));
            return;
        }
        let number = self.first + self.sent.len() as u64;
        self.sent.push_back(None);
        if self.to_do.send((number, batch)).is_err() {
            lost();
        }
    }

    /// Returns the number of batches that were sent and not received.
    pub(super) fn len(&self) -> usize {
        self.sent.len()
    }

    /// Waits for the oldest batch that was sent, and returns it; `None` where none was sent.
    pub(super) fn receive(&mut self) -> Option<Batch<'d>> {
        loop {
            match self.sent.front_mut() {
                None => return None,
                Some(oldest) => {
                    if let Some(batch) = oldest.take() {
                        self.sent.pop_front();
                        self.first += 1;
                        return Some(batch);
                    }
                }
            }
            let Ok((number, batch)) = self.done.recv() else {
                lost();
            };
            if let Some(place) = self.sent.get_mut((number - self.first) as usize) {
                *place = Some(batch);
            }
        }
    }
}

/// Panics because all threads ended early. They catch panics within a batch, so they do not end while the pool exists.
fn lost() -> ! {
    unreachable!("the threads that unwind stacks ended before their work")
}
