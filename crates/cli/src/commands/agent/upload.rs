//! The thread that hands complete segments to the upload command.
//!
//! A command that fails is tried again, later each time. If it takes some segments and refuses one again and again, that
//! one is set aside, so that it does not hold up the others.

use super::spool::{self, Segment};
use crate::commands::store::store_program;
use crate::output::say;
use anyhow::bail;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The most segments of one command.
const BATCH: usize = 16;
/// The number of times that a segment may be refused while others are taken. A network that fails now and then must not
/// set good segments aside.
const STRIKES: u32 = 8;
/// The longest time between two tries.
const LONGEST_WAIT: Duration = Duration::from_secs(300);
/// The time that uploads may take at the agent's end.
const LAST_TRY: Duration = Duration::from_secs(10);
/// The time between two looks at a running command.
const LOOKS: Duration = Duration::from_millis(20);

/// A command that takes files as its last arguments.
#[derive(Clone, Debug)]
pub struct UploadCommand {
    words: Vec<OsString>,
}

impl UploadCommand {
    /// Returns the command that adds profiles to a store.
    pub fn of_store(store: &str, service: Option<&str>) -> anyhow::Result<UploadCommand> {
        let mut words = vec![
            store_program()?.into_os_string(),
            "add".into(),
            "--to".into(),
            store.into(),
        ];
        if let Some(service) = service {
            words.extend(["--service".into(), service.into()]);
        }
        // A recording that was cut off does not name its machine.
        if let Ok(host) = fs::read_to_string("/proc/sys/kernel/hostname") {
            words.extend(["--host".into(), host.trim().into()]);
        }
        Ok(UploadCommand { words })
    }

    /// Splits a command at spaces.
    pub fn parse(text: &str) -> anyhow::Result<UploadCommand> {
        let words: Vec<OsString> = text.split_whitespace().map(OsString::from).collect();
        if words.is_empty() {
            bail!("--upload: the command is empty");
        }
        Ok(UploadCommand { words })
    }

    /// Hands files to the command, and waits for its end.
    fn run(&self, files: &[Segment], end: impl Fn(Instant) -> Instant) -> Result<(), String> {
        let [program, arguments @ ..] = &self.words[..] else {
            return Err("there is no command".to_owned());
        };
        let mut command = Command::new(program);
        command
            .args(arguments)
            .args(files.iter().map(|file| &file.path));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = command
            .spawn()
            .map_err(|error| format!("{}: {error}", program.to_string_lossy()))?;
        let began = Instant::now();
        loop {
            match child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(status.to_string()),
                Err(error) => return Err(error.to_string()),
                Ok(None) if Instant::now() >= end(began) => {
                    // The command may have ended by itself just now.
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(format!("not ended after {} s", began.elapsed().as_secs()));
                }
                Ok(None) => std::thread::sleep(LOOKS),
            }
        }
    }
}

impl fmt::Display for UploadCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<_> = self
            .words
            .iter()
            .map(|word| word.to_string_lossy())
            .collect();
        f.write_str(&words.join(" "))
    }
}

/// Uploads that have not begun.
#[derive(Debug)]
pub struct Uploader {
    command: UploadCommand,
    /// The longest time that the command may take.
    timeout: Duration,
    /// Seconds to wait for each second of CPU time that the command used.
    pace: f64,
}

/// Uploads that go on.
#[derive(Debug)]
pub struct Running {
    thread: JoinHandle<u64>,
    wake: Sender<()>,
    stop_at: Arc<OnceLock<Instant>>,
}

impl Running {
    /// Lets the thread look for new segments.
    pub fn look(&self) {
        // The thread listens until the sender is dropped.
        let _ = self.wake.send(());
    }

    /// Tries once more to upload everything, for a few seconds. Returns the number of uploaded segments.
    pub fn finish(self) -> u64 {
        let _ = self.stop_at.set(Instant::now() + LAST_TRY);
        drop(self.wake);
        // The panic hook has reported a panic of the thread.
        self.thread.join().unwrap_or_default()
    }
}

impl Uploader {
    pub fn new(command: UploadCommand, timeout: Duration, pace: f64) -> Uploader {
        Uploader {
            command,
            timeout,
            pace,
        }
    }

    /// Starts the thread that uploads the segments of a spool.
    pub fn start(self, directory: PathBuf) -> io::Result<Running> {
        let (wake, woken) = channel();
        let stop_at = Arc::new(OnceLock::new());
        let uploads = Uploads {
            uploader: self,
            directory,
            stop_at: Arc::clone(&stop_at),
            next_try: Instant::now(),
            failures: 0,
            strikes: BTreeMap::new(),
            uploaded: 0,
        };
        let thread = std::thread::Builder::new()
            .name("upload".to_owned())
            .spawn(move || uploads.run(&woken))?;
        Ok(Running {
            thread,
            wake,
            stop_at,
        })
    }
}

