//! The follower: it reads the recording from the pipe into a live profile, and answers requests for snapshots.

use super::Updates;
use crate::remedies;
use dioptra_perfdata::{LiveRecords, OpenError, PerfData, ReadSummary};
use dioptra_perfevents::ByteOrder;
use dioptra_perfevents::record::RawRecord;
use dioptra_profile::{LiveProfile, LiveSize, LoadPlan, Profile};
use dioptra_recorder::existing::Synthesizer;
use dioptra_recorder::machine::Machine;
use rustix::time::{ClockId, clock_gettime};
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The largest number of call stacks that are held, unless the user gives another.
pub const MOST_STACKS: usize = 1 << 20;

/// The largest sizes of the profile's tables, which take some hundred megabytes together.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Distinct call stacks, and distinct pairs of a thread and a stack.
    pub stacks: usize,
    /// Distinct addresses.
    pub frames: usize,
    /// Threads, ended ones included.
    pub threads: usize,
    /// Samples of each event whose times are held, for the span that ends now.
    pub samples: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            stacks: MOST_STACKS,
            frames: 1 << 20,
            threads: 1 << 17,
            samples: 1 << 22,
        }
    }
}

impl Limits {
    /// Returns whether a table is full.
    fn are_reached(&self, size: LiveSize) -> bool {
        size.stacks >= self.stacks
            || size.cells >= self.stacks.saturating_mul(2)
            || size.frames >= self.frames
            || size.threads >= self.threads
    }
}

/// Requests of the thread that shows.
#[derive(Clone, Default)]
pub struct Requests(Arc<Asked>);

#[derive(Default)]
struct Asked {
    snapshot: AtomicBool,
    ended: AtomicBool,
}

impl Requests {
    /// Asks for a snapshot, which comes as an update.
    pub fn snapshot(&self) {
        self.0.snapshot.store(true, Ordering::Release);
    }

    /// Says that no more snapshots are wanted.
    pub fn end(&self) {
        self.0.ended.store(true, Ordering::Release);
    }

    fn take(&self) -> bool {
        self.0.snapshot.swap(false, Ordering::AcqRel)
    }

    fn are_over(&self) -> bool {
        self.0.ended.load(Ordering::Acquire)
    }
}

/// A message to the thread that shows.
pub enum Update {
    /// The profile so far, as it was asked for.
    Snapshot(Box<Snapshot>),
    /// The profile at the recording's end; no snapshot follows.
    Last(Box<Snapshot>),
    /// The recording cannot be read.
    Failed(String),
    /// The command or all targets have ended.
    TargetsEnded,
    /// The recording was ended, or has failed.
    Stop,
}

/// The profile at one moment.
pub struct Snapshot {
    /// The counts since the start, or since the tables were full.
    pub profile: Profile,
    /// The number of times that the tables were full. Ids of two snapshots agree if this number does.
    pub restarts: u64,
    /// The age of the profile's first sample.
    pub age: Duration,
    /// The start of the span that ends now, in nanoseconds since the profile's first sample.
    pub now_from: u64,
    /// The number of samples of the whole recording, of all events.
    pub samples: u64,
    /// The number of records that were lost.
    pub lost: u64,
    /// The number of samples of the span that are missing there, because too many came.
    pub forgotten: u64,
}

/// The place where the recording is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// This process records on this machine.
    Here,
    /// The recording comes through a pipe, perhaps from another machine.
    Elsewhere,
}

/// The times of a recording.
struct Clock {
    origin: Origin,
    /// The latest time of a record, in nanoseconds.
    latest: u64,
}

impl Clock {
    /// Nanoseconds of the recording's clock now, as far as this machine knows it.
    fn now(&self) -> u64 {
        match self.origin {
            // Events have the monotonic clock.
            Origin::Here => Duration::try_from(clock_gettime(ClockId::Monotonic)).map_or(0, nanos),
            Origin::Elsewhere => self.latest,
        }
    }

    /// Nanoseconds since the profile's first sample; 0 before it.
    fn elapsed(&self, live: &LiveProfile<'_>) -> u64 {
        let now = self.now();
        live.first_time()
            .map_or(0, |first| now.saturating_sub(first))
    }
}

