//! Computing answers on threads of their own, a few at a time, and only while somebody waits.

use crate::failure::Failure;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Semaphore;

/// A ticket tells a job whether its answer is still wanted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ticket {
    is_gone: Arc<AtomicBool>,
}

impl Ticket {
    /// Fails once nobody waits any more.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        match self.is_gone.load(Ordering::Relaxed) {
            true => Err(Failure::Gone),
            false => Ok(()),
        }
    }
}

/// Tells the job when the request is dropped, which happens when its connection ends.
struct Waiting(Ticket);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.is_gone.store(true, Ordering::Relaxed);
    }
}

/// The jobs of a server.
pub(crate) struct Jobs {
    permits: Arc<Semaphore>,
}

impl Jobs {
    /// As many jobs run at once as the machine has CPUs.
    pub(crate) fn new() -> Jobs {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Jobs {
            permits: Arc::new(Semaphore::new(cpus.max(2))),
        }
    }

    /// Runs a job. A job whose request is dropped before it began never runs; one that runs asks its ticket.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Ticket) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        let permit = permit.map_err(|error| Failure::Internal(error.to_string()))?;
        let ticket = Ticket::default();
        let waiting = Waiting(ticket.clone());
        let running = tokio::task::spawn_blocking(move || {
            let answer = ticket.check().and_then(|()| job(&ticket));
            drop(permit);
            answer
        });
        let answer = running.await;
        drop(waiting);
        // The panic's message is on standard error.
        answer.map_err(|error| Failure::Internal(error.to_string()))?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_dropped_request_stops_its_job_and_keeps_others_from_running() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_time()
            .build()
            .expect("a runtime");
        let jobs = Arc::new(Jobs {
            permits: Arc::new(Semaphore::new(1)),
        });
        let saw = Arc::new(AtomicBool::new(false));
        let ran = Arc::new(AtomicBool::new(false));
        runtime.block_on(async {
            let (saw_gone, ran_too) = (Arc::clone(&saw), Arc::clone(&ran));
            let long = jobs.run(move |ticket| {
                while ticket.check().is_ok() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                saw_gone.store(true, Ordering::Relaxed);
                Ok(())
            });
            let queued = jobs.run(move |_| {
                ran_too.store(true, Ordering::Relaxed);
                Ok(())
            });
            // Both are dropped while the first one runs.
            let both = async { tokio::join!(long, queued) };
            let ended = tokio::time::timeout(Duration::from_millis(50), both).await;
            assert!(ended.is_err());
            assert_eq!(jobs.run(|_| Ok(1)).await, Ok(1));
        });
        assert!(saw.load(Ordering::Relaxed) && !ran.load(Ordering::Relaxed));
    }

    #[test]
    fn a_panic_is_an_answer() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime");
        let answer = runtime.block_on(Jobs::new().run(|_| -> Result<(), Failure> {
            panic!("a test's");
        }));
        assert!(matches!(answer, Err(Failure::Internal(_))));
    }
}
