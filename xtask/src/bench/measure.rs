//! Runs one command under limits and measures what it took, as the kernel accounts it.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// The address space that peers may use, in bytes: enough for a tool that copes with its input.
const ADDRESS_SPACE: libc::rlim_t = 12 << 30;
/// The longest time that a command may run.
pub const TIME_LIMIT: Duration = Duration::from_secs(120);

/// One run of a command.
#[derive(Debug, Clone)]
pub struct Run {
    /// User and system time, of the command and the children it waited for, in seconds.
    pub cpu: f64,
    /// From start to end, in seconds.
    pub wall: f64,
    /// Largest resident set in bytes (never below this process's own when it started the command).
    pub peak: u64,
    /// Why the command did not finish; `None` if it did.
    pub failure: Option<String>,
}

/// A command that has been started, with nothing on its standard input.
pub struct Started {
    child: Child,
    start: Instant,
    stderr: File,
}

/// Starts a command under the limits; its output is thrown away, its messages are kept.
pub fn start(command: &mut Command) -> io::Result<Started> {
    start_into(command, Stdio::null())
}

/// Starts a command under the limits; its output goes to `stdout`, its messages are kept.
pub fn start_into(command: &mut Command, stdout: Stdio) -> io::Result<Started> {
    let stderr = tempfile::tempfile()?;
    command
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(stderr.try_clone()?);
    // SAFETY: between fork and exec only setrlimit is called, which is async-signal-safe, on a value of its own.
    unsafe {
        command.pre_exec(|| {
            let limit = libc::rlimit {
                rlim_cur: ADDRESS_SPACE,
                rlim_max: ADDRESS_SPACE,
            };
            if libc::setrlimit(libc::RLIMIT_AS, &raw const limit) != 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        });
    }
    let start = Instant::now();
    let child = command.spawn()?;
    Ok(Started {
        child,
        start,
        stderr,
    })
}

impl Started {
    /// The end of its output to read from, once, if that is a pipe.
    pub fn stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Sends a signal to the command (not to its children).
    pub fn signal(&self, signal: libc::c_int) {
        // SAFETY: the child has not been waited for, so the pid is still its own.
        unsafe { libc::kill(self.pid(), signal) };
    }

    /// Waits for the end, for as long as the time limit leaves, else kills the command.
    ///
    /// `complaints`: texts in its messages that mean that it gave up, whatever its exit status.
    pub fn finish(self, complaints: &[&str]) -> io::Result<Run> {
        self.finish_within(TIME_LIMIT, complaints)
    }

    /// Waits for the end as [`Started::finish`], but for another time than [`TIME_LIMIT`].
    pub fn finish_within(mut self, limit: Duration, complaints: &[&str]) -> io::Result<Run> {
        let timed_out = !self.wait_until(self.start + limit)?;
        if timed_out {
            self.signal(libc::SIGKILL);
        }
        let mut status = 0;
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        loop {
            // SAFETY: both pointers are to live, writable values of the right types; the pid is our unwaited child.
            let pid = unsafe { libc::wait4(self.pid(), &raw mut status, 0, usage.as_mut_ptr()) };
            if pid >= 0 {
                break;
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        let wall = self.start.elapsed().as_secs_f64();
        // SAFETY: rusage holds only integers, for which the zeroes it began with are valid too.
        let usage = unsafe { usage.assume_init() };
        let mut messages = Vec::new();
        self.stderr.rewind()?;
        self.stderr.read_to_end(&mut messages)?;
        let stderr = String::from_utf8_lossy(&messages).into_owned();
        let failure = if timed_out {
            Some(format!("not done after {} s", limit.as_secs()))
        } else {
            why_failed(status, &stderr, complaints)
        };
        Ok(Run {
            cpu: seconds(usage.ru_utime) + seconds(usage.ru_stime),
            wall,
            peak: u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024,
            failure,
        })
    }

    fn pid(&self) -> libc::pid_t {
        // A pid is at most 2^22, so it fits.
        self.child.id() as libc::pid_t
    }

    /// Whether the child ended before the deadline; it is not reaped.
    fn wait_until(&self, deadline: Instant) -> io::Result<bool> {
        // SAFETY: pidfd_open takes two integers; what it returns is checked below.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, self.pid(), 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call returned this new descriptor (which fits an int), owned by nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) };
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let mut poll = libc::pollfd {
                fd: fd.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            let milliseconds = libc::c_int::try_from(left.as_millis()).unwrap_or(libc::c_int::MAX);
            // SAFETY: one valid pollfd, as the count says.
            match unsafe { libc::poll(&raw mut poll, 1, milliseconds) } {
                0 => return Ok(false),
                n if n > 0 => return Ok(true),
                _ => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
            }
        }
    }
}

fn seconds(time: libc::timeval) -> f64 {
    time.tv_sec as f64 + time.tv_usec as f64 / 1e6
}

fn why_failed(status: libc::c_int, stderr: &str, complaints: &[&str]) -> Option<String> {
    let complaint = stderr
        .lines()
        .find(|line| complaints.iter().any(|c| line.contains(c)));
    let what = if libc::WIFSIGNALED(status) {
        format!("killed by signal {}", libc::WTERMSIG(status))
    } else if libc::WEXITSTATUS(status) != 0 {
        format!("exit status {}", libc::WEXITSTATUS(status))
    } else {
        return complaint.map(|line| line.trim().to_string());
    };
    let line = complaint
        .or_else(|| stderr.lines().find(|l| !l.trim().is_empty()))
        .unwrap_or_default();
    Some(format!("{what}: {}", line.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, complaints: &[&str]) -> Run {
        start(Command::new("sh").args(["-c", script]))
            .unwrap()
            .finish(complaints)
            .unwrap()
    }

    #[test]
    fn counts_the_children_that_were_waited_for() {
        // Half a million turns of a shell's loop take far more than 10 ms on any machine.
        let run = shell(
            "sh -c 'i=0; while [ $i -lt 500000 ]; do i=$((i+1)); done'; exit 0",
            &[],
        );
        assert_eq!(run.failure, None);
        assert!(run.cpu > 0.01, "{run:?}");
        assert!(run.peak > 100_000, "{run:?}");
    }

    #[test]
    fn failures_are_named() {
        assert_eq!(
            shell("echo no such file >&2; exit 3", &[]).failure.unwrap(),
            "exit status 3: no such file"
        );
        assert_eq!(
            shell("kill -9 $$", &[]).failure.unwrap(),
            "killed by signal 9: "
        );
        assert_eq!(
            shell("echo cannot allocate >&2", &["cannot"])
                .failure
                .unwrap(),
            "cannot allocate"
        );
        assert_eq!(shell("echo all is well >&2", &["cannot"]).failure, None);
    }

    #[test]
    fn the_address_space_is_limited() {
        let limit = format!("exit status 1: {}", ADDRESS_SPACE / 1024);
        assert_eq!(shell("ulimit -v >&2; exit 1", &[]).failure.unwrap(), limit);
    }
}
