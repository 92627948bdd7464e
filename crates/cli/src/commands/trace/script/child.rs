//! The process that runs a script.

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{FdFlags, fcntl_setfd, ioctl_fionbio};
use std::io::{self, ErrorKind, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};

const DRIVER: &str = include_str!("driver.py");

/// The time between two looks whether the process still runs, in milliseconds.
const LOOK: i64 = 100;

/// The argument of `uftrace_begin`.
#[derive(serde::Serialize)]
pub struct About<'a> {
    pub record: bool,
    pub version: &'a str,
    pub cmds: Vec<String>,
}

/// The functions that a script has.
#[derive(Debug, Default, serde::Deserialize)]
pub struct Answer {
    /// `entry`, `exit` and `event`, if the script has them.
    pub hooks: Vec<String>,
    /// The patterns of `UFTRACE_FUNCS`.
    pub functions: Vec<String>,
}

/// A script's process.
pub struct Script {
    child: Child,
    calls: Option<PipeWriter>,
    answers: PipeReader,
}

impl Script {
    /// Starts a script under an interpreter.
    pub fn start(python: &Path, script: &Path) -> anyhow::Result<Script> {
        let (calls_end, calls) = io::pipe().context("making a pipe to the script")?;
        let (answers, answers_end) = io::pipe().context("making a pipe from the script")?;
        for end in [calls_end.as_fd(), answers_end.as_fd()] {
            fcntl_setfd(end, FdFlags::empty()).context("passing a pipe to the script")?;
        }
        // A script that has ended must not keep us waiting because a process of its own still has the pipe.
        ioctl_fionbio(&calls, true).context("making a pipe to the script")?;
        let child = Command::new(python)
            .args(["-c", DRIVER])
            .arg(calls_end.as_raw_fd().to_string())
            .arg(answers_end.as_raw_fd().to_string())
            .arg(script)
            .spawn()
            .with_context(|| {
                format!(
                    "{}: scripts run in Python 3; install it, or name it with --python",
                    python.display()
                )
            })?;
        Ok(Script {
            child,
            calls: Some(calls),
            answers,
        })
    }

    /// Writes the argument of `uftrace_begin`, and returns the script's answer; none if the script ended before.
    pub fn begin(&mut self, about: &About<'_>) -> anyhow::Result<Option<Answer>> {
        let mut line = serde_json::to_vec(about)?;
        line.push(b'\n');
        if let Err(error) = self.write_all(&line) {
            return match has_ended(&error) {
                true => Ok(None),
                false => Err(error).context("writing to the script"),
            };
        }
        let mut answer = Vec::new();
        loop {
            if !wait(&mut self.child, self.answers.as_fd(), PollFlags::IN)? {
                return Ok(None);
            }
            let mut part = [0; 4096];
            match self.answers.read(&mut part) {
                Ok(0) => return Ok(None),
                Ok(read) => answer.extend_from_slice(&part[..read]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("reading from the script"),
            }
            if answer.ends_with(b"\n") {
                let answer = serde_json::from_slice(&answer);
                return Ok(Some(answer.context("reading from the script")?));
            }
        }
    }

    /// Waits for the end of the script, after all calls were written.
    pub fn end(mut self) -> anyhow::Result<ExitStatus> {
        self.calls = None;
        self.child.wait().context("waiting for the script")
    }
}

/// Returns whether an error of writing says that the script has ended, or reads no more.
pub fn has_ended(error: &io::Error) -> bool {
    error.kind() == ErrorKind::BrokenPipe
}

/// Waits until a pipe is ready. Returns false if it is not, and the process has ended.
fn wait(child: &mut Child, pipe: BorrowedFd<'_>, flags: PollFlags) -> io::Result<bool> {
    loop {
        let ended = child.try_wait()?.is_some();
        let time = Timespec {
            tv_sec: 0,
            tv_nsec: if ended { 0 } else { LOOK * 1_000_000 },
        };
        let mut ready = [PollFd::from_borrowed_fd(pipe, flags)];
        match poll(&mut ready, Some(&time)) {
            Ok(0) if ended => return Ok(false),
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
    }
}

impl Write for Script {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Script { child, calls, .. } = self;
        let calls = calls.as_mut().ok_or(ErrorKind::BrokenPipe)?;
        loop {
            match calls.write(bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if !wait(child, calls.as_fd(), PollFlags::OUT)? {
                        return Err(ErrorKind::BrokenPipe.into());
                    }
                }
                written => return written,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