/// The thread that reads the pipe.
pub struct Follower {
    pub pipe: Box<dyn Read + Send>,
    pub origin: Origin,
    pub plan: LoadPlan,
    pub limits: Limits,
    /// The length of the span that ends now.
    pub span: Duration,
    pub requests: Requests,
    pub updates: Updates,
}

impl Follower {
    /// Follows the recording to its end. Whatever fails, the pipe is read to its end, so that the recorder does not wait.
    pub fn run(mut self) {
        if let Err(error) = self.follow() {
            // Nobody may be left to listen.
            let _ = self
                .updates
                .send(Update::Failed(remedies::with_remedy(&*error)));
        }
        let _ = io::copy(&mut self.pipe, &mut io::sink());
    }

    fn follow(&mut self) -> Result<(), Box<dyn std::error::Error>> {
        let (data, mut records) = match LiveRecords::open(&mut self.pipe) {
            Ok(opened) => opened,
            // The recorder has failed before it wrote anything, and says why itself.
            Err(OpenError::Empty { .. }) if self.origin == Origin::Here => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let mut clock = Clock {
            origin: self.origin,
            latest: 0,
        };
        let mut restarts = 0;
        loop {
            let plan = self.plan.clone();
            let is_over = Profile::follow(&data, &plan, |live| -> io::Result<bool> {
                if restarts > 0 {
                    describe_machine(&data, live)?;
                }
                let mut forgotten = 0;
                loop {
                    let more = read(&mut records, &mut self.pipe, &data, live, &mut clock)?;
                    let now_from = clock.elapsed(live).saturating_sub(nanos(self.span));
                    forgotten += live.forget_samples(now_from, self.limits.samples);
                    let is_over = self.requests.are_over();
                    if is_over {
                        return Ok(true);
                    }
                    if !more || self.requests.take() {
                        let snapshot = snapshot(live, records.summary(), restarts, now_from);
                        let snapshot = Box::new(Snapshot {
                            age: Duration::from_nanos(clock.elapsed(live)),
                            forgotten: std::mem::take(&mut forgotten),
                            ..snapshot
                        });
                        let update = match more {
                            true => Update::Snapshot(snapshot),
                            false => Update::Last(snapshot),
                        };
                        if self.updates.send(update).is_err() || !more {
                            return Ok(true);
                        }
                    }
                    if self.limits.are_reached(live.size()) {
                        return match self.origin {
                            Origin::Here => Ok(false),
                            // The processes of another machine cannot be described anew.
                            Origin::Elsewhere => Err(io::Error::other(
                                "the tables are full; give more with --max-stacks",
                            )),
                        };
                    }
                }
            })?;
            if is_over {
                return Ok(());
            }
            restarts += 1;
        }
    }
}

/// Reads what has come; false at the pipe's end.
fn read(
    records: &mut LiveRecords,
    pipe: &mut impl Read,
    data: &PerfData,
    live: &mut LiveProfile<'_>,
    clock: &mut Clock,
) -> io::Result<bool> {
    records.read_from(pipe, data, |record| {
        clock.latest = clock.latest.max(record.time.unwrap_or(0));
        live.record(&record);
    })
}

/// Describes the kernel and all processes to a profile that begins in the middle of a recording.
fn describe_machine(data: &PerfData, live: &mut LiveProfile<'_>) -> io::Result<()> {
    let Some(event) = data.events().first() else {
        return Ok(());
    };
    let id = event.ids.first().copied().unwrap_or(0);
    let write = |bytes: &[u8]| -> io::Result<()> {
        if let Ok((raw, _)) = RawRecord::split(bytes, ByteOrder::NATIVE) {
            live.record(&data.made_up(raw));
        }
        Ok(())
    };
    let mut synthesizer = Synthesizer::new(&event.attr, id, write).data_mappings(true);
    synthesizer.kernel(&Machine::running().os_release)?;
    synthesizer.machine()
}

/// Returns the profile so far, without its age.
fn snapshot(
    live: &mut LiveProfile<'_>,
    summary: &ReadSummary,
    restarts: u64,
    now_from: u64,
) -> Snapshot {
    Snapshot {
        profile: live.snapshot(summary),
        restarts,
        age: Duration::ZERO,
        now_from,
        samples: summary.samples.iter().sum::<u64>() + summary.unknown_ids,
        lost: summary.lost + summary.lost_samples,
        forgotten: 0,
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