struct Uploads {
    uploader: Uploader,
    directory: PathBuf,
    /// The time at which the agent ends.
    stop_at: Arc<OnceLock<Instant>>,
    next_try: Instant,
    /// The number of failed tries since the last success.
    failures: u32,
    /// The number of times that each segment was refused while others were taken.
    strikes: BTreeMap<PathBuf, u32>,
    uploaded: u64,
}

impl Uploads {
    fn run(mut self, woken: &Receiver<()>) -> u64 {
        loop {
            let now = Instant::now();
            let has_more = now >= self.next_try && self.round();
            let wait = match has_more {
                true => self.next_try.saturating_duration_since(Instant::now()),
                // An agent that was started finds the segments of the one before, too.
                false => self
                    .next_try
                    .saturating_duration_since(now)
                    .max(Duration::from_secs(1)),
            };
            match woken.recv_timeout(wait) {
                Ok(()) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        while self.stop_at.get().is_some_and(|end| Instant::now() < *end) && self.failures == 0 {
            if !self.round() {
                break;
            }
        }
        self.uploaded
    }

    /// Uploads the oldest segments. Returns whether there were some.
    fn round(&mut self) -> bool {
        let segments = match spool::complete_in(&self.directory) {
            Ok(segments) => segments,
            Err(error) => {
                say!("{error:#}");
                return false;
            }
        };
        let batch = &segments[..segments.len().min(BATCH)];
        if batch.is_empty() {
            return false;
        }
        let before = children_time();
        let result = self.upload(batch);
        let result = match result {
            // Some of them may be at fault.
            Err(_) if batch.len() > 1 && self.failures > 0 => self.upload_each(batch),
            result => result,
        };
        let used = children_time().saturating_sub(before);
        let wait = match result {
            Ok(()) => {
                if self.failures > 0 {
                    say!("uploads succeed again");
                }
                self.failures = 0;
                used.mul_f64(self.uploader.pace)
            }
            Err(reason) => {
                let wait = Duration::from_secs(1 << self.failures.min(9)).min(LONGEST_WAIT);
                self.failures += 1;
                say!(
                    "`{}` failed: {reason}; {} segments wait, the next try is in {} s",
                    self.uploader.command,
                    segments.len(),
                    wait.as_secs()
                );
                wait
            }
        };
        self.next_try = Instant::now() + wait;
        true
    }

    fn upload(&mut self, batch: &[Segment]) -> Result<(), String> {
        let timeout = self.uploader.timeout;
        let stop_at = &self.stop_at;
        let end = |began: Instant| {
            let end = began + timeout;
            stop_at.get().map_or(end, |stop_at| end.min(*stop_at))
        };
        self.uploader.command.run(batch, end)?;
        for segment in batch {
            // The spool may have deleted the file for room.
            let _ = fs::remove_file(&segment.path);
            self.strikes.remove(&segment.path);
            self.uploaded += 1;
        }
        Ok(())
    }

    /// Uploads one segment after the other. Succeeds if any upload does, and sets segments aside that are refused again and
    /// again.
    fn upload_each(&mut self, batch: &[Segment]) -> Result<(), String> {
        let mut refused = Vec::new();
        for segment in batch {
            if let Err(reason) = self.upload(std::slice::from_ref(segment)) {
                refused.push((&segment.path, reason));
            }
        }
        match refused.first() {
            Some((_, reason)) if refused.len() == batch.len() => return Err(reason.clone()),
            _ => {}
        }
        for (path, reason) in refused {
            let strikes = self.strikes.entry(path.clone()).or_default();
            *strikes += 1;
            if *strikes >= STRIKES {
                self.strikes.remove(path);
                set_aside(path, &reason);
            }
        }
        Ok(())
    }
}

fn set_aside(path: &Path, reason: &str) {
    match spool::refuse(path) {
        Ok(to) => say!(
            "{} is refused ({reason}), and set aside as {}",
            path.display(),
            to.display()
        ),
        Err(error) => say!("{}: {error}", path.display()),
    }
}

/// Returns the CPU time of the commands that have ended.
///
/// `/proc/self/stat` has it in its fields 16 and 17, in hundredths of a second; see `proc_pid_stat(5)`.
fn children_time() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let Some((_, fields)) = stat.rsplit_once(')') else {
        return Duration::ZERO;
    };
    let ticks: u64 = fields
        .split_whitespace()
        .skip(13)
        .take(2)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum();
    Duration::from_millis(ticks * 10)
}
