//! A thread that ensures that no signal that asks for an end is ignored for longer than a second.
//!
//! The recorder reads its signals between two rounds of its loop. Before and after the loop it does not read them:
//! while it attaches to many threads, or while nobody reads the pipe that it writes to. Where a signal waits and the
//! recorder gets on, the user learns that the recorder will end. Where the recorder is stuck, the signal has its
//! default effect; the part of the file that was written by then can be read.

use std::io;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The time between two looks.
const LOOK: Duration = Duration::from_millis(200);

/// The time that a signal may wait before the user learns of it, or the recorder is ended.
const PATIENCE: Duration = Duration::from_millis(800);

/// The time that a recorder that runs, but writes nothing, may let a signal wait before it is ended.
const LONG_PATIENCE: Duration = Duration::from_secs(5);

/// The state that the watched thread and the watchdog share.
#[derive(Debug, Default)]
struct Shared {
    quit: AtomicBool,
    /// The process id of the command to which a signal is passed on; 0 for none.
    command: AtomicI32,
}

/// The handle of the watchdog's thread, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Watchdog {
    shared: Arc<Shared>,
    /// The number of bytes written so far, or any other number that grows while the recorder gets on.
    pub progress: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Starts the thread, which watches the calling one. The signals in `set` are blocked in all threads by now, and
    /// the caller reads them. `tell` is called with a signal that the recorder will obey later.
    ///
    /// # Errors
    /// The error of starting a thread.
    pub fn start(set: libc::sigset_t, tell: Option<fn(i32)>) -> io::Result<Watchdog> {
        Watchdog::watch(set, tell, Arc::new(AtomicU64::new(0)))
    }

    /// Starts the thread as [`Watchdog::start`] does, for a recorder whose progress is `progress`.
    ///
    /// # Errors
    /// The error of starting a thread.
    pub fn watch(
        set: libc::sigset_t,
        tell: Option<fn(i32)>,
        progress: Arc<AtomicU64>,
    ) -> io::Result<Watchdog> {
        let shared = Arc::new(Shared::default());
        // SAFETY: no arguments.
        let watched = unsafe { libc::gettid() };
        let mut watch = Watch {
            set,
            watched,
            tell,
            shared: Arc::clone(&shared),
            progress: Arc::clone(&progress),
            waiting: None,
        };
        let thread = std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                while !watch.shared.quit.load(Ordering::Relaxed) {
                    std::thread::park_timeout(LOOK);
                    watch.look();
                }
            })?;
        Ok(Watchdog {
            shared,
            progress,
            thread: Some(thread),
        })
    }

    /// Sets the command to which a signal is passed on; `None` once it has ended.
    pub fn command(&self, pid: Option<u32>) {
        let pid = pid.map_or(0, u32::cast_signed);
        self.shared.command.store(pid, Ordering::Relaxed);
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.shared.quit.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // The panic hook has reported a panic of the thread.
            let _ = thread.join();
        }
    }
}

/// The state of the watchdog's thread.
struct Watch {
    set: libc::sigset_t,
    watched: i32,
    tell: Option<fn(i32)>,
    shared: Arc<Shared>,
    progress: Arc<AtomicU64>,
    /// The waiting signal, if there is one.
    waiting: Option<Waiting>,
}

/// A signal that waits to be read by the recorder.
struct Waiting {
    since: Instant,
    /// The progress at the last look at which it had changed; `moved_at` is the time of that look.
    progress: u64,
    moved_at: Instant,
    told: bool,
}

impl Watch {
    fn look(&mut self) {
        let Some(signal) = self.pending() else {
            self.waiting = None;
            return;
        };
        let progress = self.progress.load(Ordering::Relaxed);
        let now = Instant::now();
        let waiting = self.waiting.get_or_insert(Waiting {
            since: now,
            progress,
            moved_at: now,
            told: false,
        });
        if progress != waiting.progress {
            waiting.progress = progress;
            waiting.moved_at = now;
        }
        if waiting.since.elapsed() < PATIENCE {
            return;
        }
        let writes = waiting.moved_at.elapsed() < PATIENCE;
        let runs = waiting.since.elapsed() < LONG_PATIENCE && is_running(self.watched);
        if !writes && !runs {
            self.end();
        } else if !waiting.told {
            waiting.told = true;
            if let Some(tell) = self.tell {
                tell(signal);
            }
        }
    }

    /// Returns a signal that asks for an end and that nobody has read yet.
    fn pending(&self) -> Option<i32> {
        // SAFETY: the set is initialised by the call before it is read; the signals' numbers are valid.
        unsafe {
            let mut pending = std::mem::zeroed();
            if libc::sigpending(&raw mut pending) != 0 {
                return None;
            }
            [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT]
                .into_iter()
                .find(|signal| {
                    libc::sigismember(&raw const pending, *signal) == 1
                        && libc::sigismember(&raw const self.set, *signal) == 1
                })
        }
    }

    /// Gives the waiting signal its default effect, which ends this process.
    fn end(&self) {
        // SAFETY: sets and times are live locals, filled before they are read.
        unsafe {
            let mut set = self.set;
            libc::sigdelset(&raw mut set, libc::SIGCHLD);
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let now: libc::timespec = std::mem::zeroed();
            let signal = libc::sigtimedwait(&raw const set, &raw mut info, &raw const now);
            if signal <= 0 {
                // The recorder has read the signal after all.
                return;
            }
            let command = self.shared.command.load(Ordering::Relaxed);
            // A signal from the terminal has reached the command already.
            if info.si_code <= 0 && is_child(command) {
                libc::kill(command, signal);
            }
            libc::signal(signal, libc::SIG_DFL);
            libc::sigemptyset(&raw mut set);
            libc::sigaddset(&raw mut set, signal);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, ptr::null_mut());
            libc::raise(signal);
        }
    }
}

/// Returns whether a process id is still that of a child of ours. The child may have been waited for meanwhile.
fn is_child(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name, in parentheses, may hold anything; the state and the parent follow it.
    let rest = stat.rsplit_once(") ").map(|(_, rest)| rest);
    let parent = rest.and_then(|rest| rest.split(' ').nth(1)?.parse().ok());
    pid > 0 && parent == Some(std::process::id())
}

/// Returns whether a thread of this process runs or waits for a CPU, rather than for something else.
fn is_running(tid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap_or_default();
    // The name, in parentheses, may hold anything.
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| rest.starts_with('R'))
}
