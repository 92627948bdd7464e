//! The outcome of a recording, and its progress.

use dioptra_perfevents::Unsampled;
use dioptra_processes::command::CommandStatus;
use std::path::PathBuf;
use std::time::Duration;

/// The reason why a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The command ended.
    CommandEnded,
    /// All processes or threads that were watched ended.
    TargetsEnded,
    /// A signal asked for the end: this one.
    Signal(i32),
    /// The time was over.
    Duration,
    /// The file has the size that it may have.
    Size,
}

/// One event's figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventOutcome {
    /// Its name in the file.
    pub name: String,
    /// The number of samples in the file.
    pub samples: u64,
    /// The name of its group's leader, whose samples hold its counts; `None` for an event that takes samples itself.
    pub counted_with: Option<String>,
    /// The number of its records that the kernel could not store; `None` where the kernel (before 6.0) does not count
    /// by event.
    pub lost: Option<u64>,
    /// The number of times that the kernel throttled it.
    pub throttled: u64,
    /// Whether it occurs whenever the target runs, as cycles and clocks do.
    pub passes_with_time: bool,
}

/// The outcome of a recording whose file is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcome {
    /// The file.
    pub path: PathBuf,
    /// Its size in bytes.
    pub size: u64,
    /// The events, as they were opened.
    pub events: Vec<EventOutcome>,
    /// The number of samples in the file that carry no event's id, because kernels write a wrong one where two
    /// profilers watch one software event.
    pub unknown_samples: u64,
    /// The number of records that were lost in all, of samples and of anything else.
    pub lost: u64,
    /// Events that were counted in threads too short to be sampled.
    pub unsampled: Vec<Unsampled>,
    /// Whether the command has rights that the recorder lacks (set-user-ID), or may not be read, so that the kernel
    /// ended its events.
    pub command_is_kept: bool,
    /// Whether mappings, threads' names and the like may be among the lost records.
    pub mappings_may_be_lost: bool,
    /// The times at which the events were enabled and disabled, in nanoseconds of the monotonic clock.
    pub span: (u64, u64),
    /// The time from the first moment in which samples could be taken to the last one.
    pub duration: Duration,
    /// The reason why it ended.
    pub ending: Ending,
    /// A signal that asked for an end when the recording was ending anyway.
    pub late_signal: Option<i32>,
    /// The end of the command, if there was one.
    pub command: Option<CommandStatus>,
}

impl Outcome {
    /// Makes the outcome of a recording whose command ended, with nothing lost.
    pub fn new(path: impl Into<PathBuf>, size: u64, events: Vec<EventOutcome>) -> Outcome {
        Outcome {
            path: path.into(),
            size,
            events,
            unknown_samples: 0,
            lost: 0,
            unsampled: Vec::new(),
            command_is_kept: false,
            mappings_may_be_lost: false,
            span: (0, 0),
            duration: Duration::ZERO,
            ending: Ending::CommandEnded,
            late_signal: None,
            command: None,
        }
    }

    /// Returns the number of samples in the file, of all events.
    pub fn samples(&self) -> u64 {
        self.events.iter().map(|event| event.samples).sum::<u64>() + self.unknown_samples
    }

    /// Returns the number of times that the kernel throttled an event.
    pub fn throttled(&self) -> u64 {
        self.events.iter().map(|event| event.throttled).sum()
    }
}

/// The progress of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The number of samples so far.
    pub samples: u64,
    /// The number of records known to be lost so far.
    pub lost: u64,
    /// The size of the records so far in bytes, before compression.
    pub bytes: u64,
    /// Time since the recording began.
    pub elapsed: Duration,
}
