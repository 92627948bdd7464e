//! A session on a thread of its own: the easy way for a program that profiles itself.

use crate::attach::AttachSummary;
use crate::errors::{AttachError, RunError};
use crate::listener::RecordListener;
use crate::owner::Owner;
use crate::session::Session;
use crate::spec::SessionSpec;
use crate::stop::StopHandle;
use crate::summary::Summary;
use std::sync::mpsc;
use std::thread::JoinHandle;

/// A session that runs on its own thread, which is not watched. Dropping it stops the session and waits for its end.
///
/// The session belongs to the process that made it: in a forked child, which has no such thread, stopping is an error
/// and dropping leaves the session alone.
#[derive(Debug)]
pub struct RunningSession<L> {
    attached: AttachSummary,
    stop: StopHandle,
    thread: Option<JoinHandle<Ended<L>>>,
    owner: Owner,
}

type Ended<L> = (L, Summary, Result<(), RunError>);

impl Session {
    /// Starts a thread that attaches a session of `spec` and runs it; returns when it is attached.
    ///
    /// # Errors
    /// [`AttachError`], [`AttachError::Thread`] where the thread can't be started.
    pub fn spawn<L>(spec: SessionSpec, listener: L) -> Result<RunningSession<L>, AttachError>
    where
        L: RecordListener + Send + 'static,
    {
        let mut session = Session::new(spec)?;
        let stop = session.stop_handle();
        let (tell, told) = mpsc::channel();
        let body = move || {
            let mut listener = listener;
            let attached = session.attach();
            let failed = attached.is_err();
            // Nobody listens where the caller was unwound: then nothing is to be done either.
            if tell.send(attached).is_err() || failed {
                return (listener, Summary::default(), Ok(()));
            }
            let result = session.run(&mut listener);
            let summary = session.summary().clone();
            (listener, summary, result)
        };
        let thread = std::thread::Builder::new()
            .name("perf-events".to_owned())
            .spawn(body)
            .map_err(AttachError::Thread)?;
        let attached = told
            .recv()
            .map_err(|_| AttachError::Thread(std::io::ErrorKind::Other.into()))??;
        Ok(RunningSession {
            attached,
            stop,
            thread: Some(thread),
            owner: Owner::this_process(),
        })
    }
}

impl<L> RunningSession<L> {
    /// What attaching did.
    pub fn attached(&self) -> &AttachSummary {
        &self.attached
    }

    /// Ends the session: the listener, with all it was told, and the totals.
    ///
    /// # Errors
    /// [`RunError`]; [`RunError::Listener`] where the listener panicked, [`RunError::OtherProcess`] in a forked child.
    pub fn stop(mut self) -> Result<(L, Summary), RunError> {
        if !self.owner.is_this_process() {
            return Err(RunError::OtherProcess);
        }
        self.stop.stop();
        let Some(thread) = self.thread.take() else {
            return Err(RunError::NotAttached);
        };
        let (listener, summary, result) = thread.join().map_err(|_| RunError::Listener)?;
        result.map(|()| (listener, summary))
    }
}

impl<L> Drop for RunningSession<L> {
    fn drop(&mut self) {
        let thread = self.thread.take();
        if !self.owner.is_this_process() {
            // A fork copies one thread: there is nothing to wait for, and nothing that may be detached.
            std::mem::forget(thread);
            return;
        }
        self.stop.stop();
        if let Some(thread) = thread {
            // A panic of the listener was reported by the panic hook.
            let _ = thread.join();
        }
    }
}
