//! A session on a thread of its own: the easy way for a program that profiles itself.

use crate::attach::AttachSummary;
use crate::errors::{AttachError, RunError};
use crate::listener::RecordListener;
use crate::owner::Owner;
use crate::session::{AttachedSession, Session};
use crate::spec::SessionSpec;
use crate::stop::StopHandle;
use crate::summary::Summary;
use crate::sys;
use std::os::fd::{AsFd, OwnedFd};
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
    requests: mpsc::Sender<Request>,
    /// Wakes the session's thread for a request.
    wake: OwnedFd,
    thread: Option<JoinHandle<Ended<L>>>,
    owner: Owner,
}

type Ended<L> = (L, Summary, Result<(), RunError>);

/// A request to the thread that runs the session, with the channel for its answer.
#[derive(Debug)]
enum Request {
    Pause(mpsc::Sender<Result<(), RunError>>),
    Resume(mpsc::Sender<Result<(), RunError>>),
    Summary(mpsc::Sender<Summary>),
}

impl Request {
    /// Does what is asked for. Nobody waits for the answer any more where the caller was unwound.
    fn serve(self, session: &mut AttachedSession) {
        match self {
            Request::Pause(answer) => drop(answer.send(session.disable())),
            Request::Resume(answer) => drop(answer.send(session.enable())),
            Request::Summary(answer) => drop(answer.send(session.summary().clone())),
        }
    }
}

impl Session {
    /// Starts a thread that attaches a session of `spec` and runs it; returns when it is attached.
    ///
    /// # Errors
    /// [`AttachError`], [`AttachError::Thread`] where the thread can't be started.
    pub fn spawn<L>(spec: SessionSpec, listener: L) -> Result<RunningSession<L>, AttachError>
    where
        L: RecordListener + Send + 'static,
    {
        let session = Session::new(spec)?;
        let stop = session.stop_handle();
        let wake = sys::eventfd().map_err(AttachError::Wakeup)?;
        let woken = wake.try_clone().map_err(AttachError::Wakeup)?;
        let (requests, asked) = mpsc::channel::<Request>();
        let (report, reported) = mpsc::channel();
        let body = move || {
            let mut listener = listener;
            let mut session = match session.attach() {
                Ok(session) => session,
                Err(error) => {
                    drop(report.send(Err(error)));
                    return (listener, Summary::default(), Ok(()));
                }
            };
            // Nobody listens where the caller was unwound: then there is nothing to do either.
            if report.send(Ok(session.attach_summary().clone())).is_err() {
                return (listener, Summary::default(), Ok(()));
            }
            let mut attend = |session: &mut AttachedSession| {
                sys::eventfd_clear(woken.as_fd());
                while let Ok(request) = asked.try_recv() {
                    request.serve(session);
                }
            };
            let result = session.run_attended(&mut listener, &[woken.as_fd()], &mut attend);
            let summary = session.summary().clone();
            (listener, summary, result)
        };
        let thread = std::thread::Builder::new()
            .name("perf-events".to_owned())
            .spawn(body)
            .map_err(AttachError::Thread)?;
        let attached = reported
            .recv()
            .map_err(|_| AttachError::Thread(std::io::ErrorKind::Other.into()))??;
        Ok(RunningSession {
            attached,
            stop,
            requests,
            wake,
            thread: Some(thread),
            owner: Owner::this_process(),
        })
    }
}

impl<L> RunningSession<L> {
    /// Returns the report of attaching.
    pub fn attached(&self) -> &AttachSummary {
        &self.attached
    }

    /// Counts the samples, losses and events until now: the live totals. Waits for the listener to finish its round.
    ///
    /// # Errors
    /// [`RunError::Ended`] after the session's end, [`RunError::OtherProcess`] in a forked child.
    pub fn summary(&self) -> Result<Summary, RunError> {
        self.ask(Request::Summary)
    }

    /// Disables all events until [`RunningSession::resume`]. Samples taken before are still delivered.
    ///
    /// # Errors
    /// As [`RunningSession::summary`], and the kernel's refusal.
    pub fn pause(&self) -> Result<(), RunError> {
        self.ask(Request::Pause)?
    }

    /// Enables all events again.
    ///
    /// # Errors
    /// As [`RunningSession::pause`].
    pub fn resume(&self) -> Result<(), RunError> {
        self.ask(Request::Resume)?
    }

    /// Sends a request to the session's thread and waits for the answer.
    fn ask<T>(&self, request: impl FnOnce(mpsc::Sender<T>) -> Request) -> Result<T, RunError> {
        if !self.owner.is_this_process() {
            return Err(RunError::OtherProcess);
        }
        let (answer, answered) = mpsc::channel();
        self.requests
            .send(request(answer))
            .map_err(|_| RunError::Ended)?;
        sys::eventfd_signal(self.wake.as_fd());
        // The thread drops requests that it has not served when it ends.
        answered.recv().map_err(|_| RunError::Ended)
    }

    /// Ends the session and returns the listener and the totals.
    ///
    /// # Errors
    /// [`RunError`]; [`RunError::Listener`] where the listener panicked, [`RunError::OtherProcess`] in a forked child.
    pub fn stop(mut self) -> Result<(L, Summary), RunError> {
        if !self.owner.is_this_process() {
            return Err(RunError::OtherProcess);
        }
        self.stop.stop();
        let Some(thread) = self.thread.take() else {
            return Err(RunError::Ended);
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
