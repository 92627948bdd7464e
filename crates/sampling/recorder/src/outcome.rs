//! What came of a recording.

use dioptra_perfevents::Unsampled;
use dioptra_processes::command::CommandStatus;
use std::path::PathBuf;
use std::time::Duration;

/// Why a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The command ended.
    CommandEnded,
    /// All processes or threads that were watched ended.
    TargetsEnded,
    /// This signal asked for it.
    Signal(i32),
    /// The time was over.
    Duration,
}

/// One event's figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventOutcome {
    /// Its name, as the file has it.
    pub name: String,
    /// Samples in the file.
    pub samples: u64,
    /// Records of it that the kernel could not store; `None` where the kernel (before 6.0) does not count by event.
    pub lost: Option<u64>,
    /// How often the kernel throttled it.
    pub throttled: u64,
    /// Whether it occurs whenever the target runs, as cycles and clocks do.
    pub passes_with_time: bool,
}

/// What came of a recording. Its file is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcome {
    /// The file.
    pub path: PathBuf,
    /// Its size in bytes.
    pub size: u64,
    /// The events, as they were opened.
    pub events: Vec<EventOutcome>,
    /// Samples in the file that carry no event's id, which kernels get wrong where two profilers watch one software
    /// event.
    pub unknown_samples: u64,
    /// Records that were lost in all, of samples and of anything else.
    pub lost: u64,
    /// Events that were counted in threads too short to be sampled.
    pub unsampled: Vec<Unsampled>,
    /// Whether the command has rights that the recorder lacks (set-user-ID), or may not be read: the kernel ended its events.
    pub command_is_kept: bool,
    /// Whether mappings, threads' names and the like may be among them.
    pub mappings_may_be_lost: bool,
    /// From the first moment in which samples could be taken to the last.
    pub duration: Duration,
    /// Why it ended.
    pub ending: Ending,
    /// How the command ended, if there was one.
    pub command: Option<CommandStatus>,
}

impl Outcome {
    /// A recording whose command ended, with nothing lost.
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
            duration: Duration::ZERO,
            ending: Ending::CommandEnded,
            command: None,
        }
    }

    /// Samples in the file, of all events.
    pub fn samples(&self) -> u64 {
        self.events.iter().map(|event| event.samples).sum::<u64>() + self.unknown_samples
    }

    /// How often the kernel throttled an event.
    pub fn throttled(&self) -> u64 {
        self.events.iter().map(|event| event.throttled).sum()
    }

    /// The exit status that passes the command's on; 0 without one, or if it only died because we ended it when the
    /// recording's time was over.
    pub fn exit_code(&self) -> u8 {
        match (self.command, self.ending) {
            (None, _) | (Some(CommandStatus::Signaled(libc::SIGTERM)), Ending::Duration) => 0,
            (Some(status), _) => status.exit_code(),
        }
    }
}

/// How far a recording is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Samples so far.
    pub samples: u64,
    /// Records known to be lost so far.
    pub lost: u64,
    /// Bytes of records so far, before compression.
    pub bytes: u64,
    /// Time since the recording began.
    pub elapsed: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_status_is_passed_on_unless_we_ended_it() {
        let outcome = |command, ending| Outcome {
            command,
            ending,
            ..Outcome::new("perf.data", 0, Vec::new())
        };
        let terminated = Some(CommandStatus::Signaled(libc::SIGTERM));
        assert_eq!(outcome(None, Ending::Signal(libc::SIGINT)).exit_code(), 0);
        assert_eq!(
            outcome(Some(CommandStatus::Exited(3)), Ending::CommandEnded).exit_code(),
            3
        );
        assert_eq!(outcome(terminated, Ending::CommandEnded).exit_code(), 143);
        assert_eq!(outcome(terminated, Ending::Duration).exit_code(), 0);
        assert_eq!(
            outcome(Some(CommandStatus::Exited(3)), Ending::Duration).exit_code(),
            3
        );
    }
}
