//! The loop that records one segment after the other.

use super::budget::{Budget, Usage};
use super::spool::{Segment, Spool};
use super::upload::{Running, Uploader};
use crate::exit::Exit;
use crate::output::say;
use crate::remedies;
use anyhow::Context;
use dioptra_perfevents::AttachSummary;
use dioptra_recorder::outcome::{Ending, Outcome, Progress};
use dioptra_recorder::sample_options::Rate;
use dioptra_recorder::{Observer, RecordError, RecordNote, RecordSpec};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The longest time to wait before a recording that failed is tried again.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// The number of different notes that are said.
const MOST_NOTES: usize = 1000;
/// The time between two looks at the signals during a pause.
const LOOKS: Duration = Duration::from_millis(100);

/// The segments to record.
pub struct Segments {
    /// The recording, without its file, frequency and duration.
    pub spec: RecordSpec,
    /// The duration of a segment.
    pub every: Duration,
    /// The number of segments after which the agent ends.
    pub most: Option<u64>,
    pub spool: Spool,
    pub budget: Budget,
    pub is_quiet: bool,
}

impl Segments {
    /// Records until a signal, the last segment, or the end of the watched processes.
    pub fn record(mut self, uploader: Option<Uploader>) -> anyhow::Result<Exit> {
        let stop = Arc::new(AtomicBool::new(false));
        let signals = [SIGINT, SIGTERM, SIGHUP].into_iter();
        for signal in signals.filter(|signal| *signal != SIGHUP || !hangups_are_ignored()) {
            signal_hook::flag::register(signal, Arc::clone(&stop)).context("receiving signals")?;
        }
        let recovered = self.spool.recover()?;
        if recovered.complete + recovered.deleted > 0 {
            say!(
                "an agent was killed here: {} of its unfinished segments can be read, {} had no samples and were deleted",
                recovered.complete,
                recovered.deleted
            );
        }
        let mut notes = Notes {
            waiting: uploader.map(|uploader| (uploader, self.spool.directory().to_owned())),
            ..Notes::default()
        };
        let (mut recorded, mut failures) = (0, 0);
        loop {
            let name = self.spool.new_name();
            let result = self.segment(&name, &mut notes);
            self.trim()?;
            let pause = match result {
                Ok(outcome) => {
                    (recorded, failures) = (recorded + 1, 0);
                    let usage = self.budget.look();
                    self.tell(recorded, &outcome, usage);
                    if let Some(uploads) = &notes.uploads {
                        uploads.look();
                    }
                    match outcome.ending {
                        Ending::Signal(_) => break,
                        _ if outcome.late_signal.is_some() => break,
                        Ending::TargetsEnded => {
                            say!("all watched processes have ended");
                            break;
                        }
                        _ => usage.pause,
                    }
                }
                // The first one shows that recording is not possible here.
                Err(error) if recorded == 0 => {
                    notes.finish();
                    say!("{}", remedies::with_remedy(&error));
                    return Ok((&error).into());
                }
                Err(error) => {
                    let wait = Duration::from_secs(1 << failures.min(6)).min(LONGEST_WAIT);
                    failures += 1;
                    say!(
                        "{}; trying again in {} s",
                        remedies::with_remedy(&error),
                        wait.as_secs()
                    );
                    wait
                }
            };
            if self.most.is_some_and(|most| recorded >= most) {
                break;
            }
            self.wait(pause, &stop);
            if stop.load(Ordering::Relaxed) {
                break;
            }
        }
        notes.finish();
        let left = self.spool.complete()?.len();
        if notes.uploaded.is_some() && left > 0 {
            say!("{left} segments stay in the spool, for the next start");
        }
        Ok(Exit::Done)
    }

    /// Records a segment, which is complete in the spool afterwards if it has samples.
    fn segment(&mut self, name: &str, notes: &mut Notes) -> Result<Outcome, RecordError> {
        self.spec.output = self.spool.unfinished(name);
        self.spec.duration = Some(self.every);
        self.spec.samples.rate = Rate::Frequency(self.budget.frequency());
        let result = dioptra_recorder::record(&self.spec, notes);
        match &result {
            Ok(outcome) if outcome.samples() > 0 => {
                if let Err(error) = self.spool.complete_segment(name) {
                    say!("{error:#}");
                }
            }
            _ => {
                let _ = std::fs::remove_file(&self.spec.output);
            }
        }
        result
    }

    /// Deletes segments for which the spool has no room.
    fn trim(&self) -> anyhow::Result<()> {
        let deleted = self.spool.trim()?;
        if !deleted.is_empty() {
            let bytes: u64 = deleted.iter().map(|segment: &Segment| segment.size).sum();
            say!(
                "the spool is full: the oldest segments were deleted ({} of them, {} KiB); give more with --max-disk",
                deleted.len(),
                bytes >> 10
            );
        }
        Ok(())
    }

    fn tell(&self, number: u64, outcome: &Outcome, usage: Usage) {
        if outcome.lost > 0 {
            say!(
                "segment {number}: {} records were lost; give a larger buffer with -m",
                outcome.lost
            );
        }
        if usage.pause > Duration::ZERO {
            say!(
                "the recorder used {:.2} % of the machine at the lowest frequency; the next segment begins in {} s",
                usage.part * 100.0,
                usage.pause.as_secs()
            );
        }
        if !self.is_quiet {
            say!(
                "segment {number}: {} samples in {:.1} s, {} KiB; the recorder used {:.2} % of the machine, {} Hz next",
                outcome.samples(),
                outcome.duration.as_secs_f64(),
                outcome.size >> 10,
                usage.part * 100.0,
                self.budget.frequency()
            );
        }
    }

    fn wait(&self, pause: Duration, stop: &AtomicBool) {
        let end = Instant::now() + pause;
        while !stop.load(Ordering::Relaxed) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(LOOKS));
        }
    }
}

/// Returns whether this process was started with SIGHUP ignored, as by `nohup`; see `proc_pid_status(5)`.
fn hangups_are_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut lines = status.lines();
    let ignored = lines.find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & 1 << (SIGHUP - 1) != 0)
}

/// The observer of recordings. It says each note once, and starts the uploads.
#[derive(Default)]
pub struct Notes {
    said: BTreeSet<String>,
    /// The uploader and the spool's directory, until the first recording runs: the recorder has blocked its signals then, and the
    /// thread that is started has them blocked, too.
    waiting: Option<(Uploader, std::path::PathBuf)>,
    uploads: Option<Running>,
    /// The number of segments that were uploaded, once the uploads have ended.
    uploaded: Option<u64>,
}

impl Notes {
    /// Lets the uploads end.
    fn finish(&mut self) {
        self.uploaded = self.uploads.take().map(Running::finish);
    }
}

impl Observer for Notes {
    fn note(&mut self, note: &RecordNote) {
        let note = remedies::of_record_note(note);
        if self.said.len() < MOST_NOTES && self.said.insert(note.clone()) {
            say!("{note}");
        }
    }

    fn attached(&mut self, _summary: &AttachSummary) {
        if let Some((uploader, directory)) = self.waiting.take() {
            match uploader.start(directory) {
                Ok(running) => self.uploads = Some(running),
                Err(error) => say!("starting a thread: {error}; nothing is uploaded"),
            }
        }
    }

    fn progress(&mut self, _progress: Progress) {}

    fn waiting(&mut self, _failure: Option<&RecordError>) {}
}
