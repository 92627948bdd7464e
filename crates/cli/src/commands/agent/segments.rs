//! The loop that records one segment after the other.

use super::budget::{Budget, Usage};
use super::spool::{self, Segment, Spool};
use super::upload::{Running, Uploader};
use crate::exit::Exit;
use crate::output::say;
use crate::remedies;
use anyhow::Context;
use dioptra_perfevents::AttachSummary;
use dioptra_recorder::outcome::{Ending, Outcome, Progress};
use dioptra_recorder::sample_options::Rate;
use dioptra_recorder::{Observer, Prepared, RecordError, RecordNote, RecordSpec};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The longest time to wait before a recording that failed is tried again.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// The number of different notes that are said.
const MOST_NOTES: usize = 1000;
/// The time before a segment's end at which the next one is prepared.
const AHEAD: Duration = Duration::from_secs(2);
/// Bytes that a segment may grow by at its end: descriptions, and records that waited in the rings.
const AT_THE_END: u64 = 512 << 10;
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
        let mut next = None;
        let mut ended_at = None;
        loop {
            let is_last = self.most.is_some_and(|most| recorded + 1 >= most);
            let result = self.segment(next.take(), is_last, &mut notes);
            self.spool.trim(0).map(|deleted| tell_deleted(&deleted))?;
            let pause = match result {
                Ok(Segmented {
                    outcome,
                    usage,
                    follower,
                }) => {
                    (recorded, failures) = (recorded + 1, 0);
                    next = follower;
                    let usage = usage.unwrap_or_else(|| self.budget.look());
                    let gap = ended_at.replace(outcome.span.1);
                    let gap = gap.map(|ended| outcome.span.0.saturating_sub(ended));
                    self.tell(recorded, &outcome, usage, gap);
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
                        // A segment that has begun goes on.
                        _ if next.is_some() => Duration::ZERO,
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

    /// Records a segment, which is complete in the spool afterwards if it has samples. `next` is the segment if it has begun
    /// already. Unless it is the last one, the segment behind it begins when it ends.
    fn segment(
        &mut self,
        next: Option<Next>,
        is_last: bool,
        notes: &mut Notes,
    ) -> Result<Segmented, RecordError> {
        let Segments {
            spec,
            every,
            spool,
            budget,
            ..
        } = self;
        let name = match &next {
            Some(next) => next.name.clone(),
            None => spool.new_name(),
        };
        describe(spec, &name, spool, *every, budget.frequency());
        let part = spec.output.clone();
        let mut ahead = Ahead {
            notes,
            spool,
            budget,
            spec,
            every: *every,
            part: part.clone(),
            size: 0,
            is_wanted: !is_last,
            usage: None,
            next: None,
        };
        let result = match next {
            Some(next) => next.prepared.run(&mut ahead),
            None => {
                let spec = ahead.spec.clone();
                dioptra_recorder::record(&spec, &mut ahead)
            }
        };
        let (usage, follower) = (ahead.usage, ahead.next);
        let has_samples = match &result {
            Ok(outcome) => outcome.samples() > 0,
            // The records from before the disk was full can be read.
            Err(_) => spool::salvage(&part),
        };
        if has_samples {
            if let Err(error) = self.spool.complete_segment(&name) {
                say!("{error:#}");
            }
        } else {
            let _ = std::fs::remove_file(&part);
        }
        Ok(Segmented {
            outcome: result?,
            usage,
            follower: follower.filter(|next| next.has_begun),
        })
    }

    fn tell(&self, number: u64, outcome: &Outcome, usage: Usage, gap: Option<u64>) {
        if outcome.ending == Ending::Size {
            say!(
                "segment {number} ended early: it has half of --max-disk, {} MiB",
                self.spool.most() >> 21
            );
        }
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
            let gap = gap.map_or_else(String::new, |gap| {
                format!(", {:.2} ms not recorded before it", gap as f64 / 1e6)
            });
            say!(
                "segment {number}: {} samples in {:.1} s{gap}, {} KiB; the recorder used {:.2} % of the machine, {} Hz next",
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

/// Completes the specification of a segment.
fn describe(spec: &mut RecordSpec, name: &str, spool: &Spool, every: Duration, frequency: u64) {
    spec.output = spool.unfinished(name);
    spec.duration = Some(every);
    // The other half is for segments that wait for their upload.
    spec.most_bytes = Some(spool.most() / 2);
    spec.samples.rate = Rate::Frequency(frequency);
}

fn tell_deleted(deleted: &[Segment]) {
    if !deleted.is_empty() {
        let bytes: u64 = deleted.iter().map(|segment| segment.size).sum();
        say!(
            "the spool is full: the oldest segments were deleted ({} of them, {} KiB); give more with --max-disk",
            deleted.len(),
            bytes >> 10
        );
    }
}

/// A segment that was recorded.
struct Segmented {
    outcome: Outcome,
    /// The recorder's use of CPUs, if it was measured before the segment's end.
    usage: Option<Usage>,
    /// The segment that began when this one ended.
    follower: Option<Next>,
}

/// A segment whose events are open.
struct Next {
    name: String,
    prepared: Prepared,
    /// Whether it takes samples.
    has_begun: bool,
}

/// The observer of a segment. It keeps the spool within its bound, and lets the next segment begin when this one ends.
struct Ahead<'a> {
    notes: &'a mut Notes,
    spool: &'a Spool,
    budget: &'a mut Budget,
    spec: &'a mut RecordSpec,
    every: Duration,
    /// The file of the segment.
    part: PathBuf,
    /// Its size at the last look.
    size: u64,
    /// Whether there will be a next segment.
    is_wanted: bool,
    usage: Option<Usage>,
    next: Option<Next>,
}

impl Ahead<'_> {
    /// Deletes the oldest segments in time, before the one that is being recorded needs their room.
    fn make_room(&mut self) {
        let size = std::fs::metadata(&self.part).map_or(0, |metadata| metadata.len());
        let growth = size.saturating_sub(self.size);
        self.size = size;
        // As much again may come before the next look, and descriptions at the end.
        let headroom = (AT_THE_END + 2 * growth).min(self.spool.most() / 8);
        match self.spool.trim(headroom) {
            Ok(deleted) => tell_deleted(&deleted),
            Err(error) => self.notes.say_once(format!("{error:#}")),
        }
    }

    /// Opens the events of the next segment.
    fn prepare(&mut self) {
        self.is_wanted = false;
        let usage = self.budget.look();
        self.usage = Some(usage);
        if usage.pause > Duration::ZERO {
            return;
        }
        let name = self.spool.new_name();
        let frequency = self.budget.frequency();
        describe(self.spec, &name, self.spool, self.every, frequency);
        match Prepared::new(self.spec.clone(), self.notes) {
            Ok(prepared) => {
                self.next = Some(Next {
                    name,
                    prepared,
                    has_begun: false,
                });
            }
            Err(error) => {
                let error = remedies::with_remedy(&error);
                self.notes
                    .say_once(format!("the next segment begins late: {error}"));
            }
        }
    }
}

impl Observer for Ahead<'_> {
    fn note(&mut self, note: &RecordNote) {
        self.notes.note(note);
    }

    fn attached(&mut self, summary: &AttachSummary) {
        self.notes.attached(summary);
    }

    fn progress(&mut self, progress: Progress) {
        self.make_room();
        let ahead = AHEAD.min(self.every / 4);
        if self.is_wanted && progress.elapsed + ahead >= self.every {
            self.prepare();
        }
    }

    fn waiting(&mut self, _failure: Option<&RecordError>) {}

    fn disabled(&mut self) {
        if let Some(next) = &mut self.next {
            next.has_begun = next.prepared.begin().is_ok();
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
    /// Says something, unless it was said before.
    fn say_once(&mut self, note: String) {
        if self.said.len() < MOST_NOTES && self.said.insert(note.clone()) {
            say!("{note}");
        }
    }

    /// Lets the uploads end.
    fn finish(&mut self) {
        self.uploaded = self.uploads.take().map(Running::finish);
    }
}

impl Observer for Notes {
    fn note(&mut self, note: &RecordNote) {
        self.say_once(remedies::of_record_note(note));
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
